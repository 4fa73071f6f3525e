package lesson_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/lesson"
)

var (
	begin     = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	place     = encode.Place{Bounds: mdp.Bounds{CPU: mdp.Range[mdp.MilliCPU]{Min: 100, Max: 2000}}, SLO: objective.SLO}
	objective = mdp.Objective{SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}, Alpha: 0.5}
	form      = encode.Discrete(mdp.SetOf(mdp.CPULimit))
)

// world is a workload that uses 300m, and that keeps its SLO with 400m or more.
type world struct {
	now mdp.State
}

func (w *world) begin(cpu mdp.MilliCPU, at time.Time) { w.now = w.see(cpu, at) }

func (w *world) see(cpu mdp.MilliCPU, at time.Time) mdp.State {
	s := mdp.State{
		At: at, Replicas: 1, Limit: mdp.Size{CPU: cpu, Memory: mdp.MiB}, Usage: mdp.Size{CPU: 300, Memory: mdp.MiB / 2},
		Latency: 50 * time.Millisecond, Throughput: 10,
		Observed: mdp.LimitKnobs | mdp.SetOf(mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Throughput),
	}
	if cpu < 400 {
		s.Latency = 400 * time.Millisecond
	}
	return s
}

func (w *world) step(a mdp.Action) mdp.Transition {
	cpu := w.now.Limit.CPU
	if v, ok := a.Knob(mdp.CPULimit); ok {
		cpu = mdp.MilliCPU(v)
	}
	t := mdp.Transition{State: w.now, Action: a, Effect: mdp.Applied, Next: w.see(cpu, w.now.At.Add(10*time.Second))}
	t.Reward, t.RewardKnown = objective.Judge(t.Next)
	w.now = t.Next
	return t
}

// record lets chance drive, and stores it.
func record(t testing.TB, episodes int) (trajectory.Store, float64) {
	t.Helper()
	store, err := trajectory.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "t.sqlite"), trajectory.Buffering{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	e, err := encode.New(form, place)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	recorder := lifecycle.NewRecorder(0)
	var w world
	w.begin(1000, begin)
	legal := make([]bool, form.NumActions())
	mean := 0.0
	for range episodes * 100 {
		e.Legal(w.now, legal)
		i := r.IntN(len(legal))
		for !legal[i] {
			i = r.IntN(len(legal))
		}
		a, err := e.Choice(w.now, i)
		if err != nil {
			t.Fatal(err)
		}
		one, episode, step := recorder.Add(w.step(a))
		mean += float64(one.Reward) / float64(episodes*100)
		if err := store.Append(t.Context(), "shop/Deployment/web", episode, step, one); err != nil {
			t.Fatal(err)
		}
	}
	return store, mean
}

func config() lesson.Config {
	c := lesson.Default(form, 10*time.Second)
	c.Updates = 2000
	return c
}

