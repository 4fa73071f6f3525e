package mdp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// shop is a small world: a workload whose latency is work divided by its CPU.
type shop struct {
	limit mdp.Size
	blind mdp.Set // signals that cannot be seen
	sense error
	act   error
}

func (w *shop) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	s := mdp.State{
		At: now,
		Observed: mdp.SetOf(
			mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Throughput,
		).Without(w.blind),
		Limit: w.limit, Usage: mdp.Size{CPU: 200, Memory: 64 * mdp.MiB},
		Latency: time.Duration(40_000/int64(w.limit.CPU)) * time.Millisecond, Throughput: 10,
	}
	return s, w.sense
}

func (w *shop) Act(_ context.Context, _ time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	if w.act != nil {
		return mdp.Action{}, mdp.Failed, w.act
	}
	if a.Sets.Has(mdp.CPULimit) {
		w.limit.CPU = a.Limit.CPU
	}
	return a.Only(mdp.SetOf(mdp.CPULimit)), mdp.Applied, nil
}

func TestAWorkloadThatMissesItsSLOGrowsUntilItHolds(t *testing.T) {
	world := &shop{limit: mdp.Size{CPU: 200, Memory: 128 * mdp.MiB}}
	double := mdp.PolicyFunc(func(s mdp.State) (mdp.Action, error) {
		if s.Latency > 100*time.Millisecond {
			return mdp.Action{}.WithCPU(2 * s.Limit.CPU), nil
		}
		return mdp.Action{}, nil
	})
	loop := mdp.Loop{
		Sensor: world, Actuator: world, Policy: double,
		Objective: mdp.Objective{SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}, Alpha: 0.5},
	}
	first, err := loop.Step(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	if first.Complete {
		t.Error("the first step has nothing before it, and yet made a transition")
	}
	second, err := loop.Step(t.Context(), noon.Add(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if !second.Complete || second.Transition.State.Limit.CPU != 200 || second.Transition.Next.Limit.CPU != 400 {
		t.Errorf("transition = %+v, want 200m -> 400m", second.Transition)
	}
	if second.Transition.Reward != second.Reward {
		t.Errorf("a transition's reward is that of the state it led to: %v, not %v", second.Reward, second.Transition.Reward)
	}
	if world.limit.CPU != 400 {
		t.Errorf("limit = %v, want 400m and no further: the SLO holds", world.limit.CPU)
	}
}

func TestAFailedStepBreaksTheTransition(t *testing.T) {
	broken := errors.New("the machine is on fire")
	for name, fail := range map[string]func(*shop){
		"sensing fails": func(w *shop) { w.sense = broken },
		"acting fails":  func(w *shop) { w.act = broken },
	} {
		t.Run(name, func(t *testing.T) {
			world := &shop{limit: mdp.Size{CPU: 400, Memory: 128 * mdp.MiB}}
			loop := mdp.Loop{Sensor: world, Actuator: world, Policy: mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
				return mdp.Action{}.WithCPU(300), nil
			})}
			if _, err := loop.Step(t.Context(), noon); err != nil {
				t.Fatal(err)
			}
			fail(world)
			if _, err := loop.Step(t.Context(), noon); !errors.Is(err, broken) {
				t.Fatalf("err = %v, want one that wraps %v", err, broken)
			}
			world.sense, world.act = nil, nil
			d, err := loop.Step(t.Context(), noon)
			if err != nil || d.Complete {
				t.Errorf("step after a failure: complete %v, err %v; want a step without transition", d.Complete, err)
			}
		})
	}
}

func TestAnIllegalActionIsNeverCarriedOut(t *testing.T) {
	world := &shop{limit: mdp.Size{CPU: 400, Memory: 128 * mdp.MiB}}
	loop := mdp.Loop{Sensor: world, Actuator: world, Policy: mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
		return mdp.Action{}.WithCPU(0), nil
	})}
	if d, err := loop.Step(t.Context(), noon); err == nil || d.Effect != mdp.Refused {
		t.Errorf("effect %v, err %v; want refused with an error", d.Effect, err)
	}
	if world.limit.CPU != 400 {
		t.Errorf("limit became %v", world.limit.CPU)
	}
}

