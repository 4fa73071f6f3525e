// Package graph builds a loss in gorgonia, lets gorgonia differentiate it, and
// runs it fast. No other package imports gorgonia.
//
// # The story
//
// [Build] gives a [Builder] to a function that names inputs and parameters and
// puts a loss together, from [Builder.MLP] and other layers of ours, and from
// gorgonia's own operations ([Builder.Add] and others). Build lets gorgonia
// differentiate it with respect to the parameters and returns a [Graph]: fill
// the inputs' Data and Theta, call [Graph.Run], read the loss, and Grad.
// Optimisers work on these flat slices, outside. [Graph.Gradient] does the same
// for parameters and a gradient that the caller holds.
//
// # Differences to gorgonia's documentation
//
// Layers, recurrent ones in particular, are single Ops here, with a
// hand-written backward pass from package kernel. [Plan] runs graphs; it is an
// executor over gorgonia's public API. It is exact (tests compare it with
// TapeMachine, bit for bit), does not compute gradients that are not read,
// keeps its buffers, and costs a fraction of a microsecond where TapeMachine
// costs fifty. hack/adr/0008 has figures.
//
// # Traps of gorgonia that this package avoids (each has a test)
//
//  1. gorgonia merges two nodes of the same name, type and shape, also
//     custom Ops. Here a name can be given once, and every Op has its name in
//     its hash.
//  2. Slice and the gradient of Concat are wrong at widths of 256 and
//     others. Joining and splitting matrices are Ops of ours.
//  3. A second Grad in a graph returns the first one's gradients. A graph
//     has one loss.
//  4. Parameters with the same gradient node share its storage. Gradients
//     are copied out.
//  5. BindDualValues adds up gradients from run to run. It is not used.
//  6. Building graphs at the same time is a data race in gorgonia. Build
//     holds a lock. Running them at the same time is safe.
//  7. Initialisers and random Ops of gorgonia are seeded by the clock.
//     Values come from outside; random Ops are refused.
package graph
