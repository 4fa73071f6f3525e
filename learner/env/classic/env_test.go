package classic_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/mdp"
)

func newEnv(t testing.TB, name string) env.Env {
	t.Helper()
	e, err := classic.Make(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// draw an action, all alike.
func draw(r *rand.Rand, s env.Space, action []float64) {
	if s.N > 0 {
		action[0] = float64(r.IntN(s.N))
		return
	}
	for i := range action {
		action[i] = s.Low[i] + (s.High[i]-s.Low[i])*r.Float64()
	}
}

// play a whole episode by random actions.
func play(t testing.TB, e env.Env, seed uint64) (total float64, steps int, terminated, truncated bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
	if err := e.Reset(seed, obs); err != nil {
		t.Fatal(err)
	}
	for !terminated && !truncated {
		if !e.Observation().Contains(obs) {
			t.Fatalf("%s: step %d: %v is not in its observation space", e.Name(), steps, obs)
		}
		draw(r, e.Action(), action)
		out, err := e.Step(action, obs)
		if err != nil {
			t.Fatal(err)
		}
		if !out.RewardKnown || out.Effect != mdp.Applied {
			t.Fatalf("%s: step %d: %+v: the reward must be known and the action applied", e.Name(), steps, out)
		}
		terminated, truncated = out.Terminated, out.Truncated
		total += out.Reward
		steps++
	}
	return total, steps, terminated, truncated
}

// Gymnasium's own sources, run with float64 for numpy, gave CartPole 22.2,
// Pendulum -1225, MountainCarContinuous -33.2 (a random car reaches the goal in
// one episode of a thousand) and Acrobot -498.9.
func TestRandomPoliciesHaveTheKnownReturns(t *testing.T) {
	for _, c := range []struct {
		name     string
		episodes int
		low      float64
		high     float64
	}{
		{"CartPole-v1", 2000, 20, 25},
		{"Pendulum-v1", 500, -1300, -1100},
		{"MountainCar-v0", 50, -200, -200},
		{"MountainCarContinuous-v0", 1000, -34, -32},
		{"Acrobot-v1", 1000, -500, -495},
		{"IdentityDiscrete-v0", 200, 24, 26},       // a quarter of 100
		{"IdentityContinuous-v0", 200, -68, -65.3}, // the mean square of a difference is 2/3
		{"Grid4x4-v0", 2000, -19.5, -16.5},         // -18.29 over the starts: by value iteration of the random policy
	} {
		e := newEnv(t, c.name)
		sum := 0.0
		for seed := range c.episodes {
			total, _, _, _ := play(t, e, uint64(seed))
			sum += total
		}
		mean := sum / float64(c.episodes)
		t.Logf("%-26s %8.2f", c.name, mean)
		if mean < c.low || mean > c.high {
			t.Errorf("%s: mean return %v, want %v to %v", c.name, mean, c.low, c.high)
		}
	}
}

func TestATimeLimitTruncatesAndDoesNotTerminate(t *testing.T) {
	for name, c := range map[string]struct {
		limit  int
		action float64 // that lasts to the limit
	}{
		"Pendulum-v1":              {200, 0},
		"MountainCar-v0":           {200, 1},
		"MountainCarContinuous-v0": {999, 0},
		"Acrobot-v1":               {500, 1},
		"IdentityDiscrete-v0":      {100, 0},
		"IdentityContinuous-v0":    {100, 0},
	} {
		e := newEnv(t, name)
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(5, obs); err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= c.limit; i++ {
			out, err := e.Step([]float64{c.action}, obs)
			if err != nil || out.Terminated || out.Truncated != (i == c.limit) {
				t.Fatalf("%s: step %d of %d: %+v, %v", name, i, c.limit, out, err)
			}
		}
	}

	// A pole that is pushed the way it falls stays up for all 500 steps.
	e, obs := newEnv(t, "CartPole-v1"), make([]float64, 4)
	if err := e.Reset(5, obs); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 500; i++ {
		action := []float64{0}
		if obs[2]+0.5*obs[3]+0.05*obs[0]+0.1*obs[1] > 0 {
			action[0] = 1
		}
		out, err := e.Step(action, obs)
		if err != nil || out.Terminated || out.Truncated != (i == 500) {
			t.Fatalf("CartPole-v1: step %d of 500: %+v, %v", i, out, err)
		}
	}
}

func TestInitialStatesHaveTheirDistribution(t *testing.T) {
	for _, c := range []struct {
		name string
		high []float64 // of a uniform distribution
		low  []float64
		seen func(obs []float64) []float64
	}{
		{"CartPole-v1", []float64{.05, .05, .05, .05}, []float64{-.05, -.05, -.05, -.05}, slices.Clone[[]float64]},
		{"Pendulum-v1", []float64{math.Pi, 1}, []float64{-math.Pi, -1}, func(o []float64) []float64 {
			return []float64{math.Atan2(o[1], o[0]), o[2]}
		}},
		{"MountainCar-v0", []float64{-.4}, []float64{-.6}, func(o []float64) []float64 { return o[:1] }},
		{"MountainCarContinuous-v0", []float64{-.4}, []float64{-.6}, func(o []float64) []float64 { return o[:1] }},
		{"Acrobot-v1", []float64{.1, .1, .1, .1}, []float64{-.1, -.1, -.1, -.1}, func(o []float64) []float64 {
			return []float64{math.Atan2(o[1], o[0]), math.Atan2(o[3], o[2]), o[4], o[5]}
		}},
	} {
		const n = 10000 // seeds, one after the other: they must be as good as any
		e := newEnv(t, c.name)
		obs := make([]float64, e.Observation().Dim())
		bins := make([][10]int, len(c.high))
		for seed := range uint64(n) {
			if err := e.Reset(seed, obs); err != nil {
				t.Fatal(err)
			}
			for i, x := range c.seen(obs) {
				bin := int(math.Floor(10 * (x - c.low[i]) / (c.high[i] - c.low[i])))
				if bin < 0 || bin > 9 {
					t.Fatalf("%s: seed %d: number %d is %v, want %v to %v", c.name, seed, i, x, c.low[i],
						c.high[i])
				}
				bins[i][bin]++
			}
		}
		for i := range bins {
			chi := 0.0
			for _, k := range bins[i] {
				chi += (float64(k) - n/10) * (float64(k) - n/10) / (n / 10)
			}
			if chi > 27.9 { // 99.9 % of 9 degrees of freedom
				t.Errorf("%s: number %d is not uniform: chi-square %v of %v", c.name, i, chi, bins[i])
			}
		}
	}
}

func TestAnEpisodeIsDeterminedBySeedAndActions(t *testing.T) {
	for _, name := range classic.Names() {
		a, b := newEnv(t, name), newEnv(t, name)
		play(t, a, 99) // what came before does not matter
		ta, na, _, _ := play(t, a, 7)
		tb, nb, _, _ := play(t, b, 7)
		if ta != tb || na != nb {
			t.Errorf("%s: %v in %d steps, and again %v in %d", name, ta, na, tb, nb)
		}
	}
}

func TestARestoredEpisodeContinuesBitByBit(t *testing.T) {
	for _, name := range classic.Names() {
		e := newEnv(t, name)
		n := e.Observation().Dim()
		r := rand.New(rand.NewPCG(1, 2))
		obs := make([]float64, n)
		again := make([]float64, n)
		action := make([]float64, e.Action().Dim())
		if err := e.Reset(11, obs); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			draw(r, e.Action(), action)
			if name == "Grid4x4-v0" {
				action[0] = awayFromTheCorners(obs[0])
			}
			if _, err := e.Step(action, obs); err != nil {
				t.Fatal(err)
			}
		}
		saved, err := e.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		f := newEnv(t, name)
		if err := f.UnmarshalBinary(saved); err != nil {
			t.Fatal(err)
		}
		if err := f.Observe(again); err != nil || !slices.Equal(obs, again) {
			t.Errorf("%s: restored, it sees %v, %v: want %v", name, again, err, obs)
		}
		for i, over := 0, false; !over; i++ {
			draw(r, e.Action(), action)
			want, err1 := e.Step(action, obs)
			got, err2 := f.Step(action, again)
			if got != want || err1 != nil || err2 != nil || !slices.Equal(obs, again) {
				t.Fatalf("%s: step %d after the restore: %v %+v %v, want %v %+v %v", name, i, again, got,
					err2, obs, want, err1)
			}
			over = want.Ended()
		}
	}
}

// awayFromTheCorners is a move in the grid that does not end the episode.
func awayFromTheCorners(cell float64) float64 {
	table := classic.GridTable()
	for i, m := range table[int(cell)] {
		if !m.Terminated {
			return float64(i)
		}
	}
	return 0
}

func TestDamagedBytesAreRefused(t *testing.T) {
	for _, name := range classic.Names() {
		e, f := newEnv(t, name), newEnv(t, name)
		obs := make([]float64, e.Observation().Dim())
		if err := errors.Join(e.Reset(1, obs), f.Reset(2, obs)); err != nil {
			t.Fatal(err)
		}
		saved, err1 := e.MarshalBinary()
		before, err2 := f.MarshalBinary()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		for i := range saved {
			tampered := slices.Clone(saved)
			tampered[i] ^= 0x10
			if f.UnmarshalBinary(saved[:i]) == nil || f.UnmarshalBinary(tampered) == nil {
				t.Fatalf("%s: cut at byte %d, or byte %d changed: no error", name, i, i)
			}
		}
		if after, _ := f.MarshalBinary(); !slices.Equal(after, before) {
			t.Errorf("%s was changed by what it refused", name)
		}
	}
	pole, _ := newEnv(t, "CartPole-v1").MarshalBinary()
	if err := newEnv(t, "Acrobot-v1").UnmarshalBinary(pole); err == nil || !strings.Contains(err.Error(), "Acrobot-v1") {
		t.Errorf("an acrobot from a pole: %v", err)
	}
}

func TestInvalidActionsAndNamesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		action []float64
		says   string
	}{
		{"CartPole-v1", []float64{2}, "0 to 1"},
		{"CartPole-v1", []float64{-1}, "0 to 1"},
		{"CartPole-v1", []float64{0.5}, "whole number"},
		{"CartPole-v1", []float64{math.NaN()}, "NaN"},
		{"CartPole-v1", []float64{0, 1}, "it must have 1"},
		{"Acrobot-v1", []float64{3}, "0 to 2"},
		{"Pendulum-v1", []float64{math.NaN()}, "NaN"},
		{"Pendulum-v1", []float64{math.Inf(1)}, "Inf"},
		{"Pendulum-v1", nil, "it must have 1"},
		{"MountainCarContinuous-v0", []float64{1e200}, "square"},
		{"Grid4x4-v0", []float64{4}, "0 to 3"},
	} {
		e := newEnv(t, c.name)
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(4, obs); err != nil {
			t.Fatal(err)
		}
		before, _ := e.MarshalBinary()
		_, err := e.Step(c.action, obs)
		if err == nil || !strings.Contains(err.Error(), c.name) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, action %v: %v, want the name and %q", c.name, c.action, err, c.says)
		}
		if after, _ := e.MarshalBinary(); !slices.Equal(before, after) {
			t.Errorf("%s, action %v: something happened", c.name, c.action)
		}
	}
	if _, err := classic.Make("CartPole-v0"); err == nil || !strings.Contains(err.Error(), "CartPole-v1") {
		t.Errorf("an unknown name: %v, want the known ones", err)
	}
}

