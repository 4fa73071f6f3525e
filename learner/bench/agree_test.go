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
	})
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	if got.Runs != 4 || !near(got.Median, 0.2) || !near(got.P95, 1-500.0/1200) || !near(got.Cores, 1-500.0/1200) {
		t.Errorf("%+v", got)
	}
	if !near(got.NoiseMedian, 0.25) || !near(got.NoiseP95, 0.25) {
		t.Errorf("noise %v and %v, want 0.25 of one policy and 0.2 of the other", got.NoiseMedian, got.NoiseP95)
	}
	if len(got.Flips) != 1 || got.Flips[0] != "train-ticket/diurnal/two/1" {
		t.Errorf("flips %v", got.Flips)
	}
}
