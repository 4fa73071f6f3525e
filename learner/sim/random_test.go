package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestAChanceIsABinomialNumber(t *testing.T) {
	rng := rand.NewPCG(1, 2)
	for _, p := range []float64{0, 0.004, 0.3, 0.5, 0.75, 0.97, 1} {
		var c chance
		c.set(0.2) // what was before must not matter
		c.set(p)
		for _, n := range []float64{0, 1, 2, 7, few - 1, few, 300} {
			const runs = 40_000
			sum, squares := 0.0, 0.0
			for range runs {
				k := c.of(n, rng.Uint64())
				if k < 0 || k > n || k != math.Floor(k) {
					t.Fatalf("%v of %v with chance %v", k, n, p)
				}
				sum += k
				squares += k * k
			}
			mean, variance := sum/runs, n*p*(1-p)
			if math.Abs(mean-n*p) > 5*math.Sqrt(variance/runs)+1e-9 {
				t.Errorf("chance %v: %v of %v in the mean, want %v", p, mean, n, n*p)
			}
			if got := squares/runs - mean*mean; math.Abs(got-variance) > 0.04*variance+0.01 {
				t.Errorf("chance %v of %v: variance %v, want %v", p, n, got, variance)
			}
		}
	}
}

// A table takes longer to make than an episode to simulate, so worlds share it; and there are no more of them than are kept.
func TestTablesAreMadeOnce(t *testing.T) {
	first := gammaTable(0.37)
	if gammaTable(0.37) != first {
		t.Error("it is made again")
	}
	for i := range keptTables {
		gammaTables.Add(-1-float64(i), first)
	}
	if n := gammaTables.Len(); n > keptTables {
		t.Errorf("%d tables are kept, want %d at most", n, keptTables)
	}
	again := gammaTable(0.37)
	if again == first || *again != *first {
		t.Error("it is not made again, the same, when others have been used for long")
	}
	sum, squares := 0.0, 0.0
	for _, v := range again {
		sum += v / tableSize
		squares += v * v / tableSize
	}
	if deviation := math.Sqrt(squares - sum*sum); math.Abs(sum-1) > 1e-3 || math.Abs(deviation-0.37) > 2e-3 {
		t.Errorf("mean %v, deviation %v", sum, deviation)
	}
}
