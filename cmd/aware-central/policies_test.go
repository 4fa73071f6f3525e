package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
)

var objective = mdp.SLO{Percentile: 99, Latency: 50 * time.Millisecond}

// rules is a central in which nothing is learned.
func rules() *minds { return newMinds(10*time.Second, time.Now, func() bool { return false }) }

// ruleWithin is central's rule for a container within bounds.
func ruleWithin(t *testing.T, bounds mdp.Bounds) mdp.Policy {
	t.Helper()
	p, _, err := rules().policies(recommender.PolicyRequest{Bounds: bounds, Objective: mdp.Objective{SLO: objective}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A pod writes its own histogram, and can say that every request is late for ever. What
// it gets by that is what its owner's bounds allow.
func TestAWorkloadThatLiesGetsWhatItsOwnersBoundsAllow(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 4},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 800},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := ruleWithin(t, bounds)
		replicas, limit := 1, mdp.Size{CPU: 100, Memory: 64 * mdp.MiB}
		highest := 0
		for i := range 200 {
			s := mdp.State{
				At: time.Unix(int64(10*i), 0), Observed: mdp.All &^ mdp.SetOf(mdp.OOMKills), Replicas: replicas, Limit: limit,
				Usage:   mdp.Size{CPU: mdp.MilliCPU(rng.Int64N(1e9)), Memory: mdp.Bytes(rng.Int64N(1 << 40))},
				CPUPeak: mdp.MilliCPU(rng.Int64N(1e9)), Throttled: mdp.Ratio(rng.Float64()),
				Latency:    time.Duration(rng.Int64N(math.MaxInt64)),
				Throughput: mdp.Rate(rng.Float64() * 1e12),
			}
			a, err := p.Decide(s)
			if err != nil {
				continue // refused, which is as good
			}
			if a.Sets.Has(mdp.Replicas) {
				replicas = a.Replicas
			}
			if a.Sets.Has(mdp.CPULimit) {
				limit.CPU = a.Limit.CPU
			}
			if a.Sets.Has(mdp.MemoryLimit) {
				limit.Memory = a.Limit.Memory
			}
			highest = max(highest, replicas)
			if replicas > bounds.Replicas.Max || limit.CPU > bounds.CPU.Max || limit.Memory > bounds.Memory.Max {
				t.Fatalf("seed %d, step %d: %d replicas of %v", seed, i, replicas, limit)
			}
		}
		if highest < 2 {
			t.Errorf("seed %d: lying moved nothing, so that nothing was tested", seed)
		}
	}
}

// A memory limit comes down by at most three tenths each 20 s, and stays a quarter above what is in use.
func TestMemoryComesDownInSteps(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 1},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 800},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
	}
	p := ruleWithin(t, bounds)
	limit := 200 * mdp.MiB
	var lowered []int // the seconds
	for i := range 13 {
		a, err := p.Decide(mdp.State{
			At: time.Unix(int64(10*i), 0), Observed: mdp.SetOf(mdp.Replicas, mdp.MemoryLimit, mdp.MemoryUsage, mdp.Latency),
			Replicas: 1, Limit: mdp.Size{Memory: limit}, Usage: mdp.Size{Memory: 60 * mdp.MiB}, Latency: 20 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.Limit.Memory < limit {
			lowered = append(lowered, 10*i)
		}
		if least := limit * 7 / 10; a.Limit.Memory < least-mdp.MiB {
			t.Errorf("after %d s: %v, from %v", 10*i, a.Limit.Memory, limit)
		}
		limit = a.Limit.Memory
	}
	if want := []int{0, 20, 40}; !slices.Equal(lowered, want) {
		t.Errorf("lowered after %v s, want %v", lowered, want)
	}
	if limit < 75*mdp.MiB || limit > 90*mdp.MiB {
		t.Errorf("it ends at %v, for 60Mi in use", limit)
	}
}

// A pod that does next to nothing is reserved next to nothing, and one that does nine times as much is told
// from it. With VPA's own buckets both get 11m, and a little more gets 23m.
func TestWhatIdlePodsUseIsToldApart(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas:    mdp.Range[int]{Min: 1, Max: 1},
		CPU:         mdp.Range[mdp.MilliCPU]{Min: 2, Max: 100},
		Memory:      mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 1, Max: 99},
	}
	for used, want := range map[mdp.MilliCPU]mdp.Range[mdp.MilliCPU]{1: {Min: 1, Max: 3}, 9: {Min: 10, Max: 13}} {
		p := ruleWithin(t, bounds)
		reserved := mdp.MilliCPU(20)
		for i := range 60 {
			a, err := p.Decide(mdp.State{
				At: time.Unix(int64(10*i), 0), Observed: mdp.SetOf(mdp.CPUReservation, mdp.CPUUsage),
				Reservation: reserved, Usage: mdp.Size{CPU: used},
			})
			if err != nil {
				t.Fatal(err)
			}
			if a.Sets.Has(mdp.CPUReservation) {
				reserved = a.Reservation
			}
		}
		if reserved < want.Min || reserved > want.Max {
			t.Errorf("%v is used and %v reserved, want %v to %v", used, reserved, want.Min, want.Max)
		}
	}
}

