package guard_test

import (
	"encoding"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/guard"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// wide are bounds that nothing in these tests reaches.
var wide = mdp.Bounds{
	Replicas: mdp.Range[int]{Min: 0, Max: 1000},
	CPU:      mdp.Range[mdp.MilliCPU]{Min: 1, Max: math.MaxInt64},
	Memory:   mdp.Range[mdp.Bytes]{Min: 1, Max: math.MaxInt64},

	Reservation: mdp.Range[mdp.MilliCPU]{Min: 1, Max: math.MaxInt64},
}

func wants(a mdp.Action) mdp.Policy {
	return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return a, nil })
}

func within(b mdp.Bounds) guard.Place { return guard.Place{Bounds: func() mdp.Bounds { return b }} }

// at is three replicas of a size, half of whose memory is in use, with a
// latency of 10 ms.
func at(cpu mdp.MilliCPU, memory mdp.Bytes) mdp.State {
	return mdp.State{
		At: noon, Observed: mdp.LimitKnobs | mdp.SetOf(mdp.MemoryUsage, mdp.Latency), Replicas: 3,
		Limit: mdp.Size{CPU: cpu, Memory: memory}, Usage: mdp.Size{Memory: memory / 2}, Latency: 10 * time.Millisecond,
	}
}

var named = []guard.Settings{guard.Central, guard.Node, guard.Published}

func TestEachChainIsAPolicy(t *testing.T) {
	follow := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if err := s.Require("follow", mdp.CPUUsage, mdp.MemoryUsage); err != nil || s.Usage.CPU <= 0 || s.Usage.Memory <= 0 {
			return mdp.Action{}, err
		}
		return mdp.Action{}.WithCPU(s.Usage.CPU).WithMemory(s.Usage.Memory), nil
	})
	bounds := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 3}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 500},
		Memory: mdp.Range[mdp.Bytes]{Min: mdp.MiB, Max: 200 * mdp.MiB},
	}
	for _, s := range named {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		place := within(bounds)
		place.SLO = mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}
		t.Run(s.Name, func(t *testing.T) {
			mdptest.Policy(t, func() mdp.Policy { return guard.Standard(follow, s, place) })
		})
		place.Fallback = wants(mdp.Action{})
		t.Run(s.Name+" with a fallback", func(t *testing.T) {
			mdptest.Policy(t, func() mdp.Policy { return guard.Standard(follow, s, place) })
		})
	}
}

