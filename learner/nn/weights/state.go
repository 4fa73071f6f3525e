package weights

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// State is what a learner's state is made of, so that all of it can be saved, and be restored whole or not at all. Names are
// the learner's; those of Numbers and Parts are one space.
type State struct {
	Algorithm string // whose it is; others' is refused
	Encoding  int    // how it is written; another way is refused
	Settings  any    // written beside it as JSON, for whoever wonders

	Numbers map[string][]float64 // restored in place; their lengths are the learner's shape
	Counts  map[string]Count
	Values  map[string]*float64
	Parts   map[string]Part
}

// Count is a whole number that is not negative and, unless Below is 0, below that.
type Count struct {
	At    *int
	Below int
}

// Part is something that saves itself, such as a random source or a buffer. When it cannot be restored nothing of it has
// changed.
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
func NewState(algorithm string, encoding int, settings any) State {
	return State{
		Algorithm: algorithm, Encoding: encoding, Settings: settings,
		Numbers: map[string][]float64{}, Counts: map[string]Count{}, Values: map[string]*float64{}, Parts: map[string]Part{},
	}
}

// Save copies the state.
func (s State) Save() (File, error) {
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

// Restore brings back what Save gave, of a learner of the same shape. On an error nothing has changed.
func (s State) Restore(f File) error {
	if err := s.restore(f); err != nil {
		return fmt.Errorf("restoring %s: %w", s.Algorithm, err)
	}
	return nil
}

func (s State) restore(f File) error {
	if f.Meta["algorithm"] != s.Algorithm || f.Meta["encoding"] != fmt.Sprint(s.Encoding) {
		return fmt.Errorf("weights of %q, encoding %q: it must be %q, encoding %d", f.Meta["algorithm"], f.Meta["encoding"], s.Algorithm, s.Encoding)
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
			return fmt.Errorf("metadata \"state\": %s is %d: it must not be negative, and below %d", name, v, c.Below)
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

// restoreParts restores one after the other; when one fails, those before it are brought back.
func (s State) restoreParts(f File) error {
	names := slices.Sorted(maps.Keys(s.Parts))
	before := map[string][]byte{}
	for i, name := range names {
		blob, err := f.Blob(name)
		if err == nil && i < len(names)-1 { // the last one changes only when all is well
			before[name], err = s.Parts[name].MarshalBinary()
		}
		if err == nil {
			err = s.Parts[name].UnmarshalBinary(blob)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", name, err)
		for _, done := range names[:i] {
			if back := s.Parts[done].UnmarshalBinary(before[done]); back != nil {
				err = fmt.Errorf("%w; and %s back again: %w", err, done, back)
			}
		}
		return err
	}
	return nil
}

// Flags are a learner's yes and no, as a Part: so many of them, or, where they are optional, none.
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

// UnmarshalBinary makes the slice anew.
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
