// Package pace measures how fast this machine is, by the CPU time of a piece of work that is always the same.
//
// A virtual machine is slower while others of its host are busy: the one that this was written on by nearly a half, for some
// seconds or for minutes. Then everything costs more CPU time, and a measurement that meets such seconds says more of them than
// of what was measured. A bench that watches the pace can say so, or measure again.
package pace

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	every = time.Second
	times = 25 // in a row, for Now
)

// Fast is how much more CPU time than at its fastest the work takes, at most, on a machine that is not slow.
const Fast = 1.1

// Sample is the CPU time of the work at a time.
type Sample struct {
	At   time.Time
	Took time.Duration
}

// work is steps of arithmetic of which each needs the one before, and no memory, which others of this machine use.
// What these do does not change its CPU time (measured: 0.70 to 0.72 ms alone, with the other CPU busy, and in turns on one CPU).
func work() uint64 {
	x := uint64(88172645463325252)
	for range 400_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// once is the CPU time of the work. It was done once before, so that it is in the caches whatever ran meanwhile.
func once() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done := work()
	before, err := threadTime()
	if err != nil {
		return 0, err
	}
	done += work()
	after, err := threadTime()
	runtime.KeepAlive(done) // or the compiler leaves the work out
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

// Now is the median of some measurements in a row.
func Now() (time.Duration, error) {
	var all []time.Duration
	for range times {
		one, err := once()
		if err != nil {
			return 0, err
		}
		all = append(all, one)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// Watch measures once in each second until the context ends, or it is asked for what it has.
func Watch(ctx context.Context) (stop func() []Sample) {
	ctx, cancel := context.WithCancel(ctx)
	samples := make(chan []Sample, 1)
	go func() {
		var all []Sample
		defer func() { samples <- all }()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				if took, err := once(); err == nil {
					all = append(all, Sample{at, took})
				}
			}
		}
	}()
	return sync.OnceValue(func() []Sample {
		cancel()
		return <-samples
	})
}

// Fastest is how fast the machine can be: the CPU time of the work at its fastest, without the fastest twentieth, which
// may be chance. It is 0 when nothing was measured.
func Fastest(all []Sample) time.Duration {
	if len(all) == 0 {
		return 0
	}
	var took []time.Duration
	for _, one := range all {
		took = append(took, one.Took)
	}
	slices.Sort(took)
	return took[len(took)/20]
}

// Between is the mean CPU time of the work in a time, 0 when it was not measured then.
func Between(all []Sample, from, to time.Time) time.Duration {
	sum, n := time.Duration(0), 0
	for _, one := range all {
		if !one.At.Before(from) && one.At.Before(to) {
			sum, n = sum+one.Took, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}