func TestWithoutAnEpisodeThereIsNoStep(t *testing.T) {
	for _, name := range classic.Names() {
		e := newEnv(t, name)
		obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
		if _, err := e.Step(action, obs); !errors.Is(err, env.ErrNotRunning) {
			t.Errorf("%s: a step before Reset: %v", name, err)
		}
		if err := e.Observe(obs); !errors.Is(err, env.ErrNotRunning) {
			t.Errorf("%s: observed before Reset: %v", name, err)
		}
		if err := e.Reset(1, append(obs, 0)); err == nil {
			t.Errorf("%s: reset into a slice that is too long: no error", name)
		}
		play(t, e, 1)
		if _, err := e.Step(action, obs); !errors.Is(err, env.ErrNotRunning) {
			t.Errorf("%s: a step after the end: %v", name, err)
		}
		if err := e.Observe(obs); err != nil {
			t.Errorf("%s: the final observation: %v", name, err)
		}
	}
}

func TestWhereActionsAreClipped(t *testing.T) {
	reward := func(name string, a float64) (float64, []float64) {
		e := newEnv(t, name)
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(8, obs); err != nil {
			t.Fatal(err)
		}
		out, err := e.Step([]float64{a}, obs)
		if err != nil {
			t.Fatal(err)
		}
		return out.Reward, obs
	}
	r2, o2 := reward("Pendulum-v1", 2)
	r9, o9 := reward("Pendulum-v1", 9)
	if r2 != r9 || !slices.Equal(o2, o9) {
		t.Errorf("a pendulum's torque of 9 earns %v and leads to %v, one of 2 %v and %v: it must be clipped", r9, o9, r2, o2)
	}
	r1, o1 := reward("MountainCarContinuous-v0", 1)
	r3, o3 := reward("MountainCarContinuous-v0", 3)
	if math.Abs(r1+0.1) > 1e-15 || math.Abs(r3+0.9) > 1e-15 || !slices.Equal(o1, o3) {
		t.Errorf("a force of 3 costs %v and leads to %v, one of 1 %v and %v: want 0.9 and 0.1, and the same place",
			-r3, o3, -r1, o1)
	}
}

