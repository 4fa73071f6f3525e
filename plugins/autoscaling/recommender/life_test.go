package recommender

import (
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// learner is a learner that says what the test wants.
type learner struct {
	life      Life
	known     bool
	asked     []PolicyRequest
	acted     []bool // of the steps that were recorded
	forgotten string
}

func (l *learner) Record(_ string, _ mdp.Transition, acted bool) { l.acted = append(l.acted, acted) }

func (l *learner) Forget(workload string) { l.forgotten = workload }

func (*learner) Rewards(string) (mean, std float64, episodes int, ok bool) { return 0, 0, 0, false }

func (l *learner) Life(string) (Life, bool) { return l.life, l.known }

// The owner reads in the object where the workload's agent is, which policy decides, and what is wrong.
func TestTheStatusSaysWhoDecides(t *testing.T) {
	c := newCluster(t, api.Auto)
	l := &learner{}
	c.r.config.Episodes = l
	policies := c.r.config.Policies
	c.r.config.Policies = func(r PolicyRequest) (mdp.Policy, string, error) {
		l.asked = append(l.asked, r)
		return policies(r)
	}
	for name, one := range map[string]struct {
		life              Life
		known             bool
		stage, by, source string
		fallback          metav1.ConditionStatus
		says              string
	}{
		"nothing is learned": {Life{}, false, "Initialized", "fixed/1", "rule", metav1.ConditionTrue, "no learned policy"},
		"the rule drives at first": {
			Life{Stage: "Offline", Why: "the fallback drives at first", Trouble: "there is too little experience yet"}, true,
			"Offline", "fixed/1", "rule", metav1.ConditionTrue, "too little experience",
		},
		"the learned policy drives": {
			Life{Stage: "Serving", Why: "5 episodes are worth 1.4", Learned: true, Generation: 7}, true,
			"Serving", "learned/7", "learned", metav1.ConditionFalse, "generation 7",
		},
		"the learned policy departs": {
			Life{
				Stage: "Serving", Learned: true, Generation: 7, Steps: 40, Departed: 9,
				Departs: true, Rule: mdp.Action{}.WithReplicas(3), Tried: true,
			}, true,
			"Serving", "learned/7", "learned", metav1.ConditionFalse, "something else than the rule fixed/1 in 9 of 40 steps",
		},
		"it drives, and could not decide": {
			Life{Stage: "Serving", Generation: 7, Trouble: "its output is not finite"}, true,
			"Serving", "fixed/1", "rule", metav1.ConditionTrue, "not finite",
		},
	} {
		l.life, l.known = one.life, one.known
		c.now = c.now.Add(c.r.config.Step)
		mpa := c.reconcile("web")
		f := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.FallbackActive)
		d := mpa.Status.Decisions[0]
		if d.Policy != one.by {
			t.Errorf("%s: the decision is said to be of %s", name, d.Policy)
		}
		if departs := name == "the learned policy departs"; departs != (d.Rule == "replicas=3") || !departs && d.Rule != "" ||
			departs != strings.Contains(d.Reason, "tried") {
			t.Errorf("%s: the rule is said to have wanted %q (%s)", name, d.Rule, d.Reason)
		}
		if mpa.Status.Stage != one.stage || mpa.Status.Policy.Version != one.by || mpa.Status.Policy.Source != one.source {
			t.Errorf("%s: stage %s, %+v", name, mpa.Status.Stage, mpa.Status.Policy)
		}
		if f == nil || f.Status != one.fallback || !strings.Contains(f.Message, one.says) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if len(l.asked) == 0 || !l.asked[0].First {
		t.Errorf("asked for %+v: the first container represents the workload", l.asked)
	}
}

// What nobody carries out teaches nothing of the policy that proposed it, and what is gone is forgotten.
func TestTheLearnerIsToldWhetherAnythingWasDone(t *testing.T) {
	for mode, want := range map[api.Mode]bool{api.Auto: true, api.Canary: false, api.Recommend: false, api.Observe: false} {
		c := newCluster(t, mode)
		l := &learner{}
		c.r.config.Episodes = l
		for range 3 {
			c.now = c.now.Add(c.r.config.Step)
			c.reconcile("web")
		}
		if len(l.acted) == 0 || slices.Contains(l.acted, !want) {
			t.Errorf("mode %s: steps are recorded as acted upon: %v, want %v", mode, l.acted, want)
		}
		mpa := c.reconcile("web")
		if err := c.client.Delete(t.Context(), mpa); err != nil {
			t.Fatal(err)
		}
		c.reconcile("web")
		if l.forgotten != "shop/Deployment/web" {
			t.Errorf("mode %s: %q was forgotten", mode, l.forgotten)
		}
	}
}

// Who learns of reservations is judged by them.
func TestTheRewardOfALearnedWorkloadIsOfItsReservation(t *testing.T) {
	for algorithm, want := range map[string]bool{"": false, "none": false, "bcq": true} {
		spec := v1alpha1.MultidimPodAutoscalerSpec{Learner: &v1alpha1.Learner{Algorithm: algorithm}}
		if got := Objective(spec).Reserved; got != want {
			t.Errorf("algorithm %q: the reservation counts: %v", algorithm, got)
		}
	}
	if Objective(v1alpha1.MultidimPodAutoscalerSpec{}).Reserved {
		t.Error("nothing is learned, and the reservation counts")
	}
}
