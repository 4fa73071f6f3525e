package margins

import (
	"math"
	"slices"
	"testing"
)

// surveyed is n workloads of two kinds, by the sign of their only number: those above zero can do with a margin of -1, and save a
// tenth of their cores; those below save as much, and miss their SLO.
func surveyed(n int) Survey {
	s := Survey{
		Parts: []Part{{}, {Level: -1}, {Level: 0.5}},
		Alike: func(a, b []float64) float64 { return -math.Abs(a[0] - b[0]) },
	}
	for k := range n {
		at := 1 + float64(k/2)/20
		late := 0.001
		if k%2 == 0 {
			at, late = -at, 0.05
		}
		s.Embeddings = append(s.Embeddings, []float64{at})
		own := math.Mod(float64(k)*0.37, 1) / 100 // hours are not all the same
		for i, hour := range []struct{ cores, late float64 }{{1, 0.001}, {0.9 + own, late}, {1.1, 0.001}} {
			s.Parts[i].Hours = append(s.Parts[i].Hours, hour.cores)
			s.Parts[i].late = append(s.Parts[i].late, hour.late)
			s.Parts[i].over = append(s.Parts[i].over, 0)
		}
	}
	for i := range s.Parts {
		s.Parts[i].sum()
	}
	return s
}

// A workload is given what suits those that are most like it; together they would all have to have none.
func TestAMarginIsThatOfTheWorkloadsThatAreMostAlike(t *testing.T) {
	all := surveyed(40)
	if common := Choose(all.Parts); common != 0 {
		t.Fatalf("part %d suits all", common)
	}
	for _, one := range []struct {
		at   float64
		n    int
		want int
	}{{1.3, 10, 1}, {-1.3, 10, 0}, {1.3, 20, 1}, {1.3, 40, 0}, {1.3, 1000, 0}, {math.NaN(), 10, 0}, {1.3, 0, 0}} {
		if got := all.Predict([]float64{one.at}, one.n); got != one.want {
			t.Errorf("at %v, of %d workloads: part %d, want %d", one.at, one.n, got, one.want)
		}
	}
}

// How many workloads are asked is found by asking for each of them the others, and never itself. Where similarity misleads,
// nobody is asked.
func TestHowManyWorkloadsAreAsked(t *testing.T) {
	all := surveyed(40)
	n, results := all.Learn()
	if n != 10 || len(results) != 1+len(Neighbours) {
		t.Errorf("%d workloads are asked, of %d results", n, len(results))
	}
	if none, ten := results[0], results[1]; none.Cores != 1 || ten.Broken != 0 || ten.Cores > 0.96 || len(ten.Hours) != 40 {
		t.Errorf("without a margin %+v, by ten others %+v", none, ten)
	}
	// Of ten of a kind nine are others, and the tenth that is asked is of the other kind: only its own hour would make it ten.
	few := surveyed(20)
	if n, results := few.Learn(); n != 0 {
		t.Errorf("workloads are asked for themselves, and so %d of them are: %+v", n, results[1])
	}
	all.Alike = func(a, b []float64) float64 { return -math.Abs(a[0] + b[0]) }
	if n, results := all.Learn(); n != 0 {
		t.Errorf("similarity misleads, and %d are asked: %+v", n, results[1])
	}
}

// Nothing is better than to know each hour before: there everybody has the fewest cores that its SLO allows.
func TestNothingIsBetterThanToKnow(t *testing.T) {
	all := surveyed(40)
	best := Best(all.Parts)
	if best.Broken != 0 {
		t.Errorf("%d miss their SLO", best.Broken)
	}
	for k, cores := range best.Hours {
		if want := all.Parts[(k%2)*1].Hours[k]; cores != want {
			t.Errorf("workload %d: %v, want %v", k, cores, want)
		}
	}
	which := make([]int, 40)
	for k := range which {
		which[k] = k % 2
	}
	if mixed := Mixed(all.Parts, which); !slices.Equal(mixed.Hours, best.Hours) || mixed.Late != best.Late {
		t.Errorf("%+v, and by hand %+v", best, mixed)
	}
	// One that misses its SLO anyway has the fewest cores.
	for i := range all.Parts {
		all.Parts[i].over[0] = 0.2
	}
	if best := Best(all.Parts); best.Hours[0] != all.Parts[1].Hours[0] {
		t.Errorf("%v cores where the SLO is missed anyway", best.Hours[0])
	}
}
