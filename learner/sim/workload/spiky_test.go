package workload_test

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/sim/workload"
)

// spikyGenerators are the generators with the parameters of the named traces,
// a base of 100, and the mean rate that their laws give.
var spikyGenerators = []struct {
	name     string
	mean     float64
	generate func(length time.Duration, seed uint64) (workload.Trace, error)
}{
	{"pulses", 100 * (1 + 3.0/20), func(length time.Duration, seed uint64) (workload.Trace, error) {
		return workload.Pulses(100, 3, 5, 20*time.Second, length, seed)
	}},
	// Six spikes in each cluster of 6 + 5*2.5 s and the wait for the next one.
	{"clusters", 100 * (1 + 3*6/(18.5+1/(1-math.Exp(-1.0/60)))), func(length time.Duration, seed uint64) (workload.Trace, error) {
		return workload.Clusters(100, 3, 5, 6, 4*time.Second, time.Minute, length, seed)
	}},
	{"on-off", 110, func(length time.Duration, seed uint64) (workload.Trace, error) {
		return workload.OnOff(200, 20, 40*time.Second, 40*time.Second, length, seed)
	}},
	// The crowds are far apart here: each adds a linear rise and an exponential.
	{"flash-crowd", 100 + 400*(3+1/(math.Pow(2, 1.0/60)-1))/3600, func(length time.Duration, seed uint64) (workload.Trace, error) {
		return workload.FlashCrowd(100, 5, 5*time.Second, time.Minute, time.Hour, length, seed)
	}},
}

func TestSpikyTracesHaveTheMeanOfTheirLaw(t *testing.T) {
	for _, g := range spikyGenerators {
		trace, err := g.generate(10*24*time.Hour, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got := trace.Mean(); trace.Name != g.name || trace.Check() != nil || math.Abs(got/g.mean-1) > 0.02 {
			t.Errorf("%s: mean %.2f, want %.2f; %v", trace.Name, got, g.mean, trace.Check())
		}
		again, _ := g.generate(10*24*time.Hour, 3)
		other, _ := g.generate(10*24*time.Hour, 4)
		if !reflect.DeepEqual(trace, again) || reflect.DeepEqual(trace, other) {
			t.Errorf("%s: the seed must determine the trace", g.name)
		}
	}
}

// spikes are the seconds above the base of 100.
func spikes(t *testing.T, trace workload.Trace) []int {
	t.Helper()
	var at []int
	for i, r := range trace.Rates {
		if r == 100 {
			continue
		}
		if r < 300 || r > 500 {
			t.Fatalf("%s: rate %v in second %d, want 100, or 300 to 500", trace.Name, r, i)
		}
		at = append(at, i)
	}
	return at
}

func TestPulsesAreRegularAndLastOneSecond(t *testing.T) {
	trace, err := workload.Pulses(100, 3, 5, 20*time.Second, time.Hour, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := spikes(t, trace)
	if len(at) != 180 {
		t.Errorf("%d pulses in an hour, want 180", len(at))
	}
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] != 20 {
			t.Fatalf("pulses in the seconds %d and %d, want 20 s between them", at[i-1], at[i])
		}
	}
}

