package recommender

import (
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Objective is the objective of a spec. Without an alpha, the SLO and
// utilisation count the same.
func Objective(spec v1alpha1.MultidimPodAutoscalerSpec) mdp.Objective {
	o := mdp.Objective{Alpha: 0.5, Reserved: spec.Learner != nil && spec.Learner.Algorithm == v1alpha1.AlgorithmBCQ}
	if spec.Objective != nil && spec.Objective.Alpha != nil {
		o.Alpha = mdp.Ratio(spec.Objective.Alpha.AsApproximateFloat64())
	}
	if s := spec.SLO; s != nil {
		if s.Latency != nil {
			o.SLO.Latency = s.Latency.Threshold.Duration
			o.SLO.Percentile = float64(s.Latency.Percentile)
		}
		if s.Throughput != nil {
			o.SLO.Throughput = mdp.Rate(s.Throughput.AsApproximateFloat64())
		}
	}
	return o
}

// The lowest limits of a container whose spec gives no minimum, nor a request of
// memory: small enough to save resources, large enough to start.
const (
	defaultMinCPU    mdp.MilliCPU = 50
	defaultMinMemory              = 32 * mdp.MiB
)

// leastReservation is the least CPU that is reserved, where the template reserves as much:
// VPA's own.
const leastReservation mdp.MilliCPU = 25

// Envelope is what may be done with one container: the bounds of its limits, of its CPU
// reservation and of the workload's replicas, and the knobs that may be moved. The upper
// bound of CPU is the ceiling. The least reservation is the least limit, in the
// template's proportion. The constraints
// of the container's name count before those of "*". The default maximum is the
// template's limit. What is decided of memory goes below the template's request only when its
// owner asks for it with a minimum or a maximum there.
func Envelope(all v1alpha1.Constraints, c corev1.Container, replicas int32) (mdp.Bounds, mdp.Set, error) {
	own := constraintsOf(all, c.Name)
	not := uncontrolled(own.ControlledResources)
	knobs := updater.Knobs(c).Without(not)
	limits := updater.Limits(c.Resources)
	minCPU := min(defaultMinCPU, orDefault(mdp.MilliCPU(c.Resources.Requests.Cpu().MilliValue()), defaultMinCPU))
	maxMemory := memoryOf(own.Max, limits.Memory)
	minMemory := min(orDefault(updater.MemoryRequest(c.Resources), defaultMinMemory), maxMemory)
	b := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: int(replicas), Max: int(replicas)},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: cpuOf(own.Min, minCPU), Max: cpuOf(own.Max, limits.CPU)},
		Memory:   mdp.Range[mdp.Bytes]{Min: memoryOf(own.Min, minMemory), Max: maxMemory},
	}
	b.Reservation = mdp.Range[mdp.MilliCPU]{
		Min: updater.Proportion(c.Resources, b.CPU.Min, min(leastReservation, updater.Reserved(c.Resources))),
		Max: b.CPU.Max,
	}
	if updater.Bursts(c.Resources) {
		b.Reservation.Max = max(b.Reservation.Min, b.CPU.Max-1) // the QoS class stays
	}
	if r := all.Replicas; r != nil {
		b.Replicas = mdp.Range[int]{Min: int(max(1, r.Min)), Max: int(r.Max)}
	}
	// A knob that is never moved gets a range that is valid. What its owner does not let us
	// control stays where it is, on the node too.
	if !knobs.Has(mdp.CPUReservation) {
		b.CPU = mdp.Range[mdp.MilliCPU]{Min: 1, Max: max(1, limits.CPU)}
		b.Reservation = mdp.Range[mdp.MilliCPU]{}
	}
	if !knobs.Has(mdp.MemoryLimit) {
		b.Memory = mdp.Range[mdp.Bytes]{Min: 1, Max: max(1, limits.Memory)}
	}
	if not.Has(mdp.CPUReservation) {
		b.CPU.Min = b.CPU.Max
	}
	if not.Has(mdp.MemoryLimit) {
		b.Memory.Min = b.Memory.Max
	}
	if err := b.Check(); err != nil {
		return mdp.Bounds{}, 0, fmt.Errorf("constraints of container %s: %w", c.Name, err)
	}
	return b, knobs, nil
}

// constraintsOf finds the constraints of a container: by its name, or else "*".
func constraintsOf(all v1alpha1.Constraints, container string) v1alpha1.ContainerConstraints {
	var found v1alpha1.ContainerConstraints
	for _, one := range all.Containers {
		if one.Name == container || one.Name == "*" && found.Name == "" {
			found = one
		}
	}
	return found
}

// uncontrolled is the knobs that a list of controlled resources leaves out. An
// empty list controls everything.
func uncontrolled(controlled []corev1.ResourceName) mdp.Set {
	var knobs mdp.Set
	if len(controlled) == 0 {
		return knobs
	}
	if !slices.Contains(controlled, corev1.ResourceCPU) {
		knobs |= mdp.SetOf(mdp.CPUReservation)
	}
	if !slices.Contains(controlled, corev1.ResourceMemory) {
		knobs |= mdp.SetOf(mdp.MemoryLimit)
	}
	return knobs
}

// orDefault is the value, or the default when the value is not set.
func orDefault[T ~int64](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// cpuOf is the size's CPU, or the default when it has none.
func cpuOf(s *v1alpha1.Size, otherwise mdp.MilliCPU) mdp.MilliCPU {
	if s == nil || s.CPU == nil {
		return otherwise
	}
	q := atMost(*s.CPU)
	return mdp.MilliCPU(q.MilliValue())
}

// memoryOf is the size's memory, or the default when it has none.
func memoryOf(s *v1alpha1.Size, otherwise mdp.Bytes) mdp.Bytes {
	if s == nil || s.Memory == nil {
		return otherwise
	}
	q := atMost(*s.Memory)
	return mdp.Bytes(q.Value())
}

// atMost is a quantity that an int64 can hold: a bound above all that there is, is none.
func atMost(q resource.Quantity) resource.Quantity {
	if q.Cmp(v1alpha1.Most) > 0 {
		return v1alpha1.Most
	}
	return q
}
