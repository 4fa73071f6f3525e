package aware

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/sim/workload"
)

// A life has its phases in order, and each of them is in its own workload: the rule's episodes there are those that it has when
// it is run there alone. AWARE is the rule while nothing of it drives, and FIRM's agent is not.
func TestFig1IsALifeInOrder(t *testing.T) {
	f := Fig1{Setting: brief, Tuned: 2, Life: untaught, Repetitions: 1, Apps: 1, Episodes: 2, Seed: 3}
	f.Life.Jitter = 0
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	all, err := f.Repetition(context.Background(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	rule := by(t, all, Rule)
	same(t, rule.Episodes, by(t, all, AWARE).Episodes, 10)
	if reflect.DeepEqual(by(t, all, FIRM).Episodes, rule.Episodes) {
		t.Error("an agent that knows nothing does what the rule does")
	}
	if len(rule.Phases) != 5 || rule.Phases[0] != Begin || rule.Phases[4] != Another || len(rule.Episodes) != 10 {
		t.Errorf("%d episodes in the phases %v", len(rule.Episodes), rule.Phases)
	}
	seed := runSeed(f.Seed, 0, 0)
	order := firstOf(t, f.Seed, 2)
	phases, err := f.phases(order[0], order[1], seed)
	if err != nil {
		t.Fatal(err)
	}
	first, err := brief.driven(phases[0].Workload)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := brief.tunedRule(context.Background(), first, f.Tuned, seed)
	if err != nil {
		t.Fatal(err)
	}
	seeds := episodeSeeds(seed, scoredSeeds, 10)
	for i, p := range phases {
		d, err := brief.driven(p.Workload)
		if err != nil {
			t.Fatal(err)
		}
		alone.config.SLO = d.slo
		want, err := d.play(context.Background(), alone, seeds[2*i:2*i+2])
		if err != nil {
			t.Fatal(err)
		}
		if rule.Phases[i] != p.Update || !reflect.DeepEqual(rule.Episodes[2*i:2*i+2], want) {
			t.Errorf("phase %d, %s: %+v, want %+v", i, p.Update, rule.Episodes[2*i:2*i+2], want)
		}
	}
	f.Tuned = 0
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), "tuned 0") {
		t.Errorf("%v", err)
	}
}

// Each claim of fig. 1 is of the episodes of its own phases.
func TestAClaimOfFig1IsOfItsPhases(t *testing.T) {
	f := Fig1{Episodes: 2}
	drive := func(arm Arm, means ...float64) Drive { return Drive{Arm: arm, Episodes: rewards(means...)} }
	all := []Drive{
		drive(AWARE, 1, 1, 0, 0, 0, 0, 0, 0, 3, 3),
		drive(FIRM, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
	}
	var found []float64
	for _, c := range f.Claims(all) {
		found = append(found, c.Found.Mean)
	}
	if !reflect.DeepEqual(found, []float64{1, -1, 2}) {
		t.Errorf("above FIRM by %v, want 1 at the begin, -1 in the updates, 2 in another application", found)
	}
}

// firstOf is the first workloads of repetition 0.
func firstOf(t *testing.T, seed uint64, n int) []int {
	t.Helper()
	_, unseen := workload.Split(seed)
	var first []int
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(unseen))[:n] {
		first = append(first, unseen[i])
	}
	return first
}

// course is evaluations every five episodes, in a training that went on for as long.
func course(rewards ...float64) Course {
	c := Course{Converged: -1}
	for i, r := range rewards {
		c.Evaluations = append(c.Evaluations, Point{5 * i, r})
	}
	c.Training = make([]Figures, 5*(len(rewards)-1))
	c.Converged = Retrained.Converged(c.Evaluations, best(c.Evaluations))
	return c
}

// What retraining costs is told of the evaluations alone: how much was missing at first, and since when the best is kept.
func TestWhatARetrainingCosts(t *testing.T) {
	unknown := Course{Evaluations: []Point{{5, 1}}, Training: make([]Figures, 5), Converged: -1}
	for name, one := range map[string]struct {
		course   Course
		drop     float64
		said     bool
		episodes int
	}{
		"it gets better":                    {course(1, 1.5, 2, 2, 1.99, 2, 2), 0.5, true, 10},
		"it was as good from the begin":     {course(2, 1.99, 1.98, 2, 1.97, 2), 0, true, 0},
		"it does not stay good":             {course(1, 2, 1, 2, 1, 2), 0.5, true, 25},
		"it was worse than nothing":         {course(-2, 1, 1, 1, 1, 1), 3, true, 5},
		"it earns nothing":                  {course(-2, -1, -1, -1, -1, -1), 0, false, 5},
		"the first evaluation is not known": {unknown, 0, false, 5},
	} {
		r := Retraining{Course: one.course}
		drop, said := r.Drop()
		if said != one.said || math.Abs(drop-one.drop) > 1e-12 || r.Episodes() != one.episodes {
			t.Errorf("%s: %.3f less (said %v), %d episodes; want %.3f (%v), %d", name, drop, said, r.Episodes(),
				one.drop, one.said, one.episodes)
		}
	}
}

