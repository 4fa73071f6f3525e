package hpavpa_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
)

func config() hpavpa.Config {
	c := hpavpa.Default
	c.Largest = mdp.Size{CPU: 500, Memory: 512 * mdp.MiB}
	c.SLO = mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}
	return c
}

func TestHPAVPAIsAPolicy(t *testing.T) {
	mdptest.Policy(t, func() mdp.Policy { return hpavpa.New(config()) })
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func state(step, replicas int, limit, use mdp.MilliCPU, throttled mdp.Ratio, latency time.Duration) mdp.State {
	return mdp.State{At: noon.Add(time.Duration(step) * 10 * time.Second),
		Observed: mdp.LimitKnobs | mdp.SetOf(mdp.CPUUsage, mdp.CPUPeak, mdp.MemoryUsage, mdp.Throttled, mdp.Latency),
		Replicas: replicas, Limit: mdp.Size{CPU: limit, Memory: 256 * mdp.MiB}, Usage: mdp.Size{CPU: use, Memory: 100 * mdp.MiB},
		CPUPeak: use, Throttled: throttled, Latency: latency}
}

func decide(t *testing.T, p mdp.Policy, s mdp.State) mdp.Action {
	t.Helper()
	a, err := p.Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReplicaGrowsBeforeAnotherIsAdded(t *testing.T) {
	p := hpavpa.New(config())
	a := decide(t, p, state(0, 1, 200, 200, 0.4, 80*time.Millisecond))
	if a.Replicas != 1 {
		t.Errorf("replicas = %d: a demand of 280m fits one replica of 500m at 70 %%", a.Replicas)
	}
	if a.Limit.CPU < 280 || a.Limit.CPU > 360 {
		t.Errorf("cpu = %v, want the throttled demand of 280m and the margin", a.Limit.CPU)
	}
	a = decide(t, p, state(1, 1, 500, 480, 0.3, 80*time.Millisecond))
	if a.Replicas != 2 {
		t.Errorf("replicas = %d, want 2: a demand of 624m is 178 %% of what one should use", a.Replicas)
	}
}

func TestWithARequestCPUIsHPAsAlone(t *testing.T) {
	c := config()
	c.Request = 200
	p := hpavpa.New(c)
	// Two replicas of 200m use 95 % of their request; HPA's formula is ceil(2 x 95 / 70).
	a := decide(t, p, state(0, 2, 400, 190, 0, 80*time.Millisecond))
	if a.Replicas != 3 || a.Limit.CPU != 200 {
		t.Errorf("%v, want three replicas of 200m", a)
	}
	if !a.Sets.Has(mdp.MemoryLimit) || a.Limit.Memory >= 256*mdp.MiB {
		t.Errorf("%v, want VPA's memory", a)
	}
	if a = decide(t, p, state(7, 3, 200, 100, 0, 170*time.Millisecond)); a.Replicas != 6 {
		t.Errorf("replicas = %d, want ceil(3 x 1.7): the request is all that a replica may have", a.Replicas)
	}
	c.Request = 501
	if err := c.Check(); err == nil || err.Error() != "hpavpa request 501m: it must be in [0, 500m]" {
		t.Errorf("err = %v", err)
	}
}

func TestSLOViolationAddsReplicasOnlyAtTheLargestSize(t *testing.T) {
	slow := 170 * time.Millisecond
	if a := decide(t, hpavpa.New(config()), state(0, 2, 200, 100, 0, slow)); a.Replicas > 2 {
		t.Errorf("replicas = %d: it may still grow", a.Replicas)
	}
	if a := decide(t, hpavpa.New(config()), state(0, 2, 500, 340, 0, slow)); a.Replicas != 4 {
		t.Errorf("replicas = %d, want ceil(2 * 1.7)", a.Replicas)
	}
}

func TestLatencyAddsNoReplicasDuringSettling(t *testing.T) {
	p := hpavpa.New(config())
	slow := 170 * time.Millisecond
	if a := decide(t, p, state(0, 1, 500, 340, 0, slow)); a.Replicas != 2 {
		t.Fatalf("replicas = %d, want ceil(1 * 1.7)", a.Replicas)
	}
	for i := 1; i < 3; i++ {
		if a := decide(t, p, state(i, 2, 500, 340, 0, slow)); a.Replicas != 2 {
			t.Errorf("step %d: replicas = %d: the percentile still tells of one", i, a.Replicas)
		}
	}
	if a := decide(t, p, state(3, 2, 500, 340, 0, slow)); a.Replicas != 4 {
		t.Errorf("after half a minute it is still slow: replicas = %d, want ceil(2 * 1.7)", a.Replicas)
	}
}

func TestScalingInWaitsForTheStabilizationWindow(t *testing.T) {
	p := hpavpa.New(config())
	decide(t, p, state(0, 3, 500, 340, 0, 50*time.Millisecond))
	for i := 1; i < 6; i++ {
		if a := decide(t, p, state(i, 3, 500, 50, 0, 50*time.Millisecond)); a.Replicas != 3 {
			t.Fatalf("step %d: replicas = %d, inside the window of a minute", i, a.Replicas)
		}
	}
	if a := decide(t, p, state(7, 3, 500, 50, 0, 50*time.Millisecond)); a.Replicas != 1 {
		t.Errorf("after the window: replicas = %d, want 1", a.Replicas)
	}
}

// A simple second implementation: VPA's figure for a constant usage is that
// usage and the margin, within a bucket (5 %).
func TestConstantUsageGivesUsagePlusMargin(t *testing.T) {
	p := hpavpa.New(config())
	var a mdp.Action
	for i := range 50 {
		a = decide(t, p, state(i, 1, 400, 200, 0, 50*time.Millisecond))
	}
	// 200 * 1.15 * 1.05, and the width of the first bucket
	if low, high := mdp.MilliCPU(200), mdp.MilliCPU(256); a.Limit.CPU < low || a.Limit.CPU > high {
		t.Errorf("cpu = %v, want in [%v, %v]", a.Limit.CPU, low, high)
	}
	if low, high := 100*mdp.MiB, 100*mdp.MiB*135/100; a.Limit.Memory < low || a.Limit.Memory > high {
		t.Errorf("memory = %v, want in [%v, %v]", a.Limit.Memory, low, high)
	}
}

func TestMemoryRisesAfterAKillAndBeforeOneAndStaysUp(t *testing.T) {
	for name, bad := range map[string]func(*mdp.State){
		"a kill":   func(s *mdp.State) { s.OOMKills, s.Observed = 1, s.Observed|mdp.SetOf(mdp.OOMKills) },
		"pressure": func(s *mdp.State) { s.MemoryPressure, s.Observed = 0.2, s.Observed|mdp.SetOf(mdp.MemoryPressure) },
	} {
		p := hpavpa.New(config())
		for i := range 100 {
			decide(t, p, state(i, 1, 200, 100, 0, 50*time.Millisecond))
		}
		s := state(100, 1, 200, 100, 0, 50*time.Millisecond)
		bad(&s)
		if a := decide(t, p, s); a.Limit.Memory < 350*mdp.MiB {
			t.Errorf("after %s with a limit of 256Mi: %v, want 100 MB more", name, a.Limit.Memory)
		}
		if a := decide(t, p, state(140, 1, 200, 100, 0, 50*time.Millisecond)); a.Limit.Memory < 350*mdp.MiB {
			t.Errorf("minutes after %s: %v", name, a.Limit.Memory)
		}
		if a := decide(t, p, state(170, 1, 200, 100, 0, 50*time.Millisecond)); a.Limit.Memory > 300*mdp.MiB {
			t.Errorf("eleven minutes after %s: %v", name, a.Limit.Memory)
		}
	}
}

// A reservation is for the typical use: its mean, and not its peaks.
func TestAReservationFollowsTheTypicalUse(t *testing.T) {
	p := hpavpa.New(config())
	var a mdp.Action
	for i := range 50 {
		s := state(i, 1, 400, 100, 0, 50*time.Millisecond)
		s.CPUPeak = 400
		s.Reservation, s.Ceiling = 200, 500
		s.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
		a = decide(t, p, s)
	}
	if !a.Sets.Has(mdp.CPUReservation) || a.Sets.Has(mdp.CPULimit) {
		t.Fatalf("%v, want a reservation and no limit", a)
	}
	if low, high := mdp.MilliCPU(100), mdp.MilliCPU(140); a.Reservation < low || a.Reservation > high {
		t.Errorf("reservation %v, want in [%v, %v]", a.Reservation, low, high)
	}
}

// VPA's first bucket is 10 millicores wide: with it nobody can tell a container that uses one from one that
// uses nine, and each is reserved a seventh more than ten.
func TestSmallContainersAreToldApart(t *testing.T) {
	reserved := func(finest, use mdp.MilliCPU) mdp.MilliCPU {
		c := config()
		c.Finest = finest
		p := hpavpa.New(c)
		var a mdp.Action
		for i := range 30 {
			s := state(i, 1, 500, use, 0, 50*time.Millisecond)
			s.Reservation, s.Ceiling = 400, 500
			s.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
			a = decide(t, p, s)
		}
		return a.Reservation
	}
	for use, want := range map[mdp.MilliCPU][2]mdp.MilliCPU{1: {1, 3}, 9: {10, 13}, 100: {115, 130}} {
		if got := reserved(1, use); got < want[0] || got > want[1] {
			t.Errorf("%v is used and %v reserved, want %v to %v", use, got, want[0], want[1])
		}
	}
	if one, nine := reserved(10, 1), reserved(10, 9); one != nine {
		t.Errorf("VPA's own buckets: %v and %v", one, nine)
	}
	c := config()
	c.Finest = 0
	if err := c.Check(); err == nil || err.Error() != "hpavpa first bucket 0m: it must be in [1m, 1000m]" {
		t.Errorf("err = %v", err)
	}
}

// A container that starts uses more than it will, and a burst brings a State each second or two,
// and not each ten. Neither is typical: the reservation is for what is used in the mean. Until that is known
// it stays as it is, and is decided on all the same: the container gets its ceiling with the first decision, and
// a burst of the first half minute needs it.
func TestStartsAndBurstsAreNotTypical(t *testing.T) {
	p := hpavpa.New(config())
	at := 0
	use := func(after int, cpu mdp.MilliCPU) mdp.Action {
		at += after
		s := state(0, 1, 500, cpu, 0, 50*time.Millisecond)
		s.At = noon.Add(time.Duration(at) * time.Second)
		s.Reservation, s.Ceiling = 400, 500
		s.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
		return decide(t, p, s)
	}
	if a := use(0, 500); !a.Sets.Has(mdp.CPUReservation) || a.Reservation != 400 {
		t.Errorf("%v after the first State, want the reservation of 400m that it has", a)
	}
	for at < 20 {
		if a := use(10, 100); !a.Sets.Has(mdp.CPUReservation) || a.Reservation != 400 {
			t.Errorf("%v after %d s: nobody knows what is typical", a, at)
		}
	}
	a := use(10, 100)
	if low, high := mdp.MilliCPU(100), mdp.MilliCPU(140); a.Reservation < low || a.Reservation > high {
		t.Errorf("the first reservation is %v, want in [%v, %v]", a.Reservation, low, high)
	}
	for range 6 { // a minute of 100m, with a burst of 2 s at its end, which brings three States
		for range 5 {
			a = use(10, 100)
		}
		a = use(8, 500)
		a = use(1, 500)
		a = use(1, 500)
	}
	// The State at the burst's begin stands for the 8 s before it: the mean is 183m then, and the
	// reservation a seventh above that, in the histogram's buckets. Three samples of 500m would make it 575m.
	if low, high := mdp.MilliCPU(110), mdp.MilliCPU(250); a.Reservation < low || a.Reservation > high {
		t.Errorf("reservation %v, want in [%v, %v]", a.Reservation, low, high)
	}
}

// A burst that the ceiling carries moves no reservation: a resize in its middle would take CPU from it.
// A load that lasts has moved it when the window has passed, and one that grows is followed. Where there is
// nothing above the reservation to burst to, it rises at once.
func TestAReservationRisesWithWhatLastsAndNotInABurst(t *testing.T) {
	c := config()
	c.RaiseWindow = time.Minute
	begin := func(ceiling mdp.MilliCPU) func(seconds int, use mdp.MilliCPU) mdp.MilliCPU {
		p := hpavpa.New(c)
		at, has := 0, mdp.MilliCPU(60)
		run := func(seconds int, use mdp.MilliCPU) mdp.MilliCPU {
			for end := at + seconds; at < end; {
				at += 5
				s := state(0, 1, 500, use, 0, 50*time.Millisecond)
				s.At = noon.Add(time.Duration(at) * time.Second)
				s.Reservation, s.Ceiling = has, max(has, ceiling)
				s.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
				a := decide(t, p, s)
				if a.Reservation > has && at < 60 && ceiling > 60 {
					t.Fatalf("%v after %d s, and what was desired a minute ago is not known", a, at)
				}
				has = a.Reservation
			}
			return has
		}
		run(180, 50)
		return run
	}
	run := begin(500)
	rest := run(10, 50)
	if burst := run(20, 450); burst != rest {
		t.Errorf("%v reserved at rest, and %v at the end of a burst of 20 s", rest, burst)
	}
	run = begin(500)
	if lasts := run(60, 450); lasts > 2*rest {
		t.Errorf("%v reserved, a minute into what may be a burst", lasts)
	}
	if lasts := run(60, 450); lasts < 250 {
		t.Errorf("%v reserved for 450m that have lasted for two minutes", lasts)
	}
	run = begin(500)
	for use := mdp.MilliCPU(60); use < 450; use += 30 {
		run(60, use)
	}
	if grown := run(5, 450); grown < 350 {
		t.Errorf("%v reserved for a load that has grown to 450m in a quarter of an hour", grown)
	}
	run = begin(0)
	if burst := run(20, 450); burst < 2*rest {
		t.Errorf("%v reserved, 20 s into a burst without a ceiling above it", burst)
	}
	c.RaiseWindow = -1
	if err := c.Check(); err == nil || err.Error() != "hpavpa raise window -1ns: it must not be negative" {
		t.Errorf("err = %v", err)
	}
}

// After a burst that one replica could not carry, the second one stays for the window,
// also when the mean says that one is enough. Before a whole window was seen nothing is
// known of its bursts, and nothing is scaled in.
func TestAScaleInLeavesRoomForTheLargestBurst(t *testing.T) {
	c := config()
	c.BurstUtilization = 90
	p := hpavpa.New(c)
	quiet := func(step int, burst mdp.MilliCPU) mdp.State {
		s := state(step, 2, 100, 60, 0, 50*time.Millisecond)
		s.CPUBurst, s.Ceiling = burst, 500
		s.Observed |= mdp.SetOf(mdp.CPUBurst, mdp.CPUCeiling)
		return s
	}
	for i := range 6 {
		if a := decide(t, p, quiet(i, 60)); a.Replicas != 2 {
			t.Fatalf("step %d: %d replicas, before a window of a minute was seen", i, a.Replicas)
		}
	}
	if a := decide(t, p, quiet(6, 230)); a.Replicas != 2 { // two times 230m are more than 90 % of 500m
		t.Errorf("%d replicas in a burst that one cannot carry", a.Replicas)
	}
	for i := 7; i < 12; i++ {
		if a := decide(t, p, quiet(i, 60)); a.Replicas != 2 {
			t.Errorf("step %d: %d replicas within a minute of the burst", i, a.Replicas)
		}
	}
	if a := decide(t, p, quiet(12, 220)); a.Replicas != 1 { // two times 220m are less
		t.Errorf("%d replicas a minute after the burst, want 1", a.Replicas)
	}
	c.BurstUtilization = 101
	if err := c.Check(); err == nil || err.Error() != "hpavpa burst utilization 101%: it must be in [1, 100], or 0 for none" {
		t.Errorf("err = %v", err)
	}
}

// A new replica takes seconds to start, and CPU, from a burst that its ceilings carry. What needs more than the ceilings have is
// scaled out for at once, and so is, in the end, what lasts.
func TestABurstThatItsCeilingsCarryAddsNoReplica(t *testing.T) {
	c := config()
	c.BurstUtilization = 90
	at := func(second int, used mdp.MilliCPU) mdp.State {
		s := state(0, 2, 500, used, 0, 50*time.Millisecond)
		s.At = s.At.Add(time.Duration(second) * time.Second)
		return s
	}
	p := hpavpa.New(c)
	for _, quiet := range []int{0, 10, 20} {
		decide(t, p, at(quiet, 60))
	}
	for _, busy := range []int{21, 23, 25, 27} { // a burst brings its own decisions
		if a := decide(t, p, at(busy, 440)); a.Replicas != 2 {
			t.Errorf("%d replicas after %d s of a burst that two carry", a.Replicas, busy-20)
		}
	}
	if a := decide(t, p, at(28, 460)); a.Replicas != 3 {
		t.Errorf("%d replicas, and two have less than 90 %% of their ceilings left", a.Replicas)
	}
	// A policy that has just begun knows nothing of the quarter of a minute before.
	p = hpavpa.New(c)
	decide(t, p, at(20, 60))
	if a := decide(t, p, at(22, 440)); a.Replicas != 2 {
		t.Errorf("%d replicas for a burst that two carry, two seconds after the begin", a.Replicas)
	}
	// Throttled for half of a second before its limit was raised, as at the begin of each burst: the ceilings carry it.
	throttled := func(used mdp.MilliCPU) mdp.State {
		s := at(21, used)
		s.Throttled = 0.5
		s.Observed |= mdp.SetOf(mdp.Throttled)
		return s
	}
	p = hpavpa.New(c)
	decide(t, p, at(20, 60))
	if a := decide(t, p, throttled(320)); a.Replicas != 2 {
		t.Errorf("%d replicas, because of a limit that was low", a.Replicas)
	}
	p = hpavpa.New(c)
	decide(t, p, at(20, 60))
	if a := decide(t, p, throttled(480)); a.Replicas != 4 { // each wants 720m, and 450m of a replica may be used
		t.Errorf("%d replicas, throttled at their ceilings: want 4", a.Replicas)
	}
	p, n := hpavpa.New(c), 0
	for second := 0; n != 3; second += 10 {
		if second > 60 {
			t.Fatalf("%d replicas after a minute at 88 %%, where 70 %% is wanted", n)
		}
		n = decide(t, p, at(second, 440)).Replicas
	}
}

// One window of a burst that was too slow adds no replica, which would come after it and stay for minutes. What is slow for a
// quarter of a minute does, however many States a burst brings.
func TestABurstsWindowAddsNoReplicas(t *testing.T) {
	c := config()
	c.BurstUtilization = 90
	p := hpavpa.New(c)
	at := func(second int, latency time.Duration) mdp.State {
		s := state(0, 2, 480, 200, 0, latency)
		s.At = noon.Add(time.Duration(second) * time.Second)
		return s
	}
	good, bad := 50*time.Millisecond, 170*time.Millisecond
	for _, one := range []struct {
		second   int
		latency  time.Duration
		replicas int
	}{
		{0, good, 2}, {10, bad, 2}, {12, bad, 2}, {14, bad, 2}, {20, good, 2}, // a burst
		{30, bad, 2}, {40, bad, 2}, {44, bad, 2}, {46, bad, 4}, // what lasts
	} {
		if a := decide(t, p, at(one.second, one.latency)); a.Replicas != one.replicas {
			t.Errorf("second %d, p99 %v: %d replicas, want %d", one.second, one.latency, a.Replicas, one.replicas)
		}
	}
}

// While the limit in force is settled beneath its ceiling a slow answer is not for want
// of replicas.
func TestLatencyAddsReplicasOnlyAtTheCeiling(t *testing.T) {
	for limit, want := range map[mdp.MilliCPU]int{200: 2, 480: 4} {
		s := state(0, 2, limit, 340, 0, 170*time.Millisecond)
		s.Reservation, s.Ceiling = 200, 500
		s.Observed |= mdp.SetOf(mdp.CPUReservation, mdp.CPUCeiling)
		if a := decide(t, hpavpa.New(config()), s); a.Replicas != want {
			t.Errorf("with %v in force: %d replicas, want %d", limit, a.Replicas, want)
		}
	}
}

// A State counts the ready replicas. One that starts, or that the load itself makes miss its
// probe, is not taken away for that.
func TestAReplicaThatIsNotReadyIsNotTakenAway(t *testing.T) {
	c := config()
	c.BurstUtilization = 90
	p := hpavpa.New(c)
	decide(t, p, state(0, 2, 500, 200, 0, 50*time.Millisecond))
	if a := decide(t, p, state(1, 2, 500, 490, 0, 50*time.Millisecond)); a.Replicas != 3 {
		t.Fatalf("%d replicas, want 3", a.Replicas)
	}
	for i := 2; i < 7; i++ {
		if a := decide(t, p, state(i, 2, 500, 300, 0, 50*time.Millisecond)); a.Replicas != 3 {
			t.Errorf("step %d: %d replicas are wanted while the third is not ready", i, a.Replicas)
		}
	}
	decide(t, p, state(8, 3, 500, 200, 0, 50*time.Millisecond))
	if a := decide(t, p, state(15, 3, 500, 200, 0, 50*time.Millisecond)); a.Replicas != 2 {
		t.Errorf("a window later: %d replicas, want 2", a.Replicas)
	}
}
