package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"awarescale.dev/aware/test/apps/segment"
	"golang.org/x/sync/errgroup"
)

// lastAnswers is how long the answers under way may take after --drain. Both
// together have to stay below a pod's grace period, 30 s by default.
const lastAnswers = 10 * time.Second

// listeners are the service's open ports.
type listeners struct {
	work    net.Listener
	metrics net.Listener
}

// open opens both ports first, so that a port in use is reported at the start.
func (s *settings) open() (listeners, error) {
	work, err := net.Listen("tcp", s.listen)
	if err != nil {
		return listeners{}, fmt.Errorf("--listen %q: %w", s.listen, err)
	}
	metrics, err := net.Listen("tcp", s.metricsListen)
	if err != nil {
		return listeners{}, errors.Join(fmt.Errorf("--metrics-listen %q: %w", s.metricsListen, err),
			work.Close())
	}
	return listeners{work, metrics}, nil
}

// serve serves until ctx is done and the last answers are sent. It closes the
// listeners.
func serve(ctx context.Context, s *settings, l listeners, log *slog.Logger) error {
	held, err := holdMemory(int(s.memory))
	if err != nil {
		return errors.Join(err, l.work.Close(), l.metrics.Close())
	}
	defer runtime.KeepAlive(held)

	w := newWorker(s)
	work := newServer(w.handler())
	metrics := newServer(w.metrics.handler())
	both, failed := errgroup.WithContext(ctx)
	both.Go(func() error { return serveOn(work, l.work) })
	both.Go(func() error { return serveOn(metrics, l.metrics) })
	log.Info("serving", "listen", l.work.Addr(), "metrics", l.metrics.Addr(), "segments",
		segment.Composition(s.segments),
		"calls", s.calls, "then", s.then, "concurrency", s.concurrency, "memory", s.memory.String(),
		"gomaxprocs", runtime.GOMAXPROCS(0))

	<-failed.Done() // ctx's end, or a server's
	if ctx.Err() != nil {
		log.Info("draining", "for", s.drain)
		w.leaving.Store(true)
		time.Sleep(s.drain)
	}
	// The context that ended must not cut short the last answers.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	err = errors.Join(shutdown(last, work), shutdown(last, metrics), both.Wait())
	log.Info("served", "error", err)
	return err
}

// newServer keeps idle connections for longer than package client (30 s). The client
// should close a connection first. Otherwise it may send on one that the server is
// closing.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
}

func serveOn(s *http.Server, l net.Listener) error {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving on %v: %w", l.Addr(), err)
	}
	return nil
}

// shutdown waits for the answers under way; those that do not end in time are
// cut off.
func shutdown(ctx context.Context, s *http.Server) error {
	if err := s.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("waiting for the last answers: %w", err), s.Close())
	}
	return nil
}
