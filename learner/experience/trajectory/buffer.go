package trajectory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Buffering configures when a store writes appended transitions.
type Buffering struct {
	// Batch is the number of transitions per write. A full batch is written in
	// the background. 0 is 1024. A larger batch is faster, and more transitions
	// are lost in a crash.
	Batch int

	// Limit is the maximum number of transitions in the buffer; Append rejects
	// more. 0 is 16 batches. A transition needs about 400 bytes.
	Limit int

	// Tick is the caller's ticker. At each tick the whole buffer is written in
	// the background; nil is never. One second is a good interval for a
	// workload with few steps.
	Tick <-chan time.Time
}

// withDefaults replaces zeros by defaults, and checks the values.
func (c Buffering) withDefaults() (Buffering, error) {
	if c.Batch == 0 {
		c.Batch = 1024
	}
	if c.Limit == 0 {
		c.Limit = 16 * c.Batch
	}
	if c.Batch < 0 || c.Limit < c.Batch {
		return c, fmt.Errorf("buffering with batches of %d and a limit of %d: need 1 <= batch <= limit", c.Batch, c.Limit)
	}
	return c, nil
}

// buffer holds appended transitions until they are written. Batches are written
// one after the other in the order of Append. One goroutine writes at a time. A
// batch leaves the buffer only after it is written.
type buffer struct {
	Buffering
	name string // of the store, for errors
	// write writes all rows or none, as seen by a reader. It can be repeated
	// with the same rows.
	write func(ctx context.Context, rows []row) error

	writing chan struct{} // a lock for writing; it is a channel, so that waiting for it ends with the context
	ready   chan struct{} // signals a full batch; its capacity is one signal
	stop    context.CancelFunc
	done    chan struct{} // closed when the background goroutine ends

	mu      sync.Mutex // guards the fields below
	waiting []row
	figures Figures // without Waiting, which is len(waiting)
	closed  bool
}

// newBuffer creates a buffer and starts its background goroutine.
func newBuffer(c Buffering, name string, write func(ctx context.Context, rows []row) error) *buffer {
	ctx, stop := context.WithCancel(context.Background())
	b := &buffer{
		Buffering: c,
		name:      name,
		write:     write,
		writing:   make(chan struct{}, 1),
		ready:     make(chan struct{}, 1),
		stop:      stop,
		done:      make(chan struct{}),
	}
	go b.run(ctx)
	return b
}

// run writes in the background. Figures, Flush, and Append with a full buffer
// report its errors.
func (b *buffer) run(ctx context.Context) {
	defer close(b.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.ready:
			_ = b.drain(ctx, b.Batch)
		case _, ok := <-b.Tick:
			if !ok {
				b.Tick = nil // a closed channel is no tick, and would be one without end
				continue
			}
			_ = b.drain(ctx, 1)
		}
	}
}

// Append implements [Store].
func (b *buffer) Append(ctx context.Context, workload string, episode, step int, t mdp.Transition) error {
	r := row{workload: workload, episode: episode, step: step, transition: t}
	err := ctx.Err()
	if err == nil {
		err = r.check()
	}
	if err == nil {
		err = b.add(r)
	}
	if err != nil {
		return fmt.Errorf("appending %v to %s: %w", &r, b.name, err)
	}
	return nil
}

// add adds a row to the buffer.
func (b *buffer) add(r row) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	var err error
	if len(b.waiting) >= b.Limit {
		b.figures.Dropped++
		err = fmt.Errorf("%w: %d transitions wait and %d were refused", ErrBufferFull, len(b.waiting), b.figures.Dropped)
		if b.figures.Problem != nil {
			err = fmt.Errorf("%w; the last write: %w", err, b.figures.Problem)
		}
	} else {
		b.waiting = append(b.waiting, r)
	}
	// The signal is sent once per full batch, not for every transition. After a
	// failure, the write is therefore not repeated for every transition.
	if err != nil || len(b.waiting)%b.Batch == 0 {
		select {
		case b.ready <- struct{}{}:
		default:
		}
	}
	return err
}

// Flush implements [Store].
func (b *buffer) Flush(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return fmt.Errorf("flushing %s: %w", b.name, ErrClosed)
	}
	return b.drain(ctx, 1)
}

// Figures implements [Store].
func (b *buffer) Figures() Figures {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.figures
	f.Waiting = len(b.waiting)
	return f
}

// drain writes the current content of the buffer, batch by batch, until fewer
// than threshold transitions of it are left. It does not wait for transitions
// that are appended later.
func (b *buffer) drain(ctx context.Context, threshold int) error {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return fmt.Errorf("waiting to write to %s: %w", b.name, ctx.Err())
	}
	for left := b.Figures().Waiting; left >= threshold; {
		n := min(left, b.Batch)
		b.mu.Lock()
		batch := b.waiting[:n:n] // only the holder of writing removes rows
		b.mu.Unlock()
		err := b.write(ctx, batch)
		b.mu.Lock()
		b.figures.Problem = err
		if err == nil {
			b.waiting = slices.Delete(b.waiting, 0, n)
			b.figures.Written += uint64(n)
		}
		waiting := len(b.waiting)
		b.mu.Unlock()
		if err != nil {
			return fmt.Errorf("writing %d transitions to %s, %d wait: %w", n, b.name, waiting, err)
		}
		left -= n
	}
	return nil
}

// close stops the background goroutine and writes the rest. Later calls do
// nothing and return nil.
func (b *buffer) close() error {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if was {
		return nil
	}
	b.stop()
	<-b.done
	if err := b.drain(context.Background(), 1); err != nil {
		return fmt.Errorf("closing %s, %d transitions are lost: %w", b.name, b.Figures().Waiting, err)
	}
	return nil
}
