package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"github.com/google/renameio/v2"
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
		Worst: r.Objective.Worst(),
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
		state, policy := before.agent.State(), before.policy
		before.mu.Unlock()
		if same {
			one.restore(state, policy)
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

// What the store keeps: of a workload what a lesson reads, and of all together as much as its volume has room for. An episode
// of 100 steps takes about 40 KiB.
const (
	episodesOfOne = 100
	episodesOfAll = 20_000
	keptFor       = 14 * 24 * time.Hour
)

// prunable is a store that does not prune itself.
type prunable interface {
	trajectory.Store
	Prune(ctx context.Context, now time.Time, keep trajectory.Retention) (int64, error)
}

// prune deletes the oldest episodes of each workload.
func (m *minds) prune(ctx context.Context, store prunable) error {
	workloads, err := store.Workloads(ctx)
	if err != nil {
		return err
	}
	each := max(1, min(episodesOfOne, episodesOfAll/max(1, len(workloads))))
	_, err = store.Prune(ctx, m.now(), trajectory.Retention{Episodes: each, Age: keptFor})
	return err
}

// teach gives lessons, one after the other, until the context ends, and writes what has changed to files.
func (m *minds) teach(ctx context.Context, store trajectory.Store) error {
	workspace := agent.NewWorkspace()
	var pruned time.Time
	for {
		pause := 5 * time.Second
		if m.deciding() {
			if p, ok := store.(prunable); ok && m.now().Sub(pruned) > time.Hour {
				if err := m.prune(ctx, p); err != nil {
					klog.ErrorS(err, "Pruning the trajectory store")
				}
				pruned = m.now()
			}
			if o := m.due(); m.teaches && o != nil && o.lend(m.now()) {
				begin := m.now()
				m.lesson(ctx, o, store, workspace)
				took := m.now().Sub(begin)
				pause = time.Duration(float64(took) * (1/m.share - 1))
			}
		}
		m.keepAll(false)
		select {
		case <-ctx.Done():
			m.keepAll(true)
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// due is the mind whose last lesson is the longest ago, of those that are to have one and that no learner has; nil: none is.
func (m *minds) due() *mind {
	next, _ := m.waiting()
	return next
}

// waiting is the mind that is due first, and how many are due.
func (m *minds) waiting() (next *mind, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var oldest time.Time
	for _, o := range m.all {
		o.mu.Lock()
		taught, away, training := o.taught, o.away, o.agent.Training()
		o.mu.Unlock()
		if now := m.now(); training == lifecycle.NoTraining || now.Sub(taught) < m.every || now.Before(away) {
			continue
		}
		if n++; next == nil || taught.Before(oldest) {
			next, oldest = o, taught
		}
	}
	return next, n
}

// lentFor is how long a learner may take for a lesson. It takes some seconds; where a machine is busy, some more.
const lentFor = 10 * time.Minute

// lend gives the mind's lesson to a learner for that time, unless another one has it.
func (o *mind) lend(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.away) {
		return false
	}
	o.away = now.Add(lentFor)
	return true
}

// assignment is a lesson of an agent, with what was true of the agent when the lesson was made.
type assignment struct {
	mind       *mind
	lesson     lesson.Lesson
	workload   lifecycle.Workload
	generation uint64
	trouble    string // why it does not go on from what was learned before; empty: it does
}

// lesson gives one lesson.
func (m *minds) lesson(ctx context.Context, o *mind, store trajectory.Store, w *agent.Workspace) {
	a, err := m.prepare(ctx, o, store)
	var got lesson.Result
	if err == nil {
		got, err = learn(ctx, a.lesson, w)
	}
	m.finish(ctx, a, got, err)
}

// prepare makes the lesson of an agent. With an error, too, the assignment is one to finish.
func (m *minds) prepare(ctx context.Context, o *mind, store trajectory.Store) (a assignment, err error) {
	defer saved(o.workload, &err)
	o.mu.Lock()
	a = assignment{mind: o, workload: o.agent.Workload(), generation: o.agent.Generation()}
	o.mu.Unlock()
	from, err := m.weightsOf(o)
	if err != nil {
		a.trouble = anew(err.Error())
	}
	a.lesson, err = m.lessons.Prepare(ctx, store, o.workload, a.workload.Since, o.place, from)
	return a, err
}

func anew(why string) string {
	return "what it had learned cannot be read, and it begins anew: " + why
}

// learn gives a lesson, here.
func learn(ctx context.Context, l lesson.Lesson, w *agent.Workspace) (got lesson.Result, err error) {
	defer saved(l.Workload, &err)
	return l.Learn(ctx, w)
}

// saved makes an error of a panic: nothing else must stop because of one workload's lesson.
func saved(workload string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("learning of %s panicked: %v", workload, p)
	}
}

// finish takes in what was learned. Whatever went wrong is said.
func (m *minds) finish(ctx context.Context, a assignment, got lesson.Result, err error) {
	o := a.mind
	var policy mdp.Policy
	if err == nil {
		got.Policy.Snapshot.Version = a.generation + 1
		policy, err = central.Learned(got.Policy, o.place)
	}
	var little *lesson.TooLittleError
	file, w := got.Policy, got.Weights // each alone: who keeps the policy would keep the weights with it, which are far larger
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = time.Time{}
	if ctx.Err() != nil {
		return // it was not given
	}
	o.taught, o.trouble = m.now(), a.trouble
	if got.Anew != "" {
		o.trouble = anew(got.Anew)
	}
	switch {
	case errors.As(err, &little):
		o.trouble = fmt.Sprintf("there is too little experience yet (%v)", little)
	case err != nil:
		o.trouble = err.Error()
		klog.ErrorS(err, "A lesson failed", "workload", o.workload)
	case o.agent.Workload() != a.workload:
		// It has changed during the lesson: what was learned, and what it was found to be worth, is of the one before.
		o.weights = &w
	default:
		o.weights = &w
		taken, why := o.agent.Offer(policy, a.generation+1, lifecycle.Estimate{
			Known: true, Mean: got.Worth.Mean, Low: got.Worth.Low, High: got.Worth.High,
			Proven: a.lesson.Proven && got.Anew == a.lesson.Anew, // it is what ships, as it is
		})
		if taken {
			o.policy, o.before, o.generation = &file, o.policy, a.generation+1
		}
		o.changed = true
		klog.InfoS("A policy was learned", "workload", o.workload, "transitions", got.Transitions, "episodes", got.Episodes,
			"taken", taken, "why", why)
	}
}

// weightsOf is what the next lesson goes on from; nil: it begins anew.
func (m *minds) weightsOf(o *mind) (*weights.File, error) {
	o.mu.Lock()
	w := o.weights
	o.mu.Unlock()
	if w != nil || m.folder == "" {
		return w, nil
	}
	f, err := weights.Read(m.path(o.workload, ".weights"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		klog.ErrorS(err, "Reading an agent's weights", "workload", o.workload)
		return nil, err
	}
	return &f, nil
}

// kept is an agent in its file, beside the files of its policy and of its weights.
type kept struct {
	Workload string               `json:"workload"` // for people
	Form     encode.Form          `json:"form"`
	Place    encode.Place         `json:"place"`
	Judged   mdp.Objective        `json:"judged"` // by which its rewards are
	Agent    lifecycle.AgentState `json:"agent"`
	Peak     mdp.Peak             `json:"peak"`
}

// path is a file of a workload's. The name of a workload can be longer than that of a file.
func (m *minds) path(workload, ending string) string {
	return filepath.Join(m.folder, fmt.Sprintf("%x%s", sha256.Sum256([]byte(workload)), ending))
}

// keepAll writes the agents that have changed to their files; the last time also what did not change an agent.
func (m *minds) keepAll(last bool) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.all))
	m.mu.Unlock()
	for _, o := range all {
		m.keep(o, last)
	}
}

