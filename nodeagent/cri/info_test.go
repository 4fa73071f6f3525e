package cri

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func FuzzInfo(f *testing.F) {
	f.Add(`{"sandboxID":"s","pid":4711,"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/burstable/pod1/abc"}}}`)
	f.Add(`{"runtimeSpec":{"linux":{"cgroupsPath":"/a","resources":{"cpu":{"quota":-1},"memory":{}}}}}`)
	f.Add(`{"pid":"x"}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, info string) {
		if c, err := parseInfo(info); err == nil && c.CgroupsPath == "" {
			t.Errorf("%q has no cgroupsPath and no error", info)
		}
	})
}

// fixed is a runtime with one container, of which it says this.
type fixed struct {
	Runtime
	info string
}

func (f fixed) Container(context.Context, string) (Container, error) { return parseInfo(f.info) }

// What a runtime was told is what its spec says. Nothing is made up where it says nothing.
func TestWhatARuntimeWasTold(t *testing.T) {
	for resources, want := range map[string]Change{
		`{"cpu":{"quota":50000,"period":100000,"shares":102},"memory":{"limit":134217728}}`: {
			Quota: 50000, Period: 100000, Memory: 128 << 20,
		},
		`{"cpu":{"quota":-1,"period":100000},"memory":{"limit":-1}}`: {},
		`{"cpu":{"shares":102}}`:                                     {},
		`{"cpu":{"quota":50000}}`:                                    {}, // a quota is nothing without its period
		`{"memory":{"limit":1073741824}}`:                            {Memory: 1 << 30},
	} {
		info := `{"runtimeSpec":{"linux":{"cgroupsPath":"/a","resources":` + resources + `}}}`
		got, err := NewLimiter(fixed{info: info}, DefaultRules, time.Now, nil).Told(t.Context(), time.Now(), "a")
		if err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", resources, got, err, want)
		}
	}
	l := NewLimiter(fixed{info: `{"runtimeSpec":{"linux":{"cgroupsPath":"/a"}}}`}, DefaultRules, time.Now, nil)
	if got, err := l.Told(t.Context(), time.Now(), "a"); err == nil || !strings.Contains(err.Error(), "does not say") {
		t.Errorf("a runtime that says nothing: %+v (%v)", got, err)
	}
}

// hung is a runtime that does not answer.
type hung struct{ Runtime }

func (hung) Container(ctx context.Context, id string) (Container, error) {
	<-ctx.Done()
	return Container{}, ctx.Err()
}

// A question that is not answered opens the breaker, as a call does: the call that follows would wait as long again.
func TestAQuestionWithoutAnAnswerOpensTheBreaker(t *testing.T) {
	rules := DefaultRules
	rules.Deadline = time.Millisecond
	l := NewLimiter(hung{}, rules, time.Now, nil)
	_, err := l.Told(t.Context(), time.Now(), "a")
	if !errors.Is(err, context.DeadlineExceeded) || l.Stats(time.Now()).Breaker != Open {
		t.Errorf("after %v the breaker is %v", err, l.Stats(time.Now()).Breaker)
	}
	l = NewLimiter(hung{}, DefaultRules, time.Now, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Told(ended, time.Now(), "a"); err == nil || l.Stats(time.Now()).Breaker != Closed {
		t.Errorf("who asks has ended, which says nothing of the runtime: %v, the breaker is %v", err, l.Stats(time.Now()).Breaker)
	}
}