// AWARE §2.2: with two resources an episode of 100 steps tops out at 200, and a
// worse SLO or a lower utilisation never raises a reward.
func TestRewardLaws(t *testing.T) {
	law := func(lat, used uint16, alpha uint8) bool {
		o := mdp.Objective{SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}, Alpha: mdp.Ratio(alpha) / 255}
		s := mdp.State{
			Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency),
			Limit:    mdp.Size{CPU: 1000, Memory: 1000},
			Usage:    mdp.Size{CPU: mdp.MilliCPU(used), Memory: 500},
			Latency:  time.Duration(lat) * time.Millisecond,
		}
		r, ok := o.Judge(s)
		if !ok || r < 0 || r > 2+1e-12 {
			return false
		}
		slower := s
		slower.Latency += 50 * time.Millisecond
		idler := s
		idler.Usage.CPU /= 2
		worse, _ := o.Judge(slower)
		idle, _ := o.Judge(idler)
		return worse <= r && idle <= r
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

// Central decides on reservations, and so its reward is of them: the limit in force is the node's.
func TestTheRewardIsOfWhatIsDecidedOn(t *testing.T) {
	s := mdp.State{
		Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.CPUReservation),
		Limit:    mdp.Size{CPU: 1000, Memory: mdp.MiB}, Usage: mdp.Size{CPU: 250, Memory: mdp.MiB}, Reservation: 500,
	}
	for reserved, want := range map[bool]mdp.Reward{false: 1 + 0.5*(0.25+1), true: 1 + 0.5*(0.5+1)} {
		if got, ok := (mdp.Objective{Alpha: 0.5, Reserved: reserved}).Judge(s); !ok || got != want {
			t.Errorf("reserved %v: %v, %v; want %v", reserved, got, ok, want)
		}
	}
	// To reserve nothing is no way to earn more: what is used beyond it was reserved by others.
	for _, share := range []mdp.MilliCPU{2, 4, 8} {
		less, more := s, s
		less.Reservation, more.Reservation = s.Usage.CPU/share, s.Usage.CPU*share
		o := mdp.Objective{Alpha: 0.5, Reserved: true}
		a, ok := o.Judge(less)
		b, same := o.Judge(more)
		exact := s
		exact.Reservation = s.Usage.CPU
		if best, _ := o.Judge(exact); !ok || !same || math.Abs(float64(a-b)) > 0.01 || a >= best {
			t.Errorf("a reservation of 1/%d of the usage earns %v, %d times as much %v", share, a, share, b)
		}
	}
	s.Observed = s.Observed.Without(mdp.SetOf(mdp.CPUReservation))
	if _, ok := (mdp.Objective{Alpha: 0.5, Reserved: true}).Judge(s); ok {
		t.Error("a reservation that is not known is judged")
	}
}

// A step in which requests were missed is judged whatever else is not seen, and
// what is not seen never makes it better.
func TestABadStepCountsWithWhatIsKnownOfIt(t *testing.T) {
	o := mdp.Objective{SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond, Lost: 0.005}, Alpha: 0.5}
	law := func(lat, used, missed uint16, hidden uint32) bool {
		s := mdp.State{
			Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Missed),
			Limit:    mdp.Size{CPU: 1000, Memory: 1000},
			Usage:    mdp.Size{CPU: mdp.MilliCPU(used), Memory: 500},
			Latency:  time.Duration(lat) * time.Millisecond,
			Missed:   0.0051 + mdp.Ratio(missed)/math.MaxUint16*0.99,
		}
		all, _ := o.Judge(s)
		part, ok := o.Judge(s.Mask(s.Observed.Without(mdp.Set(hidden)) | mdp.SetOf(mdp.Missed)))
		return ok && part <= all+1e-12
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
	fine := mdp.State{Observed: mdp.SetOf(mdp.Missed), Missed: 0.004}
	if r, ok := o.Judge(fine); ok {
		t.Errorf("a reward of %v was made up for a step without a price", r)
	}
}

