package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/test/apps/client"
	"awarescale.dev/aware/test/apps/segment"
	"golang.org/x/sync/errgroup"
)

// statusGone is nginx's code for a request that the caller canceled. It appears in
// the metrics only.
const statusGone = 499

// worker answers requests for work.
type worker struct {
	settings *settings
	metrics  *metrics
	client   *http.Client
	slots    chan struct{} // one element per request worked on; nil for no limit
	leaving  atomic.Bool   // since SIGTERM
}

func newWorker(s *settings) *worker {
	w := &worker{
		settings: s,
		metrics:  newMetrics(),
		client:   client.New(client.Config{}),
	}
	if s.concurrency > 0 {
		w.slots = make(chan struct{}, s.concurrency)
	}
	return w
}

// handler serves work and probes.
func (w *worker) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", w)
	mux.HandleFunc("GET /healthz",
		func(rw http.ResponseWriter, _ *http.Request) { write(rw, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) {
		if w.leaving.Load() {
			write(rw, http.StatusServiceUnavailable, "leaving")
			return
		}
		write(rw, http.StatusOK, "ok")
	})
	return mux
}

// ServeHTTP measures from here on. Only the sender can measure the time before, in the
// kernel's queue or until this goroutine gets a core.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	w.metrics.inFlight.Inc()
	defer w.metrics.inFlight.Dec()

	code, err := w.answer(r)
	if w.leaving.Load() {
		// Otherwise callers with an open connection would keep sending to this process.
		rw.Header().Set("Connection", "close")
	}
	if err != nil {
		write(rw, code, err.Error())
	} else {
		write(rw, code, "ok")
	}
	w.metrics.answered(code, time.Since(began))
}

func write(rw http.ResponseWriter, code int, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(code)
	_, _ = io.WriteString(rw, text+"\n") // a caller that canceled needs no answer
}

// answer does the request's work and returns its status.
func (w *worker) answer(r *http.Request) (int, error) {
	todo := segment.Composition(w.settings.segments)
	if query := r.URL.Query(); query.Has("segments") {
		var err error
		if todo, err = segment.Parse(query.Get("segments")); err != nil {
			return http.StatusBadRequest, err
		}
	}
	leave, err := w.enter(r.Context())
	if err != nil {
		return statusGone, err
	}
	defer leave()

	if err := todo.Run(r.Context(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))); err != nil {
		return w.status(r, http.StatusInternalServerError), err
	}
	if err := w.callOthers(r.Context()); err != nil {
		return w.status(r, http.StatusBadGateway), err
	}
	return http.StatusOK, nil
}

// status is code, unless the caller canceled, which causes all kinds of errors.
func (w *worker) status(r *http.Request, code int) int {
	if r.Context().Err() != nil {
		return statusGone
	}
	return code
}

// enter waits for a slot. The caller must call leave at the end.
func (w *worker) enter(ctx context.Context) (leave func(), err error) {
	if w.slots == nil {
		return func() {}, nil
	}
	w.metrics.queued.Inc()
	defer w.metrics.queued.Dec()
	select {
	case w.slots <- struct{}{}:
		return func() { <-w.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for one of %d places: %w", cap(w.slots), ctx.Err())
	}
}

// callOthers calls all --calls at the same time, then each of --then. It stops at the
// first failure.
func (w *worker) callOthers(ctx context.Context) error {
	together, ctx2 := errgroup.WithContext(ctx)
	for _, address := range w.settings.calls {
		together.Go(func() error { return w.call(ctx2, address) })
	}
	if err := together.Wait(); err != nil {
		return err
	}
	for _, address := range w.settings.then {
		if err := w.call(ctx, address); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) call(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, w.settings.callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("calling %s: %w", address, err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("calling %s: %w", address, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("calling %s: reading the answer: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("calling %s: it answered %s", address, resp.Status)
	}
	return nil
}
