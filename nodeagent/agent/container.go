package agent

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/restore"
)

// defaultPeriod is the CFS period that the kubelet sets by default, in
// microseconds.
const defaultPeriod = 100000

// managedContainer is one running container: the Sensor and the Actuator of its
// Loop. The goroutine that steps uses it.
type managedContainer struct {
	claim
	track *Track
	net   *traffic // of the pod; nil when it cannot be read
	pid   int      // of its first process

	facts       envelope.Container // what the API says
	others      others             // the other containers of the pod
	ip          string             // of the pod; empty while it has none
	hostNetwork bool               // its ip is the node's
	foreign     foreign            // what somebody else has set
	envelope    envelope.Envelope  // how far it may be moved
	inForce     cgroup.Limits      // at the last Sense
	back        mdp.MilliCPU       // the CPU limit that was ours before the kubelet set the API's again; 0 is none
	node        mdp.State          // the node's pressure, where the kernel has none for each container
	kills       int                // OOM kills in the last 15 s
	oomKilled   bool               // the instance before was killed for memory, and no State has reported it yet

	rule   api.Rule // by which the policy was made
	policy local
	target mdp.Ratio // of the policy: the share of periods that may be throttled
	// How long it may be throttled without a break where its work may queue; 0: it may not. queues is that it does.
	patience time.Duration
	queues   bool
	queueing mean // of what is in force then, relief included, in millicores
	loop     mdp.Loop
	task     task // of the last step

	settling settling     // after relief by the fast lane
	burstAt  time.Time    // since when relief is in force; zero: it is not
	peak     mdp.MilliCPU // CPUPeak of the last State; 0 is not known
	pressed  bool         // it was throttled since the State before the last one
	movedAt  time.Time    // the last direct write of the CPU limit
	urgedAt  time.Time    // when it was last reported at once, at its ceiling

	stepped stepped // the last step

	settled     asked         // what the kubelet has carried out, as far as is known
	settledThen asked         // settled, when limits were set last
	resizes     uint64        // of this instance
	conflicts   uint64        // changes by somebody else, of this instance
	wrote       bool          // limits were set since the last Sense
	restored    mdp.Size      // what a restore since the last Sense has set, and is not ours any more
	strikes     int           // conflicts since the last backoff, none of them long after the one before
	struckAt    time.Time     // the last conflict
	maxStrikes  int           // after which the container is backed off from
	backoff     time.Duration // how long
	leftUntil   time.Time     // the container is backed off from until then
}

// asked is what the API asks for of a container, and the kubelet has carried out.
type asked struct{ limits, requests mdp.Size }

// api is the API's limits in the form in which the kubelet writes them. While a
// resize is pending it is the smaller of old and new, which is allocated in any
// case.
func (c *managedContainer) api() cgroup.Limits {
	period := c.period(c.inForce)
	l := kubelets(c.facts.Ceiling(), period)
	l.Period = period
	return l
}

// Sense implements [mdp.Sensor]. It also finds limits that somebody else has set.
func (c *managedContainer) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	s, limits, kills, err := c.sampler.Look(c.track, now)
	if err != nil {
		return mdp.State{}, err
	}
	before := c.inForce
	c.inForce, c.restored = limits, mdp.Size{}
	c.kills = kills
	if c.oomKilled {
		// The kill removed the cgroup, and the count in it.
		c.oomKilled = false
		s.OOMKills++
		s.Observed |= mdp.SetOf(mdp.OOMKills)
	}
	// Contention for CPU and I/O of the whole node is the container's too. Stalls
	// for memory are not: a policy would give memory to a container that does not
	// need it.
	for _, one := range []mdp.Signal{mdp.CPUPressure, mdp.IOPressure} {
		if v, ok := one.Get(&c.node); ok && !s.Knows(one) {
			one.Set(&s, v)
		}
	}
	c.peak, c.pressed = s.CPUPeak, s.Throttled > 0
	c.net.observe(now, c.pid, &s)
	c.hear(now, c.track.heard)
	switch relieves := c.sampler.Relieves(c.track); {
	case !relieves:
		c.burstAt = time.Time{}
	case c.burstAt.IsZero():
		c.burstAt = now
	}
	c.back = 0
	c.reconcile(now, before)
	if c.back > 0 && c.peak > c.back {
		// It came into a burst, which needs more than what was in force before: it is relief.
		c.settling.relieved(now, c.inForce.CPU(), c.target)
		c.back = 0
	}
	if c.back > 0 && s.Knows(mdp.CPULimit) {
		s.Limit.CPU = c.back // what is decided goes on from there
	}
	return s, nil
}

