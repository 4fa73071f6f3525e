package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/fleet"
	"k8s.io/klog/v2"
)

// student gives the lessons of a central in another process: it asks for one, learns, brings what it learned, and asks for the
// next one. It keeps nothing. There may be any number of them; central gives each lesson to one.
type student struct {
	central *fleet.Caller
	idle    time.Duration // after central had no lesson
	counted func(result string)
	heard   atomic.Bool // central has answered last time
}

// What came of a lesson, for [student.counted].
const (
	lessonLearned = "learned"
	lessonFailed  = "failed"
	lessonLate    = "late" // central had given it to another learner meanwhile
)

var lessonResults = []string{lessonLearned, lessonFailed, lessonLate}

// askIn is how long a question to central may take.
const askIn = time.Minute

// run studies until the context ends, or central does not answer.
func (s *student) run(ctx context.Context) error {
	defer s.central.Close()
	defer s.heard.Store(false)
	w := agent.NewWorkspace()
	for ctx.Err() == nil {
		name, raw, err := s.next(ctx)
		if err != nil {
			return err
		}
		s.heard.Store(true)
		if name == "" {
			select {
			case <-ctx.Done():
			case <-time.After(s.idle):
			}
			continue
		}
		if err := s.study(ctx, name, raw, w); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// next asks for a lesson; without a name none is due.
func (s *student) next(ctx context.Context) (name string, raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askIn)
	defer cancel()
	a, err := s.central.Do(ctx, http.MethodPost, nextPath, nil, largestLesson)
	if err != nil {
		return "", nil, fmt.Errorf("asking central for a lesson: %w", err)
	}
	return a.Header.Get(lessonHeader), a.Body, nil
}

// study learns, and says what came of it. A lesson that cannot be read, such as one of another version of central, is said to
// have failed, too, and then it is an error: others would not go better.
func (s *student) study(ctx context.Context, name string, raw []byte, w *agent.Workspace) error {
	begin := time.Now()
	l, unread := lesson.Decode(raw)
	body, err := []byte(nil), unread
	if err == nil {
		body, err = studied(ctx, l, w)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	path, result := learnedPath, lessonLearned
	if err != nil {
		text := err.Error()
		path, result, body = failedPath, lessonFailed, []byte(text[:min(len(text), largestWhy)])
	}
	late, refused := s.bring(ctx, path+"?lesson="+url.QueryEscape(name), body)
	if refused != nil {
		return fmt.Errorf("bringing central what was learned of %s: %w", l.Workload, refused)
	}
	if late {
		result = lessonLate
	}
	s.counted(result)
	klog.FromContext(ctx).Info("A lesson", "workload", l.Workload, "result", result,
		"took", time.Since(begin).Round(time.Millisecond), "err", err)
	return unread
}

// studied is what a lesson brings, as bytes.
func studied(ctx context.Context, l lesson.Lesson, w *agent.Workspace) ([]byte, error) {
	got, err := learn(ctx, l, w)
	if err != nil {
		return nil, err
	}
	return got.Encode()
}

// bring says to central what came of a lesson. late says that central had given it to another learner meanwhile.
func (s *student) bring(ctx context.Context, path string, body []byte) (late bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askIn)
	defer cancel()
	_, err = s.central.Do(ctx, http.MethodPost, path, body, largestWhy)
	var status *fleet.StatusError
	if errors.As(err, &status) && status.Code == http.StatusGone {
		return true, nil
	}
	return false, err
}
