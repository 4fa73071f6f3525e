// Package gemm multiplies matrices faster than gonum where the CPU can: a BLAS
// that is gonum's in everything but its two general matrix products, which run
// on AVX2 or AVX-512 kernels in Go's assembly. No cgo.
//
// # The story
//
// [Choose] looks at the CPU and gives the best [Set] of kernels, or gonum
// alone; [Named] gives one by its name. [Set.BLAS] is an implementation of
// gonum's BLAS interfaces that blas64.Use, blas32.Use and gorgonia.Use take
// (graph.Use does all three).
//
// # How a product is made
//
// Goto's way (Goto and van de Geijn, ACM TOMS 34(3), 2008): a block of B and a
// block of A are packed into panels as wide as the kernel's registers, and the
// kernel adds one small tile of C at a time, over all of the block's depth.
// Large products are divided among goroutines along their longer side.
//
// The last bits of a product depend on the kernel, for it adds in another order
// and fuses multiplications with additions; with the same kernel the same
// product has the same bits, however many goroutines there are.
//
// # What it leaves to others
//
// Everything else of BLAS is gonum's. Which implementation the program uses is
// the program's word, once, at its beginning.
package gemm
