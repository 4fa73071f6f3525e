package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"github.com/google/renameio/v2"
	"k8s.io/klog/v2"
)

// minds is the agents of the workloads that are learned, and their lessons. It learns only while this instance holds the
// learner's lease; agents decide in any case.
type minds struct {
	lessons lesson.Config
	every   time.Duration // from one lesson of a workload to the next
	share   float64       // of one core that lessons may take, in (0, 1]
	folder  string        // where agents outlive this process; empty: they do not
	now     func() time.Time
	stored  bool // there is a store to learn of

	mu  sync.Mutex
	all map[string]*mind // by workload
}

// mind is the agent of one workload. Decisions and lessons are on different goroutines.
type mind struct {
	workload string

	mu      sync.Mutex
	agent   *lifecycle.Agent
	place   encode.Place
	policy  *learned.File // that the agent has, of the generation
	before  *learned.File // that it may go back to
	now     uint64        // generation
	weights *weights.File // from which the next lesson goes on
	taught  time.Time     // when the last lesson ended
	steps   int           // that were recorded since the agent was kept
	trouble string        // of the last lesson or of keeping; empty: none
}

// central's knobs, as a learned policy moves them.
var knobs = mdp.SetOf(mdp.Replicas, mdp.CPUReservation, mdp.MemoryLimit)

// form is how a learned policy of central sees and acts. Requests and replicas take seconds to follow, so steps are small.
func form() encode.Form { return encode.Discrete(knobs) }

func newMinds(step time.Duration, now func() time.Time) *minds {
	return &minds{
		lessons: lesson.Default(form(), step), every: 10 * time.Minute, share: 0.5, now: now, all: map[string]*mind{},
	}
}

// tries is the share of steps in which something else than the policy's action is tried, where the stage allows it.
const tries = 0.1

