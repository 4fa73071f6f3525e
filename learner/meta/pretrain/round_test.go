package pretrain

import (
	"context"
	"math"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/meta"
)

// What an update is given says which choices were legal in the next states.
func TestUpdatesKnowWhatWasLegal(t *testing.T) {
	world := &envtest.World{
		Choices: 3, Limit: 5, Pay: func(int, float64) (float64, bool) { return 1, true },
		Allow: func(step, choice int) bool { return choice != step%3 },
	}
	c := Default(meta.FormOf(world))
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 4, 4, 2, 2, 5
	b := discrete.Default(c.Meta.Form.Observation+2, 3)
	b.Hidden, b.Batch = []int{4}, 32
	c.Choices = &Choices{Config: b, Gamma: 0.5}
	c.Tasks, c.Spread, c.Updates, c.Rounds, c.Guided = 1, 1, 1, 1, 1
	run, err := New(c, []Task{{Name: "w", Env: envtest.Masked{World: world}}})
	if err == nil {
		err = run.Train(context.Background(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Batch {
		step := int(math.Round(5 * run.wide.Next[i*b.State])) // the observation is the share of the episode that is over
		for choice, legal := range run.wide.NextLegal[3*i:][:3] {
			if want := choice != step%3; legal != want {
				t.Errorf("row %d, after %d steps, choice %d: legal %v, want %v", i, step, choice, legal, want)
			}
		}
	}
}

// tiny is a pretraining of ten rounds over some workloads, with a tiny meta-learner.
func tiny(t *testing.T, workloads int, set func(c *Config)) *Run {
	t.Helper()
	var tasks []Task
	pay := func(_ int, a float64) (float64, bool) { return a, true }
	for range workloads {
		tasks = append(tasks, Task{Name: "w", Env: &envtest.World{Limit: 5, Pay: pay}})
	}
	form := meta.FormOf(tasks[0].Env)
	c := Default(form)
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 4, 4, 2, 2, 5
	c.Base.State, c.Base.Hidden, c.Base.Batch = form.Observation+2, []int{4}, 4
	c.Tasks, c.Rounds = 1, 10
	set(&c)
	run, err := New(c, tasks)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// train goes on to the end of a round.
func train(t *testing.T, run *Run, round int) {
	t.Helper()
	if err := run.Train(context.Background(), round); err != nil {
		t.Fatal(err)
	}
}

// Guides are imitated while there is hardly anything else, and learning rates fall to a tenth.
func TestImitationAndRatesFall(t *testing.T) {
	run := tiny(t, 2, func(c *Config) {
		c.Plays, c.Updates, c.Guided, c.Imitation = 1, 1, 1, 6
	})
	c := run.c
	for round, want := range []float64{6, 6, 4, 3, 2.4, 2, 12.0 / 7, 1.5, 12.0 / 9, 1.2} {
		train(t, run, round+1)
		base := run.base.(*continuous)
		if math.Abs(base.plain.Imitation-want) > 1e-9 || base.whole.Imitation != base.plain.Imitation {
			t.Errorf("round %d imitates with %v and %v, want %v", round, base.plain.Imitation, base.whole.Imitation, want)
		}
		share := 1 - 0.9*float64(round)/10
		for what, of := range map[string][2]float64{
			"meta-learner": {run.adam.LearningRate, c.LearningRate},
			"actor":        {base.policy.Actor.Adam.LearningRate, c.Base.ActorLearningRate},
			"critic":       {base.policy.Critics[0].Adam.LearningRate, c.Base.CriticLearningRate},
		} {
			if math.Abs(of[0]-share*of[1]) > 1e-12 {
				t.Errorf("round %d: the %s learns at %v of %v", round, what, of[0], of[1])
			}
		}
	}
	if want := 8 * 5; run.steps != want {
		t.Errorf("the policy has played %d steps, want %d: two of ten episodes are guides'", run.steps, want)
	}
}

// settles lets the meta-learner settle in the last four rounds. Two workloads play in each round.
func settles(c *Config) {
	c.Plays, c.Spread, c.Updates, c.Through = 2, 1, 4, 1
	c.Averaged, c.Settled = 0.5, 0.4
}

// In the last rounds the meta-learner is the mean that it will be in the result, and does not move. All workloads have the
// embedding that it makes of them, the base-learner goes on, and its mean is of those rounds alone.
func TestTheMetaLearnerSettles(t *testing.T) {
	run := tiny(t, 20, settles)
	var thetas, actors [][]float64 // after each round
	for round := 1; round <= 10; round++ {
		train(t, run, round)
		thetas = append(thetas, slices.Clone(run.learner.Theta))
		actors = append(actors, slices.Clone(run.base.(*continuous).policy.Actor.Theta))
		if round < 7 {
			continue
		}
		known := 0
		for i, one := range run.tasks { // each has played once, so that there is one embedding that it can have
			if len(one.kept.Episodes) == 0 {
				continue
			}
			known++
			want := make([]float64, len(one.embedding))
			run.learner.Embed(one.kept.Episodes, want)
			if !slices.Equal(one.embedding, want) {
				t.Errorf("round %d: workload %d has the embedding %v, want %v", round, i, one.embedding, want)
			}
		}
		if want := 2 * round; known != want {
			t.Errorf("round %d: %d workloads have played, want %d", round, known, want)
		}
	}
	learner, err := run.Learner()
	if err != nil {
		t.Fatal(err)
	}
	of := func(all [][]float64, i int) (sum float64) {
		for _, one := range all {
			sum += one[i] / float64(len(all))
		}
		return sum
	}
	for i, v := range learner.Theta {
		if want := of(thetas[3:6], i); math.Abs(v-want) > 1e-12 {
			t.Fatalf("parameter %d of the meta-learner is %v in the result, want %v, the mean of rounds 4 to 6", i, v, want)
		}
	}
	for round := 6; round < 10; round++ {
		if !slices.Equal(thetas[round], learner.Theta) {
			t.Errorf("the meta-learner moves in round %d", round+1)
		}
	}
	base, err := run.Base(1)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(actors[8], actors[9]) {
		t.Fatal("the base-learner does not go on")
	}
	for i, v := range base.Policy.Actor.Theta {
		if want := of(actors[8:], i); math.Abs(v-want) > 1e-12 {
			t.Fatalf("parameter %d of the actor is %v in the result, want %v, the mean of rounds 9 and 10", i, v, want)
		}
	}
}

// A workload is known by some of its episodes. Where the meta-learner does not move any more the base-learner still meets it with
// others of them: embeddings change of workloads that do not play.
func TestASettledMetaLearnerLooksAtOtherEpisodes(t *testing.T) {
	run := tiny(t, 3, settles)
	train(t, run, 7)
	for round := 8; round <= 10; round++ {
		before, played := make([][]float64, 3), make([]int, 3)
		for i, one := range run.tasks {
			before[i], played[i] = slices.Clone(one.embedding), one.episodes
		}
		train(t, run, round)
		for i, one := range run.tasks {
			if one.episodes == played[i] && !slices.Equal(one.embedding, before[i]) {
				return
			}
		}
	}
	t.Error("no workload that did not play has another embedding")
}
