package headroom

import (
	"context"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-scheduler/framework"
)

// Score is the share of the node, from 0 to 100, that is left after all upper
// bounds and that of the new pod: the smaller of CPU and memory.
func (h *Headroom) Score(_ context.Context, _ framework.CycleState, pod *corev1.Pod,
	node framework.NodeInfo) (int64, *framework.Status) {
	reported, _ := h.fleet.Upper(node.Node().Name, h.now(), maxReportAge)
	sum := ceiling(pod)
	for _, p := range node.GetPods() {
		// What an agent reports is better than the API's limits, which count
		// for the rest.
		if upper, ok := reported[string(p.GetPod().UID)]; ok {
			sum.CPU += upper.CPU
			sum.Memory += upper.Memory
			continue
		}
		c := ceiling(p.GetPod())
		sum.CPU += c.CPU
		sum.Memory += c.Memory
	}
	all := node.GetAllocatable()
	return min(left(int64(sum.CPU), all.GetMilliCPU()), left(int64(sum.Memory), all.GetMemory())), nil
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
		s.CPU += mdp.MilliCPU(max(c.Resources.Limits.Cpu().MilliValue(), c.Resources.Requests.Cpu().MilliValue()))
		s.Memory += mdp.Bytes(max(c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value()))
	}
	return s
}
