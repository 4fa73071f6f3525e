package replay_test

import (
	"encoding"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
)

// step k of a stream with states of 2 numbers and actions of 1: it can be told
// by its numbers.
func step(k int) replay.Transition {
	x := float64(k)
	return replay.Transition{
		State:    []float64{x, -x},
		Action:   []float64{x / 10},
		Reward:   100 + x,
		Next:     []float64{x + 1, -x - 1},
		Discount: 0.9,
	}
}

var small = replay.Config{Capacity: 4, State: 2, Action: 1, Seed: 1}

func prioritised(capacity int, alpha, beta float64) replay.PrioritisedConfig {
	c := small
	c.Capacity = capacity
	return replay.PrioritisedConfig{Config: c, Alpha: alpha, Beta: beta, Epsilon: 1e-6}
}

// buffer is what both have in common.
type buffer interface {
	Add(replay.Transition) error
	Sample(*replay.Batch) error
	Len() int
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// both makes an empty one of each, of the same sizes.
func both(t testing.TB, capacity int) map[string]buffer {
	t.Helper()
	c := small
	c.Capacity = capacity
	u, err1 := replay.NewUniform(c)
	p, err2 := replay.NewPrioritised(prioritised(capacity, 0.6, 0.4))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return map[string]buffer{"uniform": u, "prioritised": p}
}

func batch(t testing.TB, size int) *replay.Batch {
	t.Helper()
	b, err := replay.NewBatch(small, size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheLastTransitionsComeBackComplete(t *testing.T) {
	for name, buf := range both(t, 4) {
		b := batch(t, 400)
		for k := range 6 { // 0 and 1 give way
			tr := step(k)
			tr.Terminated, tr.Truncated = k%2 == 0, k >= 4
			must(t, buf.Add(tr))
			tr.State[0] = 1e9 // the buffer has a copy
		}
		must(t, buf.Sample(b))
		seen := map[int]bool{}
		for i := range b.Size() {
			k := int(b.Reward[i]) - 100
			seen[k] = true
			want := step(k)
			bootstrap := 0.9
			if k%2 == 0 {
				bootstrap = 0
			}
			if !slices.Equal(b.State[2*i:2*i+2], want.State) || !slices.Equal(b.Next[2*i:2*i+2], want.Next) ||
				b.Action[i] != want.Action[0] ||
				b.Discount[i] != 0.9 || b.Bootstrap[i] != bootstrap || b.Terminated[i] != (k%2 == 0) ||
				b.Truncated[i] != (k >= 4) ||
				b.Weight[i] != 1 || b.Index[i] != k%4 {
				t.Fatalf("%s: row %d is no step %d: %+v", name, i, k, b)
			}
		}
		if len(seen) != 4 || seen[0] || seen[1] || buf.Len() != 4 {
			t.Errorf("%s: saw %v of %d held, want 2 to 5", name, seen, buf.Len())
		}
	}
}

// A truncated end is worth what comes after, a terminated one is not, also when
// it is both.
func TestBootstrapIsZeroAfterATerminationOnly(t *testing.T) {
	for _, c := range []struct {
		terminated bool
		truncated  bool
		y          float64
	}{
		{false, false, 1 + 0.9*10}, {false, true, 1 + 0.9*10}, {true, false, 1}, {true, true, 1},
	} {
		for name, buf := range both(t, 4) {
			tr := step(0)
			tr.Reward = 1
			tr.Terminated = c.terminated
			tr.Truncated = c.truncated
			must(t, buf.Add(tr))
			b := batch(t, 1)
			must(t, buf.Sample(b))
			if y := b.Reward[0] + b.Bootstrap[0]*10; y != c.y || b.Terminated[0] != c.terminated ||
				b.Truncated[0] != c.truncated {
				t.Errorf("%s: terminated %v, truncated %v: y = %v, want %v", name, c.terminated,
					c.truncated, y, c.y)
			}
		}
	}
}

func TestInvalidTransitionsAreRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		says  string
		spoil func(*replay.Transition)
	}{
		{"state[1] = NaN", func(tr *replay.Transition) { tr.State[1] = nan }},
		{"next[0] = +Inf", func(tr *replay.Transition) { tr.Next[0] = inf }},
		{"action[0] = NaN", func(tr *replay.Transition) { tr.Action[0] = nan }},
		{"reward -Inf", func(tr *replay.Transition) { tr.Reward = -inf }},
		{"state has 1 numbers: it must have 2", func(tr *replay.Transition) { tr.State = tr.State[:1] }},
		{"next has 0 numbers", func(tr *replay.Transition) { tr.Next = nil }},
		{"action has 2 numbers", func(tr *replay.Transition) { tr.Action = []float64{1, 2} }},
		{"discount 0", func(tr *replay.Transition) { tr.Discount = 0 }}, // as when it was forgotten
		{"discount 1.1", func(tr *replay.Transition) { tr.Discount = 1.1 }},
		{"discount NaN", func(tr *replay.Transition) { tr.Discount = nan }},
	} {
		for name, buf := range both(t, 4) {
			must(t, buf.Add(step(1)))
			before, _ := buf.MarshalBinary()
			tr := step(2)
			c.spoil(&tr)
			if err := buf.Add(tr); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
			if after, _ := buf.MarshalBinary(); !slices.Equal(before, after) {
				t.Errorf("%s: %s: something was added", name, c.says)
			}
		}
	}
}

func TestAnEmptyBufferAndAWrongBatchAreRefused(t *testing.T) {
	for name, buf := range both(t, 4) {
		if err := buf.Sample(batch(t, 3)); !errors.Is(err, replay.ErrEmpty) {
			t.Errorf("%s: sampled from nothing: %v", name, err)
		}
		must(t, buf.Add(step(0)))
		wide := replay.Config{Capacity: 1, State: 3, Action: 1}
		b, err := replay.NewBatch(wide, 3)
		must(t, err)
		for _, b := range []*replay.Batch{b, {}} {
			if err := buf.Sample(b); err == nil {
				t.Errorf("%s: a batch of %d rows for other states: no error", name, b.Size())
			}
		}
	}
}

func TestInvalidSettingsOfABufferAreRefused(t *testing.T) {
	for says, c := range map[string]replay.PrioritisedConfig{
		"capacity 0": prioritised(0, 1, 1), "capacity -1": prioritised(-1, 1, 1),
		"alpha 1.5": prioritised(1, 1.5, 1), "alpha NaN": prioritised(1, math.NaN(), 1), "beta -1": prioritised(1, 1, -1),
		"epsilon 0":           {Config: small},
		"states of 0":         {Config: replay.Config{Capacity: 1, Action: 1}},
		"actions of 0":        {Config: replay.Config{Capacity: 1, State: 1}},
		"1000000 transitions": {Config: replay.Config{Capacity: 1e6, State: 1e5, Action: 1}},
	} {
		if _, err := replay.NewPrioritised(c); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", c, err, says)
		}
	}
	if _, err := replay.NewBatch(small, 0); err == nil {
		t.Error("a batch of nothing: no error")
	}
}

