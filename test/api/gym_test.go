package api

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/cmd/aware/live"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The Python example for simulated worlds also drives a workload of a real API
// server, without changes. The test acts as the kubelet and the node's agent. The
// pod uses about half a core at most.
func TestGymsExampleDrivesARealWorkload(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on the PATH: nothing to drive the service with")
	}
	s := open(t, "mode", "recommend", "max-cpu", "900m", "slo-latency-p99", "50ms")
	p := s.pod("one")
	s.condition(v1alpha1.Active, metav1.ConditionFalse)
	stop := s.agent(p)
	defer stop()
	s.eventually("central reports the agent's figures", func() (bool, string) {
		m, err := s.mpa()
		if err != nil || len(m.Status.Decisions) == 0 {
			return false, fmt.Sprint(err)
		}
		_, known := m.Status.Decisions[0].Signals[mdp.Latency.String()]
		return known, fmt.Sprintf("%+v", m.Status.Decisions)
	})
	target := live.Target{Namespace: s.namespace, Kind: "Deployment", Name: s.name}
	server := &gym.Server{
		Now:      time.Now,
		Sessions: 1,
		Open: func(ctx context.Context, b gym.OpenRequest) (workload.Environment, error) {
			env, err := live.Open(ctx, kube, target, step, guard.Central)
			if err != nil {
				return nil, err
			}
			return env, nil
		},
	}
	h := httptest.NewServer(server.Handler())
	defer h.Close()
	cmd := exec.CommandContext(t.Context(), python, "../../learner/gym/example/autoscale.py", h.URL, "100",
		"--verbose")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Logf("%v\n%s\n%s\n%s\n%s",
		time.Since(began), lines[0], lines[len(lines)-3], lines[len(lines)-2], lines[len(lines)-1])
	var rewards int // steps with a known reward
	for _, line := range lines {
		if i := strings.Index(line, "reward known in "); i >= 0 {
			fmt.Sscanf(line[i:], "reward known in %d,", &rewards)
		}
	}
	// Central decides every second, and the times of decisions are whole seconds. So a
	// step sometimes has no new decision, or two.
	if rewards < 50 || !strings.Contains(string(out),
		"real workload "+target.String()+", service web: step 1 s, episode 100 steps, knobs memory-limit, cpu-reservation") ||
		!strings.Contains(string(out), "100 steps, 1 episodes") ||
		!strings.Contains(lines[len(lines)-1], " pending") {
		t.Errorf("the example printed\n%s", out)
	}
	if !regexp.MustCompile(`"cpu-reservation": 8[0-9]{2}`).Match(out) {
		t.Error("the reservation never reached the 830m that 500m at 60 % need")
	}
	if s.get(p, "one"); !asTemplate(p) {
		t.Errorf("after Close the pod's limit is %v; it was not restored", size(p))
	}
}

// agent acts as the node's agent until stop is called: CPU usage rises and falls,
// and the workload answers a hundred requests per second.
func (s *shop) agent(p *corev1.Pod) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var done sync.WaitGroup
	pod := p.DeepCopy()
	done.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			requests := uint64(20 * (i + 1))
			cpu := mdp.MilliCPU(350 + 200*math.Sin(float64(i)/25))
			s.reports(cpu, func(sum *api.Summary) {
				sum.Latency = api.Histogram{
					Upper:  []float64{0.02, 0.05, 1, math.Inf(1)},
					Counts: []uint64{requests * 9 / 10, requests, requests, requests},
				}
			}, pod)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func TestGymRefusesToActWhenCentralMovesTheWorkload(t *testing.T) {
	s := open(t, "mode", "observe", "max-cpu", "900m", "max-replicas", "3")
	p := s.pod("one")
	s.condition(v1alpha1.Active, metav1.ConditionFalse)
	env, err := live.Open(t.Context(), kube, live.Target{
		Namespace: s.namespace,
		Kind:      "Deployment",
		Name:      s.name,
	}, step, guard.Central)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Reset(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	out, err := env.Step(t.Context(), mdp.Action{}.WithReservation(300).WithReplicas(2))
	if err != nil || out.Effect != mdp.Pending || out.State.Reservation != 300 || out.State.Replicas != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	s.annotate("mode", "auto")
	s.eventually("the object's mode is auto", func() (bool, string) {
		m, err := s.mpa()
		return err == nil && m.Spec.Mode == "auto", m.Spec.Mode
	})
	if out, err = env.Step(t.Context(), mdp.Action{}.WithReservation(700)); err != nil || out.Effect != mdp.Refused ||
		!strings.Contains(out.Text, "mode is auto") {
		t.Errorf("while central acts: %+v, %v", out, err)
	}
	s.annotate("mode", "observe")
	s.eventually("the object's mode is observe", func() (bool, string) {
		m, err := s.mpa()
		return err == nil && m.Spec.Mode == "observe", m.Spec.Mode
	})
	s.never("central restored what was resized from here", func() bool { s.get(p, "one"); return size(p).CPU != 300 })
	if err := env.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.get(p, "one"); !asTemplate(p) {
		t.Errorf("after the end the pod has %v, want the template's size", size(p))
	}
	s.eventually("the first number of replicas is restored", func() (bool, string) {
		var d appsv1.Deployment
		s.get(&d, s.name)
		return *d.Spec.Replicas == 1, fmt.Sprint(*d.Spec.Replicas)
	})
}
