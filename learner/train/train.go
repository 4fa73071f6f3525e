package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Learner is an algorithm's agent. Rows are environments.
type Learner interface {
	// Envs is the number of environments that it learns in at once.
	Envs() int
	// Explore chooses actions for observations. Legal is [Envs][N], the choices
	// that are legal now; nil allows all.
	Explore(obs []float64, legal []bool, actions []float64) error
	// Learn takes what the actions of the last Explore led to.
	Learn(env.Rows) error
	// Snapshot is the actor as it is served. GreedyAction makes an action of its
	// output, without exploration, among the legal choices; nil allows all.
	Snapshot() kernel.Snapshot
	GreedyAction(out []float64, legal []bool, action []float64)
	// Stats are figures of how learning goes.
	Stats() agent.Stats
	// Save returns all state, and Restore brings it back.
	Save() (weights.File, error)
	Restore(weights.File) error
}

// Config is the settings of a Run.
type Config struct {
	Env      string // name of the environment; a checkpoint of another one is refused
	Steps    int    // of all environments together
	Seed     uint64
	Evaluate int // steps from one evaluation to the next; 0 evaluates nothing, and the last actor is kept
	Episodes int // of an evaluation
	// Paired lets every evaluation play the same episodes, so that two of them differ by the policy alone. What is best for
	// these episodes is then not quite as good for others.
	Paired bool
}

// Check returns nil for valid settings.
func (c Config) Check() error {
	switch {
	case c.Steps < 1:
		return fmt.Errorf("training: steps %d: it must be at least 1", c.Steps)
	case c.Evaluate < 0 || c.Evaluate > 0 && c.Episodes < 1:
		return fmt.Errorf("training: evaluations every %d steps of %d episodes: it must be at least 0 and 1",
			c.Evaluate, c.Episodes)
	}
	return nil
}

// Point is a point of a learning curve.
type Point struct {
	Step int     // steps of all environments until then
	Mean float64 // return
}

// Run is a training run.
type Run struct {
	Curve       []Point // of the mean return of the last 20 episodes with exploration, at each episode's end
	Evaluations []Point // of the evaluations
	Steps       int     // of all environments together
	Episodes    int     // that have ended

	c       Config
	factory func() (env.Env, error)
	learner Learner
	envs    *env.Vector
	actions []float64
	totals  []total   // of the episodes that are running
	recent  []float64 // returns of the last episodes
	best    *kernel.Snapshot
	score   float64
	next    int // step of the next evaluation
}

// total is what an episode has earned so far.
type total struct {
	Sum   float64 // of the known rewards
	Steps int
	Known int // steps whose reward is known
}

func (t *total) add(reward float64, known bool) {
	t.Steps++
	if known {
		t.Sum += reward
		t.Known++
	}
}

// value is the episode's return. Steps without a known reward count as much as
// the others did on average: a gap in the signals must not look like a change.
// It is false when no reward was known.
func (t total) value() (float64, bool) {
	if t.Known == t.Steps {
		return t.Sum, true
	}
	return t.Sum / float64(t.Known) * float64(t.Steps), t.Known > 0
}

// New makes a Run of an environment, at its start. The factory makes one
// environment per call: one for each of Learner.Envs, and one for each round of
// evaluation.
func New(c Config, factory func() (env.Env, error), l Learner) (*Run, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var all []env.Env
	for range l.Envs() {
		e, err := factory()
		if err != nil {
			return nil, fmt.Errorf("training: %w", err)
		}
		if e.Name() != c.Env {
			return nil, fmt.Errorf("training: environment %q: the settings say %q", e.Name(), c.Env)
		}
		all = append(all, e)
	}
	v, err := env.NewVector(c.Seed, all...)
	if err == nil {
		err = v.Reset()
	}
	if err != nil {
		return nil, fmt.Errorf("training: %w", err)
	}
	return &Run{
		c:       c,
		factory: factory,
		learner: l,
		envs:    v,
		actions: make([]float64, v.Len()*v.Action().Dim()),
		totals:  make([]total, v.Len()),
		score:   math.Inf(-1),
		next:    c.Evaluate,
	}, nil
}