// chiSquare of counts against chances.
func chiSquare(counts []int, chances []float64) float64 {
	n := 0
	for _, k := range counts {
		n += k
	}
	sum := 0.0
	for i, k := range counts {
		want := float64(n) * chances[i]
		sum += (float64(k) - want) * (float64(k) - want) / want
	}
	return sum
}

// The 0.1 % and 99.9 % points of chi-square with 9 degrees of freedom.
const rareLow, rareHigh = 1.15, 27.88

func TestAUniformBufferDrawsAllWithTheSameChance(t *testing.T) {
	buf := both(t, 10)["uniform"]
	counts, chances := make([]int, 10), make([]float64, 10)
	for k := range 13 {
		must(t, buf.Add(step(k)))
		chances[k%10] = 0.1
	}
	b := batch(t, 100)
	for range 200 {
		must(t, buf.Sample(b))
		for _, i := range b.Index {
			counts[i]++
		}
	}
	if x := chiSquare(counts, chances); x < rareLow || x > rareHigh {
		t.Errorf("chi-square %v of %v", x, counts)
	}
}

// The chance of a transition is its priority over the sum of all (Schaul et al.
// 2016, equation 1).
func TestAPrioritisedBufferDrawsByPriority(t *testing.T) {
	const alpha = 0.7
	errs := []float64{0, 0.1, -0.2, 0.5, 1, -1, 2, 3, 5, -8}
	p, err := replay.NewPrioritised(prioritised(12, alpha, 0.5)) // two places stay empty
	must(t, err)
	index := make([]int, 10)
	chances := make([]float64, 10)
	sum := 0.0
	for k := range errs {
		must(t, p.Add(step(k)))
		index[k] = k
		chances[k] = math.Pow(math.Abs(errs[k])+1e-6, alpha)
		sum += chances[k]
	}
	must(t, p.Update(index, errs))
	for k := range chances {
		chances[k] /= sum
	}

	// The error of 0 is all but never drawn: it is put with its neighbour, so
	// that each expected count is large enough.
	counted := func(size, times int) float64 {
		counts := make([]int, 10)
		b := batch(t, size)
		for range times {
			must(t, p.Sample(b))
			rarest := 1.0
			for _, i := range b.Index {
				counts[i]++
				rarest = min(rarest, chances[i])
			}
			for row, i := range b.Index {
				if want := math.Pow(10*chances[i], -0.5) / math.Pow(10*rarest, -0.5); math.Abs(b.Weight[row]-want) > 1e-12 {
					t.Fatalf("row %d, place %d: weight %v, want (N P)^-beta over the largest, %v", row, i,
						b.Weight[row], want)
				}
			}
		}
		counts[1] += counts[0]
		merged := slices.Clone(chances)
		merged[1] += merged[0]
		return chiSquare(counts[1:], merged[1:])
	}
	// One at a time they are independent draws, and 8 degrees of freedom; in
	// strata they spread more evenly than that.
	if x := counted(1, 40000); x < 0.86 || x > 26.12 {
		t.Errorf("one at a time: chi-square %v", x)
	}
	if x := counted(32, 2000); x > 26.12 {
		t.Errorf("in strata: chi-square %v", x)
	}
}

