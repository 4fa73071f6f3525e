package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"github.com/cenkalti/backoff/v5"
)

// Mirror is a copy of what the autoscaler's fleet says the pods of each node can use,
// for a scheduler in another process. Who reads it never waits: there is the last
// copy, and its age.
type Mirror struct {
	Caller *Caller       // of its own
	Every  time.Duration // between two questions
	MaxAge time.Duration // a copy that is older is stale, which is logged
	Now    func() time.Time
	// Log is called when the copy becomes stale, and when it is up to date again.
	Log func(err error, message string, keysAndValues ...any)

	last atomic.Pointer[copied]
}

// copied is one copy. It does not change.
type copied struct {
	at     time.Time // when it was asked for
	cursor string    // for the next question
	nodes  map[string]upper
}

const (
	// answerIn is how long one question may take, with its dial.
	answerIn = 5 * time.Second
	// retryIn is the longest pause after questions without an answer.
	retryIn = 5 * time.Second
	// maxAnswer is the size of the largest answer that is read.
	maxAnswer = 16 << 20
	// A copy has at most this many nodes and pods. Kubernetes is made for 5,000 and 150,000.
	mostNodes = 20_000
	mostPods  = 1_000_000
	// mostName is the length of the longest name and cursor.
	mostName = 253
	// mostCPU and mostMemory are more than any node has.
	mostCPU    = mdp.MilliCPU(1_000_000_000)
	mostMemory = mdp.Bytes(1 << 50)
	// oldest is more than the age of any node that is not forgotten.
	oldest = 365 * 24 * time.Hour
)

// Upper is the most that the reported containers of a node can use, by pod UID, as
// [Fleet.Upper].
func (m *Mirror) Upper(node string, now time.Time, maxAge time.Duration) (byPod map[string]mdp.Size, ok bool) {
	last := m.last.Load()
	if last == nil {
		return nil, false
	}
	u, ok := last.nodes[node]
	if !ok || now.Sub(u.at) > maxAge {
		return nil, false
	}
	return u.byPod, true
}

// Promised is the most that the limits in force of a node's reported containers come to, in
// sum, as [Fleet.Promised].
func (m *Mirror) Promised(node string, now time.Time, maxAge time.Duration) (sum mdp.Size, ok bool) {
	last := m.last.Load()
	if last == nil {
		return mdp.Size{}, false
	}
	u, ok := last.nodes[node]
	if !ok || now.Sub(u.at) > maxAge || !u.promise.holds(now) {
		return mdp.Size{}, false
	}
	return u.promise.sum, true
}

// Age is how old the last copy is; ok is false when there is none.
func (m *Mirror) Age(now time.Time) (age time.Duration, ok bool) {
	last := m.last.Load()
	if last == nil {
		return 0, false
	}
	return max(0, now.Sub(last.at)), true
}

