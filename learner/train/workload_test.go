package train_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train"
)

// The decision process that learners are trained in: a real call graph under a
// real trace, behind central's guards.
const bursty = "sim:social-network/bursty"

func simulated(t testing.TB, box bool) workload.Encoded {
	t.Helper()
	e, err := workload.Make(bursty, box)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Each algorithm trains through encode in the simulated workload, and what it
// learned drives the bench.
func TestLearnersTrainOnTheDecisionProcess(t *testing.T) {
	const steps = 600
	dim, n := simulated(t, false).Observation().Dim(), simulated(t, false).Action().N
	box := simulated(t, true).Action()
	for _, c := range []struct {
		name string
		box  bool
		make func() (train.Learner, error)
	}{
		{"ppo", false, func() (train.Learner, error) {
			c := ppo.Default(dim, n, nil, nil)
			c.Envs, c.Horizon, c.Minibatch, c.Epochs, c.Seed = 2, 50, 50, 2, 1
			return ppo.New(c)
		}},
		{"dqn", false, func() (train.Learner, error) {
			c := dqn.Default(dim, n)
			c.Warmup, c.Batch, c.EpsilonDecaySteps, c.Seed = 100, 32, 300, 1
			return dqn.New(c)
		}},
		{"ddpg", true, func() (train.Learner, error) {
			c := ddpg.Default(dim, box.Low, box.High)
			c.Warmup, c.Batch, c.Seed = 100, 32, 1
			return ddpg.New(c)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.make()
			if err != nil {
				t.Fatal(err)
			}
			before := slices.Clone(l.Snapshot().Theta)
			run, err := train.New(train.Config{Env: bursty, Steps: steps, Seed: 1},
				func() (env.Env, error) { return workload.Make(bursty, c.box) }, l)
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Train(t.Context(), steps); err != nil {
				t.Fatal(err)
			}
			if s := l.Stats(); s.SkippedUpdates != 0 || slices.Equal(before, l.Snapshot().Theta) {
				t.Errorf("nothing was learned: %+v", s)
			}
			for _, p := range run.Curve {
				// AWARE, section 2.2: an episode of 100 steps tops out at 200. The price of
				// missed requests is at most 19.5 a step.
				if !(p.Mean > -1950 && p.Mean < 200) {
					t.Errorf("an episode returned %v: it must be in (-1950, 200)", p.Mean)
				}
			}
			drives(t, simulated(t, c.box), l.Snapshot())
		})
	}
}

// A training in simulated worlds that was saved in the middle of an episode and
// resumed by another process ends as the one that never stopped: both kinds of
// actions, and worlds whose requests wait in queues.
func TestAResumedTrainingInASimulatedWorldEqualsTheUninterruptedOne(t *testing.T) {
	const steps, stop = 240, 130
	dim, n := simulated(t, false).Observation().Dim(), simulated(t, false).Action().N
	space := simulated(t, true).Action()
	for name, c := range map[string]struct {
		box  bool
		make func() (train.Learner, error)
	}{
		"ppo": {false, func() (train.Learner, error) {
			c := ppo.Default(dim, n, nil, nil)
			c.Envs, c.Horizon, c.Minibatch, c.Epochs, c.Seed = 2, 20, 20, 2, 1
			return ppo.New(c)
		}},
		"ddpg": {true, func() (train.Learner, error) {
			c := ddpg.Default(dim, space.Low, space.High)
			c.Hidden = []int{16}
			c.Warmup, c.Batch, c.Seed = 50, 16, 1
			return ddpg.New(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			start := func() *train.Run {
				l, err := c.make()
				if err != nil {
					t.Fatal(err)
				}
				run, err := train.New(train.Config{Env: bursty, Steps: steps, Seed: 4},
					func() (env.Env, error) { return workload.Make(bursty, c.box) }, l)
				if err != nil {
					t.Fatal(err)
				}
				return run
			}
			want := walk(t, start(), steps)
			file, err := weights.Decode(walk(t, start(), stop))
			if err != nil {
				t.Fatal(err)
			}
			again := start()
			if err := again.Restore(file); err != nil {
				t.Fatal(err)
			}
			if got := walk(t, again, steps); !bytes.Equal(got, want) {
				t.Error("the resumed training ends differently")
			}
			t.Logf("the environments take %d kB of a checkpoint", len(file.Blobs["train.envs"])/1000)
		})
	}
}

// Discrete BCQ learns from what a policy that acts at random within the mask did.
func TestDiscreteBCQTrainsOnTheDecisionProcess(t *testing.T) {
	const steps = 400
	e := simulated(t, false)
	dim, n := e.Observation().Dim(), e.Action().N
	data, err := replay.NewUniform(replay.Config{Capacity: steps, State: dim, Action: 1, NumActions: n, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	v, err := env.NewVector(1, e)
	if err == nil {
		err = v.Reset()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	other := 0
	for range steps {
		state, action := slices.Clone(v.Observations), []float64{0}
		for action[0] = float64(r.IntN(n)); !v.Legal[int(action[0])]; action[0] = float64(r.IntN(n)) {
		}
		if err := v.StepAll(action); err != nil {
			t.Fatal(err)
		}
		if v.Executed[0] != action[0] {
			other++
		}
		if !v.RewardKnown[0] {
			continue
		}
		if err := data.Add(replay.Transition{
			State: state, Action: v.Executed, Reward: v.Rewards[0], Next: v.Final, NextLegal: v.FinalLegal,
			Truncated: v.Truncated[0], Terminated: v.Terminated[0], Discount: 0.99,
		}); err != nil {
			t.Fatal(err)
		}
	}
	if other == 0 {
		t.Error("the guards changed no action: executed actions are not under test")
	}
	c := discrete.Default(dim, n)
	c.Batch, c.Seed = 32, 1
	a, err := discrete.New(c, data)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(a.Snapshot().Theta)
	if err := a.Learn(100); err != nil {
		t.Fatal(err)
	}
	if a.SkippedUpdates != 0 || slices.Equal(before, a.Snapshot().Theta) {
		t.Errorf("nothing was learned: %d updates skipped, %v", a.SkippedUpdates, a.LastError)
	}
	drives(t, e, a.Snapshot())
}

// drives writes a policy to a file, reads it, and lets it drive every service
// of the cell for some minutes: as it is, and as it would be if it liked less
// CPU or more above everything else. What those two choose is known, and must
// take force; what a short training made of the first is a matter of its seed.
func drives(t *testing.T, e workload.Encoded, s kernel.Snapshot) {
	t.Helper()
	learns, less, more := drive(t, e, s), drive(t, e, likes(t, e, s, -1)), drive(t, e, likes(t, e, s, 1))
	if !(learns.Cores > 0) || math.IsInf(learns.P99MS, 0) || math.IsNaN(learns.Reward) || learns.Judged == 0 {
		t.Errorf("%+v: the policy must drive, and be judged", learns)
	}
	if !(less.Cores < 0.8*more.Cores) {
		t.Errorf("%.1f cores of a policy that likes less, and %.1f of one that likes more", less.Cores, more.Cores)
	}
	t.Logf("%.1f cores, %.1f if it likes less, %.1f if it likes more; p99 %.0f ms, %d resizes",
		learns.Cores, less.Cores, more.Cores, learns.P99MS, learns.Resizes)
}

// likes is a policy that lowers (-1) or raises (1) the CPU limit wherever it can,
// or sets it at the end of its range, whatever it sees.
func likes(t *testing.T, e workload.Encoded, s kernel.Snapshot, direction int) kernel.Snapshot {
	t.Helper()
	const much = 1e4
	s.Theta = slices.Clone(s.Theta)
	bias := s.Theta[len(s.Theta)-s.MLP.Out():]
	form := e.Form()
	if len(form.Factors) == 0 { // a box: one output per knob
		at := slices.Index(slices.Collect(form.Knobs.Signals()), mdp.CPULimit)
		bias[at] = much * float64(direction)
		return s
	}
	name := map[int]string{-1: "cpu-limit x0.8", 1: "cpu-limit x2"}[direction]
	i := slices.Index(form.Names(), name)
	if i < 0 {
		t.Fatalf("no choice %q in %v", name, form.Names())
	}
	bias[i] += much
	if s.Head.Kind == kernel.Constrained { // the second half is how likely the data's policy was to choose it
		bias[form.NumActions()+i] += much
	}
	return s
}

// drive is what the bench measures of a policy that was in a file.
func drive(t *testing.T, e workload.Encoded, s kernel.Snapshot) bench.Score {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.safetensors")
	if err := (learned.File{Form: e.Form(), Snapshot: s, Step: workload.Step}).Write(path); err != nil {
		t.Fatal(err)
	}
	file, err := learned.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cells, func(c bench.Cell) bool {
		return c.Application == "social-network" && c.Trace.Name == "bursty"
	})
	score, err := bench.Run(t.Context(), cells[i], bench.Learned(file), bench.Options{Seed: 1, Length: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return score
}
