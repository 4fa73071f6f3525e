package correct_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/demand/correct"
	"awarescale.dev/aware/learner/policy/learned"
)

var place = encode.Place{
	Bounds: mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 4},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 1024 * mdp.MiB},
	},
	SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond},
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// step is the time between two choices.
const step = 30 * time.Second

// seconds are the States of a service, one each second. Now and then its figures are missing.
func seconds(seed uint64, n int) []mdp.State {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]mdp.State, n)
	for i := range all {
		all[i] = mdp.State{
			At:       noon.Add(time.Duration(i+1) * time.Second),
			Observed: mdp.All,
			Replicas: 2,
			Limit:    mdp.Size{CPU: mdp.MilliCPU(600 + r.IntN(200)), Memory: 256 * mdp.MiB},
			Usage:    mdp.Size{CPU: mdp.MilliCPU(300 + r.IntN(300)), Memory: 100 * mdp.MiB},
			CPUPeak:  mdp.MilliCPU(600 + r.IntN(100)), Throttled: mdp.Ratio(r.IntN(3)) / 10,
			Latency: time.Duration(40+r.IntN(80)) * time.Millisecond, Throughput: 90, Arrivals: 90,
			Missed: mdp.Ratio(r.Float64() / 50),
		}
		if r.IntN(20) == 0 {
			all[i].Observed = mdp.Set(r.Uint32()) & mdp.All
		}
	}
	return all
}

// file is a policy with a network of random parameters.
func file(seed uint64) learned.File {
	f := encode.Correct()
	mlp := kernel.NewMLP(kernel.ReLU, kernel.Linear, f.Dim(), 16, f.NumActions())
	r := rand.New(rand.NewPCG(seed, 2))
	theta := make([]float64, mlp.Params())
	for i := range theta {
		theta[i] = r.NormFloat64()
	}
	return learned.File{
		Form: f, Step: step,
		Snapshot: kernel.Snapshot{Version: 1, MLP: mlp, Theta: theta, Head: kernel.Head{Kind: kernel.Argmax}},
	}
}

