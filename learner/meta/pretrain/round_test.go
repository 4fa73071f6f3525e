package pretrain

import (
	"context"
	"math"
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

// Guides are imitated while there is hardly anything else, and learning rates fall to a tenth.
func TestImitationAndRatesFall(t *testing.T) {
	var tasks []Task
	pay := func(_ int, a float64) (float64, bool) { return a, true }
	for range 2 {
		tasks = append(tasks, Task{Name: "w", Env: &envtest.World{Limit: 5, Pay: pay}})
	}
	form := meta.FormOf(tasks[0].Env)
	c := Default(form)
	c.Meta.Hidden, c.Meta.Dense, c.Meta.Embedding, c.Meta.Bundle, c.Meta.Length = 4, 4, 2, 2, 5
	c.Base.State, c.Base.Hidden, c.Base.Batch = form.Observation+2, []int{4}, 4
	c.Tasks, c.Updates, c.Rounds, c.Guided, c.Imitation = 1, 1, 10, 1, 6
	run, err := New(c, tasks)
	if err != nil {
		t.Fatal(err)
	}
	for round, want := range []float64{6, 6, 4, 3, 2.4, 2, 12.0 / 7, 1.5, 12.0 / 9, 1.2} {
		if err := run.Train(context.Background(), round+1); err != nil {
			t.Fatal(err)
		}
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
