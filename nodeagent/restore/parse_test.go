package restore

import (
	"bytes"
	"testing"
)

// What parses is what was written: a line with one bit changed is another line,
// or none.
func FuzzParse(f *testing.F) {
	for _, l := range []line{{Put: &Entry{ID: "abc", Path: "kubepods/abc"}}, {Del: "abc"}} {
		b, err := format(l)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint(3))
	}
	f.Add([]byte("00000000 {}\n"), uint(0))
	f.Fuzz(func(t *testing.T, b []byte, bit uint) {
		l, ok := parse(b)
		if !ok {
			return
		}
		if l.Put == nil && l.Del == "" {
			t.Errorf("%q says nothing", b)
		}
		again, err := format(l)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := parse(again); !ok {
			t.Errorf("%q was written as %q, which does not parse", b, again)
		}
		// The checksum's own digits may be written in capitals: only the body
		// is flipped.
		if at := 9 + int(bit/8)%(len(b)-10); at < len(b)-1 {
			torn := bytes.Clone(b)
			torn[at] ^= 1 << (bit % 8)
			if _, ok := parse(torn); ok {
				t.Errorf("%q passes for %q", torn, b)
			}
		}
	})
}
