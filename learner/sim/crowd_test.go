package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

func TestACrowdComesAtOnceAndTheOthersEvenly(t *testing.T) {
	for _, c := range []crowd{{}, {share: 0.3, at: 0}, {share: 0.3, at: 0.4}, {share: 0.9, at: 0.99}, {share: 1, at: 0.2}} {
		last, members := 0.0, 0
		const n = 10000
		for k := range n {
			rank := (float64(k) + 0.5) / n
			at := c.time(rank)
			if at < last || at > 1 {
				t.Fatalf("%+v: rank %v comes at %v, after one at %v", c, rank, at, last)
			}
			last = at
			if c.has(rank) {
				members++
				if at != c.at {
					t.Fatalf("%+v: rank %v is in the crowd, and comes at %v", c, rank, at)
				}
			} else if back := c.rank(at); math.Abs(back-rank) > 1e-9 {
				t.Fatalf("%+v: rank %v comes at %v, and who comes then has rank %v", c, rank, at, back)
			}
		}
		if math.Abs(float64(members)/n-c.share) > 2.0/n {
			t.Errorf("%+v: %d of %d are in the crowd", c, members, n)
		}
	}
}

// caller is a fluid level of two operations, of which the first calls the second some
// slices after its work.
func caller(share, lag float64) (*World, *fluid) {
	w := &World{rng: rand.NewPCG(1, 2), now: 100}
	f := &fluid{arrivals: make([][]float64, 2*ring), moves: make([]move, 2)}
	for k := range f.arrivals {
		f.arrivals[k] = make([]float64, 3)
	}
	f.moves[0].addRoute([]edge{{op: 1, share: share}}, lag, false)
	f.moves[1].turn = 1
	f.moves[1].crowds = make([]crowdSum, ring)
	return w, f
}

// take takes what comes to the second operation in n slices from now on.
func (f *fluid) take(w *World, n int) (in []float64, crowds []crowdSum) {
	for k := range int64(n) {
		came, crowd := &f.came(w.now + k)[1], &f.moves[1].crowds[(w.now+k)&(ring-1)]
		in, crowds = append(in, *came), append(crowds, *crowd)
		*came, *crowd = 0, crowdSum{}
	}
	return in, crowds
}

// Requests that come independently of each other still do after they have computed:
// what is sent on varies as it came in. Half of it in each of two slices, always the
// same half, would have half of the variance.
func TestALagDoesNotSmoothWhatComes(t *testing.T) {
	for _, n := range []float64{12, 40} {
		w, f := caller(1, 3.25)
		const runs = 20000
		mean, square := 0.0, 0.0
		for range runs {
			f.calls(w, &f.moves[0], n, crowd{})
			in, crowds := f.take(w, 8)
			if in[3]+in[4] != n || crowds[3].n != 0 {
				t.Fatalf("%v of %v requests, together %v", in, n, crowds)
			}
			mean += in[4] / runs
			square += in[4] * in[4] / runs
		}
		if want := n * 0.25; math.Abs(mean/want-1) > 0.02 {
			t.Errorf("%v of %v are late in the mean, want %v", mean, n, want)
		}
		if got, want := square-mean*mean, n*0.25*0.75; math.Abs(got/want-1) > 0.05 {
			t.Errorf("variance %v of those of %v that are late, want %v", got, n, want)
		}
	}
}

func TestACrowdStaysTogether(t *testing.T) {
	w, f := caller(1, 0.5)
	together := 0.0
	for range 10000 {
		f.calls(w, &f.moves[0], 10, crowd{share: 0.25, at: 0.2})
		in, crowds := f.take(w, 3)
		if in[0]+in[1] != 10 || crowds[0].n > 0 && math.Abs(crowds[0].times/crowds[0].n-0.7) > 1e-9 {
			t.Fatalf("%v of 10 requests, together %+v", in, crowds)
		}
		together += crowds[0].n / 10000
	}
	if math.Abs(together-2.5) > 0.05 {
		t.Errorf("%v of 10 stay together, want 2.5", together)
	}
	f.moves[0].routes[0].setLag(0.1)
	f.calls(w, &f.moves[0], 5, crowd{share: 1, at: -0.4})
	if in, crowds := f.take(w, 3); in[0] != 5 || crowds[0].n != 5 || crowds[0].times != 0 {
		t.Errorf("%v, %+v: held requests call at the start of the slice", in, crowds)
	}
}

// A share of the requests calls: alone, late or together alike.
func TestAShareOfTheRequestsCalls(t *testing.T) {
	w, f := caller(0.3, 1.5)
	const runs, n = 20000, 20
	single, together := 0.0, 0.0
	for range runs {
		f.calls(w, &f.moves[0], n, crowd{share: 0.5, at: 0.1})
		in, crowds := f.take(w, 5)
		single += (in[1] + in[2] - crowds[1].n) / runs
		together += crowds[1].n / runs
	}
	if math.Abs(single-3) > 0.05 || math.Abs(together-3) > 0.05 {
		t.Errorf("of 20, 10 of them together, %v calls come alone and %v together, want 3 and 3", single, together)
	}
}

// What throttling has held until the start of a slice has half of its work left there, in
// the mean, and calls when that is done.
func TestTheHeldCallWhenTheRestOfTheirWorkIsDone(t *testing.T) {
	service := func(name string, cpu mdp.MilliCPU) Service {
		return Service{
			Name: name, Threads: 64, Procs: 8, Variation: 0.3, Parallel: 1, Replicas: 1,
			Size: mdp.Size{CPU: cpu, Memory: 1 << 30},
			Bounds: mdp.Bounds{
				CPU:      mdp.Range[mdp.MilliCPU]{Min: 10, Max: 8000},
				Memory:   mdp.Range[mdp.Bytes]{Min: mdp.MiB, Max: 1 << 30},
				Replicas: mdp.Range[int]{Min: 1, Max: 1},
			},
		}
	}
	w, err := New(Config{
		App: App{
			Name:     "two",
			SLO:      mdp.SLO{Percentile: 99, Latency: time.Second},
			Services: []Service{service("front", 1000), service("back", 8000)},
			Operations: []Operation{
				{Name: "in", Service: "front", Work: 40 * time.Millisecond, Stages: [][]Call{{{Operation: "get", Share: 1}}}},
				{Name: "get", Service: "back", Work: time.Millisecond},
			},
			Endpoints: []Endpoint{{Operation: "in", Share: 1}},
		},
		Cluster: Uniform(1, mdp.Size{CPU: 16_000, Memory: 16 << 30}),
		Load:    Steady(22),
		Seed:    1,
	})
	if err != nil {
		t.Fatal(err)
	}
	crowds := 0
	for range 600 {
		w.Advance(Slice)
		if c := w.engine.(*fluid).stations[1].crowd(w.now - 1); c.share > 0 {
			crowds++
			if math.Abs(c.at-0.2) > 0.001 {
				t.Fatalf("a crowd comes at %v of a slice: 40 ms of work, of which half is left, take 0.2 of it", c.at)
			}
		}
	}
	if crowds < 100 {
		t.Errorf("%d crowds in 600 slices: the front is throttled in most of them", crowds)
	}
}
