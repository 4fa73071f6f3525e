package train_test

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq"
	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/nntest"
)

// sharing makes agents in a Workspace, nil for one of their own, by seed.
func sharing() map[string]func(seed uint64, w *agent.Workspace) (stepper, error) {
	d := ddpg.Default(1, []float64{-1}, []float64{1})
	d.Hidden = []int{8}
	d.Batch = 8
	d.Warmup = 20
	d.Twin = true
	d.TargetNoise = 0.2
	q := dqn.Default(1, 3)
	q.Hidden = []int{8}
	q.Batch = 8
	q.Warmup = 20
	q.Every = 1
	q.Prioritised = true
	p := ppo.Default(1, 3, nil, nil)
	p.Hidden = []int{8}
	p.Envs = 2
	p.Horizon = 8
	p.Minibatch = 8
	p.Epochs = 2
	return map[string]func(seed uint64, w *agent.Workspace) (stepper, error){
		"ddpg": func(seed uint64, w *agent.Workspace) (stepper, error) {
			c := d
			c.Seed, c.ActorLearningRate = seed, 1e-3*float64(seed)
			return ddpg.NewWith(c, w)
		},
		"dqn": func(seed uint64, w *agent.Workspace) (stepper, error) {
			c := q
			c.Seed, c.LearningRate = seed, 1e-3*float64(seed)
			return dqn.NewWith(c, w)
		},
		"ppo": func(seed uint64, w *agent.Workspace) (stepper, error) {
			c := p
			c.Seed = seed
			return ppo.NewWith(c, w)
		},
		"recurrent ppo": func(seed uint64, w *agent.Workspace) (stepper, error) {
			c := p
			c.Seed = seed
			return ppo.NewRecurrentWith(c, w)
		},
	}
}

// Agents that share graphs, and learn by turns, become what they become alone,
// bit by bit.
func TestSharedGraphsChangeNothing(t *testing.T) {
	for name, make := range sharing() {
		choices := 3
		if name == "ddpg" {
			choices = 0
		}
		world := func() env.Env {
			pay := func(step int, action float64) (float64, bool) { return action * float64(step), true }
			return &envtest.World{Choices: choices, Limit: 7, Pay: pay}
		}
		w := agent.NewWorkspace()
		var alone, shared []stepper
		for seed := range uint64(3) {
			one, err := make(seed+1, nil)
			if err != nil {
				t.Fatal(err)
			}
			other, err := make(seed+1, w)
			if err != nil {
				t.Fatal(err)
			}
			alone, shared = append(alone, one), append(shared, other)
		}
		if w.Len() != 1 {
			t.Errorf("%s: %d sets of graphs for one shape", name, w.Len())
		}
		for range 3 {
			for i := range alone {
				walkWorld(t, alone[i], world, 50, nil)
			}
			for i := range shared {
				walkWorld(t, shared[i], world, 50, nil)
			}
		}
		for i := range alone {
			if !bytes.Equal(nntest.Saved(t, alone[i].(saver)), nntest.Saved(t, shared[i].(saver))) {
				t.Errorf("%s: agent %d with shared graphs became another one", name, i)
			}
		}
	}
}

