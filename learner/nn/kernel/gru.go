package kernel

import "sync"

// GRU is a layer of gated recurrent units over a sequence (Cho et al. 2014, in
// the form that cuDNN and PyTorch have):
//
//	r = sigmoid(Wxr x + bxr + Whr h + bhr)
//	z = sigmoid(Wxz x + bxz + Whz h + bhz)
//	n = tanh(Wxn x + bxn + r * (Whn h + bhn))
//	h' = (1 - z) * n + z * h
//
// A bidirectional layer has a second one that reads the sequence from its end;
// its output is that of the first and of the second beside each other. The axis
// of time is the first one of every sequence: [time][batch][width].
//
// Parameters, for each direction: Wx [3*Hidden][In], Wh [3*Hidden][Hidden], bx
// [3*Hidden], bh [3*Hidden], gates in the order r, z, n. The state before the
// sequence is zero.
type GRU struct {
	In            int
	Hidden        int
	Bidirectional bool
}

// Directions is 1 or 2.
func (g GRU) Directions() int {
	if g.Bidirectional {
		return 2
	}
	return 1
}

// Out is the width of the output.
func (g GRU) Out() int { return g.Hidden * g.Directions() }

func (g GRU) each() int { return 3 * g.Hidden * (g.In + g.Hidden + 2) }

// Params is the number of parameters.
func (g GRU) Params() int { return g.each() * g.Directions() }

// GRUTape keeps what the backward pass needs.
//
// Lengths, where it is not nil, is how many steps each sequence of the batch has. What stands in x beyond them must be finite
// and changes nothing: a state stays as it was, the reading from the end begins at a sequence's own last step, and the output
// is zero there. The slice may be changed between two passes.
type GRUTape[T Float] struct {
	Lengths []int // [batch], each in [0, time]; nil: all have time steps

	gru   GRU
	time  int
	batch int
	ways  []*way[T]
	dx    []T // of the second direction
}

// way is one direction.
type way[T Float] struct {
	backwards bool
	gx        []T // [time][batch][3*Hidden]: Wx x + bx; in the backward pass, its gradient
	gh        []T // [batch][3*Hidden]
	r         []T // [time][batch][Hidden]; hn is Whn h + bhn
	z         []T // [time][batch][Hidden]; hn is Whn h + bhn
	n         []T // [time][batch][Hidden]; hn is Whn h + bhn
	hn        []T // [time][batch][Hidden]; hn is Whn h + bhn
	h         []T // [time+1][batch][Hidden], in the order in which this direction reads
	dgh       []T // [time][batch][3*Hidden]
	dh        []T // [batch][Hidden]
	next      []T // [batch][Hidden]
}

// NewGRUTape makes a tape for sequences of that length and batches of that size.
func NewGRUTape[T Float](g GRU, time, batch int) *GRUTape[T] {
	t := &GRUTape[T]{gru: g, time: time, batch: batch}
	bh := batch * g.Hidden
	for i := range g.Directions() {
		t.ways = append(t.ways, &way[T]{
			backwards: i == 1,
			gx:        make([]T, 3*time*bh), gh: make([]T, 3*bh), dgh: make([]T, 3*time*bh),
			r: make([]T, time*bh), z: make([]T, time*bh), n: make([]T, time*bh), hn: make([]T, time*bh),
			h: make([]T, (time+1)*bh), dh: make([]T, bh), next: make([]T, bh),
		})
	}
	if g.Bidirectional {
		t.dx = make([]T, time*batch*g.In)
	}
	return t
}

// both runs the directions, two of them at once.
func (t *GRUTape[T]) both(do func(k int, w *way[T])) {
	if len(t.ways) == 1 {
		do(0, t.ways[0])
		return
	}
	var wait sync.WaitGroup
	wait.Go(func() { do(1, t.ways[1]) })
	do(0, t.ways[0])
	wait.Wait()
}