// policy is the agent of a workload, with a fallback. What it was for other bounds or another objective is forgotten, but for
// its weights.
func (m *minds) policy(r recommender.PolicyRequest, fallback mdp.Policy) (mdp.Policy, error) {
	settings, err := settingsOf(*r.Learner)
	if err != nil {
		return nil, err
	}
	place := encode.Place{Bounds: r.Bounds, SLO: r.SLO}
	encoder, err := encode.New(m.lessons.Form, place)
	if err != nil {
		return nil, fmt.Errorf("spec.learner.algorithm: bcq: %w", err)
	}
	a, err := lifecycle.NewAgent(lifecycle.AgentConfig{
		Settings: settings, Fallback: fallback, Encoder: encoder, Try: tries, Seed: uint64(m.now().UnixNano()),
	})
	if err != nil {
		return nil, fmt.Errorf("spec.learner: %w", err)
	}
	one := &mind{workload: r.Workload, agent: a, place: place}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.all[r.Workload]; before != nil {
		before.mu.Lock()
		one.weights = before.weights
		same := before.place == place
		state, policy := before.agent.State(), before.policy
		before.mu.Unlock()
		if same {
			one.restore(state, policy)
		}
	} else {
		m.read(one)
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

// forget ends the agent of a workload that is not learned any more. Its file stays.
func (m *minds) forget(workload string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, workload)
}

func (m *minds) of(workload string) *mind {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[workload]
}

// Decide implements [mdp.Policy].
func (o *mind) Decide(s mdp.State) (mdp.Action, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.agent.Decide(s)
}

// record takes in a transition of a workload.
func (m *minds) record(workload string, t mdp.Transition) {
	o := m.of(workload)
	if o == nil {
		return
	}
	o.mu.Lock()
	o.agent.Record(t)
	changed := o.agent.Tick()
	if g := o.agent.Generation(); g != o.now { // it went back to what it had before
		o.policy, o.before, o.now = o.before, nil, g
	}
	o.steps++
	stage := o.agent.Stage()
	keep := changed || o.steps >= 100
	o.mu.Unlock()
	if changed {
		klog.InfoS("An agent's stage changed", "workload", workload, "stage", stage.Stage, "why", stage.Why)
	}
	if keep {
		m.keep(o)
	}
}

// life is where the agent of a workload is.
func (m *minds) life(workload string) (recommender.Life, bool) {
	o := m.of(workload)
	if o == nil {
		return recommender.Life{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	stage := o.agent.Stage()
	driver, wrong := o.agent.Drives()
	l := recommender.Life{
		Stage: stage.Stage.String(), Why: stage.Why, Learned: driver == lifecycle.AgentDrives,
		Generation: o.agent.Generation(), Trouble: o.trouble,
	}
	switch {
	case wrong != nil:
		l.Trouble = wrong.Error()
	case !m.stored:
		l.Trouble = "nothing is learned: central has no trajectory store (flag --trajectory-store)"
	}
	return l, true
}

// retention is what the store keeps of a workload: what a lesson reads, and some more.
var retention = trajectory.Retention{Episodes: 200, Age: 14 * 24 * time.Hour}

// prunes is a store that does not prune itself.
type prunes interface {
	Prune(ctx context.Context, now time.Time, keep trajectory.Retention) (int64, error)
}

// teach gives lessons, one after the other, until the context ends. learning says whether it is this instance that does.
func (m *minds) teach(ctx context.Context, store trajectory.Store, learning func() bool) error {
	workspace := agent.NewWorkspace()
	var pruned time.Time
	for {
		if p, ok := store.(prunes); ok && learning() && m.now().Sub(pruned) > time.Hour {
			if _, err := p.Prune(ctx, m.now(), retention); err != nil {
				klog.ErrorS(err, "Pruning the trajectory store")
			}
			pruned = m.now()
		}
		pause := 5 * time.Second
		if o := m.due(); o != nil && learning() {
			begin := m.now()
			m.lesson(ctx, o, store, workspace)
			took := m.now().Sub(begin)
			pause = time.Duration(float64(took) * (1/m.share - 1))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// due is the mind whose last lesson is the longest ago, of those that are to have one; nil: none is.
func (m *minds) due() *mind {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next *mind
	var oldest time.Time
	for _, o := range m.all {
		o.mu.Lock()
		taught, training := o.taught, o.agent.Training()
		o.mu.Unlock()
		if training == lifecycle.NoTraining || m.now().Sub(taught) < m.every {
			continue
		}
		if next == nil || taught.Before(oldest) {
			next, oldest = o, taught
		}
	}
	return next
}

// lesson gives one lesson. Whatever goes wrong in it is said, and nothing else stops.
func (m *minds) lesson(ctx context.Context, o *mind, store trajectory.Store, w *agent.Workspace) {
	o.mu.Lock()
	place, from, generation := o.place, o.weights, o.agent.Generation()
	o.mu.Unlock()
	got, err := m.learn(ctx, o.workload, place, from, store, w)
	var policy mdp.Policy
	if err == nil {
		got.Policy.Snapshot.Version = generation + 1
		policy, err = learned.New(got.Policy, place)
	}
	o.mu.Lock()
	o.taught = m.now()
	o.trouble = ""
	var little *lesson.TooLittleError
	switch {
	case ctx.Err() != nil:
		o.mu.Unlock()
		return
	case errors.As(err, &little):
		o.trouble = fmt.Sprintf("there is too little experience yet (%v)", little)
	case err != nil:
		o.trouble = err.Error()
	default:
		o.weights = &got.Weights
		taken, why := o.agent.Offer(policy, generation+1, lifecycle.Estimate{
			Known: true, Mean: got.Worth.Mean, Low: got.Worth.Low, High: got.Worth.High,
		})
		if taken {
			o.policy, o.before, o.now = &got.Policy, o.policy, generation+1
		}
		klog.InfoS("A policy was learned", "workload", o.workload, "transitions", got.Transitions, "episodes", got.Episodes,
			"taken", taken, "why", why)
	}
	trouble := o.trouble
	o.mu.Unlock()
	if trouble != "" && little == nil {
		klog.ErrorS(err, "A lesson failed", "workload", o.workload)
	}
	m.keep(o)
}

func (m *minds) learn(
	ctx context.Context, workload string, place encode.Place, from *weights.File, store trajectory.Store, w *agent.Workspace,
) (got lesson.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("learning of %s panicked: %v", workload, p)
		}
	}()
	return m.lessons.Learn(ctx, store, workload, place, from, w)
}

// kept is an agent in its file, beside the files of its policy and of its weights.
type kept struct {
	Form  encode.Form          `json:"form"`
	Place encode.Place         `json:"place"`
	Agent lifecycle.AgentState `json:"agent"`
}

func (m *minds) path(workload, ending string) string {
	return filepath.Join(m.folder, url.PathEscape(workload)+ending)
}

// keep writes an agent to its files. What cannot be written is said, and the agent goes on.
func (m *minds) keep(o *mind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steps = 0
	if m.folder == "" {
		return
	}
	err := func() error {
		if o.weights != nil {
			if err := weights.Write(m.path(o.workload, ".weights"), *o.weights); err != nil {
				return err
			}
		}
		if o.policy != nil {
			if err := o.policy.Write(m.path(o.workload, ".policy")); err != nil {
				return err
			}
		}
		text, err := json.Marshal(kept{m.lessons.Form, o.place, o.agent.State()})
		if err != nil {
			return err
		}
		return renameio.WriteFile(m.path(o.workload, ".json"), text, 0o600)
	}()
	if err != nil && o.trouble == "" {
		o.trouble = fmt.Sprintf("it would not outlive central: %v", err)
		klog.ErrorS(err, "An agent was not kept", "workload", o.workload)
	}
}

// read goes on from the files of a workload's agent. Without them, and with those of other bounds, it begins anew; its weights
// are taken in any case.
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
	if w, err := weights.Read(m.path(o.workload, ".weights")); err != nil {
		fail(err)
	} else {
		o.weights = &w
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
	if k.Place != o.place || m.lessons.Form.Same(k.Form) != nil {
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
		made, err := learned.New(*policy, o.place)
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
	o.policy, o.now = policy, s.Generation
}
