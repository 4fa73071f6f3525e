// Package learned makes a Policy of what a learner learned: a network's
// snapshot and the encoding it was trained with.
//
// [File] is a policy at rest: parameters, layers, head, encoding and
// provenance, in one safetensors file. [New] puts it to work on one workload.
// Deciding takes a few microseconds and allocates nothing; the caller puts the
// guards around it.
package learned

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Policy is an mdp.Policy. One goroutine uses it at a time.
type Policy struct {
	server  kernel.Server
	scratch kernel.Scratch
	head    kernel.Head
	encoder *encode.Encoder
	needs   mdp.Set
	obs     []float64
	legal   []bool
	action  []float64

	margin float64
	burst  mdp.Ratio     // share of the ceilings that a burst may need without another replica
	step   time.Duration // between two decisions, as in training
	at     time.Time     // of the last decision
	out    []float64     // of it

	passes bool
	shrank mdp.Set // what the last decision was to shrink
	from   mdp.State
}

// File is a policy with what is known of it.
type File struct {
	Form       encode.Form
	Snapshot   kernel.Snapshot
	Step       time.Duration     // between two decisions, as in training
	Provenance map[string]string // algorithm, environment, seed, steps: for people
}

// New makes a policy for one workload.
func New(f File, place encode.Place) (*Policy, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	e, err := encode.New(f.Form, place)
	if err != nil {
		return nil, fmt.Errorf("learned policy: %w", err)
	}
	p := &Policy{
		head: f.Snapshot.Head, encoder: e, needs: f.Form.Knobs, step: f.Step,
		obs: make([]float64, f.Form.Dim()), action: make([]float64, f.Form.ActionDim()),
	}
	if n := f.Form.NumActions(); n > 0 {
		p.legal = make([]bool, n)
	}
	return p, p.server.Publish(f.Snapshot)
}

// Check is nil for a policy whose network, head and encoding fit each other.
func (f File) Check() error {
	if err := f.Form.Check(); err != nil {
		return fmt.Errorf("learned policy: %w", err)
	}
	s := f.Snapshot
	if err := s.Check(); err != nil {
		return fmt.Errorf("learned policy: %w", err)
	}
	out := s.MLP.Out()
	if err := s.Head.Check(out); err != nil {
		return fmt.Errorf("learned policy: %w", err)
	}
	if s.MLP.In() != f.Form.Dim() || s.Head.NumActions(out) != f.Form.NumActions() ||
		f.Form.NumActions() == 0 && out != f.Form.ActionDim() {
		return fmt.Errorf(
			"learned policy: a network of %d inputs and %d outputs with head %s: the encoding has %d numbers and %d choices",
			s.MLP.In(),
			out,
			s.Head.Kind,
			f.Form.Dim(),
			f.Form.NumActions(),
		)
	}
	if f.Step <= 0 {
		return fmt.Errorf("learned policy: step %v: it must be above zero", f.Step)
	}
	return nil
}

// Needs lets it decide only where these signals are known, beside the knobs that it moves.
func (p *Policy) Needs(signals mdp.Set) { p.needs |= signals }

// Decide implements [mdp.Policy]. Without knowing the knobs that it moves, and what else it [Policy.Needs], it
// decides nothing.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	p.at = s.At
	if missing := p.needs.Without(s.Observed); missing != 0 {
		return mdp.Action{}, &mdp.UnknownError{Who: "learned policy", Missing: missing}
	}
	if err := p.encoder.Observe(s, p.obs); err != nil {
		return mdp.Action{}, fmt.Errorf("learned policy: %w", err)
	}
	out, version, ok := p.server.Decide(p.obs, 1, &p.scratch)
	if !ok {
		return mdp.Action{}, fmt.Errorf(
			"learned policy: version %d decides nothing for this state: its output is not finite", version)
	}
	if p.legal == nil {
		p.head.Action(out, nil, p.action)
		return p.encoder.FromBox(p.action)
	}
	p.encoder.Legal(s, p.legal)
	if p.passes {
		p.passOver(s)
	}
	p.head.Action(out, p.legal, p.action)
	p.out = out
	a, err := p.encoder.Choice(s, int(p.action[0]))
	p.shrank, p.from = shrunk(s, a), s
	return a, err
}

