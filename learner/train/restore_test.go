package train_test

import (
	"bytes"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/bcq"
	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
)

// saver is an agent of any algorithm.
type saver interface {
	Save() (weights.File, error)
	Restore(weights.File) error
}

// changed makes agents of one algorithm, each with one setting changed, and what
// the refusal must say; an empty text is a setting that may change.
type changed struct {
	name  string
	plain func() (saver, error)
	cases map[string]func() (saver, error)
}

func of[C any, S saver](make func(C) (S, error), c C, change func(c *C)) func() (saver, error) {
	return func() (saver, error) {
		if change != nil {
			change(&c)
		}
		s, err := make(c)
		return s, err
	}
}

func identities() []changed { return append(online(), fixedData()...) }

// online are the learners that act.
func online() []changed {
	d := ddpg.Default(2, []float64{-1}, []float64{1})
	d.Hidden, d.Batch = []int{8}, 8
	q := dqn.Default(2, 3)
	q.Hidden, q.Batch = []int{8}, 8
	p := ppo.Default(2, 3, nil, nil)
	p.Hidden = []int{8}
	p.Horizon = 8
	p.Minibatch = 32
	g := ppo.Default(2, 0, []float64{-1}, []float64{1})
	g.Hidden = []int{8}
	g.Envs = 2
	g.Horizon = 8
	g.Minibatch = 16
	return []changed{
		{"ddpg", of(ddpg.New, d, nil), map[string]func() (saver, error){
			"": of(ddpg.New, d, func(c *ddpg.Config) {
				c.ActorLearningRate = 1e-4
				c.Seed = 9
				c.Warmup = 7
			}),
			"identity.twin is true: it must be false":       of(ddpg.New, d, func(c *ddpg.Config) { c.Twin = true }),
			"identity.target_noise is true":                 of(ddpg.New, d, func(c *ddpg.Config) { c.TargetNoise = 0.2 }),
			"identity.delayed is true":                      of(ddpg.New, d, func(c *ddpg.Config) { c.Delay = 2 }),
			`identity.activation is "tanh": it must be "re`: of(ddpg.New, d, func(c *ddpg.Config) { c.Activation = kernel.Tanh }),
			"identity.high is [2]: it must be [1]":          of(ddpg.New, d, func(c *ddpg.Config) { c.High = []float64{2} }),
			"identity.low is [-2]: it must be [-1]":         of(ddpg.New, d, func(c *ddpg.Config) { c.Low = []float64{-2} }),
			"identity.hidden is [9]: it must be [8]":        of(ddpg.New, d, func(c *ddpg.Config) { c.Hidden = []int{9} }),
			"identity.state is 3: it must be 2":             of(ddpg.New, d, func(c *ddpg.Config) { c.State = 3 }),
		}},
		{"dqn", of(dqn.New, q, nil), map[string]func() (saver, error){
			"": of(dqn.New, q, func(c *dqn.Config) {
				c.LearningRate = 1e-4
				c.Seed = 9
				c.AnnealSteps = 7
			}),
			"identity.double is false":              of(dqn.New, q, func(c *dqn.Config) { c.Double = false }),
			"identity.prioritised is true":          of(dqn.New, q, func(c *dqn.Config) { c.Prioritised = true }),
			"identity.n_step is 3: it must be 1":    of(dqn.New, q, func(c *dqn.Config) { c.Steps = 3 }),
			`identity.activation is "tanh"`:         of(dqn.New, q, func(c *dqn.Config) { c.Activation = kernel.Tanh }),
			"identity.num_actions is 4: it must be": of(dqn.New, q, func(c *dqn.Config) { c.NumActions = 4 }),
		}},
		{"ppo", of(ppo.New, p, nil), map[string]func() (saver, error){
			"": of(ppo.New, p, func(c *ppo.Config) {
				c.LearningRate = 1e-4
				c.Seed = 9
				c.AnnealSteps = 7
			}),
			`identity.activation is "relu"`:  of(ppo.New, p, func(c *ppo.Config) { c.Activation = kernel.ReLU }),
			"identity.envs is 8: it must be": of(ppo.New, p, func(c *ppo.Config) { c.Envs, c.Horizon = 8, 4 }),
			"identity.high is [1]": of(ppo.New, g, func(c *ppo.Config) {
				c.Envs = 4
				c.Horizon = 8
				c.Minibatch = 32
			}),
			"identity.normalise_reward is tr": of(ppo.New, p, func(c *ppo.Config) { c.NormaliseReward = true }),
			`weights of "ppo-recurrent"`:      of(ppo.NewRecurrent, p, nil),
		}},
		{"ppo, continuous", of(ppo.New, g, nil), map[string]func() (saver, error){
			"":                                     of(ppo.New, g, func(c *ppo.Config) { c.Entropy = 0.5 }),
			"identity.high is [2]: it must be [1]": of(ppo.New, g, func(c *ppo.Config) { c.High = []float64{2} }),
		}},
		{"recurrent ppo", of(ppo.NewRecurrent, p, nil), map[string]func() (saver, error){
			"":                     of(ppo.NewRecurrent, p, func(c *ppo.Config) { c.LearningRate = 1 }),
			`weights of "ppo"`:     of(ppo.New, p, nil),
			"identity.hidden is [": of(ppo.NewRecurrent, p, func(c *ppo.Config) { c.Hidden = []int{9} }),
		}},
	}
}

