package aware

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"awarescale.dev/aware/learner/lifecycle"
)

// rewards is episodes of ten steps with a mean reward each; NaN is an episode of which nothing is known.
func rewards(means ...float64) (all []Episode) {
	for _, m := range means {
		f := Figures{Steps: 10}
		if !math.IsNaN(m) {
			f.Known, f.Reward = 10, 10*m
		}
		all = append(all, Episode{Figures: f})
	}
	return all
}

// The worst window is of the same episodes in both arms, and what is not known is no zero.
func TestTheWorstWindow(t *testing.T) {
	nan := math.NaN()
	for name, one := range map[string]struct {
		arm, other []Episode
		want       float64
		ok         bool
	}{
		"the last two":            {rewards(1, 1, 0.5, 0.5), rewards(1, 1, 1, 1), 0.5, true},
		"in the middle":           {rewards(1, 0.8, 0.6, 1), rewards(1, 1, 1, 1), 0.3, true},
		"better everywhere":       {rewards(1.5, 1.5, 1.5), rewards(1, 1, 1), -0.5, true},
		"the other one fell, too": {rewards(1, 0.5, 0.5), rewards(1, 0.5, 0.5), 0, true},
		"below zero":              {rewards(-2, -2), rewards(-1, -1), 1, true},
		"an unknown episode":      {rewards(nan, 1, 1), rewards(1, 1, 1), 0, true},
		"nothing is known":        {rewards(nan, nan), rewards(1, 1), 0, false},
		"too short":               {rewards(0), rewards(1), 0, false},
	} {
		got, ok := Worst(one.arm, one.other, 2)
		if ok != one.ok || ok && math.Abs(got-one.want) > 1e-12 {
			t.Errorf("%s: %v, known %v; want %v, %v", name, got, ok, one.want, one.ok)
		}
	}
}

// A ratio to no violations cannot be said, and is not held.
func TestAClaimOfNothingIsNotHeld(t *testing.T) {
	drive := func(arm Arm, repetition, violations int) Drive {
		return Drive{Repetition: repetition, Arm: arm, Episodes: []Episode{{Figures: Figures{Steps: 10, Violations: violations}}}}
	}
	all := []Drive{drive(AWARE, 0, 1), drive(NoBootstrap, 0, 20), drive(AWARE, 1, 2), drive(NoBootstrap, 1, 60)}
	if got := compared(all, AWARE, NoBootstrap, fewer); got == nil || got.Mean != 25 || got.Low == nil {
		t.Errorf("20 and 30 times fewer are %v", got)
	}
	all[2] = drive(AWARE, 1, 0)
	if c := claim("fewer", 1, true, compared(all, AWARE, NoBootstrap, fewer)); c.Found != nil || c.Held {
		t.Errorf("a ratio to nothing: %+v", c)
	}
	for _, c := range []struct {
		found float64
		least bool
		held  bool
	}{{2, true, true}, {0.5, true, false}, {2, false, false}, {0.5, false, true}, {1, true, true}, {1, false, true}} {
		if got := claim("", 1, c.least, &Interval{Mean: c.found}); got.Held != c.held {
			t.Errorf("%v against 1, at least %v: held %v", c.found, c.least, got.Held)
		}
	}
}

// Each of the seven updates changes the workload that the ones before have left, and the order follows from the seed.
func TestSevenUpdatesEachChangeTheWorkload(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(4) {
		last, phases, err := Updatable(17, seed)
		if err != nil {
			t.Fatal(err)
		}
		seen, order := map[string]bool{}, ""
		for _, p := range phases {
			more, busier := p.Workload.App.Work() > last.App.Work(), p.Workload.Trace.Mean() > last.Trace.Mean()
			if more == busier || busier != (p.Update == "load") {
				t.Errorf("seed %d, update %s: more work %v, more requests %v", seed, p.Update, more, busier)
			}
			if _, err := Published.World(p.Workload); err != nil {
				t.Errorf("seed %d, update %s: %v", seed, p.Update, err)
			}
			seen[p.Update], last, order = true, p.Workload, order+" "+p.Update
		}
		if len(phases) != 7 || len(seen) != 7 {
			t.Errorf("seed %d: updates%s", seed, order)
		}
		orders[order] = true
	}
	if len(orders) < 2 {
		t.Error("the order is always the same")
	}
}

// brief is settings for tests.
var (
	brief    = Setting{Alpha: 0.5, Length: 20}
	soon     = Convergence{Every: 2, Episodes: 2, Within: 0.3, Steady: 2, Most: 4}
	untaught = Life{Jitter: 0.2, Raise: 0.3, Try: 0.1, Imitation: 0.4, Fade: 100, Least: 1000, Every: 5, Keep: 20}
)

