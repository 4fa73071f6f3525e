package replay_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
)

// log is an Adder that writes down what it got.
type log struct {
	lines []string
	err   error
}

func (l *log) Add(t replay.Transition) error {
	end := ""
	if t.Terminated {
		end += " terminated"
	}
	if t.Truncated {
		end += " truncated"
	}
	l.lines = append(l.lines, fmt.Sprintf("from %v, action %v: %v, then %v at %v%s",
		t.State[0], t.Action[0], t.Reward, t.Discount, t.Next[0], end))
	return l.err
}

func nstep(t *testing.T, n int, to replay.Adder) *replay.NStep {
	t.Helper()
	s, err := replay.NewNStep(replay.NStepConfig{Steps: n, State: 1, Action: 1}, to)
	must(t, err)
	return s
}

// walk goes from state k to k+1 by action 10k and earns r; half of what follows
// counts.
func walk(k int, r float64) replay.Transition {
	x := float64(k)
	return replay.Transition{
		State:    []float64{x},
		Action:   []float64{10 * x},
		Reward:   r,
		Next:     []float64{x + 1},
		Discount: 0.5,
	}
}

// By hand, n = 3 and gamma = 1/2: 8 + 4/2 + 2/4 = 10.5, and 1/8 of the value
// three steps on.
func TestThreeStepsByHandWithEndsInTheMiddle(t *testing.T) {
	l := new(log)
	n := nstep(t, 3, l)
	for k, r := range []float64{8, 4, 2, 16} {
		tr := walk(k, r)
		tr.Terminated = k == 3
		must(t, n.Add(tr))
	}
	for k, r := range []float64{1, 2} { // an episode that is shorter than three
		tr := walk(20+k, r)
		tr.Truncated = k == 1
		must(t, n.Add(tr))
	}
	both := walk(30, 7)
	both.Terminated, both.Truncated = true, true
	must(t, n.Add(both))
	must(t, n.Add(walk(40, 1)))
	must(t, n.Add(walk(41, 1)))
	if n.Pending() != 2 {
		t.Errorf("%d steps are pending, want 2", n.Pending())
	}
	must(t, n.Cut())
	want := []string{
		"from 0, action 0: 10.5, then 0.125 at 3",
		"from 1, action 10: 9, then 0.125 at 4 terminated", // 4 + 2/2 + 16/4
		"from 2, action 20: 10, then 0.25 at 4 terminated", // 2 + 16/2
		"from 3, action 30: 16, then 0.5 at 4 terminated",
		"from 20, action 200: 2, then 0.25 at 22 truncated", // 1 + 2/2, and gamma²: there were two
		"from 21, action 210: 2, then 0.5 at 22 truncated",
		"from 30, action 300: 7, then 0.5 at 31 terminated truncated",
		"from 40, action 400: 1.5, then 0.25 at 42 truncated", // cut
		"from 41, action 410: 1, then 0.5 at 42 truncated",
	}
	if !slices.Equal(l.lines, want) {
		t.Errorf("got\n%q\nwant\n%q", l.lines, want)
	}
}

func TestOneStepChangesNothing(t *testing.T) {
	plain, through := new(log), new(log)
	n := nstep(t, 1, through)
	for k := range 5 {
		tr := walk(k, float64(k))
		tr.Truncated = k == 2
		must(t, errors.Join(plain.Add(tr), n.Add(tr)))
	}
	if !slices.Equal(plain.lines, through.lines) {
		t.Errorf("got %q, want %q", through.lines, plain.lines)
	}
}

// In a world that always pays 1 the value is 1/(1-gamma), whatever is taken as
// one step: R + Discount V = V.
func TestTheTargetIsTheSameForEveryN(t *testing.T) {
	const gamma = 0.99
	for _, steps := range []int{1, 2, 5, 50} {
		u, err := replay.NewUniform(replay.Config{Capacity: 100, State: 1, Action: 1})
		must(t, err)
		n := nstep(t, steps, u)
		for k := range 100 {
			tr := walk(k, 1)
			tr.Discount, tr.Truncated = gamma, k%30 == 29
			must(t, n.Add(tr))
		}
		b, err := replay.NewBatch(replay.Config{Capacity: 1, State: 1, Action: 1}, 200)
		must(t, err)
		must(t, u.Sample(b))
		for i := range b.Size() {
			k := b.Next[i] - b.State[i]
			if y := b.Reward[i] + b.Bootstrap[i]*100; math.Abs(y-100) > 1e-9 ||
				math.Abs(b.Discount[i]-math.Pow(gamma, k)) > 1e-12 {
				t.Fatalf("n = %d, row of %v steps: y = %v, discount %v: want 100 and gamma^k", steps, k, y,
					b.Discount[i])
			}
		}
	}
}

func TestPendingStepsAreSavedAndRestored(t *testing.T) {
	a, b := new(log), new(log)
	n, m := nstep(t, 4, a), nstep(t, 4, b)
	for k := range 7 {
		must(t, n.Add(walk(k, 1)))
	}
	a.lines = nil
	saved, err := n.MarshalBinary()
	must(t, err)
	for i := range saved {
		tampered := slices.Clone(saved)
		tampered[i] ^= 1
		if m.UnmarshalBinary(saved[:i]) == nil || m.UnmarshalBinary(tampered) == nil {
			t.Fatalf("cut at byte %d, or byte %d changed: no error", i, i)
		}
	}
	must(t, m.UnmarshalBinary(saved))
	for k := range 9 {
		tr := walk(7+k, 2)
		tr.Terminated = k == 8
		must(t, errors.Join(n.Add(tr), m.Add(tr)))
	}
	if !slices.Equal(a.lines, b.lines) || len(a.lines) != 12 {
		t.Errorf("got\n%q\nwant\n%q", b.lines, a.lines)
	}
	if err := nstep(t, 3, a).UnmarshalBinary(saved); err == nil {
		t.Error("four steps as three: no error")
	}
}

func TestInvalidNStepsAreRefused(t *testing.T) {
	l := new(log)
	n := nstep(t, 2, l)
	must(t, n.Add(walk(0, 1)))
	if err := n.Add(walk(1, math.NaN())); err == nil || n.Pending() != 1 {
		t.Errorf("a reward of NaN: %v, %d pending", err, n.Pending())
	}
	l.err = errors.New("full")
	if err := n.Add(walk(1, 1)); !errors.Is(err, l.err) || n.Pending() != 0 {
		t.Errorf("the buffer says no: %v, %d pending, want none, as nothing can follow", err, n.Pending())
	}
	for _, c := range []replay.NStepConfig{{
		Steps:  0,
		State:  1,
		Action: 1,
	}, {Steps: 1, Action: 1}, {Steps: 1, State: 1}} {
		if _, err := replay.NewNStep(c, l); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	if _, err := replay.NewNStep(replay.NStepConfig{Steps: 1, State: 1, Action: 1}, nil); err == nil {
		t.Error("to nil: no error")
	}
}
