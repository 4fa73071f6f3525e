package learned_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/learned"
)

var place = encode.Place{
	Bounds: mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 8},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 1024 * mdp.MiB},
	},
	SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond},
}

// policy has a network with random parameters.
func policy(f encode.Form, h kernel.Head, outputs int) learned.File {
	mlp := kernel.NewMLP(kernel.ReLU, kernel.Linear, f.Dim(), 16, outputs)
	r := rand.New(rand.NewPCG(1, 2))
	theta := make([]float64, mlp.Params())
	for i := range theta {
		theta[i] = r.NormFloat64() / 3
	}
	return learned.File{
		Form: f, Step: 10 * time.Second, Provenance: map[string]string{"algorithm": "none"},
		Snapshot: kernel.Snapshot{Version: 3, MLP: mlp, Theta: theta, Head: h},
	}
}

// all are a policy of each head.
func all() map[string]learned.File {
	choices, box := encode.Discrete(mdp.LimitKnobs), encode.Box(mdp.LimitKnobs)
	n := choices.NumActions()
	low, high := []float64{-1, -1, -1}, []float64{1, 1, 1}
	return map[string]learned.File{
		"argmax":            policy(choices, kernel.Head{Kind: kernel.Argmax}, n),
		"batch-constrained": policy(choices, kernel.Head{Kind: kernel.Constrained, Threshold: 0.3}, 2*n),
		"interval":          policy(box, kernel.Head{Kind: kernel.Interval, Low: low, High: high}, 3),
		"clamp":             policy(box, kernel.Head{Kind: kernel.Clamp, Low: low, High: high}, 3),
	}
}

