package aware

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/sim/workload"
)

// Fig9 is the settings of the experiment on policy serving (§5.3): the workload changes by the seven updates of §2.3, in a
// random order, one after the other.
type Fig9 struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"` // of the policies that are trained beforehand
	Life        Life        `json:"life"`
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"`     // workloads in each repetition
	Episodes    int         `json:"episodes"` // after each update, of all arms
	Seed        uint64      `json:"seed"`
}

// Fig9Arms are in the order in which they are run.
var Fig9Arms = []Arm{Rule, NoRetraining, AWARE, Converged}

// Check is nil for settings that make sense.
func (f Fig9) Check() error {
	return checkDrives("fig9", f.Seed, f.Repetitions, f.Apps, f.Episodes)
}

// Demand of a workload before its updates, in cores. All seven together make it some forty times as much.
const (
	leastBefore = 0.1
	mostBefore  = 0.5
)

// Phase is a workload after an update.
type Phase struct {
	Update   string
	Workload Workload
}

// Updatable is a workload that each of the seven updates changes, and what it is after each of them in a random order. A
// published application has at most three segments and no more than three of the updates change it: it gets a segment
// of each kind that it lacks, drawn at random as AWARE's generator does.
func Updatable(index int, seed uint64) (before Workload, phases []Phase, err error) {
	base, err := Of(index)
	if err != nil {
		return base, nil, err
	}
	r := rand.New(rand.NewPCG(seed, 0xf19))
	segments := map[string]workload.Segment{}
	for _, s := range workload.Segments() {
		segments[s.Name] = s
	}
	updates := workload.Updates()
	app := slices.Clone(base.App)
	for _, u := range updates {
		if _, ok := u.Apply(app); !ok && len(u.Segments) > 0 {
			app = append(app, segments[u.Segments[r.IntN(len(u.Segments))]])
		}
	}
	before, err = under(app, base.Trace, leastBefore+(mostBefore-leastBefore)*r.Float64())
	if err != nil {
		return before, nil, err
	}
	now := before
	for _, i := range r.Perm(len(updates)) {
		if now, err = now.after(updates[i], seed); err != nil {
			return before, nil, err
		}
		phases = append(phases, Phase{updates[i].Name, now})
	}
	return before, phases, nil
}

// after is the workload after one of the seven updates, which must change it.
func (w Workload) after(u workload.Update, seed uint64) (Workload, error) {
	if len(u.Segments) == 0 {
		return w.Busier(seed)
	}
	next, ok := w.Updated(u)
	if !ok {
		return w, fmt.Errorf("update %s does not change %s", u.Name, w.Name())
	}
	return next, nil
}

// Repetition runs all arms in some workloads. done is called after each run; it may be nil. Arms are paired as in fig10.
func (f Fig9) Repetition(ctx context.Context, number int, p pretrain.Pretrained, done func(what string)) ([]Drive, error) {
	_, unseen := workload.Split(f.Seed)
	order := rand.New(rand.NewPCG(f.Seed, uint64(number))).Perm(len(unseen))
	return inWorkloads(ctx, f.Apps, func(ctx context.Context, k int) ([]Drive, error) {
		return f.drives(ctx, unseen[order[k]], number, runSeed(f.Seed, number, k), p, done)
	})
}

// drives is all arms in a workload and its updates.
func (f Fig9) drives(
	ctx context.Context, index, number int, seed uint64, p pretrain.Pretrained, done func(string),
) ([]Drive, error) {
	before, phases, err := Updatable(index, seed)
	if err != nil {
		return nil, err
	}
	first, fallback, best, err := f.Setting.mastered(ctx, before, f.Convergence, f.Life, seed)
	if err != nil {
		return nil, err
	}
	width := len(first.executed)
	var out []Drive
	for _, arm := range Fig9Arms {
		fail := func(err error) ([]Drive, error) { return nil, fmt.Errorf("%s, arm %s: %w", before.Name(), arm, err) }
		own := fallback.again()
		a, err := newAgent(first, best, seed)
		if err != nil {
			return fail(err)
		}
		var by driver = newActor(a, false, width)
		var life *living
		switch arm {
		case Rule:
			by = own
		case AWARE:
			if life, err = f.serving(ctx, first, p, own, seed); err != nil {
				return fail(err)
			}
			by = life
		}
		one := Drive{Repetition: number, Workload: before.Name(), Arm: arm}
		last := best
		by, err = f.Setting.through(ctx, &one, phases, f.Episodes, seed, own, by, func(i int, d *driven) (by driver, err error) {
			if arm != Converged {
				return nil, nil
			}
			by, last, err = f.after(ctx, d, own, last, p, seed+uint64(i))
			return by, err
		})
		if err != nil {
			return fail(err)
		}
		one.Seconds = by.cost()
		if life != nil {
			one.Changes = life.Changes
		}
		out = append(out, one)
		tell(done, one)
	}
	return out, nil
}