// Of what chance did, a policy is learned that keeps the SLO with half of the CPU, and what it is worth is known before it
// drives. Which seed it is does not matter.
func TestAPolicyIsLearnedOfAStore(t *testing.T) {
	store, chance := record(t, 20)
	w := agent.NewWorkspace()
	var got lesson.Result
	for seed := range uint64(3) {
		c := config()
		c.Seed = seed
		var err error
		if got, err = c.Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, w); err != nil {
			t.Fatal(err)
		}
		if got.Episodes != 20 || got.Transitions != 2000 {
			t.Errorf("%d transitions of %d episodes were read", got.Transitions, got.Episodes)
		}
		policy, err := learned.New(got.Policy, place)
		if err != nil {
			t.Fatal(err)
		}
		var in world
		in.begin(1500, begin)
		earned, violated := 0.0, 0
		for i := range 200 {
			a, err := policy.Decide(in.now)
			if err != nil {
				t.Fatal(err)
			}
			one := in.step(a)
			if i >= 100 {
				earned += float64(one.Reward) / 100
				if one.Next.Limit.CPU < 400 {
					violated++
				}
			}
		}
		t.Logf("chance %.3f a step, learned %.3f, estimated %+v, %d of 100 steps violate the SLO",
			chance, earned, got.Worth, violated)
		if earned < chance+0.1 || violated > 5 {
			t.Errorf("seed %d: %.3f a step where chance earned %.3f, and %d of 100 steps violate the SLO", seed, earned, chance, violated)
		}
		if got.Worth.Low > earned || got.Worth.High < chance {
			t.Errorf("seed %d: it earns %.3f, and was estimated to earn %+v", seed, earned, got.Worth)
		}
	}

	// A policy that keeps to what was done, since nothing is worth enough more, is worth what was earned.
	keeps := config()
	keeps.Seed, keeps.Margin = 2, 100
	kept, err := keeps.Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, w)
	if err != nil {
		t.Fatal(err)
	}
	if gain := kept.Worth.Mean - chance; math.Abs(gain) > 0.3*(got.Worth.Mean-chance) {
		t.Errorf("it is worth %.3f, and what it keeps to earned %.3f; without a margin %.3f", kept.Worth.Mean, chance, got.Worth.Mean)
	}
	keeps.Margin = 1e-9
	if free, err := keeps.Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, w); err != nil ||
		math.Abs(free.Worth.Mean-got.Worth.Mean) > 0.05 {
		t.Errorf("with hardly a margin it is worth %+v, without one %+v (%v)", free.Worth, got.Worth, err)
	}

	next, err := config().Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, &got.Weights, w)
	if err != nil {
		t.Fatal(err)
	}
	if next.Policy.Snapshot.Version <= got.Policy.Snapshot.Version {
		t.Error("the next lesson does not go on from the last one")
	}
}

// Where a step failed, or central was away, what comes next does not follow from what was: it is another episode.
// So is what comes after a reward that is not known.
func TestAGapCutsAnEpisode(t *testing.T) {
	store, _ := record(t, 0)
	recorder := lifecycle.NewRecorder(0)
	var w world
	w.begin(1000, begin)
	for i := range 60 {
		if i == 20 {
			w.begin(1000, begin.Add(time.Hour))
		}
		one := w.step(mdp.Action{})
		one.RewardKnown = i != 40
		numbered, episode, step := recorder.Add(one)
		if err := store.Append(t.Context(), "shop/Deployment/web", episode, step, numbered); err != nil {
			t.Fatal(err)
		}
	}
	c := config()
	c.Least, c.Updates, c.Judge.Updates = 50, 1, 1
	got, err := c.Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, nil)
	if err != nil || got.Episodes != 3 || got.Transitions != 59 {
		t.Errorf("%d transitions of %d episodes (%v), want 59 of 3", got.Transitions, got.Episodes, err)
	}
}

