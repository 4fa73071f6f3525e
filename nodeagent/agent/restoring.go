package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

// access is everything that reads or sets a container's limits: the runtime, the
// journal that is written before it is called, and the cgroup where the runtime
// does not answer.
type access struct {
	tree    *cgroup.Tree
	runtime *cri.Limiter
	journal *restore.Journal
	sampler *Sampler
	metrics *metrics
	log     *slog.Logger
}

// errPending says that a container has the API's values again, but by a direct
// write. The runtime does not know of it: its next update of the container would
// bring ours back. The entry stays in the journal until the runtime knows.
var errPending = errors.New("restored without the container runtime, which does not know yet")

// restore gives a container the API's values of the limits that are ours. A nil
// error means that it is done. A container that is gone is done.
func (a access) restore(ctx context.Context, now time.Time, e restore.Entry, inForce cgroup.Limits) error {
	back := restore.Replayed(e).Back(e.API)
	change := cri.Change{Quota: back.Quota, Period: back.Period, Memory: back.Memory}
	if change.Empty() {
		return nil
	}
	err := a.runtime.Restore(ctx, now, cri.Move{
		ID:     e.ID,
		From:   inForce.Size(),
		To:     e.API.Size(),
		Change: change,
	})
	switch {
	case err == nil:
		a.metrics.restores.Inc()
		a.log.Info("restored", "container", e.Container, "from", inForce.Size(), "to", e.API.Size())
		return nil
	case errors.Is(err, cri.ErrNoContainer):
		return nil
	}
	a.metrics.failures.Inc()
	direct := a.tree.Write(e.Path, back)
	switch {
	case errors.Is(direct, cgroup.ErrGone):
		return nil
	case direct != nil:
		return fmt.Errorf("restoring %v: %w", e.Container, errors.Join(err, direct))
	}
	return fmt.Errorf("%v: %w: %w", e.Container, errPending, err)
}

// restored is the event of a restore that ended with an error, or with none.
func restored(err error, resizePending bool) restore.EventKind {
	switch {
	case err == nil && resizePending:
		return restore.RestoredWhilePending
	case err == nil:
		return restore.RestoredByRuntime
	case errors.Is(err, errPending):
		return restore.RestoredDirectly
	}
	return restore.RestoreFailed
}

// follow takes the step of an event, and brings the journal up to it. The entry
// says which container it is. A step that is not taken leaves the ownership as it
// was; an error with another ownership is the journal's.
func (a access) follow(
	now time.Time, e restore.Entry, from restore.Ownership, event restore.Event,
) (restore.Ownership, error) {
	step, err := from.Next(event)
	if err != nil {
		a.log.Error("a fault in the agent", "container", e.Container, "err", err)
		return from, err
	}
	to := step.Ownership
	switch step.Journal {
	case restore.WriteEntry:
		e.API = to.API
		e.Ours = to.Ours
		e.Before = to.Before
		e.At = now
		err = a.journal.Put(e)
	case restore.DeleteEntry:
		err = a.journal.Delete(e.ID)
		if err == nil && to.State == restore.Released {
			return a.follow(now, e, to, restore.Event{Kind: restore.Forgotten})
		}
	}
	if err != nil && event.Kind == restore.Intend {
		return from, err
	}
	return to, err
}

// on takes the step of an event of the container.
func (c *managedContainer) on(now time.Time, event restore.Event) error {
	var err error
	c.ownership, err = c.follow(now, restore.Entry{
		ID:        c.id,
		Path:      c.path,
		Container: c.ref,
	}, c.ownership, event)
	if err != nil {
		c.problem = err.Error()
	}
	return err
}

// restore gives the container the API's values. While a resize is pending it is
// not known which those are: then it gets the smaller of old and new, and its
// entry stays until it is known.
func (c *managedContainer) restore(ctx context.Context, now time.Time) error {
	api := c.api()
	if c.ownership.State == restore.Released { // only the entry is left
		return c.on(now, restore.Event{Kind: restore.RestoredByRuntime})
	}
	if !c.ownership.ToRestore(api, c.facts.ResizePending) {
		return nil
	}
	e := restore.Entry{ID: c.id, Path: c.path, Container: c.ref, API: api, Ours: c.ownership.Ours}
	err := c.access.restore(ctx, now, e, c.inForce)
	kind := restored(err, c.facts.ResizePending)
	failed := c.on(now, restore.Event{Kind: kind, InForce: c.inForce, API: api})
	if kind == restore.RestoredByRuntime {
		if failed != nil {
			return failed
		}
		c.runtime.Forget(c.id)
	}
	return err
}

// Restore gives all containers the API's values. The error names those that the
// runtime did not take: they stay in the journal for the next agent.
func (a *Agent) Restore(ctx context.Context, now time.Time) error {
	var errs []error
	for _, c := range a.rotated() {
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
		if err := c.restore(ctx, now); err != nil {
			errs = append(errs, err)
		}
	}
	for _, e := range a.pendingRestore {
		a.retryRestore(ctx, now, e)
	}
	return errors.Join(errs...)
}

// retryRestore restores a container that is not managed, from the journal alone.
// What cannot be restored now is tried again at the next step.
func (a *Agent) retryRestore(ctx context.Context, now time.Time, e restore.Entry) {
	err := a.restoreEntry(ctx, now, e)
	if err == nil {
		delete(a.pendingRestore, e.ID)
		return
	}
	if _, known := a.pendingRestore[e.ID]; !known {
		a.log.Warn("not restored yet", "container", e.Container, "err", err)
	}
	if written, ok := a.journal.Get(e.ID); ok {
		e = written
	}
	a.pendingRestore[e.ID] = e
}

// restoreEntry restores the container of an entry. A container that is gone, or
// whose limits somebody else has set since, has nothing to restore.
func (a *Agent) restoreEntry(ctx context.Context, now time.Time, e restore.Entry) error {
	group, err := a.tree.Group(e.Path)
	if errors.Is(err, cgroup.ErrGone) {
		return a.journal.Delete(e.ID)
	}
	if err != nil {
		return err
	}
	inForce, err := group.Limits()
	group.Close()
	if err != nil {
		return err
	}
	o := restore.Replayed(e)
	if o, err = a.follow(now, e, o, o.Sensed(inForce)); err != nil {
		return err
	}
	if !o.ToRestore(e.API, false) {
		a.runtime.Forget(e.ID)
		return nil
	}
	e.Ours = o.Ours // what is foreign is not restored
	err = a.access.restore(ctx, now, e, inForce)
	_, failed := a.follow(now, e, o, restore.Event{Kind: restored(err, false), InForce: inForce, API: e.API})
	if err == nil {
		a.runtime.Forget(e.ID)
		return failed
	}
	return err
}
