package aware

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/fqe"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta/pretrain"
)

// Life is the settings of an agent's life by Algorithm 1.
type Life struct {
	Jitter    mdp.Ratio `json:"jitter"`    // share of the fallback's steps in which one knob is raised, Offline
	Raise     float64   `json:"raise"`     // how far at most, in the box of actions, whose whole range is 2
	Try       mdp.Ratio `json:"try"`       // share of the steps Online in which the action has noise; there is none in Serving
	Noise     float64   `json:"noise"`     // its deviation, in the box: 0.02 is 5 % of a limit
	Imitation float64   `json:"imitation"` // of the data, Offline and Online (ddpg.Config.Imitation)
	Least     int       `json:"least"`     // episodes of the fallback that an evaluation is made of, at least
	Keep      int       `json:"keep"`      // the same, at most
	Every     int       `json:"every"`     // episodes Offline to an evaluation; twice as many after each time that it handed back
	Room      mdp.Ratio `json:"room"`      // how far below the fallback's a size may be at first; 0 is no limit
	Above     float64   `json:"above"`     // T_online: how much more than the fallback a step must earn
	Below     float64   `json:"below"`     // T_serving: how much less a step may earn than by the converged policy
}

// UsualLife is what the experiments take. Imitation lets the policy set limits that are some 5 % from those of the data, and
// Room no lower ones at first. Below is the paper's: its threshold is 5 of an episode of a hundred steps (§5.3).
var UsualLife = Life{
	Jitter: 0.2, Raise: 0.3, Try: 0.3, Noise: 0.02, Imitation: 15, Least: 10, Keep: 20, Every: 5, Room: 0.05, Below: 0.05,
}

// AdaptedLife is the same for an agent that is pretrained: it need not learn from the fallback before it is worth an evaluation,
// and so is evaluated as soon as there are episodes to evaluate it in. It has learned in workloads whose sizes were lowered, too.
var AdaptedLife = adaptedLife()

func adaptedLife() Life {
	l := UsualLife
	l.Least, l.Every, l.Room = 2, 2, 0
	return l
}

// Change is a change of stage.
type Change struct {
	Episode int    `json:"episode"` // in which it happened
	Stage   string `json:"stage"`
	Why     string `json:"why"`
}

// living is AWARE's arm: the lifecycle says who drives and what is learned from. The agent learns at each step of the fallback
// (Offline) and at each of its own (Online), by the same algorithm, except that its actor also imitates what was done.
//
// What it is worth Offline is estimated by fitted Q evaluation of the fallback's last episodes: the policy does not drive for it.
// T_online is what the fallback earns, as in the paper. T_serving is somewhat less than what the converged policy earns.
type living struct {
	*actor
	life     Life
	cycle    *lifecycle.Agent
	fallback *rule
	r        *rand.Rand
	graphs   *agent.Workspace
	seed     uint64

	driven   *driven // that is driven now
	episodes int     // that have begun
	was      lifecycle.Stage
	now      lifecycle.Stage // of the last decision
	pending  *mdp.Transition // that the cycle has not taken in yet
	steps    []replay.Transition
	kept     [][]replay.Transition // of the fallback in this workload, the last episodes
	offline  int                   // episodes, since the stage began or the last evaluation
	wait     int                   // episodes Offline to an evaluation
	room     float64               // how far below the fallback's the agent's sizes may be; 0 is no limit
	good     int                   // episodes in a row that the agent drove, and in which it was not worse than the fallback
	drive    Figures               // of the running one
	changes  int                   // of the workload, that the lifecycle has seen
	adapts   *pretrain.Pretrained  // with which it begins in a workload that is another one; nil: with what it has
	Changes  []Change
}

// newLiving makes one whose agent knows what it knows. It begins in the stage Initialized. The best are episodes of the
// converged policy, of which the thresholds of Serving are made.
func newLiving(l Life, a *ddpg.Agent, width int, fallback *rule, best []Episode, seed uint64) (*living, error) {
	serving := lifecycle.Default(profile(best).Summary())
	objective := mdp.Objective{SLO: fallback.config.SLO, Alpha: Published.Alpha}
	cycle, err := lifecycle.NewAgent(lifecycle.AgentConfig{
		Settings: lifecycle.DefaultSettings, Fallback: fallback, Seed: seed, Objective: objective,
		Thresholds: func(fallback lifecycle.Summary) lifecycle.Thresholds {
			t := lifecycle.Default(fallback)
			t.Online += l.Above
			t.Serving, t.Variance = max(t.Online, serving.Serving-l.Below), max(t.Variance, serving.Variance)
			return t
		},
	})
	if err != nil {
		return nil, err
	}
	a.Imitate(l.Imitation)
	return &living{
		actor: newActor(a, true, width), life: l, wait: l.Every, room: float64(l.Room), cycle: cycle, fallback: fallback,
		r: rand.New(rand.NewPCG(seed, 0x11fe)), graphs: agent.NewWorkspace(), seed: seed,
	}, nil
}

