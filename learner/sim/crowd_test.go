package sim

import (
	"math"
	"math/rand/v2"
	"testing"
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

// Requests that come independently of each other still do after they have computed:
// what is sent on varies as it came in. Half of it in each of two slices, always the
// same half, would have half of the variance.
func TestALagDoesNotSmoothWhatComes(t *testing.T) {
	w := &World{rng: rand.NewPCG(1, 2)}
	const runs, n = 20000, 12
	mean, square := 0.0, 0.0
	for range runs {
		s := split(w, n, 3.25, crowd{})
		if s.single+s.late != n || s.together != 0 || s.lag != 3 {
			t.Fatalf("%+v of %d requests", s, n)
		}
		mean += s.late / runs
		square += s.late * s.late / runs
	}
	if want := n * 0.25; math.Abs(mean-want) > 0.05 {
		t.Errorf("%v of %d are late in the mean, want %v", mean, n, want)
	}
	if got, want := square-mean*mean, n*0.25*0.75; math.Abs(got/want-1) > 0.05 {
		t.Errorf("variance %v of those that are late, want %v", got, want)
	}
}

func TestACrowdStaysTogether(t *testing.T) {
	w := &World{rng: rand.NewPCG(1, 2)}
	together := 0.0
	for range 10000 {
		s := split(w, 10, 0.5, crowd{share: 0.25, at: 0.2})
		if s.together+s.single+s.late != 10 || math.Abs(s.crowd-0.7) > 1e-9 {
			t.Fatalf("%+v of 10 requests", s)
		}
		together += s.together / 10000
	}
	if math.Abs(together-2.5) > 0.05 {
		t.Errorf("%v of 10 stay together, want 2.5", together)
	}
	if s := split(w, 5, 0.1, crowd{share: 1, at: -0.4}); s.crowd != 0 || s.together != 5 {
		t.Errorf("%+v: held requests call at the start of the slice", s)
	}
}
