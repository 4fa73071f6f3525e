package headroom

import (
	"context"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-scheduler/framework"
)

// Score is the share of the node, from 0 to 100, that is left after all upper bounds and the new pod's: of CPU or of
// memory, whichever is less.
func (h *Headroom) Score(_ context.Context, _ framework.CycleState, pod *corev1.Pod, node framework.NodeInfo) (int64, *framework.Status) {
	reported, _ := h.fleet.Upper(node.Node().Name, h.now(), maxReportAge)
	sum := ceiling(pod)
	for _, p := range node.GetPods() {
		// An agent knows better than the API what may come to be used; of the rest the limits are what may.
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

// ceiling is the most that a pod may use by its spec: the limits, or the requests of what has none.
func ceiling(pod *corev1.Pod) mdp.Size {
	var s mdp.Size
	for _, c := range pod.Spec.Containers {
		s.CPU += mdp.MilliCPU(max(c.Resources.Limits.Cpu().MilliValue(), c.Resources.Requests.Cpu().MilliValue()))
		s.Memory += mdp.Bytes(max(c.Resources.Limits.Memory().Value(), c.Resources.Requests.Memory().Value()))
	}
	return s
}
