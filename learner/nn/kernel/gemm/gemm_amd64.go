package gemm

import "golang.org/x/sys/cpu"

// available are the sets of kernels for this CPU, the best one last.
func available() []Set {
	all := []Set{Gonum()}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, Set{"avx2", kernel[float64]{6, 8, tile6x8}, kernel[float32]{6, 16, tile6x16}})
	}
	if cpu.X86.HasAVX512F {
		all = append(all, Set{"avx512", kernel[float64]{8, 16, tile8x16}, kernel[float32]{8, 32, tile8x32}})
	}
	return all
}

// The kernels, in assembly. Each adds to a tile of c, whose rows are ldc values
// apart, the product of k columns of a panel of a and k rows of a panel of b. k
// must be above zero.

//go:noescape
func tile6x8(k int, a, b, c *float64, ldc int)

//go:noescape
func tile6x16(k int, a, b, c *float32, ldc int)

//go:noescape
func tile8x16(k int, a, b, c *float64, ldc int)

//go:noescape
func tile8x32(k int, a, b, c *float32, ldc int)
