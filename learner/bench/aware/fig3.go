package aware

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/sim/workload"
)

// Fig3 is the settings of the experiment on what learning costs (§2.3, fig. 3 and table 3): a policy that has converged in a
// workload meets another application, and each of the seven updates; and an agent that knows nothing begins.
type Fig3 struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"` // of the training and of each retraining
	Life        Life        `json:"life"`
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"`  // workloads in each repetition
	Early       int         `json:"early"` // episodes of the begin of training
	Seed        uint64      `json:"seed"`
}

// Retrained is how policies are retrained in fig. 3 and with embeddings.
var Retrained = Convergence{Every: 5, Episodes: 10, Within: 0.02, Steady: 20, Most: 100}

// Segments is how many parts table 3 has.
const Segments = 4

// Check is nil for settings that make sense.
func (f Fig3) Check() error {
	if f.Early < Segments {
		return fmt.Errorf("fig3: early %d: it must be at least %d", f.Early, Segments)
	}
	return checkDrives("fig3", f.Seed, f.Repetitions, f.Apps, f.Early)
}

// Runs is how many runs a workload has: another application, each update, and the begin.
func (f Fig3) Runs() int { return len(workload.Updates()) + 2 }

// Cost is what learning costs in one workload.
type Cost struct {
	Repetition  int          `json:"repetition"`
	Workload    string       `json:"workload"`
	Retrainings []Retraining `json:"retrainings"`
	Early       []Drive      `json:"early"` // of NoBootstrap and Rule, in the same episodes
}

// Retraining is a policy that has converged in one workload and is trained on in another one, with its weights (FIRM's transfer
// learning).
type Retraining struct {
	What   string `json:"what"` // an update, or Another
	Course Course `json:"course"`
}

// Drop is the share of what the retrained policy earns that was missing before any retraining. ok is false where the retrained
// policy earns nothing.
func (r Retraining) Drop() (share float64, ok bool) {
	most := best(r.Course.Evaluations)
	if len(r.Course.Evaluations) == 0 || r.Course.Evaluations[0].Episode != 0 || !(most > 0) {
		return 0, false
	}
	return (most - r.Course.Evaluations[0].Reward) / most, true
}

// Episodes is those of the retraining until it had converged, or all of them.
func (r Retraining) Episodes() int {
	if r.Course.Converged >= 0 {
		return r.Course.Converged
	}
	return len(r.Course.Training)
}

// Repetition measures some workloads. done is called after each run; it may be nil.
func (f Fig3) Repetition(ctx context.Context, number int, done func(what string)) ([]Cost, error) {
	if done == nil {
		done = func(string) {}
	}
	_, unseen := workload.Split(f.Seed)
	order := rand.New(rand.NewPCG(f.Seed, uint64(number))).Perm(len(unseen))
	all := make([]Cost, f.Apps)
	err := bench.InParallel(ctx, f.Apps, func(ctx context.Context, k int) (err error) {
		other := unseen[order[(k+f.Apps)%len(order)]]
		all[k], err = f.cost(ctx, unseen[order[k]], other, number, runSeed(f.Seed, number, k), done)
		return err
	})
	return all, err
}

// changes is a workload, and what it can become: another application, and what each update alone makes of it.
func changes(index, other int, seed uint64) (before Workload, all []Phase, err error) {
	before, _, err = Updatable(index, seed)
	if err != nil {
		return before, nil, err
	}
	another, _, err := Updatable(other, seed+1)
	if err != nil {
		return before, nil, err
	}
	all = append(all, Phase{Another, another})
	for _, u := range workload.Updates() {
		updated, err := before.after(u, seed)
		if err != nil {
			return before, nil, err
		}
		all = append(all, Phase{u.Name, updated})
	}
	return before, all, nil
}

func (f Fig3) cost(ctx context.Context, index, other, number int, seed uint64, done func(string)) (Cost, error) {
	before, changes, err := changes(index, other, seed)
	one := Cost{Repetition: number, Workload: before.Name()}
	fail := func(err error) (Cost, error) { return one, fmt.Errorf("%s: %w", before.Name(), err) }
	if err != nil {
		return fail(err)
	}
	d, fallback, policy, err := f.Setting.mastered(ctx, before, f.Convergence, f.Life, seed)
	if err != nil {
		return fail(err)
	}
	for _, c := range changes {
		course, err := f.Setting.retrain(ctx, f.Convergence, c.Workload, policy, seed)
		if err != nil {
			return fail(fmt.Errorf("after %s: %w", c.Update, err))
		}
		r := Retraining{What: c.Update, Course: course}
		one.Retrainings = append(one.Retrainings, r)
		drop, _ := r.Drop()
		done(fmt.Sprintf("%s, %s: %.0f %% less reward, converged after %d episodes",
			before.Name(), c.Update, 100*drop, course.Converged))
	}
	a, err := newAgent(d, nil, seed)
	if err != nil {
		return fail(err)
	}
	seeds := episodeSeeds(seed, scoredSeeds, f.Early)
	for _, arm := range []struct {
		Arm
		by driver
	}{{NoBootstrap, newActor(a, true, len(d.executed))}, {Rule, fallback.again()}} {
		episodes, err := d.play(ctx, arm.by, seeds)
		if err != nil {
			return fail(err)
		}
		one.Early = append(one.Early, Drive{
			Repetition: number, Workload: before.Name(), Arm: arm.Arm, Episodes: episodes, Seconds: arm.by.cost(),
		})
	}
	done(before.Name() + ": the begin of training")
	return one, nil
}

