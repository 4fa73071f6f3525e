package bench_test

import (
	"bytes"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
)

// a row of a policy in a cell, that holds.
func judged(trace, policy string, cores float64, change ...func(*bench.Row)) bench.Row {
	r := bench.Row{App: "shop", Trace: trace, Policy: policy, Cores: cores, Memory: 4, Holds: true}
	for _, f := range change {
		f(&r)
	}
	return r
}

func violates(r *bench.Row) { r.Holds, r.Violates = false, true }

// One way to lose a cell each, and what does not cost it.
func TestACellIsWonOnlyWithFewerCoresAndNothingElseLost(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bench.Row)
		why    string // empty: won
	}{
		"better":                        {func(*bench.Row) {}, ""},
		"as many cores":                 {func(r *bench.Row) { r.Cores = 10 }, "10.00 cores, captain has 10.00"},
		"more memory":                   {func(r *bench.Row) { r.Memory = 4.1 }, "4.10 GiB"},
		"a seed that violates":          {violates, "a seed violates"},
		"requests lost":                 {func(r *bench.Row) { r.Lost = 0.006 }, "0.60 % lost"},
		"half a percent lost":           {func(r *bench.Row) { r.Lost = 0.005 }, ""},
		"a twentieth of windows over":   {func(r *bench.Row) { r.Ratio = 0.05 }, ""},
		"more windows over":             {func(r *bench.Row) { r.Ratio = 0.07 }, "7.0 % of windows over, captain has 2.0 %"},
		"no more windows than the rule": {func(r *bench.Row) { r.Ratio = 0.02 }, ""},
	} {
		all := bench.Verdicts([]bench.Row{
			judged("flat", "captain", 10, func(r *bench.Row) { r.Ratio = 0.02 }),
			judged("flat", "k8s-cpu", 8, violates), // fewer cores, and not a rule to beat
			judged("flat", "hpa-vpa", 12),
			judged("flat", bench.Aware, 9, c.change),
		})
		if len(all) != 1 || all[0].Policy != bench.Aware || all[0].Cells != 1 {
			t.Fatalf("%s: verdicts %+v", name, all)
		}
		v := all[0]
		if (v.Won == 1) != (c.why == "") || len(v.Lost) != 1-v.Won || c.why != "" && !strings.Contains(v.Lost[0], c.why) {
			t.Errorf("%s: won %d, lost %q, want %q", name, v.Won, v.Lost, c.why)
		}
	}
}

// The saved cores are a mean over cells, those that are lost too. A cell in which no rule holds says nothing.
func TestVerdictsAreOverAllCellsWithARule(t *testing.T) {
	all := bench.Verdicts([]bench.Row{
		judged("flat", "captain", 10), judged("bursty", "captain", 20), judged("wild", "captain", 1, violates),
		judged("flat", bench.Aware, 9), judged("bursty", bench.Aware, 22), judged("wild", bench.Aware, 5),
		judged("flat", "demand", 10.5),
	})
	if len(all) != 2 || all[0].Cells != 2 || all[0].Won != 1 || all[0].Saved > 1e-9 || all[0].Saved < -1e-9 || all[1].Won != 0 {
		t.Errorf("verdicts %+v", all)
	}
	var out bytes.Buffer
	if err := bench.PrintVerdicts(&out, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 2", "shop under bursty: 22.00 cores, captain has 20.00"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
}

// What ships is of services that there are, and within what the policy takes.
func TestTheShippedMarginsAreOfTheApplications(t *testing.T) {
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, c := range cells {
		for _, s := range c.App.Services {
			known[c.App.Name+"/"+s.Name] = true
		}
	}
	n := 0
	for app, made := range bench.ShippedMargins().Applications {
		if !strings.HasPrefix(made.Made, "aware train margins --app "+app) {
			t.Errorf("the margins of %s were made by %q", app, made.Made)
		}
		for service, margin := range made.Margins {
			n++
			if !known[app+"/"+service] || !(margin >= -5 && margin <= 5) {
				t.Errorf("%s of %s: margin %v", service, app, margin)
			}
		}
	}
	if n != len(known) {
		t.Errorf("%d services have margins, of %d", n, len(known))
	}
}

// A service has its own margin; one of which nothing was learned has the common one, where there is one.
func TestTheMarginOfAServiceOfWhichNothingIsKnown(t *testing.T) {
	m, err := bench.ReadServiceMargins("some", []byte(`{"encoding":1,"applications":{"shop":{"margins":{"web":0}}},
		"common":{"made":"by hand","margin":-0.5}}`))
	if err != nil {
		t.Fatal(err)
	}
	own, other, unknown := m.Of("shop", "web"), m.Of("shop", "db"), m.Of("bank", "web")
	if own != 0 || other != -0.5 || unknown != -0.5 {
		t.Errorf("%v, %v, %v", own, other, unknown)
	}
	if got := (bench.ServiceMargins{}).Of("shop", "web"); got != 0 {
		t.Errorf("%v where nothing was learned", got)
	}
}
