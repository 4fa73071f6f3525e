package trajectory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// bodyVersion is the version of the body of a transition in an SQLite store.
// Varints have the format of encoding/binary: a uvarint is unsigned, a varint
// is zigzag. A float is its 8 bytes of IEEE 754 bits, little-endian.
//
//	transition = version flags effect reward state action state
//	version    = 1 byte, 2
//	flags      = 1 byte: 1 terminated, 2 truncated, 4 the reward is known
//	effect     = 1 byte; absent in version 1, whose rewards are all known and whose actions were all applied
//	reward     = float
//	state      = at observed fields
//	at         = varint Unix seconds, uvarint nanoseconds
//	observed   = uvarint, a bit for each signal
//	fields     = of each signal in observed, by its number: a varint, or a float for a ratio or a rate
//	action     = sets fields clipped
//	sets       = uvarint, a bit for each knob
//	clipped    = uvarint
//
// The number and type of a signal never change within a version. A new signal
// in mdp gets the next number; older bodies do not observe it.
const bodyVersion = 2

// The flags of a body.
const (
	flagTerminated = 1 << iota
	flagTruncated
	flagRewardKnown
)

func bitsOf(v float64) uint64  { return math.Float64bits(v) }
func floatOf(b uint64) float64 { return math.Float64frombits(b) }

// appendBody appends the encoding of a transition that passed [row.check].
func appendBody(b []byte, t *mdp.Transition) []byte {
	var flags byte
	if t.Terminated {
		flags |= flagTerminated
	}
	if t.Truncated {
		flags |= flagTruncated
	}
	if t.RewardKnown {
		flags |= flagRewardKnown
	}
	b = append(b, bodyVersion, flags, byte(t.Effect))
	b = binary.LittleEndian.AppendUint64(b, bitsOf(float64(t.Reward)))
	b = appendState(b, &t.State)
	action := asState(t.Action)
	b = binary.AppendUvarint(b, uint64(action.Observed))
	b = appendFields(b, &action)
	b = binary.AppendUvarint(b, uint64(t.Action.Clipped))
	return appendState(b, &t.Next)
}

// appendState appends a state.
func appendState(b []byte, s *mdp.State) []byte {
	b = binary.AppendVarint(b, s.At.Unix())
	b = binary.AppendUvarint(b, uint64(s.At.Nanosecond()))
	b = binary.AppendUvarint(b, uint64(s.Observed))
	return appendFields(b, s)
}

// appendFields appends the observed signals.
func appendFields(b []byte, s *mdp.State) []byte {
	for one := range s.Observed.Signals() {
		if one.Integer() {
			b = binary.AppendVarint(b, one.Int(s))
		} else {
			b = binary.LittleEndian.AppendUint64(b, bitsOf(one.Float(s)))
		}
	}
	return b
}

// decodeBody decodes a body. It rejects everything that appendBody does not
// write, except varints that are longer than necessary.
func decodeBody(b []byte) (mdp.Transition, error) {
	var t mdp.Transition
	if len(b) < 2 {
		return t, fmt.Errorf("a body of %d bytes: it has at least a version and flags", len(b))
	}
	version, flags := b[0], b[1]
	rest := b[2:]
	known := byte(flagTerminated | flagTruncated | flagRewardKnown)
	switch version {
	case 1:
		known = flagTerminated | flagTruncated
		t.RewardKnown = true
		t.Effect = mdp.Applied
	case bodyVersion:
		if len(rest) == 0 || !mdp.Effect(rest[0]).Known() {
			return t, errors.New("a body without an effect, or with one that is not known")
		}
		t.RewardKnown = flags&flagRewardKnown != 0
		t.Effect = mdp.Effect(rest[0])
		rest = rest[1:]
	default:
		return t, fmt.Errorf("a body of version %d: this program reads versions 1 and %d", version, bodyVersion)
	}
	if flags&^known != 0 {
		return mdp.Transition{}, fmt.Errorf("flags %#x: only %#x are known", flags, known)
	}
	t.Terminated = flags&flagTerminated != 0
	t.Truncated = flags&flagTruncated != 0
	r := bodyReader{rest: rest}
	t.Reward = mdp.Reward(floatOf(r.float()))
	t.State = r.state()
	action := r.fields(mdp.State{Observed: r.set(mdp.Knobs)})
	clipped := r.unsigned(math.MaxUint16)
	t.Action = asAction(action, mdp.Clips(clipped))
	t.Next = r.state()
	if r.err == nil && len(r.rest) > 0 {
		r.err = fmt.Errorf("%d bytes after the end", len(r.rest))
	}
	if r.err != nil {
		return mdp.Transition{}, r.err
	}
	return t, nil
}

// bodyReader reads the parts of a body. After its first error it returns zeros.
type bodyReader struct {
	rest []byte
	err  error
}

var errShort = errors.New("the body ends too early, or a number in it is too long")

// take skips n bytes. n is the result of a varint function of encoding/binary;
// it is zero or negative after an error.
func (r *bodyReader) take(n int) bool {
	if r.err == nil && (n <= 0 || n > len(r.rest)) {
		r.err = errShort
	}
	if r.err != nil {
		return false
	}
	r.rest = r.rest[n:]
	return true
}

// unsigned reads a uvarint of at most highest.
func (r *bodyReader) unsigned(highest uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if !r.take(n) {
		return 0
	}
	if v > highest {
		r.err = fmt.Errorf("%d where at most %d can be", v, highest)
		return 0
	}
	return v
}

// signed reads a varint.
func (r *bodyReader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if !r.take(n) {
		return 0
	}
	return v
}

// float reads the bits of a finite float.
func (r *bodyReader) float() uint64 {
	at := r.rest
	if !r.take(8) {
		return 0
	}
	bits := binary.LittleEndian.Uint64(at)
	if v := floatOf(bits); !finite(v) {
		r.err = fmt.Errorf("%v where a finite number must be", v)
	}
	return bits
}

// set reads a set with members of only the given set.
func (r *bodyReader) set(of mdp.Set) mdp.Set {
	s := mdp.Set(r.unsigned(math.MaxUint32))
	if extra := s.Without(of); extra != 0 && r.err == nil {
		r.err = fmt.Errorf("a set with %#x, where only %#x can be", uint32(extra), uint32(of))
	}
	return s
}

// state reads a state.
func (r *bodyReader) state() mdp.State {
	seconds, nanos := r.signed(), r.unsigned(uint64(time.Second-1))
	return r.fields(mdp.State{At: time.Unix(seconds, int64(nanos)).UTC(), Observed: r.set(mdp.All)})
}

// fields reads the signals in s.Observed into s.
func (r *bodyReader) fields(s mdp.State) mdp.State {
	for one := range s.Observed.Signals() {
		switch {
		case r.err != nil:
		case one.Integer():
			one.SetInt(&s, r.signed())
		default:
			one.SetFloat(&s, floatOf(r.float()))
		}
	}
	return s
}
