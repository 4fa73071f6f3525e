package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// archive writes a state as bytes, or reads it from them. Every struct lists its
// fields once, in a method that serves both directions: what is written and what
// is read cannot differ. Integers are varints, floats are 8 bytes, lists begin
// with their length, all little-endian.
//
// After the first error nothing more is read. A list grows as its elements are
// read, so that the memory is at most proportional to the bytes.
type archive struct {
	reading bool
	data    []byte // written so far, or left to read
	err     error  // the first one
}

// errCut is the end of the bytes before the end of the state.
var errCut = errors.New("the bytes end before the state does")

// fail notes an error, unless there is one.
func (a *archive) fail(format string, values ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, values...)
	}
}

// check fails when the state that was read breaks a rule.
func (a *archive) check(ok bool, format string, values ...any) {
	if a.reading && !ok {
		a.fail(format, values...)
	}
}

// take reads n bytes. After an error they are zero.
func (a *archive) take(n int) []byte {
	if a.err == nil && len(a.data) < n {
		a.err = errCut
	}
	if a.err != nil {
		return make([]byte, min(n, 8))
	}
	b := a.data[:n]
	a.data = a.data[n:]
	return b
}

// integer writes or reads an integer.
func integer[T ~int | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32](a *archive, v *T) {
	if !a.reading {
		a.data = binary.AppendVarint(a.data, int64(*v))
		return
	}
	if a.err != nil {
		return
	}
	x, n := binary.Varint(a.data)
	if n <= 0 {
		a.err = errCut
		return
	}
	if int64(T(x)) != x {
		a.fail("integer %d: it must be a %T", x, *v)
		return
	}
	a.data = a.data[n:]
	*v = T(x)
}

// serial writes or reads all 64 bits of an unsigned number.
func (a *archive) serial(v *uint64) {
	if !a.reading {
		a.data = binary.LittleEndian.AppendUint64(a.data, *v)
		return
	}
	*v = binary.LittleEndian.Uint64(a.take(8))
}

// largest bounds the absolute value of every number of a state. Byte-seconds are
// the largest ones, and stay far below it.
const largest = 1e30

// float writes or reads numbers, bit for bit.
func float[T ~float64](a *archive, values ...*T) {
	for _, v := range values {
		if !a.reading {
			a.data = binary.LittleEndian.AppendUint64(a.data, math.Float64bits(float64(*v)))
			continue
		}
		x := math.Float64frombits(binary.LittleEndian.Uint64(a.take(8)))
		a.check(math.Abs(x) <= largest, "number %v: it must be within ±%g", x, float64(largest))
		*v = T(x)
	}
}

// floats writes or reads the numbers of a slice whose length the Config
// determines.
func (a *archive) floats(values []float64) {
	for i := range values {
		float(a, &values[i])
	}
}

// amounts is floats for amounts of work or requests.
func (a *archive) amounts(values []float64) {
	for i := range values {
		float(a, &values[i])
		a.check(values[i] >= 0 && values[i] <= 1e15, "amount %v: it must be in [0, 1e15]", values[i])
	}
}

// bools writes or reads flags.
func (a *archive) bools(values ...*bool) {
	for _, v := range values {
		bit := uint8(0)
		if *v {
			bit = 1
		}
		integer(a, &bit)
		a.check(bit <= 1, "flag %d: it must be 0 or 1", bit)
		*v = bit == 1
	}
}

// text writes or reads a string.
func (a *archive) text(v *string) {
	n := len(*v)
	a.length(&n)
	if !a.reading {
		a.data = append(a.data, *v...)
		return
	}
	*v = ""
	if a.err == nil {
		*v = string(a.take(n))
	}
}

// length writes or reads the number of elements of a list, each of which takes a
// byte or more.
func (a *archive) length(n *int) {
	integer(a, n)
	if a.reading && a.err == nil && (*n < 0 || *n > len(a.data)) {
		a.fail("a list of %d elements in %d bytes", *n, len(a.data))
	}
}

// list writes or reads a list of any length.
func list[T any](a *archive, values *[]T, each func(v *T)) {
	n := len(*values)
	a.length(&n)
	if !a.reading {
		for i := range *values {
			each(&(*values)[i])
		}
		return
	}
	*values = nil
	for i := 0; i < n && a.err == nil; i++ {
		var v T
		each(&v)
		*values = append(*values, v)
	}
}

// indexes writes or reads a list of indexes into something of length n.
func (a *archive) indexes(values *[]int32, n int, what string) {
	list(a, values, func(v *int32) { a.index(v, 0, n, what) })
}

// index writes or reads an index in [low, n).
func (a *archive) index(v *int32, low, n int, what string) {
	integer(a, v)
	a.check(int(*v) >= low && int(*v) < n, "%s %d: it must be from %d to %d", what, *v, low, n-1)
}

// size writes or reads a Size that must be above zero.
func (a *archive) size(v *mdp.Size, what string) {
	a.anySize(v)
	a.check(v.CPU > 0 && v.Memory > 0, "%s %v: it must be above zero", what, *v)
}

// anySize writes or reads a Size.
func (a *archive) anySize(v *mdp.Size) {
	integer(a, &v.CPU)
	integer(a, &v.Memory)
}

// time writes or reads a time in UTC.
func (a *archive) time(v *time.Time) {
	seconds, rest := v.Unix(), v.Nanosecond()
	integer(a, &seconds)
	integer(a, &rest)
	a.check(rest >= 0 && rest < 1e9, "nanoseconds %d: they must be in [0, 1e9)", rest)
	if a.reading && a.err == nil {
		*v = time.Unix(seconds, int64(rest)).UTC()
	}
}

// state writes or reads a State.
func (a *archive) state(s *mdp.State) {
	a.time(&s.At)
	integer(a, &s.Observed)
	for signal := range mdp.Signals() {
		if signal.Integer() {
			v := signal.Int(s)
			integer(a, &v)
			signal.SetInt(s, v)
		} else {
			v := signal.Float(s)
			float(a, &v)
			signal.SetFloat(s, v)
		}
	}
}

// checksum ends what is written.
func (a *archive) checksum() []byte {
	return binary.LittleEndian.AppendUint32(a.data, crc32.Checksum(a.data, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// open begins to read what begins with a head and ends with a checksum.
func open(data []byte, head string) (*archive, error) {
	if len(data) < len(head)+4 {
		return nil, errCut
	}
	if got := string(data[:len(head)]); got != head {
		return nil, fmt.Errorf("it begins with %q: it must begin with %q", got, head)
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("checksum %08x: the bytes have %08x", sum, got)
	}
	return &archive{reading: true, data: body[len(head):]}, nil
}

// end is the error of reading; nothing may be left.
func (a *archive) end() error {
	a.check(len(a.data) == 0, "%d bytes are left over", len(a.data))
	return a.err
}
