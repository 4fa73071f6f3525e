package perfmodel

import (
	"maps"
	"slices"
)

// Shared names a resource that the cores of a node share, in the words of iBench (Delimitrou and Kozyrakis, IISWC 2013).
type Shared string

// The shared resources whose interference has been measured.
const (
	Core      Shared = "cpu"   // the core itself: another thread runs on it
	L1Data    Shared = "l1d"   // its first-level data cache
	L1Code    Shared = "l1i"   // its first-level instruction cache
	L2        Shared = "l2"    // its second-level cache
	LastLevel Shared = "llc"   // the cache that all cores share
	Bandwidth Shared = "membw" // the way to memory
)

// Sensitivity says by what share work grows when a resource is under full pressure: 0.5 is half as long again.
type Sensitivity map[Shared]float64

// Pressure says how much of a resource the neighbours take: 0 none, 1 all, as an iBench kernel of full intensity does.
type Pressure map[Shared]float64

// Slowdown is by how much a run takes longer than alone, at least 1: the product over the resources of
// 1 + sensitivity * pressure, pressure being cut at 1. More pressure is never faster. Independent resources multiplying is
// an assumption: the measurements it is calibrated with press on one resource at a time.
func Slowdown(s Sensitivity, p Pressure) float64 {
	f := 1.0
	for _, r := range slices.Sorted(maps.Keys(p)) { // in one order, for the same bits
		f *= Slower(s[r], p[r])
	}
	return f
}

// Slower is the slowdown by one resource.
func Slower(sensitivity, pressure float64) float64 {
	return 1 + max(0, sensitivity)*min(1, max(0, pressure))
}
