package restore

import "fmt"

// State says whose a container's limits are.
type State uint8

// The states. From InDoubt to PendingRestore the container is touched: its entry
// is in the journal, and it must be restored.
const (
	// Untouched: nothing is ours, and the journal has no entry.
	Untouched State = iota
	// InDoubt: a call to the container runtime was begun, and it may still land.
	// In force is Ours, Before or API. A call that outlives its deadline lands
	// before the next one is made, because the limiter's breaker waits.
	InDoubt
	// Ours: the last call landed. In force is Ours.
	Ours
	// AwaitingResize: restored while a resize of the pod was pending, to the
	// smaller of the old and the new values. In force is Ours. The entry stays
	// until it is known what the kubelet allocates.
	AwaitingResize
	// PendingRestore: restored by a direct write. In force is Ours, which are the
	// API's values. The runtime does not know, and its next update of the
	// container can bring Before back: the runtime must still be updated.
	PendingRestore
	// Released: nothing is ours any more. The journal's entry must be deleted.
	Released
	// Ended: the container is gone.
	Ended

	states
)

var stateNames = [states]string{
	"Untouched", "InDoubt", "Ours", "AwaitingResize", "PendingRestore", "Released", "Ended",
}

func (s State) String() string {
	if s >= states {
		return "unknown state"
	}
	return stateNames[s]
}

// Touched reports whether the container must be restored.
func (s State) Touched() bool { return InDoubt <= s && s <= PendingRestore }

// Journalled reports whether the journal has an entry of the container.
func (s State) Journalled() bool { return InDoubt <= s && s <= Released }

// EventKind says what happened to a container's limits.
type EventKind uint8

// The events. All but Intend are about what has happened already.
const (
	Intend               EventKind = iota // a call is about to be made: the entry is written first
	Confirmed                             // the call succeeded
	Failed                                // the call failed; it may still land
	OursInForce                           // sensed: every limit that is ours has our value
	BeforeInForce                         // sensed: some has the value from before, or the API's
	ForeignSome                           // sensed: some has a value that somebody else gave
	ForeignAll                            // sensed: all have
	APIChanged                            // the API's values are others
	RestoredByRuntime                     // the API's values are set, and the runtime knows
	RestoredWhilePending                  // the same, but a resize is pending
	RestoredDirectly                      // the API's values are written to the cgroup, and the runtime does not know
	RestoreFailed                         // neither the runtime nor the cgroup took them
	Forgotten                             // the journal's entry is deleted
	Gone                                  // the container ended

	eventKinds
)

var eventNames = [eventKinds]string{
	"Intend", "Confirmed", "Failed", "OursInForce", "BeforeInForce", "ForeignSome", "ForeignAll", "APIChanged",
	"RestoredByRuntime", "RestoredWhilePending", "RestoredDirectly", "RestoreFailed", "Forgotten", "Gone",
}

func (k EventKind) String() string {
	if k >= eventKinds {
		return "unknown event"
	}
	return eventNames[k]
}

// IllegalError says that an event cannot happen in a state.
type IllegalError struct {
	State State
	Event EventKind
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("container limits are %v: %v cannot happen", e.State, e.Event)
}

// transitions is the next state of each state for each event. What is not in it
// cannot happen.
var transitions = [states]map[EventKind]State{
	Untouched: {
		Intend:               InDoubt,
		OursInForce:          Untouched,
		APIChanged:           Untouched,
		RestoredByRuntime:    Untouched,
		RestoredWhilePending: Untouched,
		Forgotten:            Untouched,
		Gone:                 Ended,
	},
	InDoubt: {
		Intend:               InDoubt,
		Confirmed:            Ours,
		Failed:               InDoubt,
		OursInForce:          Ours,
		BeforeInForce:        InDoubt,
		ForeignSome:          InDoubt,
		ForeignAll:           Released,
		APIChanged:           InDoubt,
		RestoredByRuntime:    Released,
		RestoredWhilePending: AwaitingResize,
		RestoredDirectly:     PendingRestore,
		RestoreFailed:        InDoubt,
		Gone:                 Ended,
	},
	Ours: {
		Intend:               InDoubt,
		OursInForce:          Ours,
		ForeignSome:          Ours,
		ForeignAll:           Released,
		APIChanged:           Ours,
		RestoredByRuntime:    Released,
		RestoredWhilePending: AwaitingResize,
		RestoredDirectly:     PendingRestore,
		RestoreFailed:        InDoubt,
		Gone:                 Ended,
	},
	AwaitingResize: {
		Intend:               InDoubt,
		OursInForce:          AwaitingResize,
		ForeignSome:          AwaitingResize,
		ForeignAll:           Released,
		APIChanged:           AwaitingResize,
		RestoredByRuntime:    Released,
		RestoredWhilePending: AwaitingResize,
		RestoredDirectly:     PendingRestore,
		RestoreFailed:        InDoubt,
		Gone:                 Ended,
	},
	PendingRestore: {
		Intend:               InDoubt,
		OursInForce:          PendingRestore,
		BeforeInForce:        PendingRestore,
		ForeignSome:          PendingRestore,
		ForeignAll:           Released,
		APIChanged:           PendingRestore,
		RestoredByRuntime:    Released,
		RestoredWhilePending: AwaitingResize,
		RestoredDirectly:     PendingRestore,
		RestoreFailed:        PendingRestore,
		Gone:                 Ended,
	},
	Released: {
		Intend:               InDoubt,
		OursInForce:          Released,
		APIChanged:           Released,
		RestoredByRuntime:    Released,
		RestoredWhilePending: Released,
		Forgotten:            Untouched,
		Gone:                 Ended,
	},
	Ended: {
		Forgotten: Ended,
		Gone:      Ended,
	},
}
