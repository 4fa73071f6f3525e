package restore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// limits makes limits of a CPU limit in millicores and of memory in MiB.
func limits(cpu int64, memory mdp.Bytes) cgroup.Limits {
	l := cgroup.Limits{Memory: memory * mdp.MiB}
	if cpu > 0 {
		l.Quota = cpu * 100
		l.Period = 100000
	}
	return l
}

// The values of the examples: the API's, ours, those from before, and others.
var (
	fromAPI = limits(1000, 256)
	our     = limits(300, 64)
	before  = limits(600, 128)
	other   = limits(77, 33)
)

// example is an ownership in each state.
func example(s State) Ownership {
	o := Ownership{State: s, Ours: our, Before: before, API: fromAPI, SetWith: fromAPI}
	switch s {
	case Untouched, Released, Ended:
		return Ownership{State: s, API: fromAPI}
	case AwaitingResize, PendingRestore:
		o.Ours = fromAPI
		o.Before = our
	}
	return o
}

// happens is an event of each kind.
func happens(k EventKind) Event {
	return Event{Kind: k, Change: limits(200, 0), InForce: other, API: limits(900, 200), Foreign: mdp.SetOf(mdp.CPULimit)}
}

// The table of the states, written a second time, by hand: rows are events, and
// columns are states. A dot is an event that cannot happen. A star writes the
// entry, and a minus deletes it.
const table = `
                      Untouched  InDoubt          Ours             AwaitingResize   PendingRestore   Released   Ended
Intend                InDoubt*   InDoubt*         InDoubt*         InDoubt*         InDoubt*         InDoubt*   .
Confirmed             .          Ours             .                .                .                .          .
Failed                .          InDoubt          .                .                .                .          .
OursInForce           Untouched  Ours             Ours             AwaitingResize   PendingRestore   Released-  .
BeforeInForce         .          InDoubt          .                .                PendingRestore   .          .
ForeignSome           .          InDoubt*         Ours*            AwaitingResize*  PendingRestore*  .          .
ForeignAll            .          Released-        Released-        Released-        Released-        .          .
APIChanged            Untouched  InDoubt*         Ours*            AwaitingResize*  PendingRestore*  Released-  .
RestoredByRuntime     Untouched  Released-        Released-        Released-        Released-        Released-  .
RestoredWhilePending  Untouched  AwaitingResize*  AwaitingResize*  AwaitingResize*  AwaitingResize*  Released-  .
RestoredDirectly      .          PendingRestore*  PendingRestore*  PendingRestore*  PendingRestore*  .          .
RestoreFailed         .          InDoubt          InDoubt*         InDoubt*         PendingRestore   .          .
Forgotten             Untouched  .                .                .                .                Untouched  Ended
Gone                  Ended      Ended-           Ended-           Ended-           Ended-           Ended-     Ended
`

func TestEveryEventInEveryState(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(table), "\n")
	columns := strings.Fields(rows[0])
	if len(columns) != int(states) || len(rows)-1 != int(eventKinds) {
		t.Fatalf("the table has %d states and %d events, there are %d and %d", len(columns), len(rows)-1, states, eventKinds)
	}
	for k, row := range rows[1:] {
		cells := strings.Fields(row)
		if cells[0] != EventKind(k).String() || len(cells) != len(columns)+1 {
			t.Fatalf("row %d is of %s and has %d cells, want %v and %d", k, cells[0], len(cells)-1, EventKind(k), len(columns))
		}
		for s, want := range cells[1:] {
			if columns[s] != State(s).String() {
				t.Fatalf("column %d is %s, want %v", s, columns[s], State(s))
			}
			from := example(State(s))
			step, err := from.Next(happens(EventKind(k)))
			got := step.Ownership.State.String() + map[Journaling]string{
				KeepEntry:   "",
				WriteEntry:  "*",
				DeleteEntry: "-",
			}[step.Journal]
			if err != nil {
				got = "."
			}
			if got != want {
				t.Errorf("%v in state %v: %s, want %s", EventKind(k), State(s), got, want)
			}
			var illegal *IllegalError
			if want == "." && (!errors.As(err, &illegal) || step.Ownership != from || step.Journal != KeepEntry) {
				t.Errorf("%v in state %v cannot happen, but: %+v, %v", EventKind(k), State(s), step, err)
			}
		}
	}
	if _, err := (Ownership{State: states}).Next(happens(Gone)); err == nil {
		t.Error("an unknown state is legal")
	}
}