// KeepTo lets [Policy.Beside] keep to the other policy's action, unless the value of its own choice is higher by a margin. The
// network's output must be values of choices (DQN, discrete BCQ): discounted sums of rewards.
func (p *Policy) KeepTo(margin float64) error {
	if p.legal == nil || !(margin >= 0) {
		return fmt.Errorf("learned policy: a margin of %v with head %s: it must be at least 0, and the outputs values of choices",
			margin, p.head.Kind)
	}
	p.margin = margin
	return nil
}

// Beside is what it decides in a State in which another policy would take an action: that action, unless the value of its own
// choice is higher than that of the choice nearest to that one by the margin of [Policy.KeepTo]. So it departs from a policy that
// is known to do only where it has learned that there is something to gain (compare Laroche et al. 2019, "Safe policy improvement
// with baseline bootstrapping"). Actions that are no choices are its own.
//
// A decision that comes before its time is one that something has asked for, such as a container that has met its ceiling. Its
// State has the use of now and the load of before, and none like it was in the training: there it keeps to the other policy. So
// it does where it would add a replica that a burst does not need, see [Policy.CarryBursts].
func (p *Policy) Beside(s mdp.State, other mdp.Action) (mdp.Action, error) {
	early := !p.at.IsZero() && s.At.Sub(p.at) < p.step-p.step/20 // a twentieth: steps jitter
	own, err := p.Decide(s)
	if err != nil || p.legal == nil {
		return own, err
	}
	gain := p.out[int(p.action[0])] - p.out[p.encoder.Nearest(s, other)]
	if !early && gain >= p.margin && !(p.carried(s) && replicas(s, own) > replicas(s, other)) {
		return own, nil
	}
	p.shrank = shrunk(s, other)
	return other, nil
}

// CarryBursts lets [Policy.Beside] add no replica of its own within a burst, in which more CPU is used than is reserved, as long
// as the highest second of it needed at most a share of the ceilings. A replica that starts takes CPU from the burst, and is
// ready when that is over.
func (p *Policy) CarryBursts(share mdp.Ratio) { p.burst = share }

// carried reports whether there is a burst, and the ceilings carry it.
func (p *Policy) carried(s mdp.State) bool {
	return s.Knows(mdp.CPUUsage, mdp.CPUReservation, mdp.CPUCeiling, mdp.CPUBurst) && s.Usage.CPU > s.Reservation &&
		float64(s.CPUBurst) <= float64(p.burst)*float64(s.Ceiling)
}

// replicas is how many an action leads to.
func replicas(s mdp.State, a mdp.Action) int64 {
	if n, ok := a.Knob(mdp.Replicas); ok {
		return n
	}
	return s.Knob(mdp.Replicas)
}

// PassOver makes a policy whose actions are choices take another choice, for one decision, after a shrink that was in vain.
// Guards hold a shrink back for a minute, or while memory was in use or bursts need a replica, and a State does not show that: a
// policy that chooses one step of one knob would choose the same one again and again, and move nothing else (ADR 37). It is for
// decisions that have taken force by the next one, unless something holds them back.
func (p *Policy) PassOver() { p.passes = true }

// passOver forbids what was shrunk in vain.
func (p *Policy) passOver(s mdp.State) {
	vain := mdp.Set(0)
	for k := range p.shrank.Signals() {
		if s.Knob(k) >= p.from.Knob(k) {
			vain |= mdp.SetOf(k)
		}
	}
	if vain == 0 {
		return
	}
	for i, ok := range p.legal {
		if a, err := p.encoder.Choice(s, i); ok && err == nil && shrunk(s, a)&vain != 0 {
			p.legal[i] = false
		}
	}
}

