package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/fleet"
)

// Where learners in other processes ask for lessons, and bring what came of them.
const (
	lessonsPath = "/aware.lessons.v1/"
	nextPath    = lessonsPath + "next"    // POST: a lesson, with its name in the header lessonHeader; 204 when none is due
	learnedPath = lessonsPath + "learned" // POST with the parameter lesson: what was learned
	failedPath  = lessonsPath + "failed"  // the same: why nothing was

	lessonHeader = "Aware-Lesson"
)

const (
	// A lesson of 10,000 transitions has 8 MB, and what was learned 0.7.
	largestLesson = 64 << 20
	largestResult = 16 << 20
	largestWhy    = 1 << 10
	// bringIn is how long a learner may take to send what it learned.
	bringIn = time.Minute
	// preparing is how many lessons are made at the same time: each is some megabytes of central's memory.
	preparing = 2
)

// lender gives the lessons of this central's agents to learners in other processes. A lesson is one learner's for a while
// ([lentFor]). If it brings nothing by then, it was lost: the next one who asks gets the lesson, and what comes later is
// refused. So any number of learners share the lessons, and need to know nothing of each other.
type lender struct {
	minds *minds
	store trajectory.Store

	slots chan struct{}
	mu    sync.Mutex
	loans map[string]loan // by the lesson's name
}

// loan is a lesson that a learner has.
type loan struct {
	assignment
	until time.Time
}

func newLender(m *minds, store trajectory.Store) *lender {
	return &lender{minds: m, store: store, slots: make(chan struct{}, preparing), loans: map[string]loan{}}
}

// handler is the lender as HTTP, for learners with tokens of an account.
func (l *lender) handler(account fleet.Reviewer, serving func() bool) http.Handler {
	routes := http.NewServeMux()
	for path, serve := range map[string]http.HandlerFunc{nextPath: l.next, learnedPath: l.learned, failedPath: l.failed} {
		routes.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if fleet.Allow(w, r, account, serving) {
				serve(w, r)
			}
		})
	}
	return routes
}

// next gives a learner a lesson.
func (l *lender) next(w http.ResponseWriter, r *http.Request) {
	l.minds.heard()
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-r.Context().Done():
		return
	}
	name, body, err := l.lend(r.Context())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case name == "":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set(lessonHeader, name)
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(body) // an error says that the learner is gone: the lesson is lent again later
	}
}

// lend makes the next lesson; without a name none is due. Those of agents with too little experience end here.
func (l *lender) lend(ctx context.Context) (name string, body []byte, err error) {
	m := l.minds
	for ctx.Err() == nil {
		o, now := m.due(), m.now()
		if o == nil {
			return "", nil, nil
		}
		if !o.lend(now) {
			continue // another learner was faster
		}
		a, err := m.prepare(ctx, o, l.store)
		if err == nil {
			body, err = a.lesson.Encode()
		}
		if err != nil {
			m.finish(ctx, a, lesson.Result{}, err)
			continue
		}
		a.lesson.Episodes, a.lesson.From = nil, nil // the learner has them
		name := rand.Text()
		l.mu.Lock()
		defer l.mu.Unlock()
		for other, one := range l.loans {
			if !now.Before(one.until) {
				delete(l.loans, other)
			}
		}
		l.loans[name] = loan{a, now.Add(lentFor)}
		return name, body, nil
	}
	return "", nil, ctx.Err()
}

// returned is the loan of a request's lesson, which ends with it.
func (l *lender) returned(r *http.Request) (loan, error) {
	name := r.URL.Query().Get("lesson")
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.loans[name]
	if !ok || !l.minds.now().Before(one.until) {
		return loan{}, fmt.Errorf("lesson %.64q is not lent: a learner has %v for one", name, lentFor)
	}
	delete(l.loans, name)
	return one, nil
}

// learned takes in what was learned.
func (l *lender) learned(w http.ResponseWriter, r *http.Request) {
	l.taken(w, r, largestResult, func(of loan, body []byte) (lesson.Result, error) {
		return of.lesson.Config.DecodeResult(body)
	})
}

// failed takes in why nothing was learned.
func (l *lender) failed(w http.ResponseWriter, r *http.Request) {
	l.taken(w, r, largestWhy, func(_ loan, body []byte) (lesson.Result, error) {
		return lesson.Result{}, fmt.Errorf("a learner says: %q", body)
	})
}

// taken takes in what came of a lesson. What cannot be read ends the lesson, too: the status of the workload says why.
func (l *lender) taken(w http.ResponseWriter, r *http.Request, most int64, read func(loan, []byte) (lesson.Result, error)) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bringIn)) // a test's writer has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	if err != nil && !errors.As(err, &large) {
		return // the learner is gone, and may bring it again
	}
	of, lost := l.returned(r)
	if lost != nil {
		http.Error(w, lost.Error(), http.StatusGone)
		return
	}
	var got lesson.Result
	if err == nil {
		got, err = read(of, body)
	}
	// The learner need not wait for it.
	l.minds.finish(context.WithoutCancel(r.Context()), of.assignment, got, err)
	w.WriteHeader(http.StatusNoContent)
}
