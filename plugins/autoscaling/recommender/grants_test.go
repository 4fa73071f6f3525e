package recommender

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name, node string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func TestGrantsGoToEachPodsNode(t *testing.T) {
	pods := []corev1.Pod{pod("web-1", "left"), pod("web-2", "right"), pod("web-3", "left")}
	bounds := mdp.Bounds{CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 400}}
	all := []managed{{container: "web", bounds: bounds, throttle: 0.1, patience: time.Second, lateWindows: 2},
		{container: "proxy", throttle: 0.02}}
	source := api.Source{Port: 9090, Path: "/metrics", Metric: "latency_seconds"}
	got := grantsOf(pods, api.Auto, true, "", all, source)
	if len(got["left"]) != 4 || len(got["right"]) != 2 || len(got) != 2 {
		t.Fatalf("grants %+v: want two for each of two pods on left and one on right", got)
	}
	want := api.Grant{
		Container: api.ContainerRef{Namespace: "shop", Pod: "web-2", PodUID: "uid-web-2", Container: "web"},
		Mode:      api.Auto,
		Paused:    true,
		Bounds:    bounds,
		Throttle:  0.1,
		Patience:  time.Second,

		LateWindows: 2,
		Latency:     source,
	}
	if got["right"][0] != want {
		t.Errorf("grant %+v, want %+v", got["right"][0], want)
	}
	if second := got["right"][1]; second.Container.Container != "proxy" || second.Latency != (api.Source{}) {
		t.Errorf("second grant %+v: want the proxy's, and no second scrape of the pod", second)
	}
}

func TestGrantsOfEachMode(t *testing.T) {
	pods := []corev1.Pod{pod("web-1", "node"), pod("web-2", "node")}
	for name, c := range map[string]struct {
		mode   api.Mode
		canary string
		want   []api.Mode
	}{
		"off":                     {api.Off, "", nil},
		"observe":                 {api.Observe, "", []api.Mode{api.Observe, api.Observe}},
		"recommend":               {api.Recommend, "", []api.Mode{api.Recommend, api.Recommend}},
		"auto":                    {api.Auto, "", []api.Mode{api.Auto, api.Auto}},
		"canary moves one pod":    {api.Canary, "web-2", []api.Mode{api.Recommend, api.Auto}},
		"canary that is reverted": {api.Canary, "", []api.Mode{api.Recommend, api.Recommend}},
	} {
		t.Run(name, func(t *testing.T) {
			got := grantsOf(pods, c.mode, false, c.canary, []managed{{container: "web"}}, api.Source{})["node"]
			if len(got) != len(c.want) {
				t.Fatalf("%d grants, want %d", len(got), len(c.want))
			}
			for i, mode := range c.want {
				if got[i].Mode != mode || got[i].Paused {
					t.Errorf("pod %s: mode %s, paused %v; want mode %s", got[i].Container.Pod, got[i].Mode, got[i].Paused, mode)
				}
			}
		})
	}
}

func TestLatencySourceIsThePodsPort(t *testing.T) {
	template := corev1.PodSpec{Containers: []corev1.Container{{
		Name:  "web",
		Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}},
	}}}
	at := func(kind, port string) *v1alpha1.SLO {
		return &v1alpha1.SLO{Source: v1alpha1.SLOSource{Type: kind, Port: port, Path: "/metrics", Metric: "latency_seconds"}}
	}
	for name, c := range map[string]struct {
		slo  *v1alpha1.SLO
		want api.Source
	}{
		"a named port":       {at("pod", "metrics"), api.Source{Port: 9090, Path: "/metrics", Metric: "latency_seconds"}},
		"a number":           {at("", "8080"), api.Source{Port: 8080, Path: "/metrics", Metric: "latency_seconds"}},
		"a port not there":   {at("pod", "other"), api.Source{}},
		"prometheus reads":   {at("prometheus", "metrics"), api.Source{}},
		"no objective given": {nil, api.Source{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := latencySource(c.slo, template); got != c.want {
				t.Errorf("source %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestThrottleTargetFollowsLatency(t *testing.T) {
	o := mdp.SLO{Percentile: 99, Latency: time.Second}
	strict := mdp.SLO{Percentile: 99, Latency: 50 * time.Millisecond}
	measured := func(d time.Duration) mdp.State {
		return mdp.State{Observed: mdp.SetOf(mdp.Latency), Latency: d}
	}
	for name, c := range map[string]struct {
		slo   mdp.SLO
		state mdp.State
		want  mdp.Ratio
	}{
		"zero while the SLO is violated":               {o, measured(1001 * time.Millisecond), 0},
		"high where several periods fit into the rest": {o, measured(549 * time.Millisecond), 0.1},
		"middle where one does":                        {o, measured(550 * time.Millisecond), 0.02},
		"just":                                         {o, measured(849 * time.Millisecond), 0.02},
		"low where none does":                          {o, measured(850 * time.Millisecond), 0.002},
		"low where none ever does":                     {strict, measured(time.Millisecond), 0.002},
		"low without a measurement":                    {o, mdp.State{}, 0.002},
		"low without an objective":                     {mdp.SLO{}, measured(time.Second), 0.002},
	} {
		t.Run(name, func(t *testing.T) {
			if got := throttleTarget(c.slo, c.state); got != c.want {
				t.Errorf("target %v, want %v", got, c.want)
			}
		})
	}
}
