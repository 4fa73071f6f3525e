package bench

import (
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/sim/workload"
)

// calmCell is a small application that is tuned for a few minutes of constant load.
func calmCell(t *testing.T) Cell {
	t.Helper()
	cell := shortCell(t)
	warm, err := workload.Constant(100, 3*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	cell.Warm = warm
	return cell
}

func TestCaptainPlusGoesOnFromCaptainsTarget(t *testing.T) {
	for _, test := range []struct {
		name   string
		target float64
		slo    time.Duration
		holds  bool // with that target for all
	}{
		{"a safe target, up the ladder", 0.05, 100 * time.Millisecond, true},
		{"a target that violates, down the ladder", 0.2, 32 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cell := calmCell(t)
			cell.App.SLO.Latency = test.slo
			common := Tuned{App: cell.Application, Trace: cell.Trace.Name,
				Choice: Choice{Policy: "captain", Settings: map[string]float64{"target": test.target}}}
			got, err := Tune(t.Context(), cell, captainPlus, 1, TunedSettings{Encoding: Encoding, Tuned: []Tuned{common}})
			if err != nil {
				t.Fatal(err)
			}
			first := got.Trials[0]
			for _, name := range []string{"target", "target.front", "target.back"} {
				if v, ok := first.Settings[name]; !ok || v != test.target {
					t.Errorf("the first trial has %s %v, want captain's %v", name, v, test.target)
				}
				if v := got.Choice.Settings[name]; v != test.target && !slices.Contains(ladder, v) {
					t.Errorf("%s became %v, which is not on the ladder", name, v)
				}
			}
			if first.Holds != test.holds {
				t.Fatalf("with captain's target the trial holds: %v, want %v: this shows nothing", first.Holds, test.holds)
			}
			if !got.Holds {
				t.Fatalf("no trial holds: %+v", got.Trials)
			}
			chosen := slices.IndexFunc(got.Trials, func(o Trial) bool {
				return o.Settings["target.front"] == got.Choice.Settings["target.front"] &&
					o.Settings["target.back"] == got.Choice.Settings["target.back"] && o.Settings["target"] == got.Choice.Settings["target"]
			})
			if chosen <= 0 {
				t.Fatalf("trial %d was chosen, want one that the search found", chosen)
			}
			for _, o := range got.Trials {
				if o.Holds && o.Cores < got.Trials[chosen].Cores {
					t.Errorf("%v holds with %.3f cores, but the choice is %v with %.3f",
						o.Settings, o.Cores, got.Choice.Settings, got.Trials[chosen].Cores)
				}
			}
			if up := got.Choice.Settings["target.front"] > test.target; up != test.holds {
				t.Errorf("from %v the largest service's target became %v", test.target, got.Choice.Settings["target.front"])
			}
		})
	}
}

// What a service needs is what all its replicas need.
func TestTheLargestServicesAreThoseThatNeedMost(t *testing.T) {
	cell := calmCell(t)
	s := search{cell: cell}
	for _, replicas := range []int{1, 4} { // of the service that needs more
		cell.App.Services[0].Replicas = replicas
		if got := s.largest(1); !slices.Equal(got, []string{"front"}) {
			t.Errorf("with %d replicas the largest is %v, want front: 5 ms against 3 ms for each request", replicas, got)
		}
	}
}