// Columns count what can be said, and table 3 divides the begin into four parts without a gap.
func TestTheTablesOfFig3(t *testing.T) {
	cost := func(repetition int, first float64) Cost {
		early := []Drive{{Repetition: repetition, Arm: NoBootstrap}, {Repetition: repetition, Arm: Rule}}
		for i := range 8 {
			early[0].Episodes = append(early[0].Episodes, Episode{Figures: Figures{Steps: 10, CPU: float64(i / 2), Violations: 10}})
			early[1].Episodes = append(early[1].Episodes, Episode{Figures: Figures{Steps: 10, CPU: 2, Violations: i / 2}})
		}
		return Cost{Repetition: repetition, Early: early, Retrainings: []Retraining{
			{What: Another, Course: course(first, 2, 2, 2, 2, 2)}, {What: "load", Course: course(-1, -1, -1, -1, -1, -1)},
		}}
	}
	all := []Cost{cost(0, 1), cost(1, 1.5)}
	columns := Columns(all)
	if len(columns) != 2 {
		t.Fatalf("%+v", columns)
	}
	if c := columns[0]; c.What != Another || c.Runs != 2 || c.Said != 2 || c.Converged != 2 || c.Drop.Mean != 0.375 ||
		c.Episodes.Mean != 5 {
		t.Errorf("%+v", c)
	}
	if load := columns[1]; load.Said != 0 || load.Drop != nil || load.Runs != 2 {
		t.Errorf("of a policy that earns nothing: %+v", load)
	}
	parts := Fig3{Early: 8}.Table3(all)
	if len(parts) != Segments {
		t.Fatalf("%d parts", len(parts))
	}
	for i, p := range parts {
		if p.From != 2*i+1 || p.To != 2*i+2 || math.Abs(p.CPU.Mean-(float64(i)/2-1)) > 1e-12 || p.Memory != nil {
			t.Errorf("part %d: %+v, CPU %v", i, p, p.CPU)
		}
		if i == 0 != (p.Violations == nil) || i > 0 && math.Abs(p.Violations.Mean-10/float64(i)) > 1e-12 {
			t.Errorf("part %d: violations %v, and the rule has %d of the agent's 10", i, p.Violations, i)
		}
	}
	if _, err := json.Marshal(map[string]any{"columns": columns, "early": parts}); err != nil {
		t.Error(err)
	}
}

