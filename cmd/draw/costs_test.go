package draw

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench/aware"
)

// retraining is one with evaluations every five episodes.
func retraining(rewards ...float64) aware.Retraining {
	r := aware.Retraining{What: aware.Another, Course: aware.Course{Converged: -1}}
	for i, v := range rewards {
		r.Course.Evaluations = append(r.Course.Evaluations, aware.Point{Episode: 5 * i, Reward: v})
	}
	return r
}

// A report says what cannot be said, and draws what can.
func TestAReportOfCosts(t *testing.T) {
	early := func(arm aware.Arm, violations int) aware.Drive {
		d := aware.Drive{Arm: arm}
		for range 4 {
			d.Episodes = append(d.Episodes, aware.Episode{Figures: aware.Figures{
				Steps: 100, Known: 100, Reward: 100, CPU: 50, Memory: 25, Violations: violations,
			}})
		}
		return d
	}
	fig := aware.Fig3{Early: 4}
	all := []aware.Cost{{
		Workload: "a", Retrainings: []aware.Retraining{retraining(1, 2, 2), retraining(-1, -1)},
		Early: []aware.Drive{early(aware.NoBootstrap, 3), early(aware.Rule, 0)},
	}}
	all[0].Retrainings[1].What = "load"
	dir := t.TempDir()
	if err := Costs(dir, fig, all); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := PrintCosts(&table, fig, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"another application", "50 %", "cannot be said", "4 to 4", "load"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	html, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil || bytes.Count(html, []byte("data:image/png;base64,")) != 2 {
		t.Errorf("%d bytes of a page (%v)", len(html), err)
	}
}

func TestAReportOfEmbeddings(t *testing.T) {
	all := []aware.Embedded{{
		Workloads: []aware.Place{{Nearest: "a"}, {Nearest: "a", Odd: true, Outside: true}},
		Pairs: []aware.Transfer{
			{Similarity: 0.9, Retraining: retraining(2, 2)}, {Similarity: 0.1, Retraining: retraining(1, 2)},
			{Similarity: 0.5, Retraining: retraining(-1, -1)},
		},
	}}
	for name, one := range map[string]struct {
		all      []aware.Embedded
		pictures int
		want     []string
	}{
		"two pairs": {all, 2, []string{"pairs of workloads", "2", "-1", "100 %"}},
		"nothing":   {nil, 0, []string{"cannot be said"}},
	} {
		dir := t.TempDir()
		if err := Embeddings(dir, aware.Embedding{}, one.all); err != nil {
			t.Fatal(name, err)
		}
		html, err := os.ReadFile(filepath.Join(dir, "index.html"))
		if err != nil || bytes.Count(html, []byte("data:image/png;base64,")) != one.pictures {
			t.Errorf("%s: %d bytes of a page (%v)", name, len(html), err)
		}
		for _, want := range one.want {
			if !strings.Contains(string(html), want) {
				t.Errorf("%s: %q is not in the page", name, want)
			}
		}
	}
}
