package replay

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

func numbered(i int) Transition {
	x := float64(i)
	return Transition{
		State:    []float64{x},
		Action:   []float64{float64(i % 3)},
		Reward:   x,
		Next:     []float64{x + 1},
		Discount: 0.9,
	}
}

// Memory grows with what is held, up to the capacity, and a buffer that has grown
// draws as one that was large at the start.
func TestMemoryGrowsWithUse(t *testing.T) {
	c := Config{Capacity: 5000, State: 1, Action: 1, NumActions: 3, Seed: 7}
	u, err1 := NewUniform(c)
	large, err2 := NewUniform(c)
	p, err3 := NewPrioritised(PrioritisedConfig{Config: c, Alpha: 0.6, Beta: 0.4, Epsilon: 0.01})
	largeP, err4 := NewPrioritised(PrioritisedConfig{Config: c, Alpha: 0.6, Beta: 0.4, Epsilon: 0.01})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if u.rows != 0 || len(u.state) != 0 {
		t.Errorf("an empty buffer has %d places", u.rows)
	}
	large.grow(c.Capacity)
	largeP.grow(c.Capacity)
	largeP.tree = newSumTree(c.Capacity)
	batch, _ := NewBatch(c, 32)
	other, _ := NewBatch(c, 32)
	for i := range 12_000 {
		tr := numbered(i)
		if err := errors.Join(u.Add(tr), large.Add(tr), p.Add(tr), largeP.Add(tr)); err != nil {
			t.Fatal(err)
		}
		if limit := min(c.Capacity, max(fewest, 2*u.held)); u.rows > limit || len(u.state) != u.rows || p.tree.leaves > 2*limit {
			t.Fatalf("%d places and %d leaves for %d transitions", u.rows, p.tree.leaves, u.held)
		}
		if i%500 != 0 {
			continue
		}
		if err := errors.Join(u.Sample(batch), large.Sample(other)); err != nil || !slices.Equal(batch.State, other.State) {
			t.Fatalf("after %d transitions the draws differ: %v", i, err)
		}
		if err := errors.Join(p.Sample(batch), largeP.Sample(other)); err != nil || !slices.Equal(batch.State, other.State) ||
			!slices.Equal(batch.Weight, other.Weight) {
			t.Fatalf("after %d transitions the draws by priority differ: %v", i, err)
		}
		if err := errors.Join(p.Update(batch.Index, batch.Reward), largeP.Update(other.Index, other.Reward)); err != nil {
			t.Fatal(err)
		}
	}
	if u.rows != c.Capacity {
		t.Errorf("a full buffer has %d places of %d", u.rows, c.Capacity)
	}
	if u.Reset(); u.held != 0 || u.rows != 0 || u.state != nil {
		t.Errorf("after a reset it holds %d transitions in %d places", u.held, u.rows)
	}
	if err := u.Sample(batch); !errors.Is(err, ErrEmpty) {
		t.Errorf("drawn from after a reset: %v", err)
	}
}

// Masks are there from the first transition that has one; what came before is
// all legal.
func TestMasksAreKeptFromTheFirstOne(t *testing.T) {
	c := Config{Capacity: 4, State: 1, Action: 1, NumActions: 3, Seed: 7}
	u, err := NewUniform(c)
	if err != nil {
		t.Fatal(err)
	}
	masks := [][]bool{nil, nil, {true, false, true}, {false, true, false}, nil, {true, true, false}}
	for i, mask := range masks {
		if (u.legal != nil) != (i > 2) {
			t.Errorf("before transition %d the masks are %v", i, u.legal)
		}
		tr := numbered(i)
		tr.NextLegal = mask
		if err := u.Add(tr); err != nil {
			t.Fatal(err)
		}
	}
	all := []bool{true, true, true}
	check := func(u *Uniform) {
		t.Helper()
		for tr := range u.All() {
			want := masks[int(tr.Reward)]
			if want == nil {
				want = all
			}
			if !slices.Equal(tr.NextLegal, want) {
				t.Errorf("transition %v has the mask %v: want %v", tr.Reward, tr.NextLegal, want)
			}
		}
		b, _ := NewBatch(c, 20)
		if err := u.Sample(b); err != nil {
			t.Fatal(err)
		}
		for row, r := range b.Reward {
			want := masks[int(r)]
			if want == nil {
				want = all
			}
			if got := b.NextLegal[row*3:][:3]; !slices.Equal(got, want) {
				t.Errorf("drawn transition %v has the mask %v: want %v", r, got, want)
			}
		}
	}
	check(u)
	saved, err := u.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	again, _ := NewUniform(c)
	if err := again.UnmarshalBinary(saved); err != nil {
		t.Fatal(err)
	}
	if twice, _ := again.MarshalBinary(); !bytes.Equal(saved, twice) {
		t.Error("a restored buffer is saved as other bytes")
	}
	check(again)
	for says, mask := range map[string][]bool{"a mask of 2": {true, true}, "none of 3": {false, false, false}} {
		tr := numbered(0)
		tr.NextLegal = mask
		if err := u.Add(tr); err == nil {
			t.Errorf("%s: added", says)
		}
	}
}