// fixedData are the learners from fixed data.
func fixedData() []changed {
	data := func(n int) *replay.Uniform {
		u, err := replay.NewUniform(replay.Config{Capacity: 10, State: 2, Action: n})
		if err != nil {
			panic(err)
		}
		return u
	}
	b := bcq.Default(2, []float64{-1}, []float64{1})
	b.Hidden = []int{8}
	b.Generative = []int{8}
	b.Batch = 8
	newBCQ := func(c bcq.Config) (*bcq.Agent, error) { return bcq.New(c, data(1)) }
	s := discrete.Default(2, 3)
	s.Hidden, s.Batch = []int{8}, 8
	newDiscrete := func(c discrete.Config) (*discrete.Agent, error) { return discrete.New(c, data(1)) }
	n := clone.Config{
		State:        2,
		Low:          []float64{-1},
		High:         []float64{1},
		Hidden:       []int{8},
		LearningRate: 1e-3,
		Batch:        8,
	}
	newClone := func(c clone.Config) (*clone.Agent, error) { return clone.New(c, data(1)) }
	return []changed{
		{"bcq", of(newBCQ, b, nil), map[string]func() (saver, error){
			"":                                     of(newBCQ, b, func(c *bcq.Config) { c.LearningRate = 1 }),
			"identity.high is [2]: it must be [1]": of(newBCQ, b, func(c *bcq.Config) { c.High = []float64{2} }),
			"identity.generative is [9]":           of(newBCQ, b, func(c *bcq.Config) { c.Generative = []int{9} }),
			`weights of "bcq-discrete"`:            of(newDiscrete, s, nil),
		}},
		{"discrete bcq", of(newDiscrete, s, nil), map[string]func() (saver, error){
			"":                            of(newDiscrete, s, func(c *discrete.Config) { c.LearningRate, c.Threshold = 1, 0.5 }),
			"identity.num_actions is 4: ": of(newDiscrete, s, func(c *discrete.Config) { c.NumActions = 4 }),
		}},
		{"clone", of(newClone, n, nil), map[string]func() (saver, error){
			"":                                     of(newClone, n, func(c *clone.Config) { c.LearningRate = 1 }),
			"identity.high is [2]: it must be [1]": of(newClone, n, func(c *clone.Config) { c.High = []float64{2} }),
			"identity.high is null": of(newClone, n, func(c *clone.Config) {
				c.NumActions = 3
				c.Low = nil
				c.High = nil
			}),
		}},
	}
}

func TestAStateIsRestoredIntoTheSameIdentityOnly(t *testing.T) {
	for _, x := range identities() {
		for says, other := range x.cases {
			agent, err := x.plain()
			if err != nil {
				t.Fatal(x.name, err)
			}
			before := nntest.Saved(t, agent)
			source, err := other()
			if err != nil {
				t.Fatal(x.name, says, err)
			}
			f, err := source.Save()
			if err != nil {
				t.Fatal(x.name, says, err)
			}
			err = agent.Restore(f)
			if says == "" {
				if err != nil {
					t.Errorf("%s: a setting that may change: %v", x.name, err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v: it must say %q", x.name, err, says)
			}
			if !bytes.Equal(before, nntest.Saved(t, agent)) {
				t.Errorf("%s: what was refused (%s) changed something", x.name, says)
			}
		}
	}
}

// A policy that is saved without its replay is small, decides as before, and
// learns on from an empty buffer.
func TestAPolicyIsSavedApartFromItsReplay(t *testing.T) {
	for name, choices := range map[string]int{"ddpg": 0, "dqn": 3, "dqn of three steps": 3} {
		world := func() env.Env {
			return &envtest.World{Choices: choices, Limit: 9, Pay: envtest.Constant(1)}
		}
		l := inWorld(t, choices)[name]
		walkWorld(t, l, world, 500, nil)
		policy, err := l.(interface{ SavePolicy() (weights.File, error) }).SavePolicy()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := weights.Encode(policy)
		if err != nil {
			t.Fatal(err)
		}
		if whole := len(nntest.Saved(t, l.(saver))); len(raw) > whole-400*40 {
			t.Errorf("%s: the policy is %d bytes, with the replay %d", name, len(raw), whole)
		}
		policy, err = weights.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		again := inWorld(t, choices)[name]
		walkWorld(t, again, world, 100, nil) // it has a replay of its own, which must go
		if err := again.(saver).Restore(policy); err != nil {
			t.Fatal(err)
		}
		if held := transitions(t, name, choices, again); len(held) != 0 {
			t.Errorf("%s: %d transitions are held after a restore without replay", name, len(held))
		}
		after, err := again.(saver).Save()
		if err != nil {
			t.Fatal(err)
		}
		for tensor, want := range policy.Tensors {
			if !bytes.Equal(floats(want.Data), floats(after.Tensors[tensor].Data)) {
				t.Errorf("%s: %s is another one", name, tensor)
			}
		}
		walkWorld(t, again, world, 100, nil)

		// A file whose replay is gone, without saying so, is damaged.
		f, err := l.(saver).Save()
		if err != nil {
			t.Fatal(err)
		}
		delete(f.Blobs, "replay")
		if err := again.(saver).Restore(f); err == nil || !strings.Contains(err.Error(), `"replay" is missing`) {
			t.Errorf("%s: a file without its replay: %v", name, err)
		}
	}
}

func floats(all []float64) []byte {
	raw, err := weights.Encode(weights.File{Tensors: map[string]weights.Tensor{"x": {
		Shape: []int{len(all)},
		Data:  all,
	}}})
	if err != nil {
		panic(err)
	}
	return raw
}