func TestPreservation(t *testing.T) {
	slo := mdp.SLO{Percentile: 99, Latency: 50 * time.Millisecond}
	for name, c := range map[string]struct {
		slo  mdp.SLO
		s    mdp.State
		want mdp.Ratio
		ok   bool
	}{
		"no objective is always met":   {mdp.SLO{}, mdp.State{}, 1, true},
		"no traffic cannot violate":    {slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput, mdp.Arrivals)}, 1, true},
		"no answers alone say nothing": {slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput)}, 0, false},
		"traffic without an answer": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput, mdp.Arrivals), Arrivals: 5}, 0, true,
		},
		"a kill is a violation, whatever else is known": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.OOMKills, mdp.Latency), OOMKills: 1}, 0, true,
		},
		"late background work": {
			mdp.SLO{Background: 0.99}, mdp.State{Observed: mdp.SetOf(mdp.BackgroundLate), BackgroundLate: 0.04}, 0.25, true,
		},
		"lost requests":                       {mdp.SLO{Lost: 0.005}, mdp.State{Observed: mdp.SetOf(mdp.Lost), Lost: 0.01}, 0.5, true},
		"lost requests of which nobody knows": {mdp.SLO{Lost: 0.005}, mdp.State{Lost: 0.01}, 1, true},
		"lost requests alone, and no answers": {mdp.SLO{Lost: 0.005},
			mdp.State{Observed: mdp.SetOf(mdp.Lost, mdp.Throughput, mdp.Arrivals), Arrivals: 5}, 1, true},
		"twice too slow is half preserved": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Latency), Latency: 100 * time.Millisecond}, 0.5, true,
		},
		"faster than asked earns no more": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Latency), Latency: time.Millisecond}, 1, true,
		},
		"unseen latency is not good latency": {slo, mdp.State{}, 0, false},
		"unseen throughput is no good one":   {mdp.SLO{Throughput: 100}, mdp.State{}, 0, false},
		"a kill of which nobody knows": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Latency), OOMKills: 1, Latency: time.Millisecond}, 1, true,
		},
		"late background work of which nobody knows": {mdp.SLO{Background: 0.99}, mdp.State{BackgroundLate: 0.04}, 1, true},
		"requests missed, and none answered": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput, mdp.Missed), Missed: 0.5}, 0, true,
		},
		"none missed, and none answered": {slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput, mdp.Missed)}, 0, false},
		"none answered, and nobody knows what was missed": {
			slo, mdp.State{Observed: mdp.SetOf(mdp.Throughput), Missed: 0.5}, 0, false,
		},
		"half the asked throughput": {mdp.SLO{Throughput: 100},
			mdp.State{Observed: mdp.SetOf(mdp.Throughput), Throughput: 50}, 0.5, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := c.slo.Preservation(c.s)
			if ok != c.ok || math.Abs(float64(got-c.want)) > 1e-12 {
				t.Errorf("Preservation = %v, %v; want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// An SLO that nobody can judge is named, with its value; what is at the edge of that can be judged.
func TestAnSLOThatCannotBeJudgedIsNamed(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		slo  mdp.SLO
		want string // empty: it can be judged
	}{
		{mdp.SLO{}, ""},
		{mdp.SLO{Percentile: nan}, ""}, // of nothing
		{mdp.SLO{Latency: time.Nanosecond, Percentile: 0.1}, ""},
		{mdp.SLO{Latency: time.Nanosecond, Percentile: 99.99}, ""},
		{mdp.SLO{Latency: time.Second, Percentile: 0}, "slo percentile 0"},
		{mdp.SLO{Latency: time.Second, Percentile: 100}, "slo percentile 100"},
		{mdp.SLO{Latency: time.Second, Percentile: nan}, "slo percentile NaN"},
		{mdp.SLO{Latency: -time.Second, Percentile: 99}, "slo latency -1s"},
		{mdp.SLO{Throughput: 0.1}, ""},
		{mdp.SLO{Throughput: -1}, "slo throughput -1"},
		{mdp.SLO{Throughput: mdp.Rate(nan)}, "slo throughput NaN"},
		{mdp.SLO{Throughput: mdp.Rate(math.Inf(1))}, "slo throughput +Inf"},
		{mdp.SLO{Lost: 1}, ""},
		{mdp.SLO{Lost: -0.1}, "slo lost -0.1"},
		{mdp.SLO{Lost: 1.1}, "slo lost 1.1"},
		{mdp.SLO{Lost: mdp.Ratio(nan)}, "slo lost NaN"},
		{mdp.SLO{Background: 0.999}, ""},
		{mdp.SLO{Background: -0.1}, "slo background -0.1"},
		{mdp.SLO{Background: 1}, "slo background 1"},
		{mdp.SLO{Background: mdp.Ratio(nan)}, "slo background NaN"},
	} {
		err := c.slo.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want+":") {
			t.Errorf("%+v: %v, want %q", c.slo, err, c.want)
		}
	}
}

// Each objective has its price, by what is observed of it alone, and no other has. Beyond half of the tolerance it is 1 for each
// tolerance with alpha of a half: what efficiency can earn.
func TestEachObjectiveHasItsPrice(t *testing.T) {
	full := mdp.State{
		Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.MemoryUsage, mdp.Latency, mdp.Throughput),
		Limit:    mdp.Size{CPU: 100, Memory: 100}, Usage: mdp.Size{CPU: 100, Memory: 100}, Throughput: 10,
		Missed: 0.15, Lost: 0.15, BackgroundLate: 0.15,
	}
	sees := func(more ...mdp.Signal) mdp.State {
		s := full
		s.Observed |= mdp.SetOf(more...)
		return s
	}
	killed, killedLate, larger := sees(mdp.OOMKills), sees(mdp.OOMKills, mdp.Missed), full
	killed.OOMKills, killedLate.OOMKills = 1, 1
	half, nothing := full, full
	half.Usage.Memory, nothing.Limit.Memory = 50, 0
	if r, ok := (mdp.Objective{Alpha: 0.5}).Judge(nothing); ok {
		t.Errorf("a container without a memory limit earns %v", r)
	}
	nothing = full
	nothing.Limit.CPU = 0
	if r, ok := (mdp.Objective{Alpha: 0.5}).Judge(nothing); ok {
		t.Errorf("a container without a CPU limit earns %v", r)
	}
	larger.Usage = mdp.Size{CPU: 200, Memory: 200}
	latency := mdp.SLO{Percentile: 90, Latency: time.Second}
	for name, c := range map[string]struct {
		slo  mdp.SLO
		s    mdp.State
		want mdp.Reward
	}{
		"nothing is asked":                   {mdp.SLO{}, sees(mdp.Missed, mdp.Lost, mdp.BackgroundLate), 2},
		"late requests":                      {latency, sees(mdp.Missed), 2 - 1},
		"late requests that nobody has seen": {latency, full, 2},
		"late requests without a latency":    {mdp.SLO{Percentile: 90, Throughput: 10}, sees(mdp.Missed), 2},
		"lost requests":                      {mdp.SLO{Lost: 0.15}, sees(mdp.Lost), 2 - 0.5},
		"lost requests that nobody has seen": {mdp.SLO{Lost: 0.1}, full, 2},
		"late background work":               {mdp.SLO{Background: 0.85}, sees(mdp.BackgroundLate), 2 - 0.5},
		"background work nobody asked for":   {mdp.SLO{Lost: 0.15}, sees(mdp.BackgroundLate), 2},
		"a kill in full use":                 {latency, killed, 0},
		"a kill, and late requests":          {latency, killedLate, -1},
		"more than the limits in use":        {latency, larger, 2},
		"half of the memory in use":          {latency, half, 1.75},
	} {
		got, ok := (mdp.Objective{SLO: c.slo, Alpha: 0.5}).Judge(c.s)
		if !ok || math.Abs(float64(got-c.want)) > 1e-9 {
			t.Errorf("%s: %v, %v; want %v", name, got, ok, c.want)
		}
	}
}

