// Package guard makes any Policy safe. Each guard is a Policy around a Policy that does one thing: keeps the
// Action within bounds, keeps its steps small, keeps it from turning too often, keeps memory above what is in
// use, keeps from shrinking what already fails its SLO, decides when the Policy cannot. A guard never makes an
// Action bolder, and it leaves its reason in Action.Clipped.
//
// They compose; from the inside out the usual order is
//
//	guard.Bound(guard.Pace(guard.HoldSLO(guard.Fallback(policy, rule), slo), pace), bounds)
//
// so that bounds have the last word.
package guard

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Fallback asks rule when the policy fails or gives an illegal Action. The rule sees every State, so that it
// is warm when it is needed.
func Fallback(policy, rule mdp.Policy) mdp.Policy { return &fallback{policy, rule} }

type fallback struct{ policy, rule mdp.Policy }

func (f *fallback) Decide(s mdp.State) (mdp.Action, error) {
	safe, ruleErr := f.rule.Decide(s)
	a, err := f.policy.Decide(s)
	if err == nil {
		if err = a.Check(); err == nil {
			return a, nil
		}
	}
	if ruleErr != nil {
		return mdp.Action{}, ruleErr
	}
	safe.Clipped |= mdp.ClippedFallback
	return safe, nil
}

// HoldSLO forbids to shrink while the SLO is violated. Where the SLO cannot be judged it forbids nothing: the
// fall-back for a blind workload is its bounds.
func HoldSLO(policy mdp.Policy, slo mdp.SLO) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := policy.Decide(s)
		if err != nil {
			return a, err
		}
		if sp, ok := slo.Preservation(s); !ok || sp >= 1 {
			return a, nil
		}
		if a.Sets.Has(mdp.Replicas) && s.Knows(mdp.Replicas) && a.Replicas < s.Replicas {
			a.Replicas, a.Clipped = s.Replicas, a.Clipped|mdp.ClippedSLO
		}
		if a.Sets.Has(mdp.CPULimit) && s.Knows(mdp.CPULimit) && a.Limit.CPU < s.Limit.CPU {
			a.Limit.CPU, a.Clipped = s.Limit.CPU, a.Clipped|mdp.ClippedSLO
		}
		if a.Sets.Has(mdp.MemoryLimit) && s.Knows(mdp.MemoryLimit) && a.Limit.Memory < s.Limit.Memory {
			a.Limit.Memory, a.Clipped = s.Limit.Memory, a.Clipped|mdp.ClippedSLO
		}
		return a, nil
	})
}

// Steps says how fast a limit may move.
type Steps struct {
	Up           mdp.Ratio     // at most so many times the limit in one step; 2 doubles it
	Down         mdp.Ratio     // at least so much of the limit is left after one step; 0.8 takes a fifth
	MemoryEvery  time.Duration // between two shrinks of memory
	ReplicasDown time.Duration // between two removals of a replica; one is removed at a time
}

// DefaultSteps are those of the design: twice up, a fifth down, memory down once a minute; and a replica a minute.
var DefaultSteps = Steps{Up: 2, Down: 0.8, MemoryEvery: time.Minute, ReplicasDown: time.Minute}

// Pace keeps every step within Steps of the limit in force. A limit that is not known is not moved: without
// knowing where one stands there is no small step.
func Pace(policy mdp.Policy, steps Steps) mdp.Policy { return &pace{policy: policy, steps: steps} }

type pace struct {
	policy     mdp.Policy
	steps      Steps
	lastMemory time.Time // of the last shrink that was let through
	lastScale  time.Time
}

func (p *pace) Decide(s mdp.State) (mdp.Action, error) {
	a, err := p.policy.Decide(s)
	if err != nil {
		return a, err
	}
	if unknown := a.Sets.Without(s.Observed); unknown != 0 {
		a.Sets, a.Clipped = a.Sets.Without(unknown), a.Clipped|mdp.ClippedStale
	}
	var why mdp.Clips
	if a.Sets.Has(mdp.CPULimit) {
		a.Limit.CPU, why = step(a.Limit.CPU, s.Limit.CPU, p.steps)
		a.Clipped |= why
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		a.Limit.Memory, why = step(a.Limit.Memory, s.Limit.Memory, p.steps)
		a.Clipped |= why
		if a.Limit.Memory < s.Limit.Memory {
			if s.At.Sub(p.lastMemory) < p.steps.MemoryEvery {
				a.Limit.Memory, a.Clipped = s.Limit.Memory, a.Clipped|mdp.ClippedDwell
			} else {
				p.lastMemory = s.At
			}
		}
	}
	if a.Sets.Has(mdp.Replicas) && a.Replicas < s.Replicas {
		if s.At.Sub(p.lastScale) < p.steps.ReplicasDown {
			a.Replicas, a.Clipped = s.Replicas, a.Clipped|mdp.ClippedDwell
		} else {
			p.lastScale = s.At
			if a.Replicas < s.Replicas-1 {
				a.Replicas, a.Clipped = s.Replicas-1, a.Clipped|mdp.ClippedRateDown
			}
		}
	}
	return a, nil
}

// step moves from now towards want, within the steps; it never ends at zero.
func step[T ~int64](want, now T, steps Steps) (T, mdp.Clips) {
	up := T(float64(now) * float64(steps.Up))
	down := max(1, T(float64(now)*float64(steps.Down)))
	switch {
	case want > now && want > up && up > 0:
		return up, mdp.ClippedRateUp
	case want < now && want < down:
		return down, mdp.ClippedRateDown
	}
	return want, 0
}

// HeadroomOverUsage keeps a memory limit at margin times the memory in use or more; 1.25 leaves a quarter.
// Memory whose use is unknown is not set at all.
func HeadroomOverUsage(policy mdp.Policy, margin mdp.Ratio) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := policy.Decide(s)
		if err != nil || !a.Sets.Has(mdp.MemoryLimit) {
			return a, err
		}
		if !s.Knows(mdp.MemoryUsage) {
			a.Sets, a.Clipped = a.Sets.Without(mdp.SetOf(mdp.MemoryLimit)), a.Clipped|mdp.ClippedStale
			return a, nil
		}
		if least := mdp.Bytes(float64(s.Usage.Memory) * float64(margin)); a.Limit.Memory < least {
			a.Limit.Memory, a.Clipped = least, a.Clipped|mdp.ClippedUsage
		}
		return a, nil
	})
}

// Bound keeps every Action within the bounds, which are asked for at each decision because an envelope moves.
func Bound(policy mdp.Policy, bounds func() mdp.Bounds) mdp.Policy {
	return mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		a, err := policy.Decide(s)
		if err != nil {
			return a, err
		}
		return bounds().Clip(a), nil
	})
}
