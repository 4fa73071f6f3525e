package headroom

import (
	"context"
	"math"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-scheduler/framework"
)

// Score is the share of the node, from 0 to 100, that is left after all upper
// bounds and that of the new pod: the smaller of CPU and memory.
func (h *Headroom) Score(_ context.Context, _ framework.CycleState, pod *corev1.Pod,
	node framework.NodeInfo) (int64, *framework.Status) {
	name, now := node.Node().Name, h.now()
	// In this order: a pod that is reported between the two counts twice, and not at all
	// in the other.
	reported, _ := h.reports.Upper(name, now, MaxReportAge)
	promised, isPromised := h.reports.Promised(name, now, MaxReportAge)
	all := mdp.Size{
		CPU:    mdp.MilliCPU(node.GetAllocatable().GetMilliCPU()),
		Memory: mdp.Bytes(node.GetAllocatable().GetMemory()),
	}
	var sum mdp.Size
	// A pod counts for at most the node, and so does a promise, whatever an owner or an
	// agent says: the sum cannot overflow.
	add := func(one mdp.Size) {
		sum.CPU += max(0, min(one.CPU, all.CPU))
		sum.Memory += max(0, min(one.Memory, all.Memory))
	}
	add(ceiling(pod))
	if isPromised {
		add(promised)
	}
	for _, p := range node.GetPods() {
		// What an agent reports is better than the API's limits, which count
		// for the rest.
		if upper, ok := reported[string(p.GetPod().UID)]; ok {
			if !isPromised {
				add(upper)
			}
			continue
		}
		add(ceiling(p.GetPod()))
	}
	return min(left(int64(sum.CPU), int64(all.CPU)), left(int64(sum.Memory), int64(all.Memory))), nil
}

// ScoreExtensions is nil: the scores are shares already.
func (h *Headroom) ScoreExtensions() framework.ScoreExtensions { return nil }

// left is the share of all that is left after used, as a score.
func left(used, all int64) int64 {
	if all <= 0 || used >= all {
		return framework.MinScore
	}
	return framework.MaxScore * (all - used) / all
}

// ceiling is the most that a pod may use by its spec: the limits, or the
// requests where there is no limit.
func ceiling(pod *corev1.Pod) mdp.Size {
	var s mdp.Size
	for _, c := range pod.Spec.Containers {
		s.CPU = plus(s.CPU, max(c.Resources.Limits.Cpu().MilliValue(), c.Resources.Requests.Cpu().MilliValue()))
		s.Memory = plus(s.Memory, max(c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value()))
	}
	return s
}

// plus adds a number that is not negative, and stays at the highest number where the
// sum has no room: an owner may write a limit of 8 EiB into each container.
func plus[T ~int64](sum T, n int64) T {
	if n > math.MaxInt64-int64(sum) {
		return math.MaxInt64
	}
	return sum + T(n)
}
