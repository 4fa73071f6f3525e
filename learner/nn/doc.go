// Package nn is what happens to the parameters of networks: how they begin, how a gradient changes them, how targets follow,
// how observations are brought to one scale. Everything works on flat slices of float64 and is the same whatever computed the
// gradient.
//
// What computes is in kernel (by hand) and graph (gorgonia); weights has parameters at rest. Which networks there are is the
// algorithms' matter. Sources: Kingma and Ba 2015 (Adam), Saxe et al. 2014 (orthogonal beginnings), Lillicrap et al. 2016 (soft
// targets).
package nn
