package replay

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// What is saved, little-endian, numbers and counts in 8 bytes:
//
//	header, which names kind and version
//	Prioritised only: alpha | epsilon | beta | largest priority
//	capacity | numbers in a state | in an action | choices of a mask | transitions held | place that is written next
//	random source, 20 bytes | 1 byte: 1 when there are masks
//	each transition, the oldest first: state | action | next | reward | discount | 1 byte: 1 terminated + 2 truncated
//	    and, when there are masks, 1 byte for each choice: 1 when it is legal in next
//	Prioritised only: the priority of each place
//	CRC-32C of all before, 4 bytes
//
// The sizes must be those of the buffer that is restored, so that damaged bytes
// cannot ask for more memory than the buffer may have.

const sourceSize = 20

// rowSize is how many bytes a transition takes.
func (r *ring) rowSize() int {
	size := 8*(2*r.config.State+r.config.Action+2) + 1
	if r.legal != nil {
		size += r.config.NumActions
	}
	return size
}

// size is how many bytes save writes.
func (r *ring) size() int { return 6*8 + sourceSize + 1 + r.held*r.rowSize() }

func (r *ring) save(b *writer) error {
	c := r.config
	for _, n := range [...]int{c.Capacity, c.State, c.Action, c.NumActions, r.held, r.head} {
		b.count(n)
	}
	source, err := r.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("random source: %w", err)
	}
	b.bytes = append(b.bytes, source...)
	b.flag(r.legal != nil)
	for k := range r.held {
		i := r.place(k)
		b.numbers(r.state[i*c.State : (i+1)*c.State])
		b.numbers(r.action[i*c.Action : (i+1)*c.Action])
		b.numbers(r.next[i*c.State : (i+1)*c.State])
		b.number(r.reward[i])
		b.number(r.discount[i])
		var ends byte
		if r.terminated[i] {
			ends |= 1
		}
		if r.truncated[i] {
			ends |= 2
		}
		b.bytes = append(b.bytes, ends)
		if r.legal != nil {
			for _, legal := range r.legal[i*c.NumActions : (i+1)*c.NumActions] {
				b.flag(legal)
			}
		}
	}
	return nil
}

// place is where the k-th of those held is, the oldest being 0.
func (r *ring) place(k int) int {
	return (r.head - r.held + k + r.config.Capacity) % r.config.Capacity
}

// load reads a ring of r's sizes. When b has an error in the end, the ring is
// incomplete and must not be used.
func (r *ring) load(b *reader) *ring {
	c := r.config
	sizes := [4]uint64{b.count(), b.count(), b.count(), b.count()}
	want := [4]uint64{uint64(c.Capacity), uint64(c.State), uint64(c.Action), uint64(c.NumActions)}
	b.must(sizes == want, "capacity, numbers in a state and in an action, choices are %d: it must be %d",
		sizes, want)
	held, head := b.count(), b.count()
	b.must(held <= uint64(c.Capacity), "%d transitions: it must be at most %d", held, c.Capacity)
	b.must(head < uint64(c.Capacity), "next place %d: it must be below %d", head, c.Capacity)
	loaded := &ring{config: c}
	if source := b.take(sourceSize); source != nil {
		if err := loaded.source.UnmarshalBinary(source); err != nil {
			b.must(false, "random source: %w", err)
		}
	}
	masked := b.flag()
	b.must(!masked || c.NumActions > 0, "it has masks: there must be none")
	if masked && b.err == nil {
		loaded.mask()
	}
	if b.err == nil && held*uint64(loaded.rowSize()) > uint64(len(b.bytes)) {
		b.must(false, "truncated data: %d bytes for %d transitions", len(b.bytes), held)
	}
	if b.err != nil {
		return loaded
	}
	loaded.held, loaded.head = int(held), int(head)
	if loaded.held > loaded.head {
		loaded.grow(c.Capacity)
	} else {
		loaded.grow(loaded.head)
	}
	t := Transition{
		State:  make([]float64, c.State),
		Action: make([]float64, c.Action),
		Next:   make([]float64, c.State),
	}
	if masked {
		t.NextLegal = make([]bool, c.NumActions)
	}
	for k := 0; k < loaded.held && b.err == nil; k++ {
		b.transition(k, &t, c)
		if b.err == nil {
			loaded.write(loaded.place(k), &t)
		}
	}
	return loaded
}