func TestTheGridsOptimalReturnIsTheDistanceToACorner(t *testing.T) {
	table := classic.GridTable()
	var v [classic.GridCells]float64
	for range 10 { // no cell is farther than 3 moves
		for cell := range v {
			best := math.Inf(-1)
			for _, m := range table[cell] {
				next := 0.0
				if !m.Terminated {
					next = v[m.Next]
				}
				best = max(best, m.Reward+next)
			}
			v[cell] = best
		}
	}
	for cell := range v {
		row, column := cell/4, cell%4
		if want := -float64(min(row+column, 6-row-column)); v[cell] != want {
			t.Errorf("cell %d: value %v, want %v", cell, v[cell], want)
		}
	}

	// The environment walks by the table.
	e, obs := newEnv(t, "Grid4x4-v0"), make([]float64, 1)
	r := rand.New(rand.NewPCG(1, 1))
	starts := map[float64]int{}
	for seed := range uint64(500) {
		if err := e.Reset(seed, obs); err != nil {
			t.Fatal(err)
		}
		starts[obs[0]]++
		for over := false; !over; {
			cell, move := int(obs[0]), r.IntN(4)
			out, err := e.Step([]float64{float64(move)}, obs)
			got := classic.Move{Next: int(obs[0]), Reward: out.Reward, Terminated: out.Terminated}
			if want := table[cell][move]; err != nil || want != got {
				t.Fatalf("cell %d, move %d: %+v, %v: want %+v", cell, move, got, err, want)
			}
			over = out.Ended()
		}
	}
	if len(starts) != 14 || starts[0]+starts[15] != 0 {
		t.Errorf("starts %v, want every cell but the corners", starts)
	}
}