// A touched container loses its entry only because it is restored, because
// somebody else has set all limits, or because it is gone.
func TestNothingTouchedIsForgottenBeforeItIsRestored(t *testing.T) {
	ends := map[EventKind]bool{RestoredByRuntime: true, ForeignAll: true, Gone: true}
	for s := range states {
		for k := range eventKinds {
			step, err := example(s).Next(happens(k))
			if err != nil || !s.Touched() || ends[k] {
				continue
			}
			if !step.Ownership.State.Touched() || step.Journal == DeleteEntry {
				t.Errorf("%v in state %v: %v, journal %v", k, s, step.Ownership.State, step.Journal)
			}
			if !ours(step.Ownership.Ours) {
				t.Errorf("%v in state %v: nothing is ours in state %v", k, s, step.Ownership.State)
			}
		}
	}
}

func TestRestoringTwiceIsHarmless(t *testing.T) {
	for s := range states {
		for _, k := range []EventKind{RestoredByRuntime, RestoredWhilePending, RestoredDirectly, Gone} {
			once, err := example(s).Next(happens(k))
			if err != nil {
				continue
			}
			twice, err := once.Ownership.Next(happens(k))
			if err != nil || twice.Ownership.State != once.Ownership.State || twice.Ownership.Ours != once.Ownership.Ours {
				t.Errorf("%v twice in state %v: %+v, %v; want %+v", k, s, twice.Ownership, err, once.Ownership)
			}
		}
	}
}

func TestIntendKeepsWhatIsInForceOfTheOtherLimit(t *testing.T) {
	// A call failed, and its memory limit did not land. The next call sets CPU only.
	o := Ownership{State: InDoubt, Ours: our, Before: before, API: fromAPI, SetWith: fromAPI}
	inForce := cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: before.Memory}
	step, err := o.Next(Event{Kind: Intend, Change: limits(200, 0), InForce: inForce, API: fromAPI})
	want := Ownership{State: InDoubt, Ours: limits(200, 128), Before: inForce, API: fromAPI, SetWith: fromAPI}
	if err != nil || step.Ownership != want {
		t.Errorf("%+v, %v; want %+v", step.Ownership, err, want)
	}
	// A limit that the call does not set is not ours.
	step, err = Ownership{}.Next(Event{Kind: Intend, Change: limits(200, 0), InForce: fromAPI, API: fromAPI})
	want = Ownership{State: InDoubt, Ours: limits(200, 0), Before: fromAPI, API: fromAPI, SetWith: fromAPI}
	if err != nil || step.Ownership != want {
		t.Errorf("%+v, %v; want %+v", step.Ownership, err, want)
	}
}

func TestRestoredValuesAreTheAPIs(t *testing.T) {
	newAPI := limits(500, 100)
	cpu := Ownership{State: Ours, Ours: limits(300, 0), Before: before, API: fromAPI, SetWith: fromAPI}
	for name, c := range map[string]struct {
		from  Ownership
		event Event
		want  Ownership
	}{
		"directly": {
			from:  example(Ours),
			event: Event{Kind: RestoredDirectly, API: newAPI},
			want:  Ownership{State: PendingRestore, Ours: newAPI, Before: our, API: newAPI, SetWith: fromAPI},
		},
		"directly a second time: the runtime has the same": {
			from:  Ownership{State: PendingRestore, Ours: newAPI, Before: our, API: newAPI, SetWith: fromAPI},
			event: Event{Kind: RestoredDirectly, API: newAPI},
			want:  Ownership{State: PendingRestore, Ours: newAPI, Before: our, API: newAPI, SetWith: fromAPI},
		},
		"while a resize is pending": {
			from:  example(Ours),
			event: Event{Kind: RestoredWhilePending, API: newAPI},
			want:  Ownership{State: AwaitingResize, Ours: newAPI, Before: our, API: newAPI, SetWith: newAPI},
		},
		"only what is ours": {
			from:  cpu,
			event: Event{Kind: RestoredWhilePending, API: newAPI},
			want:  Ownership{State: AwaitingResize, Ours: limits(500, 0), Before: cpu.Ours, API: newAPI, SetWith: newAPI},
		},
		"only what is ours, of memory": {
			from:  Ownership{State: Ours, Ours: limits(0, 64), Before: before, API: fromAPI, SetWith: fromAPI},
			event: Event{Kind: RestoredWhilePending, API: newAPI},
			want:  Ownership{State: AwaitingResize, Ours: limits(0, 100), Before: limits(0, 64), API: newAPI, SetWith: newAPI},
		},
		"nothing, without a value in the API": {
			from:  cpu,
			event: Event{Kind: RestoredWhilePending, API: limits(0, 100)},
			want:  Ownership{State: Released, API: limits(0, 100)},
		},
		"not at all: the call may have been half done": {
			from:  example(Ours),
			event: Event{Kind: RestoreFailed, InForce: our},
			want:  Ownership{State: InDoubt, Ours: our, Before: our, API: fromAPI, SetWith: fromAPI},
		},
		"not at all, past the runtime before: it has the same": {
			from:  example(PendingRestore),
			event: Event{Kind: RestoreFailed, InForce: fromAPI},
			want:  example(PendingRestore),
		},
		"the API's values are others": {
			from:  example(Ours),
			event: Event{Kind: APIChanged, API: newAPI},
			want:  Ownership{State: Ours, Ours: our, Before: before, API: newAPI, SetWith: fromAPI},
		},
	} {
		t.Run(name, func(t *testing.T) {
			step, err := c.from.Next(c.event)
			if err != nil || step.Ownership != c.want {
				t.Errorf("%+v, %v; want\n%+v", step.Ownership, err, c.want)
			}
			if changed := step.Ownership.Ours != c.from.Ours || step.Ownership.API != c.from.API ||
				step.Ownership.Before != c.from.Before; changed != (step.Journal != KeepEntry) {
				t.Errorf("entry changed: %v, but journaling is %v", changed, step.Journal)
			}
		})
	}
}

