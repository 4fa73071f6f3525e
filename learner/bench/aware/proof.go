package aware

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
	simulated "awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/lesson"
)

// proofEpisodes is how many of each workload a start of lessons is proven in.
const proofEpisodes = 5

// Proof is what a start of lessons earns as it is, before any lesson, beside central's rule in the same episodes.
type Proof struct {
	Gain   Interval `json:"gain"`   // of a step, over the rule's; of the workloads' means
	Better Interval `json:"better"` // share of the workloads in which it earns more
	Start  Figures  `json:"start"`
	Rule   Figures  `json:"rule"`

	Workloads int        `json:"workloads"`
	Within    mdp.Bounds `json:"within"` // of each knob, the lowest and the highest upper bound of the workloads
}

// Holds reports whether it earns more in the mean, and for certain in more than half of the workloads. The mean alone says
// little: where requests are late a single workload outweighs all others.
func (p Proof) Holds() bool { return p.Gain.Mean > 0 && p.Better.Low != nil && *p.Better.Low > 0.5 }

func (p Proof) String() string {
	seen := func(f Figures) string {
		const form = "%.3f a step, %.1f %% of the windows late, %.2f cores reserved, %.0f %% of these used, %.0f %% of the memory"
		return fmt.Sprintf(form, f.Mean(), 100*f.mean(float64(f.Violations)), f.mean(f.Cores), 100*f.mean(f.CPU), 100*f.mean(f.Memory))
	}
	return fmt.Sprintf("%d workloads that were not seen: better than the rule in %v of them, by %v a step; %s; the rule %s",
		p.Workloads, p.Better, p.Gain, seen(p.Start), seen(p.Rule))
}

// Prove plays workloads of the applications that no pretraining may use: in turn as published, and after some of the seven
// updates. done is called after each of them, one call at a time.
func (s Setting) Prove(
	ctx context.Context, start lesson.Start, workloads int, split, seed uint64, done func(what string),
) (Proof, error) {
	_, unseen := simulated.Split(split)
	if workloads < 1 || workloads > len(unseen) {
		return Proof{}, fmt.Errorf("a proof in %d workloads: it must be in [1, %d]", workloads, len(unseen))
	}
	file, err := start.Policy(workload.Step)
	if err != nil {
		return Proof{}, err
	}
	var mu sync.Mutex
	order := rand.New(rand.NewPCG(seed, 0x940f)).Perm(len(unseen))
	mine, rules := make([]Figures, workloads), make([]Figures, workloads)
	bounds := make([]mdp.Bounds, workloads)
	err = bench.InParallel(ctx, workloads, func(ctx context.Context, k int) error {
		w, err := Of(unseen[order[k]])
		if err == nil && k%2 == 1 {
			var phases []Phase
			if _, phases, err = Updatable(unseen[order[k]], seed+uint64(k)); err == nil {
				w = phases[k/2%len(phases)].Workload
			}
		}
		if err != nil {
			return err
		}
		for _, one := range []struct {
			to   *Figures
			with func(workload.Spaces) (mdp.Policy, error)
		}{
			{&rules[k], func(of workload.Spaces) (mdp.Policy, error) {
				r := &rule{config: s.untuned(of)}
				return r, r.begin()
			}},
			{&mine[k], func(of workload.Spaces) (mdp.Policy, error) {
				bounds[k] = of.Bounds
				l, err := central.Learned(file, encode.Place{Bounds: of.Bounds, SLO: of.SLO})
				r := &rule{config: s.untuned(of)}
				if err == nil {
					err = r.begin()
				}
				return besideRule{l, r}, err
			}},
		} {
			if *one.to, err = s.played(ctx, w, one.with, episodeSeeds(seed+uint64(k), scoredSeeds, proofEpisodes)); err != nil {
				return fmt.Errorf("%s: %w", w.Name(), err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		done(fmt.Sprintf("%s: %.3f a step, the rule %.3f", w.Name(), mine[k].Mean(), rules[k].Mean()))
		return nil
	})
	if err != nil {
		return Proof{}, err
	}
	p := proofOf(mine, rules)
	p.Within = tops(bounds)
	return p, nil
}

// besideRule is a learned policy of central's that is asked as an agent asks it: beside what its fallback would do.
type besideRule struct {
	learned *learned.Policy
	rule    *rule
}

// Decide implements [mdp.Policy].
func (b besideRule) Decide(s mdp.State) (mdp.Action, error) {
	wants, err := b.rule.Decide(s)
	if err != nil {
		return wants, err
	}
	return b.learned.Beside(s, wants)
}

// tops is, of each knob, the lowest and the highest upper bound.
func tops(all []mdp.Bounds) (w mdp.Bounds) {
	for _, k := range []mdp.Signal{mdp.Replicas, mdp.CPULimit, mdp.MemoryLimit} {
		r := mdp.Range[int64]{Min: math.MaxInt64}
		for _, b := range all {
			r.Min, r.Max = min(r.Min, b.Knob(k).Max), max(r.Max, b.Knob(k).Max)
		}
		w = w.WithKnob(k, r)
	}
	return w
}

// proofOf is what follows from the figures of each workload. They are of all its steps: where hardly any reward is known the
// mean of the others says hardly anything.
func proofOf(mine, rules []Figures) Proof {
	p := Proof{Workloads: len(mine)}
	gains, better := make([]float64, len(mine)), make([]float64, len(mine))
	for k := range mine {
		p.Start, p.Rule = p.Start.plus(mine[k]), p.Rule.plus(rules[k])
		gains[k] = mine[k].mean(mine[k].Reward) - rules[k].mean(rules[k].Reward)
		if gains[k] > 0 {
			better[k] = 1
		}
	}
	p.Gain, p.Better = interval(gains), interval(better)
	return p
}

// played is episodes of a workload by policies, a new one for each.
func (s Setting) played(
	ctx context.Context, w Workload, with func(workload.Spaces) (mdp.Policy, error), seeds []uint64,
) (sum Figures, err error) {
	world, err := s.World(w)
	if err != nil {
		return sum, err
	}
	of := measured{Simulation: world, figures: &sum}
	for _, seed := range seeds {
		policy, err := with(world.Spaces())
		if err != nil {
			return sum, err
		}
		state, err := of.Reset(ctx, seed)
		if err != nil {
			return sum, err
		}
		for range s.Length {
			action, err := policy.Decide(state)
			if err != nil {
				return sum, err
			}
			out, err := of.Step(ctx, action)
			if err != nil {
				return sum, err
			}
			state = out.State
		}
	}
	return sum, nil
}
