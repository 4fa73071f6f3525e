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
	"awarescale.dev/aware/learner/train/margins"
)

var fewMargins = marginsOptions{
	config: marginsConfig{
		App: "hotel-reservation", Policy: "demand-1s", Length: time.Minute,
		Config: margins.Config{Worlds: 1, Late: 0.05, Lower: 0.7, Step: 0.6, Most: 0.8, Seed: 5},
	},
	rounds: 2,
	json:   true,
}

func learnMargins(t *testing.T, o marginsOptions) (result, progress string, err error) {
	t.Helper()
	var out, told bytes.Buffer
	err = o.run(t.Context(), &out, &told)
	return out.String(), told.String(), err
}

// What was learned is a policy file that runs, and an interrupted training gives the result of the whole one.
func TestMarginsAreLearnedInPieces(t *testing.T) {
	o := fewMargins
	o.out = t.TempDir()
	whole, progress, err := learnMargins(t, o)
	if err != nil || !strings.Contains(progress, "2/2") {
		t.Fatal(err, progress)
	}
	var r struct {
		Policy bench.Choice
		Rounds []margins.Round
	}
	if err := json.Unmarshal([]byte(whole), &r); err != nil || len(r.Rounds) != 2 || r.Policy.Check() != nil {
		t.Fatal(err, whole)
	}
	file, err := os.Open(filepath.Join(o.out, "hotel-reservation.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if c, err := bench.ReadChoice(file.Name(), file); err != nil || len(c.Settings) < 10 {
		t.Error(err, c)
	}

	// The file of several applications keeps those of the others.
	o.into = filepath.Join(o.out, "all.json")
	others := `{"encoding":1,"applications":{"shop":{"made":"by hand","margins":{"web":1}}}}`
	if err := os.WriteFile(o.into, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	o.resume = filepath.Join(o.out, "hotel-reservation.state.json") // nothing is left to learn
	if _, _, err := learnMargins(t, o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.into)
	if err != nil {
		t.Fatal(err)
	}
	all, err := bench.ReadServiceMargins(o.into, text)
	if mine := all.Applications["hotel-reservation"]; err != nil || all.Applications["shop"].Margins["web"] != 1 ||
		!strings.Contains(mine.Made, "--rounds 2") || len(mine.Margins) != len(r.Policy.Settings) {
		t.Errorf("%v: %s", err, text)
	}
	o.into, o.resume = "", ""

	first := o
	first.out, first.rounds = t.TempDir(), 1
	if _, _, err := learnMargins(t, first); err != nil {
		t.Fatal(err)
	}
	rest := first
	rest.rounds, rest.resume = 2, filepath.Join(first.out, "hotel-reservation.state.json")
	if pieces, _, err := learnMargins(t, rest); err != nil || pieces != whole {
		t.Errorf("%v\n%s\n%s", err, pieces, whole)
	}

	other := rest
	other.config.Config.Seed = 6
	if _, _, err := learnMargins(t, other); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a state of another seed: %v", err)
	}
}

func TestWhatMarginsCannotBeLearnedIsNamed(t *testing.T) {
	for want, change := range map[string]func(*marginsOptions){
		`--app "shop"`: func(o *marginsOptions) { o.config.App = "shop" },
		"--policy":     func(o *marginsOptions) { o.config.Policy = "hope" },
		"--rounds 0":   func(o *marginsOptions) { o.rounds = 0 },
		"--length 1s":  func(o *marginsOptions) { o.config.Length = time.Second },
		"worlds 0":     func(o *marginsOptions) { o.config.Config.Worlds = 0 },
		"--resume":     func(o *marginsOptions) { o.resume = "/nowhere" },
	} {
		o := fewMargins
		o.out = t.TempDir()
		change(&o)
		if _, _, err := learnMargins(t, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
