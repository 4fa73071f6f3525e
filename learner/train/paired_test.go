package train_test

import (
	"slices"
	"testing"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/train"
)

// Paired evaluations play the same episodes: of an agent that has not learned between them they are equal. Others are not.
func TestPairedEvaluationsDifferByThePolicyAlone(t *testing.T) {
	evaluations := func(paired bool) []float64 {
		c := ddpg.Default(3, []float64{-2}, []float64{2})
		c.Warmup = 10_000
		l, err := ddpg.New(c)
		if err != nil {
			t.Fatal(err)
		}
		r, err := train.New(train.Config{Env: "Pendulum-v1", Steps: 600, Seed: 1, Evaluate: 200, Episodes: 2, Paired: paired},
			func() (env.Env, error) { return classic.Make("Pendulum-v1") }, l)
		if err == nil {
			err = r.Evaluate()
		}
		if err == nil {
			err = r.Train(t.Context(), 600)
		}
		if err != nil {
			t.Fatal(err)
		}
		var all []float64
		for _, p := range r.Evaluations {
			all = append(all, p.Mean)
		}
		return all
	}
	same := evaluations(true)
	if len(same) != 4 || slices.Min(same) != slices.Max(same) {
		t.Errorf("paired evaluations of one policy are %v", same)
	}
	if other := evaluations(false); slices.Min(other) == slices.Max(other) {
		t.Errorf("evaluations of other episodes are %v", other)
	}
}