// The whole experiment, small: each change is one of the workload as it was, and the same settings give the same result.
func TestAFewRunsOfFig3(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of training")
	}
	f := Fig3{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 1, Early: 4, Seed: 3}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	told := 0
	all, err := f.Repetition(context.Background(), 0, func(string) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || len(all[0].Retrainings) != 8 || told != f.Runs() {
		t.Fatalf("%d workloads, %d retrainings, %d runs told of %d", len(all), len(all[0].Retrainings), told, f.Runs())
	}
	for _, r := range all[0].Retrainings {
		if len(r.Course.Training) != soon.Most || len(r.Course.Evaluations) < 2 || r.Course.Evaluations[0].Episode != 0 {
			t.Errorf("%s: %+v", r.What, r.Course)
		}
	}
	order := firstOf(t, f.Seed, 2)
	before, phases, err := changes(order[0], order[1], runSeed(f.Seed, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range phases {
		if r := all[0].Retrainings[i]; r.What != p.Update {
			t.Errorf("change %d is %s, want %s", i, r.What, p.Update)
		}
		if i == 0 {
			continue
		}
		u := workload.Updates()[i-1]
		want, changes := u.Apply(before.App)
		busier := p.Workload.Trace.Mean() > before.Trace.Mean()
		if u.Name != p.Update || changes == busier || changes && !reflect.DeepEqual(p.Workload.App, want) {
			t.Errorf("update %s of %v is %v, busier %v", p.Update, before.App, p.Workload.App, busier)
		}
	}
	again, err := f.Repetition(context.Background(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range [][]Cost{all, again} {
		for i := range one {
			for k := range one[i].Early {
				one[i].Early[k].Seconds = 0 // it is measured
			}
		}
	}
	if !reflect.DeepEqual(all, again) {
		t.Error("the same settings give another result")
	}
	f.Early = 3
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), "early 3") {
		t.Errorf("%v", err)
	}
}

// What embeddings foretell is a correlation of ranks: equal values share theirs, and where all are equal nothing is said.
func TestWhatEmbeddingsForetell(t *testing.T) {
	pair := func(similarity float64, c Course) Transfer {
		return Transfer{Similarity: similarity, Retraining: Retraining{Course: c}}
	}
	good := Embedded{
		Pairs: []Transfer{
			pair(0.9, course(2, 2, 2, 2, 2, 2)), pair(0.5, course(1, 2, 2, 2, 2, 2)), pair(0.1, course(0.5, 1, 2, 2, 2, 2, 2)),
			pair(0.2, course(-1, -1)), // it earns nothing
		},
		Workloads: []Place{
			{Nearest: "a"}, {Nearest: "a", Outside: true}, {Nearest: "a", Odd: true, Outside: true}, {Odd: true},
		},
	}
	got := Foretell([]Embedded{good})
	if got.Pairs != 3 || got.Drop == nil || math.Abs(got.Drop.Mean+1) > 1e-12 || math.Abs(got.Episodes.Mean+1) > 1e-12 {
		t.Errorf("the less similar the worse: %+v, %v, %v", got, got.Drop, got.Episodes)
	}
	if got.Outside.Mean != 0.5 || got.Odd.Mean != 1 {
		t.Errorf("outside are %v of the unseen workloads, and %v of the odd ones", got.Outside, got.Odd)
	}
	none := Foretell([]Embedded{{Pairs: []Transfer{pair(0.5, course(1, 2)), pair(0.5, course(1, 2))}}})
	if none.Drop != nil || none.Episodes != nil || none.Outside != nil {
		t.Errorf("of equal pairs: %+v", none)
	}
	if r := ranks([]float64{3, 1, 3, 2}); !reflect.DeepEqual(r, []float64{3, 0.5, 3, 1.5}) {
		t.Errorf("ranks %v", r)
	}
}

// What is to be unlike all workloads of the training has as many requests as it had, and a second of each twenty with three to
// five times as many as the others.
func TestAPulsingWorkloadHasAsManyRequests(t *testing.T) {
	for _, i := range []int{0, 7, 300} {
		w, err := Of(i)
		if err != nil {
			t.Fatal(err)
		}
		odd, err := w.pulsing()
		if err != nil {
			t.Fatal(err)
		}
		if was, is := w.Trace.Mean(), odd.Trace.Mean(); math.Abs(is/was-1) > 1e-9 || !reflect.DeepEqual(odd.App, w.App) {
			t.Errorf("%s: %v requests/s, and under pulses %v, of %v", w.Name(), was, is, odd.App)
		}
		usual, pulses := odd.Trace.Rates[0], 0
		for _, rate := range odd.Trace.Rates {
			usual = min(usual, rate)
		}
		for _, rate := range odd.Trace.Rates {
			if times := rate / usual; times >= 2.99 && times <= 5.01 {
				pulses++
			} else if times > 1.01 {
				t.Errorf("%s: a second with %v times the usual rate", w.Name(), times)
			}
		}
		if pulses != len(odd.Trace.Rates)/20 {
			t.Errorf("%s: %d pulses in %d seconds", w.Name(), pulses, len(odd.Trace.Rates))
		}
	}
}

// The whole experiment, small: all pairs of the workloads, and the embedding is of the workload alone.
func TestAFewRunsOfEmbedding(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of training")
	}
	p := pretrained(t)
	e := Embedding{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 2, Seed: 3}
	if err := e.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := e.Repetition(context.Background(), 0, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Workloads) != 4 || len(got.Pairs) != 2 {
		t.Fatalf("%d workloads, %d pairs", len(got.Workloads), len(got.Pairs))
	}
	a, b := got.Pairs[0], got.Pairs[1]
	if a.From != b.To || a.To != b.From || a.From == a.To || a.Similarity != b.Similarity || a.From != got.Workloads[0].Workload {
		t.Errorf("pairs %s to %s (%v) and %s to %s (%v)", a.From, a.To, a.Similarity, b.From, b.To, b.Similarity)
	}
	for i, w := range got.Workloads {
		if w.Odd != (i%2 == 1) || len(w.Embedding) != p.Meta.Embedding || w.Nearest == "" {
			t.Errorf("%+v", w)
		}
	}
	w, err := Of(firstOf(t, e.Seed, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	again, err := e.Setting.embed(context.Background(), w, p, runSeed(e.Seed, 0, 0))
	if err != nil || !reflect.DeepEqual(again, got.Workloads[0].Embedding) {
		t.Errorf("%v, and it was %v (%v)", again, got.Workloads[0].Embedding, err)
	}
	odd, err := w.pulsing()
	if err != nil {
		t.Fatal(err)
	}
	again, err = e.Setting.embed(context.Background(), odd, p, runSeed(e.Seed, 0, 0))
	if err != nil || !reflect.DeepEqual(again, got.Workloads[1].Embedding) || reflect.DeepEqual(again, got.Workloads[0].Embedding) {
		t.Errorf("under pulses %v, and it was %v (%v)", again, got.Workloads[1].Embedding, err)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
	e.Apps = 1
	if err := e.Check(); err == nil || !strings.Contains(err.Error(), "apps 1") {
		t.Errorf("%v", err)
	}
}
