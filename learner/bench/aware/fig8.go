package aware

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/sim/workload"
)

// Fig8 is the settings of the experiment on adaptation (§5.2).
type Fig8 struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"`
	Trained     Convergence `json:"trained"` // of the converged policies, which all arms are compared with
	Life        Life        `json:"life"`    // the same
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"` // unseen ones in each repetition
	Arms        []Arm       `json:"arms"` // that are run, of [Arms]
	// Trajectories is how many episodes AWARE's embedding is made of, at most (M); 0: as many as it was pretrained with.
	Trajectories int          `json:"trajectories,omitempty"`
	Fine         map[Arm]Fine `json:"fine"` // of arms that begin with what was learned elsewhere
	Seed         uint64       `json:"seed"`
}

// Check is nil for settings that make sense.
func (f Fig8) Check() error {
	_, unseen := workload.Split(f.Seed)
	switch {
	case f.Repetitions < 1:
		return fmt.Errorf("fig8: repetitions %d: it must be at least 1", f.Repetitions)
	case f.Apps < 1 || f.Apps > len(unseen):
		return fmt.Errorf("fig8: apps %d: it must be in [1, %d]", f.Apps, len(unseen))
	case len(f.Arms) == 0:
		return fmt.Errorf("fig8: there are no arms: known are %v", Arms)
	case f.Trajectories < 0:
		return fmt.Errorf("fig8: trajectories %d: it must be at least 1, or 0 for as many as were pretrained with", f.Trajectories)
	}
	for i, arm := range f.Arms {
		if !slices.Contains(Arms, arm) || slices.Contains(f.Arms[:i], arm) {
			return fmt.Errorf("fig8: arm %q: it must be one of %v, and there once", arm, Arms)
		}
	}
	for arm, fine := range f.Fine {
		if !(fine.Actor > 0 && fine.Critic > 0 && fine.Imitation >= 0 && fine.Noise >= 0 && fine.Patience >= 0) {
			return fmt.Errorf("fig8: settings %+v of %s: the step sizes must be above 0, the others at least 0", fine, arm)
		}
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
	Best       Figures `json:"best"`   // of its evaluation
	Course     Course  `json:"course"`

	// Until it has converged, or to the end.
	Episodes int     `json:"episodes"` // of training
	Way      Figures `json:"way"`      // of these; where it had converged before any training, of the first one
	Seconds  float64 `json:"seconds"`  // CPU time of learning
}

// Arms are those of the experiment, in the order in which they are reported.
var Arms = []Arm{Scratch, TL, TLPlus, AWARE}

// transferred is the arms that begin with another workload's policy.
func (f Fig8) transferred() []Arm {
	return slices.DeleteFunc(slices.Clone(f.Arms), func(arm Arm) bool { return arm != TL && arm != TLPlus })
}

// Steps is how many things a repetition tells of that it has done.
func (f Fig8) Steps() int { return len(f.transferred()) + (1+len(f.Arms))*f.Apps }

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
	from := map[Arm]Source{AWARE: {Pretrained: &p, Trajectories: f.Trajectories, Fine: f.Fine[AWARE]}}
	transferred := f.transferred()
	sources := make([]weights.File, len(transferred))
	if err := bench.InParallel(ctx, len(transferred), func(ctx context.Context, k int) error {
		b, err := f.Setting.Begin(transferred[k], source, Source{}, uint64(number))
		if err != nil {
			return err
		}
		if _, err = f.Convergence.Adapt(ctx, b, f.Setting, uint64(number), math.Inf(1), false); err != nil {
			return err
		}
		sources[k], err = b.Agent.SavePolicy()
		done(fmt.Sprintf("source %s for %s", source.Name(), transferred[k]))
		return err
	}); err != nil {
		return nil, err
	}
	for k, arm := range transferred {
		from[arm] = Source{Weights: &sources[k], Fine: f.Fine[arm]}
	}
	all := make([][]Adaptation, f.Apps)
	err = bench.InParallel(ctx, f.Apps, func(ctx context.Context, k int) error {
		w, err := Of(unseen[targets[k]])
		if err != nil {
			return err
		}
		seed := runSeed(f.Seed, number, k)
		target, converged, err := f.mark(ctx, w, seed)
		if err != nil {
			return err
		}
		done(fmt.Sprintf("%s: the converged policy earns %.3f a step", w.Name(), target))
		for _, arm := range f.Arms {
			b, err := f.Setting.Begin(arm, w, from[arm], seed)
			if err != nil {
				return err
			}
			course, err := f.Convergence.Adapt(ctx, b, f.Setting, seed, target, true)
			if err != nil {
				return fmt.Errorf("arm %s: %w", arm, err)
			}
			one := Adaptation{
				Repetition: number, Source: source.Name(), Workload: w.Name(), Arm: arm, Target: target, Best: converged, Course: course,
			}
			one.until(course.Converged)
			all[k] = append(all[k], one)
			done(fmt.Sprintf("%s %s: converged after %d episodes", w.Name(), arm, course.Converged))
		}
		return nil
	})
	return slices.Concat(all...), err
}

// mark is what the converged policy of a workload earns a step, and what is seen of it: the best one of a whole training that
// begins with the fallback's episodes, as in figures 9 and 10. What a training from nothing reaches is no mark: it uses 11 % of
// its CPU, and another workload's policy, which uses as little, has converged there before it has learned anything.
func (f Fig8) mark(ctx context.Context, w Workload, seed uint64) (float64, Figures, error) {
	fail := func(err error) (float64, Figures, error) {
		return 0, Figures{}, fmt.Errorf("the converged policy of %s: %w", w.Name(), err)
	}
	_, _, best, err := f.Setting.mastered(ctx, w, f.Trained, f.Life, seed)
	if err != nil {
		return fail(err)
	}
	b, err := f.Setting.Begin(Scratch, w, Source{}, seed)
	if err == nil {
		err = b.Agent.Restore(*best)
	}
	if err != nil {
		return fail(err)
	}
	return f.Convergence.Judge(b, f.Setting, seed)
}

