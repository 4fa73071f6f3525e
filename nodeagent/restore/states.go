package restore

import "fmt"

// State says whose a container's limits are.
type State uint8

// The states. InDoubt and Ours are touched: the container must be restored.
const (
	// Untouched: nothing is ours, and the journal has no entry.
	Untouched State = iota
	// InDoubt: what is in force is not known to be what the last call set: the call
	// was begun, it failed, or an older one landed after it. In force is Ours, Before,
	// API, or a value that an older call was to set.
	InDoubt
	// Ours: in force is Ours.
	Ours
	// Watched: nothing of ours is in force, but may be again: a call of ours that failed may still
	// land, or the runtime does not know what somebody else has set. The entry stays until
	// that is over.
	Watched
	// Released: nothing is ours any more. The journal's entry must be deleted.
	Released
	// Ended: the container is gone.
	Ended

	states
)

var stateNames = [states]string{
	"Untouched", "InDoubt", "Ours", "Watched", "Released", "Ended",
}

func (s State) String() string {
	if s >= states {
		return "unknown state"
	}
	return stateNames[s]
}

// Touched reports whether the container must be restored.
func (s State) Touched() bool { return s == InDoubt || s == Ours }

// Journalled reports whether the journal has an entry of the container.
func (s State) Journalled() bool { return InDoubt <= s && s <= Released }

// EventKind says what happened to a container's limits.
type EventKind uint8

// The events. All but Intend and Widened are about what has happened already.
const (
	Intend          EventKind = iota // a write is about to be made: the entry is written first
	Confirmed                        // the runtime has made it, and was told of all that is Untold
	WrittenDirectly                  // the cgroup has the values, and the runtime does not know
	Widened                          // more may be set from now on: the entry is written first
	Raised                           // the sampler has raised limits directly; the runtime does not know
	Failed                           // the call failed; it may still land
	OursInForce                      // sensed: every limit that is ours has our value
	BeforeInForce                    // sensed: some has the value from before, the API's, or that of an older call
	LateInForce                      // sensed: what was ours is in force again, after all was restored or set by somebody else
	ForeignSome                      // sensed: some has a value that somebody else gave
	ForeignAll                       // sensed: all have
	Known                            // the runtime knows limits that were Untold, by calls of somebody else
	APIChanged                       // the API's values are others
	Restored                         // the API's values are in force, and the runtime knows
	LateOver                         // a call that failed can land no more; what is in force is known
	Forgotten                        // the journal's entry is deleted
	Gone                             // the container ended

	eventKinds
)

var eventNames = [eventKinds]string{
	"Intend", "Confirmed", "WrittenDirectly", "Widened", "Raised", "Failed",
	"OursInForce", "BeforeInForce", "LateInForce", "ForeignSome",
	"ForeignAll", "Known", "APIChanged", "Restored", "LateOver", "Forgotten", "Gone",
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
		Intend:      InDoubt,
		OursInForce: Untouched,
		APIChanged:  Untouched,
		Restored:    Untouched,
		Forgotten:   Untouched,
		Gone:        Ended,
	},
	InDoubt: {
		Intend:          InDoubt,
		Confirmed:       Ours,
		WrittenDirectly: InDoubt,
		Widened:         InDoubt,
		Raised:          InDoubt,
		Failed:          InDoubt,
		OursInForce:     Ours,
		BeforeInForce:   InDoubt,
		ForeignSome:     InDoubt,
		ForeignAll:      Released,
		Known:           InDoubt,
		APIChanged:      InDoubt,
		Restored:        Released,
		Gone:            Ended,
	},
	Ours: {
		Intend:        InDoubt,
		Widened:       Ours,
		Raised:        Ours,
		OursInForce:   Ours,
		BeforeInForce: InDoubt,
		ForeignSome:   Ours,
		ForeignAll:    Released,
		Known:         Ours,
		APIChanged:    Ours,
		Restored:      Released,
		LateOver:      Ours,
		Gone:          Ended,
	},
	Watched: {
		Intend:      InDoubt,
		Confirmed:   Watched,
		Widened:     Watched,
		Failed:      Watched,
		OursInForce: Watched,
		LateInForce: InDoubt,
		Known:       Watched,
		APIChanged:  Watched,
		LateOver:    Released,
		Gone:        Ended,
	},
	Released: {
		Intend:      InDoubt,
		OursInForce: Released,
		APIChanged:  Released,
		Restored:    Released,
		Forgotten:   Untouched,
		Gone:        Ended,
	},
	Ended: {
		Forgotten: Ended,
		Gone:      Ended,
	},
}
