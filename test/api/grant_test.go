package api

import (
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/fleet"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Whoever made a pod, its containers have their grants as soon as it runs: the agent would leave them at their ceilings until
// then. Here the next step is an hour away.
func TestAPodThatBeginsToRunDoesNotWaitForTheNextStep(t *testing.T) {
	s := open(t, "mode", "observe")
	mgr, err := ctrl.NewManager(cluster.REST(), ctrl.Options{
		Scheme:  kube.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{s.namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes := fleet.New(time.Minute)
	rare := recommender.New(recommender.Config{
		Client: mgr.GetClient(),
		Fleet:  nodes,
		Events: events.NewFakeRecorder(100),
		Now:    time.Now,
		Step:   time.Hour,
		Policies: func(recommender.PolicyRequest) (mdp.Policy, string, error) {
			return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil }), "none/1", nil
		},
	})
	if err := rare.SetupWithManager(mgr, "rare"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.eventually("the workload was looked at", func() (bool, string) {
		_, version, _ := nodes.Grants(ghost)
		return version > 0, ""
	})
	s.scale(1)
	p := s.made()
	s.runs(p)
	s.eventually("the new pod's container has its grant", func() (bool, string) {
		m, _, _ := nodes.Grants(ghost)
		return len(m.All) == 1 && m.All[0].Container.PodUID == string(p.UID), fmt.Sprint(m.All)
	})
}