// keep writes an agent that has changed to its files. What cannot be written is said, and tried again. Decisions do not wait
// for it.
func (m *minds) keep(o *mind, last bool) {
	o.mu.Lock()
	changed, w, policy := o.changed || last && o.steps > 0, o.weights, o.policy
	if !changed || m.folder == "" {
		o.mu.Unlock()
		return
	}
	state := kept{o.workload, m.lessons.Form, o.place, o.objective, o.agent.State(), o.peak}
	o.changed, o.steps = false, 0
	o.mu.Unlock()
	err := m.write(state, w, policy)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.weights == w {
			o.weights = nil
		}
		return
	}
	klog.ErrorS(err, "An agent was not kept", "workload", o.workload)
	o.changed = true
	o.trouble = cmp.Or(o.trouble, fmt.Sprintf("it would not outlive central: %v", err))
}

// write writes the state last: a policy of a later generation than the state's is one that drives.
func (m *minds) write(k kept, w *weights.File, policy *learned.File) error {
	if w != nil {
		if err := weights.Write(m.path(k.Workload, ".weights"), *w); err != nil {
			return err
		}
	}
	if policy != nil {
		if err := policy.Write(m.path(k.Workload, ".policy")); err != nil {
			return err
		}
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return renameio.WriteFile(m.path(k.Workload, ".json"), text, 0o600)
}

// read goes on from the files of a workload's agent. Without them, and with those of other bounds, it begins anew, and its
// next lesson goes on from its weights in any case.
func (m *minds) read(o *mind) {
	if m.folder == "" {
		return
	}
	fail := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.trouble = fmt.Sprintf("what was known of it cannot be read: %v", err)
			klog.ErrorS(err, "Reading an agent", "workload", o.workload)
		}
	}
	text, err := os.ReadFile(m.path(o.workload, ".json"))
	if err != nil {
		fail(err)
		return
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		fail(err)
		return
	}
	if k.Peak.Last <= m.now().Unix() { // of a clock that was ahead nothing is known
		o.peak = k.Peak
	}
	if k.Place != o.place || k.Judged != o.objective || m.lessons.Form.Same(k.Form) != nil {
		return
	}
	var policy *learned.File
	if f, err := learned.Read(m.path(o.workload, ".policy")); err != nil {
		fail(err)
	} else {
		policy = &f
	}
	o.restore(k.Agent, policy)
}

// restore goes on from a state, with its policy; without one the fallback drives.
func (o *mind) restore(s lifecycle.AgentState, policy *learned.File) {
	var p mdp.Policy
	if policy != nil {
		made, err := central.Learned(*policy, o.place)
		if err != nil {
			o.trouble = err.Error()
			policy = nil
		} else {
			p = made
		}
	}
	if err := o.agent.Restore(s, p); err != nil {
		o.trouble = err.Error()
		return
	}
	o.policy, o.generation = policy, s.Generation
}