// at is where in the sequence a direction's i-th step is.
func (w *way[T]) at(i, time int) int {
	if w.backwards {
		return time - 1 - i
	}
	return i
}

// beyond reports whether step s of sequence b is beyond its end.
func (t *GRUTape[T]) beyond(s, b int) bool { return t.Lengths != nil && s >= t.Lengths[b] }

// Forward computes y [time][batch][Out] from x [time][batch][In].
func (t *GRUTape[T]) Forward(theta, x, y []T) {
	t.both(func(k int, w *way[T]) { t.forward(k, w, theta[k*t.gru.each():][:t.gru.each()], x, y) })
}

func (t *GRUTape[T]) forward(k int, w *way[T], theta, x, y []T) {
	g, H := t.gru, t.gru.Hidden
	wx, theta := theta[:3*H*g.In], theta[3*H*g.In:]
	wh, theta := theta[:3*H*H], theta[3*H*H:]
	bx, bh := theta[:3*H], theta[3*H:][:3*H]
	rows := t.time * t.batch
	for i := range rows {
		copy(w.gx[i*3*H:][:3*H], bx)
	}
	Gemm(false, true, rows, 3*H, g.In, 1, x[:rows*g.In], wx, 1, w.gx)
	out := g.Out()
	clear(w.h[:t.batch*H])
	for i := range t.time {
		s := w.at(i, t.time)
		before, after := w.h[i*t.batch*H:][:t.batch*H], w.h[(i+1)*t.batch*H:][:t.batch*H]
		for b := range t.batch {
			copy(w.gh[b*3*H:][:3*H], bh)
		}
		Gemm(false, true, t.batch, 3*H, H, 1, before, wh, 1, w.gh)
		for b := range t.batch {
			h, was := after[b*H:][:H], before[b*H:][:H]
			seen := y[(s*t.batch+b)*out+k*H:][:H]
			if t.beyond(s, b) {
				copy(h, was)
				clear(seen)
				continue
			}
			gx, gh := w.gx[(s*t.batch+b)*3*H:][:3*H], w.gh[b*3*H:][:3*H]
			o := (i*t.batch + b) * H
			r := w.r[o:][:H]
			z := w.z[o:][:H]
			n := w.n[o:][:H]
			hn := w.hn[o:][:H]
			for j := range H {
				r[j] = sigmoid(gx[j] + gh[j])
				z[j] = sigmoid(gx[H+j] + gh[H+j])
				hn[j] = gh[2*H+j]
				n[j] = tanh(gx[2*H+j] + r[j]*hn[j])
				h[j] = (1-z[j])*n[j] + z[j]*was[j]
			}
			copy(seen, h)
		}
	}
}

// GRUStep takes the state h [batch][Hidden] of a layer of one direction a step
// further, in place, by x [batch][In]: what acting does, one step at a time.
// gates is room for 6*batch*Hidden numbers.
func GRUStep[T Float](g GRU, theta, x, h []T, batch int, gates []T) {
	H := g.Hidden
	wx, theta := theta[:3*H*g.In], theta[3*H*g.In:]
	wh, theta := theta[:3*H*H], theta[3*H*H:]
	bx, bh := theta[:3*H], theta[3*H:][:3*H]
	gx, gh := gates[:3*batch*H], gates[3*batch*H:][:3*batch*H]
	for b := range batch {
		copy(gx[b*3*H:][:3*H], bx)
		copy(gh[b*3*H:][:3*H], bh)
	}
	Gemm(false, true, batch, 3*H, g.In, 1, x[:batch*g.In], wx, 1, gx)
	Gemm(false, true, batch, 3*H, H, 1, h[:batch*H], wh, 1, gh)
	for b := range batch {
		gx := gx[b*3*H:][:3*H]
		gh := gh[b*3*H:][:3*H]
		h := h[b*H:][:H]
		for j := range H {
			r, z := sigmoid(gx[j]+gh[j]), sigmoid(gx[H+j]+gh[H+j])
			n := tanh(gx[2*H+j] + r*gh[2*H+j])
			h[j] = (1-z)*n + z*h[j]
		}
	}
}