// In strata, what has the share s of all priority comes floor(s n) to ceil(s
// n)+1 times in each batch of n.
func TestEachBatchIsSpreadOverThePriorities(t *testing.T) {
	p, err := replay.NewPrioritised(prioritised(2, 1, 1))
	must(t, err)
	must(t, p.Add(step(0)))
	must(t, p.Add(step(1)))
	must(t, p.Update([]int{0, 1}, []float64{1, 3}))
	b := batch(t, 40)
	for range 100 {
		must(t, p.Sample(b))
		first := 0
		for _, i := range b.Index {
			first += 1 - i
		}
		if first < 9 || first > 11 {
			t.Fatalf("a quarter of the priority came %d of 40 times, want 10", first)
		}
	}
}

func TestANewTransitionHasTheLargestPriority(t *testing.T) {
	p, err := replay.NewPrioritised(prioritised(4, 1, 1))
	must(t, err)
	must(t, p.Add(step(0)))
	must(t, p.Update([]int{0}, []float64{-7}))
	must(t, p.Add(step(1)))                          // gets 7
	must(t, p.Update([]int{0, 0}, []float64{99, 1})) // the last one counts for the place ...
	must(t, p.Add(step(2)))                          // ... but 99 was the largest that there was
	b, counts := batch(t, 1070), make([]int, 3)      // 1 + 7 + 99 = 107 parts
	must(t, p.Sample(b))
	for _, i := range b.Index {
		counts[i]++
	}
	for i, want := range []int{10, 70, 990} {
		if d := counts[i] - want; d < -1 || d > 1 {
			t.Errorf("places came %v times, want 10, 70, 990", counts)
		}
	}
}

func TestBetaSetsTheWeights(t *testing.T) {
	p, err := replay.NewPrioritised(prioritised(2, 1, 0))
	must(t, err)
	must(t, p.Add(step(0)))
	must(t, p.Add(step(1)))
	must(t, p.Update([]int{0, 1}, []float64{1, 4}))
	b := batch(t, 20)
	for beta, want := range map[float64]float64{0: 1, 0.5: 0.5, 1: 0.25} {
		must(t, p.SetBeta(beta))
		must(t, p.Sample(b))
		for row, i := range b.Index {
			if w := []float64{1, want}[i]; math.Abs(b.Weight[row]-w) > 1e-5 {
				t.Errorf("beta %v: weight of place %d is %v, want %v", beta, i, b.Weight[row], w)
			}
		}
	}
	if err := p.SetBeta(1.1); err == nil {
		t.Error("beta 1.1: no error")
	}
}

func TestASkippedUpdateChangesNothing(t *testing.T) {
	p, err := replay.NewPrioritised(prioritised(4, 1, 1))
	must(t, err)
	must(t, p.Add(step(0)))
	must(t, p.Add(step(1)))
	before, _ := p.MarshalBinary()
	for _, c := range []struct {
		says   string
		index  []int
		errors []float64
	}{
		{"1 errors", []int{0, 1}, []float64{1}},
		{"index[1] = 2", []int{0, 2}, []float64{5, 5}},
		{"index[1] = -1", []int{0, -1}, []float64{5, 5}},
		{"errors[1] = NaN", []int{0, 1}, []float64{5, math.NaN()}},
		{"errors[1] = -Inf", []int{0, 1}, []float64{5, math.Inf(-1)}},
		{"errors[1] = 1e+200", []int{0, 1}, []float64{5, 1e200}},
	} {
		if err := p.Update(c.index, c.errors); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %q", err, c.says)
		}
	}
	if after, _ := p.MarshalBinary(); !slices.Equal(before, after) {
		t.Error("something changed")
	}
}
