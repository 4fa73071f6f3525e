// Package kernel is the arithmetic of neural networks on flat slices: dense
// layers, gated recurrent units, losses, forward and backward by hand. Serving
// runs it alone; package graph makes gorgonia's Ops of it; tests hold both
// against central differences.
//
// # Conventions
//
// Matrices are rows after each other; a batch has one example a row. Parameters
// of a layer are one flat slice, weights [out][in] before biases, as
// safetensors and PyTorch have them. Destinations come from the caller and are
// overwritten; nothing here allocates but constructors. Lengths are the
// caller's duty: a wrong one panics, as an index does. Everything is generic in
// the float type.
//
// # What it leaves to others
//
// Matrix products are those of the BLAS that blas64 and blas32 have (gonum's,
// or package gemm's). Which parameters there are, how they change, and what a
// network is for: packages nn and the algorithms.
package kernel
