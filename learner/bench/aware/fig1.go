package aware

import (
	"context"
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/sim/workload"
)

// FIRM is an agent that drives from the first step on, knows nothing then, and learns from each of its steps: FIRM's, as the
// paper compares it (§5.1). It goes on with its weights wherever it is, which is FIRM's transfer.
const FIRM Arm = "FIRM"

// Fig1 is the settings of the experiment on a whole life (§1, fig. 1): an agent begins, its workload is updated, and then it
// gets another application.
type Fig1 struct {
	Setting     Setting `json:"setting"`
	Tuned       int     `json:"tuned"` // episodes by which the rule is tuned for the first workload
	Life        Life    `json:"life"`
	Repetitions int     `json:"repetitions"`
	Apps        int     `json:"apps"`     // workloads in each repetition
	Episodes    int     `json:"episodes"` // of each phase, of all arms
	Seed        uint64  `json:"seed"`
}

// Fig1Arms are in the order in which they are run. AWARE is without a meta-learner, and begins from nothing, too.
var Fig1Arms = []Arm{Rule, FIRM, AWARE}

// The phases of fig. 1: the begin, some of the seven updates in a random order, and another application.
const (
	Begin       = "the begin"
	Another     = "another application"
	fig1Updates = 3
)

// Check is nil for settings that make sense.
func (f Fig1) Check() error {
	if f.Tuned < 1 {
		return fmt.Errorf("fig1: tuned %d: it must be at least 1", f.Tuned)
	}
	return checkDrives("fig1", f.Seed, f.Repetitions, f.Apps, f.Episodes)
}

// Repetition runs all arms in some workloads. done is called after each run; it may be nil. Arms are paired as in fig10.
func (f Fig1) Repetition(ctx context.Context, number int, done func(what string)) ([]Drive, error) {
	_, unseen := workload.Split(f.Seed)
	order := rand.New(rand.NewPCG(f.Seed, uint64(number))).Perm(len(unseen))
	return inWorkloads(ctx, f.Apps, func(ctx context.Context, k int) ([]Drive, error) {
		other := unseen[order[(k+f.Apps)%len(order)]]
		return f.drives(ctx, unseen[order[k]], other, number, runSeed(f.Seed, number, k), done)
	})
}

// phases is the life of a workload.
func (f Fig1) phases(index, other int, seed uint64) ([]Phase, error) {
	before, updates, err := Updatable(index, seed)
	if err != nil {
		return nil, err
	}
	another, _, err := Updatable(other, seed+1)
	if err != nil {
		return nil, err
	}
	phases := append([]Phase{{Begin, before}}, updates[:fig1Updates]...)
	return append(phases, Phase{Another, another}), nil
}

func (f Fig1) drives(ctx context.Context, index, other, number int, seed uint64, done func(string)) ([]Drive, error) {
	phases, err := f.phases(index, other, seed)
	if err != nil {
		return nil, err
	}
	name := phases[0].Workload.Name()
	first, err := f.Setting.driven(phases[0].Workload)
	if err != nil {
		return nil, err
	}
	fallback, err := f.Setting.tunedRule(ctx, first, f.Tuned, seed)
	if err != nil {
		return nil, err
	}
	var out []Drive
	for _, arm := range Fig1Arms {
		fail := func(err error) ([]Drive, error) { return nil, fmt.Errorf("%s, arm %s: %w", name, arm, err) }
		own := fallback.again()
		by, err := f.begin(arm, first, own, seed)
		if err != nil {
			return fail(err)
		}
		one := Drive{Repetition: number, Workload: name, Arm: arm}
		goesOn := func(int, *driven) (driver, error) { return nil, nil }
		if _, err := f.Setting.through(ctx, &one, phases, f.Episodes, seed, own, by, goesOn); err != nil {
			return fail(err)
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

// begin is an arm that knows nothing. AWARE's thresholds are made of what its fallback earns: there is no converged policy to
// compare with.
func (f Fig1) begin(arm Arm, d *driven, fallback *rule, seed uint64) (driver, error) {
	width := len(d.executed)
	switch arm {
	case FIRM:
		a, err := newAgent(d, nil, seed)
		if err != nil {
			return nil, err
		}
		return newActor(a, true, width), nil
	case AWARE:
		a, err := newPupil(d, seed)
		if err != nil {
			return nil, err
		}
		return newLiving(f.Life, a, width, fallback, nil, seed)
	}
	return fallback, nil
}

// Claims are what the figure shows: AWARE earns more than FIRM at the begin, while its workload is updated, and in another
// application, each over the episodes of these phases.
func (f Fig1) Claims(all []Drive) []Claim {
	var claims []Claim
	for _, stage := range []struct {
		name     string
		from, to int // phases
	}{
		{Begin, 0, 1}, {"the updates", 1, 1 + fig1Updates}, {Another, 1 + fig1Updates, 2 + fig1Updates},
	} {
		claims = append(claims, claim("reward of a step above FIRM's: "+stage.name, 0, true,
			compared(between(all, stage.from*f.Episodes, stage.to*f.Episodes), AWARE, FIRM, more)))
	}
	return f.Setting.judged(claims)
}

// more is by how much the mean reward is above the other arm's.
func more(a, b Figures) (float64, bool) { return a.Mean() - b.Mean(), a.Known > 0 && b.Known > 0 }

// between is drives with some of their episodes.
func between(all []Drive, from, to int) []Drive {
	var some []Drive
	for _, d := range all {
		d.Episodes = d.Episodes[min(from, len(d.Episodes)):min(to, len(d.Episodes))]
		some = append(some, d)
	}
	return some
}
