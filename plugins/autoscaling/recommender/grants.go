package recommender

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
)

// managed is what the grants need to know of one container that is managed.
type managed struct {
	container   string
	bounds      mdp.Bounds
	throttle    mdp.Ratio     // the local policy's target
	rule        api.Rule      // of the local policy
	margin      float64       // of the rule demand
	patience    time.Duration // of the rule demand
	lateWindows uint32        // of the rule demand
}

// grantsOf is what the nodes may do with a workload's containers, by node. In
// mode canary only the pod of that name is moved; the others are at recommend.
func grantsOf(
	pods []corev1.Pod, mode api.Mode, paused bool, canary string, all []managed, latency api.Source,
) map[string][]api.Grant {
	byNode := map[string][]api.Grant{}
	if mode == api.Off {
		return byNode
	}
	for i := range pods {
		pod := &pods[i]
		podMode := mode
		if mode == api.Canary {
			podMode = api.Recommend
			if pod.Name == canary {
				podMode = api.Auto
			}
		}
		for j, m := range all {
			g := api.Grant{
				Container:   refOf(pod, m.container),
				Mode:        podMode,
				Paused:      paused,
				Bounds:      m.bounds,
				Throttle:    m.throttle,
				Rule:        m.rule,
				Margin:      m.margin,
				Patience:    m.patience,
				LateWindows: m.lateWindows,
			}
			if j == 0 {
				g.Latency = latency // one container of a pod is enough
			}
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], g)
		}
	}
	return byNode
}

// heldGrants are the grants of a workload that could be read and not decided on since
// central started: each node keeps what it has for its containers.
func heldGrants(w *updater.Workload) map[string][]api.Grant {
	byNode := map[string][]api.Grant{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		for _, c := range w.Template.Spec.Containers {
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], api.Grant{
				Container: refOf(pod, c.Name),
				Keep:      true,
			})
		}
	}
	return byNode
}

// refOf names a pod's container.
func refOf(pod *corev1.Pod, container string) api.ContainerRef {
	return api.ContainerRef{Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Container: container}
}

// latencySource is where agents read the latency histogram of a workload's pods;
// zero when they do not.
func latencySource(s *v1alpha1.SLO, template corev1.PodSpec) api.Source {
	if s == nil || s.Source.Type == "prometheus" {
		return api.Source{}
	}
	port, err := optin.ResolvePort(s.Source.Port, template)
	if err != nil {
		return api.Source{}
	}
	return api.Source{Port: port, Path: s.Source.Path, Metric: s.Source.Metric}
}

// throttleTarget is the local policy's target: zero while the SLO is violated. Otherwise it
// follows from the time that is left to the SLO: a request that meets a throttled period waits
// for its relief, a CFS period or two. Autothrottle's Tower learns
// this target, from 0 to 0.3; here it is a rule.
func throttleTarget(o mdp.SLO, s mdp.State) mdp.Ratio {
	const (
		low    = 0.002
		middle = 0.02 // where a relief fits into what is left
		high   = 0.1  // where several do
		relief = 150 * time.Millisecond
	)
	if o.Latency == 0 || !s.Knows(mdp.Latency) {
		return low
	}
	switch {
	case s.Latency > o.Latency:
		return 0
	case o.Latency-s.Latency > 3*relief:
		return high
	case o.Latency-s.Latency > relief:
		return middle
	}
	return low
}
