package calibrate

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// measured is the data of AWARE_DATA, or else what is shipped.
func measured(t *testing.T) Data {
	t.Helper()
	dir := os.Getenv("AWARE_DATA")
	if dir == "" {
		return Shipped()
	}
	d, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func validated(t *testing.T, d Data, seed uint64, windows int) *Result {
	t.Helper()
	r, err := Validate(d, Options{Seed: seed, Windows: windows}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResultsMeetTheirTargets(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		for _, row := range validated(t, measured(t), seed, 0).Table() {
			if row.Value == nil && row.Reason != "" {
				t.Logf("%s, %s: %s", row.What, row.Figure, row.Reason)
				continue
			}
			if !row.Met() {
				t.Errorf("seed %d: %s, %s is %s, want %s", seed, row.What, row.Figure, row.Shown(), row.Verdict())
			}
		}
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	world, err := Dir(made(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() *Result{
		"measured":        func() *Result { return validated(t, measured(t), 7, 0) },
		"simulated world": func() *Result { return validated(t, world, 7, 3) },
	} {
		first, err := json.Marshal(run())
		if err != nil {
			t.Fatal(err)
		}
		second, err := json.Marshal(run())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two runs with one seed differ", name)
		}
	}
}

func TestInterferenceIsNotShipped(t *testing.T) {
	r := validated(t, Shipped(), 1, 0)
	if r.Interference.MAPE != nil || !strings.Contains(r.Interference.Reason, "--data") {
		t.Errorf("interference: %v, reason %q", r.Interference.MAPE, r.Interference.Reason)
	}
}

func windows(t *testing.T) []Window {
	t.Helper()
	in, err := load(measured(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(in.windows.Rows) == 0 {
		t.Skip("no windows in the data")
	}
	return in.windows.Rows
}

func TestHeldOutWindowsAreUnseen(t *testing.T) {
	rows := windows(t)
	held := rows[0].Policy
	changed := slices.Clone(rows)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range changed {
		if changed[i].Policy == held {
			changed[i].P99, changed[i].Mean = 1e4*r.Float64()+1, 1e4*r.Float64()
		}
	}
	part := func(i int) string { return rows[i].Policy }
	before, after := crossLoop(rows, part).points, crossLoop(changed, part).points
	for i := range before {
		if before[i].Group == held && before[i].Predicted != after[i].Predicted {
			t.Fatalf("point %d of %s: %v, and %v after its own measurement changed", i, held, before[i].Predicted,
				after[i].Predicted)
		}
	}
}

func TestHeldOutRunsAreUnseen(t *testing.T) {
	in, err := load(measured(t))
	if err != nil {
		t.Fatal(err)
	}
	families := map[string][]Run{}
	for _, r := range in.runs {
		families[r.family()] = append(families[r.family()], r)
	}
	for _, name := range names(families) {
		runs := successes(families[name])
		fold := sizeFolds(runs, 1)
		changed := slices.Clone(runs)
		for i, r := range changed {
			if fold(r) == 0 {
				changed[i].Millis = 10*r.Millis + 7
			}
		}
		before, _ := crossTime(runs, fold)
		after, _ := crossTime(changed, fold)
		for i := range before {
			if before[i].Measured != after[i].Measured && before[i].Predicted != after[i].Predicted {
				t.Fatalf("%s: %v, and %v after its own time changed", name, before[i].Predicted, after[i].Predicted)
			}
		}
	}
}

func TestHeldOutTeamContributesOnlyItsBase(t *testing.T) {
	runs := []Contended{
		{"a", "w", alone, 10}, {"a", "w", perfmodel.LastLevel, 20}, {"b", "w", alone, 5}, {"b", "w", perfmodel.LastLevel, 99},
	}
	r := validateContention(&inputs{contended: runs})
	i := slices.IndexFunc(r.points, func(p Point) bool { return p.Group == "b" })
	if i < 0 || math.Abs(r.points[i].Predicted-10) > 1e-9 {
		t.Errorf("b's 5 s alone and a's doubling should give 10 s: %+v", r.points)
	}
}

func TestUnknownWorkloadHasTheMeanSensitivity(t *testing.T) {
	m := fitContention([]Contended{
		{"a", "v", alone, 1}, {"a", "v", perfmodel.Core, 2}, {"a", "w", alone, 1}, {"a", "w", perfmodel.Core, 8},
	})
	if f := m.slowdown("new", perfmodel.Core); math.Abs(f-4) > 1e-9 {
		t.Errorf("between a doubling and an eightfold: %v, want 4", f)
	}
}

func TestMechanismNeverPredictsHigherLatencyForAHigherRate(t *testing.T) {
	rows := windows(t)
	m := fitLoop(rows)
	w := rows[0]
	last := math.Inf(1)
	for w.Load = 0; w.Load < 4000*w.Length; w.Load += 10 * w.Length {
		p := m.mechanism(w)
		if p > last || math.IsNaN(p) {
			t.Fatalf("%v requests: p99 %v ms after %v", w.Load, p, last)
		}
		last = p
	}
}

// made writes measurements of a world in which the laws hold, with names and
// counts that no file shipped has.
func made(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	loop := perfmodel.Loop{Clients: 500, Think: 4.9, Alone: 0.1, Quiet: 0.3, Spread: 5, Ceiling: 9}
	r := rand.New(rand.NewPCG(1, 1))
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	var csv strings.Builder
	csv.WriteString("p99,alloc_y,alloc_x,load,policy,event_end_time,event_start_time,avg_latency,extra\n")
	for i := range 300 {
		x, y := 1+9*r.Float64(), 1+9*r.Float64()
		rate, mean, p99 := loop.Answer(perfmodel.Capacity([]perfmodel.Station{{CPU: x, Demand: 0.02}, {CPU: y, Demand: 0.04}}))
		csv.WriteString(strings.Join([]string{number(1000 * p99 * (1 + 0.02*r.NormFloat64())), number(y), number(x), number(60 * rate),
			[]string{"p", "q"}[i%2], number(float64(61 * (i + 1))), number(float64(61*(i+1) - 60)), number(1000 * mean), "?"}, ",") + "\n")
	}
	put(t, dir, cilantroFile, csv.String())
	put(t, dir, chunkfuncFile, "provider,function,memory_mib,milli_cpu,input_size_bytes,execution_time_ms,status_code\n"+
		"c,f,100,500,7,2100,200\nc,f,200,1000,7,1100,200\nc,f,400,2000,7,600,200\nc,f,800,4000,7,350,200\nc,f,50,250,7,3,500\n")
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFitRecoversTheConstantsOfSyntheticData(t *testing.T) {
	d, err := Dir(made(t))
	if err != nil {
		t.Fatal(err)
	}
	r := validated(t, d, 1, 3)
	if c := or(r.Cilantro.Regression.Fit.Clients); math.Abs(c-500) > 25 {
		t.Errorf("%v clients, made with 500", c)
	}
	if e := r.Cilantro.Regression.ByPolicy.MedianAPE; e == nil || *e > 0.05 {
		t.Errorf("median APE by policy: %v", or(e))
	}
	if r.Time.MAPE == nil || *r.Time.MAPE > 0.05 {
		t.Errorf("time MAPE %v", or(r.Time.MAPE))
	}
	if !strings.Contains(r.Interference.Reason, "absent") {
		t.Errorf("interference: reason %q", r.Interference.Reason)
	}
}

func TestNothingToValidateIsAnError(t *testing.T) {
	d, err := Dir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Validate(d, Options{Seed: 1}, func(string) {}); err == nil {
		t.Error("no error for an empty folder")
	}
}

func TestRanksShareTies(t *testing.T) {
	if got := ranks([]float64{3, 1, 3, 2}); !slices.Equal(got, []float64{2.5, 0, 2.5, 1}) {
		t.Errorf("ranks %v", got)
	}
}

func TestCliffSeparatesFailures(t *testing.T) {
	runs := []Run{{Memory: 1, Failed: true}, {Memory: 2, Failed: true}, {Memory: 3}, {Memory: 4}}
	if c := cliff(runs); !(c > 2 && c <= 3) {
		t.Errorf("cliff %v, want above 2 and at most 3", c)
	}
	if c := cliff(runs[2:]); c != 0 {
		t.Errorf("nothing failed: cliff %v", c)
	}
}

// TestSmallAndUnusualDataGivesAResult feeds files of few rows, many ties and
// extreme values: there is always an answer that JSON can hold, never a panic.
func TestSmallAndUnusualDataGivesAResult(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		values := []string{"0", "0.5", "1", "1", "2", "30", "1000", "1e-8", "1e14"}
		pick := func() string { return values[r.IntN(len(values))] }
		above := func() string { return values[1+r.IntN(len(values)-1)] }
		name := func() string { return string(rune('a' + r.IntN(3))) }
		var c, k, p strings.Builder
		c.WriteString(goodCilantro)
		k.WriteString(goodChunk)
		p.WriteString(goodParsec)
		for range 1 + r.IntN(12) {
			c.WriteString(strings.Join([]string{name(), "5", "35.5", pick(), pick(), pick(), pick()}, ",") + "\n")
			k.WriteString(strings.Join([]string{
				name(), name(), above(), above(), pick(), pick(), []string{"200", "500"}[r.IntN(2)],
			}, ",") + "\n")
			p.WriteString(strings.Join([]string{name(), name(), []string{"none", "llc", "disk"}[r.IntN(3)], above()}, ",") + "\n")
		}
		dir := t.TempDir()
		put(t, dir, cilantroFile, c.String())
		put(t, dir, chunkfuncFile, k.String())
		put(t, dir, parsecFile, p.String())
		d, err := Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		result := validated(t, d, seed, 1)
		if _, err := json.Marshal(result); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
