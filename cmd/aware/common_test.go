package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/train/margins"
)

// From the published applications to a policy file that runs, as small as it goes. The file of several applications keeps theirs.
func TestACommonMarginIsLearnedAndWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of simulated time")
	}
	dir := t.TempDir()
	into := filepath.Join(dir, "all.json")
	others := `{"encoding":1,"applications":{"shop":{"made":"by hand","margins":{"web":1}}}}`
	if err := os.WriteFile(into, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		return execute(t, append([]string{"train", "common-margin"}, args...)...)
	}
	said, err := run("--apps", "2", "--held-out", "2", "--out", dir, "--into", into, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Tried   []margins.Part
		HeldOut []margins.Part `json:"held_out"`
		Policy  bench.Choice
	}
	err = json.Unmarshal([]byte(said), &r)
	if err != nil || len(r.Tried) != len(margins.CommonLevels()) || r.Policy.Check() != nil {
		t.Fatal(err, said)
	}
	margin := r.Policy.Settings["margin"]
	if len(r.HeldOut) == 2 != (margin != 0) {
		t.Errorf("a margin of %v, compared with none in %+v", margin, r.HeldOut)
	}
	file, err := os.Open(filepath.Join(dir, "common-margin.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if c, err := bench.ReadChoice(file.Name(), file); err != nil || c.Settings["margin"] != margin {
		t.Error(err, c)
	}
	all, err := readMargins(into)
	if err != nil || all.Common == nil || all.Common.Margin != margin || all.Applications["shop"].Margins["web"] != 1 ||
		!strings.Contains(all.Common.Made, "--apps 2") {
		t.Errorf("%+v, %v", all, err)
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("margins"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--apps 1":     {"--apps", "1"},
		"--apps 801":   {"--apps", "801"},
		"--held-out 1": {"--held-out", "1"},
		"--windows 0":  {"--windows", "0"},
		"--into":       {"--apps", "2", "--held-out", "0", "--out", dir, "--into", bad},
	} {
		if _, err := run(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
