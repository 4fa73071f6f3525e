package aware

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// ofSecond is what the law beneath sees of a second: at the end of each ten of them also which share of the requests was late.
func ofSecond(second int, limit, usage mdp.MilliCPU) mdp.State {
	s := mdp.State{
		At:       time.Date(2026, 11, 27, 0, 0, second, 0, time.UTC),
		Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled, mdp.Arrivals),
		Limit:    mdp.Size{CPU: limit}, Usage: mdp.Size{CPU: usage}, Arrivals: 50,
	}
	if second%10 == 9 {
		s.Observed |= mdp.SetOf(mdp.Missed)
	}
	return s
}

// The level of the law beneath follows the error budget: where requests are late in each window its limits rise.
func TestTheLawBeneathKeepsAnErrorBudget(t *testing.T) {
	limit := func(missed mdp.Ratio) (last mdp.MilliCPU) {
		t.Helper()
		law, err := newLaw("web", 5)
		if err != nil {
			t.Fatal(err)
		}
		last = 1000
		r := rand.New(rand.NewPCG(1, 1))
		for second := range 900 {
			s := ofSecond(second, last, 200+mdp.MilliCPU(r.IntN(50)))
			if s.Knows(mdp.Missed) {
				s.Missed = missed
			}
			a, err := law.Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			if v, ok := a.Knob(mdp.CPULimit); ok {
				last = mdp.MilliCPU(v)
			}
		}
		return last
	}
	if good, bad := limit(0), limit(0.5); good <= 200 || bad < good+good/10 {
		t.Errorf("a limit of %v where no request is late, %v where half of them are", good, bad)
	}
}

// A spike in a late window is held.
func TestTheLawBeneathHoldsTheSpikeOfALateWindow(t *testing.T) {
	limit := func(missed mdp.Ratio) (last mdp.MilliCPU) {
		t.Helper()
		beneath, err := newLaw("web", 5)
		if err != nil {
			t.Fatal(err)
		}
		for second := range 200 {
			s := ofSecond(second, 1, 200)
			if second == 150 {
				s.Usage.CPU = 1500
			}
			if second == 159 {
				s.Missed = missed
			}
			a, err := beneath.Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			last = a.Limit.CPU
		}
		return last
	}
	if seldom, often := limit(0.29), limit(0.3); seldom > 1300 || often < 1490 {
		t.Errorf("40 s after a spike of 1500m the limit is %v where 29 %% of the window were late, and %v where 30 %% were",
			seldom, often)
	}
}

// In the second form the arms set ceilings: with the same wide ones there are fewer cores in force than in the first form, and
// the SLO is kept about as often. The same seeds give the same episodes.
func TestInTheSecondFormTheDemandPolicyIsBeneath(t *testing.T) {
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	play := func(s Setting) (f Figures) {
		t.Helper()
		e, err := s.Env(w, &f)
		if err != nil {
			t.Fatal(err)
		}
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(5, obs); err != nil {
			t.Fatal(err)
		}
		for range s.Length {
			if _, err := e.Step([]float64{-1, 0.6, 0.6}, obs); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	second := Published
	second.Demand = true
	plain, beneath, again := play(Published), play(second), play(second)
	if beneath.Cores > 0.8*plain.Cores || beneath.CPU < 1.25*plain.CPU {
		t.Errorf("%.2f cores in force, of which %.2f are used; in the first form %.2f and %.2f", beneath.Cores/100, beneath.CPU/100,
			plain.Cores/100, plain.CPU/100)
	}
	if beneath.Violations > plain.Violations+10 {
		t.Errorf("%d steps over the SLO, in the first form %d", beneath.Violations, plain.Violations)
	}
	if beneath != again {
		t.Errorf("%+v, and again %+v", beneath, again)
	}
}

// The second form of fig. 10 is paired as the first one is, and its figures have no bar.
func TestTheSecondFormOfFig10(t *testing.T) {
	f := Fig10{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 1, Episodes: 10, Seed: 3}
	f.Setting.Demand = true
	f.Life.Jitter = 0
	all, err := f.Repetition(context.Background(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, by(t, all, Rule).Episodes, by(t, all, AWARE).Episodes, 10)
	for _, c := range f.Claims(all) {
		if !c.Reported || c.Held {
			t.Errorf("%+v: the paper's bars are of its own form", c)
		}
	}
	f.Setting.Demand = false
	for _, c := range f.Claims(all) {
		if c.Reported {
			t.Errorf("%+v: the paper's form has bars", c)
		}
	}
}