func TestTheIdentityRewardsTheObservation(t *testing.T) {
	e, obs := newEnv(t, "IdentityDiscrete-v0"), make([]float64, 4)
	if err := e.Reset(1, obs); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i := range 100 {
		at := slices.Index(obs, 1)
		seen[at] = true
		right := float64(i % 2) // every other time the wrong one
		action := float64((at + 1 - i%2) % 4)
		if out, err := e.Step([]float64{action}, obs); out.Reward != right || err != nil {
			t.Fatalf("step %d: action %v at %d earns %v, %v, want %v", i, action, at, out.Reward, err, right)
		}
	}
	if len(seen) != 4 {
		t.Errorf("saw %v, want all four places", seen)
	}
	e, obs = newEnv(t, "IdentityContinuous-v0"), make([]float64, 1)
	if err := e.Reset(1, obs); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if out, err := e.Step([]float64{obs[0] - 0.5}, obs); math.Abs(out.Reward+0.25) > 1e-15 || err != nil {
			t.Fatalf("missed by a half: %v, %v, want -0.25", out.Reward, err)
		}
	}
}

func TestAStepDoesNotAllocate(t *testing.T) {
	for _, name := range classic.Names() {
		e := newEnv(t, name)
		obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
		over := true
		if n := testing.AllocsPerRun(1000, func() {
			var err error
			if over {
				err, over = e.Reset(3, obs), false
			} else {
				var out env.Outcome
				out, err = e.Step(action, obs)
				over = out.Ended()
			}
			if err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, name := range classic.Names() {
		b.Run(name, func(b *testing.B) {
			e := newEnv(b, name)
			obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
			over := true
			b.ReportAllocs()
			for b.Loop() {
				if over {
					if err := e.Reset(1, obs); err != nil {
						b.Fatal(err)
					}
				}
				out, err := e.Step(action, obs)
				if err != nil {
					b.Fatal(err)
				}
				over = out.Ended()
			}
		})
	}
}