// retrain trains a policy on in a workload, and evaluates it on the way, always in the same episodes. The target is its own best
// evaluation.
func (s Setting) retrain(ctx context.Context, c Convergence, w Workload, from *weights.File, seed uint64) (Course, error) {
	out := Course{Converged: -1}
	d, err := s.driven(w)
	if err != nil {
		return out, err
	}
	settings := d.settings(seed)
	settings.Warmup = 0 // it has learned already, and tries nothing at random
	a, err := ddpg.New(settings)
	if err == nil {
		err = a.Restore(*from)
	}
	if err != nil {
		return out, err
	}
	width := len(d.executed)
	learning, judged := newActor(a, true, width), newActor(a, false, width)
	same := episodeSeeds(seed, tuningSeeds, c.Episodes)
	for i, one := range append([]uint64{0}, episodeSeeds(seed, trainingSeeds, c.Most)...) {
		if i > 0 {
			e, err := d.episode(ctx, learning, one)
			if err != nil {
				return out, err
			}
			out.Training = append(out.Training, e.Figures)
		}
		if i%c.Every != 0 {
			continue
		}
		all, err := d.play(ctx, judged, same)
		if err != nil {
			return out, err
		}
		if f := total(all); f.Known > 0 {
			out.Evaluations = append(out.Evaluations, Point{i, f.Mean()})
		}
	}
	out.Converged = c.Converged(out.Evaluations, best(out.Evaluations))
	return out, nil
}

// Column is a column of fig. 3, over all workloads, with 95 % intervals over the repetitions' means.
type Column struct {
	What      string    `json:"what"`
	Runs      int       `json:"runs"`
	Said      int       `json:"said"` // runs of which the drop can be said
	Drop      *Interval `json:"drop,omitempty"`
	Converged int       `json:"converged"` // runs that did, within the most episodes
	Episodes  Interval  `json:"episodes"`  // until then; a run that did not counts with all of its episodes
}

// Segment is a column of table 3: an agent that begins, beside the rule in the same episodes, with 95 % intervals over the
// repetitions. What cannot be said, such as a ratio to no violations, is nil.
type Segment struct {
	From       int       `json:"from"` // episode; the first one is 1
	To         int       `json:"to"`
	CPU        *Interval `json:"cpu,omitempty"`        // utilisation above the rule's, as a share of it
	Memory     *Interval `json:"memory,omitempty"`     // the same
	Violations *Interval `json:"violations,omitempty"` // times as many as the rule has
}

// Columns are the columns of fig. 3: another application first, then the updates.
func Columns(all []Cost) []Column {
	var names []string
	by := map[string]map[int][]Retraining{}
	for _, one := range all {
		for _, r := range one.Retrainings {
			if by[r.What] == nil {
				by[r.What] = map[int][]Retraining{}
				names = append(names, r.What)
			}
			by[r.What][one.Repetition] = append(by[r.What][one.Repetition], r)
		}
	}
	var columns []Column
	for _, name := range names {
		c := Column{What: name}
		drops := map[int][]float64{}
		for repetition, runs := range by[name] {
			for _, r := range runs {
				c.Runs++
				if r.Course.Converged >= 0 {
					c.Converged++
				}
				if drop, ok := r.Drop(); ok {
					c.Said++
					drops[repetition] = append(drops[repetition], drop)
				}
			}
		}
		if c.Said > 0 {
			drop := overRepetitions(drops, func(v float64) float64 { return v })
			c.Drop = &drop
		}
		c.Episodes = overRepetitions(by[name], func(r Retraining) float64 { return float64(r.Episodes()) })
		columns = append(columns, c)
	}
	return columns
}

// Table3 is the segments of table 3.
func (f Fig3) Table3(all []Cost) []Segment {
	var drives []Drive
	for _, one := range all {
		drives = append(drives, one.Early...)
	}
	var out []Segment
	for k := range Segments {
		s := Segment{From: k*f.Early/Segments + 1, To: (k + 1) * f.Early / Segments}
		some := between(drives, s.From-1, s.To)
		s.CPU = compared(some, NoBootstrap, Rule, gain(func(f Figures) float64 { return f.CPU }))
		s.Memory = compared(some, NoBootstrap, Rule, gain(func(f Figures) float64 { return f.Memory }))
		s.Violations = compared(some, Rule, NoBootstrap, fewer)
		out = append(out, s)
	}
	return out
}

// best is the highest reward of some evaluations.
func best(evaluations []Point) float64 {
	most := math.Inf(-1)
	for _, p := range evaluations {
		most = max(most, p.Reward)
	}
	return most
}
