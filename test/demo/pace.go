package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"golang.org/x/sys/unix"
)

// A virtual machine is slower while others of its host are busy: the one that this was written on by nearly a half, for some
// seconds or for minutes. Then everything costs more CPU time, whoever sizes the pods, and a burst that meets such seconds says
// more of them than of its run. So the demo measures each second how fast the machine is, by the CPU time of a piece of work that
// is always the same. A slice whose requests met a machine that was much slower than when the load was fitted is measured again.
// That is decided by this figure alone, in all runs alike. All requests of a slice that counts are counted.
const (
	paceEvery = time.Second
	paceTimes = 25  // in a row, for the fit
	slowest   = 1.2 // times the CPU time at the fit; a slice that is slower is measured again
	tries     = 3   // of a slice, at most
)

// paceWork is the work: steps of arithmetic of which each needs the one before, and no memory, which others of this machine use.
// What these do does not change its CPU time (measured: 0.70 to 0.72 ms alone, with the other CPU busy, and in turns on one CPU).
func paceWork() uint64 {
	x := uint64(88172645463325252)
	for range 400_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// pace is the CPU time of the work. It was done once before, so that it is in the caches whatever ran meanwhile.
func pace() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	paced := paceWork()
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	paced += paceWork()
	after, err := threadTime()
	runtime.KeepAlive(paced) // or the compiler leaves the work out
	return after - before, err
}

// threadTime is the CPU time that this thread has used.
func threadTime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("reading a thread's CPU time: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// paceNow is the median of some measurements in a row.
func paceNow() (time.Duration, error) {
	var all []time.Duration
	for range paceTimes {
		one, err := pace()
		if err != nil {
			return 0, err
		}
		all = append(all, one)
	}
	return median(all), nil
}

// paced is the CPU time of the work at a time.
type paced struct {
	at   time.Time
	took time.Duration
}

// Pace is the same in a slice.
type Pace struct {
	Seconds float64       `json:"t"` // since the load began
	Took    time.Duration `json:"took_ns"`
}

// since is what was measured since a load began.
func since(began time.Time, all []paced) (paces []Pace) {
	for _, one := range all {
		if !one.at.Before(began) {
			paces = append(paces, Pace{one.at.Sub(began).Seconds(), one.took})
		}
	}
	return paces
}

// paceUntil measures until the context ends.
func paceUntil(ctx context.Context) (all []paced) {
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all
		case at := <-tick.C:
			if took, err := pace(); err == nil {
				all = append(all, paced{at, took})
			}
		}
	}
}

// paceFrom measures until it is asked for what it has.
func paceFrom(ctx context.Context) (so func() []paced) {
	ctx, stop := context.WithCancel(ctx)
	all := make(chan []paced, 1)
	go func() { all <- paceUntil(ctx) }()
	return sync.OnceValue(func() []paced {
		stop()
		return <-all
	})
}

// fastest is how fast the machine can be: the CPU time of the work at its fastest, without the fastest twentieth, which
// may be chance. It is 0 when nothing was measured.
func fastest(all []paced) time.Duration {
	if len(all) == 0 {
		return 0
	}
	var took []time.Duration
	for _, one := range all {
		took = append(took, one.took)
	}
	slices.Sort(took)
	return took[len(took)/20]
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

// median is 0 of nothing.
func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
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