func driven(t testing.TB) *correct.Policy {
	t.Helper()
	p, err := correct.New(demand.New(demand.Default), encode.Correct(), place)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func served(t testing.TB, f learned.File) *correct.Policy {
	t.Helper()
	p, err := correct.Serve(demand.New(demand.Default), f, place)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestACorrectedPolicyIsAPolicy(t *testing.T) {
	mdptest.Policy(t, func() mdp.Policy { return served(t, file(1)) })
}

// Keeping, at each end of an interval, is the demand policy: each decision and each error is the same.
func TestWithoutACorrectionItIsTheDemandPolicy(t *testing.T) {
	law, p := demand.New(demand.Default), driven(t)
	for i, s := range seconds(1, 2000) {
		if i%10 == 0 {
			level := float64(i%70)/50 - 0.5
			law.SetLevel(level)
			p.SetLevel(level)
			law.SetLateWindows(uint32(i / 500))
			p.SetLateWindows(uint32(i / 500))
		}
		want, wanted := law.Decide(s)
		got, err := p.Decide(s)
		if got != want || (err == nil) != (wanted == nil) {
			t.Fatalf("second %d: %v (%v), and the demand policy decides %v (%v)", i, got, err, want, wanted)
		}
		if i%30 == 29 {
			p.End()
			if err := p.Choose(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !law.Holds() {
		t.Error("no spike was held: the late windows say nothing here")
	}
	if p.Shift() != 0 || p.Correction() != (encode.Correction{}) {
		t.Errorf("keeping led to %+v", p.Correction())
	}
}

// A corrected margin is that of a demand policy at another level; a correction of the level is one of all services.
func TestACorrectionIsALevelOfTheDemandPolicy(t *testing.T) {
	names := encode.Correct().Names()
	for i, name := range names {
		if i == 0 || strings.HasPrefix(name, "replicas") {
			continue
		}
		want := 0.2
		if strings.HasSuffix(name, "-1") {
			want = -0.2
		}
		law, p := demand.New(demand.Default), driven(t)
		law.SetLevel(0.5 + want)
		p.SetLevel(0.5)
		calm := seconds(2, 1)[0]
		calm.Latency = 0
		if _, err := p.Decide(calm); err != nil {
			t.Fatal(err)
		}
		p.End()
		if err := p.Choose(i); err != nil {
			t.Fatal(err)
		}
		if _, err := law.Decide(calm); err != nil {
			t.Fatal(err)
		}
		for _, s := range seconds(3, 300)[1:] {
			a, _ := law.Decide(s)
			b, _ := p.Decide(s)
			if a != b {
				t.Fatalf("%s: %v, want %v", name, b, a)
			}
		}
		if shift, level := p.Shift(), strings.HasPrefix(name, "level"); level && shift != want || !level && shift != 0 {
			t.Errorf("%s shifts all services by %v", name, shift)
		}
	}
}

// A network chooses once in an interval, what the mask allows, and what a caller of the same network would choose. The
// corrections stay within their bounds, and the replicas within the owner's.
func TestANetworkChoosesAsItsCallerWould(t *testing.T) {
	form := encode.Correct()
	most, illegal, moved := form.Corrections, 0, 0
	for seed := range uint64(20) {
		f := file(seed)
		p, twin := served(t, f), driven(t)
		var server kernel.Server
		var scratch kernel.Scratch
		if err := server.Publish(f.Snapshot); err != nil {
			t.Fatal(err)
		}
		obs, legal, action := make([]float64, form.Dim()), make([]bool, form.NumActions()), []float64{0}
		began, replicas := time.Time{}, 2
		for i, s := range seconds(seed, 1800) {
			s.Replicas = replicas
			got, err := p.Decide(s)
			want, wanted := twin.Decide(s)
			if got != want || (err == nil) != (wanted == nil) {
				t.Fatalf("seed %d, second %d: %v (%v), want %v (%v)", seed, i, got, err, want, wanted)
			}
			if got.Sets.Has(mdp.Replicas) {
				if replicas = got.Replicas; !place.Bounds.Replicas.Has(replicas) {
					t.Fatalf("seed %d, second %d: %v", seed, i, got)
				}
			}
			if began.IsZero() {
				began = s.At
			}
			if err != nil || s.At.Sub(began) < step {
				continue
			}
			began = s.At
			twin.End()
			if err := twin.Observe(obs); err != nil {
				t.Fatal(err)
			}
			twin.Legal(legal)
			out, _, _ := server.Decide(obs, 1, &scratch)
			f.Snapshot.Head.Action(out, nil, action)
			if !legal[int(action[0])] {
				illegal++
				if err := twin.Choose(int(action[0])); err == nil {
					t.Fatal("a choice that is not legal was taken")
				}
			}
			f.Snapshot.Head.Action(out, legal, action)
			if err := twin.Choose(int(action[0])); err != nil {
				t.Fatal(err)
			}
			at := twin.Correction()
			if p.Correction() != at {
				t.Fatalf("seed %d, second %d: %+v, want %+v", seed, i, p.Correction(), at)
			}
			if max(at.Margin, -at.Margin) > most.MarginMost || max(at.Level, -at.Level) > most.LevelMost ||
				max(at.Replicas, -at.Replicas) > most.ReplicasMost {
				t.Fatalf("seed %d, second %d: %+v", seed, i, at)
			}
			if at != (encode.Correction{}) {
				moved++
			}
		}
	}
	if illegal == 0 || moved == 0 {
		t.Errorf("the networks wanted %d illegal choices, and stood corrected %d times: this shows nothing", illegal, moved)
	}
}

// Replicas are asked for once, and again at the end of an interval in which they did not come.
func TestReplicasAreAskedForUntilTheyAreThere(t *testing.T) {
	p := driven(t)
	more := func(s mdp.State) (int, bool) {
		t.Helper()
		a, err := p.Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		return a.Replicas, a.Sets.Has(mdp.Replicas)
	}
	at, replicas := noon, 2
	next := func() mdp.State {
		at = at.Add(time.Second)
		return mdp.State{
			At: at, Observed: mdp.SetOf(mdp.Replicas, mdp.CPULimit, mdp.CPUUsage, mdp.Throttled), Replicas: replicas,
			Limit: mdp.Size{CPU: 500}, Usage: mdp.Size{CPU: 250},
		}
	}
	more(next())
	p.End()
	if err := p.Choose(5); err != nil { // replicas +1
		t.Fatal(err)
	}
	if n, asks := more(next()); !asks || n != 3 {
		t.Errorf("it asks for %d replicas (%v), want 3", n, asks)
	}
	if n, asks := more(next()); asks {
		t.Errorf("it asks for %d replicas again", n)
	}
	p.End()
	if err := p.Choose(5); err == nil {
		t.Error("another replica was asked for while one was on its way")
	}
	if n, asks := more(next()); !asks || n != 3 {
		t.Errorf("they did not come, and it asks for %d replicas (%v)", n, asks)
	}
	replicas = 3
	more(next())
	p.End()
	if _, asks := more(next()); asks {
		t.Error("they are there, and it asks for them")
	}
}

func TestAPolicyOfAnotherFormIsRefused(t *testing.T) {
	f := file(1)
	f.Form = encode.Discrete(mdp.LimitKnobs)
	if _, err := correct.Serve(demand.New(demand.Default), f, place); err == nil {
		t.Error("a policy of limits corrects the demand policy")
	}
	if _, err := correct.New(demand.New(demand.Default), encode.Box(mdp.LimitKnobs), place); err == nil {
		t.Error("a form without corrections was taken")
	}
	if _, err := learned.New(file(1), place); err == nil {
		t.Error("corrections were taken for limits")
	}
}

func TestAnIntervalIsWhatWasSeenInIt(t *testing.T) {
	var in correct.Interval
	if s := in.End(); s.Observed != 0 {
		t.Errorf("an empty interval knows %v", s.Observed)
	}
	add := func(second int, observed mdp.Set, change func(*mdp.State)) {
		s := mdp.State{At: noon.Add(time.Duration(second) * time.Second), Observed: observed, Replicas: second}
		change(&s)
		in.Add(s)
	}
	some := mdp.SetOf(mdp.Replicas, mdp.CPUPeak, mdp.OOMKills, mdp.Throughput, mdp.LoadChange, mdp.Missed)
	add(1, some, func(s *mdp.State) { s.CPUPeak, s.OOMKills, s.Throughput, s.LoadChange, s.Missed = 500, 1, 100, 9, 0.1 })
	add(2, some.Without(mdp.SetOf(mdp.Missed)), func(s *mdp.State) {
		s.CPUPeak, s.OOMKills, s.Throughput, s.Missed = 300, 2, 50, 7
	})
	s := in.End()
	if s.At != noon.Add(2*time.Second) || s.Replicas != 2 || s.CPUPeak != 500 || s.OOMKills != 3 || s.Throughput != 75 ||
		s.Missed != 0.1 {
		t.Errorf("%+v", s)
	}
	if s.Knows(mdp.LoadChange) || s.Knows(mdp.CPUUsage) {
		t.Errorf("the first interval knows %v", s.Observed)
	}
	add(3, some, func(s *mdp.State) { s.Throughput = 150 })
	add(4, mdp.SetOf(mdp.Throughput), func(s *mdp.State) { s.Throughput = 150 })
	if s = in.End(); s.LoadChange != 2 || s.Knows(mdp.Replicas) {
		t.Errorf("the load doubled and the replicas are unknown: %+v", s)
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	p := served(t, file(1))
	s := seconds(1, 1)[0]
	s.Observed = mdp.All
	if n := testing.AllocsPerRun(1000, func() {
		s.At = s.At.Add(time.Second)
		if _, err := p.Decide(s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