// Whatever a policy wants, what comes out is within the bounds, or is not set.
func TestBoundsHaveTheLastWord(t *testing.T) {
	for _, s := range named {
		law := func(cpu int32, memory int64, replicas int16, lo, hi uint16, usage uint32) bool {
			b := mdp.Bounds{
				Replicas: mdp.Range[int]{Min: 1, Max: 1 + int(hi%7)},
				CPU:      mdp.Range[mdp.MilliCPU]{Min: 1 + mdp.MilliCPU(min(lo, hi)), Max: 1 + mdp.MilliCPU(max(lo, hi))},
				Memory:   mdp.Range[mdp.Bytes]{Min: 1 + mdp.Bytes(min(lo, hi)), Max: 1 + mdp.Bytes(max(lo, hi))},
			}
			state := at(500, 5000)
			state.Usage.Memory = mdp.Bytes(usage)
			a, err := guard.Standard(wants(mdp.Action{}.WithCPU(mdp.MilliCPU(cpu)).WithMemory(mdp.Bytes(memory)).
				WithReplicas(int(replicas))), s, within(b)).Decide(state)
			if err != nil {
				var illegal *guard.IllegalError
				return errors.As(err, &illegal) && (cpu <= 0 || memory <= 0 || replicas < 0)
			}
			for k := range a.Sets.Signals() {
				if v, _ := a.Knob(k); !b.Knob(k).Has(v) {
					return false
				}
			}
			return true
		}
		if err := quick.Check(law, nil); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

// An envelope that has become narrower than what is in force moves the limit,
// even if the policy is content.
func TestALimitOutsideOfItsBoundsIsMoved(t *testing.T) {
	narrow := wide
	narrow.CPU.Max = 200
	for _, s := range named {
		a, err := guard.Standard(wants(mdp.Action{}), s, within(narrow)).Decide(at(500, 64*mdp.MiB))
		if err != nil || a.Limit.CPU != 200 || a.Sets != mdp.SetOf(mdp.CPULimit) || a.Clipped != mdp.ClippedMax {
			t.Errorf("%s: %v clipped by %v, %v; want cpu=200m by max", s.Name, a, a.Clipped, err)
		}
	}
}

func TestOnlyKnobsThatMayBeSetAreSet(t *testing.T) {
	place := within(wide)
	place.Knobs = func() mdp.Set { return mdp.SetOf(mdp.CPULimit) }
	a, err := guard.Standard(wants(mdp.Action{}.WithCPU(90).WithMemory(1).WithReplicas(2)), guard.Central, place).
		Decide(at(100, 64*mdp.MiB))
	if err != nil || a.Sets != mdp.SetOf(mdp.CPULimit) {
		t.Errorf("%v, %v; want CPU only", a, err)
	}
}

func TestNoStepIsLargerThanTheSettingsAllow(t *testing.T) {
	law := func(now, want uint16) bool {
		s := at(mdp.MilliCPU(now)+10, 100*mdp.MiB)
		wanted := mdp.MilliCPU(want) + 1
		a, err := guard.Standard(wants(mdp.Action{}.WithCPU(wanted)), guard.Central, within(wide)).Decide(s)
		return err == nil && a.Limit.CPU <= 2*s.Limit.CPU && a.Limit.CPU >= s.Limit.CPU*8/10 &&
			(a.Limit.CPU != wanted) == (a.Clipped != 0)
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

// Relief on the node comes at once, up to the ceiling; a shrink is limited.
func TestTheNodeRaisesUpToTheCeilingInOneStep(t *testing.T) {
	ceiling := wide
	ceiling.CPU.Max = 4000
	node := func(cpu mdp.MilliCPU) mdp.Action {
		a, err := guard.Standard(wants(mdp.Action{}.WithCPU(cpu)), guard.Node, within(ceiling)).Decide(at(70, 64*mdp.MiB))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := node(9000); a.Limit.CPU != 4000 {
		t.Errorf("raised to %v, want the ceiling of 4000m", a.Limit.CPU)
	}
	if a := node(1); a.Limit.CPU != 35 || a.Clipped != mdp.ClippedRateDown {
		t.Errorf("shrunk to %v by %v, want a half", a.Limit.CPU, a.Clipped)
	}
}

func TestMemoryShrinksOnceAMinuteAndNeverNearItsUse(t *testing.T) {
	p := guard.Standard(wants(mdp.Action{}.WithMemory(1)), guard.Central, within(wide))
	s := at(100, 200*mdp.MiB)
	s.Usage.Memory = 140 * mdp.MiB
	a, _ := p.Decide(s)
	if want := 175 * mdp.MiB; a.Limit.Memory != want || a.Clipped&mdp.ClippedUsage == 0 {
		t.Errorf("first shrink to %v, want %v: what is in use and a quarter", a.Limit.Memory, want)
	}
	s.At = noon.Add(30 * time.Second)
	if a, _ = p.Decide(s); a.Limit.Memory != 200*mdp.MiB || a.Clipped&mdp.ClippedDwell == 0 {
		t.Errorf("half a minute later: %v (%v), want no second shrink", a.Limit.Memory, a.Clipped)
	}
	s.At = noon.Add(61 * time.Second)
	if a, _ = p.Decide(s); a.Limit.Memory == 200*mdp.MiB {
		t.Error("after a minute it may shrink again")
	}
	s.At = noon.Add(3 * time.Minute)
	s.Observed = s.Observed.Without(mdp.SetOf(mdp.MemoryUsage))
	if a, _ = p.Decide(s); a.Sets.Has(mdp.MemoryLimit) || a.Clipped&mdp.ClippedStale == 0 {
		t.Errorf("what is in use is not known: %v (%v), want no memory limit", a, a.Clipped)
	}
}

// again is a chain as it is after a restart of its process.
func again(t *testing.T, chain, fresh mdp.Policy) mdp.Policy {
	t.Helper()
	saved, err := chain.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.(encoding.BinaryUnmarshaler).UnmarshalBinary(saved); err != nil {
		t.Fatal(err)
	}
	return fresh
}

// A State shows a moment. What was in use in the last minutes counts as well, over restarts, too; and a container that was killed
// for memory has used its limit.
func TestMemoryStaysAboveWhatWasInUse(t *testing.T) {
	settings := guard.Settings{Name: "test", MemoryMargin: 1.25, MemoryPast: 10 * time.Minute}
	fresh := func() mdp.Policy { return guard.Standard(wants(mdp.Action{}.WithMemory(1)), settings, within(wide)) }
	chain := fresh()
	for _, one := range []struct {
		after int // seconds
		used  mdp.Bytes
		kills int
		want  mdp.Bytes
	}{
		{0, 80, 0, 100},
		{300, 40, 0, 100},
		{590, 20, 0, 100},
		{600, 20, 0, 50}, // of 40, five minutes ago
		{700, 24, 0, 50},
		{900, 20, 0, 30}, // of 24
		{910, 20, 1, 250},
		{1500, 20, 0, 250},
		{1510, 20, 0, 25},
	} {
		s := at(100, 200*mdp.MiB)
		s.At = noon.Add(time.Duration(one.after) * time.Second)
		s.Usage.Memory, s.OOMKills = one.used*mdp.MiB, one.kills
		s.Observed |= mdp.SetOf(mdp.OOMKills)
		a, err := chain.Decide(s)
		if err != nil || a.Limit.Memory != one.want*mdp.MiB || a.Clipped != mdp.ClippedUsage {
			t.Errorf("after %d s: %v (%v, %v), want %d MiB", one.after, a.Limit.Memory, a.Clipped, err, one.want)
		}
		chain = again(t, chain, fresh())
	}
}

// What was in use counts also where no memory was set then, and a kill where nobody knew what was in use.
func TestMemoryIsRememberedWhateverIsDecided(t *testing.T) {
	settings := guard.Settings{Name: "test", MemoryMargin: 1.25, MemoryPast: 10 * time.Minute}
	var want mdp.Action
	chain := guard.Standard(mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return want, nil }), settings, within(wide))
	decide := func(after time.Duration, used mdp.Bytes, kills int, known mdp.Set) mdp.Action {
		t.Helper()
		s := at(100, 200*mdp.MiB)
		s.At, s.Usage.Memory, s.OOMKills = noon.Add(after), used*mdp.MiB, kills
		s.Observed = mdp.LimitKnobs | known
		a, err := chain.Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	decide(0, 80, 0, mdp.SetOf(mdp.MemoryUsage))
	want = want.WithMemory(1)
	if a := decide(time.Minute, 20, 1, mdp.SetOf(mdp.MemoryUsage)); a.Limit.Memory != 100*mdp.MiB {
		t.Errorf("%v: 80 MiB were in use, and nobody knows of a kill", a)
	}
	if a := decide(2*time.Minute, 0, 1, mdp.SetOf(mdp.OOMKills)); a.Sets.Has(mdp.MemoryLimit) {
		t.Errorf("%v: nobody knows what is in use", a)
	}
	if a := decide(3*time.Minute, 20, 0, mdp.SetOf(mdp.MemoryUsage)); a.Limit.Memory != 250*mdp.MiB {
		t.Errorf("%v: a container with 200 MiB was killed", a)
	}
}

// A removal leaves ceilings that carry the largest burst of the last minutes with a tenth to spare, over restarts, too.
func TestNoReplicaGoesThatBurstsNeed(t *testing.T) {
	settings := guard.Settings{Name: "test", BurstShare: 0.9, BurstPast: 5 * time.Minute}
	fresh := func() mdp.Policy { return guard.Standard(wants(mdp.Action{}.WithReplicas(1)), settings, within(wide)) }
	chain := fresh()
	for _, one := range []struct {
		after   time.Duration
		burst   mdp.MilliCPU // of each of three replicas; 0: not known
		ceiling mdp.MilliCPU
		want    int
	}{
		{0, 151, 500, 2}, // 453 in one ceiling of 500 are more than nine tenths
		{time.Second, 150, 500, 2},
		{time.Minute, 301, 500, 3},
		{2 * time.Minute, 500, 500, 3}, // never more than there are
		{3 * time.Minute, 0, 500, 3},
		{4 * time.Minute, 10, 5000, 1}, // the same bursts beneath larger ceilings
		{5 * time.Minute, 10, 0, 1},    // beneath what nobody knows
		{7*time.Minute - time.Second, 10, 500, 3},
		{7 * time.Minute, 10, 500, 1},
	} {
		s := at(100, 200*mdp.MiB)
		s.At = noon.Add(one.after)
		s.Ceiling, s.CPUBurst = max(1, one.ceiling), one.burst
		if one.ceiling > 0 {
			s.Observed |= mdp.SetOf(mdp.CPUCeiling)
		}
		if one.burst > 0 {
			s.Observed |= mdp.SetOf(mdp.CPUBurst)
		}
		a, err := chain.Decide(s)
		if err != nil || a.Replicas != one.want || (a.Clipped == mdp.ClippedBurst) != (one.want > 1) {
			t.Errorf("after %v: %d replicas (%v, %v), want %d", one.after, a.Replicas, a.Clipped, err, one.want)
		}
		chain = again(t, chain, fresh())
	}
}

// What is older than the guards look back is forgotten, also where nothing is ever shrunk.
func TestWhatIsRememberedStaysSmall(t *testing.T) {
	settings := guard.Settings{
		Name: "test", MemoryMargin: 1.25, MemoryPast: 10 * time.Minute, BurstShare: 0.9, BurstPast: 10 * time.Minute,
	}
	chain := guard.Standard(wants(mdp.Action{}), settings, within(wide))
	s := at(100, 200*mdp.MiB)
	s.Observed |= mdp.SetOf(mdp.CPUBurst, mdp.CPUCeiling)
	s.CPUBurst, s.Ceiling = 10_000, 10_000
	for range 5000 { // both fall all the time, so that each value could be the highest one still
		s.At = s.At.Add(10 * time.Second)
		s.CPUBurst, s.Usage.Memory = s.CPUBurst-1, s.Usage.Memory-1
		if _, err := chain.Decide(s); err != nil {
			t.Fatal(err)
		}
	}
	saved, err := chain.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil || len(saved) > 10_000 {
		t.Errorf("%d bytes after 14 hours (%v)", len(saved), err)
	}
}

// In a burst, for a minute, what is reserved stays, memory does not shrink, and it may rise. Replicas are added. What a shrink
// has waited for comes when the burst is over, or when it turns out to be none.
func TestNothingIsResizedWithinABurst(t *testing.T) {
	busy := at(0, 200*mdp.MiB)
	busy.Observed = busy.Observed.Without(mdp.SetOf(mdp.CPULimit)) | mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling, mdp.CPUUsage)
	busy.Reservation, busy.Ceiling, busy.Usage.CPU = 400, 401, 401
	calm, blind, flat := busy, busy, busy
	calm.Usage.CPU = 400
	flat.Ceiling = 400 // as a pod has it whose request is its limit
	blind.Observed = blind.Observed.Without(mdp.SetOf(mdp.CPUUsage))
	less := mdp.Action{}.WithReservation(360).WithMemory(180 * mdp.MiB)
	same := mdp.Action{}.WithReservation(400).WithMemory(200 * mdp.MiB)
	more := mdp.Action{}.WithReservation(440).WithMemory(220 * mdp.MiB).WithReplicas(4)
	for name, c := range map[string]struct {
		s     mdp.State
		burst time.Duration // so long it has been going on
		want  mdp.Action
		is    mdp.Action
		why   mdp.Clips
	}{
		"it begins":           {busy, 0, less, same, mdp.ClippedBurst},
		"more is wanted":      {busy, 0, more, more.WithReservation(400), mdp.ClippedBurst},
		"it goes on":          {busy, 59 * time.Second, less, same, mdp.ClippedBurst},
		"for too long":        {busy, time.Minute, less, less, 0},
		"it is over":          {calm, time.Second, less, less, 0},
		"usage is not known":  {blind, time.Second, less, less, 0},
		"no ceiling above":    {flat, time.Second, more, more, 0},
		"nothing is resized":  {busy, 0, mdp.Action{}.WithReplicas(4), mdp.Action{}.WithReplicas(4), 0},
		"what there is stays": {busy, 0, mdp.Action{}.WithReservation(400), mdp.Action{}.WithReservation(400), 0},
	} {
		p := guard.Standard(wants(c.want), guard.Central, within(wide))
		decide := func(s mdp.State) mdp.Action {
			a, err := p.Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if c.burst > 0 {
			decide(busy)
		}
		c.s.At = noon.Add(c.burst)
		a := decide(c.s)
		if why := a.Clipped; why != c.why {
			t.Errorf("%s: clipped by %q, want %q", name, why, c.why)
		}
		if a.Clipped = 0; a != c.is {
			t.Errorf("%s: %v, want %v", name, a, c.is)
		}
	}
	p := guard.Standard(wants(less), guard.Central, within(wide))
	for after, s := range []mdp.State{busy, calm, busy} {
		s.At = noon.Add(time.Duration(after) * 31 * time.Second)
		a, err := p.Decide(s)
		if held := a.Reservation == 400; err != nil || held != (s.Usage.CPU > 400) {
			t.Errorf("state %d: %v, %v; the next burst is another one", after, a, err)
		}
	}
}

func TestReplicasGoOneByOneAndComeInSteps(t *testing.T) {
	p := guard.Standard(wants(mdp.Action{}.WithReplicas(1)), guard.Central, within(wide))
	s := at(100, 100*mdp.MiB)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 2}, {59 * time.Second, 3}, {60 * time.Second, 2}} {
		s.At = noon.Add(c.after)
		if a, _ := p.Decide(s); a.Replicas != c.want {
			t.Errorf("after %v: %d of 3 replicas, want %d", c.after, a.Replicas, c.want)
		}
	}
	for now, want := range map[int]int{1: 5, 3: 7, 4: 8, 10: 20} { // 4 more, or doubled, whichever is more
		s.Replicas = now
		a, _ := guard.Standard(wants(mdp.Action{}.WithReplicas(90)), guard.Central, within(wide)).Decide(s)
		if a.Replicas != want || a.Clipped&mdp.ClippedRateUp == 0 {
			t.Errorf("from %d to %d (%v), want %d", now, a.Replicas, a.Clipped, want)
		}
	}
}

func TestNothingShrinksWhileTheSLOIsViolated(t *testing.T) {
	place := within(wide)
	place.SLO = mdp.SLO{Percentile: 99, Latency: 5 * time.Millisecond}
	p := guard.Standard(wants(mdp.Action{}.WithReplicas(1).WithCPU(50).WithMemory(10*mdp.MiB)), guard.Central, place)
	s := at(100, 100*mdp.MiB)
	a, _ := p.Decide(s)
	if a.Replicas != 3 || a.Limit != s.Limit || a.Clipped != mdp.ClippedSLO {
		t.Errorf("%v clipped by %v, want what is in force", a, a.Clipped)
	}
	s.Latency = time.Millisecond
	if a, _ = p.Decide(s); a.Replicas != 2 || a.Clipped&mdp.ClippedSLO != 0 {
		t.Errorf("with the SLO met: %v clipped by %v", a, a.Clipped)
	}
}

func TestARaiseTakesNoMoreThanTheNodeHasLeft(t *testing.T) {
	place := within(wide)
	place.Budget = func() (mdp.Size, bool) { return mdp.Size{CPU: 30, Memory: -5}, true }
	a, err := guard.Standard(wants(mdp.Action{}.WithCPU(190).WithMemory(101*mdp.MiB)), guard.Central, place).
		Decide(at(100, 100*mdp.MiB))
	if err != nil || a.Limit != (mdp.Size{CPU: 130, Memory: 100 * mdp.MiB}) || a.Clipped != mdp.ClippedBudget {
		t.Errorf("%v clipped by %v, %v; want 30m more CPU and no more memory", a, a.Clipped, err)
	}
}

// What a guard allows passes as it is, and says nothing of it: also the largest step that is allowed, and the last that is left.
func TestWhatIsAllowedPasses(t *testing.T) {
	left := within(wide)
	left.Budget = func() (mdp.Size, bool) { return mdp.Size{CPU: 30, Memory: 30 * mdp.MiB}, true }
	unknown := within(wide)
	unknown.Budget = func() (mdp.Size, bool) { return mdp.Size{}, false }
	bursts := guard.Settings{Name: "test", BurstShare: 0.9, BurstPast: time.Minute}
	margin := guard.Settings{Name: "test", MemoryMargin: 1.5}
	s := at(100, 100*mdp.MiB)
	s.Observed |= mdp.SetOf(mdp.CPUCeiling, mdp.CPUBurst)
	s.Ceiling, s.CPUBurst = 100, 100
	for name, c := range map[string]struct {
		settings guard.Settings
		place    guard.Place
		wants    mdp.Action
	}{
		"a raise of all that is left":       {guard.Central, left, mdp.Action{}.WithCPU(130).WithMemory(130 * mdp.MiB)},
		"a raise of less":                   {guard.Central, left, mdp.Action{}.WithCPU(110).WithMemory(110 * mdp.MiB)},
		"a shrink where something is left":  {guard.Central, left, mdp.Action{}.WithCPU(90).WithMemory(90 * mdp.MiB)},
		"a raise, and nobody knows of room": {guard.Central, unknown, mdp.Action{}.WithCPU(200).WithMemory(200 * mdp.MiB)},
		"the largest steps":                 {guard.Central, within(wide), mdp.Action{}.WithCPU(200).WithReplicas(7)},
		"the largest steps down":            {guard.Central, within(wide), mdp.Action{}.WithCPU(80).WithReplicas(2)},
		"memory as far down as its use":     {margin, within(wide), mdp.Action{}.WithMemory(75 * mdp.MiB)},
		"replicas that bursts need":         {bursts, within(wide), mdp.Action{}.WithReplicas(3)},
	} {
		if a, err := guard.Standard(wants(c.wants), c.settings, c.place).Decide(s); err != nil || a != c.wants {
			t.Errorf("%s: %v clipped by %q, %v; want %v", name, a, a.Clipped, err, c.wants)
		}
	}
	more := mdp.Action{}.WithCPU(131).WithMemory(131 * mdp.MiB)
	a, err := guard.Standard(wants(more), guard.Central, left).Decide(s)
	if err != nil || a.Limit != (mdp.Size{CPU: 130, Memory: 130 * mdp.MiB}) || a.Clipped != mdp.ClippedBudget {
		t.Errorf("a raise of more than is left: %v clipped by %q, %v", a, a.Clipped, err)
	}
}

// A guard whose setting is zero does nothing: rules that others published run as their authors ran them.
func TestAGuardThatIsOffDoesNothing(t *testing.T) {
	place := within(wide)
	place.SLO = mdp.SLO{Percentile: 99, Latency: time.Millisecond}
	all := mdp.Action{}.WithCPU(1).WithMemory(1).WithReplicas(90)
	s := at(100, 100*mdp.MiB) // late
	for name, settings := range map[string]guard.Settings{"published": guard.Published, "of nothing": {}} {
		if a, err := guard.Standard(wants(all), settings, place).Decide(s); err != nil || a != all {
			t.Errorf("%s: %v clipped by %q, %v", name, a, a.Clipped, err)
		}
		less, s := mdp.Action{}.WithReplicas(1), s
		s.Observed |= mdp.SetOf(mdp.CPUCeiling, mdp.CPUBurst)
		s.Ceiling, s.CPUBurst = 100, 100
		if a, err := guard.Standard(wants(less), settings, place).Decide(s); err != nil || a != less {
			t.Errorf("%s, and bursts need all replicas: %v clipped by %q, %v", name, a, a.Clipped, err)
		}
		s.Observed = 0
		if a, err := guard.Standard(wants(all), settings, place).Decide(s); err != nil || a != all {
			t.Errorf("%s, and nothing is known: %v clipped by %q, %v", name, a, a.Clipped, err)
		}
	}
	a, err := guard.Standard(wants(mdp.Action{}.WithCPU(90)), guard.Blind, place).Decide(s)
	if err != nil || a.Limit.CPU != 90 || a.Clipped != 0 {
		t.Errorf("an agent that does not see how the SLO fares: %v clipped by %q, %v", a, a.Clipped, err)
	}
}

// Without knowing where one stands there is no small step: each guard of steps, alone, leaves alone what is not known.
func TestWhatIsNotKnownIsNotMoved(t *testing.T) {
	for name, settings := range map[string]guard.Settings{
		"up": {Up: 2}, "down": {Down: 0.5}, "replicas up": {ReplicasUp: 2}, "replicas dwell": {ReplicasDwell: time.Second},
		"memory dwell": {MemoryDwell: time.Second}, "reserved dwell": {ReservedDwell: time.Second},
	} {
		s := at(100, 100*mdp.MiB)
		s.Observed = s.Observed.Without(mdp.SetOf(mdp.CPULimit))
		a, err := guard.Standard(wants(mdp.Action{}.WithCPU(110).WithReplicas(3)), settings, within(wide)).Decide(s)
		if err != nil || a.Sets != mdp.SetOf(mdp.Replicas) || a.Clipped != mdp.ClippedStale {
			t.Errorf("%s: %v clipped by %q, %v; want replicas alone", name, a, a.Clipped, err)
		}
	}
}

// A report says which guards are on, and with what.
func TestSettingsSayWhatIsOn(t *testing.T) {
	all := guard.Central
	all.MemoryPast, all.BurstShare, all.BurstPast = 10*time.Minute, 0.9, 5*time.Minute
	for _, c := range []struct {
		settings guard.Settings
		want     string
	}{
		{guard.Published, "published: bounds"},
		{guard.Node, "node: no shrink while the SLO is violated; down at most x0.5; memory down each 1m0s; " +
			"memory at least x1.25 of what is in use; bounds"},
		{all, "central: no shrink while the SLO is violated; no resize within the first 1m0s of a burst; limits up at most x2; " +
			"down at most x0.8; replicas up at most x2 or 4 more; one replica less each 1m0s; memory down each 1m0s; " +
			"a reservation down each 1m0s; memory at least x1.25 of what is in use; or was in the last 10m0s; " +
			"no replica less where bursts would need more than 0.9 of the ceilings; bounds"},
	} {
		if got := c.settings.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestSettingsAreFoundByTheirName(t *testing.T) {
	for _, s := range named {
		if got, err := guard.Named(s.Name); err != nil || got != s {
			t.Errorf("%s: %v, %v", s.Name, got, err)
		}
	}
	if _, err := guard.Named("brave"); err == nil || !strings.Contains(err.Error(), `guards "brave": they must be central`) {
		t.Errorf("%v", err)
	}
}

func TestAPolicyThatFailsIsReplacedByTheFallback(t *testing.T) {
	rule := wants(mdp.Action{}.WithCPU(150))
	var nan mdp.Ratio = mdp.Ratio(math.NaN())
	for name, c := range map[string]struct {
		policy mdp.Policy
		broken bool
	}{
		"an error": {
			mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, errors.New("no weights") }),
			false,
		},
		"an illegal action": {wants(mdp.Action{}.WithCPU(-7)), true},
		"a NaN":             {wants(mdp.Action{}.WithCPU(mdp.MilliCPU(nan))), true},
		"a panic":           {mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { panic("index out of range") }), true},
	} {
		t.Run(name, func(t *testing.T) {
			place := within(wide)
			place.Fallback = rule
			a, err := guard.Standard(c.policy, guard.Central, place).Decide(at(100, mdp.MiB))
			want := mdp.ClippedFallback
			if c.broken {
				want |= mdp.ClippedNaN
			}
			if err != nil || a.Limit.CPU != 150 || a.Clipped != want {
				t.Errorf("%v (%v), err %v; want the rule's 150m, clipped by %v", a, a.Clipped, err, want)
			}
			place.Fallback = nil
			_, err = guard.Standard(c.policy, guard.Central, place).Decide(at(100, mdp.MiB))
			var illegal *guard.IllegalError
			if err == nil || errors.As(err, &illegal) != c.broken {
				t.Errorf("without a fallback: %v", err)
			}
			place.Fallback = c.policy // which fails as well
			_, err = guard.Standard(c.policy, guard.Central, place).Decide(at(100, mdp.MiB))
			if illegal = nil; err == nil || errors.As(err, &illegal) != c.broken {
				t.Errorf("both fail: %v", err)
			}
		})
	}
}

func TestAFallbackSeesEveryState(t *testing.T) {
	seen := 0
	place := within(wide)
	place.Fallback = mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { seen++; return mdp.Action{}, nil })
	p := guard.Standard(wants(mdp.Action{}.WithCPU(100)), guard.Central, place)
	for range 3 {
		if a, err := p.Decide(at(100, mdp.MiB)); err != nil || a.Limit.CPU != 100 || a.Clipped != 0 {
			t.Fatalf("%v clipped by %q, %v; the policy decides as long as it can", a, a.Clipped, err)
		}
	}
	if seen != 3 {
		t.Errorf("the fallback saw %d of 3 states", seen)
	}
}