// A decision that comes before its time ends the step of the one before: what that earned counts for as long as it stood, and so
// does what follows. Central asks for one in each burst, so that there are many of them.
func TestADecisionCountsForAsLongAsItStands(t *testing.T) {
	store, _ := record(t, 0)
	recorder := lifecycle.NewRecorder(0)
	c := config()
	c.Least = 1
	var w world
	w.begin(1000, begin)
	took := []time.Duration{2 * time.Second, 10 * time.Second, 25 * time.Second, 10 * time.Hour, -5 * time.Second}
	var rewards []float64
	for _, d := range took {
		one := w.step(mdp.Action{})
		one.Next.At = one.State.At.Add(d)
		w.now = one.Next
		rewards = append(rewards, float64(one.Reward))
		numbered, episode, step := recorder.Add(one)
		if err := store.Append(t.Context(), "shop/Deployment/web", episode, step, numbered); err != nil {
			t.Fatal(err)
		}
	}
	l, err := c.Prepare(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := slices.Concat(l.Episodes...)
	if len(rows) != len(took) {
		t.Fatalf("%d transitions, want %d", len(rows), len(took))
	}
	g := c.Gamma
	for i, want := range []float64{math.Pow(g, 0.2), g, math.Pow(g, 2.5), math.Pow(g, 100), g} {
		reward := rewards[i] * (1 - want) / (1 - g)
		if math.Abs(rows[i].Discount-want) > 1e-12 || math.Abs(rows[i].Reward-reward) > 1e-12 {
			t.Errorf("a step of %v: reward %v, discount %v, want %v and %v", took[i], rows[i].Reward, rows[i].Discount, reward, want)
		}
	}
	// It is judged by such data, too.
	l.Config.Updates, l.Config.Judge.Updates = 1, 1
	l.Episodes = append(l.Episodes, l.Episodes...)
	if _, err := l.Learn(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// What was decided before the workload was another one is not read.
func TestNothingOlderThanTheWorkloadIsRead(t *testing.T) {
	store, _ := record(t, 20)
	c := config()
	c.Updates, c.Judge.Updates = 1, 1
	since := begin.Add(1234 * 10 * time.Second)
	got, err := c.Learn(t.Context(), store, "shop/Deployment/web", since, place, nil, nil)
	if err != nil || got.Transitions != 2000-1234 {
		t.Errorf("%d transitions (%v), want %d", got.Transitions, err, 2000-1234)
	}
}

func TestTooLittleExperienceIsSaid(t *testing.T) {
	store, _ := record(t, 2)
	_, err := config().Learn(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil, nil)
	var little *lesson.TooLittleError
	if !errors.As(err, &little) || little.Have != 200 || !strings.Contains(err.Error(), "shop/Deployment/web") {
		t.Errorf("%v", err)
	}
	// What is proven elsewhere can be judged of two episodes, and not of one: where the workload may have as much of each as some of
	// those of the proof.
	but := func(change func(*mdp.Bounds)) mdp.Bounds {
		b := place.Bounds
		change(&b)
		return b
	}
	for _, one := range []struct {
		proven, enough bool
		episodes       int
		within         mdp.Bounds
	}{
		{true, true, 2, place.Bounds}, {true, false, 1, place.Bounds}, {false, false, 2, place.Bounds},
		{true, true, 2, but(func(b *mdp.Bounds) { b.CPU.Max++ })}, {true, false, 2, but(func(b *mdp.Bounds) { b.CPU.Max-- })},
		{true, true, 2, but(func(b *mdp.Bounds) { b.CPU.Min = b.CPU.Max })},
		{true, false, 2, but(func(b *mdp.Bounds) { b.CPU = mdp.Range[mdp.MilliCPU]{Min: b.CPU.Max + 1, Max: b.CPU.Max + 2} })},
		{true, false, 2, but(func(b *mdp.Bounds) { b.Memory.Max-- })}, {true, false, 2, but(func(b *mdp.Bounds) { b.Replicas.Max-- })},
		{true, true, 2, but(func(b *mdp.Bounds) { b.Reservation.Max++ })},
	} {
		ships := start(2)
		ships.Proven, ships.Within = one.proven, one.within
		store, _ := record(t, one.episodes)
		l, err := config().Begins(&ships).Prepare(t.Context(), store, "shop/Deployment/web", time.Time{}, place, nil)
		if one.enough != (err == nil) || one.enough != l.Proven || !one.enough && !errors.As(err, &little) {
			t.Errorf("a start, %+v: %v", one, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := config().Learn(ctx, store, "shop/Deployment/web", time.Time{}, place, nil, nil); err == nil {
		t.Error("a lesson goes on after its end")
	}
	c := config()
	c.Form = encode.Box(mdp.SetOf(mdp.CPULimit))
	if _, err := c.Learn(t.Context(), store, "x", time.Time{}, place, nil, nil); err == nil {
		t.Error("boxes of numbers are no choices")
	}
}
