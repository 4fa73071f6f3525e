// Package nn is what happens to the parameters of networks: initialisation,
// optimisation, soft updates of targets, and normalisation of observations.
// Everything works on flat slices of float64 and does not depend on what
// computed the gradient.
//
// Package kernel (by hand) and package graph (gorgonia) compute; package
// weights stores parameters in files. The algorithms decide which networks
// there are. Sources: Kingma and Ba 2015 (Adam), Saxe et al. 2014 (orthogonal
// initialisation), Lillicrap et al. 2016 (soft updates).
package nn