// The same for learners from fixed data.
func TestSharedGraphsChangeNothingOffline(t *testing.T) {
	type learner interface {
		saver
		Learn(updates int) error
	}
	data := func(discrete bool) *replay.Uniform {
		u, err := replay.NewUniform(replay.Config{Capacity: 100, State: 1, Action: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			a := float64(i%3) / 2
			if discrete {
				a = float64(i % 3)
			}
			x := float64(i) / 50
			tr := replay.Transition{
				State:    []float64{x},
				Action:   []float64{a},
				Reward:   x * a,
				Next:     []float64{x},
				Discount: 0.9,
			}
			if err := u.Add(tr); err != nil {
				t.Fatal(err)
			}
		}
		return u
	}
	b := bcq.Default(1, []float64{-1}, []float64{1})
	b.Hidden = []int{8}
	b.Generative = []int{8}
	b.Batch = 8
	s := discrete.Default(1, 3)
	s.Hidden, s.Batch = []int{8}, 8
	n := clone.Config{State: 1, NumActions: 3, Hidden: []int{8}, LearningRate: 1e-3, Batch: 8}
	w := agent.NewWorkspace()
	for name, make := range map[string]func(seed uint64, w *agent.Workspace) (learner, error){
		"bcq": func(seed uint64, w *agent.Workspace) (learner, error) {
			c := b
			c.Seed = seed
			return bcq.NewWith(c, data(false), w)
		},
		"discrete bcq": func(seed uint64, w *agent.Workspace) (learner, error) {
			c := s
			c.Seed = seed
			return discrete.NewWith(c, data(true), w)
		},
		"clone": func(seed uint64, w *agent.Workspace) (learner, error) {
			c := n
			c.Seed = seed
			return clone.NewWith(c, data(true), w)
		},
	} {
		var all []learner
		for _, space := range []*agent.Workspace{nil, w} {
			for seed := range uint64(2) {
				l, err := make(seed, space)
				if err != nil {
					t.Fatal(name, err)
				}
				all = append(all, l)
			}
		}
		for range 3 {
			for _, l := range all {
				if err := l.Learn(5); err != nil {
					t.Fatal(name, err)
				}
			}
		}
		for i := range 2 {
			if !bytes.Equal(nntest.Saved(t, all[i]), nntest.Saved(t, all[i+2])) {
				t.Errorf("%s: agent %d with shared graphs became another one", name, i)
			}
		}
	}
	if w.Len() != 3 {
		t.Errorf("%d sets of graphs for three algorithms", w.Len())
	}
}

// Settings on which an update depends have graphs of their own.
func TestShapesDoNotShareGraphs(t *testing.T) {
	w := agent.NewWorkspace()
	c := dqn.Default(4, 3)
	for i, change := range []func(c *dqn.Config){
		nil,
		func(c *dqn.Config) { c.Hidden = []int{32} },
		func(c *dqn.Config) { c.Double = false },
		func(c *dqn.Config) { c.MaxGradNorm = 1 },
		func(c *dqn.Config) { c.Batch = 32 },
	} {
		changed := c
		if change != nil {
			change(&changed)
		}
		if _, err := dqn.NewWith(changed, w); err != nil {
			t.Fatal(err)
		}
		if w.Len() != i+1 {
			t.Errorf("change %d: %d sets of graphs, want %d", i, w.Len(), i+1)
		}
	}
}

// 200 agents of each default kind, before their replay fills, are below 400 MiB.
func TestAgentsAreSmallBeforeTheirReplayFills(t *testing.T) {
	before := heap()
	w := agent.NewWorkspace()
	var all []stepper
	for seed := range uint64(200) {
		c := ddpg.Default(8, slices.Repeat([]float64{-1}, 5), slices.Repeat([]float64{1}, 5))
		c.Seed = seed
		one, err := ddpg.NewWith(c, w)
		if err != nil {
			t.Fatal(err)
		}
		q := dqn.Default(8, 15)
		q.Seed = seed
		other, err := dqn.NewWith(q, w)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one, other)
	}
	for _, l := range all {
		learnOnce(t, l)
	}
	mib := float64(heap()-before) / (1 << 20)
	t.Logf("%d agents hold %.1f MiB", len(all), mib)
	if mib > 400 {
		t.Errorf("%d agents hold %.1f MiB: it must be at most 400", len(all), mib)
	}
	runtime.KeepAlive(all)
}

func learnOnce(t testing.TB, l stepper) {
	t.Helper()
	obs := make([]float64, 8)
	actions := make([]float64, 1)
	if _, ok := l.(*ddpg.Agent); ok {
		actions = make([]float64, 5)
	}
	if err := l.Explore(obs, nil, actions); err != nil {
		t.Fatal(err)
	}
	if err := l.Learn(envtest.Rows(actions, []float64{1}, obs, nil, nil)); err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	var m runtime.MemStats
	for range 3 { // pools give back what they hold only after two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
