package restore

import (
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Event is something that happened, with what it is about.
type Event struct {
	Kind    EventKind
	Change  cgroup.Limits // of Intend and Raised: what is set; 0 stays as it is
	InForce cgroup.Limits // of Intend and of what is sensed: what was sensed last
	API     cgroup.Limits // of Intend and APIChanged: the API's values
	// Reach is of Intend and Widened what may be set next, for which the entry shall do, and of Confirmed what may still land.
	Reach   Span
	Foreign mdp.Set // of ForeignSome: the limits that are not ours any more; of Known: those that the runtime knows
	Returns mdp.Set // of what is sensed: the limits that were not ours any more, and are again
}

// Ownership is what of a container's limits is ours. It is a value: [Ownership.Next]
// makes the next one. The zero value is Untouched.
//
// A value in force is ours because we intended to write it, and not because it is the
// one that we wrote last: a call that missed its deadline may land much later, after
// others. So the journal has the range of what we may have written of each limit,
// from before the first call until no call can land any more. A value in that range is
// known for ours with the entry that is on disk: it is written without another one.
//
// What somebody else has written into the cgroup the runtime does not know: its next update, of
// whatever limit, brings back what was ours. So the entry stays until the runtime was told what is in
// force (Untold).
type Ownership struct {
	State  State
	Ours   cgroup.Limits // what we set; 0 is a limit that is not ours
	Before cgroup.Limits // what was in force before; with Behind what the runtime has
	API    cgroup.Limits // what is to be restored
	Wrote  Span          // what calls of ours may have set, or may still set
	Late   bool          // a call of ours failed, and may still land
	Behind bool          // Ours was written to the cgroup, and the runtime has something else
	Untold cgroup.Limits // what was ours of the limits that somebody else has set since, and the runtime may still have
}

// Journaling is what to do with the container's entry in the journal.
type Journaling uint8

// What to do.
const (
	KeepEntry Journaling = iota
	WriteEntry
	DeleteEntry
)

// Step is the result of an event.
type Step struct {
	Ownership Ownership
	Journal   Journaling
}

// Replayed is the ownership that an entry of the journal stands for. The agent that
// wrote it may have died before, during or after its call.
func Replayed(e Entry) Ownership {
	o := Ownership{State: InDoubt, Ours: e.Ours, Before: e.Before, API: e.API, Wrote: e.Wrote.With(e.Ours), Late: true}
	o.Untold = o.Wrote.Low.Only(o.Wrote.Low.Sets().Without(o.Ours.Sets())) // or another value of the range
	if o.Ours.Empty() {
		o.State = Watched
	}
	return o
}

// Next is what follows from an event. An event that cannot happen is an
// [*IllegalError], and the step keeps everything as it is.
//
// An Intend or a Widened counts only after its entry is on disk: when writing it fails,
// the step is not taken and nothing is set. A Gone counts only when the entry is deleted: it
// is tried again. Every other step is taken even when the journal fails: then the entry on disk
// is an older one of the same container, or one that is deleted at the next try.
func (o Ownership) Next(e Event) (Step, error) {
	to, legal := State(0), false
	if o.State < states {
		to, legal = transitions[o.State][e.Kind]
	}
	if !legal {
		return Step{Ownership: o}, &IllegalError{o.State, e.Kind}
	}
	next := o.with(e)
	next.State = to
	if to.Touched() && next.Ours.Empty() {
		next.State = Released // the API has no value to restore
	}
	if returns := next.Late || !next.Untold.Empty(); next.State == Released && returns {
		next.State = Watched
	} else if next.State == Watched && !returns {
		next.State = Released
	}
	switch {
	case next.State == Watched:
		next = Ownership{State: Watched, API: next.API, Wrote: next.Wrote, Late: next.Late, Untold: next.Untold}
	case !next.State.Touched():
		next = Ownership{State: next.State, API: next.API}
	}
	return Step{Ownership: next, Journal: journaling(o, next, e.Kind)}, nil
}

// with is the values after an event.
func (o Ownership) with(e Event) Ownership {
	switch e.Kind {
	case Intend:
		return o.intend(e)
	case Confirmed:
		o.Behind, o.Untold = false, cgroup.Limits{}
		if e.Reach != (Span{}) {
			o.Wrote = e.Reach.With(o.Ours)
		}
	case WrittenDirectly:
		o.Behind = o.Late || !same(o.Ours, o.Before)
	case Raised:
		o = o.raised(e)
	case Failed:
		o.Late = true
	case LateInForce:
		o.Ours = o.returned(e.InForce)
		o.Before = o.API
	case LateOver:
		o.Late = !o.Untold.Empty() // until the runtime is told it may have the value of any late call
	case OursInForce, BeforeInForce:
		o = o.regained(e)
	case ForeignSome, ForeignAll:
		o = o.lost(e.Foreign).regained(e)
	case Known:
		o.Untold = o.Untold.Only(o.Untold.Sets().Without(e.Foreign))
	case Widened:
		o.Wrote = o.Wrote.And(e.Reach)
	case APIChanged:
		o.API = e.API
	}
	return o
}

// lost is the values when somebody else has written limits into the cgroup.
func (o Ownership) lost(foreign mdp.Set) Ownership {
	has := o.Ours
	if o.Behind {
		has = o.Before
	}
	o.Untold = has.Only(foreign).With(o.Untold) // what it was not told before either, it has
	o.Ours = o.Ours.Only(o.Ours.Sets().Without(foreign))
	return o
}

// regained is the values when limits are ours again that somebody else had set.
func (o Ownership) regained(e Event) Ownership {
	o.Ours = o.Ours.With(e.InForce.Only(e.Returns))
	o.Before = o.Before.With(o.API.Only(e.Returns))
	return o
}

// raised is the values after a direct write, within the range.
func (o Ownership) raised(e Event) Ownership {
	if !o.Behind {
		o.Before = o.Ours // the runtime has it
	}
	o.Ours = o.Ours.With(e.Change)
	o.Behind = o.Late || !same(o.Ours, o.Before)
	return o
}

// same reports whether the limits that are ours are what another one has.
func same(ours, other cgroup.Limits) bool { return cgroup.Differ(ours, other)&ours.Sets() == 0 }

// intend is the values when a call is about to be made.
func (o Ownership) intend(e Event) Ownership {
	held := o.Held(e.InForce).With(e.Change)
	wrote := o.Wrote
	way := between(e.InForce, held)
	if !wrote.Covers(held) || !wrote.Covers(way.Low) || !wrote.Covers(way.High) {
		wrote = wrote.With(held).And(way).And(e.Reach)
	}
	before := e.InForce
	if o.Behind {
		before = o.Before // the runtime still has it
	}
	return Ownership{
		Ours: held, Before: before, API: e.API,
		Wrote: wrote, Late: o.Late, Behind: o.Behind, Untold: o.Untold,
	}
}

// between is what is in force on the way from one CPU limit to another where quota and period are
// written one after the other, in either order.
func between(from, to cgroup.Limits) Span {
	if from.Quota <= 0 || to.Quota <= 0 || from.Period == to.Period {
		return Span{}
	}
	one := cgroup.Limits{Quota: from.Quota, Period: to.Period}
	return Span{}.With(one).With(cgroup.Limits{Quota: to.Quota, Period: from.Period})
}

// journaling is what the step from one ownership to the next does to the entry. One
// whose range has everything that may be in force is not written again: a write is
// synced to disk.
func journaling(from, to Ownership, k EventKind) Journaling {
	switch {
	case to.State == Released, to.State == Ended && from.State.Journalled():
		return DeleteEntry
	case !to.State.Touched() && to.State != Watched:
		return KeepEntry
	case k == APIChanged, from.API != to.API, from.Wrote != to.Wrote,
		from.Ours.Sets() != to.Ours.Sets(), !to.Wrote.Covers(to.Ours):
		return WriteEntry
	}
	return KeepEntry
}

// Sensed is the event of finding these limits in force.
//
// A limit that has neither our value nor an expected one was set by somebody else.
// In InDoubt the value from before is expected, and so is the API's: the call may not
// have landed, and setting the API's value once more is harmless. When the runtime
// knows nothing of a direct write, what it knows is expected. While a call of ours may
// land late, everything that we may have written is expected.
func (o Ownership) Sensed(inForce cgroup.Limits) Event {
	e := Event{Kind: OursInForce, InForce: inForce}
	if o.State == Watched {
		if !same(o.returned(inForce), o.API) {
			e.Kind = LateInForce
		}
		return e
	}
	if !o.State.Touched() {
		return e
	}
	late := cgroup.Limits{}
	if o.Late {
		late = o.Wrote.of(inForce)
	}
	doubtful, returned := o.State == InDoubt, o.returned(inForce)
	for _, k := range cgroup.Knobs {
		before := k.Same(inForce, o.Before)
		switch {
		case !k.Has(o.Ours):
			if k.Has(returned) && !k.Same(inForce, o.API) {
				e.Returns |= mdp.SetOf(k.Signal)
			}
		case k.Same(inForce, o.Ours):
		case k.Has(late), doubtful && (before || k.Same(inForce, o.API)), o.Behind && before,
			k.Has(o.Untold) && k.Same(inForce, o.Untold):
			if e.Kind == OursInForce {
				e.Kind = BeforeInForce
			}
		default:
			e.Kind = ForeignSome
			e.Foreign |= mdp.SetOf(k.Signal)
		}
	}
	if e.Foreign != 0 && e.Foreign == o.Ours.Sets() && e.Returns == 0 {
		e.Kind = ForeignAll
	}
	return e
}

// KnownBy is the limits of Untold that the runtime knows, when it was told these last: what it has is in force, or was never
// ours. Who sets limits through the runtime, as the kubelet does, has told it.
func (o Ownership) KnownBy(told, inForce cgroup.Limits) mdp.Set {
	had := o.Untold
	if o.Late {
		had = o.Wrote.of(told)
	}
	var known mdp.Set
	for _, k := range cgroup.Knobs {
		if k.Has(o.Untold) && (k.Same(inForce, told) || !k.Has(had) || !k.Same(told, had)) {
			known |= mdp.SetOf(k.Signal)
		}
	}
	return known
}

// returned is those limits in force that were ours, and are again: by a call that landed late, or since
// the runtime did not know what somebody else had set.
func (o Ownership) returned(inForce cgroup.Limits) cgroup.Limits {
	if o.Late {
		return o.Wrote.of(inForce)
	}
	return o.Untold.Only(o.Untold.Sets().Without(cgroup.Differ(inForce, o.Untold)))
}

// Held is what is ours of the limits in force: where our value is not in force
// yet, the value that is.
func (o Ownership) Held(inForce cgroup.Limits) cgroup.Limits {
	held := o.Ours
	for _, k := range cgroup.Knobs {
		if k.Has(held) && !k.Same(inForce, held) {
			k.Copy(&held, inForce)
		}
	}
	return held
}

// Back is what a restore sets: the API's values of the limits that are ours.
func (o Ownership) Back(api cgroup.Limits) cgroup.Limits { return api.Only(o.Ours.Sets() & api.Sets()) }