// reconcile compares what is ours with what is in force. A value that somebody
// else gave is no longer ours. It is adopted when the API's values changed, because
// then it was the kubelet. Otherwise it is counted as a conflict. The kubelet
// always wins: until the API server's news are heard, nothing is set above its value.
func (c *managedContainer) reconcile(now time.Time, before cgroup.Limits) {
	owned := c.ownership.Ours
	// Somebody's update has lifted the limit to what the runtime knows. What is lower than ours may be the API's new limit.
	lifted := c.ownership.Behind && c.inForce.SameCPU(c.ownership.Before) && owned.Quota > 0 && c.inForce.CPU() > owned.CPU()
	set := c.sense(now, c.inForce)
	if c.ownership.State == restore.InDoubt {
		owned = c.ownership.Ours // what landed late is ours, too
	}
	adopted := set != 0 && c.strike(now)
	if (adopted && set.Has(mdp.CPULimit) || lifted) && c.task == acting {
		c.back = owned.CPU()
	}
	if !c.wrote {
		set |= cgroup.Differ(c.inForce, before).Without(owned.Sets() | c.ownership.Ours.Sets())
	}
	c.wrote = false
	says := kubelets(c.facts.Limits, c.period(c.inForce))
	if adopted && !c.facts.ResizePending && set&cgroup.Differ(c.inForce, says) == 0 {
		set, c.foreign = 0, foreign{} // it is what the API says; what else is in force is ours, and no ceiling
	}
	c.foreign.seen(now, set, c.inForce.Size(), c.facts.Settled)
	c.facts.Foreign = c.foreign.limits
}

// strike notes that somebody else has changed a limit that was ours. It was the kubelet
// when the API's limits or requests are others than when we set ours: with either of them
// it sets all limits anew. Then the new values are adopted.
func (c *managedContainer) strike(now time.Time) (adopted bool) {
	adopted = c.facts.ResizePending || c.settledThen != c.settled
	if !adopted {
		if now.Sub(c.struckAt) > c.backoff {
			c.strikes = 0 // long ago: not the same fight
		}
		c.struckAt = now
		c.conflicts++
		c.strikes++
		c.metrics.conflicts.Inc()
	}
	c.log.Info("limits changed by somebody else", "container", c.ref, "ours", c.ownership.Ours.Size(),
		"now", c.inForce.Size(), "api", c.facts.Limits, "adopted", adopted, "strikes", c.strikes)
	if c.strikes >= c.maxStrikes {
		c.leftUntil = now.Add(c.backoff)
		c.strikes = 0
	}
	return adopted
}

// forgive takes the last strike back: it was the kubelet.
func (c *managedContainer) forgive() {
	if c.leftUntil.Equal(c.struckAt.Add(c.backoff)) {
		c.leftUntil = time.Time{}
		c.strikes = c.maxStrikes
	}
	c.strikes = max(0, c.strikes-1)
}

// adopt writes the API's values into the journal when they changed while the
// container is touched.
func (c *managedContainer) adopt(now time.Time) {
	if !c.ownership.State.Touched() {
		return
	}
	if e, ok := c.journal.Get(c.id); ok && e.API != c.api() {
		_ = c.on(now, restore.Event{Kind: restore.APIChanged, API: c.api()}) // an error is in c.problem
	}
}

// restore gives the container the API's values. While a resize is pending, or somebody has
// set more than the API is known to give, it is not known which those are: then it gets the smaller
// of old and new, and its entry stays until it is known. Its memory limit is raised by at most what may be, and the rest later.
// Whether the API server gives that at this moment is asked where the journal cannot be written.
func (c *managedContainer) restore(ctx context.Context, now time.Time, most mdp.Bytes, asked func() bool) error {
	c.shut(now)
	all := c.api()
	if less(c.inForce, all) {
		c.facts.Room = c.room()
	}
	to := target{limits: c.api(), most: most, asked: asked}
	to.waiting = c.facts.ResizePending || c.foreign.brief != 0 || c.foreign.above(c.facts.Limits) || to.limits != all
	to.inUse, _ = c.sampler.inUse(c.track)
	touched := c.ownership.State.Touched()
	c.wrote = touched
	err := c.claim.restore(ctx, now, c.inForce, to)
	if touched && !c.ownership.State.Touched() {
		c.restored = to.limits.Size()
	}
	return err
}

// less reports whether a limit is below the other one.
func less(a, b cgroup.Limits) bool {
	return b.CPU() > a.CPU() && a.CPU() > 0 || b.Memory > a.Memory && a.Memory > 0
}

// bounds and knobs are the envelope's, for the guards.
func (c *managedContainer) bounds() mdp.Bounds { return c.envelope.Bounds }
func (c *managedContainer) knobs() mdp.Set     { return c.envelope.Knobs }

// backingOff reports whether the container is left alone after conflicts, and why.
func (c *managedContainer) backingOff(now time.Time) (why string, is bool) {
	if !now.Before(c.leftUntil) {
		return "", false
	}
	return fmt.Sprintf("ConflictDetected: somebody else changed its limits %d times; left alone until %s",
		c.conflicts, c.leftUntil.UTC().Format(time.RFC3339)), true
}