// shrunk is the knobs that an action makes smaller than they are.
func shrunk(s mdp.State, a mdp.Action) (knobs mdp.Set) {
	for k := range (a.Sets & s.Observed).Signals() {
		if v, _ := a.Knob(k); v < s.Knob(k) {
			knobs |= mdp.SetOf(k)
		}
	}
	return knobs
}

const (
	kind     = "aware-policy"
	encoding = 1
)

// header is what a file has beside numbers.
type header struct {
	Form      encode.Form       `json:"form"`
	Layers    []layer           `json:"layers"`
	Head      kernel.Head       `json:"head"`
	ClipRange float64           `json:"clip_range,omitempty"`
	Version   uint64            `json:"version"`
	Step      time.Duration     `json:"step_ns"`
	Made      map[string]string `json:"made,omitempty"`
}

type layer struct {
	In  int    `json:"in"`
	Out int    `json:"out"`
	Act string `json:"act"`
}

// Encode writes the policy as a safetensors file.
func (f File) Encode() (weights.File, error) {
	if err := f.Check(); err != nil {
		return weights.File{}, err
	}
	s := f.Snapshot
	h := header{
		Form:      f.Form,
		Head:      s.Head,
		ClipRange: s.ClipRange,
		Version:   s.Version,
		Step:      f.Step,
		Made:      f.Provenance,
	}
	for _, d := range s.MLP {
		h.Layers = append(h.Layers, layer{d.In, d.Out, d.Act.String()})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return weights.File{}, fmt.Errorf("learned policy: %w", err)
	}
	out := weights.File{
		Meta:    map[string]string{"kind": kind, "encoding": strconv.Itoa(encoding), "policy": string(text)},
		Tensors: map[string]weights.Tensor{},
	}
	for name, data := range map[string][]float64{"theta": s.Theta, "mean": s.Mean, "scale": s.Scale} {
		if data != nil {
			out.Tensors[name] = weights.Tensor{Shape: []int{len(data)}, Data: data}
		}
	}
	return out, nil
}

// Decode reads what Encode wrote, and refuses what is not a whole policy of
// this version.
func Decode(w weights.File) (File, error) {
	if w.Meta["kind"] != kind || w.Meta["encoding"] != strconv.Itoa(encoding) {
		return File{}, fmt.Errorf("a file of kind %q, encoding %q: it must be %q, encoding %d",
			w.Meta["kind"], w.Meta["encoding"], kind, encoding)
	}
	var h header
	if err := json.Unmarshal([]byte(w.Meta["policy"]), &h); err != nil {
		return File{}, fmt.Errorf("learned policy: metadata \"policy\": %w", err)
	}
	f := File{Form: h.Form, Step: h.Step, Provenance: h.Made}
	f.Snapshot = kernel.Snapshot{
		Version: h.Version, Head: h.Head, ClipRange: h.ClipRange,
		Theta: w.Tensors["theta"].Data, Mean: w.Tensors["mean"].Data, Scale: w.Tensors["scale"].Data,
	}
	for _, l := range h.Layers {
		act, err := kernel.ActivationNamed(l.Act)
		if err != nil {
			return File{}, fmt.Errorf("learned policy: %w", err)
		}
		if l.In < 1 || l.Out < 1 || l.In > 1<<16 || l.Out > 1<<16 {
			return File{}, fmt.Errorf("learned policy: a layer of %d inputs and %d outputs: each must be from 1 to %d",
				l.In, l.Out, 1<<16)
		}
		f.Snapshot.MLP = append(f.Snapshot.MLP, kernel.Dense{In: l.In, Out: l.Out, Act: act})
	}
	return f, f.Check()
}

// Write writes the policy to a file, whole or not at all.
func (f File) Write(path string) error {
	w, err := f.Encode()
	if err != nil {
		return err
	}
	return weights.Write(path, w)
}

// Read reads a policy from a file. The error names the file.
func Read(path string) (File, error) {
	w, err := weights.Read(path)
	if err != nil {
		return File{}, err
	}
	f, err := Decode(w)
	if err != nil {
		return File{}, fmt.Errorf("policy %s: %w", path, err)
	}
	return f, nil
}
