package classic_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
)

func vector(t testing.TB, seed uint64, name string, n int) *env.Vector {
	t.Helper()
	var envs []env.Env
	for range n {
		envs = append(envs, newEnv(t, name))
	}
	v, err := env.NewVector(seed, envs...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheFinalObservationIsNotTheNextEpisodesFirst(t *testing.T) {
	const n = 3
	v := vector(t, 1, "CartPole-v1", n)
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	actions := make([]float64, n)
	ends := 0
	for step := range 200 {
		for i := range actions {
			draw(r, v.Action(), actions[i:i+1])
		}
		if err := v.StepAll(actions); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			final, next := v.Final[4*i:4*i+4], v.Observations[4*i:4*i+4]
			if !v.Terminated[i] && !v.Truncated[i] {
				if !slices.Equal(final, next) {
					t.Fatalf("step %d, row %d continues, but %v is followed by %v", step, i, final, next)
				}
				continue
			}
			ends++
			if abs(final[0]) <= 2.4 && abs(final[2]) <= 0.2094 {
				t.Fatalf("step %d, row %d: %v is no end", step, i, final)
			}
			for _, x := range next {
				if abs(x) > 0.05 {
					t.Fatalf("step %d, row %d: %v is not an initial state", step, i, next)
				}
			}
		}
	}
	if ends < 10 {
		t.Errorf("%d ends in 200 steps of %d poles: too few to show anything", ends, n)
	}
}

func abs(x float64) float64 { return max(x, -x) }

func TestARestoredVectorContinuesBitByBit(t *testing.T) {
	const n = 4
	for _, name := range classic.Names() {
		v, w := vector(t, 1, name, n), vector(t, 2, name, n)
		if err := v.Reset(); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		actions := make([]float64, n*v.Action().Dim())
		step := func(vs ...*env.Vector) {
			for i := range n {
				draw(r, v.Action(), actions[i*v.Action().Dim():(i+1)*v.Action().Dim()])
			}
			for _, v := range vs {
				if err := v.StepAll(actions); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 30 {
			step(v)
		}
		saved, err := v.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.UnmarshalBinary(saved); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.Observations, v.Observations) {
			t.Fatalf("%s: restored, it sees %v, want %v", name, w.Observations, v.Observations)
		}
		for i := range 300 { // nearly all of them are reset in that time
			step(v, w)
			if !slices.Equal(v.Observations, w.Observations) || !slices.Equal(v.Final, w.Final) ||
				!slices.Equal(v.Rewards, w.Rewards) ||
				!slices.Equal(v.Terminated, w.Terminated) || !slices.Equal(v.Truncated, w.Truncated) {
				t.Fatalf("%s: step %d after the restore differs", name, i)
			}
		}
	}
}

func TestAFailedRestoreLeavesAVectorUnchanged(t *testing.T) {
	v, w := vector(t, 1, "Pendulum-v1", 2), vector(t, 2, "Pendulum-v1", 2)
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := w.Reset(); err != nil {
		t.Fatal(err)
	}
	saved, _ := v.MarshalBinary()
	before, _ := w.MarshalBinary()
	for i := range saved {
		tampered := slices.Clone(saved)
		tampered[i]++
		if w.UnmarshalBinary(saved[:i]) == nil || w.UnmarshalBinary(tampered) == nil {
			t.Fatalf("cut at byte %d, or byte %d changed: no error", i, i)
		}
	}
	if after, _ := w.MarshalBinary(); !slices.Equal(before, after) {
		t.Error("it was changed by what it refused")
	}
	if err := vector(t, 1, "Pendulum-v1", 3).UnmarshalBinary(saved); err == nil {
		t.Error("three pendulums from two: no error")
	}
}

func TestAVectorRefusesAllActionsOrNone(t *testing.T) {
	v := vector(t, 1, "CartPole-v1", 2)
	if err := v.StepAll([]float64{0, 1}); err == nil {
		t.Error("a step before Reset: no error")
	}
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	before, _ := v.MarshalBinary()
	for _, actions := range [][]float64{{0}, {0, 1, 0}, {0, 2}} {
		if err := v.StepAll(actions); err == nil {
			t.Errorf("actions %v: no error", actions)
		}
	}
	if after, _ := v.MarshalBinary(); !slices.Equal(before, after) {
		t.Error("the first one was stepped though the second was refused")
	}
	if _, err := env.NewVector(1); err == nil {
		t.Error("a vector of nothing: no error")
	}
	if _, err := env.NewVector(1, newEnv(t, "CartPole-v1"), newEnv(t, "Acrobot-v1")); err == nil {
		t.Error("a pole beside an acrobot: no error")
	}
	twice := newEnv(t, "CartPole-v1")
	if _, err := env.NewVector(1, twice, twice); err == nil {
		t.Error("one pole twice: no error")
	}
}

func TestAVectorsStepDoesNotAllocate(t *testing.T) {
	v := vector(t, 1, "CartPole-v1", 4) // is reset often
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	actions := []float64{0, 1, 0, 1}
	if n := testing.AllocsPerRun(1000, func() { _ = v.StepAll(actions) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