// through plays the same number of episodes in each phase of a workload, and adds them to a drive. before may give another
// driver for a phase; nil: the one before goes on.
func (s Setting) through(
	ctx context.Context, one *Drive, phases []Phase, episodes int, seed uint64, fallback *rule, by driver,
	before func(i int, d *driven) (driver, error),
) (driver, error) {
	seeds := episodeSeeds(seed, scoredSeeds, len(phases)*episodes)
	for i, p := range phases {
		d, err := s.driven(p.Workload)
		if err != nil {
			return by, err
		}
		fallback.config.SLO = d.slo // the owner says what the new requests may take
		next, err := before(i, d)
		if err != nil {
			return by, err
		}
		if next != nil {
			by = next
		}
		played, err := d.play(ctx, by, seeds[i*episodes:][:episodes])
		if err != nil {
			return by, fmt.Errorf("after %s: %w", p.Update, err)
		}
		one.Phases = append(one.Phases, p.Update)
		one.Episodes = append(one.Episodes, played...)
	}
	return by, nil
}

// serving is AWARE with a policy that serves: the pretrained one, adapted to the workload.
func (f Fig9) serving(ctx context.Context, d *driven, p pretrain.Pretrained, fallback *rule, seed uint64) (*living, error) {
	adapted, err := d.adapted(ctx, f.Convergence, f.Life, fallback, p, seed)
	if err != nil {
		return nil, err
	}
	alone, err := d.alone(p, adapted.best, seed)
	if err != nil {
		return nil, err
	}
	own, err := d.known(ctx, alone, seed)
	if err != nil {
		return nil, err
	}
	theirs, err := d.known(ctx, fallback.again(), seed)
	if err != nil {
		return nil, err
	}
	life, err := newLiving(f.Life, alone.agent, len(d.executed), fallback, own, seed)
	if err != nil {
		return nil, err
	}
	life.memory, life.adapts = alone.memory, &p
	return life, life.serve(d, own, theirs)
}

// alone is a pretrained agent with the weights of a training, that drives and does not learn.
func (d *driven) alone(p pretrain.Pretrained, with *weights.File, seed uint64) (*actor, error) {
	a, memory, err := newAdapted(d, p, seed)
	if err == nil {
		err = a.Restore(*with)
	}
	if err != nil {
		return nil, err
	}
	by := newActor(a, false, len(d.executed))
	by.memory, by.keeps = memory, true
	return by, nil
}

// after is the best policy that is trained after an update, to the end: from the one before it, or from the pretrained one. The
// next one goes on from the first of these.
func (f Fig9) after(
	ctx context.Context, d *driven, own *rule, last *weights.File, p pretrain.Pretrained, seed uint64,
) (*actor, *weights.File, error) {
	gone, err := d.converged(ctx, f.Convergence, f.Life, own, last, seed)
	if err != nil {
		return nil, nil, err
	}
	adapted, err := d.adapted(ctx, f.Convergence, f.Life, own, p, seed)
	if err != nil {
		return nil, nil, err
	}
	if adapted.earned > gone.earned {
		by, err := d.alone(p, adapted.best, seed)
		return by, gone.best, err
	}
	a, err := newAgent(d, gone.best, seed)
	if err != nil {
		return nil, nil, err
	}
	return newActor(a, false, len(d.executed)), gone.best, nil
}

// Claims are the paper's figures (§5.3).
func (f Fig9) Claims(all []Drive) []Claim {
	return f.Setting.judged([]Claim{
		claim("reward below the converged policy's", 0.036, false, compared(all, AWARE, Converged, lost)),
		claim("times fewer SLO violations than no retraining", 3.1, true, compared(all, AWARE, NoRetraining, fewer)),
		claim("CPU utilisation above no retraining", 0.096, true,
			compared(all, AWARE, NoRetraining, gain(func(f Figures) float64 { return f.CPU }))),
		claim("memory utilisation above no retraining", 0.148, true,
			compared(all, AWARE, NoRetraining, gain(func(f Figures) float64 { return f.Memory }))),
	})
}

// lost is the share of the other arm's reward that is missing.
func lost(a, b Figures) (float64, bool) {
	return 1 - a.Mean()/b.Mean(), a.Known > 0 && b.Known > 0 && b.Mean() > 0
}
