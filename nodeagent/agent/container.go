package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/restore"
)

// hands are what reaches a container's limits: the runtime, the journal before it, and the cgroup where the runtime
// is away.
type access struct {
	tree    *cgroup.Tree
	runtime *cri.Limiter
	journal *restore.Journal
	sampler *Sampler
	metrics *metrics
	log     *slog.Logger
}

// errOwed says that a container has its own values again, but by a direct write that the runtime does not know of:
// its next update of the container would bring ours back. It stays in the journal until the runtime was told.
var errPending = errors.New("put back past the container runtime, which has yet to be told")

// putBack gives a container the API values of the fields that we touched. A nil error means that it is done, and may
// be forgotten. A container that is gone is done.
func (h access) restore(ctx context.Context, now time.Time, e restore.Entry, inForce cgroup.Limits) error {
	back := cri.Change{}
	if e.Ours.Quota > 0 && e.API.Quota > 0 {
		back.Quota, back.Period = e.API.Quota, e.API.Period
	}
	if e.Ours.Memory > 0 && e.API.Memory > 0 {
		back.Memory = e.API.Memory
	}
	if !back.Empty() {
		err := h.runtime.Restore(ctx, now, cri.Move{ID: e.ID, From: inForce.Size(), To: e.API.Size(), Change: back})
		if err != nil && !errors.Is(err, cri.ErrNoContainer) {
			h.metrics.failures.Inc()
			direct := h.tree.Write(e.Path, cgroup.Limits{Quota: back.Quota, Period: back.Period, Memory: back.Memory})
			switch {
			case errors.Is(direct, cgroup.ErrGone):
			case direct != nil:
				return fmt.Errorf("putting %v back: %w", e.Container, errors.Join(err, direct))
			default:
				return fmt.Errorf("%v: %w: %w", e.Container, errPending, err)
			}
		} else if err == nil {
			h.metrics.restores.Inc()
			h.log.Info("put back", "container", e.Container, "from", inForce.Size(), "to", e.API.Size())
		}
	}
	return nil
}

// still tells which of a journal entry's fields are ours to put back: those that have the value that we gave them,
// were about to give, or found; the others are somebody else's now, or were never touched. It returns the entry with
// only those. A field that has its API value counts too: the runtime may have a call of the dead agent in its hands
// still, or know nothing of a direct write, and telling it the API value once more is harmless.
func still(e restore.Entry, inForce cgroup.Limits) restore.Entry {
	ours := func(same func(cgroup.Limits) bool) bool { return same(e.Ours) || same(e.Before) || same(e.API) }
	if e.Ours.Quota > 0 && !ours(inForce.SameCPU) {
		e.Ours.Quota = 0
	}
	if e.Ours.Memory > 0 && !ours(inForce.SameMemory) {
		e.Ours.Memory = 0
	}
	return e
}

// resident is one running container: the Sensor and the Actuator of its Loop. It is used by the goroutine that steps.
type managedContainer struct {
	access
	ref   api.ContainerRef
	id    string
	path  string
	track *Track

	facts    envelope.Container
	envelope envelope.Envelope
	inForce  cgroup.Limits // at the last Sense
	killed   bool          // the instance before was killed for memory, and the policy has not been told
	kills    int           // in the last 15 s

	ours           cgroup.Limits // what we set; 0 is a field that is not ours
	before         cgroup.Limits // what was there before, while it is unsure which of the two is in force
	inDoubt        bool
	pendingRestore bool          // put back by a direct write; the runtime, which has before, is to be told
	setWith        cgroup.Limits // the API's when we set ours
	touched        bool          // it is in the journal

	resizes, conflicts uint64
	strikes            int // conflicts since the last backoff
	limit              int // of strikes
	backoff            time.Duration
	until              time.Time // left alone until then
	node               mdp.State // the node's own pressure, where the kernel keeps none per container
	problem            string    // of the last Sense or Act
	policy             mdp.Policy
	acts               bool // the last step's actions were carried out
	loop               mdp.Loop
	captain            interface{ Retarget(mdp.Ratio) } // nil when the policy has no target
}

// api is what the API's limits are to the cgroup: as the kubelet writes them. While a resize is pending it is the
// smaller of old and new, which is allocated whatever the kubelet has done of it already.
func (r *managedContainer) api() cgroup.Limits {
	size := r.facts.Ceiling()
	period := r.inForce.Period
	if period <= 0 {
		period = 100000 // the kubelet's own default
	}
	return cgroup.Limits{Quota: cgroup.Quota(size.CPU, period), Period: period, Memory: size.Memory}
}