// profile is episodes as the lifecycle keeps them.
func profile(all []Episode) *lifecycle.Profile {
	p := lifecycle.NewProfile()
	for _, e := range all[max(0, len(all)-p.Keep):] {
		p.Over = append(p.Over, lifecycle.Episode{Steps: e.Steps, Known: e.Known, Sum: e.Reward, Squares: e.Squares})
	}
	p.Count = len(p.Over)
	return p
}

// serve lets it begin in the stage Serving, with what its policy and the fallback have earned until now.
func (l *living) serve(d *driven, own, fallback []Episode) error {
	l.driven, l.was, l.now = d, lifecycle.Serving, lifecycle.Serving
	return l.cycle.Restore(lifecycle.AgentState{
		Stage: lifecycle.Serving, Why: "it has converged", Generation: 1, Recent: profile(own), Fallback: profile(fallback),
		Proven: l.adapts != nil,
	}, pilot{l}, nil)
}

// pilot is the agent as the lifecycle's learned policy.
type pilot struct{ *living }

// Decide implements [mdp.Policy]. With the algorithm's own noise nearly every episode has a step that is far too small for its
// load, and the agent would never drive for long.
func (p pilot) Decide(mdp.State) (mdp.Action, error) {
	p.greedy(p.driven.obs, p.numbers)
	if p.now == lifecycle.Online && p.r.Float64() < float64(p.life.Try) {
		for i := range p.numbers {
			p.numbers[i] += p.life.Noise * p.r.NormFloat64()
		}
	}
	return p.driven.encoder.FromBox(p.numbers)
}

// Beside is the same, with nothing that is far below what the fallback wants. Offline the fallback's sizes were raised and never
// lowered, so of lower ones the agent knows nothing: they are a guess of its network, and one that is wrong costs more than an
// episode earns. What it learns later is of sizes that are a little lower, so it may go further by and by: see [living.drove].
func (p pilot) Beside(s mdp.State, fallback mdp.Action) (mdp.Action, error) {
	action, err := p.Decide(s)
	if err != nil || p.room == 0 {
		return action, err
	}
	for k := range action.Sets.Signals() {
		own, _ := action.Knob(k)
		other, _ := fallback.Knob(k) // 0 where it leaves it
		action = action.WithKnob(k, max(own, int64(math.Ceil((1-p.room)*float64(other)))))
	}
	return action, nil
}

func (l *living) begin() error {
	l.episodes++
	if err := l.actor.begin(); err != nil {
		return err
	}
	return l.fallback.begin()
}

func (l *living) stage() lifecycle.Stage { return l.now }

func (l *living) decide(d *driven) (mdp.Action, error) {
	l.driven = d
	l.now = l.cycle.Stage().Stage
	if l.now == lifecycle.Initialized {
		l.now = lifecycle.Offline // that is what its plan is
	}
	if l.now != lifecycle.Serving {
		if err := l.agent.Explore(d.obs, nil, l.numbers); err != nil {
			return mdp.Action{}, err
		}
	}
	action, err := l.cycle.Advise(d.state)
	if err != nil {
		return action, err
	}
	who, failed := l.cycle.Drives()
	if failed != nil {
		return action, failed // a defect here: the policy is always there
	}
	if who == lifecycle.Fallback && l.r.Float64() < float64(l.life.Jitter) {
		action, err = l.raised(d, action)
	}
	// The stage of the last step is over: the lifecycle takes it in after the next decision.
	if l.pending != nil {
		l.cycle.Record(*l.pending)
		l.pending = nil
		if l.cycle.Tick() && err == nil {
			err = l.changed()
		}
	}
	return action, err
}

// raised is an action with one knob higher. It is never lower: the fallback is what is safe.
func (l *living) raised(d *driven, action mdp.Action) (mdp.Action, error) {
	box := make([]float64, len(l.numbers))
	if err := d.encoder.ToBox(d.state, action, box); err != nil {
		return action, err
	}
	k := l.r.IntN(len(box))
	box[k] = min(1, box[k]+l.life.Raise*l.r.Float64())
	higher, err := d.encoder.FromBox(box)
	if err != nil {
		return action, err
	}
	for one := range mdp.LimitKnobs.Signals() {
		v, _ := higher.Knob(one)
		if has, ok := action.Knob(one); ok && v > has {
			action = action.WithKnob(one, v)
		}
	}
	return action, nil
}

