package weights

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// State is what a learner's state is made of, so that all of it can be saved, and
// be restored whole or not at all. Names are the learner's; those of Numbers,
// Parts and Replay are one space.
//
// A state has two parts. The policy is everything that decides and learns, of
// less than a MiB; the replay is the experience that was collected, of many.
// Save writes both, SavePolicy the policy alone. A learner that is restored from
// a policy alone has an empty replay.
type State struct {
	Algorithm string // whose state it is; another one's is refused
	Encoding  int    // version of how it is written; another one is refused
	// Identity is what must be equal for a state to make sense in this learner,
	// such as shapes, activations, bounds and variants. Settings that may change
	// from run to run, such as learning rates, are not in it. It is compared as
	// JSON.
	Identity any
	Settings any // all settings, written beside the state as JSON for people to read

	Numbers map[string][]float64 // restored in place; their lengths are the learner's shape
	Counts  map[string]Count
	Values  map[string]*float64
	Parts   map[string]Part
	Replay  map[string]Experience
}

// Experience is a Part that belongs to the replay.
type Experience interface {
	Part
	// Reset empties it.
	Reset()
}

// Count is a whole number of at least 0 and, unless Below is 0, below it.
type Count struct {
	At    *int
	Below int
}

// Part is something that saves itself, such as a random source or a buffer.
// When it cannot be restored nothing of it has changed.
type Part interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// scalars are the State's single numbers, as metadata.
type scalars struct {
	Counts map[string]int     `json:"counts,omitempty"`
	Values map[string]float64 `json:"values,omitempty"`
}

// NewState is one with nothing in it.
func NewState(algorithm string, encoding int, identity, settings any) State {
	return State{
		Algorithm: algorithm,
		Encoding:  encoding,
		Identity:  identity,
		Settings:  settings,
		Numbers:   map[string][]float64{},
		Counts:    map[string]Count{},
		Values:    map[string]*float64{},
		Parts:     map[string]Part{},
		Replay:    map[string]Experience{},
	}
}

// replayKey is the metadata that says whether the replay is in a file.
const replayKey = "replay"

// Save copies the whole state.
func (s State) Save() (File, error) {
	f, err := s.SavePolicy()
	if err != nil || len(s.Replay) == 0 {
		return f, err
	}
	for name, p := range s.Replay {
		blob, err := p.MarshalBinary()
		if err != nil {
			return File{}, fmt.Errorf("saving %s: %s: %w", s.Algorithm, name, err)
		}
		f.Blobs[name] = blob
	}
	f.Meta[replayKey] = "included"
	return f, nil
}

// SavePolicy copies the state without the replay.
func (s State) SavePolicy() (File, error) {
	fail := func(err error) (File, error) { return File{}, fmt.Errorf("saving %s: %w", s.Algorithm, err) }
	f := File{
		Meta:    map[string]string{"algorithm": s.Algorithm, "encoding": fmt.Sprint(s.Encoding)},
		Tensors: map[string]Tensor{}, Blobs: map[string][]byte{},
	}
	one := scalars{Counts: map[string]int{}, Values: map[string]float64{}}
	for name, v := range s.Counts {
		one.Counts[name] = *v.At
	}
	for name, v := range s.Values {
		one.Values[name] = *v
	}
	if len(s.Replay) > 0 {
		f.Meta[replayKey] = "left out"
	}
	identity, err := canonical(s.Identity)
	if err != nil {
		return fail(err)
	}
	f.Meta["identity"] = identity
	for key, v := range map[string]any{"settings": s.Settings, "state": one} {
		text, err := json.Marshal(v)
		if err != nil {
			return fail(err)
		}
		f.Meta[key] = string(text)
	}
	for name, data := range s.Numbers {
		f.Tensors[name] = Tensor{Shape: []int{len(data)}, Data: slices.Clone(data)}
	}
	for name, p := range s.Parts {
		blob, err := p.MarshalBinary()
		if err != nil {
			return fail(fmt.Errorf("%s: %w", name, err))
		}
		f.Blobs[name] = blob
	}
	return f, nil
}

