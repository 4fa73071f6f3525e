package main

import (
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"k8s.io/klog/v2"
)

// minds is the agents of the workloads that are learned, and their lessons. There are lessons only while this instance holds
// the autoscaler's lease. They are given here, or by learners in other processes ([lender]).
type minds struct {
	lessons lesson.Config
	every   time.Duration // from one lesson of a workload to the next
	share   float64       // of one core that lessons may take, in (0, 1]
	folder  string        // where agents outlive this process; empty: there is no store to learn of, and they do not
	teaches bool          // lessons are given here
	now     func() time.Time
	// deciding reports whether this instance holds the autoscaler's lease: another one has agents of its own.
	deciding func() bool
	counted  func(lifecycle.Choice) // called at each decision that is carried out, for metrics

	mu    sync.Mutex       // taken before that of a mind
	all   map[string]*mind // by workload
	asked time.Time        // when a learner elsewhere asked for a lesson last
}

// mind is the agent of one workload. Decisions and lessons are on different goroutines.
type mind struct {
	workload  string
	place     encode.Place
	objective mdp.Objective // by which its rewards are

	mu         sync.Mutex
	agent      *lifecycle.Agent
	acting     bool          // what it decides is carried out: the last step was
	policy     *learned.File // that the agent has, of the generation
	before     *learned.File // that it may go back to
	generation uint64
	weights    *weights.File // of the last lesson, until they are in their file: of a thousand agents they are a gibibyte
	taught     time.Time     // when the last lesson ended
	away       time.Time     // until then a learner has its lesson, and no other one gets it
	peak       mdp.Peak      // of the throughput
	steps      int           // that were recorded since the agent was kept
	changed    bool          // the files are older than the stage, the policy or the weights
	trouble    string        // of the last lesson or of keeping; empty: none
	counted    func(lifecycle.Choice)
}

func newMinds(step time.Duration, now func() time.Time, deciding func() bool) *minds {
	lessons := lesson.Default(central.Form(), step).Begins(shippedStart())
	lessons.Margin = central.Margin
	return &minds{
		lessons: lessons, every: 10 * time.Minute, share: 0.5, now: now,
		deciding: deciding, counted: func(lifecycle.Choice) {}, all: map[string]*mind{},
	}
}

// tries is the share of steps in which something else than the policy's action is tried, where the stage allows it. What ships
// knows already what most choices lead to. With 0.1 an agent earned less in its life than the fallback alone, and with this more
// (ADR 34): a reservation that was raised for nothing falls once in a minute only.
const tries = 0.02

// policy is the agent of a workload, with a fallback. What it was for other bounds or another objective is forgotten, but for
// its weights.
func (m *minds) policy(r recommender.PolicyRequest, fallback mdp.Policy) (mdp.Policy, error) {
	settings, err := settingsOf(*r.Learner)
	if err != nil {
		return nil, err
	}
	place := encode.Place{Bounds: r.Bounds, SLO: r.Objective.SLO}
	encoder, err := encode.New(m.lessons.Form, place)
	if err != nil {
		return nil, fmt.Errorf("spec.learner.algorithm: bcq: %w", err)
	}
	a, err := lifecycle.NewAgent(lifecycle.AgentConfig{
		Settings: settings, Fallback: fallback, Encoder: encoder, Try: tries, Seed: uint64(m.now().UnixNano()),
		Objective: r.Objective,
	})
	if err != nil {
		return nil, fmt.Errorf("spec.learner: %w", err)
	}
	one := &mind{workload: r.Workload, agent: a, place: place, objective: r.Objective, counted: m.counted}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.all[r.Workload]; before != nil {
		before.mu.Lock()
		one.weights, one.peak = before.weights, before.peak
		same := before.place == place && before.objective == r.Objective
		state, policy, replaced := before.agent.State(), before.policy, before.before
		before.mu.Unlock()
		if same {
			one.restore(state, policy, replaced)
		}
	} else {
		m.read(one)
	}
	if one.agent.Stage().Stage == lifecycle.Initialized {
		a.Renew(m.now()) // what is in the store was earned by another objective, or within other bounds
	}
	m.all[r.Workload] = one
	return one, nil
}