func TestSensedTellsOursFromForeign(t *testing.T) {
	mixed := cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: other.Memory}
	rounded := our
	rounded.Quota += 900 // systemd rounds up to 10 ms per second
	cpu := example(Ours)
	cpu.Ours = limits(300, 0)
	for name, c := range map[string]struct {
		o       Ownership
		inForce cgroup.Limits
		want    EventKind
		foreign mdp.Set
	}{
		"untouched: whatever":               {example(Untouched), other, OursInForce, 0},
		"released: whatever":                {example(Released), other, OursInForce, 0},
		"ours":                              {example(Ours), our, OursInForce, 0},
		"ours, rounded":                     {example(Ours), rounded, OursInForce, 0},
		"ours: the value before is foreign": {example(Ours), before, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)},
		"ours: the API's value is foreign":  {example(Ours), fromAPI, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)},
		"one of two is foreign":             {example(Ours), mixed, ForeignSome, mdp.SetOf(mdp.MemoryLimit)},
		"what is not ours is not looked at": {cpu, mixed, OursInForce, 0},
		"the only one is foreign":           {cpu, other, ForeignAll, mdp.SetOf(mdp.CPULimit)},
		"no limit at all is foreign": {
			example(Ours), cgroup.Limits{}, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit),
		},
		"in doubt: ours":      {example(InDoubt), our, OursInForce, 0},
		"in doubt: before":    {example(InDoubt), before, BeforeInForce, 0},
		"in doubt: the API's": {example(InDoubt), fromAPI, BeforeInForce, 0},
		"in doubt: half and half": {
			example(InDoubt), cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: before.Memory},
			BeforeInForce, 0,
		},
		"in doubt: another value is foreign": {example(InDoubt), mixed, ForeignSome, mdp.SetOf(mdp.MemoryLimit)},
		"pending restore: the API's":         {example(PendingRestore), fromAPI, OursInForce, 0},
		"pending restore: the runtime's old": {example(PendingRestore), our, BeforeInForce, 0},
		"pending restore: another": {
			example(PendingRestore), other, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit),
		},
		"awaiting resize: the restored": {example(AwaitingResize), fromAPI, OursInForce, 0},
		"awaiting resize: ours is past": {example(AwaitingResize), our, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.o.Sensed(c.inForce)
			if got.Kind != c.want || got.Foreign != c.foreign {
				t.Errorf("%v of %v, want %v of %v", got.Kind, got.Foreign, c.want, c.foreign)
			}
			if _, err := c.o.Next(got); err != nil {
				t.Errorf("what is sensed cannot happen: %v", err)
			}
		})
	}
}

func TestToRestore(t *testing.T) {
	for s := range states {
		if got, want := example(s).ToRestore(fromAPI, false), s.Touched(); got != want {
			t.Errorf("state %v: to restore %v, want %v", s, got, want)
		}
	}
	waiting := example(AwaitingResize)
	if waiting.ToRestore(fromAPI, true) {
		t.Error("while the resize is pending it is restored again and again")
	}
	if !waiting.ToRestore(before, true) {
		t.Error("the API's values changed, and it is not restored")
	}
	if !example(Ours).ToRestore(our, true) {
		t.Error("what is ours is not restored while a resize is pending")
	}
}

