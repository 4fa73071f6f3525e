// Package lesson makes a policy of what a trajectory store has of a workload: offline, by discrete BCQ (AWARE §3.4), with an
// estimate of what it is worth by fitted Q evaluation.
//
// A [Lesson] needs no experience in memory between two of them: it reads the newest transitions, learns, and forgets them. So
// a central can learn of a thousand workloads in turns. What stays is the weights, from which the next lesson goes on. A lesson
// and its result can be sent, so that another process learns.
package lesson

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/fqe"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
)

// Config is the settings of lessons.
type Config struct {
	Form    encode.Form // of choices
	Step    time.Duration
	Gamma   float64 // discount of a step's future, in (0, 1)
	Most    int     // transitions that are read, the newest ones
	Least   int     // below which nothing is learned
	Updates int     // of a lesson
	Hidden  []int
	// Threshold is discrete BCQ's: how likely a choice must be in the data, beside the likeliest one.
	Threshold float64
	// Margin is that of the policy that is made (learned.Policy.KeepTo): it is judged as one that does what was done, which is what
	// the fallback does, unless its own choice is worth that much more.
	Margin float64
	Judge  fqe.Config // of the form's sizes
	Seed   uint64
	// Start is what the first lesson of a workload begins with; nil: it begins with nothing. It is read by [Config.Prepare] alone.
	Start *Start `json:"-"`
}

// Gamma is the usual discount of a step's future: what a decision of central leads to is seen within some steps.
const Gamma = 0.9

// Base is the settings of what learns by the choices of a form.
//
// Its batches are larger and its steps smaller than in the authors' code. With those, what was learned of one and the same store
// was a good policy for three seeds of six, and one that breaks the SLO all the time for two.
func Base(form encode.Form) discrete.Config {
	b := discrete.Default(form.Dim(), form.NumActions())
	b.Batch, b.LearningRate = 200, 3e-4
	return b
}

// Default is settings for central: a decision every step, of which the consequences are seen within some.
func Default(form encode.Form, step time.Duration) Config {
	b := Base(form)
	return Config{
		Form: form, Step: step, Gamma: Gamma, Most: 10_000, Least: 500, Updates: 1000, Hidden: b.Hidden, Threshold: b.Threshold,
		Judge: fqe.Default(form.Dim(), 0, form.NumActions()),
	}
}

// judged is how many transitions of a workload it takes to judge a proven [Start] there: two episodes.
const judged = 200

// Check is nil for settings that make sense.
func (c Config) Check() error {
	if err := c.Form.Check(); err != nil {
		return err
	}
	switch {
	case c.Form.NumActions() == 0:
		return fmt.Errorf("lesson: the form %+v: its actions must be choices", c.Form)
	case c.Step <= 0:
		return fmt.Errorf("lesson: step %v: it must be above zero", c.Step)
	case !(c.Gamma > 0 && c.Gamma < 1):
		return fmt.Errorf("lesson: gamma %v: it must be in (0, 1)", c.Gamma)
	case !(c.Margin >= 0) || math.IsInf(c.Margin, 0):
		return fmt.Errorf("lesson: margin %v: it must be finite and at least 0", c.Margin)
	case c.Least < 1 || c.Most < c.Least || c.Updates < 1:
		return fmt.Errorf("lesson: least %d, most %d, updates %d: they must be at least 1, and most not below least",
			c.Least, c.Most, c.Updates)
	}
	if c.Start != nil {
		if err := c.Form.Same(c.Start.Form); err != nil {
			return fmt.Errorf("a start of lessons: %w", err)
		}
	}
	return c.Judge.Check()
}

// Begins is the settings of lessons that begin with a start. What it has learned of many workloads holds where this one's data
// has nothing, so that rare choices are allowed: guards let the fallback's wish for a smaller size take force once in some
// steps, and in the others nothing takes force; with the authors' threshold of 0.3 what is learned keeps what there is, and
// shrinks nothing.
func (c Config) Begins(s *Start) Config {
	c.Start, c.Threshold = s, s.Base.Threshold
	return c
}

// Result is what was learned.
type Result struct {
	Policy      learned.File
	Worth       fqe.Estimate // of a step
	Weights     weights.File // from which the next lesson goes on
	Transitions int          // that were learned from
	Episodes    int          // that they are of
	Anew        string       // why it did not go on from the weights that it was given; empty: it did, or there were none
}

// TooLittleError says that there is not enough experience yet.
type TooLittleError struct{ Have, Need int }

func (e *TooLittleError) Error() string {
	return fmt.Sprintf("%d transitions with a known reward: %d are needed", e.Have, e.Need)
}

