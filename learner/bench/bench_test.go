package bench_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/sim/workload"
)

func cells(t testing.TB) []bench.Cell {
	t.Helper()
	all, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 12 {
		t.Fatalf("%d cells, want twelve", len(all))
	}
	return all
}

func shipped(t testing.TB) bench.TunedSettings {
	t.Helper()
	tuned, err := bench.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return tuned
}

func TestEveryBaselineIsTunedForEveryCell(t *testing.T) {
	tuned := shipped(t)
	for _, c := range cells(t) {
		for _, name := range bench.Tunable() {
			one, ok := tuned.For(c, name)
			if !ok || !one.Holds || len(one.Trials) < 2 {
				t.Errorf("%s under %s: %s was tuned in %d trials, holds %v",
					c.Application, c.Trace.Name, name, len(one.Trials), one.Holds)
			}
			if len(one.Edges) > 0 {
				t.Errorf("%s under %s: %s has its best %v where the search ended",
					c.Application, c.Trace.Name, name, one.Edges)
			}
		}
	}
}

// Tuning takes the smallest limits without a window over the SLO in two hours at
// the peak; in other hours a window may be.
func TestStaticLimitsForThePeakKeepTheirPromises(t *testing.T) {
	rows, err := bench.Contest{
		Cells: cells(t), Contestants: []bench.Contestant{{Name: "static"}}, Tuned: shipped(t), Seeds: 1,
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Violates || r.Ratio > 1.5/360 || r.Flapping != 0 {
			t.Errorf("%s under %s: p99 %.0f ms, SLO %.0f ms, violated in %.2f %% of the windows",
				r.App, r.Trace, r.P99MS, r.SLOMS, 100*r.Ratio)
		}
	}
}

// Autothrottle's claim (NSDI 2024, §5.2): fewer cores than the rule of
// Kubernetes, with the same SLO.
func TestAutothrottleAllocatesFewerCoresThanK8sCPUInMostCells(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 65 hours, most of them at ten decisions a second, which takes a minute")
	}
	tuned := shipped(t)
	for _, one := range tuned.Tuned {
		if one.Choice.Policy == "autothrottle" {
			one.Choice.Settings["warm_hours"] = 3
		}
	}
	who := []bench.Contestant{{Name: "k8s-cpu"}, {Name: "autothrottle"}}
	rows, err := bench.Contest{
		Cells: cells(t), Contestants: who, Tuned: tuned, Seeds: 1,
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fewer, compared := 0, 0
	for i := 0; i < len(rows); i += 2 {
		k, a := rows[i], rows[i+1]
		t.Logf("%s under %s: k8s-cpu %.2f cores, %.0f ms; autothrottle %.2f cores, %.0f ms",
			k.App, k.Trace, k.Cores, k.P99MS, a.Cores, a.P99MS)
		if a.Violates {
			continue
		}
		compared++
		if k.Violates || a.Cores < k.Cores {
			fewer++
		}
	}
	if fewer < 8 {
		t.Errorf("in %d of %d cells, want most of twelve", fewer, compared)
	}
}

func TestSameSeedGivesSameRows(t *testing.T) {
	one := func() string {
		who := []bench.Contestant{{Name: "captain"}, {Name: "hpa-vpa"}}
		rows, err := bench.Contest{
			Cells: cells(t)[8:9], Contestants: who, Tuned: shipped(t), Seeds: 2,
		}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := one(), one(); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

func TestAnotherTraceGivesOneCellPerApplication(t *testing.T) {
	trace, err := workload.ReadRates("mine", strings.NewReader(strings.Repeat("100\n300\n", 300)))
	if err != nil {
		t.Fatal(err)
	}
	trace.Name = "mine"
	more, err := bench.Columns(trace)
	if err != nil {
		t.Fatal(err)
	}
	who := []bench.Contestant{{Name: "k8s-cpu"}}
	rows, err := bench.Contest{
		Cells: more, Contestants: who, Tuned: shipped(t), Seeds: 1,
	}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 || rows[0].Trace != "mine" || rows[0].Cores <= 0 {
		t.Errorf("%d rows, the first %+v", len(rows), rows[0])
	}
}

func TestScoreExcludesTheWarmUp(t *testing.T) {
	c := cells(t)[8]
	choice, err := bench.Named("static")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	s, err := bench.Run(t.Context(), c, choice, bench.Options{
		Seed:   1,
		Length: 5 * time.Minute,
		Watch:  func(bench.Point) { n++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if n != 30 || s.WindowCount != 30 {
		t.Errorf("%d points and %d windows in five minutes, want 30", n, s.WindowCount)
	}
	if s.Flapping > 1e-9 || s.Resizes != 0 {
		t.Errorf("a static allocation flaps by %v and was resized %d times", s.Flapping, s.Resizes)
	}
}

func TestErrorNamesTheWrongValueOfAPolicyFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{
			"another encoding", `{"encoding":2,"policy":"captain","settings":{}}`,
			"policy p.json: encoding 2: this aware reads encoding 1",
		},
		{"an unknown policy", `{"encoding":1,"policy":"magic"}`, `policy p.json: policy "magic": known are static, `},
		{
			"an unknown setting", `{"encoding":1,"policy":"captain","settings":{"tarket":1}}`,
			`policy p.json: setting "tarket": captain has target`,
		},
		{
			"a value outside", `{"encoding":1,"policy":"captain","settings":{"target":1.5}}`,
			"policy p.json: setting target 1.5: it must be in [0, 0.99]",
		},
		{"truncated", `{"encoding":1,"pol`, "policy p.json: unexpected EOF"},
		{"an unknown field", `{"encoding":1,"policy":"captain","weights":[]}`, `unknown field "weights"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := bench.ReadChoice("p.json", strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzReadChoice(f *testing.F) {
	f.Add([]byte(`{"encoding":1,"policy":"captain","settings":{"target":0.1}}`))
	f.Add([]byte(`{"encoding":1,"policy":"static","settings":{"cpu.web":100}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := bench.ReadChoice("fuzzed", bytes.NewReader(text)); err == nil {
			if err := c.Check(); err != nil {
				t.Errorf("read, but %v", err)
			}
		}
	})
}

func FuzzReadTunedSettings(f *testing.F) {
	f.Add([]byte(`{"encoding":1,"how":"","tuned":[
		{"app":"a","trace":"t","choice":{"encoding":1,"policy":"captain","settings":{}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := bench.ReadTunedSettings("fuzzed", bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, x := range b.Tuned {
			if err := x.Choice.Check(); err != nil {
				t.Errorf("read, but %v", err)
			}
		}
	})
}