// No state is worth less than the worst there is, and one in which everything is late or lost is worth hardly more.
func TestNothingIsWorthLessThanTheWorst(t *testing.T) {
	for _, slo := range []mdp.SLO{
		{}, {Throughput: 10}, {Percentile: 99, Latency: 100 * time.Millisecond},
		{Percentile: 90, Latency: 100 * time.Millisecond, Lost: 0.005, Background: 0.9},
	} {
		o := mdp.Objective{SLO: slo, Alpha: 0.3}
		judge := func(late, lost, background float64) float64 {
			t.Helper()
			r, ok := o.Judge(mdp.State{
				Observed: mdp.All &^ mdp.SetOf(mdp.OOMKills), Replicas: 1, Limit: mdp.Size{CPU: 1000, Memory: mdp.MiB},
				Usage: mdp.Size{CPU: 1, Memory: 1}, Latency: time.Second, Throughput: 1, Arrivals: 1,
				Missed: mdp.Ratio(late), Lost: mdp.Ratio(lost), BackgroundLate: mdp.Ratio(background),
			})
			if !ok {
				t.Fatalf("%+v: the reward is not known", slo)
			}
			return float64(r)
		}
		worst := float64(o.Worst())
		if got := judge(1, 1, 1); got < worst || got > worst+1.41 {
			t.Errorf("%+v: everything late and lost is worth %v, and the worst %v", slo, got, worst)
		}
		for range 100 {
			if got := judge(rand.Float64(), rand.Float64(), rand.Float64()); got < worst {
				t.Errorf("%+v: %v is worse than the worst, %v", slo, got, worst)
			}
		}
	}
}

