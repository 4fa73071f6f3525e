package aware

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/sim/workload"
)

// When a policy has converged is defined before any run.
func TestConvergenceIsReachedAndKept(t *testing.T) {
	c := Convergence{Within: 0.02, Steady: 20}
	at := func(rewards ...float64) (all []Point) {
		for i, r := range rewards {
			all = append(all, Point{10 * i, r})
		}
		return all
	}
	for name, one := range map[string]struct {
		curve []Point
		want  int
	}{
		"from the begin":                 {at(0.99, 0.985, 0.99), 0},
		"after a while":                  {at(0.5, 0.97, 0.99, 1.2, 0.98), 20},
		"reached, lost, and reached":     {at(0.99, 0.5, 0.98, 0.98, 0.98), 20},
		"reached, and not long enough":   {at(0.5, 0.5, 0.99, 0.99), -1},
		"nearly":                         {at(0.97, 0.97, 0.97, 0.979), -1},
		"nothing was evaluated":          {nil, -1},
		"there is nothing to compare to": {nil, -1},
	} {
		if got := c.Converged(one.curve, 1); got != one.want {
			t.Errorf("%s: after %d episodes, want %d", name, got, one.want)
		}
	}
	if got := c.Converged(at(-1.01, -1.01, -1.01), -1); got != 0 {
		t.Errorf("with rewards below zero: %d", got)
	}
	if got := c.Converged(at(1, 1, 1), math.Inf(1)); got != -1 {
		t.Errorf("without a target: %d", got)
	}
}