// Sense reads the container. A limit that is not what we set is somebody else's doing, and is found here.
func (r *managedContainer) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	s, limits, kills, err := r.sampler.Look(r.track, now)
	if err != nil {
		return mdp.State{}, err
	}
	r.inForce, r.kills = limits, kills
	if r.killed {
		// The kill took its cgroup, and the count in it, away.
		r.killed = false
		s.OOMKills++
		s.Observed |= mdp.SetOf(mdp.OOMKills)
	}
	// Node-wide CPU and I/O contention is the container's too. Node-wide memory stalls are not: a policy would give
	// memory to whoever is there.
	if !s.Knows(mdp.CPUPressure) && r.node.Knows(mdp.CPUPressure) {
		s.CPUPressure = r.node.CPUPressure
		s.Observed |= mdp.SetOf(mdp.CPUPressure)
	}
	if !s.Knows(mdp.IOPressure) && r.node.Knows(mdp.IOPressure) {
		s.IOPressure = r.node.IOPressure
		s.Observed |= mdp.SetOf(mdp.IOPressure)
	}
	r.reconcile(now)
	return s, nil
}

// reconcile compares what we set with what is in force. Values that somebody else gave are no longer ours: adopted
// when the API's values changed, for then it was the kubelet, and counted otherwise. The kubelet always wins.
func (r *managedContainer) reconcile(now time.Time) {
	if !r.touched {
		return
	}
	var foreign mdp.Set
	if r.ours.Quota > 0 && !r.inForce.SameCPU(r.ours) {
		if (r.inDoubt || r.pendingRestore) && r.inForce.SameCPU(r.before) {
			r.ours.Quota, r.ours.Period = r.inForce.Quota, r.inForce.Period
		} else {
			foreign |= mdp.SetOf(mdp.CPULimit)
		}
	}
	if r.ours.Memory > 0 && !r.inForce.SameMemory(r.ours) {
		if (r.inDoubt || r.pendingRestore) && r.inForce.SameMemory(r.before) {
			r.ours.Memory = r.inForce.Memory
		} else {
			foreign |= mdp.SetOf(mdp.MemoryLimit)
		}
	}
	r.inDoubt = false
	if foreign == 0 {
		return
	}
	adopted := r.facts.ResizePending || r.setWith != r.api()
	if !adopted {
		r.conflicts++
		r.strikes++
		r.metrics.conflicts.Inc()
	}
	r.log.Info("limits changed by somebody else", "container", r.ref, "ours", r.ours.Size(), "now", r.inForce.Size(),
		"api", r.facts.Limits, "adopted", adopted, "strikes", r.strikes)
	if foreign.Has(mdp.CPULimit) {
		r.ours.Quota, r.ours.Period = 0, 0
	}
	if foreign.Has(mdp.MemoryLimit) {
		r.ours.Memory = 0
	}
	if r.strikes >= r.limit {
		r.until, r.strikes = now.Add(r.backoff), 0
	}
	r.remember(now, r.ours, r.ours)
}

// adopt writes the API's values into the journal when they changed while the container is touched.
func (r *managedContainer) adopt(now time.Time) {
	if !r.touched {
		return
	}
	if e, ok := r.journal.Get(r.id); ok && e.API != r.api() {
		r.remember(now, r.ours, e.Before)
	}
}

// remember brings the journal up to what is ours; with nothing ours the container is forgotten.
func (r *managedContainer) remember(now time.Time, ours, before cgroup.Limits) bool {
	var err error
	if ours.Quota <= 0 && ours.Memory <= 0 {
		if err = r.journal.Delete(r.id); err == nil {
			r.touched = false
		}
	} else {
		err = r.journal.Put(restore.Entry{ID: r.id, Path: r.path, Container: r.ref, API: r.api(), Ours: ours, Before: before, At: now})
		r.touched = r.touched || err == nil
	}
	if err != nil {
		r.problem = err.Error()
	}
	return err == nil
}

// page is what the kernel keeps memory limits in.
const page mdp.Bytes = 4096

// aboveUse is how much of the memory in use a limit must at least be, whoever asks: below it the kernel kills.
const aboveUse = 1.05

