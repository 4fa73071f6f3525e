package aware

import (
	"context"
	"errors"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
)

// rule is the fallback: HPA and VPA. Each episode is at another time, so it begins anew with each.
type rule struct {
	config   hpavpa.Config
	least    mdp.MilliCPU // VPA's minAllowed; 0 is none
	memory   mdp.Bytes    // the same
	replicas int          // HPA's minReplicas
	policy   *hpavpa.Policy
}

// again is another one with the same settings.
func (r *rule) again() *rule {
	return &rule{config: r.config, least: r.least, memory: r.memory, replicas: r.replicas}
}

// untuned is HPA and VPA as they come, or as central has them, for a workload's SLO and bounds.
func (s Setting) untuned(of workload.Spaces) hpavpa.Config {
	if s.Central {
		return central.Rule(of.SLO, of.Bounds)
	}
	c := hpavpa.Default
	c.SLO, c.Largest = of.SLO, mdp.Size{CPU: of.Bounds.CPU.Max, Memory: of.Bounds.Memory.Max}
	return c
}

// tunedRule is the rule at its best for a workload: what earns most in some episodes of seeds that are never scored.
// First it is one of the grid of aware bench tune where VPA sets CPU, and then that one with the least size and the least
// number of replicas that an owner may set: a load that comes in bursts is far above what VPA has seen. The paper sets HPA's
// threshold by hand, to the largest one at which the SLO is met (§5.3).
func (s Setting) tunedRule(ctx context.Context, d *driven, episodes int, seed uint64) (*rule, error) {
	spaces := d.world.Spaces()
	best, most := rule{}, math.Inf(-1)
	seeds := episodeSeeds(seed, tuningSeeds, episodes)
	try := func(one rule) error {
		if err := one.config.Check(); err != nil {
			return err
		}
		played, err := d.play(ctx, &one, seeds)
		if err != nil {
			return fmt.Errorf("tuning HPA and VPA: %w", err)
		}
		if sum := total(played); sum.Known > 0 && sum.Mean() > most {
			best, most = one, sum.Mean()
		}
		return nil
	}
	c := s.untuned(spaces)
	for _, c.SafetyMargin = range []float64{0, 0.15, 0.5, 1} {
		for _, c.Percentile = range []float64{0.5, 0.75, 0.95, 1} {
			if err := try(rule{config: c}); err != nil {
				return nil, err
			}
		}
	}
	first := best
	for _, of := range []mdp.MilliCPU{0, 8, 4, 2, 1} {
		for _, replicas := range []int{1, 2, 4, 7} {
			if of == 0 && replicas == 1 || replicas > spaces.Bounds.Replicas.Max {
				continue
			}
			first.least, first.replicas = 0, replicas
			if of > 0 {
				first.least = c.Largest.CPU / of
			}
			if err := try(first); err != nil {
				return nil, err
			}
		}
	}
	if math.IsInf(most, 0) {
		return nil, fmt.Errorf("tuning HPA and VPA: no reward was known")
	}
	return best.again(), nil
}

func (r *rule) begin() error {
	r.policy = hpavpa.New(r.config)
	return nil
}

// Decide implements [mdp.Policy]. What it does not know enough for stays as it is.
func (r *rule) Decide(s mdp.State) (mdp.Action, error) {
	a, err := r.policy.Decide(s)
	var unknown *mdp.UnknownError
	if errors.As(err, &unknown) {
		return mdp.Action{}, nil
	}
	if a.Sets.Has(mdp.CPULimit) {
		a = a.WithCPU(max(a.Limit.CPU, r.least))
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		a = a.WithMemory(max(a.Limit.Memory, r.memory))
	}
	if a.Sets.Has(mdp.Replicas) {
		a = a.WithReplicas(max(a.Replicas, r.replicas))
	}
	return a, err
}

func (r *rule) decide(d *driven) (mdp.Action, error) { return r.Decide(d.state) }
func (r *rule) embedding() []float64                 { return nil }
func (r *rule) took(*driven, taken) error            { return nil }
func (r *rule) stage() lifecycle.Stage               { return lifecycle.Initialized }
func (r *rule) cost() float64                        { return 0 }