// Backward computes the gradients of the parameters and, when dx is not nil, of
// x, from dy [time][batch][Out]. theta and x are those of the pass.
func (t *GRUTape[T]) Backward(theta, x, dy, dtheta, dx []T) {
	n := t.gru.each()
	t.both(func(k int, w *way[T]) { t.backward(k, w, theta[k*n:][:n], x, dy, dtheta[k*n:][:n]) })
	if dx != nil {
		t.Input(theta, dx)
	}
}

// Input computes the gradient of x after Backward has been there.
func (t *GRUTape[T]) Input(theta, dx []T) {
	g, rows := t.gru, t.time*t.batch
	t.both(func(k int, w *way[T]) {
		to := dx[:rows*g.In]
		if k == 1 {
			to = t.dx
		}
		Gemm(false, false, rows, g.In, 3*g.Hidden, 1, w.gx, theta[k*g.each():][:3*g.Hidden*g.In], 0, to)
	})
	if g.Bidirectional {
		for i, v := range t.dx {
			dx[i] += v
		}
	}
}

func (t *GRUTape[T]) backward(k int, w *way[T], theta, x, dy, dtheta []T) {
	g, H := t.gru, t.gru.Hidden
	wh := theta[3*H*g.In:][:3*H*H]
	out := g.Out()
	clear(w.dh)
	for i := t.time - 1; i >= 0; i-- {
		s := w.at(i, t.time)
		before := w.h[i*t.batch*H:][:t.batch*H]
		for b := range t.batch {
			o := (i*t.batch + b) * H
			r := w.r[o:][:H]
			z := w.z[o:][:H]
			n := w.n[o:][:H]
			hn := w.hn[o:][:H]
			dgx, dgh := w.gx[(s*t.batch+b)*3*H:][:3*H], w.dgh[(i*t.batch+b)*3*H:][:3*H]
			dh := w.dh[b*H:][:H]
			next := w.next[b*H:][:H]
			if t.beyond(s, b) {
				clear(dgx)
				clear(dgh)
				copy(next, dh)
				continue
			}
			was := before[b*H:][:H]
			seen := dy[(s*t.batch+b)*out+k*H:][:H]
			for j := range H {
				d := dh[j] + seen[j]
				dz := d * (was[j] - n[j]) * z[j] * (1 - z[j])
				dn := d * (1 - z[j]) * (1 - n[j]*n[j])
				dr := dn * hn[j] * r[j] * (1 - r[j])
				dgx[j] = dr
				dgx[H+j] = dz
				dgx[2*H+j] = dn
				dgh[j] = dr
				dgh[H+j] = dz
				dgh[2*H+j] = dn * r[j]
				next[j] = d * z[j]
			}
		}
		Gemm(false, false, t.batch, H, 3*H, 1, w.dgh[i*t.batch*3*H:][:t.batch*3*H], wh, 1, w.next)
		w.dh, w.next = w.next, w.dh
	}
	rows := t.time * t.batch
	dwx, dtheta := dtheta[:3*H*g.In], dtheta[3*H*g.In:]
	dwh, dtheta := dtheta[:3*H*H], dtheta[3*H*H:]
	dbx, dbh := dtheta[:3*H], dtheta[3*H:][:3*H]
	Gemm(true, false, 3*H, g.In, rows, 1, w.gx, x[:rows*g.In], 0, dwx)
	Gemm(true, false, 3*H, H, rows, 1, w.dgh, w.h[:rows*H], 0, dwh)
	sum(w.gx, dbx)
	sum(w.dgh, dbh)
}

// sum adds up the rows of a matrix that is as wide as to.
func sum[T Float](m, to []T) {
	clear(to)
	for i := 0; i < len(m); i += len(to) {
		for j, v := range m[i:][:len(to)] {
			to[j] += v
		}
	}
}
