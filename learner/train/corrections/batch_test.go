package corrections_test

import (
	"bytes"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
	"awarescale.dev/aware/learner/train/corrections"
)

// batch is a training of a Batch in the identity task.
func batch(t *testing.T, seed uint64, steps int) *train.Run {
	t.Helper()
	const identity = "IdentityDiscrete-v0"
	e, err := classic.Make(identity)
	if err != nil {
		t.Fatal(err)
	}
	b, err := corrections.NewBatch(e.Observation().Dim(), e.Action().N, steps, seed)
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.New(train.Config{Env: identity, Steps: steps, Seed: seed},
		func() (env.Env, error) { return classic.Make(identity) }, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func trained(t *testing.T, r *train.Run, until int) []byte {
	t.Helper()
	if err := r.Train(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	return nntest.Saved(t, r)
}

// What the demand policy does, with random choices now and then, is enough to learn the identity from.
func TestABatchLearnsOfRandomChoices(t *testing.T) {
	r := batch(t, 1, 1200)
	trained(t, r, 1200)
	returns, err := r.Final(5)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range returns {
		if v < 95 {
			t.Errorf("an episode returned %v of 100", v)
		}
	}
}

func TestABatchIsItsSeedAndCanBeResumed(t *testing.T) {
	whole := trained(t, batch(t, 2, 700), 700)
	if !bytes.Equal(whole, trained(t, batch(t, 2, 700), 700)) {
		t.Error("two trainings of a seed differ")
	}
	if bytes.Equal(whole, trained(t, batch(t, 3, 700), 700)) {
		t.Error("another seed does the same")
	}
	f, err := weights.Decode(trained(t, batch(t, 2, 700), 555))
	if err != nil {
		t.Fatal(err)
	}
	again := batch(t, 2, 700)
	if err := again.Restore(f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole, trained(t, again, 700)) {
		t.Error("a resumed training ends differently")
	}
}

// The demand policy drives: half of the choices keep, and the others are random, and legal. What is not known teaches nothing.
func TestABatchMostlyKeepsAndChoosesWhatIsLegal(t *testing.T) {
	b, err := corrections.NewBatch(1, 4, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	taken, action := map[float64]int{}, []float64{0}
	for range 1000 {
		if err := b.Explore([]float64{0.5}, []bool{true, false, true, false}, action); err != nil {
			t.Fatal(err)
		}
		taken[action[0]]++
	}
	if len(taken) != 2 || taken[0] < 700 || taken[2] < 200 {
		t.Errorf("choices were taken %v times: three quarters must keep, and a quarter be the other legal one", taken)
	}
	rows := envtest.Rows([]float64{0}, []float64{1}, []float64{0.5}, nil, nil)
	rows.RewardKnown[0] = false
	if err := b.Learn(rows); err != nil || b.Stats().SkippedRows != 1 {
		t.Errorf("%+v, %v", b.Stats(), err)
	}
}
