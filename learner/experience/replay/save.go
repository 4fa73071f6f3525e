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
//	capacity | numbers in a state | in an action | transitions held | place that is written next | random source, 20 bytes
//	each transition, the oldest first: state | action | next | reward | discount | 1 byte: 1 terminated + 2 truncated
//	Prioritised only: the priority of each place
//	CRC-32C of all before, 4 bytes
//
// The sizes must be those of the buffer that is restored, so foreign bytes cannot ask for more memory than it has.

const sourceSize = 20

// rowSize is how many bytes a transition takes.
func (r *ring) rowSize() int { return 8*(2*r.config.State+r.config.Action+2) + 1 }

// size is how many bytes save writes.
func (r *ring) size() int { return 5*8 + sourceSize + r.held*r.rowSize() }

func (r *ring) save(b *writer) error {
	for _, n := range [...]int{r.config.Capacity, r.config.State, r.config.Action, r.held, r.head} {
		b.count(n)
	}
	source, err := r.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("random source: %w", err)
	}
	b.bytes = append(b.bytes, source...)
	for k := range r.held {
		i := r.place(k)
		b.numbers(r.state[i*r.config.State : (i+1)*r.config.State])
		b.numbers(r.action[i*r.config.Action : (i+1)*r.config.Action])
		b.numbers(r.next[i*r.config.State : (i+1)*r.config.State])
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
	}
	return nil
}

// place is where the k-th of those held is, the oldest being 0.
func (r *ring) place(k int) int {
	return (r.head - r.held + k + r.config.Capacity) % r.config.Capacity
}

// load reads a ring of r's sizes. When b has an error in the end, it is of no use.
func (r *ring) load(b *reader) *ring {
	c := r.config
	capacity, state, action := b.count(), b.count(), b.count()
	b.must(capacity == uint64(c.Capacity) && state == uint64(c.State) && action == uint64(c.Action),
		"capacity %d, states of %d and actions of %d numbers: it must be %d, %d and %d", capacity, state, action, c.Capacity, c.State, c.Action)
	held, head := b.count(), b.count()
	b.must(held <= uint64(c.Capacity), "%d transitions: it must be at most %d", held, c.Capacity)
	b.must(head < uint64(c.Capacity), "next place %d: it must be below %d", head, c.Capacity)
	loaded := &ring{config: c}
	if source := b.take(sourceSize); source != nil {
		if err := loaded.source.UnmarshalBinary(source); err != nil {
			b.must(false, "random source: %w", err)
		}
	}
	if b.err == nil && held*uint64(r.rowSize()) > uint64(len(b.bytes)) {
		b.must(false, "cut short: %d bytes for %d transitions", len(b.bytes), held)
	}
	if b.err != nil {
		return loaded
	}
	loaded.grow(c.Capacity)
	loaded.held, loaded.head = int(held), int(head)
	for k := 0; k < loaded.held && b.err == nil; k++ {
		i := loaded.place(k)
		t := Transition{
			State:  loaded.state[i*c.State : (i+1)*c.State],
			Action: loaded.action[i*c.Action : (i+1)*c.Action],
			Next:   loaded.next[i*c.State : (i+1)*c.State],
		}
		b.numbers(t.State)
		b.numbers(t.Action)
		b.numbers(t.Next)
		t.Reward, t.Discount = b.number(), b.number()
		ends := b.take(1)
		if b.err != nil {
			break
		}
		b.must(ends[0] <= 3, "transition %d: ends %d: it must be from 0 to 3", k, ends[0])
		if err := t.check(c.State, c.Action); err != nil {
			b.must(false, "transition %d: %w", k, err)
		}
		loaded.reward[i], loaded.discount[i] = t.Reward, t.Discount
		loaded.terminated[i], loaded.truncated[i] = ends[0]&1 != 0, ends[0]&2 != 0
	}
	return loaded
}

// mustBeFilled from place 0 on, as a buffer is, which has never lost any.
func (r *ring) mustBeFilled(b *reader) {
	b.must(r.held == r.config.Capacity || r.head == r.held, "next place %d after %d transitions: there would be a hole", r.head, r.held)
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

func (b *writer) seal() []byte { return seal(b.bytes) }

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, checksum(b)) }

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// reader gives zeros from its first error on.
type reader struct {
	bytes []byte // that are left
	err   error
}

func newReader(header string, data []byte) *reader {
	if len(data) < len(header)+4 {
		return &reader{err: fmt.Errorf("cut short: header and checksum alone are %d bytes", len(header)+4)}
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

// must makes an error of what does not hold, unless there is one.
func (b *reader) must(holds bool, format string, a ...any) {
	if !holds && b.err == nil {
		b.err = fmt.Errorf(format, a...)
	}
}

// take gives the next n bytes, or nil.
func (b *reader) take(n int) []byte {
	b.must(len(b.bytes) >= n, "cut short: %d bytes are left of %d", len(b.bytes), n)
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

func (b *reader) number() float64 { return math.Float64frombits(b.count()) }

func (b *reader) numbers(v []float64) {
	for i := range v {
		v[i] = b.number()
	}
}

// end gives the error, also when something is left over.
func (b *reader) end() error {
	b.must(len(b.bytes) == 0, "%d bytes are left over", len(b.bytes))
	return b.err
}