// Lesson is all that it takes to learn. It needs neither a store nor the workload's bounds, so a process without these can give
// it.
type Lesson struct {
	Config   Config
	Workload string
	Episodes [][]replay.Transition // oldest first
	From     *weights.File         // of an earlier lesson; nil: it begins anew
	First    bool                  // From is what a [Start] gives: it is judged as it is, and nothing is learned yet
	Proven   bool                  // so is the [Start]: other workloads have proven what is judged
	Anew     string                // why it does not go on from what an earlier lesson gave; empty: it does, or there was none
}

// Learn prepares a lesson, and gives it.
func (c Config) Learn(
	ctx context.Context, store trajectory.Store, workload string, since time.Time, place encode.Place, from *weights.File,
	w *agent.Workspace,
) (Result, error) {
	l, err := c.Prepare(ctx, store, workload, since, place, from)
	if err != nil {
		return Result{}, err
	}
	return l.Learn(ctx, w)
}

// Prepare reads what the store has of a workload since a time; what is older is of a workload that is another one now. From, of
// an earlier lesson, may be nil. Too little experience is a [*TooLittleError].
func (c Config) Prepare(
	ctx context.Context, store trajectory.Store, workload string, since time.Time, place encode.Place, from *weights.File,
) (Lesson, error) {
	fail := func(err error) (Lesson, error) { return Lesson{}, fmt.Errorf("learning of %s: %w", workload, err) }
	if err := c.Check(); err != nil {
		return Lesson{}, err
	}
	encoder, err := encode.New(c.Form, place)
	if err != nil {
		return fail(err)
	}
	if err := store.Flush(ctx); err != nil {
		return fail(err)
	}
	l := Lesson{Config: c, Workload: workload, From: from}
	if l.Episodes, err = c.read(ctx, store, workload, since, encoder); err != nil {
		return fail(err)
	}
	if from != nil && c.Start != nil {
		if err := c.fits(*from); err != nil {
			l.Anew, from = err.Error(), nil
		}
	}
	if from == nil && c.Start != nil {
		begin, err := c.Start.For(l.Episodes)
		if err != nil {
			return fail(err)
		}
		l.From, l.First, l.Proven = &begin, true, c.Start.holds(place)
	}
	least := c.Least
	if l.Proven {
		least = min(least, judged)
	}
	if n := l.transitions(); n < least {
		return fail(&TooLittleError{n, least})
	}
	return l, nil
}

// formOf names what a lesson's weights read and choose.
const formOf = "form"

// fits is nil for weights that a lesson can go on from. Those of another version of this program do not fit.
func (c Config) fits(from weights.File) error {
	var form encode.Form
	if err := json.Unmarshal([]byte(from.Meta[formOf]), &form); err != nil {
		return fmt.Errorf("weights of an unknown encoding: %w", err)
	}
	if err := c.Form.Same(form); err != nil {
		return fmt.Errorf("weights of another encoding: %w", err)
	}
	b := Base(c.Form)
	b.Hidden = c.Hidden
	a, err := blank(b)
	if err == nil {
		err = a.Restore(from)
	}
	return err
}

// transitions is how many the lesson has.
func (l Lesson) transitions() (n int) {
	for _, e := range l.Episodes {
		n += len(e)
	}
	return n
}

