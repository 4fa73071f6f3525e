package trajectory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Buffering says when a store writes what was appended.
type Buffering struct {
	// Batch is how many transitions make one write; they are also written in the background as soon as there are that many. 0 is
	// 1024. More is faster, and is more to lose in a crash.
	Batch int

	// Limit is how many transitions may wait; Append refuses what is above. 0 is 16 batches. One takes about 400 bytes.
	Limit int

	// Tick is the caller's ticker: at each tick everything that waits is written in the background. Nil is never. A second
	// between ticks is a good choice for a workload of few steps.
	Tick <-chan time.Time
}

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

// buffer holds what was appended until a store has written it. Batches are written one after the other in the order of Append, by
// whoever has the turn, and leave the buffer only when they are written.
type buffer struct {
	Buffering
	name  string                                      // of the store, for errors
	write func(ctx context.Context, rows []row) error // all of them or none, as far as a reader can tell; a second time does no harm

	turn  chan struct{} // has room for the one who writes; a channel, so that waiting for it ends with the context
	ready chan struct{} // has room for one word that a batch is full
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	waiting []row
	figures Figures // Waiting is not kept: it is len(waiting)
	closed  bool
}

func newBuffer(c Buffering, name string, write func(ctx context.Context, rows []row) error) *buffer {
	ctx, stop := context.WithCancel(context.Background())
	b := &buffer{Buffering: c, name: name, write: write, turn: make(chan struct{}, 1), ready: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go b.run(ctx)
	return b
}

// run writes in the background. What fails is told by Figures, by Flush, and by Append once nothing more fits.
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
				b.Tick = nil // a closed channel would tick for ever
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
	// A word at every further batch, not at every transition: a write that fails is not tried again for each of them.
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

// drain writes what waits now, batch by batch, until less than least of it is left. What is appended meanwhile is not waited for.
func (b *buffer) drain(ctx context.Context, least int) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return fmt.Errorf("waiting to write to %s: %w", b.name, ctx.Err())
	}
	for left := b.Figures().Waiting; left >= least; {
		n := min(left, b.Batch)
		b.mu.Lock()
		batch := b.waiting[:n:n] // only the one who has the turn takes rows away
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

// close ends the background and writes the rest. After the first call it is nil.
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
