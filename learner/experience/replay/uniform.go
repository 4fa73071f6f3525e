package replay

import "fmt"

// Uniform is a buffer from which all transitions are drawn with the same
// chance. One goroutine uses it at a time.
type Uniform struct{ ring }

// NewUniform makes an empty buffer.
func NewUniform(c Config) (*Uniform, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	u := new(Uniform)
	u.init(c)
	return u, nil
}

// Add keeps a copy of t, in the place of the oldest when the buffer is full. On
// an error nothing is kept.
func (u *Uniform) Add(t Transition) error {
	_, err := u.add(&t)
	return err
}

// Sample fills b with transitions, each drawn from all that are held: one may
// come twice, and b may be larger than what is held. From an empty buffer it is
// ErrEmpty.
func (u *Uniform) Sample(b *Batch) error {
	if err := u.ready(b); err != nil {
		return err
	}
	for row := range b.Index {
		u.fetch(b, row, u.random.IntN(u.held))
		b.Weight[row] = 1
	}
	return nil
}

const uniformHeader = "aware uniform replay 2\n"

// MarshalBinary saves all state.
func (u *Uniform) MarshalBinary() ([]byte, error) {
	b := newWriter(uniformHeader, u.size())
	if err := u.save(b); err != nil {
		return nil, fmt.Errorf("save uniform replay buffer: %w", err)
	}
	return b.seal(), nil
}

// UnmarshalBinary restores what was saved of a buffer of the same sizes. On an
// error nothing has changed.
func (u *Uniform) UnmarshalBinary(data []byte) error {
	b := newReader(uniformHeader, data)
	loaded := u.load(b)
	loaded.mustBeFilled(b)
	if err := b.end(); err != nil {
		return fmt.Errorf("restore uniform replay buffer from %d bytes: %w", len(data), err)
	}
	u.take(loaded)
	return nil
}