// settingsOf is what the owner says of the agent's life.
func settingsOf(l v1alpha1.Learner) (lifecycle.Settings, error) {
	s := lifecycle.DefaultSettings
	s.Bootstrap = l.Bootstrap == nil || *l.Bootstrap
	s.HighStakes = l.KeepOfflineWhileRetraining
	if t := l.Thresholds; t != nil {
		const steps = 100 // of an episode
		s.Thresholds = lifecycle.Thresholds{
			Online:   t.Online.AsApproximateFloat64() / steps,
			Serving:  t.Serving.AsApproximateFloat64() / steps,
			Variance: t.Variance.AsApproximateFloat64() / steps,
		}
		if err := s.Check(); err != nil {
			return s, fmt.Errorf("spec.learner.thresholds: %w", err)
		}
	}
	return s, nil
}

// forget ends the agent of a workload that is not learned any more. Its files stay, with all that it has lived.
func (m *minds) forget(workload string) {
	m.mu.Lock()
	o := m.all[workload]
	delete(m.all, workload)
	m.mu.Unlock()
	if o != nil {
		m.keep(o, true)
	}
}

func (m *minds) of(workload string) *mind {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[workload]
}

// Decide implements [mdp.Policy]. Where nobody acts on it nothing is tried.
func (o *mind) Decide(s mdp.State) (mdp.Action, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Knows(mdp.Throughput) {
		o.peak.See(s.At, s.Throughput)
	}
	if !o.acting {
		return o.agent.Advise(s)
	}
	action, err := o.agent.Decide(s)
	if err == nil {
		o.counted(o.agent.Choice())
	}
	return action, err
}

// record takes in a transition of a workload, on the way of its decisions: it waits for no disk. What nobody carries out says
// nothing of the policy that proposed it.
func (m *minds) record(workload string, t mdp.Transition, acted bool) {
	o := m.of(workload)
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acting = acted; !acted {
		return
	}
	o.agent.Record(t)
	changed := o.agent.Tick()
	if g := o.agent.Generation(); g != o.generation { // it went back to what it had before
		o.policy, o.before, o.generation = o.before, nil, g
		changed = true
	}
	o.steps++
	o.changed = o.changed || changed || o.steps >= 100
	if changed {
		stage := o.agent.Stage()
		klog.InfoS("An agent has another stage, policy or workload", "workload", workload, "stage", stage.Stage, "why", stage.Why,
			"generation", o.generation)
	}
}

// life is where the agent of a workload is.
func (m *minds) life(workload string) (recommender.Life, bool) {
	o, taught := m.of(workload), m.taught()
	if o == nil {
		return recommender.Life{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	stage := o.agent.Stage()
	driver, wrong := o.agent.Drives()
	choice, lately := o.agent.Choice(), o.agent.Departures()
	l := recommender.Life{
		Stage: stage.Stage.String(), Why: stage.Why, Learned: driver == lifecycle.Learned,
		Generation: o.agent.Generation(), Trouble: o.trouble, Peak: o.peak,
		Departs: choice.Departs, Tried: choice.Tried, Steps: lately.Steps, Departed: lately.Departed,
	}
	if choice.Departs {
		l.Rule = choice.Fallback
	}
	switch {
	case wrong != nil:
		l.Trouble = wrong.Error()
	case m.folder == "":
		l.Trouble = "nothing is learned: central has no trajectory store (flag --trajectory-store)"
	case !taught:
		l.Trouble = "nothing is learned: central has not the role learner, and no learner elsewhere asks for lessons"
	}
	return l, true
}

// heard is called when a learner in another process asks for a lesson.
func (m *minds) heard() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = m.now()
}

// taught reports whether anybody gives lessons.
func (m *minds) taught() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.teaches || m.now().Sub(m.asked) < m.every
}
