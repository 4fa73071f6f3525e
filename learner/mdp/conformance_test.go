package mdp_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
)

// plain is the smallest world there can be: what is set is so.
type plain struct {
	state  mdp.State
	bounds mdp.Bounds
}

func (p *plain) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	p.state.At = now
	return p.state, nil
}

func (p *plain) Act(ctx context.Context, _ time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	if err := errors.Join(ctx.Err(), a.Check()); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	a = p.bounds.Clip(a)
	before := p.state
	if a.Sets.Has(mdp.Replicas) {
		p.state.Replicas = a.Replicas
	}
	if a.Sets.Has(mdp.CPULimit) {
		p.state.Limit.CPU = a.Limit.CPU
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		p.state.Limit.Memory = a.Limit.Memory
	}
	if a.Sets.Has(mdp.CPUReservation) {
		p.state.Reservation = a.Reservation
	}
	if p.state == before {
		return a, mdp.Unchanged, nil
	}
	return a, mdp.Applied, nil
}

// The suites are checked against the smallest honest implementations.
func TestTheSuitesPassWhatIsRight(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 7}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 950},
		Memory:      mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 128 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 10, Max: 900},
	}
	t.Run("world", func(t *testing.T) {
		mdptest.World(t, func(*testing.T) mdptest.Setup {
			w := &plain{
				bounds: bounds,
				state:  mdp.State{Observed: mdp.Knobs, Replicas: 1, Limit: mdp.Size{CPU: 100, Memory: 64 * mdp.MiB}, Reservation: 50},
			}
			now := noon
			return mdptest.Setup{Sensor: w, Actuator: w, Bounds: bounds, Knobs: mdp.Knobs,
				Now: func() time.Time { return now }, Advance: func(d time.Duration) { now = now.Add(d) }}
		})
	})
	t.Run("policies joined", func(t *testing.T) {
		mdptest.Policy(t, func() mdp.Policy {
			cpu := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
				if err := s.Require("cpu", mdp.CPUUsage); err != nil || s.Usage.CPU <= 0 {
					return mdp.Action{}, err
				}
				return mdp.Action{}.WithCPU(s.Usage.CPU), nil
			})
			memory := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
				if err := s.Require("memory", mdp.MemoryUsage); err != nil || s.Usage.Memory <= 0 {
					return mdp.Action{}, err
				}
				return mdp.Action{}.WithMemory(s.Usage.Memory), nil
			})
			return mdp.Join(cpu, memory)
		})
	})
	t.Run("policy", func(t *testing.T) {
		mdptest.Policy(t, func() mdp.Policy {
			return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
				if err := s.Require("half", mdp.CPUUsage); err != nil || s.Usage.CPU <= 0 {
					return mdp.Action{}, err
				}
				return mdp.Action{}.WithCPU(2 * s.Usage.CPU), nil
			})
		})
	})
}