// until fills in the figures of the training up to an episode; -1 is all of it.
func (a *Adaptation) until(converged int) {
	a.Episodes = len(a.Course.Training)
	if converged >= 0 {
		a.Episodes = converged
	}
	// Of a policy that had converged before any training there is nothing to sum up: its first episode stands for it.
	for _, e := range a.Course.Training[:min(len(a.Course.Training), max(1, a.Episodes))] {
		a.Way = a.Way.plus(e)
	}
	for _, s := range a.Course.Seconds[:min(len(a.Course.Seconds), a.Episodes)] {
		a.Seconds += s
	}
}

// mean is the mean of a figure's sum over the steps.
func (f Figures) mean(sum float64) float64 { return sum / float64(max(1, f.Steps)) }

// deficit is the share of the converged policy's utilisation that was missing on the way.
func (a Adaptation) deficit(of func(Figures) float64) float64 {
	most := a.Best.mean(of(a.Best))
	if most == 0 {
		return 0
	}
	return 1 - a.Way.mean(of(a.Way))/most
}

func cpu(f Figures) float64    { return f.CPU }
func memory(f Figures) float64 { return f.Memory }

// Claims are the paper's figures (§5.2). Ratios are of the sums over all runs.
func (f Fig8) Claims(all []Adaptation) []Claim {
	var claims []Claim
	for _, one := range []struct {
		arm      Arm
		episodes float64
	}{{TL, 5.5}, {TLPlus, 4.6}} {
		claims = append(claims,
			claim("times fewer episodes than "+string(one.arm), one.episodes, true, against(all, one.arm, ratio,
				func(a Adaptation) float64 { return float64(a.Episodes) })),
			claim("times fewer violations on the way than "+string(one.arm), 1, true, against(all, one.arm, ratio,
				func(a Adaptation) float64 { return float64(a.Way.Violations) })),
			claim("CPU utilisation deficit on the way below that of "+string(one.arm), 0, true, against(all, one.arm, difference,
				func(a Adaptation) float64 { return a.deficit(cpu) })),
			claim("memory utilisation deficit on the way below that of "+string(one.arm), 0, true, against(all, one.arm, difference,
				func(a Adaptation) float64 { return a.deficit(memory) })),
			claim("share of CPU time of learning that is saved of "+string(one.arm), 0.68, true, against(all, one.arm, saved,
				func(a Adaptation) float64 { return a.Seconds })),
		)
	}
	return f.Setting.judged(claims)
}

func ratio(theirs, mine float64) (float64, bool)      { return theirs / mine, mine > 0 }
func difference(theirs, mine float64) (float64, bool) { return theirs - mine, true }
func saved(theirs, mine float64) (float64, bool)      { return 1 - mine/theirs, theirs > 0 }

// against compares another arm with AWARE: of each a mean over all runs.
func against(
	all []Adaptation, other Arm, compare func(theirs, mine float64) (float64, bool), of func(Adaptation) float64,
) *Interval {
	repetitions := map[int]bool{}
	for _, a := range all {
		repetitions[a.Repetition] = true
	}
	return jackknife(slices.Sorted(maps.Keys(repetitions)), func(left int) (float64, bool) {
		sum, n := map[Arm]float64{}, map[Arm]float64{}
		for _, a := range all {
			if a.Repetition != left {
				sum[a.Arm] += of(a)
				n[a.Arm]++
			}
		}
		if n[other] == 0 || n[AWARE] == 0 {
			return 0, false
		}
		return compare(sum[other]/n[other], sum[AWARE]/n[AWARE])
	})
}

// Summary is an arm over all workloads and repetitions, with 95 % intervals over the repetitions' means.
type Summary struct {
	Arm           Arm      `json:"arm"`
	Runs          int      `json:"runs"`
	Converged     int      `json:"converged"` // runs that did, within the most episodes
	Episodes      Interval `json:"episodes"`  // until then; a run that did not counts with all of its episodes
	CPU           Interval `json:"cpu"`       // utilisation on the way
	Memory        Interval `json:"memory"`
	Violations    Interval `json:"violations"`  // share of the steps on the way
	CPUDeficit    Interval `json:"cpu_deficit"` // share of the converged policy's utilisation that was missing on the way
	MemoryDeficit Interval `json:"memory_deficit"`
	Seconds       Interval `json:"seconds"` // CPU time of learning
	First         Interval `json:"first"`   // reward before any training, as a share of the target
}

// Summarise is the arms' summaries.
func Summarise(all []Adaptation) []Summary {
	var out []Summary
	for _, arm := range Arms {
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
		s.CPU = over(func(a Adaptation) float64 { return a.Way.mean(a.Way.CPU) })
		s.Memory = over(func(a Adaptation) float64 { return a.Way.mean(a.Way.Memory) })
		s.Violations = over(func(a Adaptation) float64 { return a.Way.mean(float64(a.Way.Violations)) })
		s.CPUDeficit = over(func(a Adaptation) float64 { return a.deficit(cpu) })
		s.MemoryDeficit = over(func(a Adaptation) float64 { return a.deficit(memory) })
		s.Seconds = over(func(a Adaptation) float64 { return a.Seconds })
		s.First = over(func(a Adaptation) float64 { return a.Course.Evaluations[0].Reward / a.Target })
		out = append(out, s)
	}
	return out
}
