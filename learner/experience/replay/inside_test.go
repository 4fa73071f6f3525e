package replay

import (
	"bytes"
	"encoding"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The reference implementation of a tree is a loop over its leaves.
func TestATreeAgreesWithALoopOverItsLeaves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 7, 8, 100} {
		tree, leaves := newSumTree(n), make([]float64, n)
		for range 2000 {
			i := r.IntN(n)
			leaves[i] = float64(r.IntN(4)) // whole numbers add up exactly, and some are 0
			tree.set(i, leaves[i])
			sum := 0.0
			for _, x := range leaves {
				sum += x
			}
			if tree.sum() != sum {
				t.Fatalf("%d leaves: sum %v, want %v", n, tree.sum(), sum)
			}
			if sum == 0 {
				continue
			}
			x := r.Float64() * sum
			want, past := 0, leaves[0]
			for x >= past {
				want++
				past += leaves[want]
			}
			if got := tree.find(x); got != want {
				t.Fatalf("find %v in %v: leaf %d, want %d", x, leaves, got, want)
			}
			if got := tree.find(sum * (1 + 1e-9)); leaves[got] == 0 {
				t.Fatalf("find beyond the sum of %v: leaf %d, which is 0", leaves, got)
			}
		}
	}
}

// After any number of changes a tree is, bit by bit, the one that is built from
// its leaves: nothing adds up.
func TestATreeDoesNotDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tree, fresh := newSumTree(50), newSumTree(50)
	for range 100000 {
		tree.set(r.IntN(50), r.ExpFloat64()*float64(uint64(1)<<r.IntN(60)))
	}
	for i := range 50 {
		fresh.set(i, tree.at(i))
	}
	for k := range tree.node {
		if tree.node[k] != fresh.node[k] {
			t.Fatalf("node %d is %v, want %v", k, tree.node[k], fresh.node[k])
		}
	}
}

// A right checksum does not mean that the bytes make sense.
func TestInvalidStateWithAValidChecksumIsRefused(t *testing.T) {
	good := Transition{State: []float64{1}, Action: []float64{2}, Reward: 3, Next: []float64{4}, Discount: 0.5}
	c := PrioritisedConfig{
		Config:  Config{Capacity: 3, State: 1, Action: 1},
		Alpha:   0.5,
		Beta:    0.5,
		Epsilon: 0.01,
	}
	for says, spoil := range map[string]func(p *Prioritised){
		"state[0] = NaN":     func(p *Prioritised) { p.state[1] = math.NaN() },
		"discount 2":         func(p *Prioritised) { p.discount[0] = 2 },
		"there would be a":   func(p *Prioritised) { p.head, p.discount[2] = 0, 1 },
		"4 transitions":      func(p *Prioritised) { p.held = 4 },
		"next place 3":       func(p *Prioritised) { p.head = 3 },
		"beta 7":             func(p *Prioritised) { p.beta = 7 },
		"largest priority 0": func(p *Prioritised) { p.largest = 0 },
		"priority[1] = 0":    func(p *Prioritised) { p.tree.set(1, 0) },
		"priority[0] = 9":    func(p *Prioritised) { p.tree.set(0, 9) },
	} {
		bad, err1 := NewPrioritised(c)
		p, err2 := NewPrioritised(c)
		if err := errors.Join(err1, err2, bad.Add(good), bad.Add(good), p.Add(good)); err != nil {
			t.Fatal(err)
		}
		before, _ := p.MarshalBinary()
		spoil(bad)
		data, _ := bad.MarshalBinary()
		if err := p.UnmarshalBinary(data); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if after, _ := p.MarshalBinary(); !bytes.Equal(before, after) {
			t.Errorf("%s: something changed", says)
		}
	}

	// The window of an NStep has no end in it.
	n, err := NewNStep(NStepConfig{Steps: 3, State: 1, Action: 1}, new(Uniform))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Add(good); err != nil {
		t.Fatal(err)
	}
	n.window.truncated[0] = true
	data, _ := n.MarshalBinary()
	if err := n.UnmarshalBinary(data); err == nil || !strings.Contains(err.Error(), "an end is pending") {
		t.Errorf("%v, want that an end is pending", err)
	}
}

// What is wrong behind a right checksum must not panic either, so the checksum
// is computed again here. What is accepted must be saved as the same bytes, and
// must work.
func FuzzRestore(f *testing.F) {
	c := Config{Capacity: 3, State: 1, Action: 1, Seed: 1}
	t := Transition{State: []float64{1}, Action: []float64{2}, Reward: 3, Next: []float64{4}, Discount: 0.5}
	type saver interface {
		encoding.BinaryMarshaler
		encoding.BinaryUnmarshaler
		Add(Transition) error
	}
	fresh := func() []saver {
		u, err1 := NewUniform(c)
		p, err2 := NewPrioritised(PrioritisedConfig{Config: c, Alpha: 0.5, Beta: 0.5, Epsilon: 0.01})
		n, err3 := NewNStep(NStepConfig{Steps: 3, State: 1, Action: 1}, u)
		if err1 != nil || err2 != nil || err3 != nil {
			f.Fatal(err1, err2, err3)
		}
		return []saver{u, p, n}
	}
	for _, s := range fresh() {
		for range 5 {
			data, err := s.MarshalBinary()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data[:len(data)-4])
			if err := s.Add(t); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Fuzz(func(tt *testing.T, b []byte) {
		data := seal(append([]byte(nil), b...))
		for _, s := range fresh() {
			before, _ := s.MarshalBinary()
			err := s.UnmarshalBinary(data)
			after, _ := s.MarshalBinary()
			if err != nil {
				if !bytes.Equal(before, after) {
					tt.Fatalf("%T was changed by what it refused: %v", s, err)
				}
				continue
			}
			if !bytes.Equal(data, after) {
				tt.Fatalf("%T is saved as other bytes than it was restored from", s)
			}
			if err := s.Add(t); err != nil {
				if _, sums := s.(*NStep); !sums { // the sum of huge rewards is refused by the buffer
					tt.Fatalf("%T: %v", s, err)
				}
			}
			batch, _ := NewBatch(c, 4)
			if p, ok := s.(*Prioritised); ok {
				if err := p.Sample(batch); err != nil {
					tt.Fatal(err)
				}
			}
		}
	})
}
