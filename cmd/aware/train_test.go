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

	"awarescale.dev/aware/learner/algo/agent"
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

// execute runs the whole command, and returns what it prints.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout bytes.Buffer
	root := command()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(new(bytes.Buffer))
	err := root.ExecuteContext(t.Context())
	return stdout.String(), err
}

var smallTraining = trainOptions{
	env:       "IdentityDiscrete-v0",
	algorithm: "dqn",
	steps:     3000,
	every:     1000,
	seed:      3,
}

func TestATrainingReportsAndSavesItsActor(t *testing.T) {
	o := smallTraining
	o.out = t.TempDir()
	result, _, err := trainOnce(t, o)
	if err != nil || result["env"] != "IdentityDiscrete-v0" || result["algo"] != "dqn" ||
		result["seed"] != 3.0 || result["steps"] != 3000.0 || result["mean100"].(float64) < 95 {
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

// A training that is interrupted and resumed has the result of the uninterrupted
// one.
func TestAResumedTrainingEqualsTheUninterruptedOne(t *testing.T) {
	o := smallTraining
	o.steps = 12_000
	want, _, err := trainOnce(t, o)
	if err != nil {
		t.Fatal(err)
	}
	o.out = t.TempDir()
	checkpoint := filepath.Join(o.out, "checkpoint.safetensors")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // as if a user pressed Ctrl-C after the first checkpoint
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

func TestADamagedCheckpointIsRefused(t *testing.T) {
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
		"SHA-256":         func() []byte { b := bytes.Clone(raw); b[len(b)-100] ^= 1; return b },
		"truncated or wa": func() []byte { return raw[:len(raw)/3] },
	} {
		if err := os.WriteFile(path, change(), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := trainOnce(t, o); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), path) {
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
	o.seed = 3
	o.env = "CartPole-v1"
	o.algorithm = "ppo"
	if _, _, err := trainOnce(t, o); err == nil {
		t.Error("a checkpoint of another algorithm was taken")
	}
}

// A checkpoint that cannot be written, as on a full disk, does not end the
// training.
func TestATrainingContinuesWithoutItsCheckpoint(t *testing.T) {
	o := smallTraining
	o.out = t.TempDir()
	if err := os.Mkdir(filepath.Join(o.out, "checkpoint.safetensors"), 0o755); err != nil { // no file can take its place
		t.Fatal(err)
	}
	result, progress, err := trainOnce(t, o)
	if err != nil || result["steps"] != 3000.0 {
		t.Fatal(result, err)
	}
	if strings.Count(progress, "training continues") != 3 {
		t.Error(progress)
	}
}

func TestInvalidTrainingsAreRefused(t *testing.T) {
	for says, change := range map[string]func(o *trainOptions){
		`"Nowhere-v0"`:      func(o *trainOptions) { o.env = "Nowhere-v0" },
		`algorithm "magic"`: func(o *trainOptions) { o.algorithm = "magic" },
		"continuous action": func(o *trainOptions) { o.algorithm = "ddpg" },
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

// A run that is resumed after its learning rate was annealed to zero reports that.
// The report has the statistics of learning.
func TestAResumedRunReportsALearningRateOfZero(t *testing.T) {
	o := smallTraining
	o.algorithm = "ppo"
	o.steps = 1024
	o.every = 1
	o.out = t.TempDir()
	_, progress, err := trainOnce(t, o)
	if err != nil || strings.Contains(progress, "annealed") {
		t.Fatal(progress, err)
	}
	report, err := os.ReadFile(filepath.Join(o.out, "train.json"))
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Stats map[string]any `json:"stats"`
	}
	if err := json.Unmarshal(report, &read); err != nil || read.Stats["learning_rate"] != 0.0 ||
		read.Stats["skipped_rows"] != 0.0 {
		t.Errorf("stats %v, %v", read.Stats, err)
	}
	o.resume = filepath.Join(o.out, "checkpoint.safetensors")
	_, progress, err = trainOnce(t, o)
	if err != nil || !strings.Contains(progress, "the learning rate is 0 at step 1024: it was annealed") {
		t.Errorf("progress %q, %v", progress, err)
	}
	stats := agent.Stats{SkippedUpdates: 2, SkippedRows: 3, LastError: "odd"}
	if got := skipped(stats, false); got != "; 2 updates skipped (odd); 3 rows skipped; learning rate 0" {
		t.Errorf("the line of progress says %q", got)
	}
	if got := skipped(agent.Stats{}, true) + skipped(agent.Stats{LearningRate: 1}, false); got != "" {
		t.Errorf("the line of progress says %q where there is nothing to say", got)
	}
}
