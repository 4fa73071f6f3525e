package updater

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Knobs is what may be resized in place of one container: what has a limit, and
// does not restart the container. Where nothing is reserved, nothing is to be.
func Knobs(c corev1.Container) mdp.Set {
	knobs := mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit)
	if c.Resources.Limits.Cpu().IsZero() || Reserved(c.Resources) == 0 {
		knobs = knobs.Without(mdp.SetOf(mdp.CPUReservation))
	}
	if c.Resources.Limits.Memory().IsZero() {
		knobs = knobs.Without(mdp.SetOf(mdp.MemoryLimit))
	}
	for _, p := range c.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			switch p.ResourceName {
			case corev1.ResourceCPU:
				knobs = knobs.Without(mdp.SetOf(mdp.CPUReservation))
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

// Reserved is the CPU that a container requests; 0 is none.
func Reserved(r corev1.ResourceRequirements) mdp.MilliCPU {
	r = withRequests(r)
	return mdp.MilliCPU(r.Requests.Cpu().MilliValue())
}

// Proportion is the CPU request that goes with a limit in a template's proportion, and at
// least that much, but never more than the limit.
func Proportion(template corev1.ResourceRequirements, limit, least mdp.MilliCPU) mdp.MilliCPU {
	template = withRequests(template)
	request := proportion(int64(limit), template.Requests.Cpu().MilliValue(), template.Limits.Cpu().MilliValue(), int64(least))
	return max(mdp.MilliCPU(request), min(least, limit))
}

// MemoryRequest is the memory that a template's container requests; 0 when it
// requests none, and has no limit either.
func MemoryRequest(template corev1.ResourceRequirements) mdp.Bytes {
	out := withRequests(template)
	return mdp.Bytes(out.Requests.Memory().Value())
}

// Wanted is the resources that an action gives a container of a pod: of what can be
// resized, within the owner's bounds, in whole mebibytes. The ceilings are the owner's maxima. The template is the pod's.
// It is what is written to pods/resize, and what a new pod is created with.
func Wanted(template, now corev1.Container, b mdp.Bounds, a mdp.Action) corev1.ResourceRequirements {
	a.Sets &= Knobs(now)
	return Resize(template.Resources, now.Resources, mdp.Size{CPU: b.CPU.Max, Memory: b.Memory.Max}, Whole(b, a))
}

// A reservation is moved when it changes by leastChange of what is reserved, which is the
// VPA updater's own --pod-update-threshold, and CPU by leastStep.
const (
	leastChange              = 0.1
	leastStep   mdp.MilliCPU = 10
)

// Worthwhile is an action that keeps what a container has reserved, where its own
// is hardly another amount. A typical use is a mean that moves by a few millicores all the time:
// to follow it took a node of 110 idle pods more than a core, in its kubelet, its runtime and
// the API server. And the kubelet sets all limits with each resize: a memory request that went up and down by a mebibyte
// gave containers their ceiling in force for a second of each ten. A policy that wants a little more than there is, again and
// again, gets nothing: it has to want what it needs in the end. A memory limit that is too small for that is raised.
// What is held is kept in any case.
func Worthwhile(template, now corev1.ResourceRequirements, b mdp.Bounds, a mdp.Action, held mdp.Set) mdp.Action {
	if has := Reserved(now); a.Sets.Has(mdp.CPUReservation) && has > 0 && (held.Has(mdp.CPUReservation) ||
		apart(has, a.Reservation) < leastStep || hardly(has, a.Reservation)) {
		a = a.WithReservation(has)
	}
	has := Memory(template, now)
	if a.Sets.Has(mdp.MemoryLimit) && has > 0 && b.Memory.Has(has) && (held.Has(mdp.MemoryLimit) ||
		hardly(has, a.Limit.Memory) && int64(a.Limit.Memory) <= now.Limits.Memory().Value()) {
		a = a.Without(mdp.SetOf(mdp.MemoryLimit))
	}
	return a
}

// held is what an action leaves as it is: its value is what the pods have in the mean, which is what policies and guards see.
// While pods are resized in turns they have different sizes, and each keeps its own.
func (w *Workload) held(container string, a mdp.Action) (held mdp.Set) {
	mean := w.Mean(container)
	if a.Sets.Has(mdp.CPUReservation) && a.Reservation == mean.Reservation {
		held |= mdp.SetOf(mdp.CPUReservation)
	}
	if a.Sets.Has(mdp.MemoryLimit) && apart(a.Limit.Memory, mean.Memory) < mdp.MiB { // it is in whole mebibytes
		held |= mdp.SetOf(mdp.MemoryLimit)
	}
	return held
}

// hardly reports whether an amount is hardly another one.
func hardly[T ~int64](has, want T) bool { return float64(apart(has, want)) < leastChange*float64(has) }

func apart[T ~int64](x, y T) T { return max(x-y, y-x) }

// Whole is an action within bounds, with its memory in whole mebibytes: rounded up, or
// down where up is above the bounds. Where no whole number is within them, it is exact.
func Whole(b mdp.Bounds, a mdp.Action) mdp.Action {
	a = b.Clip(a)
	if !a.Sets.Has(mdp.MemoryLimit) {
		return a
	}
	up := mdp.Bytes(wholeMiB(int64(a.Limit.Memory)))
	switch down := up - mdp.MiB; {
	case up <= b.Memory.Max:
		a.Limit.Memory = up
	case down >= b.Memory.Min && down > 0:
		a.Limit.Memory = down
	}
	return a
}

// Resize is a container's resources with what an action sets (ADR 18).
//
// The CPU request is the reservation. The CPU limit is the ceiling, up to which the node
// agent lets bursts go at once: it does not follow the reservation. A container whose
// template requests as much CPU as its limit keeps it so. Of memory an action sets one number. The
// request follows it in the proportion of the template, as in VPA, so that rounding does not add up.
// The limit is that number, but no less than the template's where the owner's maximum allows it: a lower
// limit reserves no less, and has the kernel kill in a burst what its owner gave room. The QoS class does not change: what
// was equal stays equal, and what was less stays less.
func Resize(template, now corev1.ResourceRequirements, ceiling mdp.Size, a mdp.Action) corev1.ResourceRequirements {
	out := *now.DeepCopy()
	template = withRequests(template)
	if a.Sets.Has(mdp.CPUReservation) {
		request := int64(a.Reservation)
		limit := request
		if Bursts(template) {
			limit = max(int64(ceiling.CPU), 2) // 2 leaves room for a request below it
			request = min(request, limit-1)
		}
		out.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(limit, resource.DecimalSI)
		if _, ok := now.Requests[corev1.ResourceCPU]; ok {
			out.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(request, resource.DecimalSI)
		}
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		size := int64(a.Limit.Memory)
		limit := size
		if burstsMemory(template) {
			limit = max(size, min(template.Limits.Memory().Value(), int64(ceiling.Memory)))
		}
		out.Limits[corev1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
		if _, ok := now.Requests[corev1.ResourceMemory]; ok {
			request := memoryRequest(size, limit, template)
			out.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, resource.BinarySI)
		}
	}
	return out
}

// Bursts reports whether a template's container may use more CPU than it requests.
func Bursts(template corev1.ResourceRequirements) bool {
	template = withRequests(template)
	return template.Requests.Cpu().Cmp(*template.Limits.Cpu()) < 0
}

// burstsMemory reports whether a template's container may use more memory than it requests.
func burstsMemory(template corev1.ResourceRequirements) bool {
	template = withRequests(template)
	return template.Requests.Memory().Cmp(*template.Limits.Memory()) < 0
}

// Memory is the memory that was decided for a container, as [Resize] wrote it: its limit where that is
// above the template's or equals the request, and else what its request is in the template's proportion. No limit is 0.
func Memory(template, now corev1.ResourceRequirements) mdp.Bytes {
	template, now = withRequests(template), withRequests(now)
	limit, limit0 := now.Limits.Memory().Value(), template.Limits.Memory().Value()
	request, request0 := now.Requests.Memory().Value(), template.Requests.Memory().Value()
	if limit > limit0 || request0 <= 0 || request0 >= limit0 || request <= 0 {
		return mdp.Bytes(limit)
	}
	return min(mdp.Bytes(limit), mdp.Bytes(float64(request)/float64(request0)*float64(limit0)))
}

// memoryRequest is the memory request for a size, in whole mebibytes where it is not the limit.
func memoryRequest(size, limit int64, template corev1.ResourceRequirements) int64 {
	request0, limit0 := template.Requests.Memory(), template.Limits.Memory()
	if request0.Cmp(*limit0) >= 0 {
		return limit
	}
	request := wholeMiB(proportion(size, request0.Value(), limit0.Value(), int64(mdp.MiB)))
	if request >= limit {
		request = limit - int64(mdp.MiB)
	}
	return max(request, 1)
}

// proportion is limit * request0 / limit0, at least least, and below limit
// where request0 was below limit0.
func proportion(limit, request0, limit0, least int64) int64 {
	if limit0 <= 0 || request0 >= limit0 {
		return limit
	}
	return max(min(int64(float64(limit)*float64(request0)/float64(limit0)), limit-1), min(least, limit-1), 1)
}

// withRequests is a template's resources as its pods have them: the API server
// sets a request that is left out to the limit.
func withRequests(template corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := *template.DeepCopy()
	for name, limit := range template.Limits {
		if _, ok := out.Requests[name]; !ok {
			if out.Requests == nil {
				out.Requests = corev1.ResourceList{}
			}
			out.Requests[name] = limit
		}
	}
	return out
}

// AsTemplate reports whether a pod's container has the template's amounts of the resources
// that knobs move.
func AsTemplate(template, now corev1.Container, knobs mdp.Set) bool {
	of := withRequests(template.Resources)
	for knob, name := range map[mdp.Signal]corev1.ResourceName{
		mdp.CPUReservation: corev1.ResourceCPU, mdp.MemoryLimit: corev1.ResourceMemory,
	} {
		limit, request := of.Limits[name], of.Requests[name]
		if knobs.Has(knob) && (limit.Cmp(now.Resources.Limits[name]) != 0 || request.Cmp(now.Resources.Requests[name]) != 0) {
			return false
		}
	}
	return true
}

// sizeOf is the size that a container has when its node has allocated these
// requests: its limits keep the template's proportion, as Resize makes them, but for a limit
// that is a ceiling, which stays. What is not allocated is the template's.
func sizeOf(allocated, limits corev1.ResourceList, template corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := withRequests(template)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, known := allocated[name]
		request0, limit0 := out.Requests[name], out.Limits[name]
		if !known || request.Sign() <= 0 || request.Cmp(request0) == 0 {
			continue
		}
		out.Requests[name] = request
		if limit0.IsZero() {
			continue // there is no limit
		}
		share := limit0.AsApproximateFloat64() / request0.AsApproximateFloat64()
		switch {
		case request0.Cmp(limit0) >= 0:
			out.Limits[name] = request
		case name == corev1.ResourceCPU:
			ceiling := limits[name]
			out.Limits[name] = *resource.NewMilliQuantity(max(ceiling.MilliValue(), request.MilliValue()+1), resource.DecimalSI)
		default:
			ceiling := limits[name]
			limit := max(wholeMiB(int64(float64(request.Value())*share)), min(limit0.Value(), ceiling.Value()))
			out.Limits[name] = *resource.NewQuantity(max(limit, wholeMiB(request.Value()+1)), resource.BinarySI)
		}
	}
	return out
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
