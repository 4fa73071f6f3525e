package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// drawn makes windows of two policies for an application of two services. The
// formula gives their rate and p99, with work factors of 0.9 and 0.2. Its first
// service is the bottleneck where it has few cores.
func drawn(n int) (rows []Window, fit *worldFit) {
	services := []string{"x", "y"}
	fit = newWorldFit(services, 1)
	f := factors{[]float64{0.9 * fit.plant.most[0], 0.2 * fit.plant.most[1]}, 1}
	c := client{offered: 3000, connections: 32, seconds: 6, settle: 2}
	r := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		w := Window{
			Policy: []string{"p", "q"}[i%2],
			Length: c.seconds,
			Alloc:  []float64{1 + float64(r.IntN(6)), 1 + float64(r.IntN(6))},
		}
		rate, p99 := fit.plant.answer(f, w.Alloc, c)
		w.Load, w.P99, w.Mean = rate*c.seconds, p99, p99/2
		rows = append(rows, w)
	}
	return rows, fit
}

func TestFitFindsTheBottleneckOfSyntheticWindows(t *testing.T) {
	rows, fit := drawn(200)
	all, err := leaveOut(rows, choose(rows, len(rows)), fit.baselines()[3], func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if j := judged(all); or(j.Spearman) < 0.9 || or(j.Completed) > 0.05 || or(j.Saturated.Accuracy) < 0.95 {
		t.Errorf("%s: the windows are the formula's own", j.note("formula"))
	}
}

func TestWorldAndFormulaAgreeOnTheCompletedRate(t *testing.T) {
	_, fit := drawn(0)
	c := client{offered: 1500, connections: 32, seconds: 6, settle: 2}
	for name, f := range map[string]factors{
		"free":                    {[]float64{1, 1}, 1},
		"one service overloaded":  {[]float64{2, 1}, 1},
		"too few connections":     {[]float64{0.5, 0.5}, 40},
		"next to the connections": {[]float64{1, 1}, 20},
	} {
		alloc := []float64{1, 2}
		if name != "one service overloaded" {
			alloc = []float64{4, 4}
		}
		want, _ := fit.plant.answer(f, alloc, c)
		got, _, err := replay(allocated(scaled(fit.app, fit.services, f), fit.services, alloc), c, 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got/want-1) > 0.1 {
			t.Errorf("%s: the world completes %.0f/s, the formula %.0f/s", name, got, want)
		}
	}
}

func TestPredictionsReadTheAllocationOnly(t *testing.T) {
	rows, fit := drawn(40)
	changed := slices.Clone(rows)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range changed {
		if changed[i].Policy == "p" {
			changed[i].Load, changed[i].P99 = 100*r.Float64(), 1+1e4*r.Float64()
			changed[i].Mean, changed[i].Deviation = 1e4*r.Float64(), 1
		}
	}
	for _, p := range append([]predictor{fit.world()}, fit.baselines()...) {
		if p.name == "nearest_neighbours_that_see_the_completed_rate" {
			continue
		}
		before, err := leaveOut(rows, choose(rows, 4), p, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		after, err := leaveOut(changed, choose(changed, 4), p, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range before {
			if a := after[i]; o.window.Policy == "p" && (o.rate != a.rate || o.p99 != a.p99) {
				t.Errorf("%s: %v/s and %v ms, and %v/s and %v ms after the window's own measurement changed",
					p.name, o.rate, o.p99, a.rate, a.p99)
			}
		}
	}
}

func TestFittedWorkIsWithinItsBound(t *testing.T) {
	in, err := load(measured(t))
	if err != nil {
		t.Fatal(err)
	}
	fit := newWorldFit(in.windows.Services, 1)
	c, err := clientOf(in.windows.Rows)
	if err != nil {
		t.Fatal(err)
	}
	f := fitPlant(fit.plant, in.windows.Rows, c)
	for _, o := range scaled(fit.app, fit.services, f).Operations {
		if o.Work.Seconds() > mostWork*1.001 {
			t.Errorf("%s works %v, above %v s", o.Name, o.Work, mostWork)
		}
	}
}

func TestMoreCoresNeverPredictFewerCompleted(t *testing.T) {
	_, fit := drawn(0)
	c := client{offered: 3000, connections: 32, seconds: 30, settle: 10}
	last := 0.0
	for cores := 0.0; cores < 12; cores += 0.25 {
		rate, p99 := fit.plant.answer(factors{[]float64{1, 1}, 1}, []float64{cores, 6}, c)
		if rate < last || rate > c.offered || math.IsNaN(p99) {
			t.Fatalf("%v cores: %v/s after %v/s, p99 %v", cores, rate, last, p99)
		}
		last = rate
	}
}

func TestChosenWindowsAreEvenlySpread(t *testing.T) {
	var rows []Window
	for i := range 100 {
		rows = append(rows, Window{Policy: "p", P99: float64(i)})
	}
	var at []float64
	for _, w := range choose(rows, 5)["p"] {
		at = append(at, w.P99)
	}
	if !slices.Equal(at, []float64{10, 30, 50, 70, 90}) {
		t.Errorf("5 of 100: %v", at)
	}
	if n := len(choose(rows, 500)["p"]); n != 100 {
		t.Errorf("500 of 100: %d", n)
	}
}

func TestAuditSeesWhatNoDistributionHas(t *testing.T) {
	for name, c := range map[string]struct {
		w          Window
		impossible bool
		printed    bool
	}{
		"exponential":                        {Window{Mean: 100, Deviation: 100, P99: 460.52}, false, true},
		"far above the mean":                 {Window{Mean: 60, Deviation: 0.5, P99: 112.713}, true, false},
		"far below the mean":                 {Window{Mean: 5000, Deviation: 1500, P99: 1250}, true, true},
		"as printed in seconds":              {Window{Mean: 500, Deviation: 540, P99: 2330}, false, true},
		"not as printed in seconds":          {Window{Mean: 500, Deviation: 540, P99: 2333.1}, false, false},
		"nothing known of the deviation":     {Window{Mean: 60, P99: 112.71}, false, true},
		"at most 9.95 deviations above mean": {Window{Mean: 0, Deviation: 10, P99: 99.49}, false, true},
	} {
		if got := c.w.impossible(); got != c.impossible {
			t.Errorf("%s: impossible %v", name, got)
		}
		if got := c.w.printed(); got != c.printed {
			t.Errorf("%s: printed %v", name, got)
		}
	}
}

func TestConstantPredictionHasNoRankAndTheMajorityAsAccuracy(t *testing.T) {
	var all []outcome
	for i := range 10 {
		w := Window{Policy: "p", P99: float64(i + 1), Length: 1, Load: []float64{50, 100}[min(1, i/3)]}
		all = append(all, outcome{window: w, offered: 100, rate: 100, p99: 5})
	}
	j := judged(all)
	if j.Spearman != nil || or(j.Within) != 0 {
		t.Errorf("a constant has no order: %v, %v within", or(j.Spearman), or(j.Within))
	}
	if s := j.Saturated; or(s.Accuracy) != 0.7 || or(s.Majority) != 0.7 || or(s.Balanced) != 0.5 {
		t.Errorf("3 of 10 saturated, none foreseen: %v, %v, %v", or(s.Accuracy), or(s.Majority), or(s.Balanced))
	}
}
