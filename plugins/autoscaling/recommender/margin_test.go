package recommender

import (
	"errors"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ledger is a Budget that writes down what it hears.
type ledger struct {
	BudgetRequest
	level    float64
	late     uint32
	observed []mdp.Ratio
}

func (l *ledger) Observe(_ time.Time, missed mdp.Ratio, _ float64) {
	l.observed = append(l.observed, missed)
}
func (l *ledger) Level() float64          { return l.level }
func (l *ledger) Patience() time.Duration { return l.SLO }
func (l *ledger) LateWindows() uint32     { return l.late }

// ledgers makes them, and remembers the last one.
func ledgers(last **ledger) Budgets {
	return func(r BudgetRequest) (Budget, error) {
		*last = &ledger{BudgetRequest: r, level: r.Level}
		return *last, nil
	}
}

func specOf(l v1alpha1.Learner) v1alpha1.MultidimPodAutoscalerSpec {
	return v1alpha1.MultidimPodAutoscalerSpec{Learner: &l}
}

var p99 = mdp.SLO{Latency: 50 * time.Millisecond, Percentile: 99}

// The nodes are patient only while they decide by demand, and no longer than an agent accepts.
func TestPatienceIsOfTheRuleDemand(t *testing.T) {
	for name, c := range map[string]struct {
		rule string
		slo  time.Duration
		at   time.Time
		want time.Duration
	}{
		"demand":            {"demand", 300 * time.Millisecond, noon, 300 * time.Millisecond},
		"a very long SLO":   {"demand", time.Hour, noon, api.MaxPatience},
		"the captain":       {"captain", 300 * time.Millisecond, noon, 0},
		"without a measure": {"demand", 300 * time.Millisecond, noon.Add(6 * time.Minute), 0},
	} {
		var made *ledger
		var m margin
		o := mdp.SLO{Percentile: 99, Latency: c.slo}
		if err := m.follow(noon, ledgers(&made), specOf(v1alpha1.Learner{Rule: c.rule}), o, ""); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := m.patience(c.at); got != c.want {
			t.Errorf("%s: patience %v, want %v", name, got, c.want)
		}
	}
}

// Another latency is another patience. Another throughput leaves the budget as it is, with what it has counted of the hour.
func TestABudgetFollowsTheLatencyOfTheSLO(t *testing.T) {
	var made *ledger
	var m margin
	for _, latency := range []time.Duration{time.Second, 2 * time.Second} {
		o := mdp.SLO{Percentile: 99, Latency: latency}
		if err := m.follow(noon, ledgers(&made), specOf(v1alpha1.Learner{Rule: "demand"}), o, ""); err != nil {
			t.Fatal(err)
		}
		if made.SLO != latency {
			t.Errorf("the budget is for an SLO of %v, want %v", made.SLO, latency)
		}
		before := made
		o.Throughput = 10
		if err := m.follow(noon, ledgers(&made), specOf(v1alpha1.Learner{Rule: "demand"}), o, ""); err != nil || made != before {
			t.Errorf("another throughput made another budget, or %v", err)
		}
	}
}

func TestTheBudgetIsWhatTheOwnerSays(t *testing.T) {
	for name, c := range map[string]struct {
		learner v1alpha1.Learner
		slo     mdp.SLO
		status  string
		want    BudgetRequest
	}{
		"a p99 leaves 1 %": {v1alpha1.Learner{Rule: "demand"}, p99, "",
			BudgetRequest{Share: 0.0085, Windows: 0.05, Over: 0.01}},
		"a p90 leaves 10 %": {v1alpha1.Learner{Rule: "demand"}, mdp.SLO{Latency: time.Second, Percentile: 90}, "",
			BudgetRequest{Share: 0.085, Windows: 0.05, Over: 0.1}},
		"the owner's": {v1alpha1.Learner{Rule: "demand", Budget: "0.3%", Windows: "3%"}, p99, "",
			BudgetRequest{Share: 0.003, Windows: 0.03, Over: 0.01}},
		"a central before this one": {v1alpha1.Learner{Rule: "demand"}, p99, "-0.350",
			BudgetRequest{Share: 0.0085, Windows: 0.05, Over: 0.01, Level: -0.35}},
		"a status that somebody spoilt": {v1alpha1.Learner{Rule: "demand"}, p99, "NaN",
			BudgetRequest{Share: 0.0085, Windows: 0.05, Over: 0.01}},
	} {
		var made *ledger
		var m margin
		if err := m.follow(noon, ledgers(&made), specOf(c.learner), c.slo, c.status); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := made.BudgetRequest
		near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
		if !near(float64(got.Share), float64(c.want.Share)) || !near(float64(got.Over), float64(c.want.Over)) ||
			!near(float64(got.Windows), float64(c.want.Windows)) || got.Level != c.want.Level {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestABudgetThatCannotBeSaysWhy(t *testing.T) {
	var made *ledger
	full := func(BudgetRequest) (Budget, error) { return nil, errors.New("share 7: too much") }
	for name, c := range map[string]struct {
		learner v1alpha1.Learner
		slo     mdp.SLO
		budgets Budgets
		want    string
	}{
		"no latency":     {v1alpha1.Learner{Rule: "demand"}, mdp.SLO{Throughput: 5}, ledgers(&made), "an SLO of latency"},
		"not a share":    {v1alpha1.Learner{Rule: "demand", Budget: "0%"}, p99, ledgers(&made), `spec.learner.budget: "0%"`},
		"not one either": {v1alpha1.Learner{Rule: "demand", Windows: "x"}, p99, ledgers(&made), `spec.learner.windows: "x"`},
		"none here":      {v1alpha1.Learner{Rule: "demand"}, p99, nil, "has no error budgets"},
		"refused":        {v1alpha1.Learner{Rule: "demand"}, p99, full, "spec.learner: share 7"},
	} {
		var m margin
		err := m.follow(noon, c.budgets, specOf(c.learner), c.slo, "")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if rule, _, _ := m.rule(noon); rule != api.Captain {
			t.Errorf("%s: the nodes decide by %q", name, rule)
		}
	}
}

// A change of the spec makes another budget, which goes on from the level of the one before. Without a change it
// stays, with what it has counted.
func TestTheLevelOutlivesAChangeOfTheBudget(t *testing.T) {
	var made *ledger
	var m margin
	follow := func(l v1alpha1.Learner) {
		t.Helper()
		if err := m.follow(noon, ledgers(&made), specOf(l), p99, "0.5"); err != nil {
			t.Fatal(err)
		}
	}
	follow(v1alpha1.Learner{Rule: "demand"})
	first := made
	first.level = -1.25
	if follow(v1alpha1.Learner{Rule: "demand"}); made != first {
		t.Error("another budget was made for the same spec")
	}
	if follow(v1alpha1.Learner{Rule: "demand", Budget: "0.3%"}); made == first || made.Level() != -1.25 {
		t.Errorf("the new budget begins at %v", made.Level())
	}
	if follow(v1alpha1.Learner{}); m.text() != "" {
		t.Errorf("without the rule the status has a margin of %q", m.text())
	}
}

// Where it is not known what is missed, the budget says nothing: the captain needs no such measure.
func TestWithoutAMeasureTheCaptainDecides(t *testing.T) {
	var made *ledger
	var m margin
	if err := m.follow(noon, ledgers(&made), specOf(v1alpha1.Learner{Rule: "demand"}), p99, ""); err != nil {
		t.Fatal(err)
	}
	made.level = 0.31
	at := noon
	for range 40 { // readings without requests
		at = at.Add(10 * time.Second)
		m.observe(at, slo.Reading{})
	}
	if rule, _, why := m.rule(at); rule != api.Captain || !strings.Contains(why, "is not known for 6m40s") {
		t.Errorf("after %v without a measure: rule %q, %q", at.Sub(noon), rule, why)
	}
	m.observe(at, slo.Reading{Requests: 3, Missed: 0.5})
	if rule, level, why := m.rule(at.Add(time.Minute)); rule != api.Demand || level != 0.35 || why != "" {
		t.Errorf("a minute after a measure: rule %q at %v, %q; want the level of 0.31 in steps, upwards", rule, level, why)
	}
	if len(made.observed) != 1 || made.observed[0] != 0.5 {
		t.Errorf("the budget heard %v", made.observed)
	}
}

// The whole way: an owner wants the rule, and the nodes get it with its margin; a central that starts
// anew goes on from the level in the status.
func TestTheNodesAreToldTheRuleAndItsMargin(t *testing.T) {
	c := newCluster(t, api.Auto)
	var mpa v1alpha1.MultidimPodAutoscaler
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	if err := c.client.Get(t.Context(), key, &mpa); err != nil {
		t.Fatal(err)
	}
	mpa.Spec.Learner = &v1alpha1.Learner{Rule: "demand"}
	mpa.Spec.SLO = &v1alpha1.SLO{
		Latency: &v1alpha1.LatencySLO{Percentile: 99},
		Source:  v1alpha1.SLOSource{Type: "pod", Port: "9090"},
	}
	mpa.Spec.SLO.Latency.Threshold.Duration = 50 * time.Millisecond
	if err := c.client.Update(t.Context(), &mpa); err != nil {
		t.Fatal(err)
	}
	var made *ledger
	c.r.config.Budgets = ledgers(&made)
	told := func() (api.Rule, float64) {
		t.Helper()
		all, _, _ := c.fleet.Grants("node")
		if len(all.All) == 0 {
			t.Fatal("the node has no grant")
		}
		return all.All[0].Rule, all.All[0].Margin
	}
	c.reconcile("web")
	if rule, margin := told(); rule != api.Demand || margin != firstLevel {
		t.Errorf("the node is told %q with %v", rule, margin)
	}
	if all, _, _ := c.fleet.Grants("node"); all.All[0].Patience != 50*time.Millisecond {
		t.Errorf("the node is told a patience of %v, and the budget's is 50ms", all.All[0].Patience)
	}
	made.level, made.late = -0.62, 3
	c.now = c.now.Add(10 * time.Second)
	got := c.reconcile("web")
	if all, _, _ := c.fleet.Grants("node"); all.All[0].LateWindows != 3 {
		t.Errorf("the node is told of %d late windows, and there were 3", all.All[0].LateWindows)
	}
	_, margin := told()
	if margin < -0.6-1e-9 || margin > -0.6+1e-9 || got.Status.Margin != "-0.620" || got.Status.Policy.NodeRule != "demand" {
		t.Errorf("the node is told %v; status: margin %q, rule %+v", margin, got.Status.Margin, got.Status.Policy)
	}
	c.start()
	c.r.config.Budgets = ledgers(&made)
	c.reconcile("web")
	if made.Level() != -0.62 {
		t.Errorf("after a restart of central the level is %v", made.Level())
	}
	c.now = c.now.Add(6 * time.Minute)
	got = c.reconcile("web")
	if rule, _ := told(); rule != api.Captain || got.Status.Policy.NodeRule != "captain" || got.Status.Margin != "-0.620" {
		t.Errorf("without a measure for 6 minutes the node is told %q, status: %+v", rule, got.Status.Policy)
	}
}

// A workload that is pressed is measured every two seconds. The budget has windows of ten seconds all the same: its
// level moves by a step in each.
func TestABudgetsWindowsAreOfTenSeconds(t *testing.T) {
	var made *ledger
	var m margin
	if err := m.follow(noon, ledgers(&made), specOf(v1alpha1.Learner{Rule: "demand"}), p99, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 11 {
		r := slo.Reading{Requests: 100}
		if i == 3 {
			r = slo.Reading{Requests: 600, Missed: 0.5}
		}
		m.observe(noon.Add(time.Duration(i)*2*time.Second), r)
	}
	if len(made.observed) != 3 || made.observed[1] != 0.3 {
		t.Errorf("in 20 s the budget heard %v, want three windows, and 300 of 1000 in the second", made.observed)
	}
}