// world is one CPU limit of a container, its runtime, and the journal, with
// everything that can go wrong. Memory is like CPU.
type world struct {
	rng     *rand.Rand
	o       Ownership
	entry   *Entry        // in the journal
	inForce cgroup.Limits // in the cgroup
	api     cgroup.Limits
	late    *cgroup.Limits // a call of ours that will land
	written bool           // what is in force was written by us, and is not what the API said then
	log     []string
}

func (w *world) on(t *testing.T, e Event) {
	t.Helper()
	w.log = append(w.log, fmt.Sprintf("%v in %v, in force %d, entry %v", e.Kind, w.o.State, w.inForce.CPU(), w.entry != nil))
	step, err := w.o.Next(e)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(w.log, "\n"))
	}
	w.o = step.Ownership
	switch step.Journal {
	case WriteEntry:
		w.entry = &Entry{Ours: w.o.Ours, Before: w.o.Before, API: w.o.API}
	case DeleteEntry:
		w.entry = nil
		if w.o.State == Released {
			w.on(t, Event{Kind: Forgotten})
		}
	}
}

func (w *world) land() {
	if w.late != nil {
		w.inForce = *w.late
		w.written = w.inForce != w.api
		w.late = nil
	}
}

// Whatever happens, and whenever the agent dies: a value that we wrote and that
// is not the API's is in the journal, and the next agent knows it for ours.
func TestWhatWeWroteIsAlwaysInTheJournal(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := &world{rng: rng, api: limits(1000, 0), inForce: limits(1000, 0)}
		random := func() cgroup.Limits { return limits(100+20*rng.Int64N(40), 0) }
		for range 200 {
			switch rng.IntN(8) {
			case 0, 1: // the agent acts: what is late has landed by then, and was sensed
				w.land()
				w.on(t, w.o.Sensed(w.inForce))
				to := random()
				w.on(t, Event{Kind: Intend, Change: to, InForce: w.inForce, API: w.api})
				switch rng.IntN(4) {
				case 0:
					w.on(t, Event{Kind: Failed})
				case 1:
					w.late = &to
					w.on(t, Event{Kind: Failed})
				case 2: // it dies in the call, which may land
					if rng.IntN(2) == 0 {
						w.late = &to
					}
					w.o = Replayed(*w.entry)
				default:
					w.inForce, w.written = to, to != w.api
					w.on(t, Event{Kind: Confirmed})
				}
			case 2:
				w.land()
			case 3:
				w.on(t, w.o.Sensed(w.inForce))
			case 4: // somebody else writes; a call of ours lands before that
				w.land()
				w.inForce, w.written = random(), false
				w.on(t, w.o.Sensed(w.inForce))
			case 5: // the kubelet
				w.land()
				w.api = random()
				w.inForce, w.written = w.api, false
				w.on(t, Event{Kind: APIChanged, API: w.api})
			case 6: // restore
				w.on(t, w.o.Sensed(w.inForce))
				if !w.o.ToRestore(w.api, false) {
					continue
				}
				switch rng.IntN(4) {
				case 0: // the runtime's calls land in order
					w.late = nil
					w.inForce, w.written = w.api, false
					w.on(t, Event{Kind: RestoredByRuntime, API: w.api})
				case 1:
					w.late = nil
					w.inForce, w.written = w.api, false
					w.on(t, Event{Kind: RestoredWhilePending, API: w.api})
				case 2: // a late call may land after it
					w.inForce, w.written = w.api, false
					w.on(t, Event{Kind: RestoredDirectly, API: w.api})
				default:
					w.on(t, Event{Kind: RestoreFailed, InForce: w.inForce})
				}
			case 7: // the agent dies
				w.o = Ownership{}
				if w.entry != nil {
					w.o = Replayed(*w.entry)
				}
			}
			if !w.written {
				continue
			}
			if w.entry == nil {
				t.Fatalf("seed %d: %v in force is ours, and not in the journal\n%s", seed, w.inForce, strings.Join(w.log, "\n"))
			}
			if e := Replayed(*w.entry).Sensed(w.inForce); e.Foreign != 0 {
				t.Fatalf("seed %d: %v in force is ours, and the next agent takes it for foreign: entry %+v\n%s",
					seed, w.inForce, *w.entry, strings.Join(w.log, "\n"))
			}
		}
	}
}
