// Package graph builds a loss in gorgonia, lets gorgonia differentiate it, and runs it fast. It is the only place that knows
// gorgonia.
//
// # The story
//
// [Build] gives a [Builder] to a function that names inputs and parameters and puts a loss together, of [Builder.MLP] and
// other layers of ours, and of gorgonia's own operations ([Builder.Add] and the like). Build lets gorgonia differentiate it with respect to the parameters
// and returns a [Graph]: fill the inputs' Data and Theta, call [Graph.Run], read the loss, and Grad. Optimisers work on these
// flat slices, outside.
//
// # Why not as gorgonia's documentation has it
//
// Layers, recurrent ones above all, are single Ops here, with kernels' hand-written way back, and graphs run by [Plan], an
// executor over gorgonia's public API. It is exact (tests hold it to TapeMachine, bit for bit), does not compute gradients that
// nobody reads, keeps its buffers, and costs a fraction of a microsecond where TapeMachine costs fifty. hack/adr/0008 has
// figures.
//
// # Traps that this package shuts (each has a test)
//
//  1. gorgonia takes two nodes of the same name, type and shape for one, also custom Ops: a name can be given once, and every
//     Op carries its name in its hash.
//  2. Slice and the gradient of Concat are wrong at widths of 256 and others: join and part of matrices are Ops of ours.
//  3. A second Grad in a graph returns the first one's gradients: a graph has one loss.
//  4. Parameters with the same gradient node share its storage: gradients are copied out.
//  5. BindDualValues adds up gradients from run to run: it is not used.
//  6. Building graphs at the same time is a data race in gorgonia: Build holds a lock. Running them at the same time is not.
//  7. Initialisers and random Ops of gorgonia are seeded by the clock: values come from outside; random Ops are refused.
package graph
