package replay_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
)

func TestARestoredBufferContinuesBitByBit(t *testing.T) {
	for _, adds := range []int{0, 3, 8, 13} {
		for name, buf := range both(t, 8) {
			b, c := batch(t, 16), batch(t, 16)
			update := func(buf buffer, b *replay.Batch) {
				if p, ok := buf.(*replay.Prioritised); ok {
					must(t, p.Update(b.Index, b.Reward))
				}
			}
			for k := range adds {
				tr := step(k)
				tr.Terminated, tr.Truncated = k%3 == 0, k%2 == 0
				must(t, buf.Add(tr))
				must(t, buf.Sample(b))
				update(buf, b)
			}
			if p, ok := buf.(*replay.Prioritised); ok {
				must(t, p.SetBeta(0.77))
			}
			saved, err := buf.MarshalBinary()
			must(t, err)
			again := both(t, 8)[name]
			must(t, again.Add(step(77))) // is gone after the restore
			must(t, again.UnmarshalBinary(saved))
			for k := range 20 {
				must(t, errors.Join(buf.Add(step(k)), again.Add(step(k))))
				must(t, errors.Join(buf.Sample(b), again.Sample(c)))
				update(buf, b)
				update(again, c)
				if !slices.Equal(b.Index, c.Index) || !slices.Equal(b.State, c.State) ||
					!slices.Equal(b.Weight, c.Weight) || !slices.Equal(b.Bootstrap, c.Bootstrap) {
					t.Fatalf("%s after %d: draw %d after the restore is %v, want %v", name, adds, k,
						c.Index, b.Index)
				}
			}
			one, _ := buf.MarshalBinary()
			two, _ := again.MarshalBinary()
			if !slices.Equal(one, two) {
				t.Errorf("%s after %d: what is saved of the two differs", name, adds)
			}
		}
	}
}

func TestDamagedBytesAreRefused(t *testing.T) {
	for name, buf := range both(t, 4) {
		for k := range 6 {
			must(t, buf.Add(step(k)))
		}
		saved, err := buf.MarshalBinary()
		must(t, err)
		other := both(t, 4)[name]
		must(t, other.Add(step(9)))
		before, _ := other.MarshalBinary()
		for i := range saved {
			tampered := slices.Clone(saved)
			tampered[i] ^= 1
			if other.UnmarshalBinary(saved[:i]) == nil || other.UnmarshalBinary(tampered) == nil {
				t.Fatalf("%s: cut at byte %d, or byte %d changed: no error", name, i, i)
			}
		}
		for kind, wrong := range both(t, 5) {
			if err := wrong.UnmarshalBinary(saved); err == nil {
				t.Errorf("%s of 4 as %s of 5: no error", name, kind)
			}
		}
		if after, _ := other.MarshalBinary(); !slices.Equal(before, after) {
			t.Errorf("%s was changed by what it refused", name)
		}
	}
	p, err := replay.NewPrioritised(prioritised(4, 0.5, 0.4))
	must(t, err)
	saved, _ := both(t, 4)["prioritised"].MarshalBinary()
	if err := p.UnmarshalBinary(saved); err == nil || !strings.Contains(err.Error(), "alpha") {
		t.Errorf("alpha 0.6 as 0.5: %v", err)
	}
}

func TestAddAndSampleDoNotAllocate(t *testing.T) {
	u, err1 := replay.NewUniform(small)
	p, err2 := replay.NewPrioritised(prioritised(1000, 0.6, 0.4))
	n, err3 := replay.NewNStep(replay.NStepConfig{Steps: 3, State: 2, Action: 1}, u)
	must(t, errors.Join(err1, err2, err3))
	tr := step(1)
	b := batch(t, 32)
	errs := make([]float64, 32)
	for what, f := range map[string]func() error{
		"uniform add":        func() error { return u.Add(tr) },
		"uniform sample":     func() error { return errors.Join(u.Add(tr), u.Sample(b)) },
		"prioritised add":    func() error { return p.Add(tr) },
		"prioritised sample": func() error { return errors.Join(p.Add(tr), p.Sample(b)) },
		"prioritised update": func() error { return errors.Join(p.Add(tr), p.Sample(b), p.Update(b.Index, errs)) },
		"n-step add":         func() error { return n.Add(tr) },
	} {
		if allocs := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 {
			t.Errorf("%s: %v allocations", what, allocs)
		}
	}
}

// Compare with benchstat over two commits; 0 allocs/op is asserted by
// TestAddAndSampleDoNotAllocate.
func BenchmarkAdd(b *testing.B) {
	for name, buf := range both(b, 100000) {
		b.Run(name, func(b *testing.B) {
			tr := step(1)
			b.ReportAllocs()
			for b.Loop() {
				if err := buf.Add(tr); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSample(b *testing.B) {
	for name, buf := range both(b, 100000) {
		b.Run(name, func(b *testing.B) {
			for k := range 100000 {
				must(b, buf.Add(step(k)))
			}
			rows := batch(b, 256)
			b.ReportAllocs()
			for b.Loop() {
				if err := buf.Sample(rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
