package train_test

import (
	"math"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/train"
	"awarescale.dev/aware/learner/train/presets"
)

// Rewards of 2 that are known in three of five steps: a return is 10 all the
// same. Where no reward is known, an episode has no return, and an actor cannot
// be the best one.
func TestReturnsOfEpisodesWithUnknownRewards(t *testing.T) {
	known := func(step int) bool { return step < 3 }
	factory := func() (env.Env, error) {
		return &envtest.World{Choices: 3, Limit: 5, Pay: func(step int, _ float64) (float64, bool) {
			return 2, known(step)
		}}, nil
	}
	run := func() *train.Run {
		l, ok := inWorld(t, 3)["dqn"].(train.Learner)
		if !ok {
			t.Fatal("dqn is not a train.Learner")
		}
		r, err := train.New(train.Config{Env: "World", Steps: 50, Seed: 1, Evaluate: 20, Episodes: 2}, factory, l)
		if err == nil {
			err = r.Train(t.Context(), 50)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run()
	returns, err := r.Final(3)
	if err != nil || len(returns) != 3 || math.Abs(returns[0]-10) > 1e-12 || math.Abs(r.Recent()-10) > 1e-12 ||
		len(r.Evaluations) != 2 {
		t.Errorf("returns %v, recent %v, %d evaluations, %v: want returns of 10 and 2 evaluations", returns,
			r.Recent(), len(r.Evaluations), err)
	}
	if s := r.Stats(); s.SkippedRows != 20 || s.SkippedUpdates != 0 {
		t.Errorf("stats %+v: 20 rows of 50 have no known reward", s)
	}
	known = func(int) bool { return false }
	r = run()
	returns, err = r.Final(3)
	if err != nil || len(returns) != 0 || !math.IsNaN(r.Recent()) || len(r.Evaluations) != 0 || r.Episodes != 10 {
		t.Errorf("returns %v, recent %v, evaluations %v, %d episodes, %v: nothing is known", returns, r.Recent(),
			r.Evaluations, r.Episodes, err)
	}
}

// The presets train in any environment, also in one with masks and guards.
func TestPresetsTrainInAnyEnvironment(t *testing.T) {
	for _, algorithm := range presets.Algorithms() {
		continuous := algorithm == "ddpg" || algorithm == "td3"
		factory := func() (env.Env, error) {
			w := &envtest.World{Limit: 20, Pay: envtest.Constant(1)}
			if continuous {
				return envtest.Guarded{World: w}, nil
			}
			w.Choices = 4
			w.Allow = func(step, choice int) bool { return choice > 0 || step%2 == 0 }
			return envtest.Workload{World: w}, nil
		}
		r, err := presets.New(algorithm, factory, 1200, 1)
		if err == nil {
			err = r.Train(t.Context(), 1200)
		}
		if err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		if s := r.Stats(); math.Abs(r.Recent()-20) > 1e-9 || s.SkippedRows != 0 || s.SkippedUpdates != 0 {
			t.Errorf("%s: recent return %v, %+v", algorithm, r.Recent(), s)
		}
		if _, err := presets.New(algorithm, func() (env.Env, error) {
			w := &envtest.World{Limit: 20, Pay: envtest.Constant(1)}
			if continuous {
				w.Choices = 4
			}
			return w, nil
		}, 100, 1); (algorithm != "ppo") != (err != nil) {
			t.Errorf("%s with the other kind of actions: %v", algorithm, err)
		}
	}
}

// A factory whose environments have another name than the settings is refused:
// checkpoints are compared by that name.
func TestTheNameOfTheEnvironmentIsCompared(t *testing.T) {
	l := inWorld(t, 3)["dqn"].(train.Learner)
	factory := func() (env.Env, error) { return &envtest.World{Choices: 3, Limit: 5, Pay: envtest.Constant(1)}, nil }
	_, err := train.New(train.Config{Env: "Other", Steps: 1}, factory, l)
	if err == nil || !strings.Contains(err.Error(), `environment "World": the settings say "Other"`) {
		t.Error(err)
	}
}
