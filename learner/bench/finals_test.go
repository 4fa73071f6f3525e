package bench_test

import (
	"slices"
	"testing"

	"awarescale.dev/aware/learner/bench"
)

// The fluid level judges all, the request level the best rule of the cell and the
// policy file. What is known from an earlier run is not run again.
func TestTheBestRulesAndPolicyFilesAreJudgedByRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates two hours request by request")
	}
	tuned := shipped(t)
	cell := cells(t)[5] // social-network, constant
	mine, ok := tuned.For(cell, "static")
	if !ok {
		t.Fatal("no static rule")
	}
	var done []bench.Row
	contest := bench.Contest{
		Cells:       []bench.Cell{cell},
		Contestants: []bench.Contestant{{Name: "static"}, {Name: "k8s-cpu-fast"}, {Name: "mine", Choice: &mine.Choice}},
		Tuned:       tuned, Seeds: 1, Best: 1,
		Done: func(r bench.Row, of int) {
			if of != 5 {
				t.Errorf("%d rows are announced, want five: three by fluid, two by requests", of)
			}
			done = append(done, r)
		},
	}
	rows, err := contest.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, r := range rows {
		by = append(by, r.Policy+" by "+r.Fidelity)
	}
	if want := []string{"static by fluid", "k8s-cpu-fast by requests", "mine by requests"}; !slices.Equal(by, want) {
		t.Errorf("%v, want %v", by, want)
	}
	if len(done) != 5 {
		t.Errorf("%d rows were reported, want five", len(done))
	}
	contest.Done = nil
	contest.Known = func(app, trace, policy, fidelity string) (bench.Row, bool) {
		i := slices.IndexFunc(done, func(r bench.Row) bool {
			return r.App == app && r.Trace == trace && r.Policy == policy && r.Fidelity == fidelity
		})
		if i < 0 {
			t.Errorf("%s by %s runs again", policy, fidelity)
			return bench.Row{}, false
		}
		return done[i], true
	}
	again, err := contest.Run(t.Context())
	if err != nil || again[1].Cores != rows[1].Cores {
		t.Errorf("from what is known: %v, %v cores, were %v", err, again[1].Cores, rows[1].Cores)
	}
}

func TestPlacesAreByCoresAmongThoseThatHoldAndByWindows(t *testing.T) {
	rows := []bench.Row{
		{App: "a", Policy: "lean", Cores: 1, Ratio: 0.2, Violates: true},
		{App: "a", Policy: "fair", Cores: 2, Ratio: 0.1},
		{App: "b", Policy: "lean", Cores: 9, Ratio: 0},
		{App: "a", Policy: "even", Cores: 2, Ratio: 0.1},
		{App: "a", Policy: "large", Cores: 3, Ratio: 0},
	}
	bench.Rank(rows)
	for i, want := range [][2]int{{0, 4}, {1, 2}, {1, 1}, {1, 2}, {3, 1}} {
		if r := rows[i]; r.ByCores != want[0] || r.ByWindows != want[1] {
			t.Errorf("%s of %s: places %d and %d, want %v", r.Policy, r.App, r.ByCores, r.ByWindows, want)
		}
	}
}
