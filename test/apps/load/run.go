package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"awarescale.dev/aware/test/apps/client"
)

// Run sends the load and returns when the trace is over and every request has
// ended. It calls each, if not nil, with every second, in order, once the
// second is over and its requests have ended: at most the timeout later. The
// calls come from Run's own goroutine.
//
// If ctx is canceled, requests under way are given up, and Run returns the
// result so far with an error that wraps the context's cause. Seconds that were
// not finished by then are in the result, but each is not called for them.
func Run(ctx context.Context, c Config, each func(Second)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	c = c.withDefaults()
	arrivals := Schedule(c.Trace, c.Arrivals, c.Seed)
	t := newTally(c, arrivals)

	s := newSender(c)
	defer s.client.CloseIdleConnections()
	start := time.Now()
	go s.send(ctx, start, arrivals)

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(c.Trace.Duration())
	defer over.Stop()
	report := func() {
		for _, second := range t.finish(time.Since(start)) {
			if each != nil {
				each(second)
			}
		}
	}

	results := s.ended
	traceOver := over.C
	stopped := ctx.Done()
	for results != nil || traceOver != nil {
		select {
		case e, more := <-results:
			if more {
				t.add(e)
			} else {
				results = nil
			}
		case <-tick.C:
			report()
		case <-traceOver:
			traceOver = nil
		case <-stopped:
			stopped, traceOver = nil, nil // wait only for the requests to be given up
		}
	}
	took := time.Since(start)
	if ctx.Err() == nil || t.allEnded() && took >= t.length {
		report()
		return t.end(t.length), nil
	}
	return t.end(min(took, t.length)),
		fmt.Errorf("load stopped %v into %v: %w", took.Round(time.Millisecond), t.length, context.Cause(ctx))
}

// sender starts requests and reports each when it has ended.
type sender struct {
	config Config
	client *http.Client
	slots  chan struct{} // one element per request in flight
	ended  chan ended    // closed after the last request
}

func newSender(c Config) *sender {
	s := &sender{
		config: c,
		client: client.New(client.Config{ConnMaxRequests: c.ConnMaxRequests, MaxInFlight: c.MaxInFlight}),
		slots:  make(chan struct{}, c.MaxInFlight),
		ended:  make(chan ended, 1024),
	}
	// Redirects are not followed.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// send starts each request at its time, independent of earlier requests.
func (s *sender) send(ctx context.Context, start time.Time, arrivals []time.Duration) {
	defer close(s.ended)
	var inFlight sync.WaitGroup
	defer inFlight.Wait()

	for i, at := range arrivals {
		intended := start.Add(at)
		if !waitUntil(ctx, intended) {
			return
		}
		e := ended{intended: at, lag: time.Since(intended)}
		select {
		case s.slots <- struct{}{}:
		default:
			e.outcome = dropped
			s.ended <- e
			continue
		}
		target := s.config.Targets[i%len(s.config.Targets)]
		inFlight.Go(func() {
			e.outcome, e.err = s.request(ctx, target, intended.Add(s.config.Timeout))
			e.latency = time.Since(intended)
			<-s.slots
			s.ended <- e
		})
	}
}

// coarse is how much earlier a Go timer must fire. The runtime waits for timers in
// whole milliseconds, so they fire up to a millisecond late. That is much, compared
// with an answer that takes five.
const coarse = 2 * time.Millisecond

// waitUntil returns false if ctx is done first. The last two milliseconds it
// sleeps in the kernel, which is exact to some 0.1 ms, without looking at ctx.
func waitUntil(ctx context.Context, t time.Time) bool {
	if wait := time.Until(t) - coarse; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	for wait := time.Until(t); wait > 0; wait = time.Until(t) {
		rest := syscall.NsecToTimespec(wait.Nanoseconds())
		_ = syscall.Nanosleep(&rest, nil) // interrupted: the loop sleeps the rest
	}
	return ctx.Err() == nil
}

// request sends one request and reads the complete answer. The error is the reason of
// a failed request.
func (s *sender) request(ctx context.Context, target string, deadline time.Time) (outcome, error) {
	err := s.do(ctx, target, deadline)
	var network net.Error
	switch {
	case ctx.Err() != nil:
		return abandoned, nil
	case !time.Now().Before(deadline), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) &&
		network.Timeout():
		return timedOut, nil
	case err != nil:
		return failed, err
	}
	return ok, nil
}

func (s *sender) do(ctx context.Context, target string, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if s.config.Do != nil {
		return s.config.Do(ctx, target)
	}
	return s.get(ctx, target)
}

func (s *sender) get(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", target, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s answered %s", target, resp.Status)
	}
	return nil
}