// Train takes steps until the given number, at most Config.Steps, is reached or
// ctx ends.
func (r *Run) Train(ctx context.Context, until int) error {
	for until = min(until, r.c.Steps); r.Steps < until; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("training, step %d: %w", r.Steps, err)
		}
		if err := r.step(); err != nil {
			return fmt.Errorf("training, step %d: %w", r.Steps, err)
		}
	}
	return nil
}

// Stats are the learner's figures of how learning goes.
func (r *Run) Stats() agent.Stats { return r.learner.Stats() }

// Done reports whether all steps were taken.
func (r *Run) Done() bool { return r.Steps >= r.c.Steps }

func (r *Run) step() error {
	v := r.envs
	if err := r.learner.Explore(v.Observations, v.Legal, r.actions); err != nil {
		return err
	}
	if err := v.StepAll(r.actions); err != nil {
		return err
	}
	if err := r.learner.Learn(v.Rows); err != nil {
		return err
	}
	r.Steps += v.Len()
	for i, reward := range v.Rewards {
		r.totals[i].add(reward, v.RewardKnown[i])
		if v.Ended(i) {
			r.ended(r.totals[i])
			r.totals[i] = total{}
		}
	}
	if r.c.Evaluate > 0 && r.Steps >= r.next {
		r.next += r.c.Evaluate
		return r.Evaluate()
	}
	return nil
}

func (r *Run) ended(t total) {
	const last = 20
	r.Episodes++
	value, ok := t.value()
	if !ok {
		return
	}
	r.recent = append(r.recent, value)
	if len(r.recent) > last {
		r.recent = r.recent[1:]
	}
	r.Curve = append(r.Curve, Point{r.Steps, r.Recent()})
}

// Recent is the mean return of the last 20 episodes with exploration; NaN
// before the first episode has ended.
func (r *Run) Recent() float64 {
	sum := 0.0
	for _, v := range r.recent {
		sum += v
	}
	return sum / float64(len(r.recent))
}

// Evaluate plays episodes without exploration, and keeps the actor when it is
// the best so far. Train does so by itself after every Config.Evaluate steps.
func (r *Run) Evaluate() error {
	now := r.learner.Snapshot()
	round := uint64(len(r.Evaluations)) + 1
	if r.c.Paired {
		round = 1
	}
	returns, err := r.play(now, round, r.c.Episodes)
	if err != nil {
		return err
	}
	if len(returns) == 0 {
		return nil // no reward was known: this actor cannot be compared with others
	}
	mean := 0.0
	for _, v := range returns {
		mean += v / float64(len(returns))
	}
	r.Evaluations = append(r.Evaluations, Point{r.Steps, mean})
	if mean >= r.score {
		r.score, r.best = mean, clone(now)
	}
	return nil
}

func clone(s kernel.Snapshot) *kernel.Snapshot {
	s.Theta = append([]float64(nil), s.Theta...)
	s.Mean = append([]float64(nil), s.Mean...)
	s.Scale = append([]float64(nil), s.Scale...)
	return &s
}

// play is the returns of episodes of an actor. Every round has seeds of its own.
// Episodes in which no reward was known are left out.
func (r *Run) play(s kernel.Snapshot, round uint64, episodes int) ([]float64, error) {
	e, err := r.factory()
	if err != nil {
		return nil, fmt.Errorf("evaluating: %w", err)
	}
	var server kernel.Server
	if err := server.Publish(s); err != nil {
		return nil, fmt.Errorf("evaluating: %w", err)
	}
	seeds := rand.New(rand.NewPCG(r.c.Seed^0xe7a1, round))
	returns := make([]float64, 0, episodes)
	for range episodes {
		t, err := r.episode(e, &server, seeds.Uint64())
		if err != nil {
			return nil, fmt.Errorf("evaluating: %w", err)
		}
		if value, ok := t.value(); ok {
			returns = append(returns, value)
		}
	}
	return returns, nil
}

// episode plays one episode with an actor.
func (r *Run) episode(e env.Env, actor *kernel.Server, seed uint64) (total, error) {
	var scratch kernel.Scratch
	var legal []bool
	masker, masked := e.(env.Masker)
	if masked {
		legal = make([]bool, e.Action().N)
	}
	obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
	var t total
	if err := e.Reset(seed, obs); err != nil {
		return t, err
	}
	for {
		if masked {
			masker.Legal(legal)
		}
		out, _, ok := actor.Decide(obs, 1, &scratch)
		if !ok {
			return t, errors.New("the actor decides nothing")
		}
		r.learner.GreedyAction(out, legal, action)
		step, err := e.Step(action, obs)
		if err != nil {
			return t, err
		}
		t.add(step.Reward, step.RewardKnown)
		if step.Ended() {
			return t, nil
		}
	}
}

