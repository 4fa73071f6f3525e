package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/restore"
)

// retryEvery is how long after a container could not be attached it is tried again.
const retryEvery = 5 * time.Second

// absence is a container that could not be attached.
type absence struct {
	id    string    // of the instance
	why   string    // for people
	retry time.Time // when it is tried again
}

// refresh brings the managed containers up to the pods: new containers are
// attached, and those that are no longer opted in are restored.
func (a *Agent) refresh(ctx context.Context, now time.Time) {
	if !a.deps.Pods.Synced() {
		return // nothing is known of any pod, least of all that it is gone
	}
	seen := make(map[api.ContainerRef]bool)
	for _, p := range a.deps.Pods.Snapshot() {
		for _, one := range p.Containers {
			ref := api.ContainerRef{Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID, Container: one.Name}
			seen[ref] = true
			c := a.containers[ref]
			if c != nil && (c.id != one.ID || !one.Running) {
				// A new instance starts from the allocated values: nothing of the old
				// one is to be restored.
				a.detach(c)
				c = nil
			}
			if c == nil {
				c = a.tryAttach(ctx, now, ref, one)
			}
			if c != nil {
				c.update(now, p, one)
			}
		}
	}
	for ref, c := range a.containers {
		if !seen[ref] {
			a.release(now, c)
		}
	}
	for ref := range a.absent {
		if !seen[ref] {
			delete(a.absent, ref)
		}
	}
	for ref := range a.totals {
		if !seen[ref] {
			delete(a.totals, ref)
			delete(a.oomSeen, ref)
		}
	}
}

// update takes in what the API says of the container now.
func (c *managedContainer) update(now time.Time, p Pod, one Container) {
	settled := c.facts.Settled
	if !one.ResizePending {
		settled = one.Limits
		c.settled = asked{one.Limits, one.Requests}
		if c.foreign.heard(now, one.Limits) {
			c.forgive()
		}
	}
	c.others = p.others(one.Name)
	c.ip, c.hostNetwork = p.IP, p.HostNetwork
	c.facts = envelope.Container{
		Namespace:     p.Namespace,
		QoS:           p.QoS,
		Kind:          one.Kind,
		PodDeleting:   p.Deleting,
		Mirror:        p.Mirror,
		ExclusiveCPUs: one.ExclusiveCPUs,
		Requests:      one.Requests,
		Settled:       settled,
		Limits:        one.Limits,
		ResizePending: one.ResizePending,
		Foreign:       c.foreign.limits,
	}
	if ceiling, top := c.facts.Ceiling(), c.top(); ceiling.CPU < top.CPU() || ceiling.Memory/page < top.Memory/page {
		c.sampler.Shut(c.track) // until the next step, which knows the new one
	}
}

// tryAttach attaches a container, or remembers why that was not possible.
func (a *Agent) tryAttach(ctx context.Context, now time.Time, ref api.ContainerRef,
	one Container) *managedContainer {
	absent := func(err error) {
		a.absent[ref] = absence{id: one.ID, why: err.Error(), retry: now.Add(retryEvery)}
	}
	switch was, known := a.absent[ref]; {
	case one.Kind != envelope.Regular:
		absent(fmt.Errorf("left alone: %s", envelope.NotRegular))
		return nil
	case !one.Running || one.ID == "":
		absent(errors.New("it is not running"))
		return nil
	case known && was.id == one.ID && now.Before(was.retry):
		return nil
	case now.Before(a.retryAfter):
		absent(errors.New("the container runtime does not answer"))
		return nil
	}
	c, err := a.attach(ctx, now, ref, one)
	if err != nil {
		absent(err)
		return nil
	}
	delete(a.absent, ref)
	a.containers[ref] = c
	return c
}

// attach finds a container's group, and makes its loop.
func (a *Agent) attach(
	ctx context.Context, now time.Time, ref api.ContainerRef, one Container,
) (*managedContainer, error) {
	bounded, cancel := context.WithTimeout(ctx, a.config.Runtime.Deadline)
	defer cancel()
	found, err := a.client.Container(bounded, one.ID)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cri.ErrUnavailable) {
		a.retryAfter = now.Add(retryEvery) // one deadline for all containers, not one for each
	}
	if err != nil {
		return nil, err
	}
	path, err := a.tree.Path(found.CgroupsPath)
	if err != nil {
		return nil, err
	}
	group, err := a.tree.Group(path)
	if err != nil {
		return nil, err
	}
	inForce, err := group.Limits()
	if err != nil {
		group.Close()
		return nil, err
	}
	c := a.newContainer(now, ref, one, group, inForce)
	c.net, c.pid = a.trafficOf(ref.PodUID), found.PID
	a.log.Info("attached", "container", ref, "id", one.ID, "cgroup", path, "limits", inForce.Size())
	return c, nil
}

// newContainer makes the managed container of a group.
func (a *Agent) newContainer(
	now time.Time, ref api.ContainerRef, one Container, group *cgroup.Group, inForce cgroup.Limits,
) *managedContainer {
	c := &managedContainer{
		claim:      claim{access: a.access, ref: ref, id: one.ID, path: group.Path()},
		track:      a.sampler.Add(group),
		facts:      envelope.Container{Settled: inForce.Size()},
		inForce:    inForce,
		maxStrikes: a.config.Conflicts,
		backoff:    a.config.Backoff,
	}
	if killed := one.OOMKilled; killed.After(a.oomSeen[ref]) {
		a.oomSeen[ref] = killed
		c.oomKilled = now.Sub(killed) < a.config.Memory.AfterOOM
	}
	if orphan, ok := a.orphans[one.ID]; ok {
		// An agent before this one touched it, or it was opted out and in again.
		c.claim = *orphan
		delete(a.orphans, one.ID)
	}
	if a.deps.Policy != nil {
		p := a.deps.Policy(ref)
		c.policy.Policy = p
		c.policy.captain, _ = p.(targeted)
	} else {
		c.policy = byRule(a.config, c.rule)
	}
	c.loop = mdp.Loop{Sensor: c, Actuator: idle{}, Policy: a.guarded(c)}
	return c
}

// detach ends an instance that is gone.
func (a *Agent) detach(c *managedContainer) {
	if err := c.on(time.Time{}, restore.Event{Kind: restore.Gone}); err != nil {
		a.log.Warn("journal", "err", err)
		a.disown(&c.claim) // its entry is deleted later
	}
	a.runtime.Forget(c.id)
	a.sampler.Remove(c.track)
	t := a.totals[c.ref]
	t.Resizes += c.resizes
	t.Conflicts += c.conflicts
	a.totals[c.ref] = t
	c.resizes = 0
	c.conflicts = 0
	delete(a.containers, c.ref)
}

// release lets go of a container whose pod is deleted or no longer opted in: it is an
// orphan from now on, which the next step restores. Its group may be gone, which is as
// good.
func (a *Agent) release(now time.Time, c *managedContainer) {
	c.shut(now)
	a.disown(&c.claim)
	a.sampler.Remove(c.track)
	delete(a.containers, c.ref)
}
