package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// Beneath makes the policy of a node's agent for a service, in an episode of a seed. It decides on the CPU limit in force once a
// second, beneath the ceiling, which is what the environment's actions then set (the API's limit).
type Beneath func(service string, seed uint64) (mdp.Policy, error)

// beneathEvery is how often such a policy decides.
const beneathEvery = time.Second

// node is what a node's agent does in a service of a world.
type node struct {
	handle  sim.Handle
	loop    mdp.Loop
	sum     mdp.MilliCPU // of the limits in force, one of each second since [node.since]
	burst   mdp.MilliCPU // the highest usage of these seconds
	seconds mdp.MilliCPU
}

func newNode(h sim.Handle, p mdp.Policy, slo mdp.SLO) *node {
	return &node{handle: h, loop: mdp.Loop{
		Sensor: h.Sensor(), Actuator: h.Actuator(sim.L0),
		Policy: guard.Standard(p, guard.Blind, guard.Place{Bounds: h.Bounds, SLO: slo}),
	}}
}

// second is over: the policy sees it and decides. What it cannot decide stays, as does what a call did not change.
func (n *node) second(ctx context.Context, now time.Time) error {
	d, err := n.loop.Step(ctx, now)
	var unknown *mdp.UnknownError
	if err != nil && !errors.As(err, &unknown) && !errors.Is(err, sim.ErrCall) {
		return fmt.Errorf("service %s: its node: %w", n.handle.Name(), err)
	}
	n.sum += d.State.Limit.CPU
	n.burst = max(n.burst, d.State.Usage.CPU)
	n.seconds++
	return nil
}

// since is the mean limit in force and the highest usage of a second since the last call; ok is false when no second has passed.
func (n *node) since() (limit, burst mdp.MilliCPU, ok bool) {
	defer func() { n.sum, n.burst, n.seconds = 0, 0, 0 }()
	if n.seconds == 0 {
		return 0, 0, false
	}
	return n.sum / n.seconds, n.burst, true
}

// nodes lets time pass in a world, with what its nodes do.
func nodes(w *sim.World, all []*node) func(ctx context.Context, d time.Duration) error {
	return func(ctx context.Context, d time.Duration) error {
		for range d / beneathEvery {
			w.Advance(beneathEvery)
			for _, n := range all {
				if err := n.second(ctx, w.Now()); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
