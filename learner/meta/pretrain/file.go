package pretrain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn/weights"
)

// Pretrained is what a pretraining has made: a meta-learner, a base-learner to begin with, and the workloads that they know.
type Pretrained struct {
	Meta       meta.Config
	Theta      []float64    // of the meta-learner
	BaseConfig ddpg.Config  // of the base-learner
	Base       weights.File // its policy
	Names      []string     // of the workloads
	Embeddings [][]float64  // theirs
	Provenance map[string]string
}

// Pretrained is the run's result so far. It shares nothing with the run.
func (r *Run) Pretrained() (Pretrained, error) {
	a, err := r.Base(r.c.Seed)
	if err != nil {
		return Pretrained{}, err
	}
	learner, err := r.Learner()
	if err != nil {
		return Pretrained{}, err
	}
	base, err := a.SavePolicy()
	if err != nil {
		return Pretrained{}, err
	}
	p := Pretrained{
		Meta: r.c.Meta, Theta: learner.Theta, BaseConfig: r.c.Base, Base: base,
		Provenance: map[string]string{
			"workloads": strconv.Itoa(len(r.tasks)), "rounds": strconv.Itoa(r.Rounds), "seed": fmt.Sprint(r.c.Seed),
		},
	}
	p.Names, p.Embeddings = r.known(learner)
	return p, nil
}

// Learner is the meta-learner.
func (p Pretrained) Learner() (*meta.Learner, error) { return meta.New(p.Meta, p.Theta) }

// Agent is a base-learner that begins with the policy, with settings of the same shape.
func (p Pretrained) Agent(c ddpg.Config) (*ddpg.Agent, error) {
	a, err := ddpg.New(c)
	if err != nil {
		return nil, err
	}
	return a, a.Restore(p.Base)
}

// Familiar is the workloads that it knows.
func (p Pretrained) Familiar() (*meta.Familiar, error) {
	return meta.NewFamiliar(p.Names, p.Embeddings)
}

// encoding is the version of the file, and of what was read in training: in 1 the observations of a workload were of other scales
// (encode version 1), and a policy of them would decide on numbers that mean something else now.
const (
	kind     = "aware-meta-learner"
	encoding = 2
)

// header is what a file has beside numbers.
type header struct {
	Meta  meta.Config       `json:"meta"`
	Base  ddpg.Config       `json:"base"`
	Names []string          `json:"names"`
	Made  map[string]string `json:"made"`
}

// Encode is its file.
func (p Pretrained) Encode() (weights.File, error) {
	text, err := json.Marshal(header{p.Meta, p.BaseConfig, p.Names, p.Provenance})
	if err != nil {
		return weights.File{}, fmt.Errorf("pretrained meta-learner: %w", err)
	}
	base, err := weights.Encode(p.Base)
	if err != nil {
		return weights.File{}, fmt.Errorf("pretrained meta-learner: its base-learner: %w", err)
	}
	all := slices.Concat(p.Embeddings...)
	return weights.File{
		Meta: map[string]string{"kind": kind, "encoding": strconv.Itoa(encoding), "pretrained": string(text)},
		Tensors: map[string]weights.Tensor{
			"theta":      {Shape: []int{len(p.Theta)}, Data: p.Theta},
			"embeddings": {Shape: []int{len(p.Names), p.Meta.Embedding}, Data: all},
		},
		Blobs: map[string][]byte{"base": base},
	}, nil
}

// Decode reads what Encode wrote, and refuses what is not whole, or of another version.
func Decode(f weights.File) (Pretrained, error) {
	fail := func(err error) (Pretrained, error) {
		return Pretrained{}, fmt.Errorf("pretrained meta-learner: %w", err)
	}
	if f.Meta["kind"] != kind || f.Meta["encoding"] != strconv.Itoa(encoding) {
		return fail(fmt.Errorf("a file of kind %q, encoding %q: it must be %q, encoding %d",
			f.Meta["kind"], f.Meta["encoding"], kind, encoding))
	}
	var h header
	if err := json.Unmarshal([]byte(f.Meta["pretrained"]), &h); err != nil {
		return fail(fmt.Errorf("metadata \"pretrained\": %w", err))
	}
	if err := h.Meta.Check(); err != nil {
		return fail(err)
	}
	if err := h.Base.Check(); err != nil {
		return fail(err)
	}
	p := Pretrained{Meta: h.Meta, BaseConfig: h.Base, Names: h.Names, Provenance: h.Made}
	var err error
	if p.Theta, err = f.Take("theta", h.Meta.Params()); err != nil {
		return fail(err)
	}
	all, err := f.Take("embeddings", len(h.Names), h.Meta.Embedding)
	if err != nil {
		return fail(err)
	}
	for i := range h.Names {
		p.Embeddings = append(p.Embeddings, all[i*h.Meta.Embedding:][:h.Meta.Embedding])
	}
	blob, err := f.Blob("base")
	if err != nil {
		return fail(err)
	}
	if p.Base, err = weights.Decode(blob); err != nil {
		return fail(fmt.Errorf("its base-learner: %w", err))
	}
	if _, err := p.Agent(h.Base); err != nil {
		return fail(fmt.Errorf("its base-learner: %w", err))
	}
	return p, nil
}

// Write writes it to a file, whole or not at all.
func (p Pretrained) Write(path string) error {
	f, err := p.Encode()
	if err != nil {
		return err
	}
	return weights.Write(path, f)
}

// Read reads it from a file. The error names the file.
func Read(path string) (Pretrained, error) {
	f, err := weights.Read(path)
	if err != nil {
		return Pretrained{}, err
	}
	p, err := Decode(f)
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
