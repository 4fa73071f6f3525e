package draw

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench/aware"
)

// The report of a run has all arms, the claims and the four plots, also where an arm is not there and nothing is known of a step.
func TestAReportOfDrives(t *testing.T) {
	episodes := func(reward float64, violations int) (all []aware.Episode) {
		for range 25 {
			all = append(all, aware.Episode{Figures: aware.Figures{
				Steps: 100, Known: 100, Reward: 100 * reward, Violations: violations, CPU: 50, Memory: 50,
			}})
		}
		return append(all, aware.Episode{Figures: aware.Figures{Steps: 100}})
	}
	all := []aware.Drive{
		{Workload: "a", Arm: aware.Rule, Episodes: episodes(1.5, 1)},
		{Workload: "a", Arm: aware.AWARE, Episodes: episodes(1.2, 2)},
		{Workload: "a", Arm: aware.NoBootstrap, Episodes: episodes(0.3, 40)},
	}
	r := Drives{File: "f.json", Title: "Drives", Arms: aware.Fig10Arms, Claims: aware.Fig10{}.Claims}
	var table bytes.Buffer
	if err := r.Print(&table, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no bootstrap", "20 ", "at least 16.9", "0.2; of all 0.2", "true"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	dir := t.TempDir()
	if err := r.Write(dir, all); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || bytes.Count(html, []byte("data:image/png;base64,")) != 4 {
		t.Errorf("%d bytes of a page (%v)", len(html), err)
	}
}