// transition reads the k-th transition.
func (b *reader) transition(k int, t *Transition, c Config) {
	b.numbers(t.State)
	b.numbers(t.Action)
	b.numbers(t.Next)
	t.Reward, t.Discount = b.number(), b.number()
	if ends := b.take(1); ends != nil {
		b.must(ends[0] <= 3, "transition %d: ends %d: it must be from 0 to 3", k, ends[0])
		t.Terminated, t.Truncated = ends[0]&1 != 0, ends[0]&2 != 0
	}
	for j := range t.NextLegal {
		t.NextLegal[j] = b.flag()
	}
	if b.err != nil {
		return
	}
	if err := t.check(c); err != nil {
		b.must(false, "transition %d: %w", k, err)
	}
}

// mustBeFilled from place 0 on, as a buffer is, which never removes any.
func (r *ring) mustBeFilled(b *reader) {
	b.must(r.held == r.config.Capacity || r.head == r.held,
		"next place %d after %d transitions: there would be a hole", r.head, r.held)
}

// take makes r what was loaded.
func (r *ring) take(loaded *ring) {
	random := r.random // which draws from r.source
	*r = *loaded
	r.random = random
}

type writer struct{ bytes []byte }

func newWriter(header string, size int) *writer {
	return &writer{bytes: append(make([]byte, 0, len(header)+size+4), header...)}
}

func (b *writer) count(n int) { b.bytes = binary.LittleEndian.AppendUint64(b.bytes, uint64(n)) }

func (b *writer) number(x float64) {
	b.bytes = binary.LittleEndian.AppendUint64(b.bytes, math.Float64bits(x))
}

func (b *writer) numbers(v []float64) {
	for _, x := range v {
		b.number(x)
	}
}

func (b *writer) flag(set bool) {
	if set {
		b.bytes = append(b.bytes, 1)
	} else {
		b.bytes = append(b.bytes, 0)
	}
}

func (b *writer) seal() []byte { return seal(b.bytes) }

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, checksum(b)) }

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// reader returns zeros after its first error.
type reader struct {
	bytes []byte // that are left
	err   error
}

func newReader(header string, data []byte) *reader {
	if len(data) < len(header)+4 {
		return &reader{err: fmt.Errorf("truncated data: header and checksum alone are %d bytes", len(header)+4)}
	}
	if got := string(data[:len(header)]); got != header {
		return &reader{err: fmt.Errorf("it begins with %q: it must begin with %q", got, header)}
	}
	b, want := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if got := checksum(b); got != want {
		return &reader{err: fmt.Errorf("checksum %08x: the bytes have %08x", want, got)}
	}
	return &reader{bytes: b[len(header):]}
}

// must records an error when a condition does not hold, unless there is one
// already.
func (b *reader) must(holds bool, format string, a ...any) {
	if !holds && b.err == nil {
		b.err = fmt.Errorf(format, a...)
	}
}

// take gives the next n bytes, or nil.
func (b *reader) take(n int) []byte {
	b.must(len(b.bytes) >= n, "truncated data: %d bytes are left of %d", len(b.bytes), n)
	if b.err != nil {
		return nil
	}
	taken := b.bytes[:n]
	b.bytes = b.bytes[n:]
	return taken
}

func (b *reader) count() uint64 {
	if taken := b.take(8); taken != nil {
		return binary.LittleEndian.Uint64(taken)
	}
	return 0
}

func (b *reader) flag() bool {
	taken := b.take(1)
	if taken == nil {
		return false
	}
	b.must(taken[0] <= 1, "a flag of %d: it must be 0 or 1", taken[0])
	return taken[0] == 1
}

func (b *reader) number() float64 { return math.Float64frombits(b.count()) }

func (b *reader) numbers(v []float64) {
	for i := range v {
		v[i] = b.number()
	}
}

// end returns the error, also when bytes are left over.
func (b *reader) end() error {
	b.must(len(b.bytes) == 0, "%d bytes are left over", len(b.bytes))
	return b.err
}