func TestClustersAreOfSeparateSpikes(t *testing.T) {
	trace, err := workload.Clusters(100, 3, 5, 6, 4*time.Second, time.Minute, 10*time.Hour, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := spikes(t, trace)
	var gaps, waits []float64
	for i := 1; i < len(at); i++ {
		gap := at[i] - at[i-1]
		if i%6 == 0 {
			waits = append(waits, float64(gap))
			continue
		}
		if gap < 2 || gap > 5 {
			t.Fatalf("spikes %d s apart within a cluster, want one to four seconds between them", gap)
		}
		gaps = append(gaps, float64(gap))
	}
	mean := func(xs []float64) (m float64) {
		for _, x := range xs {
			m += x / float64(len(xs))
		}
		return m
	}
	if m := mean(gaps); math.Abs(m-3.5) > 0.1 || slices.Max(gaps) != 5 {
		t.Errorf("spikes of a cluster are %.2f s apart on average, want 3.5", m)
	}
	if m := mean(waits); math.Abs(m-61.5) > 6 {
		t.Errorf("clusters are %.1f s apart on average, want 61.5", m)
	}
}

func TestAFlashCrowdComesWithinSecondsAndLeavesSlowly(t *testing.T) {
	trace, err := workload.FlashCrowd(100, 5, 5*time.Second, 4*time.Minute, time.Hour, time.Hour, 2)
	if err != nil {
		t.Fatal(err)
	}
	top := slices.Index(trace.Rates, trace.Peak())
	if math.Abs(trace.Peak()-500) > 1e-9 || top < 5 || trace.Rates[top-5] != 100 {
		t.Fatalf("peak %v in second %d, want 500, five seconds after the base rate", trace.Peak(), top)
	}
	if half := trace.Rates[top+240]; math.Abs(half-300) > 1e-6 {
		t.Errorf("%v four minutes after the peak, want 300", half)
	}
	for i := top + 1; i < len(trace.Rates); i++ {
		if trace.Rates[i] > trace.Rates[i-1] {
			t.Fatalf("the rate rises in second %d, without another crowd", i)
		}
	}
}

func TestOnOffPhasesAreExponential(t *testing.T) {
	trace, err := workload.OnOff(200, 20, 30*time.Second, 60*time.Second, 10*24*time.Hour, 1)
	if err != nil {
		t.Fatal(err)
	}
	// Of exponential phases with mean m, exp(-s/m) last longer than s.
	var long, all [2]float64
	for i, from := 1, 0; i < len(trace.Rates); i++ {
		if (trace.Rates[i] >= 110) == (trace.Rates[from] >= 110) {
			continue
		}
		phase, threshold := 0, 60
		if trace.Rates[from] >= 110 {
			phase, threshold = 1, 30
		}
		all[phase]++
		if i-from >= threshold {
			long[phase]++
		}
		from = i
	}
	for phase, name := range []string{"off", "on"} {
		if share := long[phase] / all[phase]; math.Abs(share-math.Exp(-1)) > 0.02 {
			t.Errorf("%.3f of the %s phases are longer than their mean, want 0.368", share, name)
		}
	}
}

func TestNamedSpikyTracesAreLikeAutothrottlesInMean(t *testing.T) {
	for _, name := range workload.Spiky() {
		trace, err := workload.Named(name)
		if err != nil || trace.Name != name || trace.Length() != time.Hour || trace.Check() != nil {
			t.Errorf("%s: %v, %v, length %v", name, err, trace.Check(), trace.Length())
		}
		// Autothrottle's four have means from 157 to 263 requests per second.
		if m := trace.Mean(); m < 157 || m > 263 {
			t.Errorf("%s: mean %.0f", name, m)
		}
		if !slices.Contains(workload.Traces(), name) {
			t.Errorf("%s is not in the list %v", name, workload.Traces())
		}
		t.Logf("%s: mean %.1f, peak %.0f", name, trace.Mean(), trace.Peak())
	}
}

func TestSpikyGeneratorsRejectInvalidParameters(t *testing.T) {
	for _, c := range []struct {
		of   func() (workload.Trace, error)
		want string
	}{
		{func() (workload.Trace, error) {
			return workload.Pulses(1, 3, 2, time.Minute, time.Hour, 1)
		}, "trace pulses: highest 2: it must be in [3, 1e+06]"},
		{func() (workload.Trace, error) {
			return workload.Pulses(1, 3, 5, time.Second, time.Hour, 1)
		}, "trace pulses: every in seconds 1: it must be in [2, 2.6784e+06]"},
		{func() (workload.Trace, error) {
			return workload.Clusters(1, math.NaN(), 5, 6, time.Second, time.Minute, time.Hour, 1)
		}, "trace clusters: lowest NaN: it must be in [1, 1e+06]"},
		{func() (workload.Trace, error) {
			return workload.Clusters(1, 3, 5, 0, time.Second, time.Minute, time.Hour, 1)
		}, "trace clusters: count 0: it must be in [1, 1e+06]"},
		{func() (workload.Trace, error) {
			return workload.FlashCrowd(1, 5, time.Minute, time.Minute, time.Second, time.Hour, 1)
		}, "trace flash-crowd: every in seconds 1: it must be in [60, 2.6784e+06]"},
		{func() (workload.Trace, error) {
			return workload.OnOff(1, -1, time.Minute, time.Minute, time.Hour, 1)
		}, "trace on-off: off -1: it must be in [0, 1e+06]"},
		{func() (workload.Trace, error) {
			return workload.OnOff(1, 0, 0, time.Minute, time.Hour, 1)
		}, "trace on-off: lastsOn in seconds 0: it must be in [1, 2.6784e+06]"},
	} {
		_, err := c.of()
		says(t, err, c.want)
	}
}