func TestEachHeadMakesAPolicy(t *testing.T) {
	for name, f := range all() {
		t.Run(name, func(t *testing.T) {
			mdptest.Policy(t, func() mdp.Policy {
				p, err := learned.New(f, place)
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}

// A choice that is not legal is never taken, however much the network likes it.
func TestOnlyLegalChoicesAreTaken(t *testing.T) {
	for _, name := range []string{"argmax", "batch-constrained"} {
		f := all()[name]
		n := f.Form.NumActions()
		likes := slices.Index(f.Form.Names(), "cpu-limit x2")
		clear(f.Snapshot.Theta)
		bias := f.Snapshot.Theta[len(f.Snapshot.Theta)-f.Snapshot.MLP.Out():]
		bias[likes] = 1
		if name == "batch-constrained" {
			bias[n+likes] = 9
		}
		p, err := learned.New(f, place)
		if err != nil {
			t.Fatal(err)
		}
		s := mdp.State{Observed: mdp.LimitKnobs, Replicas: 2, Limit: mdp.Size{CPU: 1000, Memory: 128 * mdp.MiB}}
		if a, err := p.Decide(s); err != nil || a != (mdp.Action{}).WithCPU(2000) {
			t.Errorf("%s: %v, %v; want twice the CPU", name, a, err)
		}
		s.Limit.CPU = 4000
		if a, err := p.Decide(s); err != nil || a.Sets.Has(mdp.CPULimit) && a.Limit.CPU > 4000 {
			t.Errorf("%s: at the bound %v, %v", name, a, err)
		}
	}
}

// likes is a policy that likes some choices, the first one most.
func likes(t *testing.T, names ...string) *learned.Policy {
	t.Helper()
	f := all()["argmax"]
	clear(f.Snapshot.Theta)
	bias := f.Snapshot.Theta[len(f.Snapshot.Theta)-f.Snapshot.MLP.Out():]
	for i, name := range names {
		bias[slices.Index(f.Form.Names(), name)] = float64(len(names) - i)
	}
	p, err := learned.New(f, place)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A shrink that guards have held back is passed over for one decision, with all others of its knob, so that other knobs move. One
// that has taken force is not, nor is a raise; and who has not asked for that gets what the network likes.
func TestAShrinkInVainIsPassedOver(t *testing.T) {
	present := mdp.State{Observed: mdp.LimitKnobs, Replicas: 2, Limit: mdp.Size{CPU: 1000, Memory: 500 * mdp.MiB}}
	cpu, memory := (mdp.Action{}).WithCPU(900), (mdp.Action{}).WithMemory(400*mdp.MiB)
	decide := func(p *learned.Policy, s mdp.State, want mdp.Action) {
		t.Helper()
		if a, err := p.Decide(s); err != nil || a != want {
			t.Errorf("%v (%v), want %v", a, err, want)
		}
	}
	for _, passes := range []bool{false, true} {
		p := likes(t, "memory-limit x0.8", "memory-limit x0.9", "cpu-limit x0.9")
		if passes {
			p.PassOver()
		}
		for range 3 {
			decide(p, present, memory)
			if passes {
				decide(p, present, cpu)
			}
		}
		less := present
		less.Limit.Memory = 400 * mdp.MiB
		decide(p, present, memory)
		decide(p, less, (mdp.Action{}).WithMemory(320*mdp.MiB)) // the last one has taken force
		p = likes(t, "memory-limit x2", "cpu-limit x0.9")
		if passes {
			p.PassOver()
		}
		for range 3 {
			decide(p, present, (mdp.Action{}).WithMemory(1000*mdp.MiB))
		}
	}
}

// Beside another policy it keeps to what that one does, all of it, unless its own choice is worth more by the margin than the
// choice that is nearest.
func TestBesideAnotherItDepartsForAGainOnly(t *testing.T) {
	present := mdp.State{Observed: mdp.LimitKnobs, Replicas: 2, Limit: mdp.Size{CPU: 1000, Memory: 500 * mdp.MiB}}
	own, other := (mdp.Action{}).WithCPU(900), (mdp.Action{}).WithMemory(390*mdp.MiB).WithCPU(1005)
	for _, one := range []struct {
		margin float64 // the two choices differ by 1
		want   mdp.Action
	}{{-1, own}, {0, own}, {0.99, own}, {1, own}, {1.01, other}} {
		p := likes(t, "cpu-limit x0.9", "memory-limit x0.8")
		if err := p.KeepTo(one.margin); (err == nil) != (one.margin >= 0) {
			t.Fatal(err)
		}
		if a, err := p.Beside(present, other); err != nil || a != one.want {
			t.Errorf("margin %v: %v (%v), want %v", one.margin, a, err, one.want)
		}
	}
	// A shrink that it kept to, and that guards have held back, is none of its own choices in the next decision.
	p := likes(t, "memory-limit x0.8", "memory-limit x0.9", "cpu-limit x0.9")
	p.PassOver()
	if err := p.KeepTo(0.5); err != nil {
		t.Fatal(err)
	}
	if a, err := p.Beside(present, other); err != nil || a != other {
		t.Errorf("%v (%v), want %v", a, err, other)
	}
	if a, err := p.Decide(present); err != nil || a != own {
		t.Errorf("after a shrink in vain: %v (%v), want %v", a, err, own)
	}
	// One of its own that it did not take is not in vain.
	p = likes(t, "cpu-limit x0.9", "memory-limit x0.8")
	p.PassOver()
	if err := p.KeepTo(100); err != nil {
		t.Fatal(err)
	}
	shrink := (mdp.Action{}).WithMemory(390 * mdp.MiB)
	if a, err := p.Beside(present, shrink); err != nil || a != shrink {
		t.Errorf("%v (%v), want %v", a, err, shrink)
	}
	if a, err := p.Decide(present); err != nil || a != own {
		t.Errorf("after the other's shrink: %v (%v), want %v", a, err, own)
	}
	// Numbers are not compared with another policy's.
	box, err := learned.New(all()["clamp"], place)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := box.Decide(present)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := box.Beside(present, other); err != nil || a != alone || box.KeepTo(0) == nil {
		t.Errorf("%v (%v), want %v", a, err, alone)
	}
	// Where it may not decide there is nothing to depart with.
	p.Needs(mdp.SetOf(mdp.Throughput))
	if _, err := p.Beside(present, other); err == nil {
		t.Error("it decides without what it needs")
	}
}

// A decision that something has asked for is the other policy's: the load in its State is of before. It counts as a decision, so
// that the one after it is early, too, when it is; and who is asked at its time departs as ever.
func TestADecisionBeforeItsTimeIsTheOthers(t *testing.T) {
	own, other := (mdp.Action{}).WithCPU(900), (mdp.Action{}).WithMemory(390*mdp.MiB)
	p := likes(t, "cpu-limit x0.9", "memory-limit x0.8")
	at := time.Date(2026, 11, 28, 6, 30, 0, 0, time.UTC)
	for i, one := range []struct {
		after time.Duration // the decision before; a step takes 10 s
		want  mdp.Action
	}{
		{0, own}, {10 * time.Second, own}, {2 * time.Second, other}, {9400 * time.Millisecond, other},
		{9900 * time.Millisecond, own}, {time.Hour, own}, {9 * time.Second, other},
	} {
		at = at.Add(one.after)
		s := mdp.State{At: at, Observed: mdp.LimitKnobs, Replicas: 2, Limit: mdp.Size{CPU: 1000, Memory: 500 * mdp.MiB}}
		if a, err := p.Beside(s, other); err != nil || a != one.want {
			t.Errorf("decision %d, %v after the one before: %v (%v), want %v", i, one.after, a, err, one.want)
		}
	}
}

// Another replica for a burst that the ceilings carry comes when that is over. What the other policy wants is done in any case,
// and so is whatever else its own choice is.
func TestABurstThatTheCeilingsCarryGetsNoReplicaOfItsOwn(t *testing.T) {
	burst := mdp.State{
		Observed: mdp.LimitKnobs | mdp.SetOf(mdp.CPUUsage, mdp.CPUReservation, mdp.CPUCeiling, mdp.CPUBurst), Replicas: 2,
		Limit: mdp.Size{CPU: 900, Memory: 500 * mdp.MiB}, Usage: mdp.Size{CPU: 390}, Reservation: 280, Ceiling: 900, CPUBurst: 470,
	}
	keep, three := mdp.Action{}, (mdp.Action{}).WithReplicas(3)
	for name, one := range map[string]struct {
		likes string
		other mdp.Action
		state func(s *mdp.State)
		want  mdp.Action
	}{
		"within it":                        {"replicas +1", keep, func(*mdp.State) {}, keep},
		"at nine tenths of the ceiling":    {"replicas +1", keep, func(s *mdp.State) { s.CPUBurst = 810 }, keep},
		"above them":                       {"replicas +1", keep, func(s *mdp.State) { s.CPUBurst = 811 }, three},
		"within what is reserved":          {"replicas +1", keep, func(s *mdp.State) { s.Usage.CPU = 280 }, three},
		"of which nothing is known":        {"replicas +1", keep, func(s *mdp.State) { s.Observed = mdp.LimitKnobs }, three},
		"that the other has a replica for": {"replicas +1", three, func(*mdp.State) {}, three},
		"of fewer replicas": {"replicas -1", keep, func(*mdp.State) {},
			(mdp.Action{}).WithReplicas(1)},
	} {
		p := likes(t, one.likes, "memory-limit x0.8")
		p.CarryBursts(0.9)
		if err := p.KeepTo(0.01); err != nil {
			t.Fatal(err)
		}
		s := burst
		one.state(&s)
		if a, err := p.Beside(s, one.other); err != nil || a != one.want {
			t.Errorf("a burst %s: %v (%v), want %v", name, a, err, one.want)
		}
	}
}

func TestAPolicySurvivesItsFile(t *testing.T) {
	for name, f := range all() {
		path := filepath.Join(t.TempDir(), "policy.safetensors")
		if err := f.Write(path); err != nil {
			t.Fatal(err)
		}
		again, err := learned.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Form.Same(again.Form) != nil || again.Step != f.Step || again.Provenance["algorithm"] != "none" ||
			!slices.Equal(again.Snapshot.Theta, f.Snapshot.Theta) || again.Snapshot.Head.Kind != f.Snapshot.Head.Kind {
			t.Errorf("%s: %+v", name, again)
		}
	}
}

func TestAPolicyThatDoesNotFitIsRefused(t *testing.T) {
	good := all()["argmax"]
	for want, spoil := range map[string]func(*learned.File){
		"choices":    func(f *learned.File) { f.Form.Factors = f.Form.Factors[1:] },
		"version 9":  func(f *learned.File) { f.Form.Version = 9 },
		"numbers":    func(f *learned.File) { f.Form.Signals = mdp.LimitKnobs },
		"parameters": func(f *learned.File) { f.Snapshot.Theta = f.Snapshot.Theta[1:] },
		"head":       func(f *learned.File) { f.Snapshot.Head.Kind = "sideways" },
		"is NaN": func(f *learned.File) {
			f.Snapshot.Theta = append([]float64{math.NaN()}, f.Snapshot.Theta[1:]...)
		},
		"step": func(f *learned.File) { f.Step = 0 },
		"layer 1": func(f *learned.File) {
			wide := kernel.Dense{In: 15, Out: f.Form.NumActions()}
			f.Snapshot.MLP = kernel.MLP{f.Snapshot.MLP[0], wide}
			f.Snapshot.Theta = make([]float64, f.Snapshot.MLP.Params())
		},
	} {
		f := good
		spoil(&f)
		if _, err := learned.New(f, place); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	w, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*weights.File){
		"kind":     func(f *weights.File) { f.Meta["kind"] = "train" },
		"encoding": func(f *weights.File) { f.Meta["encoding"] = "2" },
		"metadata": func(f *weights.File) { f.Meta["policy"] = "{" },
		"activation": func(f *weights.File) {
			f.Meta["policy"] = strings.Replace(f.Meta["policy"], "relu", "softsign", 1)
		},
		"of 0 inputs":              func(f *weights.File) { firstLayer(f, 0, 16) },
		"and 0 outputs":            func(f *weights.File) { firstLayer(f, 50, 0) },
		"of 65537 inputs":          func(f *weights.File) { firstLayer(f, 1<<16+1, 16) },
		"65537 outputs":            func(f *weights.File) { firstLayer(f, 50, 1<<16+1) },
		"parameters for a network": func(f *weights.File) { firstLayer(f, 1<<16, 1<<16) },
		"signal": func(f *weights.File) {
			f.Meta["policy"] = strings.Replace(f.Meta["policy"], "cpu-usage", "gpu-usage", 1)
		},
	} {
		f := weights.File{Meta: map[string]string{}, Tensors: w.Tensors}
		for k, v := range w.Meta {
			f.Meta[k] = v
		}
		spoil(&f)
		if _, err := learned.Decode(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// firstLayer says that the first layer has another shape.
func firstLayer(f *weights.File, in, out int) {
	first := regexp.MustCompile(`"layers":\[\{"in":\d+,"out":\d+`)
	f.Meta["policy"] = first.ReplaceAllString(f.Meta["policy"], fmt.Sprintf(`"layers":[{"in":%d,"out":%d`, in, out))
}

// Of a file that is no policy the error says which file it is.
func TestAFileThatIsNoPolicyIsNamed(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.safetensors")
	if err := weights.Write(other, weights.File{Meta: map[string]string{"kind": "train"}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing.safetensors"), other} {
		if f, err := learned.Read(path); err == nil || !strings.Contains(err.Error(), path) || f.Step != 0 {
			t.Errorf("%s: %+v, %v", path, f, err)
		}
	}
	bad := all()["argmax"]
	bad.Step = 0
	path := filepath.Join(dir, "bad.safetensors")
	if err := bad.Write(path); err == nil {
		t.Error("a policy that nobody could read was written")
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("something of it is there: %v", err)
	}
	head := all()["argmax"]
	head.Snapshot.Head.Kind = kernel.Interval // of bounds that it does not have
	if err := head.Check(); err == nil || !strings.Contains(err.Error(), "head") {
		t.Errorf("a head that does not fit its network: %v", err)
	}
}

func TestADecisionDoesNotAllocate(t *testing.T) {
	for name, f := range all() {
		p, err := learned.New(f, place)
		if err != nil {
			t.Fatal(err)
		}
		s := mdp.State{Observed: mdp.All, Replicas: 2, Limit: mdp.Size{CPU: 1000, Memory: 128 * mdp.MiB}}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := p.Decide(s); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, one := range all() {
		w, err := one.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(w.Meta["policy"], 100)
	}
	f.Fuzz(func(t *testing.T, meta string, n int) {
		w := weights.File{
			Meta:    map[string]string{"kind": "aware-policy", "encoding": "1", "policy": meta},
			Tensors: map[string]weights.Tensor{"theta": {Data: make([]float64, min(max(n, 0), 1<<12))}},
		}
		one, err := learned.Decode(w)
		if err != nil {
			return
		}
		p, err := learned.New(one, place)
		if err != nil {
			return
		}
		_, _ = p.Decide(mdp.State{Observed: mdp.All, Replicas: 1, Limit: mdp.Size{CPU: 100, Memory: mdp.MiB}})
	})
}
