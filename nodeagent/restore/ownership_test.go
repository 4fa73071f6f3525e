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
	o := Ownership{State: s, Ours: our, Before: before, API: fromAPI, Wrote: Span{}.With(our)}
	switch s {
	case Untouched, Released, Ended:
		return Ownership{State: s, API: fromAPI}
	case Watched:
		return Ownership{State: s, API: fromAPI, Wrote: Span{}.With(our).With(before), Late: true}
	}
	return o
}

// happens is an event of each kind.
func happens(k EventKind) Event {
	return Event{Kind: k, Change: limits(200, 0), InForce: our, API: limits(900, 200), Foreign: mdp.SetOf(mdp.CPULimit),
		Reach: Span{}.With(limits(800, 0))}
}

// The table of the states, written a second time, by hand: rows are events, and
// columns are states. A dot is an event that cannot happen. A star writes the
// entry, and a minus deletes it.
const table = `
                 Untouched  InDoubt    Ours       Watched    Released   Ended
Intend           InDoubt*   InDoubt*   InDoubt*   InDoubt*   InDoubt*   .
Confirmed        .          Ours*      .          Watched*   .          .
WrittenDirectly  .          InDoubt    .          .          .          .
Widened          .          InDoubt*   Ours*      Watched*   .          .
Raised           .          InDoubt*   Ours*      .          .          .
Failed           .          InDoubt    .          Watched    .          .
OursInForce      Untouched  Ours       Ours       Watched    Released-  .
BeforeInForce    .          InDoubt    InDoubt    .          .          .
LateInForce      .          .          .          InDoubt*   .          .
ForeignSome      .          InDoubt*   Ours*      .          .          .
ForeignAll       .          Watched*   Watched*   .          .          .
Known            .          InDoubt    Ours       Watched    .          .
APIChanged       Untouched  InDoubt*   Ours*      Watched*   Released-  .
Restored         Untouched  Released-  Released-  .          Released-  .
LateOver         .          .          Ours       Released-  .          .
Forgotten        Untouched  .          .          .          Untouched  Ended
Gone             Ended      Ended-     Ended-     Ended-     Ended-     Ended
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
	ends := map[EventKind]bool{Restored: true, ForeignAll: true, Gone: true}
	for s := range states {
		for k := range eventKinds {
			step, err := example(s).Next(happens(k))
			if err != nil || !s.Touched() || ends[k] {
				continue
			}
			if !step.Ownership.State.Touched() || step.Journal == DeleteEntry {
				t.Errorf("%v in state %v: %v, journal %v", k, s, step.Ownership.State, step.Journal)
			}
			if step.Ownership.Ours.Empty() {
				t.Errorf("%v in state %v: nothing is ours in state %v", k, s, step.Ownership.State)
			}
		}
	}
}

func TestRestoringTwiceIsHarmless(t *testing.T) {
	for s := range states {
		for _, k := range []EventKind{Restored, Gone} {
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

// values is an ownership without what it says of late calls, which has tests of its
// own.
func values(o Ownership) Ownership {
	o.Wrote = Span{}
	o.Late = false
	return o
}

func TestIntendKeepsWhatIsInForceOfTheOtherLimit(t *testing.T) {
	// A call failed, and its memory limit did not land. The next call sets CPU only.
	o := Ownership{State: InDoubt, Ours: our, Before: before, API: fromAPI}
	inForce := cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: before.Memory}
	step, err := o.Next(Event{Kind: Intend, Change: limits(200, 0), InForce: inForce, API: fromAPI})
	want := Ownership{State: InDoubt, Ours: limits(200, 128), Before: inForce, API: fromAPI}
	if err != nil || values(step.Ownership) != want {
		t.Errorf("%+v, %v; want %+v", step.Ownership, err, want)
	}
	// A limit that the call does not set is not ours.
	step, err = Ownership{}.Next(Event{Kind: Intend, Change: limits(200, 0), InForce: fromAPI, API: fromAPI})
	want = Ownership{State: InDoubt, Ours: limits(200, 0), Before: fromAPI, API: fromAPI}
	if err != nil || values(step.Ownership) != want {
		t.Errorf("%+v, %v; want %+v", step.Ownership, err, want)
	}
}

func TestWhatADirectWriteLeavesBehind(t *testing.T) {
	o := example(Ours)
	follow := func(e Event) {
		t.Helper()
		step, err := o.Next(e)
		if err != nil {
			t.Fatal(err)
		}
		o = step.Ownership
	}
	follow(Event{Kind: Intend, Change: fromAPI, InForce: our, API: fromAPI})
	follow(Event{Kind: WrittenDirectly})
	follow(o.Sensed(fromAPI))
	if o.State != Ours || !o.Behind || o.Before != our {
		t.Fatalf("%+v: the runtime still has %+v", o, our)
	}
	// A second one: the runtime has what it had.
	follow(Event{Kind: Intend, Change: limits(900, 250), InForce: fromAPI, API: fromAPI})
	follow(Event{Kind: WrittenDirectly})
	if o.Before != our {
		t.Errorf("before %+v, want what the runtime has, %+v", o.Before, our)
	}
	if got := o.Sensed(our).Kind; got != BeforeInForce {
		t.Errorf("the runtime brought back what it has: %v", got)
	}
	follow(Event{Kind: Intend, Change: limits(900, 250), InForce: limits(900, 250), API: fromAPI})
	follow(Event{Kind: Confirmed})
	if o.Behind || o.Sensed(our).Kind != ForeignAll {
		t.Errorf("%+v: the runtime knows by now", o)
	}
	// There and back by direct writes: the runtime has it already, unless an older call may land.
	for _, late := range []bool{false, true} {
		o.Late = late
		for _, one := range []struct {
			to     cgroup.Limits
			behind bool
		}{{limits(500, 250), true}, {limits(900, 250), late}} {
			follow(Event{Kind: Intend, Change: one.to, InForce: o.Ours, API: fromAPI})
			follow(Event{Kind: WrittenDirectly})
			if o.Behind != one.behind {
				t.Errorf("%+v is in force and late calls %v: behind %v", one.to, late, o.Behind)
			}
		}
		follow(Event{Kind: Raised, Change: limits(1000, 0)})
		follow(Event{Kind: Raised, Change: limits(900, 0)})
		if o.Behind != late {
			t.Errorf("raised to what the runtime has, and late calls %v: behind %v", late, o.Behind)
		}
	}
}

// The journal is synced to disk at each write: a change in the range that it has needs
// none.
func TestAChangeInTheRangeNeedsNoEntry(t *testing.T) {
	var o Ownership
	follow := func(e Event) Journaling {
		t.Helper()
		step, err := o.Next(e)
		if err != nil {
			t.Fatal(err)
		}
		o = step.Ownership
		return step.Journal
	}
	inForce := fromAPI
	move := func(cpu, low int64) Journaling {
		to := limits(cpu, 0)
		did := follow(Event{Kind: Intend, Change: to, InForce: inForce, API: fromAPI,
			Reach: Span{}.With(limits(low, 0)).With(limits(1000, 0))})
		inForce = cgroup.Limits{Quota: to.Quota, Period: to.Period, Memory: fromAPI.Memory}
		follow(Event{Kind: Confirmed})
		follow(o.Sensed(inForce))
		return did
	}
	for _, one := range []struct {
		cpu, low int64
		want     Journaling
	}{{600, 300, WriteEntry}, {400, 200, KeepEntry}, {300, 150, KeepEntry}, {200, 100, WriteEntry}, {900, 450, KeepEntry}} {
		if got := move(one.cpu, one.low); got != one.want {
			t.Errorf("to %dm: journal %v, want %v: %+v", one.cpu, got, one.want, o.Wrote)
		}
	}
	follow(Event{Kind: Raised, Change: limits(1000, 0)})
	if o.State != Ours || !o.Behind || o.Before != limits(900, 0) || o.Ours != limits(1000, 0) {
		t.Errorf("after a raise: %+v", o)
	}
	if got := o.Sensed(limits(900, 256)).Kind; got != BeforeInForce {
		t.Errorf("the runtime brought back what it has: %v", got)
	}
	// A second raise before the runtime heard of the first: it has what it had.
	follow(Event{Kind: Raised, Change: limits(1000, 0)})
	if o.Before != limits(900, 0) {
		t.Errorf("before %+v, want what the runtime has", o.Before)
	}
	for _, want := range []Journaling{WriteEntry, KeepEntry} {
		if got := follow(Event{Kind: Widened, Reach: Span{}.With(limits(2000, 0))}); got != want ||
			!o.Wrote.Covers(limits(2000, 0)) {
			t.Errorf("a higher ceiling: journal %v, want %v: %+v", got, want, o.Wrote)
		}
	}
}

func TestBackIsTheAPIsValuesOfWhatIsOurs(t *testing.T) {
	cpu := Ownership{State: Ours, Ours: limits(300, 0)}
	memory := Ownership{State: Ours, Ours: limits(0, 64)}
	for want, got := range map[cgroup.Limits]cgroup.Limits{
		fromAPI:         example(Ours).Back(fromAPI),
		limits(1000, 0): cpu.Back(fromAPI),
		limits(0, 256):  memory.Back(fromAPI),
		{}:              cpu.Back(limits(0, 100)), // the API has none
	} {
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestSensedTellsOursFromForeign(t *testing.T) {
	mixed := cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: other.Memory}
	near := our
	near.Quota += 500 // 5 millicores more
	odd := example(Ours)
	odd.Ours.Quota += 300
	rounded := our
	rounded.Quota += 1000 // systemd rounds up to 10 ms per second
	cpu := example(Ours)
	cpu.Ours = limits(300, 0)
	late := example(Ours)
	late.Wrote = Span{}.With(limits(200, 40)).With(limits(400, 128))
	late.Late = true
	behind := example(Ours)
	behind.Behind = true
	half := late // another has set memory since
	half.Ours, half.Wrote = limits(300, 0), Span{}.With(limits(200, 40)).With(limits(400, 300))
	untold := example(Ours)
	untold.Ours, untold.Untold = limits(300, 0), limits(0, 64)
	memory := mdp.SetOf(mdp.MemoryLimit)
	for name, c := range map[string]struct {
		o       Ownership
		inForce cgroup.Limits
		want    EventKind
		foreign mdp.Set
		returns mdp.Set
	}{
		"untouched: whatever":        {example(Untouched), other, OursInForce, 0, 0},
		"released: whatever":         {example(Released), other, OursInForce, 0, 0},
		"ours":                       {example(Ours), our, OursInForce, 0, 0},
		"ours, rounded":              {odd, rounded, OursInForce, 0, 0},
		"5m beside ours is not ours": {example(Ours), near, ForeignSome, mdp.SetOf(mdp.CPULimit), 0},
		"an older call landed":       {late, limits(400, 128), BeforeInForce, 0, 0},
		"between two calls, but in no step of ours": {late, cgroup.Limits{Quota: 20500, Period: 100000, Memory: our.Memory},
			ForeignSome, mdp.SetOf(mdp.CPULimit), 0},
		"above all that we wrote":             {late, limits(500, 64), ForeignSome, mdp.SetOf(mdp.CPULimit), 0},
		"the runtime brings back what it has": {behind, before, BeforeInForce, 0, 0},
		"watched: nothing of ours":            {example(Watched), fromAPI, OursInForce, 0, 0},
		"watched: another's":                  {example(Watched), other, OursInForce, 0, 0},
		"watched: a call landed":              {example(Watched), our, LateInForce, 0, 0},
		"watched: half a call landed":         {example(Watched), limits(300, 256), LateInForce, 0, 0},
		"ours: the value before is foreign":   {example(Ours), before, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit), 0},
		"ours: the API's value is foreign":    {example(Ours), fromAPI, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit), 0},
		"one of two is foreign":               {example(Ours), mixed, ForeignSome, mdp.SetOf(mdp.MemoryLimit), 0},
		"what is not ours is not looked at":   {cpu, mixed, OursInForce, 0, 0},
		"the only one is foreign":             {cpu, other, ForeignAll, mdp.SetOf(mdp.CPULimit), 0},
		"no limit at all is foreign": {
			example(Ours), cgroup.Limits{}, ForeignAll, mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit), 0,
		},
		"in doubt: ours":      {example(InDoubt), our, OursInForce, 0, 0},
		"in doubt: before":    {example(InDoubt), before, BeforeInForce, 0, 0},
		"in doubt: the API's": {example(InDoubt), fromAPI, BeforeInForce, 0, 0},
		"in doubt: half and half": {
			example(InDoubt), cgroup.Limits{Quota: our.Quota, Period: our.Period, Memory: before.Memory},
			BeforeInForce, 0, 0,
		},
		"in doubt: another value is foreign":             {example(InDoubt), mixed, ForeignSome, mdp.SetOf(mdp.MemoryLimit), 0},
		"half is ours: an older call landed":             {half, limits(300, 128), OursInForce, 0, memory},
		"half is ours: it took the CPU limit, too":       {half, limits(400, 128), BeforeInForce, 0, memory},
		"half is ours: another took the CPU limit":       {half, limits(500, 128), ForeignSome, mdp.SetOf(mdp.CPULimit), memory},
		"half is ours: the API's memory":                 {half, limits(300, 256), OursInForce, 0, 0},
		"half is ours: memory is another's":              {half, limits(300, 350), OursInForce, 0, 0},
		"half is ours: what the runtime was not told of": {untold, limits(300, 64), OursInForce, 0, memory},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.o.Sensed(c.inForce)
			if got.Kind != c.want || got.Foreign != c.foreign || got.Returns != c.returns {
				t.Errorf("%v of %v, and %v returns; want %v of %v, and %v",
					got.Kind, got.Foreign, got.Returns, c.want, c.foreign, c.returns)
			}
			step, err := c.o.Next(got)
			if err != nil {
				t.Errorf("what is sensed cannot happen: %v", err)
			}
			if c.returns != 0 && (!step.Ownership.State.Touched() || step.Ownership.Ours.Memory != c.inForce.Memory ||
				step.Ownership.Before.Memory != c.o.API.Memory || step.Journal != WriteEntry) {
				t.Errorf("what returned is not ours: %+v", step)
			}
		})
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
	runtime cgroup.Limits   // what the runtime has, and writes again with an update of another limit
	has     bool            // that is ours
	top     cgroup.Limits   // to which the sampler may raise
	late    []cgroup.Limits // calls of ours that may land, in any order
	written bool            // what is in force was written by us, and is not what the API said then
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
		w.entry = &Entry{Ours: w.o.Ours, Before: w.o.Before, API: w.o.API, Wrote: w.o.Wrote}
	case DeleteEntry:
		w.entry = nil
		if w.o.State == Released {
			w.on(t, Event{Kind: Forgotten})
		}
	}
}

// land lets one of the calls that failed land now.
func (w *world) land() {
	if len(w.late) == 0 {
		return
	}
	i := w.rng.IntN(len(w.late))
	w.inForce = w.late[i]
	w.written = w.inForce != w.api
	w.runtime, w.has = w.inForce, w.written
	w.late = append(w.late[:i], w.late[i+1:]...)
}

// Whatever happens, whenever the agent dies, however late a call lands, and whatever the runtime
// brings back: a value that we wrote and that is not the API's is in the journal, and this
// agent and the next one know it for ours.
func TestWhatWeWroteIsAlwaysInTheJournal(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := &world{rng: rng, api: limits(1000, 0), inForce: limits(1000, 0), runtime: limits(1000, 0)}
		random := func() cgroup.Limits { return limits(100+20*rng.Int64N(40), 0) }
		// Values of others are in no step of ours: what is in one and in the range of
		// what we wrote is taken for ours.
		foreign := func() cgroup.Limits { return limits(105+20*rng.Int64N(40), 0) }
		// Half of the nodes are calm: no call fails, and the agent does not die. There every value is known exactly.
		calm := seed%2 == 0
		for range 200 {
			switch rng.IntN(12) {
			case 0, 1: // the agent acts, and lets the sampler raise
				w.on(t, w.o.Sensed(w.inForce))
				to := random()
				w.top = random()
				w.on(t, Event{Kind: Intend, Change: to, InForce: w.inForce, API: w.api, Reach: Span{}.With(w.top)})
				how := rng.IntN(5)
				if calm {
					how = 3 + rng.IntN(2)
				}
				switch how {
				case 0:
					w.on(t, Event{Kind: Failed})
				case 1:
					w.late = append(w.late, to)
					w.on(t, Event{Kind: Failed})
				case 3: // it writes the cgroup
					w.inForce, w.written = to, to != w.api
					w.on(t, Event{Kind: WrittenDirectly})
				case 2: // it dies in the call, which may land
					if rng.IntN(2) == 0 {
						w.late = append(w.late, to)
					}
					w.o = Replayed(*w.entry)
				default:
					w.inForce, w.written = to, to != w.api
					w.runtime, w.has = to, w.written
					w.on(t, Event{Kind: Confirmed})
				}
			case 2:
				w.land()
			case 3:
				w.on(t, w.o.Sensed(w.inForce))
			case 4: // somebody else writes
				w.inForce, w.written = foreign(), false
				w.on(t, w.o.Sensed(w.inForce))
			case 5: // the kubelet
				w.api = random()
				w.inForce, w.written = w.api, false
				w.runtime, w.has = w.api, false
				w.on(t, w.o.Sensed(w.inForce))
				if w.o.State != Ended {
					w.on(t, Event{Kind: APIChanged, API: w.api})
				}
			case 6: // restore
				w.on(t, w.o.Sensed(w.inForce))
				if !w.o.State.Touched() {
					continue
				}
				w.on(t, Event{Kind: Intend, Change: w.o.Back(w.api), InForce: w.inForce, API: w.api})
				how := rng.IntN(3)
				if calm {
					how = 0
				}
				switch how {
				case 0:
					w.inForce, w.written = w.api, false
					w.runtime, w.has = w.api, false
					w.on(t, Event{Kind: Confirmed})
					w.on(t, Event{Kind: Restored})
				case 1: // the call of the runtime may land, too
					w.late = append(w.late, w.api)
					w.on(t, Event{Kind: Failed})
					w.inForce, w.written = w.api, false
					w.on(t, Event{Kind: WrittenDirectly})
				default:
					w.late = append(w.late, w.api)
					w.on(t, Event{Kind: Failed})
				}
			case 7: // the agent dies
				if calm {
					continue
				}
				w.o = Ownership{}
				if w.entry != nil {
					w.o = Replayed(*w.entry)
				}
			case 9: // the sampler raises; the agent dies before it heard of it, or not
				if e := w.o.Sensed(w.inForce); e.Kind != OursInForce || !w.o.State.Touched() || !w.o.Wrote.Covers(w.top) {
					continue
				}
				entry := *w.entry
				w.inForce, w.written = w.top, w.top != w.api
				if !calm && rng.IntN(2) == 0 {
					w.o = Replayed(entry)
				} else {
					w.on(t, Event{Kind: Raised, Change: w.top})
				}
			case 10: // somebody updates another limit through the runtime
				w.inForce, w.written = w.runtime, w.has
			case 11: // the runtime is told
				w.on(t, w.o.Sensed(w.inForce))
				if w.o.State != Watched || w.o.Untold.Empty() {
					continue
				}
				was := w.o.Wrote
				w.on(t, Event{Kind: Widened, Reach: Span{}.With(w.inForce)})
				if calm || rng.IntN(2) == 0 {
					w.runtime, w.has = w.inForce, false
					w.on(t, Event{Kind: Confirmed, Reach: was})
					continue
				}
				if w.inForce.CPU()%CPUStep == 0 { // in no step of ours it is another's value, should it land late
					w.late = append(w.late, w.inForce)
				}
				if rng.IntN(2) == 0 { // the agent dies in the call
					w.o = Replayed(*w.entry)
					continue
				}
				w.on(t, Event{Kind: Failed})
			case 8: // nothing can land any more
				if w.o.Late && w.o.State != InDoubt && len(w.late) == 0 {
					w.on(t, w.o.Sensed(w.inForce))
				}
				if w.o.Late && w.o.State != InDoubt && len(w.late) == 0 {
					w.on(t, Event{Kind: LateOver})
				}
			}
			if !w.written {
				continue
			}
			if w.entry == nil {
				t.Fatalf("seed %d: %v in force is ours, and not in the journal\n%s", seed, w.inForce, strings.Join(w.log, "\n"))
			}
			for who, o := range map[string]Ownership{"this agent": w.o, "the next agent": Replayed(*w.entry)} {
				if e := o.Sensed(w.inForce); e.Foreign != 0 || o.State == Watched && e.Kind != LateInForce {
					t.Fatalf("seed %d: %v in force is ours, and %s takes it for foreign: %+v, entry %+v\n%s",
						seed, w.inForce, who, o, *w.entry, strings.Join(w.log, "\n"))
				}
			}
		}
	}
}

// On cgroup v1 the quota and the period are two files. An agent that is killed between them leaves
// a limit that nobody wanted, and the next one must know it for ours.
func TestWhatIsInForceBetweenQuotaAndPeriodIsOurs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	some := func() cgroup.Limits {
		period := int64(100_000 + 10_000*rng.IntN(31))
		return cgroup.Limits{Quota: int64(1+rng.IntN(100)) * period / 100, Period: period}
	}
	for range 10000 {
		from, to := some(), some()
		step, err := Ownership{}.Next(Event{Kind: Intend, Change: to, InForce: from, API: from})
		if err != nil {
			t.Fatal(err)
		}
		between := cgroup.Limits{Quota: from.Quota, Period: to.Period}
		if other := (cgroup.Limits{Quota: to.Quota, Period: from.Period}); other.Quota*between.Period < between.Quota*other.Period {
			between = other // the smaller one is written
		}
		longest := max(from.Period, to.Period)
		for _, is := range []cgroup.Limits{to, between} {
			if from.Period != to.Period && is.Period == longest && !step.Ownership.Wrote.Covers(is) {
				t.Fatalf("from %+v to %+v: %+v is not known", from, to, is)
			}
		}
	}
}

// The runtime knows a limit that it has in force, and one that it cannot have of us. Nothing follows from a value that may be
// ours: of a call that landed late, or of one whose value the cgroup had before somebody else wrote.
func TestWhatTheRuntimeKnows(t *testing.T) {
	cpu, memory := mdp.SetOf(mdp.CPULimit), mdp.SetOf(mdp.MemoryLimit)
	lost := Ownership{State: Watched, API: fromAPI, Wrote: Span{}.With(our).With(limits(500, 100)), Untold: our}
	late := lost
	late.Late = true
	for name, one := range map[string]struct {
		o             Ownership
		told, inForce cgroup.Limits
		want          mdp.Set
	}{
		"what is in force":                         {lost, other, other, cpu | memory},
		"ours still":                               {lost, our, other, 0},
		"ours, which somebody else has set, too":   {lost, our, our, cpu | memory},
		"ours of one limit":                        {lost, limits(900, 64), limits(900, 128), cpu},
		"the value of another call":                {lost, limits(400, 80), other, cpu | memory},
		"that of one that may be late":             {late, limits(400, 80), other, 0},
		"none of ours, late or not":                {late, limits(900, 200), other, cpu | memory},
		"no limit, as is in force":                 {lost, cgroup.Limits{}, cgroup.Limits{}, cpu | memory},
		"no limit, and another one is in force":    {lost, cgroup.Limits{}, other, cpu | memory},
		"no limit, late or not":                    {late, cgroup.Limits{}, other, cpu | memory},
		"nothing is untold":                        {Ownership{State: Watched, Late: true}, other, other, 0},
		"what is in force, in the range of a late": {late, limits(400, 80), limits(400, 80), cpu | memory},
	} {
		if got := one.o.KnownBy(one.told, one.inForce); got != one.want {
			t.Errorf("%s: %v, want %v", name, got, one.want)
		}
	}
	step, err := lost.Next(Event{Kind: Known, Foreign: cpu})
	if err != nil || step.Ownership.Untold != our.Only(memory) || step.Journal == DeleteEntry {
		t.Errorf("one of two is known: %+v (%v)", step, err)
	}
	if step, err = step.Ownership.Next(Event{Kind: Known, Foreign: memory}); err != nil || step.Journal != DeleteEntry {
		t.Errorf("both are known: %+v (%v)", step, err)
	}
}