// One late request costs as much as the whole tolerance at most, however few there are; of many requests the share is what it is.
func TestOneLateRequestOfFewIsNoFifthOfThem(t *testing.T) {
	slo := mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}
	for requests, want := range map[float64]mdp.Ratio{1: 0.01, 5: 0.01, 99: 0.01, 100: 0.01, 1000: 0.001} {
		if got := slo.Counted(mdp.Ratio(1/requests), requests); math.Abs(float64(got-want)) > 1e-9 {
			t.Errorf("one of %v: %v, want %v", requests, got, want)
		}
	}
}

func TestUnknownIsNotZero(t *testing.T) {
	s := mdp.State{Observed: mdp.SetOf(mdp.CPULimit)}
	err := s.Require("captain", mdp.CPULimit, mdp.Throttled, mdp.CPUPeak)
	var unknown *mdp.UnknownError
	if !errors.As(err, &unknown) || unknown.Missing != mdp.SetOf(mdp.Throttled, mdp.CPUPeak) {
		t.Fatalf("err = %v, want the two missing signals", err)
	}
	if got, want := err.Error(), "captain: not observed: {cpu-peak throttled}"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if _, ok := (mdp.Objective{}).Judge(s); ok {
		t.Error("a reward was made up from a state without usage")
	}
}

func TestBoundsClipAndSayWhy(t *testing.T) {
	b := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 5},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 100, Max: 500},
		Memory:   mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 256 * mdp.MiB},
	}
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	law := func(n int16, cpu int32, mem int64, sets uint8) bool {
		a := mdp.Action{
			Sets:     mdp.Set(sets) & mdp.Knobs,
			Replicas: int(n),
			Limit:    mdp.Size{CPU: mdp.MilliCPU(cpu), Memory: mdp.Bytes(mem)},
		}
		got := b.Clip(a)
		inside := (!a.Sets.Has(mdp.Replicas) || b.Replicas.Has(got.Replicas)) &&
			(!a.Sets.Has(mdp.CPULimit) || b.CPU.Has(got.Limit.CPU)) &&
			(!a.Sets.Has(mdp.MemoryLimit) || b.Memory.Has(got.Limit.Memory))
		moved := got.Replicas != a.Replicas || got.Limit != a.Limit
		return inside && got.Sets == a.Sets && moved == (got.Clipped != 0) && b.Clip(got) == got
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
	if got := b.Clip(mdp.Action{}.WithCPU(900)).Clipped.String(); got != "max" {
		t.Errorf("clipped by %q, want max", got)
	}
}

func TestBoundsThatNothingSatisfiesAreNamed(t *testing.T) {
	b := mdp.Bounds{Replicas: mdp.Range[int]{Min: 1, Max: 1}, CPU: mdp.Range[mdp.MilliCPU]{Min: 500, Max: 100}}
	if err := b.Check(); err == nil || err.Error() != "cpu bounds [500m, 100m]: need 1m <= min <= max" {
		t.Errorf("err = %v", err)
	}
}

// Bounds may have room for one value, and those of a reservation that nobody sets are none.
func TestBoundsHaveRoomForOneValue(t *testing.T) {
	one := mdp.Bounds{
		CPU: mdp.Range[mdp.MilliCPU]{Min: 1, Max: 1}, Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 1},
	}
	if err := one.Check(); err != nil {
		t.Error(err)
	}
	for k := range mdp.Knobs.Signals() {
		if err := one.WithKnob(k, mdp.Range[int64]{Min: mdp.KnobLeast(k) - 1, Max: 9}).Check(); err == nil {
			t.Errorf("%v may be less than is legal", k)
		}
		if err := one.WithKnob(k, mdp.Range[int64]{Min: 9, Max: 8}).Check(); err == nil {
			t.Errorf("the largest %v may be less than the least one", k)
		}
		err := one.WithKnob(k, mdp.Range[int64]{}).Check()
		if none := k == mdp.CPUReservation || k == mdp.Replicas; (err == nil) != none {
			t.Errorf("no bounds of %v: %v", k, err)
		}
	}
	r := mdp.Range[int64]{Min: 3, Max: 5}
	for v := int64(2); v <= 6; v++ {
		got, why := r.Clip(v)
		if in := v >= 3 && v <= 5; r.Has(v) != in || (why == 0) != in || (got == v) != in || !r.Has(got) {
			t.Errorf("%d: in the interval %v, clipped to %d by %q", v, r.Has(v), got, why)
		}
	}
}