// Restore brings back what Save or SavePolicy gave, of a learner of the same
// Identity. From a policy alone the replay is empty afterwards. On an error
// nothing has changed.
func (s State) Restore(f File) error {
	if err := s.restore(f); err != nil {
		return fmt.Errorf("restoring %s: %w", s.Algorithm, err)
	}
	return nil
}

func (s State) restore(f File) error {
	if f.Meta["algorithm"] != s.Algorithm || f.Meta["encoding"] != fmt.Sprint(s.Encoding) {
		return fmt.Errorf("weights of %q, encoding %q: it must be %q, encoding %d", f.Meta["algorithm"],
			f.Meta["encoding"], s.Algorithm, s.Encoding)
	}
	if err := checkIdentity(f.Meta["identity"], s.Identity); err != nil {
		return err
	}
	var one scalars
	if err := json.Unmarshal([]byte(f.Meta["state"]), &one); err != nil {
		return fmt.Errorf("metadata \"state\": %w", err)
	}
	for name, c := range s.Counts {
		switch v, ok := one.Counts[name]; {
		case !ok:
			return fmt.Errorf("metadata \"state\": %s is missing", name)
		case v < 0 || c.Below > 0 && v >= c.Below:
			return fmt.Errorf("metadata \"state\": %s is %d: it must not be negative, and below %d", name,
				v, c.Below)
		}
	}
	for name := range s.Values {
		if _, ok := one.Values[name]; !ok {
			return fmt.Errorf("metadata \"state\": %s is missing", name)
		}
	}
	read := map[string][]float64{}
	for name, to := range s.Numbers {
		from, err := f.Take(name, len(to))
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(from, func(v float64) bool { return v-v != 0 }); i >= 0 {
			return fmt.Errorf("tensor %q: number %d is %v: it must be finite", name, i, from[i])
		}
		read[name] = from
	}
	if err := s.restoreParts(f); err != nil {
		return err
	}
	for name, from := range read {
		copy(s.Numbers[name], from)
	}
	for name, to := range s.Counts {
		*to.At = one.Counts[name]
	}
	for name, to := range s.Values {
		*to = one.Values[name]
	}
	return nil
}

// restoreParts restores one part after the other. When one fails, those before it
// are brought back.
func (s State) restoreParts(f File) error {
	all := map[string]Part{}
	maps.Copy(all, s.Parts)
	alone := len(s.Replay) > 0 && f.Meta[replayKey] == "left out"
	if !alone {
		for name, p := range s.Replay {
			all[name] = p
		}
	}
	if err := restoreAll(all, f); err != nil {
		return err
	}
	if alone {
		for _, p := range s.Replay {
			p.Reset()
		}
	}
	return nil
}

func restoreAll(all map[string]Part, f File) error {
	names := slices.Sorted(maps.Keys(all))
	before := map[string][]byte{}
	for i, name := range names {
		blob, err := f.Blob(name)
		if err == nil && i < len(names)-1 { // the last one changes only when all is well
			before[name], err = all[name].MarshalBinary()
		}
		if err == nil {
			err = all[name].UnmarshalBinary(blob)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", name, err)
		for _, done := range names[:i] {
			if back := all[done].UnmarshalBinary(before[done]); back != nil {
				err = fmt.Errorf("%w; and restoring %s as it was: %w", err, done, back)
			}
		}
		return err
	}
	return nil
}

// Flags are a learner's booleans, as a Part: Length of them, or none where they
// are optional.
type Flags struct {
	At       *[]bool
	Length   int
	Optional bool
}

// MarshalBinary is a byte for each.
func (f Flags) MarshalBinary() ([]byte, error) {
	b := make([]byte, len(*f.At))
	for i, v := range *f.At {
		if v {
			b[i] = 1
		}
	}
	return b, nil
}

// UnmarshalBinary makes a new slice.
func (f Flags) UnmarshalBinary(b []byte) error {
	if len(b) != f.Length && (len(b) > 0 || !f.Optional) {
		return fmt.Errorf("%d flags: it must be %d", len(b), f.Length)
	}
	var all []bool
	for i, v := range b {
		if v > 1 {
			return fmt.Errorf("flag %d is %d: it must be 0 or 1", i, v)
		}
		all = append(all, v == 1)
	}
	*f.At = all
	return nil
}
