package perfmodel

import (
	"maps"
	"slices"
)

// Shared is a resource that the cores of a node share. The names are those of
// iBench (Delimitrou and Kozyrakis, IISWC 2013).
type Shared string

// The shared resources whose interference has been measured.
const (
	Core      Shared = "cpu"   // the core itself: another thread runs on it
	L1Data    Shared = "l1d"   // its first-level data cache
	L1Code    Shared = "l1i"   // its first-level instruction cache
	L2        Shared = "l2"    // its second-level cache
	LastLevel Shared = "llc"   // the cache that all cores share
	Bandwidth Shared = "membw" // memory bandwidth
)

// Sensitivity is the relative increase of the work when a resource is under
// full pressure: 0.5 is 50 % more.
type Sensitivity map[Shared]float64

// Pressure is the share of a resource that the neighbours use: 0 is none, 1 is
// the use of an iBench kernel of full intensity.
type Pressure map[Shared]float64

// Slowdown is the duration of a run divided by its duration without neighbours;
// it is at least 1. It is the product over the resources of 1 + sensitivity *
// pressure, with a pressure of at most 1. More pressure never makes a run
// faster. The product is an assumption: the measurements used for calibration
// put pressure on one resource at a time.
func Slowdown(s Sensitivity, p Pressure) float64 {
	f := 1.0
	for _, r := range slices.Sorted(maps.Keys(p)) { // a fixed order gives the same bits
		f *= Slower(s[r], p[r])
	}
	return f
}

// Slower is the slowdown caused by one resource.
func Slower(sensitivity, pressure float64) float64 {
	return 1 + max(0, sensitivity)*min(1, max(0, pressure))
}