// Best is the actor that the run stands for: the best one of all evaluations,
// or the last one where there were none.
func (r *Run) Best() kernel.Snapshot {
	if r.best != nil {
		return *r.best
	}
	return r.learner.Snapshot()
}

// Final plays new episodes with the best actor and returns their returns.
func (r *Run) Final(episodes int) ([]float64, error) { return r.play(r.Best(), 0, episodes) }

// state is the part of a checkpoint that belongs to the run itself.
type state struct {
	Config      Config
	Steps       int
	Episodes    int
	Next        int
	Curve       []Point
	Evaluations []Point
	Totals      []total
	Recent      []float64
	Score       *float64 // nil: there is no best actor yet
	Version     uint64
}

// Save returns a checkpoint: all state, that of the learner included.
func (r *Run) Save() (weights.File, error) {
	f, err := r.learner.Save()
	if err != nil {
		return f, err
	}
	s := state{
		Config:      r.c,
		Steps:       r.Steps,
		Episodes:    r.Episodes,
		Next:        r.next,
		Curve:       r.Curve,
		Evaluations: r.Evaluations,
		Totals:      r.totals,
		Recent:      r.recent,
	}
	if r.best != nil {
		s.Score, s.Version = &r.score, r.best.Version
		for name, data := range map[string][]float64{
			"theta": r.best.Theta,
			"mean":  r.best.Mean,
			"scale": r.best.Scale,
		} {
			f.Tensors["train.best."+name] = weights.Tensor{Shape: []int{len(data)}, Data: data}
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return f, fmt.Errorf("saving a training: %w", err)
	}
	f.Meta["train"] = string(text)
	if f.Blobs["train.envs"], err = r.envs.MarshalBinary(); err != nil {
		return f, fmt.Errorf("saving a training: %w", err)
	}
	return f, nil
}

// Restore continues from a checkpoint of a run with the same environment, seed
// and evaluations. The number of steps may differ.
func (r *Run) Restore(f weights.File) error {
	var s state
	if err := json.Unmarshal([]byte(f.Meta["train"]), &s); err != nil {
		return fmt.Errorf("resuming a training: %w", err)
	}
	was := s.Config
	was.Steps = r.c.Steps
	if was != r.c {
		return fmt.Errorf("resuming a training of %+v: it must be of %+v", s.Config, r.c)
	}
	if len(s.Totals) != len(r.totals) {
		return fmt.Errorf("resuming a training in %d environments: it must be %d", len(s.Totals), len(r.totals))
	}
	var best *kernel.Snapshot
	if s.Score != nil {
		b := r.learner.Snapshot()
		b.Version = s.Version
		for name, to := range map[string]*[]float64{"theta": &b.Theta, "mean": &b.Mean, "scale": &b.Scale} {
			data, err := f.Take("train.best."+name, len(*to))
			if err != nil {
				return fmt.Errorf("resuming a training: %w", err)
			}
			*to = data
		}
		best = clone(b)
	}
	blob, err := f.Blob("train.envs")
	if err != nil {
		return fmt.Errorf("resuming a training: %w", err)
	}
	before, err := r.envs.MarshalBinary()
	if err != nil {
		return fmt.Errorf("resuming a training: %w", err)
	}
	if err := r.envs.UnmarshalBinary(blob); err != nil {
		return fmt.Errorf("resuming a training: %w", err)
	}
	if err := r.learner.Restore(f); err != nil {
		return fmt.Errorf("resuming a training: %w", errors.Join(err, r.envs.UnmarshalBinary(before)))
	}
	r.Steps, r.Episodes = s.Steps, s.Episodes
	r.Curve, r.Evaluations = s.Curve, s.Evaluations
	r.totals, r.recent = s.Totals, s.Recent
	r.next = s.Next
	if best != nil {
		r.best, r.score = best, *s.Score
	}
	return nil
}
