package bench

import (
	"context"
	"fmt"

	"awarescale.dev/aware/learner/policy/heuristic/demand/correct"
	"awarescale.dev/aware/learner/sim"
)

// Session is a run of a choice in a cell whose caller lets the time pass. One goroutine uses it at a time.
type Session struct {
	cell    Cell
	choice  Choice
	options Options
	driver  *driver
	meter   *meter // nil before the time that counts
}

// Open makes the world of a run, at its start. The caller must Close a session of a served policy.
func Open(ctx context.Context, cell Cell, c Choice, o Options) (*Session, error) {
	if o.Length == 0 {
		o.Length = cell.Trace.Length()
	}
	if o.Lead == 0 {
		o.Lead = lead
	}
	s := &Session{cell: cell, choice: c, options: o}
	b, err := c.baseline()
	if err != nil {
		return nil, s.fail(err)
	}
	w, err := cell.world(b.path, o)
	if err != nil {
		return nil, s.fail(err)
	}
	s.driver, err = c.start(ctx, w, cell.App, o.Tower, o.Seed)
	if err != nil {
		return nil, s.fail(err)
	}
	return s, nil
}

func (s *Session) fail(err error) error {
	return fmt.Errorf("%s under %s with %s: %w", s.cell.Application, s.cell.Trace.Name, s.choice.Policy, err)
}

// run drives the world to the end, and measures the time that counts.
func (s *Session) run(ctx context.Context) error {
	for !s.Over() {
		if err := s.Second(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Over reports whether the run is at its end.
func (s *Session) Over() bool { return s.driver.world.Elapsed() >= s.options.Lead+s.options.Length }

// Leading reports whether the time that counts has not begun.
func (s *Session) Leading() bool { return s.driver.world.Elapsed() < s.options.Lead }

// Second lets a second pass, in which the choice decides.
func (s *Session) Second(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := s.driver.world
	if w.Elapsed() == s.options.Lead {
		s.meter = newMeter(w, s.cell.App, s.options.Watch)
	}
	if err := s.driver.second(ctx); err != nil {
		return err
	}
	if s.meter != nil && (w.Elapsed()-s.options.Lead)%Window == 0 {
		return s.meter.window(ctx)
	}
	return nil
}

// World is the world of the run.
func (s *Session) World() *sim.World { return s.driver.world }

// Corrected is the policy of the service that is corrected; nil where none is.
func (s *Session) Corrected() *correct.Policy { return s.driver.corrected }

// Score is what was measured of the time that counts, up to now. There must have been some.
func (s *Session) Score() Score { return s.meter.score() }

// Close tells a served policy that the run is over; others need no Close.
func (s *Session) Close(ctx context.Context) error { return s.driver.end(ctx) }
