package aware

import (
	"context"
	"errors"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
)

// rule is the fallback: HPA and VPA. Each episode is at another time, so it begins anew with each.
type rule struct {
	config hpavpa.Config
	policy *hpavpa.Policy
}

// tunedRule is the rule at its best for a workload: of the grid of aware bench tune where VPA sets CPU, what earns most in some
// episodes of seeds that are never scored. The paper sets HPA's threshold by hand, to the largest one at which the SLO is
// met (§5.3).
func (s Setting) tunedRule(ctx context.Context, d *driven, episodes int, seed uint64) (*rule, error) {
	spaces := d.world.Spaces()
	best, most := rule{}, math.Inf(-1)
	seeds := episodeSeeds(seed, tuningSeeds, episodes)
	for _, margin := range []float64{0, 0.15, 0.5, 1} {
		for _, percentile := range []float64{0.5, 0.75, 0.95, 1} {
			c := hpavpa.Default
			c.SLO = spaces.SLO
			c.Largest = mdp.Size{CPU: spaces.Bounds.CPU.Max, Memory: spaces.Bounds.Memory.Max}
			c.SafetyMargin, c.Percentile = margin, percentile
			if err := c.Check(); err != nil {
				return nil, err
			}
			one := rule{config: c}
			played, err := d.play(ctx, &one, seeds)
			if err != nil {
				return nil, fmt.Errorf("tuning HPA and VPA: %w", err)
			}
			if sum := total(played); sum.Known > 0 && sum.Mean() > most {
				best, most = one, sum.Mean()
			}
		}
	}
	if math.IsInf(most, 0) {
		return nil, fmt.Errorf("tuning HPA and VPA: no reward was known")
	}
	return &rule{config: best.config}, nil
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
	return a, err
}

func (r *rule) decide(d *driven) (mdp.Action, error) { return r.Decide(d.state) }
func (r *rule) took(*driven, taken) error            { return nil }
func (r *rule) stage() lifecycle.Stage               { return lifecycle.Initialized }
func (r *rule) cost() float64                        { return 0 }
