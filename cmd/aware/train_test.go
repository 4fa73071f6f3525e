package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/nn/weights"
)

func trainOnce(t *testing.T, o trainOptions) (map[string]any, string, error) {
	t.Helper()
	var out, progress bytes.Buffer
	o.json = true
	err := o.run(t.Context(), &out, &progress)
	result := map[string]any{}
	if err == nil {
		if err := json.Unmarshal(out.Bytes(), &result); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
	}
	delete(result, "wall_s")
	return result, progress.String(), err
}

var smallTraining = trainOptions{env: "IdentityDiscrete-v0", algorithm: "dqn", steps: 3000, every: 1000, seed: 3, gemm: "gonum"}

func TestATrainingReportsAndKeepsItsActor(t *testing.T) {
	o := smallTraining
	o.out = t.TempDir()
	result, _, err := trainOnce(t, o)
	if err != nil || result["env"] != "IdentityDiscrete-v0" || result["algo"] != "dqn" || result["seed"] != 3.0 || result["steps"] != 3000.0 || result["mean100"].(float64) < 95 {
		t.Fatal(result, err)
	}
	f, err := weights.Read(filepath.Join(o.out, "actor.safetensors"))
	if err != nil || f.Meta["algorithm"] != "dqn" || len(f.Tensors["theta"].Data) == 0 {
		t.Error(f.Meta, err)
	}
	html, err := os.ReadFile(filepath.Join(o.out, "index.html"))
	if err != nil || !bytes.Contains(html, []byte("data:image/png")) {
		t.Error(err)
	}
}

// A training that is interrupted and resumed says what the uninterrupted one says.
func TestAResumedTrainingIsTheUninterruptedOne(t *testing.T) {
	o := smallTraining
	o.steps = 12_000
	want, _, err := trainOnce(t, o)
	if err != nil {
		t.Fatal(err)
	}
	o.out = t.TempDir()
	checkpoint := filepath.Join(o.out, "checkpoint.safetensors")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // somebody presses Ctrl-C some time after the first checkpoint
		for {
			if _, err := os.Stat(checkpoint); err == nil {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	var out, progress bytes.Buffer
	err = o.run(ctx, &out, &progress)
	if err == nil || !strings.Contains(err.Error(), "interrupted at step") {
		t.Fatalf("the training ended before it was interrupted: %v", err)
	}
	if !strings.Contains(progress.String(), "--resume "+checkpoint) {
		t.Error(progress.String())
	}
	o.resume = checkpoint
	got, _, err := trainOnce(t, o)
	if err != nil {
		t.Fatal(err)
	}
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%s: %v after the interrupt, %v without", key, got[key], v)
		}
	}
}

func TestATamperedCheckpointIsRefused(t *testing.T) {
	o := smallTraining
	o.out, o.steps = t.TempDir(), 1000
	if _, _, err := trainOnce(t, o); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.out, "checkpoint.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o.resume, o.out = path, ""
	for says, change := range map[string]func() []byte{
		"SHA-256":        func() []byte { b := bytes.Clone(raw); b[len(b)-100] ^= 1; return b },
		"it is cut shor": func() []byte { return raw[:len(raw)/3] },
	} {
		if err := os.WriteFile(path, change(), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := trainOnce(t, o); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	o.seed = 4
	if _, _, err := trainOnce(t, o); err == nil || !strings.Contains(err.Error(), "resuming a training of") {
		t.Error(err)
	}
	o.seed, o.env, o.algorithm = 3, "CartPole-v1", "ppo"
	if _, _, err := trainOnce(t, o); err == nil {
		t.Error("a checkpoint of another algorithm was taken")
	}
}

// A checkpoint that cannot be written, as on a full disk, does not end the training.
func TestATrainingGoesOnWithoutItsCheckpoint(t *testing.T) {
	o := smallTraining
	o.out = t.TempDir()
	if err := os.Mkdir(filepath.Join(o.out, "checkpoint.safetensors"), 0o755); err != nil { // no file can take its place
		t.Fatal(err)
	}
	result, progress, err := trainOnce(t, o)
	if err != nil || result["steps"] != 3000.0 {
		t.Fatal(result, err)
	}
	if strings.Count(progress, "training goes on") != 3 {
		t.Error(progress)
	}
}

func TestTrainingsThatCannotBe(t *testing.T) {
	for says, change := range map[string]func(o *trainOptions){
		`"Nowhere-v0"`:      func(o *trainOptions) { o.env = "Nowhere-v0" },
		`algorithm "magic"`: func(o *trainOptions) { o.algorithm = "magic" },
		"continuous action": func(o *trainOptions) { o.algorithm = "ddpg" },
		`"mmx"`:             func(o *trainOptions) { o.gemm = "mmx" },
		"--steps -1":        func(o *trainOptions) { o.steps = -1 },
		"no such file":      func(o *trainOptions) { o.resume = "/nowhere/x" },
	} {
		o := smallTraining
		change(&o)
		if _, _, err := trainOnce(t, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
