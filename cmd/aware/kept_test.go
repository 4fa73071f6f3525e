package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
)

// A run that is killed while it writes a row loses that row and no other.
func TestKeptRowsSurviveACut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	first, err := openKept(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	first.keep(bench.Row{App: "shop", Trace: "noisy", Policy: "static", Fidelity: "fluid", Cores: 3})
	first.keepFloor(bench.Floor{App: "shop", Trace: "bursty", Searched: 5}, 60)
	first.keep(bench.Row{App: "shop", Trace: "noisy", Policy: "captain", Fidelity: "fluid", Cores: 3})
	if err := first.Close(); err != nil || first.err != nil {
		t.Fatal(err, first.err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-9], 0o644); err != nil {
		t.Fatal(err)
	}
	second, err := openKept(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := second.row("shop", "noisy", "static", "fluid"); !ok || r.Cores != 3 {
		t.Errorf("static is %+v, %v", r, ok)
	}
	if f := second.floors[floorKey{"shop", "bursty", 60}]; f.Searched != 5 || len(second.rows) != 1 {
		t.Errorf("the floor is %+v, and there are %d rows", f, len(second.rows))
	}
	if _, ok := second.floors[floorKey{"shop", "bursty", 80}]; ok {
		t.Error("a floor of 60 runs counts as one of 80")
	}
	if _, ok := second.row("shop", "noisy", "captain", "fluid"); ok {
		t.Error("the row that was cut short is there")
	}
	second.keep(bench.Row{App: "shop", Trace: "noisy", Policy: "captain", Fidelity: "fluid", Cores: 2})
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := openKept(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if r, ok := third.row("shop", "noisy", "captain", "fluid"); !ok || r.Cores != 2 {
		t.Errorf("captain is %+v, %v", r, ok)
	}
}

func TestRowsOfOtherSettingsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	k, err := openKept(path, "3 seeds")
	if err != nil {
		t.Fatal(err)
	}
	k.Close()
	if _, err := openKept(path, "5 seeds"); err == nil || !strings.Contains(err.Error(), "name another file") {
		t.Errorf("err = %v", err)
	}
}
