package bench_test

import (
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
)

func TestAgreementIsOverAllRunsAndItsNoiseIsTheRequestLevels(t *testing.T) {
	all := cells(t)[:1] // train-ticket under diurnal: 1 s
	pair := func(policy string, seed uint64, fluid, requests float64) bench.Pair {
		score := func(ms float64) bench.Score {
			return bench.Score{P99MS: ms, P99: time.Duration(ms) * time.Millisecond, Cores: ms / 100, Violates: ms > 1000}
		}
		return bench.Pair{
			App: all[0].Application, Trace: all[0].Trace.Name, Policy: policy, Seed: seed,
			Fluid: score(fluid), Requests: score(requests),
		}
	}
	got := bench.Summarise(all, []bench.Pair{
		pair("one", 1, 110, 100), pair("one", 2, 100, 125), // 10 % and 20 % off; the seeds differ by 25 %
		pair("two", 1, 500, 1200), pair("two", 2, 1050, 960), // another verdict; another one, near the SLO
		pair("three", 1, 130, 100), pair("three", 2, 110, 110), // the seeds differ by 10 %
		pair("four", 1, 700, 100), // nobody knows what two seeds differ by
	})
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if got.Runs != 7 || !near(got.Median, 0.2) || !near(got.P95, 6) || !near(got.Cores, 6) || !near(got.CoresP95, 6) {
		t.Errorf("%+v", got)
	}
	if !near(got.NoiseMedian, 0.2) || !near(got.NoiseP95, 0.25) || !near(got.NoiseCores, 0.25) {
		t.Errorf("noise %v, %v, %v, want that of 0.25, 0.2 and 0.1", got.NoiseMedian, got.NoiseP95, got.NoiseCores)
	}
	if got.Steady != 4 || !near(got.SteadyP95, 1-500.0/1200) {
		t.Errorf("%d steady runs, %v, want the four of two and three", got.Steady, got.SteadyP95)
	}
	if len(got.Flips) != 1 || got.Flips[0] != "train-ticket/diurnal/two/1" {
		t.Errorf("flips %v", got.Flips)
	}
}
