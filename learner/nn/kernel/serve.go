package kernel

import (
	"fmt"
	"math"
	"sync/atomic"
)

// Snapshot is a network as it is served. It does not change once it was
// published.
type Snapshot struct {
	Version uint64
	MLP     MLP
	Theta   []float64
	// Mean and Scale bring an input to the scale on which the network learned:
	// (x - Mean) * Scale, clipped at plus and minus ClipRange. Without Mean the
	// input is taken as it is.
	Mean      []float64
	Scale     []float64
	ClipRange float64
	Head      Head // how the output becomes an action
}

// Check is nil for a snapshot that can be served.
func (s *Snapshot) Check() error {
	if len(s.MLP) == 0 || len(s.Theta) != s.MLP.Params() {
		return fmt.Errorf("snapshot %d: %d parameters for a network of %d layers", s.Version, len(s.Theta),
			len(s.MLP))
	}
	for i, d := range s.MLP {
		if i > 0 && d.In != s.MLP[i-1].Out {
			return fmt.Errorf("snapshot %d: layer %d reads %d numbers, and the one before it writes %d",
				s.Version, i, d.In, s.MLP[i-1].Out)
		}
	}
	if len(s.Mean) != len(s.Scale) || len(s.Mean) != 0 && len(s.Mean) != s.MLP.In() {
		return fmt.Errorf("snapshot %d: %d means and %d scales for %d inputs", s.Version, len(s.Mean),
			len(s.Scale), s.MLP.In())
	}
	for _, part := range [][]float64{s.Theta, s.Mean, s.Scale} {
		for i, v := range part {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("snapshot %d: value %d is %v", s.Version, i, v)
			}
		}
	}
	return nil
}

// Server serves the newest valid snapshot to any number of goroutines. The zero
// Server has none yet.
type Server struct{ now atomic.Pointer[Snapshot] }

// Publish makes a copy of a snapshot the one that is served. On an error the
// previous one stays.
func (s *Server) Publish(next Snapshot) error {
	if err := next.Check(); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	next.MLP = append(MLP(nil), next.MLP...)
	next.Theta = append([]float64(nil), next.Theta...)
	next.Mean = append([]float64(nil), next.Mean...)
	next.Scale = append([]float64(nil), next.Scale...)
	next.Head = next.Head.clone()
	s.now.Store(&next)
	return nil
}

// Snapshot is the one that is served; nil before the first. It must not be
// changed.
func (s *Server) Snapshot() *Snapshot { return s.now.Load() }

// Scratch is the memory of one goroutine's decisions. The zero Scratch grows
// with its first use.
type Scratch struct {
	a []float64
	b []float64
}

// Decide computes the network's output [batch][Out] for x [batch][In] by the
// snapshot that is served. The result is the scratch's, until its next use. ok
// is false, and nothing decided, when there is no snapshot, x does not fit it,
// or is not finite, or the output is not.
func (s *Server) Decide(x []float64, batch int, scratch *Scratch) (out []float64, version uint64, ok bool) {
	p := s.now.Load()
	if p == nil || batch < 1 || len(x) != batch*p.MLP.In() {
		return nil, 0, false
	}
	widest := 0
	for _, d := range p.MLP {
		widest = max(widest, d.In, d.Out)
	}
	if len(scratch.a) < batch*widest {
		scratch.a, scratch.b = make([]float64, batch*widest), make([]float64, batch*widest)
	}
	from, to := scratch.a, scratch.b
	in := p.MLP.In()
	for i, v := range x {
		if p.Mean != nil {
			j := i % in
			v = (v - p.Mean[j]) * p.Scale[j]
			if p.ClipRange > 0 {
				v = max(-p.ClipRange, min(p.ClipRange, v))
			}
		}
		from[i] = v
	}
	theta := p.Theta
	for _, d := range p.MLP {
		DenseForward(d, theta, from, batch, to)
		theta = theta[d.Params():]
		from, to = to, from
	}
	out = from[:batch*p.MLP.Out()]
	for _, v := range out {
		if v-v != 0 { // NaN or infinite
			return nil, p.Version, false
		}
	}
	return out, p.Version, true
}