// What a kernel rounds away is no other value, from whatever side.
func TestValuesThatAKernelRoundsAreTheSame(t *testing.T) {
	for k, step := range map[mdp.Signal]int64{
		mdp.Replicas: 1, mdp.CPULimit: 10, mdp.CPUReservation: 10, mdp.MemoryLimit: 4096,
	} {
		for _, far := range []int64{-step, 1 - step, 0, step - 1, step} {
			same := far > -step && far < step
			if got := mdp.SameKnob(k, 100_000, 100_000+far); got != same {
				t.Errorf("%v, %d apart: same %v", k, far, got)
			}
		}
	}
}

func TestAnActionSaysWhatItSets(t *testing.T) {
	for want, a := range map[string]mdp.Action{
		"keep":                 {},
		"replicas=0":           mdp.Action{}.WithReplicas(0),
		"cpu=250m memory=64Mi": mdp.Action{}.WithMemory(64 * mdp.MiB).WithCPU(250),
		"cpu-reservation=100m": mdp.Action{}.WithReservation(100).WithCPU(7).Without(mdp.SetOf(mdp.CPULimit)),
	} {
		if got := a.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each part of a joined policy decides on its knobs; one that fails leaves its knobs alone, and the last word is the later one's.
func TestAJoinedPolicyFailsWhereAllItsPartsDo(t *testing.T) {
	sets := func(a mdp.Action) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return a, nil })
	}
	fails := func(err error) mdp.Policy {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithReplicas(9), err })
	}
	cpu, memory, other := mdp.Action{}.WithCPU(100), mdp.Action{}.WithMemory(mdp.MiB), mdp.Action{}.WithCPU(200)
	blind, lost := errors.New("no usage"), errors.New("no weights")
	for _, c := range []struct {
		parts []mdp.Policy
		want  mdp.Action
	}{
		{[]mdp.Policy{sets(cpu), sets(memory)}, cpu.With(memory)},
		{[]mdp.Policy{sets(cpu), sets(other)}, other},
		{[]mdp.Policy{fails(blind), sets(memory)}, memory},
		{[]mdp.Policy{sets(cpu), fails(blind)}, cpu},
	} {
		if got, err := mdp.Join(c.parts...).Decide(mdp.State{}); err != nil || got != c.want {
			t.Errorf("%v, %v; want %v", got, err, c.want)
		}
	}
	a, err := mdp.Join(fails(blind), fails(lost)).Decide(mdp.State{})
	if a != (mdp.Action{}) || !errors.Is(err, blind) || !errors.Is(err, lost) {
		t.Errorf("%v, %v; want nothing, and both errors", a, err)
	}
}

// A signal that is added without its row would be skipped by whatever walks
// over the table.
func TestEverySignalHasARow(t *testing.T) {
	names := map[string]bool{}
	n := 0
	for one := range mdp.Signals() {
		n++
		if one.String() == "" || names[one.String()] || one.Unit() == "" {
			t.Errorf("signal %d: name %q, unit %q: it must have both, and a name of its own", one, one, one.Unit())
		}
		names[one.String()] = true
		if found, ok := mdp.SignalNamed(one.String()); !ok || found != one {
			t.Errorf("%v is not found by its name", one)
		}
		var s mdp.State
		one.Set(&s, 3)
		if v, ok := one.Get(&s); !ok || v != 3 || s.Observed != mdp.SetOf(one) {
			t.Errorf("%v: set to 3, it is %v, observed %v", one, v, s.Observed)
		}
		s.Observed = 0
		zeroed := s
		if one.Integer() {
			one.SetInt(&zeroed, 0)
		} else {
			one.SetFloat(&zeroed, 0)
		}
		if zeroed != (mdp.State{}) {
			t.Errorf("%v shares a field: %+v", one, zeroed)
		}
		if s.Mask(mdp.SetOf(one)) != s || s.Mask(mdp.All.Without(mdp.SetOf(one))) != (mdp.State{}) {
			t.Errorf("%v is not masked by its own signal", one)
		}
	}
	// Each numeric field of State belongs to one signal.
	if fields := countNumbers(reflect.TypeFor[mdp.State]()); fields != n {
		t.Errorf("State has %d numeric fields, and there are %d signals", fields, n)
	}
	for k := range mdp.Knobs.Signals() {
		a := mdp.Action{}.WithKnob(k, 5)
		if v, ok := a.Knob(k); !ok || v != 5 || a.Only(mdp.SetOf(k)) != a || a.Without(mdp.SetOf(k)).Sets != 0 {
			t.Errorf("knob %v: %+v", k, a)
		}
		b := mdp.Bounds{}.WithKnob(k, mdp.Range[int64]{Min: 2, Max: 4})
		if b.Knob(k) != (mdp.Range[int64]{Min: 2, Max: 4}) || b.Clip(a) != (mdp.Action{Clipped: mdp.ClippedMax}).WithKnob(k, 4) {
			t.Errorf("knob %v: bounds %+v", k, b)
		}
	}
}