// Learn makes a policy. Weights that do not fit, such as those of another version of this program, are not gone on from.
func (l Lesson) Learn(ctx context.Context, w *agent.Workspace) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, fmt.Errorf("learning of %s: %w", l.Workload, err) }
	c := l.Config
	if err := c.Check(); err != nil {
		return Result{}, err
	}
	out := Result{Transitions: l.transitions(), Episodes: len(l.Episodes)}
	buffer, err := replay.NewUniform(replay.Config{
		Capacity: out.Transitions, State: c.Form.Dim(), Action: 1, NumActions: c.Form.NumActions(), Seed: c.Seed,
	})
	if err != nil {
		return fail(err)
	}
	for _, e := range l.Episodes {
		for _, t := range e {
			if err := buffer.Add(t); err != nil {
				return fail(err)
			}
		}
	}
	b := Base(c.Form)
	b.Hidden, b.Threshold, b.Seed = c.Hidden, c.Threshold, c.Seed
	a, err := discrete.NewWith(b, buffer, w)
	if err != nil {
		return fail(err)
	}
	out.Anew = l.Anew
	goes := l.From != nil // on from there
	if goes {
		if err := a.Restore(*l.From); err != nil {
			out.Anew, goes = err.Error(), false
		}
	}
	updates := c.Updates
	if l.First && goes {
		updates = 0 // of so little experience it would learn what is worse than what many workloads have taught
	}
	// In pieces, so that an end is not waited for.
	for done := 0; done < updates; done += 100 {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		if err := a.Learn(min(100, updates-done)); err != nil {
			return fail(err)
		}
	}
	if a.LastError != nil {
		return fail(a.LastError)
	}
	if out.Worth, err = c.judge(a, l.Episodes, w); err != nil {
		return fail(err)
	}
	out.Policy = learned.File{
		Form: c.Form, Snapshot: a.Snapshot(), Step: c.Step,
		Provenance: map[string]string{
			"algorithm": discrete.Algorithm, "workload": l.Workload,
			"transitions": strconv.Itoa(out.Transitions), "episodes": strconv.Itoa(out.Episodes), "updates": strconv.Itoa(updates),
			"worth": fmt.Sprintf("%.4g (%.4g to %.4g) a step", out.Worth.Mean, out.Worth.Low, out.Worth.High),
		},
	}
	if out.Weights, err = a.SavePolicy(); err != nil {
		return fail(err)
	}
	form, err := json.Marshal(c.Form)
	if err != nil {
		return fail(err)
	}
	out.Weights.Meta[formOf] = string(form)
	return out, out.Policy.Check()
}

// judge estimates what the learned policy is worth.
func (c Config) judge(a *discrete.Agent, episodes [][]replay.Transition, w *agent.Workspace) (fqe.Estimate, error) {
	judge := c.Judge
	judge.Seed, judge.Gamma = c.Seed, c.Gamma
	return fqe.Evaluate(judge, episodes, func(obs []float64, legal []bool, taken, action []float64) error {
		if err := a.Act(obs, legal, action); err != nil || taken == nil || c.Margin == 0 {
			return err
		}
		if a.Gain(obs, int(action[0]), int(taken[0])) < c.Margin {
			action[0] = taken[0]
		}
		return nil
	}, w)
}

// read is the newest transitions since a time in episodes, oldest first, as a learner reads them. A transition without a known
// reward is left out, and cuts its episode.
func (c Config) read(
	ctx context.Context, store trajectory.Store, workload string, since time.Time, encoder *encode.Encoder,
) (episodes [][]replay.Transition, err error) {
	var newest []mdp.Transition
	for t, err := range store.Transitions(ctx, workload, c.Most) {
		if err != nil {
			return nil, err
		}
		if t.State.At.Before(since) {
			break
		}
		newest = append(newest, t)
	}
	var running []replay.Transition
	var until time.Time // when the state was sensed that the running episode has come to
	end := func() {
		if len(running) > 0 {
			episodes = append(episodes, running)
		}
		running = nil
	}
	for i := len(newest) - 1; i >= 0; i-- {
		t := newest[i]
		if !t.State.At.Equal(until) {
			end()
		}
		until = t.Next.At
		if !t.RewardKnown || t.Terminated {
			end()
			continue
		}
		one, err := c.row(t, encoder)
		if err != nil {
			return nil, err
		}
		running = append(running, one)
		if t.Truncated {
			end()
		}
	}
	end()
	return episodes, nil
}

// longest is for how many steps a transition counts, at most.
const longest = 100

// row is a transition as a learner reads it. Its choice is the nearest one to what took force. A decision counts for as long as
// it stood, where the next one came before its time: gamma is of a time (Sutton, Precup and Singh 1999, "Between MDPs and
// semi-MDPs").
func (c Config) row(t mdp.Transition, encoder *encode.Encoder) (replay.Transition, error) {
	steps := 1.0
	if took := t.Next.At.Sub(t.State.At); took > 0 { // no clock has gone back
		steps = min(longest, took.Seconds()/c.Step.Seconds())
	}
	discount := math.Pow(c.Gamma, steps)
	one := replay.Transition{
		State: make([]float64, c.Form.Dim()), Next: make([]float64, c.Form.Dim()), NextLegal: make([]bool, c.Form.NumActions()),
		Reward: float64(t.Reward) * (1 - discount) / (1 - c.Gamma), Discount: discount, Truncated: t.Truncated,
	}
	if err := encoder.Observe(t.State, one.State); err != nil {
		return one, err
	}
	if err := encoder.Observe(t.Next, one.Next); err != nil {
		return one, err
	}
	one.Action = []float64{float64(encoder.Nearest(t.State, t.Action))}
	encoder.Legal(t.Next, one.NextLegal)
	return one, nil
}
