package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
)

// anchors runs aware bench anchors.
func anchors(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	root := command()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"bench", "anchors", "--out", ""}, args...))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestAnchorsNamesAWrongFlag(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--columns", "spikes"}, `--columns "spikes": known are standard, spiky, all`},
		{[]string{"--floor-runs", "0"}, "--floor-runs 0: it must be in [1, 10000]"},
		{[]string{"--seeds", "0"}, "--seeds 0: it must be in [1, 1000]"},
		{[]string{"--app", "shop"}, `--app "shop": known are train-ticket`},
	} {
		if _, _, err := anchors(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestColumnsSelectsTheCells(t *testing.T) {
	for columns, want := range map[string]int{"standard": 4, "spiky": 4, "all": 8} {
		c := comparison{columns: columns, apps: []string{"social-network"}}
		settings, err := openTuned("")
		if err != nil {
			t.Fatal(err)
		}
		cells, err := c.cells(t.Context(), settings)
		if err != nil || len(cells) != want {
			t.Errorf("--columns %s: %d cells, want %d, %v", columns, len(cells), want, err)
		}
	}
}

// The floors of the twelve cells are built in, and those of no other cells.
func TestTheTwelveCellsHaveFloors(t *testing.T) {
	settings, err := openTuned("")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		comparison comparison
		floors     int
	}{
		{comparison{columns: "standard"}, 12},
		{comparison{columns: "all", apps: []string{"social-network"}}, 4},
		{comparison{columns: "spiky"}, 0},
		{comparison{columns: "standard", anomalies: true}, 0},
		{comparison{columns: "standard", metrics: time.Second}, 0},
	} {
		cells, err := c.comparison.cells(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		if floors, err := bench.ShippedFloors(cells); err != nil || len(floors) != c.floors {
			t.Errorf("%+v: %d floors, want %d, %v", c.comparison, len(floors), c.floors, err)
		}
	}
}

// Both policies are tuned for the cells already.
func TestAnchorsPrintsAndKeepsTheFloor(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates several hours")
	}
	policy := filepath.Join(t.TempDir(), "safe.json")
	if err := os.WriteFile(policy, []byte(`{"encoding":1,"policy":"captain","settings":{"target":0.02}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--app", "hotel-reservation", "--policies", "k8s-cpu-fast", "--policy", policy, "--seeds", "1",
		"--floor", "--floor-runs", "2", "--json", "--resume", filepath.Join(t.TempDir(), "kept")}
	text, _, err := anchors(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Cells  []map[string]any `json:"cells"`
		Floors []map[string]any `json:"floors"`
	}
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		t.Fatal(err)
	}
	if len(result.Cells) != 8 || len(result.Floors) != 4 || result.Floors[0]["used_cores"] == nil {
		t.Errorf("%d rows, %d floors, the first %v", len(result.Cells), len(result.Floors), result.Floors)
	}
	again, progress, err := anchors(t, args...)
	if err != nil || again != text {
		t.Errorf("the same line of --resume gave %v and %.200q, not %.200q", err, again, text)
	}
	if strings.Contains(progress, ": run ") {
		t.Errorf("a floor that was kept was searched again:\n%s", progress)
	}
}
