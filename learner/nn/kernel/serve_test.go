package kernel_test

import (
	"math"
	"strings"
	"sync"
	"testing"

	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
)

var served = kernel.NewMLP(kernel.ReLU, kernel.Tanh, 8, 40, 40, 5)

func TestServingAgreesWithTheNetwork(t *testing.T) {
	var s kernel.Server
	var scratch kernel.Scratch
	x := nntest.Normal(1, 3*8, 1)
	if _, _, ok := s.Decide(x, 3, &scratch); ok {
		t.Error("an empty server decides")
	}
	theta := nntest.Normal(2, served.Params(), 0.2)
	if err := s.Publish(kernel.Snapshot{Version: 7, MLP: served, Theta: theta}); err != nil {
		t.Fatal(err)
	}
	want := append([]float64(nil), kernel.NewTape[float64](served, 3).Forward(theta, x, 3)...)
	clear(theta) // the trainer continues with its own slice
	got, version, ok := s.Decide(x, 3, &scratch)
	if !ok || version != 7 {
		t.Fatal(version, ok)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("output %d: %v, the network's %v", i, got[i], want[i])
		}
	}
	one, _, _ := s.Decide(x[8:16], 1, &scratch)
	for i := range one {
		if math.Abs(one[i]-want[5+i]) > 1e-14 {
			t.Fatalf("alone, output %d is %v, in a batch %v", i, one[i], want[5+i])
		}
	}
}

func TestInputsAreNormalised(t *testing.T) {
	identity := kernel.MLP{{In: 1, Out: 1}}
	var s kernel.Server
	var scratch kernel.Scratch
	if err := s.Publish(kernel.Snapshot{
		MLP:       identity,
		Theta:     []float64{1, 0},
		Mean:      []float64{10},
		Scale:     []float64{0.5},
		ClipRange: 3,
	}); err != nil {
		t.Fatal(err)
	}
	for x, want := range map[float64]float64{10: 0, 12: 1, 100: 3, -100: -3} {
		if got, _, _ := s.Decide([]float64{x}, 1, &scratch); got[0] != want {
			t.Errorf("%v gives %v instead of %v", x, got[0], want)
		}
	}
}

func TestThePreviousSnapshotStaysAfterAFailedPublish(t *testing.T) {
	var s kernel.Server
	var scratch kernel.Scratch
	good := nntest.Normal(2, served.Params(), 0.2)
	if err := s.Publish(kernel.Snapshot{Version: 1, MLP: served, Theta: good}); err != nil {
		t.Fatal(err)
	}
	bad := append([]float64(nil), good...)
	bad[17] = math.NaN()
	for says, next := range map[string]kernel.Snapshot{
		"value 17 is NaN":  {Version: 2, MLP: served, Theta: bad},
		"parameters for a": {Version: 3, MLP: served, Theta: good[1:]},
		"means and": {
			Version: 4,
			MLP:     served,
			Theta:   good,
			Mean:    make([]float64, 3),
			Scale:   make([]float64, 3),
		},
	} {
		if err := s.Publish(next); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, version, ok := s.Decide(make([]float64, 8), 1, &scratch); !ok || version != 1 {
		t.Error(version, ok)
	}
	x := make([]float64, 8)
	x[3] = math.NaN()
	if _, _, ok := s.Decide(x, 1, &scratch); ok {
		t.Error("a decision was made of NaN")
	}
	if _, _, ok := s.Decide(x[:7], 1, &scratch); ok {
		t.Error("a decision was made of 7 inputs for 8")
	}
}

// Snapshots change under many readers: each decision is wholly of one of them.
func TestServingWhilePublishing(t *testing.T) {
	layer := kernel.MLP{{In: 1, Out: 64}}
	var s kernel.Server
	publish := func(v uint64) {
		theta := make([]float64, layer.Params())
		for i := range theta {
			theta[i] = float64(v)
		}
		if err := s.Publish(kernel.Snapshot{Version: v, MLP: layer, Theta: theta}); err != nil {
			t.Error(err)
		}
	}
	publish(1)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			var scratch kernel.Scratch
			for range 2000 {
				out, version, _ := s.Decide([]float64{1}, 1, &scratch)
				for _, v := range out {
					if v != 2*float64(version) {
						t.Errorf("version %d decides %v", version, v)
						return
					}
				}
			}
		})
	}
	for v := uint64(2); v < 500; v++ {
		publish(v)
	}
	wait.Wait()
}

func TestADecisionDoesNotAllocate(t *testing.T) {
	var s kernel.Server
	var scratch kernel.Scratch
	if err := s.Publish(kernel.Snapshot{
		MLP:   served,
		Theta: nntest.Normal(2, served.Params(), 0.2),
		Mean:  make([]float64, 8),
		Scale: make([]float64, 8),
	}); err != nil {
		t.Fatal(err)
	}
	x := make([]float64, 8)
	if n := testing.AllocsPerRun(100, func() { s.Decide(x, 1, &scratch) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	var s kernel.Server
	var scratch kernel.Scratch
	if err := s.Publish(kernel.Snapshot{
		MLP:   served,
		Theta: nntest.Normal(2, served.Params(), 0.2),
	}); err != nil {
		b.Fatal(err)
	}
	x := nntest.Normal(1, 8, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(x, 1, &scratch)
	}
}