// Act implements [mdp.Actuator]: it carries out the part of an Action that is in the container's envelope.
func (r *managedContainer) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	fail := func(err error) (mdp.Action, mdp.Effect, error) { return mdp.Action{}, mdp.Failed, err }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := a.Check(); err != nil {
		return fail(err)
	}
	a = r.envelope.Bounds.Clip(a.Only(r.envelope.Knobs))
	var executed mdp.Action
	move := cri.Move{ID: r.id, From: r.inForce.Size()}
	ours := r.ours
	if period := r.inForce.Period; a.Sets.Has(mdp.CPULimit) && period > 0 && r.inForce.Quota > 0 {
		quota := cgroup.Quota(a.Limit.CPU, period)
		executed = executed.WithCPU(a.Limit.CPU)
		// Compared with what we asked for: systemd rounds that up to 10 ms per second.
		asked := r.inForce.Quota
		if r.ours.Quota > 0 {
			asked = r.ours.Quota
		}
		if quota != asked {
			move.To.CPU, move.Change.Quota, move.Change.Period = a.Limit.CPU, quota, period
			ours.Quota, ours.Period = quota, period
			move.Must = move.Must || move.From.CPU > r.envelope.Bounds.CPU.Max
		}
	}
	refused := false
	if a.Sets.Has(mdp.MemoryLimit) && r.inForce.Memory > 0 {
		limit := (a.Limit.Memory + page - 1) / page * page
		limit = min(limit, r.envelope.Bounds.Memory.Max)
		switch {
		case r.inForce.SameMemory(cgroup.Limits{Memory: limit}):
			executed = executed.WithMemory(limit)
		case limit < r.inForce.Memory && !r.spares(now, limit):
			refused = true
		default:
			executed = executed.WithMemory(limit)
			move.To.Memory, move.Change.Memory = limit, limit
			ours.Memory = limit
			move.Must = move.Must || move.From.Memory > r.envelope.Bounds.Memory.Max
		}
	}
	if move.Change.Empty() {
		if refused {
			return mdp.Action{}, mdp.Refused, nil
		}
		return executed, mdp.Unchanged, nil
	}
	// Asked first, so that what is refused costs no write to the journal.
	if err := r.runtime.Allowed(now, move); err != nil {
		if errors.Is(err, cri.ErrOpen) {
			r.problem = err.Error()
		}
		return mdp.Action{}, mdp.Refused, nil
	}
	if !r.remember(now, ours, r.inForce) {
		return fail(errors.New(r.problem))
	}
	r.before, r.setWith = r.inForce, r.api()
	r.ours, r.pendingRestore = ours, false
	if err := r.runtime.Update(ctx, now, move); err != nil {
		r.inDoubt = true
		return fail(err)
	}
	r.resizes++
	return executed, mdp.Applied, nil
}

// spares tells whether a memory limit leaves room for what is in use.
func (r *managedContainer) spares(now time.Time, limit mdp.Bytes) bool {
	use, known := r.sampler.inUse(r.track)
	return known && float64(limit) >= float64(use)*aboveUse
}

// putBack gives the container its API values. While a resize is pending it is not known which those are: then it gets
// the smaller of old and new, and is not forgotten until it is known.
func (r *managedContainer) restore(ctx context.Context, now time.Time) error {
	if !r.touched {
		return nil
	}
	api := r.api()
	back := keepTouched(r.ours, api)
	if r.facts.ResizePending && r.ours == back && !r.inDoubt && !r.pendingRestore {
		return nil
	}
	err := r.access.restore(ctx, now, restore.Entry{ID: r.id, Path: r.path, Container: r.ref, API: api, Ours: r.ours}, r.inForce)
	switch {
	case err == nil && r.facts.ResizePending:
		r.before, r.setWith, r.ours, r.inDoubt, r.pendingRestore = r.ours, api, back, false, false
		r.remember(now, r.ours, r.before)
	case err == nil:
		r.ours, r.inDoubt, r.pendingRestore = cgroup.Limits{}, false, false
		if !r.remember(now, r.ours, r.ours) {
			return errors.New(r.problem)
		}
		r.runtime.Forget(r.id)
	case errors.Is(err, errPending):
		// Ours are the API's values now, until the runtime is told.
		if !r.pendingRestore || r.ours != back {
			r.before, r.ours, r.pendingRestore, r.inDoubt = r.ours, back, true, false
			r.remember(now, r.ours, r.before)
		}
	default:
		r.before, r.inDoubt = r.inForce, true
	}
	return err
}

// bounds and knobs are the envelope's, for the guards.
func (r *managedContainer) bounds() mdp.Bounds { return r.envelope.Bounds }
func (r *managedContainer) knobs() mdp.Set     { return r.envelope.Knobs }

// backingOff tells whether the container is left alone, and why.
func (r *managedContainer) backingOff(now time.Time) (string, bool) {
	if !now.Before(r.until) {
		return "", false
	}
	return fmt.Sprintf("ConflictDetected: somebody else changed its limits %d times; left alone until %s",
		r.conflicts, r.until.UTC().Format(time.RFC3339)), true
}
