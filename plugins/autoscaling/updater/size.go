package updater

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Knobs is what may be resized in place of one container: what has a limit, and
// does not restart the container.
func Knobs(c corev1.Container) mdp.Set {
	knobs := mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
	if c.Resources.Limits.Cpu().IsZero() {
		knobs = knobs.Without(mdp.SetOf(mdp.CPULimit))
	}
	if c.Resources.Limits.Memory().IsZero() {
		knobs = knobs.Without(mdp.SetOf(mdp.MemoryLimit))
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			switch p.ResourceName {
			case corev1.ResourceCPU:
				knobs = knobs.Without(mdp.SetOf(mdp.CPULimit))
			case corev1.ResourceMemory:
				knobs = knobs.Without(mdp.SetOf(mdp.MemoryLimit))
			}
		}
	}
	return knobs
}

// Limits is a container's limits as a Size. No limit is 0.
func Limits(r corev1.ResourceRequirements) mdp.Size {
	return mdp.Size{CPU: mdp.MilliCPU(r.Limits.Cpu().MilliValue()), Memory: mdp.Bytes(r.Limits.Memory().Value())}
}

// Resize is a container's resources with the limits that an action sets.
// Requests keep their proportion to the limits, as in VPA. The proportion is
// the template's, so that rounding does not add up. The QoS class does not
// change: what was equal stays equal, and what was less stays less.
func Resize(template, now corev1.ResourceRequirements, a mdp.Action) corev1.ResourceRequirements {
	out := *now.DeepCopy()
	if a.Sets.Has(mdp.CPULimit) {
		limit := int64(a.Limit.CPU)
		out.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(limit, resource.DecimalSI)
		if _, ok := now.Requests[corev1.ResourceCPU]; ok {
			request := proportion(limit, template.Requests.Cpu().MilliValue(),
				template.Limits.Cpu().MilliValue(), 1)
			out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(request, resource.DecimalSI)
		}
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		limit := wholeMiB(int64(a.Limit.Memory))
		out.Limits[corev1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
		if _, ok := now.Requests[corev1.ResourceMemory]; ok {
			request := wholeMiB(
				proportion(limit, template.Requests.Memory().Value(), template.Limits.Memory().Value(),
					int64(mdp.MiB)),
			)
			if template.Requests.Memory().Cmp(*template.Limits.Memory()) < 0 && request >= limit {
				request = limit - int64(mdp.MiB)
			}
			out.Requests[corev1.ResourceMemory] = *resource.NewQuantity(max(request, 1), resource.BinarySI)
		}
	}
	return out
}

// proportion is limit * request0 / limit0, at least least, and below limit
// where request0 was below limit0.
func proportion(limit, request0, limit0, least int64) int64 {
	if limit0 <= 0 || request0 >= limit0 {
		return limit
	}
	return max(min(int64(float64(limit)*float64(request0)/float64(limit0)), limit-1), min(least, limit-1), 1)
}

// wholeMiB rounds up to whole mebibytes, which people can read.
func wholeMiB(b int64) int64 {
	const m = int64(mdp.MiB)
	return (b + m - 1) / m * m
}

// findContainer finds a container by name.
func findContainer(pod *corev1.PodSpec, name string) (*corev1.Container, error) {
	for i := range pod.Containers {
		if pod.Containers[i].Name == name {
			return &pod.Containers[i], nil
		}
	}
	return nil, fmt.Errorf("no container named %q", name)
}
