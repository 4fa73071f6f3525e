package aware

import "golang.org/x/sys/unix"

// threadSeconds is the CPU time of this thread, in seconds; ok is false where it cannot be read.
func threadSeconds() (seconds float64, ok bool) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, false
	}
	return float64(t.Nano()) / 1e9, true
}
