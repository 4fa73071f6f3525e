//go:build !linux

package aware

// threadSeconds is not known here.
func threadSeconds() (seconds float64, ok bool) { return 0, false }
