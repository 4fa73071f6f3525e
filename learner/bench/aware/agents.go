package aware

import (
	"runtime"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn/kernel"
)

// meter adds up the CPU time of learning.
type meter struct{ seconds float64 }

// time adds the CPU time of a job. Where the thread's time is not known nothing is added.
func (m *meter) time(job func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin, known := threadSeconds()
	err := job()
	if end, ok := threadSeconds(); ok && known {
		m.seconds += end - begin
	}
	return err
}

func (m *meter) cost() float64 { return m.seconds }

// actor is an agent that drives in numbers.
type actor struct {
	meter
	agent   *ddpg.Agent
	learns  bool
	tape    *kernel.Tape[float64]
	numbers []float64
	memory  *meta.Memory // of the workload, whose embedding it reads; nil: it reads none
	seen    meta.Episode // the running one
	keeps   bool         // it remembers what it sees, although it does not learn
}

func newActor(a *ddpg.Agent, learns bool, width int) *actor {
	return &actor{agent: a, learns: learns, tape: kernel.NewTape[float64](a.Snapshot().MLP, 1), numbers: make([]float64, width)}
}

// greedy writes the action without exploration.
func (a *actor) greedy(obs, action []float64) {
	a.agent.GreedyAction(a.tape.Forward(a.agent.Policy.Actor.Theta, obs, 1), nil, action)
}

func (a *actor) begin() error {
	a.seen = meta.Episode{}
	return nil
}

func (a *actor) embedding() []float64 {
	if a.memory == nil {
		return nil
	}
	return a.memory.Embedding()
}

// remember adds a step to what is known of the workload. Whoever drives, what it does there says what the workload is.
func (a *actor) remember(d *driven, t taken) {
	if a.memory == nil {
		return
	}
	form := meta.Form{Observation: d.width(), Action: len(t.rows.Executed)}
	a.seen.Add(form, d.before[:d.width()], t.rows.Executed, t.rows.Rewards[0], t.RewardKnown)
	if t.last {
		a.memory.Add(a.seen)
	}
}

func (a *actor) decide(d *driven) (mdp.Action, error) {
	if !a.learns {
		a.greedy(d.obs, a.numbers)
	} else if err := a.agent.Explore(d.obs, nil, a.numbers); err != nil {
		return mdp.Action{}, err
	}
	return d.encoder.FromBox(a.numbers)
}

func (a *actor) took(d *driven, t taken) error {
	if a.learns || a.keeps {
		a.remember(d, t)
	}
	if !a.learns {
		return nil
	}
	return a.time(func() error { return a.agent.Learn(t.rows) })
}

func (a *actor) stage() lifecycle.Stage {
	if a.learns {
		return lifecycle.Online
	}
	return lifecycle.Serving
}