// While the lifecycle is Offline nothing that the agent does reaches the workload: without jitter the episodes are the rule's,
// step by step, however the agent decides. And with jitter a knob is never lower.
func TestOfflineNothingOfTheAgentDrives(t *testing.T) {
	w, err := Of(17)
	if err != nil {
		t.Fatal(err)
	}
	d, err := brief.driven(w)
	if err != nil {
		t.Fatal(err)
	}
	fallback, err := brief.tunedRule(context.Background(), d, 5)
	if err != nil {
		t.Fatal(err)
	}
	seeds := episodeSeeds(5, scoredSeeds, 8)
	play := func(by driver) (sum Figures, all []Episode) {
		t.Helper()
		all, err := d.play(context.Background(), by, seeds)
		if err != nil {
			t.Fatal(err)
		}
		return total(all), all
	}
	alone, _ := play(&rule{config: fallback.config})
	offline := func(jitter float64, seed uint64) Figures {
		t.Helper()
		a, err := newAgent(d, nil, seed)
		if err != nil {
			t.Fatal(err)
		}
		l := untaught
		l.Jitter = 0
		if jitter > 0 {
			l.Jitter = 1
		}
		life, err := newLiving(l, a, len(d.executed), &rule{config: fallback.config}, seed)
		if err != nil {
			t.Fatal(err)
		}
		sum, all := play(life)
		for i, e := range all {
			if e.Stages[lifecycle.Offline] != e.Steps {
				t.Errorf("episode %d: steps by stage %v", i, e.Stages)
			}
		}
		return sum
	}
	for seed := range uint64(2) {
		if got := offline(0, seed); got != alone {
			t.Errorf("Offline %+v, the rule alone %+v", got, alone)
		}
	}
	if got := offline(1, 1); got.Cores <= alone.Cores {
		t.Errorf("with a knob raised in each step %v cores, without %v", got.Cores, alone.Cores)
	}
	a, err := newAgent(d, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := play(newActor(a, true, len(d.executed))); got == alone {
		t.Error("an agent that drives does what the rule does")
	}
}

// A repetition follows from its seed but for the CPU time. The rule's figures are those of the rule however the agents learn.
func TestRepetitionsOfFig9AndFig10(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of training")
	}
	ten := Fig10{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 2, Episodes: 12, Seed: 3}
	ten.Life.Least = 3
	nine := Fig9{Setting: brief, Convergence: soon, Life: ten.Life, Repetitions: 1, Apps: 1, Episodes: 4, Seed: 3}
	for name, one := range map[string]struct {
		run      func(life Life) ([]Drive, error)
		claims   func([]Drive) []Claim
		arms     []Arm
		drives   int
		episodes int
	}{
		"fig10": {func(life Life) ([]Drive, error) {
			f := ten
			f.Life = life
			return f.Repetition(context.Background(), 0, nil)
		}, ten.Claims, Fig10Arms, 8, 12},
		"fig9": {func(life Life) ([]Drive, error) {
			f := nine
			f.Life = life
			return f.Repetition(context.Background(), 0, nil)
		}, nine.Claims, Fig9Arms, 4, 28},
	} {
		text := func(life Life, keep func(Arm) bool) string {
			t.Helper()
			all, err := one.run(life)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var some []Drive
			for _, d := range all {
				if len(d.Episodes) != one.episodes || d.Episodes[0].Steps != brief.Length {
					t.Errorf("%s, arm %s: %d episodes", name, d.Arm, len(d.Episodes))
				}
				d.Seconds = 0
				if keep(d.Arm) {
					some = append(some, d)
				}
			}
			if s := SummariseDrives(all, one.arms); len(all) != one.drives || len(s) != 4 || s[0].Worse != nil {
				t.Errorf("%s: %d drives of arms %+v", name, len(all), s)
			}
			if _, err := json.Marshal(one.claims(all)); err != nil {
				t.Error(err)
			}
			out, err := json.Marshal(some)
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		every := func(Arm) bool { return true }
		if text(ten.Life, every) != text(ten.Life, every) {
			t.Errorf("%s: the same settings give another result", name)
		}
		other := ten.Life
		other.Jitter, other.Least = 0.9, 1000
		others := func(a Arm) bool { return a != AWARE }
		if text(ten.Life, others) != text(other, others) {
			t.Errorf("%s: how AWARE lives changes the other arms", name)
		}
	}
	ten.Apps = 201
	nine.Episodes = 0
	if ten.Check() == nil || nine.Check() == nil {
		t.Error("settings that make no sense pass")
	}
}