// Run asks until the context ends.
func (m *Mirror) Run(ctx context.Context) {
	began := m.Now()
	retry := &backoff.ExponentialBackOff{
		InitialInterval: m.Every, Multiplier: 1.6, RandomizationFactor: 0.3, MaxInterval: max(retryIn, m.Every),
	}
	retry.Reset()
	stale := false
	defer m.Caller.Close()
	for ctx.Err() == nil {
		pause := m.Every
		more, err := m.ask(ctx)
		if err != nil {
			pause = retry.NextBackOff()
		} else {
			retry.Reset()
		}
		stale = m.say(began, stale, err)
		if more {
			pause = m.Every / 10
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// say logs when the copy has become stale, and when it no longer is. Without a copy the
// time counts from the start.
func (m *Mirror) say(began time.Time, was bool, err error) (stale bool) {
	age, ok := m.Age(m.Now())
	if !ok {
		age = m.Now().Sub(began)
	}
	stale = age > m.MaxAge
	switch {
	case stale && !was:
		m.Log(err, "The autoscaler's upper bounds are stale: nodes are scored by the limits in the API", "age", age)
	case was && !stale:
		m.Log(nil, "The autoscaler's upper bounds are up to date again: nodes are scored by them")
	}
	return stale
}

// ask asks once for what has changed. more says that the answer was not all. After an answer that is not understood another
// connection is made, as after one that refuses.
func (m *Mirror) ask(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	last := m.last.Load()
	if last == nil {
		last = &copied{}
	}
	at := m.Now()
	answer, err := m.Caller.Do(ctx, http.MethodGet, UpperPath+"?after="+url.QueryEscape(last.cursor), nil, maxAnswer)
	if err != nil {
		return false, fmt.Errorf("asking central for upper bounds: %w", err)
	}
	defer func() {
		if err != nil {
			m.Caller.Close()
		}
	}()
	var a upperAnswer
	if err := json.Unmarshal(answer.Body, &a); err != nil {
		return false, fmt.Errorf("reading central's upper bounds: %w", err)
	}
	next, err := last.with(at, a, m.MaxAge)
	if err != nil {
		return false, fmt.Errorf("central's upper bounds: %w", err)
	}
	m.last.Store(next)
	return a.More, nil
}

// with is the copy after an answer to a question of that time. It takes all of an answer
// or nothing. A node that the answer does not name is kept until its report is older than
// maxAge: an autoscaler that has just started has not heard of every node yet.
func (c *copied) with(at time.Time, a upperAnswer, maxAge time.Duration) (*copied, error) {
	if len(a.Cursor) > mostName || len(a.Nodes) > mostNodes {
		return nil, fmt.Errorf("a cursor of %d bytes and %d nodes: at most %d and %d are taken",
			len(a.Cursor), len(a.Nodes), mostName, mostNodes)
	}
	next := &copied{at: at, cursor: a.Cursor, nodes: make(map[string]upper, len(a.Nodes))}
	for _, n := range a.Nodes {
		if n.Name == "" || len(n.Name) > mostName || n.AgeMS < 0 || n.AgeMS > oldest.Milliseconds() {
			return nil, fmt.Errorf("node %.60q, whose report is %d ms old: it must have a name of 1 to %d bytes and an age from 0 to %v",
				n.Name, n.AgeMS, mostName, oldest)
		}
		u, known := c.nodes[n.Name]
		if n.Pods != nil {
			byPod, err := sizes(n)
			if err != nil {
				return nil, err
			}
			u.byPod = byPod
		} else if !known || a.Reset {
			continue // its pods come with the next answer
		}
		promised, err := n.promise(at)
		if err != nil {
			return nil, err
		}
		u.promise = promised
		u.at = at.Add(-time.Duration(n.AgeMS) * time.Millisecond)
		next.nodes[n.Name] = u
	}
	for name, u := range c.nodes {
		if _, named := next.nodes[name]; !named && at.Sub(u.at) <= maxAge {
			next.nodes[name] = u
		}
	}
	return next, next.check()
}

// check is an error when a copy takes too much memory.
func (c *copied) check() error {
	pods := 0
	for _, u := range c.nodes {
		pods += len(u.byPod)
	}
	if len(c.nodes) > mostNodes || pods > mostPods {
		return fmt.Errorf("%d nodes and %d pods: at most %d and %d are taken", len(c.nodes), pods, mostNodes, mostPods)
	}
	return nil
}

// promise is what an answer to a question of that time promises of a node, checked.
func (n upperNode) promise(asked time.Time) (promise, error) {
	p := n.Promised
	if p == nil {
		return promise{}, nil
	}
	if err := p.check(); err != nil || p.ForMS < 0 || p.ForMS > oldest.Milliseconds() {
		return promise{}, fmt.Errorf("node %q: %v are promised for %d ms: it must be from 0 to %v, and for at most %v",
			n.Name, mdp.Size(p.upperPod), p.ForMS, mdp.Size{CPU: mostCPU, Memory: mostMemory}, oldest)
	}
	return promise{sum: mdp.Size(p.upperPod), until: asked.Add(time.Duration(p.ForMS) * time.Millisecond)}, nil
}

// check is an error for more than any node has, and for less than nothing.
func (s upperPod) check() error {
	if s.CPU < 0 || s.CPU > mostCPU || s.Memory < 0 || s.Memory > mostMemory {
		return fmt.Errorf("it may use %v: it must be from 0 to %v", mdp.Size(s), mdp.Size{CPU: mostCPU, Memory: mostMemory})
	}
	return nil
}

// sizes is the pods of a node, checked.
func sizes(n upperNode) (map[string]mdp.Size, error) {
	byPod := make(map[string]mdp.Size, len(n.Pods))
	for uid, s := range n.Pods {
		if err := s.check(); err != nil || len(uid) > mostName {
			return nil, fmt.Errorf("node %q: pod %.60q may use %v: it must be from 0 to %v, and its UID has at most %d bytes",
				n.Name, uid, mdp.Size(s), mdp.Size{CPU: mostCPU, Memory: mostMemory}, mostName)
		}
		byPod[uid] = mdp.Size(s)
	}
	return byPod, nil
}
