package aware

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/fqe"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

// Life is the settings of an agent's life by Algorithm 1.
type Life struct {
	Jitter    mdp.Ratio `json:"jitter"`    // share of the fallback's steps in which one knob is raised, Offline
	Raise     float64   `json:"raise"`     // how far at most, in the box of actions, whose whole range is 2
	Try       mdp.Ratio `json:"try"`       // share of the steps Online with the algorithm's noise; there is none in the others
	Imitation float64   `json:"imitation"` // of the fallback's data, Offline (ddpg.Config.Imitation)
	Fade      int       `json:"fade"`      // steps Online over which imitation goes to zero
	Least     int       `json:"least"`     // episodes Offline before the first evaluation
	Every     int       `json:"every"`     // episodes Offline from one evaluation to the next
	Keep      int       `json:"keep"`      // episodes of the fallback that an evaluation is made of
}

// UsualLife is what the experiments take.
var UsualLife = Life{Jitter: 0.2, Raise: 0.3, Try: 0.1, Imitation: 0.4, Fade: 5000, Least: 10, Every: 5, Keep: 20}

// Change is a change of stage.
type Change struct {
	Episode int    `json:"episode"` // in which it happened
	Stage   string `json:"stage"`
	Why     string `json:"why"`
}

// living is AWARE's arm: the lifecycle says who drives and what is learned from. The agent learns at each step of the
// fallback (Offline) and at each of its own (Online), by the same algorithm; Offline its actor also imitates.
//
// What Offline is worth is estimated by fitted Q evaluation of the fallback's last episodes: the policy does not drive for it.
type living struct {
	*actor
	life     Life
	settings lifecycle.Settings
	cycle    *lifecycle.Agent
	fallback *rule
	r        *rand.Rand
	graphs   *agent.Workspace
	seed     uint64

	driven   *driven // that is driven now
	episodes int     // that have begun
	was      lifecycle.Stage
	now      lifecycle.Stage // of the last decision
	online   int             // steps
	pending  *mdp.Transition // that the cycle has not taken in yet
	steps    []replay.Transition
	kept     [][]replay.Transition // of the fallback, the last episodes
	offline  int                   // episodes, since the stage began
	Changes  []Change
	LastEval fqe.Estimate
}

// newLiving makes one whose agent knows what it knows. It begins in the stage Initialized.
func newLiving(l Life, a *ddpg.Agent, width int, fallback *rule, seed uint64) (*living, error) {
	settings := lifecycle.DefaultSettings
	cycle, err := lifecycle.NewAgent(lifecycle.AgentConfig{Settings: settings, Fallback: fallback, Seed: seed})
	if err != nil {
		return nil, err
	}
	return &living{
		actor: newActor(a, true, width), life: l, settings: settings, cycle: cycle, fallback: fallback,
		r: rand.New(rand.NewPCG(seed, 0x11fe)), graphs: agent.NewWorkspace(), seed: seed,
	}, nil
}

// serve lets it begin in the stage Serving, with what its policy and the fallback have earned until now.
func (l *living) serve(d *driven, own, fallback []Episode) error {
	profile := func(all []Episode) *lifecycle.Profile {
		p := lifecycle.NewProfile()
		for _, e := range all {
			p.Over = append(p.Over, lifecycle.Episode{Steps: e.Steps, Known: e.Known, Sum: e.Reward, Squares: e.Squares})
		}
		p.Over = p.Over[max(0, len(p.Over)-p.Keep):]
		p.Count = len(p.Over)
		return p
	}
	l.driven, l.was, l.now = d, lifecycle.Serving, lifecycle.Serving
	return l.cycle.Restore(lifecycle.AgentState{
		Stage: lifecycle.Serving, Why: "it has converged", Generation: 1, Recent: profile(own), Fallback: profile(fallback),
	}, l.pilot())
}

// pilot is the agent as the lifecycle's learned policy.
func (l *living) pilot() mdp.Policy {
	return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
		// With noise at each step nearly every episode has one that is far too small for its load, and the agent would never
		// drive for long. What is learned from is what took force.
		if l.now == lifecycle.Serving || l.r.Float64() >= float64(l.life.Try) {
			l.greedy(l.driven.obs, l.numbers)
		}
		return l.driven.encoder.FromBox(l.numbers)
	})
}

func (l *living) begin() error {
	l.episodes++
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
		if l.cycle.Tick() {
			l.changed()
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

// changed follows a change of the stage.
func (l *living) changed() {
	m := l.cycle.Stage()
	l.Changes = append(l.Changes, Change{l.episodes, m.Stage.String(), m.Why})
	if l.was == lifecycle.Serving {
		// What was learned from is of another workload: the agent goes on with its weights alone, as FIRM's transfer does.
		if err := l.forget(); err != nil {
			panic(err) // its own weights fit
		}
	}
	switch m.Stage {
	case lifecycle.Offline:
		l.kept, l.steps, l.offline = nil, nil, 0
		l.agent.Imitate(l.life.Imitation)
	case lifecycle.Online:
		l.online = 0
	}
	l.was = m.Stage
}

// forget empties the agent's replay.
func (l *living) forget() error {
	own, err := l.agent.SavePolicy()
	if err != nil {
		return err
	}
	return l.agent.Restore(own)
}

func (l *living) took(d *driven, t taken) error {
	l.pending = &mdp.Transition{Reward: t.Reward, RewardKnown: t.RewardKnown, Truncated: t.last}
	if l.now == lifecycle.Serving {
		return nil
	}
	if l.now == lifecycle.Online {
		l.online++
		l.agent.Imitate(l.life.Imitation * max(0, 1-float64(l.online)/float64(max(1, l.life.Fade))))
	}
	if err := l.time(func() error { return l.agent.Learn(t.rows) }); err != nil {
		return err
	}
	if l.now != lifecycle.Offline {
		return nil
	}
	if t.RewardKnown {
		l.steps = append(l.steps, replay.Transition{
			State: slices.Clone(d.before), Action: slices.Clone(t.rows.Executed), Reward: float64(t.Reward),
			Next: slices.Clone(d.obs), Discount: l.gamma(), Truncated: t.last,
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
	if l.offline++; l.offline < l.life.Least || (l.offline-l.life.Least)%max(1, l.life.Every) != 0 {
		return nil
	}
	return l.time(func() error { return l.evaluate(d) })
}

// gamma is the discount of evaluations: the algorithm's.
func (l *living) gamma() float64 { return Settings(1, 1).Gamma }

// evaluate offers the policy to the lifecycle, with what it is worth by an evaluation in which it does not drive.
func (l *living) evaluate(d *driven) error {
	if len(l.kept) < 2 {
		return nil // nothing is known
	}
	c := fqe.Default(len(d.obs), len(l.numbers), 0)
	c.Seed = l.seed + uint64(l.episodes)
	e, err := fqe.Evaluate(c, l.kept, func(obs []float64, _ []bool, action []float64) error {
		l.greedy(obs, action)
		return nil
	}, l.graphs)
	if err != nil {
		return fmt.Errorf("evaluating what was learned: %w", err)
	}
	l.LastEval = e
	l.cycle.Offer(l.pilot(), l.cycle.Generation()+1, lifecycle.Estimate{Known: true, Mean: e.Mean, Low: e.Low, High: e.High})
	return nil
}
