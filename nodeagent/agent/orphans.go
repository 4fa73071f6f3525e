package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

// adopt makes orphans of what an earlier agent left in the journal.
func (a *Agent) adopt(now time.Time) {
	for id, e := range a.journal.Entries() {
		a.orphans[id] = a.access.adopted(now, e)
	}
}

// askingIn is how long the API server may be asked for pods in one step, all together:
// a step must not take longer than the agent may be silent.
const askingIn = 2 * time.Second

// retry goes on with the restores of containers that are not managed: their entry is
// in the journal, and what cannot be done now is tried again at the next step.
func (a *Agent) retry(ctx context.Context, now time.Time) {
	if len(a.orphans) == 0 {
		return
	}
	asking, cancel := context.WithTimeout(ctx, askingIn)
	defer cancel()
	for id, c := range a.orphans {
		err := a.restoreOrphan(ctx, asking, now, c)
		why := ""
		if err != nil {
			why = err.Error()
		}
		if why != "" && why != c.problem {
			a.log.Warn("not restored yet", "container", c.ref, "err", err)
		}
		c.problem = why
		if !c.ownership.State.Journalled() {
			delete(a.orphans, id)
			a.runtime.Forget(id)
		}
	}
}

// restoreOrphan restores a container that is not managed. A container that is gone, or
// whose limits somebody else has set since, has nothing to restore.
func (a *Agent) restoreOrphan(ctx, asking context.Context, now time.Time, c *claim) error {
	inForce, used, err := a.measure(c.path)
	if errors.Is(err, cgroup.ErrGone) {
		return c.on(now, restore.Event{Kind: restore.Gone})
	}
	if err != nil {
		return err
	}
	c.sense(now, inForce)
	if s := c.ownership.State; !s.Touched() && s != restore.Released {
		return c.tell(ctx, now, inForce)
	}
	to, err := a.targetOf(asking, now, c, inForce)
	if err != nil {
		return err
	}
	to.inUse, to.most = used, anyMemory
	to.asked = func() bool { return a.gives(asking, now, c.ref, to.limits.Size()) }
	return c.restore(ctx, now, inForce, to)
}

// measure reads a group's limits, and the memory in use; 0 is not known.
func (a *Agent) measure(path string) (l cgroup.Limits, used mdp.Bytes, err error) {
	group, err := a.tree.Group(path)
	if err != nil {
		return l, 0, err
	}
	defer group.Close()
	if l, err = group.Limits(); err != nil {
		return l, 0, err
	}
	var u cgroup.Usage
	if err = group.Read(&u); err != nil {
		return l, 0, err
	}
	return l, u.WorkingSet, nil
}

// targetOf is what the restore of an orphan is to bring about. That is what the API
// has now. While that is not known it is what the journal says, as far as the pod's
// own group has room for it, and only upwards: the journal may be old.
func (a *Agent) targetOf(asking context.Context, now time.Time, c *claim, inForce cgroup.Limits) (target, error) {
	period := c.period(inForce)
	limits, waiting, err := a.live(asking, now, c)
	if err == nil {
		return target{limits: kubelets(limits, period), waiting: waiting}, nil
	}
	room, roomErr := a.tree.Room(c.path, func(path string) cgroup.Limits {
		for _, other := range a.orphans {
			if other.path == path {
				return other.ownership.API
			}
		}
		return cgroup.Limits{}
	})
	if roomErr != nil {
		return target{}, errors.Join(err, roomErr)
	}
	was := c.ownership.API.Size()
	return target{
		limits: kubelets(mdp.Size{
			CPU:    upTo(inForce.CPU(), was.CPU, room.CPU),
			Memory: upTo(inForce.Memory, was.Memory, room.Memory),
		}, period),
		waiting: true,
	}, nil
}

// upTo is a limit as the journal has it, as far as there is room, and not below what is
// in force. Without a limit of the pod it is not known how far: what is in force stays.
func upTo[T ~int64](inForce, journal, room T) T { return max(inForce, min(journal, room)) }

// errUnknown says that the API server has not said what a container has.
var errUnknown = errors.New("the API server has not answered yet")

