package train_test

import (
	"testing"

	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/train"
)

// recorder notes the seeds of the episodes of an environment.
type recorder struct {
	env.Env
	note func(seed uint64)
}

func (r *recorder) Reset(seed uint64, obs []float64) error {
	r.note(seed)
	return r.Env.Reset(seed, obs)
}

// The final test has episodes that were not used before: neither by training
// nor by the evaluations that choose the actor.
func TestTheFinalTestHasSeedsOfItsOwn(t *testing.T) {
	phase := "training"
	seeds := map[string]map[uint64]bool{"training": {}, "evaluation": {}, "final": {}}
	made := 0
	factory := func() (env.Env, error) {
		e, err := classic.Make("IdentityDiscrete-v0")
		made++
		of := "training"
		if made > 4 { // the vector has the first four
			of = phase
		}
		return &recorder{e, func(seed uint64) { seeds[of][seed] = true }}, err
	}
	l, err := ppo.New(ppo.Default(4, 4, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.New(train.Config{
		Env:      "IdentityDiscrete-v0",
		Steps:    2000,
		Seed:     1,
		Evaluate: 500,
		Episodes: 10,
	}, factory, l)
	phase = "evaluation"
	if err == nil {
		err = r.Train(t.Context(), 2000)
	}
	phase = "final"
	if err == nil {
		_, err = r.Final(10)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(seeds["training"]) < 20 || len(seeds["evaluation"]) != 40 || len(seeds["final"]) != 10 {
		t.Fatalf("%d, %d and %d seeds of training, evaluation and final test: want at least 20, 40 and 10, all different",
			len(seeds["training"]), len(seeds["evaluation"]), len(seeds["final"]))
	}
	for seed := range seeds["final"] {
		if seeds["training"][seed] || seeds["evaluation"][seed] {
			t.Errorf("the final test has seed %d, which training or evaluation had", seed)
		}
	}
	for seed := range seeds["evaluation"] {
		if seeds["training"][seed] {
			t.Errorf("an evaluation has seed %d, which training had", seed)
		}
	}
}