// changed follows a change of the stage, or of the workload.
func (l *living) changed() error {
	m, workload := l.cycle.Stage(), l.cycle.Workload()
	l.Changes = append(l.Changes, Change{l.episodes, m.Stage.String(), m.Why})
	was := l.was
	l.was, l.steps, l.offline = m.Stage, nil, 0
	if was == lifecycle.Online && m.Stage == lifecycle.Offline {
		l.wait *= 2
		if l.adapts != nil {
			l.memory.Forget() // it is tried again with what the fallback's next episodes say of the workload
		}
	}
	if workload.Changes == l.changes {
		return nil
	}
	// What was learned from is of another workload.
	l.changes, l.wait = workload.Changes, l.life.Every
	if was == lifecycle.Offline {
		l.kept = l.kept[max(0, len(l.kept)-l.cycle.State().Fallback.Count):] // what the lifecycle has seen of the new one
	} else {
		l.kept = nil
	}
	return l.forget()
}

// forget empties the agent's replay. Without a meta-learner the agent goes on with its weights alone, as FIRM's transfer does.
// With one it begins as in any workload that it has not seen.
func (l *living) forget() error {
	if l.adapts != nil {
		l.memory.Forget()
		return l.agent.Restore(l.adapts.Base)
	}
	own, err := l.agent.SavePolicy()
	if err != nil {
		return err
	}
	return l.agent.Restore(own)
}

func (l *living) took(d *driven, t taken) error {
	l.remember(d, t)
	l.pending = &mdp.Transition{Reward: t.Reward, RewardKnown: t.RewardKnown, Truncated: t.last}
	l.drove(d, t)
	if l.now == lifecycle.Serving {
		return nil
	}
	if l.adapts == nil { // of a workload's first episodes it would learn what is worse than what many workloads have taught
		if err := l.time(func() error { return l.agent.Learn(t.rows) }); err != nil {
			return err
		}
	}
	if l.now != lifecycle.Offline {
		return nil
	}
	if t.RewardKnown {
		l.steps = append(l.steps, replay.Transition{
			State: slices.Clone(d.before), Action: slices.Clone(t.rows.Executed), Reward: float64(t.Reward),
			Next: slices.Clone(d.obs), Discount: discount, Truncated: t.last,
		})
	}
	if !t.last {
		return nil
	}
	if len(l.steps) > 0 {
		l.kept = append(l.kept, l.steps)
		l.kept = l.kept[max(0, len(l.kept)-l.life.Keep):]
	}
	l.steps = nil
	if l.offline++; len(l.kept) < max(2, l.life.Least) || l.offline < l.wait {
		return nil
	}
	l.offline = 0
	return l.time(func() error { return l.evaluate(d) })
}

// drove follows how far below the fallback's sizes the agent may go: further by Room after Every episodes in a row that were not
// worse than the fallback's usual ones by more than the lifecycle allows (Worse, 5 %), and half as far after one that was.
// Offline it is what it was at first.
func (l *living) drove(d *driven, t taken) {
	if l.now == lifecycle.Offline {
		l.room, l.good, l.drive = float64(l.life.Room), 0, Figures{}
		return
	}
	l.drive.add(t.Outcome, d.slo)
	if !t.last {
		return
	}
	usual, earned := l.cycle.State().Fallback.Summary(), l.drive
	l.drive = Figures{}
	switch {
	case earned.Known == 0:
	case earned.Mean() < usual.Mean-float64(lifecycle.DefaultSettings.Worse)*math.Abs(usual.Mean):
		l.room, l.good = max(float64(l.life.Room), l.room/2), 0
	default:
		if l.good++; l.good%l.life.Every == 0 {
			l.room += float64(l.life.Room)
		}
	}
}

// evaluate offers the policy to the lifecycle, with what it is worth by an evaluation in which it does not drive: what the
// fallback earns, and by how much more the policy earns in the fallback's episodes.
func (l *living) evaluate(d *driven) error {
	c := fqe.Default(len(d.obs), len(l.numbers), 0)
	c.Seed = l.seed + uint64(l.episodes)
	e, err := fqe.Evaluate(c, l.kept, func(obs []float64, _ []bool, _, action []float64) error {
		l.greedy(obs, action)
		return nil
	}, l.graphs)
	if err != nil {
		return fmt.Errorf("evaluating what was learned: %w", err)
	}
	earned := l.cycle.State().Fallback.Summary().Mean
	l.cycle.Offer(pilot{l}, l.cycle.Generation()+1, lifecycle.Estimate{
		Known: true, Proven: l.adapts != nil, Mean: earned + e.Gain.Mean, Low: earned + e.Gain.Low, High: earned + e.Gain.High,
	})
	return nil
}
