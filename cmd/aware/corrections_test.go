package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/policy/learned"
)

// What a training of two episodes has learned is compared with the demand policy alone, and is no policy unless it is better;
// the comparison in held-out worlds takes it either way.
func TestCorrectionsAreKeptOnlyWhereTheyAreBetter(t *testing.T) {
	const name = "correct:hotel-reservation/frontend"
	o := trainOptions{env: name, algorithm: "ppo", steps: 60, worlds: 2, seed: 1, out: t.TempDir()}
	policy, rejected := filepath.Join(o.out, "policy.safetensors"), filepath.Join(o.out, "rejected.safetensors")
	for _, old := range []string{policy, rejected} { // of a training before
		if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out, progress bytes.Buffer
	if err := o.run(t.Context(), &out, &progress); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(o.out, "train.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Result struct {
			Kept       bool
			Validation []struct {
				Name, Verdict string
				Cores         struct{ Mean float64 }
			}
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	r := report.Result
	if len(r.Validation) != 2 || r.Validation[0].Cores.Mean <= 0 || r.Kept != (r.Validation[1].Verdict == "better") {
		t.Fatalf("%+v", r)
	}
	kept, other, says := rejected, policy, "no correction, after 60 steps"
	if r.Kept {
		kept, other, says = policy, rejected, "corrections that are better than none, after 60 steps"
	}
	if f, err := learned.Read(kept); err != nil || f.Provenance["environment"] != name {
		t.Error(f.Provenance, err)
	}
	if _, err := os.Stat(other); err == nil {
		t.Errorf("%s is still there", other)
	}
	if !strings.Contains(out.String(), says) || !strings.Contains(out.String(), "demand policy alone") {
		t.Error(out.String())
	}

	out.Reset()
	b := correctionsOptions{env: name, files: []string{kept}, worlds: 2, out: filepath.Join(o.out, "corrections.json")}
	if err := b.run(t.Context(), &out, &progress); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"demand policy alone", "the level 0.4 lower", "ppo, seed 1", "chose: keep"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if text, err := os.ReadFile(b.out); err != nil || !bytes.Contains(text, []byte(`"standard_error"`)) {
		t.Error(err)
	}
	b.env = "correct:social-network/nginx-web-server"
	if err := b.run(t.Context(), &out, &progress); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("corrections of another application: %v", err)
	}
}