// live is what the API gives a container now, and whether that is still to change.
func (a *Agent) live(asking context.Context, now time.Time, c *claim) (limits mdp.Size, waiting bool, err error) {
	if !a.deps.Pods.Synced() {
		return mdp.Size{}, false, errUnknown
	}
	pod, known := a.pods()[c.ref.PodUID]
	if !known {
		// Its owner opted out: it is not watched any more.
		if now.Before(a.askAfter) {
			return mdp.Size{}, false, errUnknown
		}
		if pod, err = a.deps.Pods.Find(asking, c.ref); err != nil {
			if !errors.Is(err, ErrNoPod) { // then its group ends, too
				a.askAfter = now.Add(retryEvery)
			}
			return mdp.Size{}, false, err
		}
	}
	for _, one := range pod.Containers {
		if one.Name != c.ref.Container {
			continue
		}
		limits = one.Limits
		if one.ResizePending { // what was allocated before, or what will be: the smaller one
			was := c.ownership.API.Size()
			limits = mdp.Size{CPU: min(limits.CPU, was.CPU), Memory: min(limits.Memory, was.Memory)}
		}
		return limits, one.ResizePending, nil
	}
	return mdp.Size{}, false, fmt.Errorf("pod %s/%s has no container %s", c.ref.Namespace, c.ref.Pod, c.ref.Container)
}

// confirm asks the API server what it gives a container for which somebody has set more than what is known, once in a while until
// it answers. The kubelet sets nothing before the API server has it, so what is still the same then was somebody else's.
func (a *Agent) confirm(ctx context.Context, now time.Time, c *managedContainer) {
	if !c.ownership.State.Touched() || !c.foreign.above(c.facts.Limits) || now.Before(a.askAfter) {
		return // what was asked before stands
	}
	c.foreign.asked = a.gives(ctx, now, c.ref, c.facts.Limits)
}

// gives asks the API server whether it gives a container these limits, and is about to give no others. A pod that is gone
// has what it had: its group ends, too. While the API server has just said something else, or nothing, it is not asked.
func (a *Agent) gives(ctx context.Context, now time.Time, ref api.ContainerRef, l mdp.Size) bool {
	if now.Before(a.askAfter) {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, askingIn)
	defer cancel()
	pod, err := a.deps.Pods.Find(asking, ref)
	gives := errors.Is(err, ErrNoPod)
	for _, one := range pod.Containers {
		if one.Name == ref.Container {
			gives = !one.ResizePending && one.Limits == l
		}
	}
	if !gives {
		a.askAfter = now.Add(retryEvery)
	}
	return gives
}

// kubelets is a size in the form in which the kubelet writes it.
func kubelets(size mdp.Size, period int64) cgroup.Limits {
	l := cgroup.Limits{Quota: cgroup.Quota(size.CPU, period), Memory: size.Memory}
	if l.Quota > 0 {
		l.Period = period
	}
	return l
}

// disown keeps the claim of a container that is no longer managed, until nothing of it
// is left to do.
func (a *Agent) disown(c *claim) {
	if c.ownership.State.Journalled() {
		a.orphans[c.id] = c
	}
}

// Restore gives all containers the API's values. The error names those that the
// runtime did not take: they stay in the journal for the next agent.
func (a *Agent) Restore(ctx context.Context, now time.Time) error {
	var errs []error
	for _, c := range a.rotated() {
		c.ends = true
		if err := ctx.Err(); err != nil && c.ownership.State.Journalled() {
			errs = append(errs, fmt.Errorf("restoring %v: %w", c.ref, err))
			continue
		}
		// The container is sensed once more. What the kubelet has written since is
		// not ours to restore, and may be newer than what the agent knows of the
		// API: at an uninstall both happen at once.
		if _, err := c.Sense(ctx, now); errors.Is(err, cgroup.ErrGone) {
			a.detach(c)
			continue
		}
		a.confirm(ctx, now, c)
		if err := c.restore(ctx, now, anyMemory, nil); err != nil { // nobody would go on later
			errs = append(errs, err)
		}
		c.foreignAt = time.Time{} // nobody would tell the runtime later
		if err := c.tell(ctx, now, c.inForce); err != nil {
			errs = append(errs, err)
		}
	}
	for _, c := range a.orphans {
		c.foreignAt, c.ends = time.Time{}, true
	}
	a.retry(ctx, now)
	return errors.Join(errs...)
}
