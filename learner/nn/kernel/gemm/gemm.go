package gemm

import (
	"fmt"
	"runtime"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Set is a choice of kernels.
type Set struct {
	Name string // gonum, avx2 or avx512
	f64  kernel[float64]
	f32  kernel[float32]
}

// kernel adds a tile: c[i*ldc+j] += sum over p < k of a[p*rows+i] * b[p*cols+j].
type kernel[T float32 | float64] struct {
	rows int
	cols int
	tile func(k int, a, b, c *T, ldc int)
}

// Gonum is gonum's own product.
func Gonum() Set { return Set{Name: "gonum"} }

// Choose is the best set of kernels for this CPU.
func Choose() Set {
	all := available()
	return all[len(all)-1]
}

// Named is a set of kernels by name; an error says which there are on this CPU.
func Named(name string) (Set, error) {
	var names []string
	for _, s := range available() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Set{}, fmt.Errorf("matrix product %q: this CPU has %v", name, names)
}

// BLAS is gonum's, with the set's matrix products.
func (s Set) BLAS() Implementation { return Implementation{set: s} }

// Implementation is a BLAS with fast real matrix products.
type Implementation struct {
	gonum.Implementation
	set Set
}

// Name is that of the set of kernels.
func (i Implementation) Name() string { return i.set.Name }

// small is the number of multiplications up to which packing costs more than it
// gives.
const small = 4096

// Dgemm is C = alpha * op(A) * op(B) + beta * C, row by row, for float64.
func (i Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int,
	b []float64, ldb int, beta float64, c []float64, ldc int) {
	if i.set.f64.tile == nil || m*n*k <= small || !fits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		i.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	p := product[float64]{i.set.f64, tA != blas.NoTrans, tB != blas.NoTrans, k, alpha, a, lda, b, ldb, c, ldc}
	p.run(m, n, beta, &pool64)
}

// Sgemm is C = alpha * op(A) * op(B) + beta * C, row by row, for float32.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int,
	b []float32, ldb int, beta float32, c []float32, ldc int) {
	if i.set.f32.tile == nil || m*n*k <= small || !fits(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc) {
		i.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	p := product[float32]{i.set.f32, tA != blas.NoTrans, tB != blas.NoTrans, k, alpha, a, lda, b, ldb, c, ldc}
	p.run(m, n, beta, &pool32)
}

// fits reports whether the matrices are as large as they are said to be. What
// does not fit goes to gonum, which says why.
func fits(tA, tB blas.Transpose, m, n, k, a, lda, b, ldb, c, ldc int) bool {
	for _, t := range []blas.Transpose{tA, tB} {
		if t != blas.NoTrans && t != blas.Trans && t != blas.ConjTrans {
			return false
		}
	}
	holds := func(rows, cols, length, stride int) bool { return stride >= cols && length >= (rows-1)*stride+cols }
	rowsA := m
	colsA := k
	rowsB := k
	colsB := n
	if tA != blas.NoTrans {
		rowsA, colsA = k, m
	}
	if tB != blas.NoTrans {
		rowsB, colsB = n, k
	}
	return m > 0 && n > 0 && k > 0 && holds(rowsA, colsA, a, lda) && holds(rowsB, colsB, b, ldb) &&
		holds(m, n, c, ldc)
}

// product is one matrix product; goroutines do parts of it.
type product[T float32 | float64] struct {
	kernel[T]
	tA    bool
	tB    bool
	k     int
	alpha T
	a     []T
	lda   int
	b     []T
	ldb   int
	c     []T
	ldc   int
}

// Blocks: a panel of B of depth*cols values stays in the first cache, a block
// of A of height*depth in the second, a block of B of depth*width in the third.
const (
	depth  = 256
	height = 96
	width  = 1024
)

// worth is the number of multiplications that pay for a goroutine more: a tenth
// of a millisecond of work. The products of a recurrent layer's single steps
// stay below it; its two directions have a goroutine each already.
const worth = 1 << 22

// space is what packing needs.
type space[T float32 | float64] struct {
	a []T
	b []T
	c []T
}

var (
	pool64 = sync.Pool{New: func() any { return newSpace[float64]() }}
	pool32 = sync.Pool{New: func() any { return newSpace[float32]() }}
)

func newSpace[T float32 | float64]() *space[T] {
	const most = 32 // the widest tile
	return &space[T]{make([]T, (height+most)*depth), make([]T, (width+most)*depth), make([]T, most*most)}
}

func (p *product[T]) run(m, n int, beta T, pool *sync.Pool) {
	if beta != 1 {
		for i := range m {
			row := p.c[i*p.ldc : i*p.ldc+n]
			if beta == 0 {
				clear(row)
				continue
			}
			for j := range row {
				row[j] *= beta
			}
		}
	}
	if p.alpha == 0 {
		return
	}
	workers := min(runtime.GOMAXPROCS(0), 1+m*n*p.k/worth)
	if workers == 1 {
		s := pool.Get().(*space[T])
		p.part(s, 0, m, 0, n)
		pool.Put(s)
		return
	}
	p.divide(m, n, workers, pool)
}

// task is a product that several goroutines share: whole tiles of its rows, or
// of its columns.
type task[T float32 | float64] struct {
	product[T]
	m       int
	n       int
	workers int
	pool    *sync.Pool
	wait    sync.WaitGroup
}

// divide has the workers do their parts; the caller is one of them.
func (p *product[T]) divide(m, n, workers int, pool *sync.Pool) {
	t := &task[T]{
		product: *p,
		m:       m,
		n:       n,
		workers: workers,
		pool:    pool,
	} // p itself need not leave the stack of small products
	t.wait.Add(workers - 1)
	for w := 1; w < workers; w++ {
		go func() {
			t.work(w)
			t.wait.Done()
		}()
	}
	t.work(0)
	t.wait.Wait()
}

func (t *task[T]) work(w int) {
	all, tile := t.m, t.rows
	if t.n > t.m {
		all, tile = t.n, t.cols
	}
	tiles := (all + tile - 1) / tile
	from, to := w*tiles/t.workers*tile, min(all, (w+1)*tiles/t.workers*tile)
	if from >= to {
		return
	}
	s := t.pool.Get().(*space[T])
	if t.n > t.m {
		t.part(s, 0, t.m, from, to)
	} else {
		t.part(s, from, to, 0, t.n)
	}
	t.pool.Put(s)
}

// part adds rows i0 to i1 and columns j0 to j1 of the product.
func (p *product[T]) part(s *space[T], i0, i1, j0, j1 int) {
	for j := j0; j < j1; j += width {
		cols := min(width, j1-j)
		for k := 0; k < p.k; k += depth {
			deep := min(depth, p.k-k)
			p.packB(s.b, k, deep, j, cols)
			for i := i0; i < i1; i += height {
				rows := min(height, i1-i)
				p.packA(s.a, i, rows, k, deep)
				p.block(s, i, rows, j, cols, deep)
			}
		}
	}
}

// block adds the product of the packed blocks.
func (p *product[T]) block(s *space[T], i0, rows, j0, cols, deep int) {
	for j := 0; j < cols; j += p.cols {
		b := &s.b[j*deep]
		for i := 0; i < rows; i += p.rows {
			a := &s.a[i*deep]
			if i+p.rows <= rows && j+p.cols <= cols {
				p.tile(deep, a, b, &p.c[(i0+i)*p.ldc+j0+j], p.ldc)
				continue
			}
			// A tile at the edge is made beside C, for the kernel knows whole
			// tiles only.
			edge := s.c[:p.rows*p.cols]
			clear(edge)
			p.tile(deep, a, b, &edge[0], p.cols)
			width := min(p.cols, cols-j)
			for r := range min(p.rows, rows-i) {
				to := p.c[(i0+i+r)*p.ldc+j0+j:][:width]
				for x, v := range edge[r*p.cols:][:width] {
					to[x] += v
				}
			}
		}
	}
}

// packA lays alpha * op(A) down in panels of the kernel's rows, column by
// column; what is missing of the last is zero.
func (p *product[T]) packA(to []T, i0, rows, k0, deep int) {
	for i := 0; i < rows; i += p.rows {
		panel := to[i*deep:][:p.rows*deep]
		n := min(p.rows, rows-i)
		if n < p.rows {
			clear(panel)
		}
		if p.tA { // op(A) has A's columns as rows
			for q := range deep {
				from := p.a[(k0+q)*p.lda+i0+i:][:n]
				for r, v := range from {
					panel[q*p.rows+r] = p.alpha * v
				}
			}
			continue
		}
		row := func(r int) []T { return p.a[(i0+i+r)*p.lda+k0:][:deep] }
		if n == 8 && p.rows == 8 { // eight rows at once: the panel is written from its beginning to its end
			a := row(0)
			b := row(1)
			c := row(2)
			d := row(3)
			e := row(4)
			f := row(5)
			g := row(6)
			h := row(7)
			for q := range deep {
				to := (*[8]T)(panel[8*q:])
				to[0] = p.alpha * a[q]
				to[1] = p.alpha * b[q]
				to[2] = p.alpha * c[q]
				to[3] = p.alpha * d[q]
				to[4] = p.alpha * e[q]
				to[5] = p.alpha * f[q]
				to[6] = p.alpha * g[q]
				to[7] = p.alpha * h[q]
			}
			continue
		}
		for r := range n {
			for q, v := range row(r) {
				panel[q*p.rows+r] = p.alpha * v
			}
		}
	}
}

// packB lays op(B) down in panels of the kernel's columns, row by row; what is
// missing of the last is zero.
func (p *product[T]) packB(to []T, k0, deep, j0, cols int) {
	for j := 0; j < cols; j += p.cols {
		panel := to[j*deep:][:p.cols*deep]
		n := min(p.cols, cols-j)
		if n < p.cols {
			clear(panel)
		}
		if p.tB { // op(B) has B's rows as columns
			for x := range n {
				from := p.b[(j0+j+x)*p.ldb+k0:][:deep]
				for q, v := range from {
					panel[q*p.cols+x] = v
				}
			}
			continue
		}
		for q := range deep {
			copy(panel[q*p.cols:][:n], p.b[(k0+q)*p.ldb+j0+j:][:n])
		}
	}
}
