package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/train/lesson"
)

// From nothing to the table of fig. 8, as small as it goes: a meta-learner is pretrained, and workloads are adapted to. What
// is kept of a repetition is not run again, and is not mixed with that of another run.
func TestPretrainAndAdapt(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute of training")
	}
	dir := t.TempDir()
	file, out := filepath.Join(dir, "new", "meta.safetensors"), filepath.Join(dir, "fig8")
	run := func(args ...string) (string, error) { return execute(t, args...) }
	said, err := run("train", "meta", "--apps", "4", "--rounds", "1", "--out", file)
	if err != nil || !strings.Contains(said, "4 workloads") {
		t.Fatalf("%s (%v)", said, err)
	}
	fig8 := []string{
		"bench", "fig8", "--meta", file, "--out", out, "--json",
		"--repetitions", "1", "--apps", "1", "--episodes", "2", "--every", "1", "--train", "5",
	}
	first, err := run(fig8...)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Arms []aware.Summary }
	if err := json.Unmarshal([]byte(first), &got); err != nil || len(got.Arms) != 4 {
		t.Fatalf("%s (%v)", first, err)
	}
	page, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil || !bytes.Contains(page, []byte("reward before training")) {
		t.Errorf("the report: %v", err)
	}
	if again, err := run(fig8...); err != nil || again != first {
		t.Errorf("what was kept gives %s (%v)", again, err)
	}
	if _, err := run(append(fig8, "--episodes", "3")...); err == nil || !strings.Contains(err.Error(), "of another run") {
		t.Errorf("more episodes: %v", err)
	}
	if _, err := run(append(fig8, "--demand")...); err == nil || !strings.Contains(err.Error(), "the same form") {
		t.Errorf("the second form with a meta-learner of the first: %v", err)
	}
	if _, err := run(append(fig8, "--seed", "2")...); err == nil || !strings.Contains(err.Error(), "may have seen") {
		t.Errorf("another division: %v", err)
	}
	// What central's lessons begin with is another file.
	start := filepath.Join(dir, "start.safetensors")
	if said, err := run("train", "meta", "--central", "--apps", "4", "--rounds", "1", "--out", start); err != nil {
		t.Fatalf("%s (%v)", said, err)
	}
	raw, err := os.ReadFile(start)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := lesson.DecodeStart(raw); err != nil || s.Form.Same(central.Form()) != nil ||
		!strings.Contains(s.Provenance["made"], "--apps 4 --rounds 1 --seed 1") {
		t.Errorf("%+v, %v", s.Provenance, err)
	}
	// It is compared with the fallback, and the file says with which result.
	if said, err := run("train", "prove", start, "--workloads", "2"); err != nil || !strings.Contains(said, "proven: false") {
		t.Errorf("%s (%v)", said, err)
	}
	if raw, err = os.ReadFile(start); err != nil {
		t.Fatal(err)
	}
	if s, err := lesson.DecodeStart(raw); err != nil || s.Proven || s.Within.CPU.Min < 400 || s.Within.CPU.Max > 16000 ||
		!strings.HasPrefix(s.Provenance["proof"], "2 workloads ") {
		t.Errorf("%+v, %v", s.Provenance, err)
	}
	for want, args := range map[string][]string{
		"workloads 1": {"train", "prove", start, "--workloads", "1"},
		"--split 2":   {"train", "prove", start, "--split", "2"},
		`kind "`:      {"train", "prove", file},
		"neither":     {"train", "meta", "--central", "--demand"},
		"aware-start": {"bench", "fig8", "--meta", start},
		"--apps 801":  {"train", "meta", "--apps", "801"},
		"--out":       {"train", "meta", "--apps", "4", "--rounds", "1000", "--out", filepath.Join(file, "below-a-file")},
		"apps 0":      {"bench", "fig8", "--meta", file, "--apps", "0"},
		`arm "hope"`:  {"bench", "fig8", "--meta", file, "--arms", "AWARE,hope"},
		"no arms":     {"bench", "fig8", "--meta", file, "--arms", ""},
		"seen":        {"bench", "embedding", "--meta", file, "--seed", "2"},
		"a pair":      {"bench", "embedding", "--meta", file, "--apps", "1"},
		"early 3":     {"bench", "fig3", "--early", "3"},
		"episodes 0":  {"bench", "fig1", "--episodes", "0"},
		"--online":    {"bench", "fig9", "--online", "NaN"},
		"[1, ": {
			"bench", "fig8", "--meta", file, "--trajectories", "1000", "--out", t.TempDir(), "--apps", "1", "--episodes", "1",
		},
		"aware train meta makes it": {"bench", "fig9", "--meta", filepath.Join(dir, "nothing")},
		"nowhere":                   {"bench", "fig8", "--meta", filepath.Join(dir, "nowhere")},
	} {
		if _, err := run(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A whole life in one command, as short as it goes: all arms, all phases, and a page.
func TestALifeInOneCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("a quarter of a minute")
	}
	out := t.TempDir()
	var stdout bytes.Buffer
	root := command()
	root.SetArgs([]string{"bench", "fig1", "--repetitions", "1", "--apps", "1", "--episodes", "1", "--json", "--out", out})
	root.SetOut(&stdout)
	root.SetErr(new(bytes.Buffer))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Arms   []aware.ArmSummary
		Claims []aware.Claim
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || len(got.Arms) != 3 || len(got.Claims) != 3 {
		t.Errorf("%s (%v)", stdout.String(), err)
	}
	for _, file := range []string{"index.html", "fig1.json", "repetition-000.json"} {
		if _, err := os.Stat(filepath.Join(out, file)); err != nil {
			t.Error(err)
		}
	}
}
