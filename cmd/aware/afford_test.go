package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/bench/aware"
	"awarescale.dev/aware/learner/train/margins"
)

// From a meta-learner to a policy file that runs, as small as it goes.
func TestMarginsArePredictedAndWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of simulated time")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "meta.safetensors")
	run := func(args ...string) (string, error) {
		return execute(t, append([]string{"train"}, args...)...)
	}
	predict := func(args ...string) (string, error) {
		return run(append([]string{"predicted-margins", "--meta", file, "--out", dir, "--apps", "4", "--held-out", "2",
			"--of", "hotel-reservation"}, args...)...)
	}
	if _, err := predict(); err == nil || !strings.Contains(err.Error(), "aware train meta makes it") {
		t.Errorf("without a meta-learner: %v", err)
	}
	if _, err := run("meta", "--apps", "4", "--rounds", "1", "--out", file); err != nil {
		t.Fatal(err)
	}
	said, err := predict("--json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Got      aware.Afforded
		Policies map[string]bench.Choice
		Meta     map[string]string
	}
	if err := json.Unmarshal([]byte(said), &r); err != nil {
		t.Fatal(err, said)
	}
	if len(r.Got.Held) != 3 || len(r.Got.Tried) != 1+len(margins.Neighbours) || r.Meta["rounds"] != "1" || len(r.Policies) != 1 {
		t.Error(said)
	}
	text, err := os.ReadFile(filepath.Join(dir, "predicted-hotel-reservation.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := bench.ReadChoice("predicted", bytes.NewReader(text))
	if err != nil || c.Check() != nil || c.Policy != "demand" || c.Settings["windows"] != 0.035 {
		t.Errorf("%+v, %v", c, err)
	}
	if r.Got.Neighbours == 0 || c.Settings["margin.frontend"] >= 0 || len(c.Settings) != 1+19 {
		t.Errorf("of %d neighbours the services have %v: each can do with less here", r.Got.Neighbours, c.Settings)
	}
	said, err = predict()
	if err != nil || strings.Count(said, " miss their SLO\n") != 8 || !strings.Contains(said, "to know each hour before") {
		t.Errorf("%s (%v)", said, err)
	}
	for want, args := range map[string][]string{
		"apps 1": {"--apps", "1"}, "held-out 201": {"--held-out", "201"}, "--windows 0": {"--windows", "0"},
		"may have seen": {"--split", "2"}, `--of "shop"`: {"--of", "shop"},
	} {
		if _, err := predict(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
