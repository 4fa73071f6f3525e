package kernel

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// Float is the number that a network computes with.
type Float interface{ float32 | float64 }

func transpose(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

// Gemm is C = alpha * op(A) * op(B) + beta * C, C being m by n and op(A) m by
// k; op transposes where tA or tB says so. The strides of A and B are their own
// widths, C's is n.
func Gemm[T Float](tA, tB bool, m, n, k int, alpha T, a, b []T, beta T, c []T) {
	lda, ldb := k, n
	if tA {
		lda = m
	}
	if tB {
		ldb = k
	}
	switch c := any(c).(type) {
	case []float64:
		blas64.Implementation().Dgemm(transpose(tA), transpose(tB), m, n, k,
			float64(alpha), any(a).([]float64), lda, any(b).([]float64), ldb, float64(beta), c, n)
	case []float32:
		blas32.Implementation().Sgemm(transpose(tA), transpose(tB), m, n, k,
			float32(alpha), any(a).([]float32), lda, any(b).([]float32), ldb, float32(beta), c, n)
	}
}

// gemv is y = A x + y, A being m by n.
func gemv[T Float](m, n int, a, x, y []T) {
	switch y := any(y).(type) {
	case []float64:
		blas64.Implementation().Dgemv(blas.NoTrans, m, n, 1, any(a).([]float64), n, any(x).([]float64), 1, 1, y, 1)
	case []float32:
		blas32.Implementation().Sgemv(blas.NoTrans, m, n, 1, any(a).([]float32), n, any(x).([]float32), 1, 1, y, 1)
	}
}