// countNumbers counts the numeric fields of a State, without At and Observed.
func countNumbers(t reflect.Type) int {
	n := 0
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Name == "At" || f.Name == "Observed":
		case f.Type.Kind() == reflect.Struct:
			n += countNumbers(f.Type)
		default:
			n++
		}
	}
	return n
}

func TestAnEpisodeIsCutAfterItsLength(t *testing.T) {
	c := mdp.EpisodeClock{Length: 3}
	var got []string
	for range 4 {
		var one mdp.Transition
		episode, step := c.Number(&one)
		got = append(got, fmt.Sprint(episode, step, one.Truncated))
	}
	c.Cut()
	c.Cut()
	var one mdp.Transition
	episode, step := c.Number(&one)
	got = append(got, fmt.Sprint(episode, step, one.Truncated))
	want := "0 0 false, 0 1 false, 0 2 true, 1 0 false, 2 0 false"
	if strings.Join(got, ", ") != want {
		t.Errorf("episodes %v, want %s", got, want)
	}
}

// What took force is learned from, not what was proposed; and a reward that is
// not known does not hide the step.
func TestATransitionRecordsWhatTookForce(t *testing.T) {
	world := &shop{limit: mdp.Size{CPU: 400, Memory: 128 * mdp.MiB}}
	loop := mdp.Loop{
		Sensor: world, Actuator: world,
		Objective: mdp.Objective{SLO: mdp.SLO{Throughput: 1, Percentile: 50, Latency: time.Second}, Alpha: 1},
		Policy: mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) {
			return mdp.Action{}.WithCPU(300).WithMemory(7 * mdp.MiB), nil // the shop sets CPU only
		}),
	}
	for range 2 {
		d, err := loop.Step(t.Context(), noon)
		if err != nil {
			t.Fatal(err)
		}
		if want := (mdp.Action{}).WithCPU(300); d.Complete &&
			(d.Transition.Action != want || d.Transition.Effect != mdp.Applied) {
			t.Errorf("transition %+v, want the action %v, applied", d.Transition, want)
		}
	}
	world.blind = mdp.SetOf(mdp.Latency)
	d, err := loop.Step(t.Context(), noon)
	if err != nil || !d.Complete || d.Transition.RewardKnown {
		t.Errorf("without latency: %+v, %v; want a transition whose reward is not known", d, err)
	}
}

func TestTheWorseOfTwoEffectsIsReported(t *testing.T) {
	for a := range mdp.Effects() {
		for b := range mdp.Effects() {
			if a.Worse(b) != b.Worse(a) || a.Worse(a) != a {
				t.Errorf("%v and %v: %v or %v", a, b, a.Worse(b), b.Worse(a))
			}
		}
	}
	if mdp.Applied.Worse(mdp.Pending) != mdp.Pending || mdp.Deferred.Worse(mdp.Applied) != mdp.Deferred {
		t.Error("what is not in force yet must be reported")
	}
}

// Deciding allocates nothing: the node agent's loop depends on it.
func TestActionsAndBoundsDoNotAllocate(t *testing.T) {
	b := mdp.Bounds{CPU: mdp.Range[mdp.MilliCPU]{Min: 10, Max: 20}, Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 2}}
	if n := testing.AllocsPerRun(100, func() {
		a := b.Clip(mdp.Action{}.WithCPU(30).WithMemory(5)).Only(mdp.SetOf(mdp.CPULimit))
		if a.Check() != nil || a.Limit.CPU != 20 {
			t.Fatal(a)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