func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	if err := (guard.Settings{MemoryMargin: 1, BurstShare: 1}).Check(); err != nil {
		t.Errorf("a limit at what is in use, and ceilings that bursts use up: %v", err)
	}
	for want, change := range map[string]func(*guard.Settings){
		"up 0.5":          func(s *guard.Settings) { s.Up = 0.5 },
		"up 1":            func(s *guard.Settings) { s.Up = 1 },
		"down 1":          func(s *guard.Settings) { s.Down = 1 },
		"replicas up 1":   func(s *guard.Settings) { s.ReplicasUp = 1 },
		"of memory -1s":   func(s *guard.Settings) { s.MemoryDwell = -time.Second },
		"reservation -1s": func(s *guard.Settings) { s.ReservedDwell = -time.Second },
		"a burst -1s":     func(s *guard.Settings) { s.HoldBurst = -time.Second },
		"memory margin 0": func(s *guard.Settings) { s.MemoryMargin = 0.5 },
		"memory past -1s": func(s *guard.Settings) { s.MemoryPast = -time.Second },
		"burst past -1s":  func(s *guard.Settings) { s.BurstPast = -time.Second },
		"burst share 1.1": func(s *guard.Settings) { s.BurstShare = 1.1 },
	} {
		s := guard.Central
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// The node agent decides each second for each container.
func TestADecisionDoesNotAllocate(t *testing.T) {
	place := within(wide)
	place.SLO = mdp.SLO{Percentile: 99, Latency: 5 * time.Millisecond}
	place.Fallback = wants(mdp.Action{})
	settings := guard.Central
	settings.MemoryPast, settings.BurstPast, settings.BurstShare = time.Hour, time.Hour, 0.9
	p := guard.Standard(wants(mdp.Action{}.WithCPU(50).WithMemory(10*mdp.MiB).WithReplicas(1)), settings, place)
	s := at(100, 100*mdp.MiB)
	s.Observed |= mdp.SetOf(mdp.CPUCeiling, mdp.CPUBurst)
	s.Ceiling, s.CPUBurst = 100, 80
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.Decide(s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A reservation comes down once in its time, also over a restart, and goes up whenever it is wanted.
func TestAReservationComesDownOnceInItsTime(t *testing.T) {
	wants := mdp.MilliCPU(0)
	fresh := func() mdp.Policy {
		return guard.Standard(
			mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithReservation(wants), nil }),
			guard.Settings{Name: "test", Down: 0.5, ReservedDwell: time.Minute},
			guard.Place{Bounds: func() mdp.Bounds {
				return mdp.Bounds{Reservation: mdp.Range[mdp.MilliCPU]{Min: 10, Max: 1000}}
			}},
		)
	}
	chain, has := fresh(), mdp.MilliCPU(400)
	for _, one := range []struct {
		after       time.Duration
		wants, gets mdp.MilliCPU
	}{
		{0, 100, 200},
		{50 * time.Second, 100, 200},
		{55 * time.Second, 300, 300},
		{59 * time.Second, 100, 300},
		{60 * time.Second, 100, 150},
		{119 * time.Second, 100, 150},
		{120 * time.Second, 100, 100},
	} {
		wants = one.wants
		a, err := chain.Decide(mdp.State{
			At: time.Unix(1000, 0).Add(one.after), Observed: mdp.SetOf(mdp.CPUReservation), Reservation: has,
		})
		if err != nil {
			t.Fatal(err)
		}
		if has = a.Reservation; has != one.gets || (has > wants) != (a.Clipped&(mdp.ClippedDwell|mdp.ClippedRateDown) != 0) {
			t.Errorf("after %v: %v, want %v for %v", one.after, a, one.gets, one.wants)
		}
		chain = again(t, chain, fresh())
	}
}
