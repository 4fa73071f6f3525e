package handover_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
	"awarescale.dev/aware/learner/train/handover"
)

// data is what a policy did that chooses 2 of three, or 0.6.
func data(t *testing.T, choices int) *replay.Uniform {
	t.Helper()
	b, err := replay.NewUniform(replay.Config{Capacity: 500, State: 2, Action: 1, NumActions: choices})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		action, reward := 0.6, 1.0
		if choices > 0 {
			action = float64(r.IntN(choices))
			reward = action
		}
		s := []float64{1, r.Float64()}
		err := b.Add(replay.Transition{State: s, Action: []float64{action}, Reward: reward, Next: s, Discount: 0.5})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func saved(t *testing.T, l interface {
	Learn(int) error
	SavePolicy() (weights.File, error)
}) weights.File {
	t.Helper()
	if err := l.Learn(400); err != nil {
		t.Fatal(err)
	}
	f, err := l.SavePolicy()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// decision is what a learner does, without exploration, for an observation.
func decision(t *testing.T, l train.Learner) float64 {
	t.Helper()
	var server kernel.Server
	if err := server.Publish(l.Snapshot()); err != nil {
		t.Fatal(err)
	}
	out, _, ok := server.Decide([]float64{1, 0.3}, 1, new(kernel.Scratch))
	if !ok {
		t.Fatal("it decides nothing")
	}
	action := make([]float64, 1)
	l.GreedyAction(out, nil, action)
	return action[0]
}

// Whoever goes on does at first what was learned offline.
func TestTheNextAlgorithmBeginsWithWhatWasLearned(t *testing.T) {
	choices := saved(t, must(discrete.New(discrete.Default(2, 3), data(t, 3)))(t))
	values := must(dqn.New(dqn.Default(2, 3)))(t)
	if err := handover.Over(choices, values); err != nil {
		t.Fatal(err)
	}
	if got := decision(t, values); got != 2 {
		t.Errorf("DQN chooses %v, and 2 earns the most", got)
	}
	if !slices.Equal(choices.Tensors["values.target"].Data, values.Values.Target) {
		t.Error("the target network is another one")
	}

	cc := clone.Config{State: 2, Low: []float64{-1}, High: []float64{1}, Hidden: []int{64, 64}, LearningRate: 1e-3, Batch: 64}
	numbers := saved(t, must(clone.New(cc, data(t, 0)))(t))
	actor := must(ddpg.New(ddpg.Default(2, []float64{-1}, []float64{1})))(t)
	if err := handover.Over(numbers, actor); err != nil {
		t.Fatal(err)
	}
	if got := decision(t, actor); got < 0.5 || got > 0.7 {
		t.Errorf("DDPG does %v, and the data 0.6", got)
	}
	if !slices.Equal(actor.Policy.Actor.Theta, actor.Policy.Actor.Target) {
		t.Error("the target actor is another one")
	}

	cc = clone.Config{State: 2, NumActions: 3, Hidden: []int{64, 64}, LearningRate: 1e-3, Batch: 64}
	likely := saved(t, must(clone.New(cc, data(t, 3)))(t))
	c := ppo.Default(2, 3, nil, nil)
	c.Activation = kernel.ReLU
	policy := must(ppo.New(c))(t)
	if err := handover.Over(likely, policy); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(policy.Theta[:len(likely.Tensors["network"].Data)], likely.Tensors["network"].Data) {
		t.Error("PPO's policy is not the clone's")
	}
}

// Where networks mean other things nothing is handed over, and why is said.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	choices := saved(t, must(discrete.New(discrete.Default(2, 3), data(t, 3)))(t))
	normal := ppo.Default(2, 3, nil, nil)
	normal.NormaliseObservation = true
	other := dqn.Default(2, 3)
	other.Hidden = []int{32}
	likely := saved(t, must(clone.New(clone.Config{
		State: 2, NumActions: 3, Hidden: []int{64, 64}, LearningRate: 1e-3, Batch: 64,
	}, data(t, 3)))(t))
	for why, c := range map[string]struct {
		from weights.File
		to   train.Learner
	}{
		"only discrete BCQ": {likely, must(dqn.New(dqn.Default(2, 3)))(t)},
		"only a clone":      {choices, must(ddpg.New(ddpg.Default(2, []float64{-1}, []float64{1})))(t)},
		"layers":            {choices, must(dqn.New(other))(t)},
		"normalises":        {likely, must(ppo.New(normal))(t)},
	} {
		before, err := c.to.Save()
		if err != nil {
			t.Fatal(err)
		}
		var refused *handover.RefusedError
		if err := handover.Over(c.from, c.to); !errors.As(err, &refused) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
		after, err := c.to.Save()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := encoded(t, before), encoded(t, after); a != b {
			t.Errorf("%s: it was refused, and something has changed", why)
		}
	}
}

func encoded(t *testing.T, f weights.File) string {
	t.Helper()
	b, err := weights.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
