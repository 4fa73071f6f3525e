// Package traces holds the rate traces that come with the repository; see its
// README.md for where they are from.
package traces

import (
	"bytes"
	"embed"

	"awarescale.dev/aware/test/apps/trace"
)

//go:embed *.txt
var files embed.FS

// Bursty3Min is three minutes with two bursts of about 3 times the usual rate,
// and Bursty20s twenty seconds with one. Both have a mean of 1 request per
// second.
func Bursty3Min() trace.Trace { return mustRead("bursty-3min.txt") }
func Bursty20s() trace.Trace  { return mustRead("bursty-20s.txt") }

// mustRead panics on an error: the files are part of the program, and a test
// reads them.
func mustRead(name string) trace.Trace {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	t, err := trace.Read(name, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	return t
}
