package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

func matrix[T float32 | float64](r *rand.Rand, n int) []T {
	m := make([]T, n)
	for i := range m {
		m[i] = T(r.NormFloat64())
	}
	return m
}

// Every kernel gives gonum's product, for shapes around its tiles and blocks,
// transposed or not, with strides wider than the matrix, and leaves what is
// between the rows alone.
func TestEveryKernelGivesGonumsProduct(t *testing.T) {
	for _, set := range available() {
		t.Run(set.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			b := set.BLAS()
			for round := range 600 {
				m := 1 + r.IntN(70)
				n := 1 + r.IntN(70)
				k := 1 + r.IntN(70)
				if round%10 == 0 {
					m = 1 + r.IntN(200)
					n = 1 + r.IntN(1100)
					k = 1 + r.IntN(600)
				}
				check(t, r, m, n, k, 1e-13, b.Dgemm, gonum.Implementation{}.Dgemm)
				check(t, r, m, n, k, 3e-5, b.Sgemm, gonum.Implementation{}.Sgemm)
			}
		})
	}
}

type product2[T float32 | float64] func(tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T,
	ldb int, beta T, c []T, ldc int)

func check[T float32 | float64](t *testing.T, r *rand.Rand, m, n, k int, tolerance float64, ours, gonums product2[T]) {
	t.Helper()
	tA, tB := []blas.Transpose{blas.NoTrans, blas.Trans}[r.IntN(2)], []blas.Transpose{blas.NoTrans, blas.Trans}[r.IntN(2)]
	rowsA := m
	colsA := k
	rowsB := k
	colsB := n
	if tA == blas.Trans {
		rowsA, colsA = k, m
	}
	if tB == blas.Trans {
		rowsB, colsB = n, k
	}
	lda := colsA + r.IntN(3)
	ldb := colsB + r.IntN(3)
	ldc := n + r.IntN(3)
	a := matrix[T](r, rowsA*lda)
	b := matrix[T](r, rowsB*ldb)
	c := matrix[T](r, m*ldc)
	alpha, beta := []T{1, -0.5, 0}[r.IntN(3)], []T{0, 1, 0.7}[r.IntN(3)]
	want := append([]T(nil), c...)
	gonums(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, want, ldc)
	ours(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	for i := range c {
		if diff := math.Abs(float64(c[i] - want[i])); !(diff <= tolerance*math.Sqrt(float64(k))*10) {
			t.Fatalf("%c%c %dx%dx%d, strides %d %d %d, alpha %v, beta %v: value %d is %v, gonum's %v", tA,
				tB, m, n, k, lda, ldb, ldc, alpha, beta, i, c[i], want[i])
		}
	}
}

// beta 0 overwrites what was there, NaN too, as BLAS demands.
func TestOldValuesDoNotMatterWithoutBeta(t *testing.T) {
	for _, set := range available() {
		n := 40
		a, c := matrix[float64](rand.New(rand.NewPCG(1, 1)), n*n), make([]float64, n*n)
		for i := range c {
			c[i] = math.NaN()
		}
		set.BLAS().Dgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, a, n, 0, c, n)
		for i, v := range c {
			if math.IsNaN(v) {
				t.Fatalf("%s: value %d is not a number", set.Name, i)
			}
		}
	}
}

func TestTheSameProductHasTheSameBits(t *testing.T) {
	for _, set := range available() {
		r := rand.New(rand.NewPCG(3, 4))
		m := 150
		n := 1300
		k := 300
		a, b := matrix[float64](r, m*k), matrix[float64](r, k*n)
		first := make([]float64, m*n)
		set.BLAS().Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, first, n)
		for range 5 {
			again := make([]float64, m*n)
			set.BLAS().Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, a, k, b, n, 0, again, n)
			for i := range again {
				if again[i] != first[i] {
					t.Fatalf("%s: value %d is %v, and was %v", set.Name, i, again[i], first[i])
				}
			}
		}
	}
}

func TestTooShortMatricesPanicAsInGonum(t *testing.T) {
	for _, set := range available() {
		func() {
			defer func() {
				if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "insufficient") {
					t.Errorf("%s: %v", set.Name, p)
				}
			}()
			a, short, c := make([]float64, 1600), make([]float64, 1599), make([]float64, 1600)
			set.BLAS().Dgemm(blas.NoTrans, blas.NoTrans, 40, 40, 40, 1, a, 40, short, 40, 0, c, 40)
		}()
	}
}

func TestUnknownKernelsAreNamed(t *testing.T) {
	if _, err := Named("mmx"); err == nil || !strings.Contains(err.Error(), `"mmx"`) || !strings.Contains(err.Error(), "gonum") {
		t.Error(err)
	}
	if s, err := Named("gonum"); err != nil || s.Name != "gonum" {
		t.Error(s, err)
	}
}

func TestASmallProductDoesNotAllocate(t *testing.T) {
	if testing.Short() {
		t.Skip("make race is -short, and under the race detector sync.Pool forgets at random")
	}
	var n = 64
	a, c := make([]float64, n*n), make([]float64, n*n)
	for _, set := range available() {
		b := set.BLAS()
		got := testing.AllocsPerRun(100, func() { b.Dgemm(blas.NoTrans, blas.Trans, n, n, n, 1, a, n, a, n, 0, c, n) })
		if got > 0 {
			t.Errorf("%s: %v allocations", set.Name, got)
		}
	}
}

// Compare the sub-benchmarks of one run with each other: go test -bench .
// -count 6 | benchstat -col /kernel -
func BenchmarkGemm(b *testing.B) {
	for _, s := range [][3]int{{1024, 1024, 1024}, {64, 40, 40}, {64, 64, 64}, {20, 768, 256}, {2000, 768, 512}, {64, 256, 256}} {
		for _, set := range available() {
			m := s[0]
			n := s[1]
			k := s[2]
			blas64, r := set.BLAS(), rand.New(rand.NewPCG(1, 2))
			run := func(bits int, do func()) {
				b.Run(fmt.Sprintf("shape=%dx%dx%d/f%d/kernel=%s", m, n, k, bits, set.Name), func(b *testing.B) {
					for b.Loop() {
						do()
					}
					b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
				})
			}
			x := matrix[float64](r, m*k)
			y := matrix[float64](r, k*n)
			z := make([]float64, m*n)
			run(64, func() { blas64.Dgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, x, k, y, n, 0, z, n) })
			u := matrix[float32](r, m*k)
			v := matrix[float32](r, k*n)
			w := make([]float32, m*n)
			run(32, func() { blas64.Sgemm(blas.NoTrans, blas.NoTrans, m, n, k, 1, u, k, v, n, 0, w, n) })
		}
	}
}