// A policy is promoted by episodes that are not scored, and what it earns is that of those that are: who is better by chance in
// the scored ones is not chosen for that. It stays until a better one comes.
func TestAPolicyIsPromotedByEpisodesThatAreNotScored(t *testing.T) {
	course := Course{}
	for i, p := range [][2]float64{{1.0, 1.1}, {0.9, 1.5}, {1.2, 1.3}, {0.2, 0.1}, {1.2, 1.4}, {1.3, 1.25}} {
		course.Chosen = append(course.Chosen, Point{5 * i, p[0]})
		course.Evaluations = append(course.Evaluations, Point{5 * i, p[1]})
	}
	want := []Point{{0, 1.1}, {5, 1.1}, {10, 1.3}, {15, 1.3}, {20, 1.3}, {25, 1.25}}
	if got := course.Promoted(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// nothingLearned is a short setting, a workload, and a policy that has learned nothing: an arm that begins with it learns from
// the first batch on.
func nothingLearned(t *testing.T) (Setting, Workload, weights.File) {
	t.Helper()
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	s := Setting{Alpha: 0.5, Length: 20}
	b, err := s.Begin(Scratch, w, Source{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	of, err := b.Agent.SavePolicy()
	if err != nil {
		t.Fatal(err)
	}
	return s, w, of
}

// An arm has converged when the policy that was promoted has, also where the one in training has left it again. In the end the
// agent has the promoted one, so that another arm can begin with it.
func TestTheAgentEndsWithWhatWasPromoted(t *testing.T) {
	s, w, of := nothingLearned(t)
	c := Convergence{Every: 2, Episodes: 2, Steady: 2, Most: 16}
	adapt := func(target float64) (Course, Beginner) {
		b, err := s.Begin(TL, w, Source{Weights: &of}, 1)
		if err != nil {
			t.Fatal(err)
		}
		course, err := c.Adapt(t.Context(), b, s, 1, target, false)
		if err != nil {
			t.Fatal(err)
		}
		return course, b
	}
	course, b := adapt(math.Inf(1))
	if reflect.DeepEqual(course.Chosen, course.Evaluations) {
		t.Error("it is promoted by the episodes that are scored")
	}
	all := course.Promoted()
	last := all[len(all)-1].Reward
	if got, _, err := c.Judge(b, s, 1); err != nil || got != last {
		t.Errorf("the agent earns %v (%v), and what was promoted earned %v", got, err, last)
	}
	if course.Evaluations[len(course.Evaluations)-1].Reward >= last {
		t.Fatal("the policy in training is as good in the end: this test needs another workload")
	}
	if again, _ := adapt(last); again.Converged < 0 {
		t.Errorf("what was promoted stays, and has not converged: %v", all)
	}
}

// Who has had nothing better for as long as its patience goes on from its best policy, with a beginner's settings. Here
// these have no step size, so that from then on each evaluation is that of the best one.
func TestWhoIsStuckGoesOnFromItsBestPolicy(t *testing.T) {
	s, w, of := nothingLearned(t)
	c := Convergence{Every: 2, Episodes: 2, Steady: 2, Most: 32}
	adapt := func(patience int) Course {
		b, err := s.Begin(TL, w, Source{Weights: &of, Fine: Fine{Actor: 1, Critic: 1, Noise: 1, Patience: patience}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if b.Patience != patience || b.Plain.ActorLearningRate == 0 {
			t.Fatalf("patience %d with %+v, want %d with a beginner's settings", b.Patience, b.Plain, patience)
		}
		b.Plain.ActorLearningRate, b.Plain.CriticLearningRate = 0, 0
		course, err := c.Adapt(t.Context(), b, s, 1, math.Inf(1), false)
		if err != nil {
			t.Fatal(err)
		}
		return course
	}
	const patience = 8
	ever, stuck := adapt(0), adapt(patience)
	lost := -1 // the first evaluation at which it has no patience any more
	for i, p := range ever.Chosen {
		if best := promoted(ever.Chosen[:i+1]); p.Episode-ever.Chosen[best].Episode >= patience {
			lost = i
			break
		}
	}
	if lost < 0 || lost == len(ever.Chosen)-1 {
		t.Fatalf("it always finds something better: this test needs another workload: %v", ever.Chosen)
	}
	if !reflect.DeepEqual(stuck.Chosen[:lost+1], ever.Chosen[:lost+1]) {
		t.Errorf("until then %v, and without patience %v", stuck.Chosen[:lost+1], ever.Chosen[:lost+1])
	}
	best := stuck.Evaluations[promoted(stuck.Chosen[:lost+1])].Reward
	if stuck.Evaluations[lost].Reward == best {
		t.Fatal("what it has then is as good: this test needs another workload")
	}
	for _, p := range stuck.Evaluations[lost+1:] {
		if p.Reward != best {
			t.Errorf("after %d episodes it earns %v, and its best policy %v", p.Episode, p.Reward, best)
		}
	}
}

// ends is an environment whose training is ended in an episode.
type ends struct {
	env.Env
	episode int // that is left
	end     func()
}

func (e *ends) Reset(seed uint64, obs []float64) error {
	if e.episode--; e.episode == 0 {
		e.end()
	}
	return e.Env.Reset(seed, obs)
}

// Who goes back learns from all that it has seen, and does it once.
func TestWhoGoesBackKeepsWhatItHasSeen(t *testing.T) {
	s, w, of := nothingLearned(t)
	const patience, most = 4, 11
	ctx, cancel := context.WithCancel(t.Context())
	b, err := s.Begin(TL, w, Source{Weights: &of, Fine: Fine{Actor: 1e-30, Critic: 1e-30, Noise: 1, Patience: patience}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	training := b.Training
	b.Training = func() (env.Env, error) {
		e, err := training()
		return &ends{e, most, cancel}, err
	}
	b.Plain.ActorLearningRate, b.Plain.CriticLearningRate = 0, 0
	c := Convergence{Every: 2, Episodes: 1, Steady: 2, Most: 32}
	course, err := c.Adapt(ctx, b, s, 1, math.Inf(1), false)
	if !errors.Is(err, context.Canceled) || len(course.Chosen) != 1+most/2 {
		t.Fatalf("%v, after the evaluations %v", err, course.Chosen)
	}
	f, err := b.Agent.Save()
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Counts struct{ Steps int }
	}
	if err := json.Unmarshal([]byte(f.Meta["state"]), &state); err != nil {
		t.Fatal(err)
	}
	// It learns nothing, so it goes back to its beginning after 4 episodes; ten are over.
	if want := (most - 1 - patience) * s.Length; state.Counts.Steps != want {
		t.Errorf("it is %d steps from its beginning, want %d", state.Counts.Steps, want)
	}
	e, err := b.Judged()
	if err != nil {
		t.Fatal(err)
	}
	const size = 8 // bytes of a number; each step has two observations, and more
	if n := len(f.Blobs["replay"]); n < (most-1)*s.Length*2*e.Observation().Dim()*size {
		t.Errorf("its replay has %d bytes: not all of %d steps", n, (most-1)*s.Length)
	}
}

// AWARE's agent first sees what its workload is like: as many episodes as make an embedding. What it learned elsewhere stays as
// it is for so long, and then it learns in small steps.
func TestAnEmbeddingIsMadeBeforeWeightsMove(t *testing.T) {
	p := pretrained(t)
	w, err := Of(17)
	if err != nil {
		t.Fatal(err)
	}
	s, c := Setting{Alpha: 0.5, Length: 100}, Convergence{Every: 1, Episodes: 1} // an episode and a half have a batch
	theta := func(episodes, trajectories int, fine Fine) []float64 {
		b, err := s.Begin(AWARE, w, Source{Pretrained: &p, Trajectories: trajectories, Fine: fine}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if c.Most = episodes; episodes == 0 {
			return b.Agent.Policy.Actor.Theta
		}
		run, _, err := c.begin(b, s, 1)
		if err == nil {
			err = run.Train(t.Context(), episodes*s.Length)
		}
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(b.Agent.Policy.Actor.Theta)
	}
	first := theta(0, 0, Fine{})
	moved := func(episodes, trajectories int, fine Fine) (most float64) {
		for i, v := range theta(episodes, trajectories, fine) {
			most = max(most, math.Abs(v-first[i]))
		}
		return most
	}
	if n := p.Meta.Bundle; n < 2 || moved(n, 0, Fine{}) != 0 || moved(n+1, 0, Fine{}) == 0 {
		t.Errorf("its weights move within %d episodes, or not in the next one, by what was seen until then", n)
	}
	if n, patience := p.Meta.Bundle, UsualFine[AWARE].Patience; patience <= n {
		t.Errorf("its patience ends after %d episodes, and it has learned nothing for %d of them", patience, n)
	}
	usual, small := moved(3, 1, Fine{}), moved(3, 1, UsualFine[AWARE])
	if usual == 0 || small == 0 || small > usual/2 {
		t.Errorf("after one episode, of which its embedding is, a weight moves by %v, and in small steps by %v", usual, small)
	}
}

// An embedding with which the policy is no better than without one is not read any more, and what was promoted is that policy.
func TestAnEmbeddingIsPromotedAsAPolicyIs(t *testing.T) {
	p := pretrained(t)
	s := Setting{Alpha: 0.5, Length: 20}
	hidden := map[bool]int{}
	for i := range 8 {
		w, err := Of(i)
		if err != nil {
			t.Fatal(err)
		}
		b, err := s.Begin(AWARE, w, Source{Pretrained: &p}, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := Convergence{Every: b.Looks, Episodes: 1, Most: b.Looks}
		course, err := c.Adapt(t.Context(), b, s, 1, math.Inf(1), false)
		if err != nil {
			t.Fatal(err)
		}
		worse := promoted(course.Chosen) == 0
		hides := !slices.ContainsFunc(b.Memory.Embedding(), func(v float64) bool { return v != 0 })
		if hides != worse {
			t.Errorf("%s: it hides the embedding: %v; without it and with it the policy earns %v", w.Name(), hides, course.Chosen)
		}
		hidden[hides]++
		if got, _, err := c.Judge(b, s, 1); err != nil || got != course.Promoted()[1].Reward {
			t.Errorf("%s: the agent earns %v (%v), and what was promoted earned %v", w.Name(), got, err, course.Promoted())
		}
	}
	if len(hidden) != 2 {
		t.Errorf("of eight workloads %v have a hidden embedding: this test needs others", hidden)
	}
}

// Who goes on from what was learned elsewhere has steps and noise that are shares of a beginner's, and tries nothing at random.
func TestWhoGoesOnIsNoBeginner(t *testing.T) {
	c := Settings(5, 2)
	c.Warmup = 1000
	got := Source{Fine: Fine{Actor: 0.5, Critic: 0.25, Imitation: 3, Noise: 0.1}}.continued(c)
	want := c
	want.Warmup, want.Imitation = 0, 3
	want.ActorLearningRate, want.CriticLearningRate = c.ActorLearningRate/2, c.CriticLearningRate/4
	want.Noise.Sigma, want.Noise.Final = 0.1*c.Noise.Sigma, 0.1*c.Noise.Final
	if !reflect.DeepEqual(got, want) || c.Noise.Sigma == 0 || c.Noise.Final == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if plain := (Source{}).continued(c); plain.Warmup != 0 || plain.Noise != c.Noise || plain.Imitation != c.Imitation {
		t.Errorf("without settings of its own: %+v", plain)
	}
}

// A workload is always the same one, and an update changes what a request takes and not how many there are.
func TestAWorkloadFollowsFromItsIndex(t *testing.T) {
	a, err := Of(17)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Of(17)
	if err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v is %v (%v)", a.Name(), b.Name(), err)
	}
	if demand := a.Trace.Mean() * a.App.Work().Seconds(); demand < leastDemand || demand > mostDemand {
		t.Errorf("it needs %.2f cores", demand)
	}
	if _, err := Of(1000); err == nil {
		t.Error("there is a workload 1000")
	}
	changed := 0
	for _, u := range workload.Updates() {
		if after, ok := a.Updated(u); ok {
			changed++
			if after.App.Work() <= a.App.Work() || after.Trace.Mean() != a.Trace.Mean() {
				t.Errorf("update %s: %v of work under %v requests/s", u.Name, after.App.Work(), after.Trace.Mean())
			}
		}
	}
	busier, err := a.Busier(3)
	if err != nil || math.Abs(busier.Trace.Mean()/a.Trace.Mean()-2) > 1e-9 {
		t.Errorf("the busier load is %v times as high (%v)", busier.Trace.Mean()/a.Trace.Mean(), err)
	}
}

// The figures are those of the states: what was used of what was allocated, and the steps in which the SLO was not kept.
func TestFiguresAreOfWhatWasSeen(t *testing.T) {
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	var wide, narrow Figures
	for f, box := range map[*Figures]float64{&wide: 0.6, &narrow: -1} {
		e, err := Published.Env(w, f)
		if err != nil {
			t.Fatal(err)
		}
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(5, obs); err != nil {
			t.Fatal(err)
		}
		for range Published.Length {
			if _, err := e.Step([]float64{-1, box, box}, obs); err != nil {
				t.Fatal(err)
			}
		}
	}
	if wide.Steps != 100 || wide.Violations > 20 || wide.CPU/100 > 0.9 {
		t.Errorf("with much of everything: %+v", wide)
	}
	if narrow.Violations < 90 || narrow.Cores > wide.Cores || narrow.Mean() > wide.Mean() {
		t.Errorf("with nearly nothing %+v, with much %+v", narrow, wide)
	}
	if got := wide.Since(narrow); got.Steps != 0 || got.Violations != wide.Violations-narrow.Violations {
		t.Errorf("%+v", got)
	}
}

// TL+'s features: a forecast once there is a load to fit, a table of what each allocation was worth, and nothing made up.
func TestFeaturesSayWhatWasSeen(t *testing.T) {
	f := NewFeatures(mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 10}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 8000},
		Memory: mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 8 << 30},
	}, mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond})
	to := make([]float64, width)
	f.write(to)
	for i, v := range to {
		if v != 0 {
			t.Fatalf("nothing was seen, and number %d is %v", i, v)
		}
	}
	state := mdp.State{
		Observed: mdp.LimitKnobs | mdp.SetOf(mdp.Arrivals, mdp.Latency, mdp.Throughput), Replicas: 1, Throughput: 100,
		Limit: mdp.Size{CPU: 50, Memory: 64 * mdp.MiB}, Latency: 200 * time.Millisecond,
	}
	for i := range 60 {
		state.Arrivals = mdp.Rate(100 + 50*math.Sin(float64(i)/5))
		f.add(state)
	}
	f.write(to)
	next := 100 + 50*math.Sin(60.0/5)
	if got := math.Exp2(5*to[0]) - 1; to[1] != 1 || math.Abs(got-next) > 15 || f.failures > 0 {
		t.Errorf("forecast %.1f (known %v, %d fits failed), the load is %.1f", got, to[1], f.failures, next)
	}
	if to[2] != 0.5 || to[3] != 1 || to[5] != 0 {
		t.Errorf("the table begins with %v, and half of the SLO was preserved with the least of everything", to[2:6])
	}
	f.begin()
	f.write(to)
	if to[1] != 0 || to[3] != 1 {
		t.Error("another episode has another load, and the same table")
	}
}

// The whole experiment, small: all arms run in the same workloads, the same settings give the same result, and the summary
// counts.
func TestAFewRepetitionsOfFig8(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of training")
	}
	p := pretrained(t)
	f := Fig8{
		Setting: Setting{Alpha: 0.5, Length: 20}, Repetitions: 1, Apps: 2, Arms: Arms, Seed: 1,
		Convergence: Convergence{Every: 2, Episodes: 2, Within: 0.3, Steady: 2, Most: 6},
		Trained:     Convergence{Every: 2, Episodes: 2, Most: 4}, Life: UsualLife, Fine: UsualFine,
	}
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	got, err := f.Repetition(context.Background(), 0, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Repetition(context.Background(), 0, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range [][]Adaptation{got, again} {
		for i := range all {
			all[i].Seconds, all[i].Course.Seconds = 0, nil // they are measured
		}
	}
	one, _ := json.Marshal(got)
	two, _ := json.Marshal(again)
	if string(one) != string(two) {
		t.Error("the same settings give another result")
	}
	if len(got) != 8 {
		t.Fatalf("%d runs, want four arms in two workloads", len(got))
	}
	for _, a := range got {
		if a.Target != got[0].Target && a.Workload == got[0].Workload || len(a.Course.Evaluations) < 2 || a.Way.CPU <= 0 ||
			len(a.Course.Evaluated) != len(a.Course.Evaluations) || a.Course.Evaluated[1].Steps != 40 || a.Best.Steps != 40 {
			t.Errorf("%+v", a)
		}
	}
	few := f
	few.Arms = []Arm{TLPlus}
	alone, err := few.Repetition(context.Background(), 0, p, nil)
	if err != nil || len(alone) != 2 || alone[1].Arm != TLPlus || alone[1].Workload != got[6].Workload ||
		!reflect.DeepEqual(alone[1].Course.Evaluations, got[6].Course.Evaluations) {
		t.Errorf("without the others an arm does something else (%v)", err)
	}
	s := Summarise(got)
	if len(s) != 4 || s[0].Arm != Scratch || s[0].Runs != 2 || s[0].Episodes.Low != nil {
		t.Errorf("%+v", s)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
	wrong := f
	wrong.Fine = map[Arm]Fine{TL: {Actor: 1, Imitation: 1}}
	if err := wrong.Check(); err == nil || !strings.Contains(err.Error(), "Critic:0") || !strings.Contains(err.Error(), "of TL") {
		t.Errorf("%v", err)
	}
	f.Apps = 201
	if err := f.Check(); err == nil || !strings.Contains(err.Error(), "apps 201") {
		t.Errorf("%v", err)
	}
	if _, err := f.Setting.Begin("hope", Workload{}, Source{}, 1); err == nil {
		t.Error("there is an arm of hope")
	}
}

// The claims of fig. 8 are of means over all runs, and each of the arm that it names.
func TestTheClaimsOfFig8(t *testing.T) {
	run := func(repetition int, arm Arm, episodes, violations int, cpu, seconds float64) Adaptation {
		return Adaptation{
			Repetition: repetition, Arm: arm, Episodes: episodes, Seconds: seconds, Best: Figures{Steps: 10, CPU: 8, Memory: 4},
			Course: Course{Evaluations: []Point{{0, 1}}}, Target: 1,
			Way: Figures{Steps: 10, CPU: cpu, Memory: 4, Violations: violations},
		}
	}
	var all []Adaptation
	for r := range 2 {
		all = append(all, run(r, TL, 100, 30, 4, 50), run(r, TLPlus, 50, 10, 2, 100), run(r, AWARE, 10*(1+r), 5, 6, 10))
	}
	var found []float64
	for _, c := range (Fig8{}).Claims(all) {
		if c.Found == nil {
			t.Fatalf("%s cannot be said", c.What)
		}
		found = append(found, c.Found.Mean)
	}
	want := []float64{100.0 / 15, 6, 0.25, 0, 0.8, 50.0 / 15, 2, 0.5, 0, 0.9}
	for i := range want {
		if math.Abs(found[i]-want[i]) > 1e-9 {
			t.Errorf("%s is %v, want %v", (Fig8{}).Claims(all)[i].What, found[i], want[i])
		}
	}
	if c := (Fig8{}).Claims(all[:2])[0]; c.Found != nil || c.Held {
		t.Errorf("without AWARE: %+v", c)
	}
	if s := Summarise(all); s[1].Arm != TLPlus || s[1].CPUDeficit.Mean != 0.75 || s[2].MemoryDeficit.Mean != 0 {
		t.Errorf("%+v", s)
	}
}

// pretrained is a meta-learner that has hardly learned.
func pretrained(t *testing.T) pretrain.Pretrained {
	t.Helper()
	var tasks []pretrain.Task
	s := Setting{Alpha: 0.5, Length: 20}
	for i := range 4 {
		w, err := Of(i)
		if err != nil {
			t.Fatal(err)
		}
		e, err := s.Env(w, nil)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, pretrain.Task{Name: w.Name(), Env: e})
	}
	form := meta.FormOf(tasks[0].Env)
	c := pretrain.Default(form)
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 8, 8, 4, 2, 20
	c.Base = Settings(form.Observation+4, form.Action)
	c.Base.Batch, c.Updates, c.Rounds = 32, 10, 3
	run, err := pretrain.New(c, tasks)
	if err == nil {
		err = run.Train(context.Background(), 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := run.Pretrained()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