// A burst of seconds changes nothing through the API: its ceilings carry it, and each resize, and each pod that starts, takes
// CPU from it.
func TestABurstThatItsCeilingsCarryChangesNothing(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas:    mdp.Range[int]{Min: 1, Max: 3},
		CPU:         mdp.Range[mdp.MilliCPU]{Min: 100, Max: 900},
		Memory:      mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 25, Max: 899},
	}
	p := ruleWithin(t, bounds)
	decide := func(second int, used mdp.MilliCPU) mdp.Action {
		a, err := p.Decide(mdp.State{
			At: time.Unix(int64(second), 0),
			Observed: mdp.SetOf(mdp.Replicas, mdp.CPUReservation, mdp.CPUCeiling, mdp.CPUUsage, mdp.CPUBurst, mdp.MemoryLimit,
				mdp.MemoryUsage),
			Replicas: 2, Reservation: 400, Ceiling: 900, Limit: mdp.Size{Memory: 200 * mdp.MiB},
			Usage: mdp.Size{CPU: used, Memory: 60 * mdp.MiB}, CPUBurst: used,
		})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for second := 0; second <= 40; second += 10 {
		decide(second, 80)
	}
	for second := 62; second < 68; second += 2 {
		if a := decide(second, 700); a.Replicas != 2 || a.Reservation != 400 || a.Limit.Memory != 200*mdp.MiB {
			t.Errorf("in a burst, after %d s: %v", second, a)
		}
	}
	if a := decide(78, 80); a.Replicas != 2 || a.Limit.Memory >= 200*mdp.MiB {
		t.Errorf("after it: %v", a)
	}
}

// An owner says how long a replica is kept for the next burst. Before that has passed none is removed, whatever the load is, and
// after it as many stay as carry the largest burst of that time.
func TestReplicasAreKeptForAsLongAsTheirOwnerSays(t *testing.T) {
	bounds := mdp.Bounds{
		Replicas:    mdp.Range[int]{Min: 1, Max: 3},
		CPU:         mdp.Range[mdp.MilliCPU]{Min: 100, Max: 1200},
		Memory:      mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 25, Max: 1199},
	}
	// What is wanted is not known in the first two steps, since a mean of a quarter of a minute takes longer: until then what
	// there is is wanted, and the windows begin with the second of them, at 10 s.
	//
	// removedAt is the second at which two replicas become one, after a burst at the twentieth second that used so much of
	// each; -1 is never, within ten minutes in which such a burst comes again each minute, or does not.
	removedAt := func(window time.Duration, burst mdp.MilliCPU, again bool) int {
		p, _, err := rules().policies(recommender.PolicyRequest{
			Bounds: bounds, Objective: mdp.Objective{SLO: objective}, First: true, ScaleIn: window,
		})
		if err != nil {
			t.Fatal(err)
		}
		for second := 0; second < 600; second += 10 {
			used := mdp.MilliCPU(60)
			if second == 20 || again && second%60 == 20 {
				used = burst
			}
			a, err := p.Decide(mdp.State{
				At: time.Unix(int64(second), 0), Observed: mdp.SetOf(mdp.Replicas, mdp.CPUCeiling, mdp.CPUUsage, mdp.CPUBurst),
				Replicas: 2, Ceiling: 1200, Usage: mdp.Size{CPU: 60}, CPUBurst: used,
			})
			if err != nil {
				t.Fatal(err)
			}
			if a.Sets.Has(mdp.Replicas) && a.Replicas < 2 {
				return second
			}
		}
		return -1
	}
	for _, c := range []struct {
		name   string
		window time.Duration
		burst  mdp.MilliCPU // 540 of each is what one ceiling carries at nine tenths
		again  bool
		want   int
	}{
		{"half a minute, a burst that one carries", 30 * time.Second, 530, true, 40},
		{"half a minute, a burst that one does not carry", 30 * time.Second, 550, false, 50},
		{"such bursts each minute", 30 * time.Second, 550, true, 50},
		{"such bursts each minute, and a window with one", time.Minute, 550, true, -1},
		{"by itself", 0, 530, true, 310},
		{"by itself, a burst that one does not carry", 0, 550, false, 320},
	} {
		if got := removedAt(c.window, c.burst, c.again); got != c.want {
			t.Errorf("%s: the replica goes after %d s, want %d", c.name, got, c.want)
		}
	}
}
