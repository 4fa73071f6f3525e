package aware

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim/workload"
)

// Fig10 is the settings of the experiment on bootstrapping (§5.4).
type Fig10 struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"` // of the converged policy, which is trained beforehand; the rule is tuned, too
	Life        Life        `json:"life"`
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"`     // workloads in each repetition
	Episodes    int         `json:"episodes"` // of the training phase, of all arms
	Seed        uint64      `json:"seed"`
}

// Fig10Arms are in the order in which they are run.
var Fig10Arms = []Arm{Rule, NoBootstrap, AWARE, Converged}

// Check is nil for settings that make sense.
func (f Fig10) Check() error {
	return checkDrives("fig10", f.Seed, f.Repetitions, f.Apps, f.Episodes)
}

func checkDrives(name string, seed uint64, repetitions, apps, episodes int) error {
	_, unseen := workload.Split(seed)
	switch {
	case repetitions < 1:
		return fmt.Errorf("%s: repetitions %d: it must be at least 1", name, repetitions)
	case apps < 1 || apps > len(unseen):
		return fmt.Errorf("%s: apps %d: it must be in [1, %d]", name, apps, len(unseen))
	case episodes < 1:
		return fmt.Errorf("%s: episodes %d: it must be at least 1", name, episodes)
	}
	return nil
}

// Repetition runs all arms in some workloads. done is called after each run; it may be nil. Arms are paired: episode i of a
// workload has the same seed, and so the same load and the same chance, in all of them.
func (f Fig10) Repetition(ctx context.Context, number int, done func(what string)) ([]Drive, error) {
	_, unseen := workload.Split(f.Seed)
	order := rand.New(rand.NewPCG(f.Seed, uint64(number))).Perm(len(unseen))
	return inWorkloads(ctx, f.Apps, func(ctx context.Context, k int) ([]Drive, error) {
		w, err := Of(unseen[order[k]])
		if err != nil {
			return nil, err
		}
		return f.drives(ctx, w, number, runSeed(f.Seed, number, k), done)
	})
}

// runSeed is that of a workload of a repetition.
func runSeed(seed uint64, repetition, k int) uint64 {
	return seed<<20 + uint64(repetition)<<10 + uint64(k)
}

// inWorkloads runs jobs in parallel, and joins what they have made in their order.
func inWorkloads(ctx context.Context, n int, job func(ctx context.Context, k int) ([]Drive, error)) ([]Drive, error) {
	all := make([][]Drive, n)
	err := bench.InParallel(ctx, n, func(ctx context.Context, k int) (err error) {
		all[k], err = job(ctx, k)
		return err
	})
	return slices.Concat(all...), err
}

// drives is all arms in a workload.
func (f Fig10) drives(ctx context.Context, w Workload, number int, seed uint64, done func(string)) ([]Drive, error) {
	d, fallback, weights, err := f.Setting.mastered(ctx, w, f.Convergence, f.Life, seed)
	if err != nil {
		return nil, err
	}
	width := len(d.executed)
	best := func() (driver, error) {
		a, err := newAgent(d, weights, seed)
		if err != nil {
			return nil, err
		}
		return newActor(a, false, width), nil
	}
	begin := map[Arm]func() (driver, error){
		Rule:      func() (driver, error) { return fallback.again(), nil },
		Converged: best,
		NoBootstrap: func() (driver, error) {
			a, err := newAgent(d, nil, seed)
			if err != nil {
				return nil, err
			}
			return newActor(a, true, width), nil
		},
		AWARE: func() (driver, error) {
			by, err := best()
			if err != nil {
				return nil, err
			}
			episodes, err := d.known(ctx, by, seed)
			if err != nil {
				return nil, err
			}
			a, err := newPupil(d, seed)
			if err != nil {
				return nil, err
			}
			return newLiving(f.Life, a, width, fallback.again(), episodes, seed)
		},
	}
	seeds := episodeSeeds(seed, scoredSeeds, f.Episodes)
	var out []Drive
	for _, arm := range Fig10Arms {
		one := Drive{Repetition: number, Workload: w.Name(), Arm: arm}
		by, err := begin[arm]()
		if err == nil {
			one.Episodes, err = d.play(ctx, by, seeds)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, arm %s: %w", w.Name(), arm, err)
		}
		one.Seconds = by.cost()
		if life, ok := by.(*living); ok {
			one.Changes = life.Changes
		}
		out = append(out, one)
		tell(done, one)
	}
	return out, nil
}

// tell says how a run went.
func tell(done func(string), d Drive) {
	if done == nil {
		return
	}
	f := total(d.Episodes)
	done(fmt.Sprintf("%s %s: reward %.3f a step, %.2f violations an episode, CPU %.0f %%, memory %.0f %%", d.Workload, d.Arm,
		f.Mean(), float64(f.Violations)/float64(max(1, len(d.Episodes))), 100*f.CPU/float64(max(1, f.Steps)),
		100*f.Memory/float64(max(1, f.Steps))))
}

// Claims are the paper's figures (§5.4), and the project's bar that bootstrapping does no harm.
func (f Fig10) Claims(all []Drive) []Claim {
	claims := []Claim{
		claim("CPU utilisation above no bootstrap", 0.47, true,
			compared(all, AWARE, NoBootstrap, gain(func(f Figures) float64 { return f.CPU }))),
		claim("memory utilisation above no bootstrap", 0.39, true,
			compared(all, AWARE, NoBootstrap, gain(func(f Figures) float64 { return f.Memory }))),
		claim("times fewer SLO violations than no bootstrap", 16.9, true, compared(all, AWARE, NoBootstrap, fewer)),
	}
	for _, s := range SummariseDrives(all, []Arm{AWARE}) {
		var worst *Interval
		if s.Worst != nil {
			worst = &Interval{Mean: *s.Worst}
		}
		claims = append(claims, claim(fmt.Sprintf("reward below the rule's in the worst %d episodes of all runs", Window), 0.05,
			false, worst))
	}
	return f.Setting.judged(claims)
}
