package main

import (
	"time"

	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/perf/pace"
)

// A burst that meets slow seconds of the machine says more of them than of its run, and a virtual machine has such seconds and
// minutes. So the demo measures each second how fast the machine is. A slice whose requests met a machine that was much slower
// than when the load was fitted is measured again. That is decided by this figure alone, in all runs alike. All requests of a
// slice that counts are counted.
const (
	slowest = 1.2 // times the CPU time at the fit; a slice that is slower is measured again
	tries   = 3   // of a slice, at most
)

// Pace is how fast the machine was in a second of a slice.
type Pace struct {
	Seconds float64       `json:"t"` // since the load began
	Took    time.Duration `json:"took_ns"`
}

// since is what was measured since a load began.
func since(began time.Time, all []pace.Sample) (paces []Pace) {
	for _, one := range all {
		if !one.At.Before(began) {
			paces = append(paces, Pace{one.At.Sub(began).Seconds(), one.Took})
		}
	}
	return paces
}

// slowdown is how much slower the machine was than at the fit, for the requests of a load: each second
// counts by its requests. It is nil when it is not known of most of them.
func slowdown(all []Pace, seconds []load.Second, fit time.Duration) *float64 {
	took := map[int]time.Duration{}
	for _, one := range all {
		took[int(one.Seconds)] = one.Took
	}
	sum, n, requests := 0., 0., 0.
	for _, second := range seconds {
		due := float64(second.IntendedRPS)
		requests += due
		if t := took[second.Second]; t > 0 && fit > 0 {
			sum, n = sum+due*float64(t)/float64(fit), n+due
		}
	}
	if n == 0 || n < requests/2 {
		return nil
	}
	return known(sum / n)
}

// steady plays a slice until the machine was about as fast as at the fit, a few times at most, and as long as there are repeats
// left in the demo. What counts is the try in which the machine was fastest.
func steady(play func() (*Record, error), repeats *int, say func(format string, args ...any)) (*Record, error) {
	var best *Record
	for try := 1; ; try++ {
		record, err := play()
		if err != nil {
			return nil, err
		}
		slower := record.Slowdown
		if best == nil || slower != nil && *slower < *best.Slowdown {
			best = record
		}
		best.Tries = try
		if slower == nil || *slower <= slowest || try == tries || *repeats == 0 {
			return best, nil
		}
		*repeats--
		say("%s of seed %d: %s, and the machine was %.2f times slower than when the load was fitted: once more",
			record.name(), record.Seed, record.brief(), *slower)
	}
}
