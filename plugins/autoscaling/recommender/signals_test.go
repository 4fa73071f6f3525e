package recommender

import (
	"encoding/json"
	"math"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestInputsLeaveOutWhatWasNotObserved(t *testing.T) {
	if got := Inputs(mdp.State{Observed: mdp.SetOf(mdp.Replicas), Replicas: 2, Latency: time.Second}); got != "replicas=2" {
		t.Errorf("inputs %q", got)
	}
	if got := Inputs(mdp.State{}); got != "nothing observed" {
		t.Errorf("inputs %q", got)
	}
}

// A State goes into a status, through JSON, and comes back: to the millicore, the
// byte, the microsecond and the millionth.
func TestSignalsSurviveTheStatus(t *testing.T) {
	same := func(milli [4]uint16, mib [2]uint16, shares [5]uint16, micros uint32, kills uint8, observed mdp.Set) bool {
		share := func(i int) mdp.Ratio { return mdp.Ratio(shares[i]) / 100 }
		want := mdp.State{
			Observed:       mdp.All,
			Replicas:       int(kills) + 1,
			Limit:          mdp.Size{CPU: mdp.MilliCPU(milli[0]), Memory: mdp.Bytes(mib[0])*mdp.MiB + 1},
			Usage:          mdp.Size{CPU: mdp.MilliCPU(milli[1]), Memory: mdp.Bytes(mib[1])*mdp.MiB + 3},
			CPUPeak:        mdp.MilliCPU(milli[2]),
			CPUDeviation:   mdp.MilliCPU(milli[3]),
			Throttled:      share(0),
			CPUPressure:    share(1),
			MemoryPressure: share(2),
			IOPressure:     share(3),
			IORate:         mdp.Rate(micros) / 2,
			Latency:        time.Duration(micros) * time.Microsecond,
			Throughput:     mdp.Rate(micros) / 8,
			LoadChange:     share(4),
			OOMKills:       int(kills),
		}
		text, err := json.Marshal(v1alpha1.DecisionStatus{Signals: Signals(want)})
		if err != nil {
			t.Fatal(err)
		}
		var read v1alpha1.DecisionStatus
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if got := StateOf(read.Signals); got != want {
			t.Logf("%s became\n%+v, want\n%+v", text, got, want)
			return false
		}
		want.Observed &= observed
		return StateOf(Signals(want)).Observed == want.Observed
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
}

func TestSignalsAreWrittenInBaseUnits(t *testing.T) {
	got := Signals(mdp.State{
		Observed:  mdp.SetOf(mdp.CPUUsage, mdp.MemoryLimit, mdp.Latency, mdp.Throttled, mdp.Replicas),
		Usage:     mdp.Size{CPU: 1250},
		Limit:     mdp.Size{Memory: 96 * mdp.MiB},
		Latency:   12300 * time.Microsecond,
		Throttled: 0.25,
		Replicas:  3,
	})
	want := map[string]string{
		"cpu-usage":    "1250m",
		"memory-limit": "96Mi",
		"latency":      "12300u",
		"throttled":    "250m",
		"replicas":     "3",
	}
	if len(got) != len(want) {
		t.Errorf("signals %v, want %v", got, want)
	}
	for name, text := range want {
		if q := got[name]; q.String() != text {
			t.Errorf("%s is %s, want %s", name, q.String(), text)
		}
	}
}

func TestSetsAreWhatTheActionSets(t *testing.T) {
	got := Sets(mdp.Action{Replicas: 7, Limit: mdp.Size{Memory: mdp.MiB}}.WithCPU(300))
	if q := got["cpu-limit"]; len(got) != 1 || q.String() != "300m" {
		t.Errorf("sets %v, want the CPU limit alone", got)
	}
}

func TestWhatIsNotFiniteIsLeftOut(t *testing.T) {
	got := Signals(mdp.State{Observed: mdp.SetOf(mdp.Throttled, mdp.LoadChange, mdp.Throughput),
		Throttled: mdp.Ratio(math.NaN()), LoadChange: mdp.Ratio(math.Inf(1)), Throughput: 1e30})
	if len(got) != 0 {
		t.Errorf("signals %v, want none", got)
	}
}

func TestSignalsOfANewerVersionAreLeftOut(t *testing.T) {
	got := StateOf(map[string]resource.Quantity{"flavour": resource.MustParse("1"), "cpu-usage": resource.MustParse("5m")})
	if got.Observed != mdp.SetOf(mdp.CPUUsage) || got.Usage.CPU != 5 {
		t.Errorf("state %+v, want 5m of CPU alone", got)
	}
}

func TestDescribeIsForPeople(t *testing.T) {
	const shown mdp.Set = 1<<16 - 1 // those that have a value here
	s := mdp.State{
		Observed: shown, Replicas: 2,
		Limit:   mdp.Size{CPU: 400, Memory: 128 * mdp.MiB},
		Usage:   mdp.Size{CPU: 180, Memory: 40 * mdp.MiB},
		CPUPeak: 250, CPUDeviation: 20, Throttled: 0.1,
		CPUPressure: 0.2, MemoryPressure: 0.3, IOPressure: 0.4, IORate: 3 << 20,
		Latency: 12345 * time.Microsecond, Throughput: 9.5, LoadChange: 1.25, OOMKills: 1,
	}
	want := "replicas=2 cpu-limit=400m memory-limit=128Mi cpu-usage=180m memory-usage=40Mi " +
		"cpu-peak=250m cpu-deviation=20m throttled=0.10 " +
		"cpu-pressure=0.20 memory-pressure=0.30 io-pressure=0.40 io-rate=3.0Mi/s " +
		"latency=12.3ms throughput=9.5/s load-change=1.25 oom-kills=1"
	if got := Inputs(s); got != want {
		t.Errorf("inputs %q\nwant   %q", got, want)
	}
}
