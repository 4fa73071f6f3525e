package agent

import (
	"fmt"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
)

// order is what central's grants come to for one container now.
type order struct {
	mode    api.Mode  // in force
	listed  bool      // central granted something
	grant   api.Grant // meaningful when listed
	act     bool      // the policy's actions are carried out
	paused  bool      // neither moved nor restored
	problem string    // why there is no grant
}

// grants is central's last message.
type grants struct {
	byContainer map[api.ContainerRef]api.Grant
	receivedAt  time.Time     // zero before the first message
	ttl         time.Duration // how long they hold without a new message
	permit      permit
}

// permit is the permit that the node has taken in last.
type permit struct {
	api.Permit
	until time.Time // it holds
}

// then is the permit after another one has come, which holds until that time. When none
// has come the one before goes on to its end.
func (p permit) then(until time.Time, next api.Permit) permit {
	if now := p.Then(next); now != p.Permit {
		return permit{now, until}
	}
	return p
}

// permitted is the permit that holds; zero is none.
func (g grants) permitted(now time.Time) api.Permit {
	if now.After(g.permit.until) {
		return api.Permit{}
	}
	return g.permit.Permit
}

// newGrants takes in a message.
func newGrants(now time.Time, m api.Grants) grants {
	g := grants{byContainer: make(map[api.ContainerRef]api.Grant, len(m.All)), receivedAt: now, ttl: m.TTL}
	for _, one := range m.All {
		g.byContainer[one.Container] = one
	}
	g.permit = permit{}.then(now.Add(m.TTL), m.Permit)
	return g
}

// keep resolves the grants that only say to keep what the set before them has. When
// that one has ended, or has none for the container, there is none. The permit of before
// holds, too, unless there is a new one.
func (g grants) keep(now time.Time, before grants) grants {
	g.permit = before.permit.then(g.permit.until, g.permit.Permit)
	holds := !before.receivedAt.IsZero() && now.Sub(before.receivedAt) <= before.ttl
	for ref, one := range g.byContainer {
		if !one.Keep {
			continue
		}
		if last, listed := before.byContainer[ref]; listed && holds {
			g.byContainer[ref] = last
		} else {
			delete(g.byContainer, ref)
		}
	}
	return g
}

// order is what the grants allow for one container. Without a message that still
// holds, it is to observe.
func (g grants) order(now time.Time, ref api.ContainerRef) order {
	if g.receivedAt.IsZero() {
		return order{mode: api.Observe, problem: "waiting for central: no grant was ever received"}
	}
	if silent := now.Sub(g.receivedAt); silent > g.ttl {
		return order{mode: api.Observe, problem: fmt.Sprintf(
			"central has been silent for %v and its grants held for %v: API values are in force",
			silent.Round(time.Second), g.ttl)}
	}
	grant, listed := g.byContainer[ref]
	if !listed {
		return order{mode: api.Observe}
	}
	return order{
		mode:   grant.Mode,
		listed: true,
		grant:  grant,
		act:    !grant.Paused && grant.Mode == api.Auto,
		paused: grant.Paused,
	}
}

// task is what a step does with a container's limits.
type task uint8

// The tasks. Restoring is the default: it sets the API's values.
const (
	restoring  task = iota
	acting          // the policy's action is carried out
	pausing         // the owner holds what is in force
	backingOff      // after conflicts, what is in force is held
)

// task is what an order comes to for a container that is left alone for that
// reason, or backed off from. A container that is backed off from is held as long
// as its grant is to act: what is ours of its limits is right.
func (o order) task(left envelope.Reason, conflict bool) task {
	switch {
	case o.paused:
		return pausing
	case o.act && conflict:
		return backingOff
	case o.act && left == "":
		return acting
	}
	return restoring
}

// afterPolicyFailure is the task when the policy gave no legal action.
func (t task) afterPolicyFailure() task {
	if t == backingOff {
		return t
	}
	return restoring
}
