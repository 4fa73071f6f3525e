package aware

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/sim/workload"
)

// Fig8 is the settings of the experiment on adaptation (§5.2).
type Fig8 struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"`
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"` // unseen ones in each repetition
	Seed        uint64      `json:"seed"`
}

// Check is nil for settings that make sense.
func (f Fig8) Check() error {
	_, unseen := workload.Split(f.Seed)
	switch {
	case f.Repetitions < 1:
		return fmt.Errorf("fig8: repetitions %d: it must be at least 1", f.Repetitions)
	case f.Apps < 1 || f.Apps > len(unseen):
		return fmt.Errorf("fig8: apps %d: it must be in [1, %d]", f.Apps, len(unseen))
	}
	return nil
}

// Adaptation is one arm in one workload that it has not seen.
type Adaptation struct {
	Repetition int     `json:"repetition"`
	Source     string  `json:"source"` // of TL and TL+
	Workload   string  `json:"workload"`
	Arm        Arm     `json:"arm"`
	Target     float64 `json:"target"` // what the converged policy earns a step
	Course     Course  `json:"course"`

	// Until it has converged, or to the end.
	Episodes   int     `json:"episodes"` // of training
	CPU        float64 `json:"cpu"`      // utilisation, mean
	Memory     float64 `json:"memory"`
	Violations float64 `json:"violations"` // share of the steps
}

// arms in the order in which they are run. The first one is the reference: its best policy is the converged one.
var arms = []Arm{Scratch, TL, TLPlus, AWARE}

// Repetition runs one repetition: a source of transfer, and workloads that are adapted to. done is called after each run; it
// may be nil.
func (f Fig8) Repetition(ctx context.Context, number int, p pretrain.Pretrained, done func(what string)) ([]Adaptation, error) {
	if done == nil {
		done = func(string) {}
	}
	seen, unseen := workload.Split(f.Seed)
	r := rand.New(rand.NewPCG(f.Seed, uint64(number)))
	source, err := Of(seen[r.IntN(len(seen))])
	if err != nil {
		return nil, err
	}
	targets := r.Perm(len(unseen))[:f.Apps]
	from := map[Arm]Source{AWARE: {Pretrained: &p}}
	first := []Arm{TL, TLPlus}
	sources := make([]Source, len(first))
	if err := bench.InParallel(ctx, len(first), func(ctx context.Context, k int) error {
		b, err := f.Setting.Begin(first[k], source, Source{}, uint64(number))
		if err != nil {
			return err
		}
		if _, err = f.Convergence.Adapt(ctx, b, f.Setting, uint64(number), math.Inf(1), false); err != nil {
			return err
		}
		w, err := b.Agent.SavePolicy()
		sources[k].Weights = &w
		done(fmt.Sprintf("source %s for %s", source.Name(), first[k]))
		return err
	}); err != nil {
		return nil, err
	}
	from[TL], from[TLPlus] = sources[0], sources[1]
	all := make([][]Adaptation, f.Apps)
	err = bench.InParallel(ctx, f.Apps, func(ctx context.Context, k int) error {
		w, err := Of(unseen[targets[k]])
		if err != nil {
			return err
		}
		seed := f.Seed<<20 + uint64(number)<<10 + uint64(k)
		target := math.Inf(1)
		for _, arm := range arms {
			b, err := f.Setting.Begin(arm, w, from[arm], seed)
			if err != nil {
				return err
			}
			course, err := f.Convergence.Adapt(ctx, b, f.Setting, seed, target, arm != Scratch)
			if err != nil {
				return fmt.Errorf("arm %s: %w", arm, err)
			}
			if arm == Scratch {
				target = best(course.Evaluations)
				course.Converged = f.Convergence.Converged(course.Evaluations, target)
			}
			one := Adaptation{
				Repetition: number, Source: source.Name(), Workload: w.Name(), Arm: arm, Target: target, Course: course,
			}
			one.until(course.Converged)
			all[k] = append(all[k], one)
			done(fmt.Sprintf("%s %s: converged after %d episodes", w.Name(), arm, course.Converged))
		}
		return nil
	})
	return slices.Concat(all...), err
}

func best(evaluations []Point) float64 {
	most := math.Inf(-1)
	for _, p := range evaluations {
		most = max(most, p.Reward)
	}
	return most
}

// until fills in the figures of the training up to an episode; -1 is all of it.
func (a *Adaptation) until(converged int) {
	a.Episodes = len(a.Course.Training)
	if converged >= 0 {
		a.Episodes = converged
	}
	var sum Figures
	// Of a policy that had converged before any training there is nothing to sum up: its first episode stands for it.
	for _, e := range a.Course.Training[:min(len(a.Course.Training), max(1, a.Episodes))] {
		sum.Steps += e.Steps
		sum.CPU += e.CPU
		sum.Memory += e.Memory
		sum.Violations += e.Violations
	}
	n := float64(max(1, sum.Steps))
	a.CPU, a.Memory, a.Violations = sum.CPU/n, sum.Memory/n, float64(sum.Violations)/n
}

// Summary is an arm over all workloads and repetitions, with 95 % intervals over the repetitions' means.
type Summary struct {
	Arm        Arm      `json:"arm"`
	Runs       int      `json:"runs"`
	Converged  int      `json:"converged"` // runs that did, within the most episodes
	Episodes   Interval `json:"episodes"`  // until then; a run that did not counts with all of its episodes
	CPU        Interval `json:"cpu"`       // utilisation on the way
	Memory     Interval `json:"memory"`
	Violations Interval `json:"violations"` // share of the steps on the way
	First      Interval `json:"first"`      // reward before any training, as a share of the target
}

// Summarise is the arms' summaries.
func Summarise(all []Adaptation) []Summary {
	var out []Summary
	for _, arm := range arms {
		s := Summary{Arm: arm}
		by := map[int][]Adaptation{}
		for _, a := range all {
			if a.Arm != arm {
				continue
			}
			by[a.Repetition] = append(by[a.Repetition], a)
			s.Runs++
			if a.Course.Converged >= 0 {
				s.Converged++
			}
		}
		if s.Runs == 0 {
			continue
		}
		over := func(of func(Adaptation) float64) Interval {
			return overRepetitions(by, of)
		}
		s.Episodes = over(func(a Adaptation) float64 { return float64(a.Episodes) })
		s.CPU = over(func(a Adaptation) float64 { return a.CPU })
		s.Memory = over(func(a Adaptation) float64 { return a.Memory })
		s.Violations = over(func(a Adaptation) float64 { return a.Violations })
		s.First = over(func(a Adaptation) float64 { return a.Course.Evaluations[0].Reward / a.Target })
		out = append(out, s)
	}
	return out
}
