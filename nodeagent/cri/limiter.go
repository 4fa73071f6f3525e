package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"golang.org/x/time/rate"
)

// Rules limit how often a node's runtime is called. Start from [DefaultRules].
type Rules struct {
	PerSecond         float64       // calls, on average
	Burst             int           // calls at once, at most
	Reserve           int           // calls of the burst that only raises may use: a shrink saves money, a raise saves an SLO
	Every             time.Duration // between two moves of one container
	MinChange         mdp.Ratio     // a shrink by less than this share of the limit is not worth a call; a raise always is
	Deadline          time.Duration // of one call
	Slow              time.Duration // the breaker opens when the 99th percentile of recent calls is above it,
	SlowCalls         int           // and that many of them were
	Window            int           // how many calls are recent
	MinSamples        int           // with fewer recent calls there is no percentile
	PressureThreshold mdp.Ratio     // the breaker opens when the node's full pressure for memory is above it
	Cooldown          time.Duration // how long the breaker stays open before one call may try again
}

// DefaultRules are for containerd 2.4. A call was measured there to take 7 ms (p50)
// when idle and 56 ms (p99) under CPU contention, with about 200 calls per second at
// most. A runtime that takes 250 ms has a problem.
var DefaultRules = Rules{
	PerSecond:         5,
	Burst:             20,
	Reserve:           5,
	Every:             time.Second,
	MinChange:         0.1,
	Deadline:          time.Second,
	Slow:              250 * time.Millisecond,
	SlowCalls:         3,
	Window:            100,
	MinSamples:        10,
	PressureThreshold: 0.2,
	Cooldown:          time.Minute,
}

// Check names the wrong field, its value and the rule.
func (r Rules) Check() error {
	switch {
	case !(r.PerSecond > 0):
		return fmt.Errorf("cri rules: %v calls per second: must be above 0", r.PerSecond)
	case r.Burst < 2: // one move may be two calls
		return fmt.Errorf("cri rules: burst %d: must be 2 or more", r.Burst)
	case r.Reserve < 0 || r.Reserve > r.Burst-2:
		return fmt.Errorf("cri rules: reserve %d: must be in [0, burst-2 = %d]", r.Reserve, r.Burst-2)
	case r.Every < 0 || r.Deadline <= 0 || r.Slow <= 0 || r.Cooldown <= 0:
		return fmt.Errorf("cri rules: every %v, deadline %v, slow %v, cooldown %v: must be above 0", r.Every,
			r.Deadline, r.Slow, r.Cooldown)
	case !(r.MinChange >= 0 && r.MinChange < 1):
		return fmt.Errorf("cri rules: least change %v: must be in [0, 1)", float64(r.MinChange))
	case r.SlowCalls < 1:
		return fmt.Errorf("cri rules: %d slow calls: must be 1 or more", r.SlowCalls)
	case r.Window < 1 || r.MinSamples < 1 || r.MinSamples > r.Window:
		return fmt.Errorf("cri rules: window %d, least samples %d: need 1 <= least samples <= window", r.Window,
			r.MinSamples)
	case !(r.PressureThreshold > 0):
		return fmt.Errorf("cri rules: pressure threshold %v: must be above 0", float64(r.PressureThreshold))
	}
	return nil
}

// Breaker is the state of the breaker.
type Breaker int

// The states of the breaker.
const (
	Closed   Breaker = iota // calls pass
	Open                    // no call passes; raises and restores go to the cgroup directly, or by Insist
	HalfOpen                // one call may pass; its result decides
)

func (b Breaker) String() string { return [...]string{"closed", "open", "half-open"}[b] }

// RefusedError says why a move was not tried. Nothing was changed.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "refused: " + e.Why }

// ErrOpen is wrapped by refusals of an open breaker.
var ErrOpen = errors.New("the breaker is open")

// Move is a request to change one container's limits. In a Size, 0 is no limit or no
// change.
type Move struct {
	ID     string
	From   mdp.Size // in force
	To     mdp.Size // wanted; 0 keeps
	Change Change   // what the runtime is sent
	Must   bool     // small moves too: the limit in force is outside of its envelope
	Commit bool     // small moves too: the runtime does not know of what is in force
}

// raises reports whether a limit becomes larger.
func (m Move) raises() bool {
	return m.To.CPU > m.From.CPU && m.To.CPU > 0 || m.To.Memory > m.From.Memory && m.To.Memory > 0
}

// Relief is the part of a Move that may not wait for a call: the raises. When the
// limits in force are outside of their envelope it is all that changes something.
// CPU has its Change with it; what is not part of the relief keeps its value.
func (m Move) Relief() Move {
	if cpu := m.To.CPU > m.From.CPU || m.Must && m.To.CPU != m.From.CPU; m.To.CPU <= 0 || !cpu {
		m.To.CPU = 0
		m.Change.Quota, m.Change.Period = 0, 0
	}
	if memory := m.To.Memory > m.From.Memory || m.Must && m.To.Memory != m.From.Memory; m.To.Memory <= 0 || !memory {
		m.To.Memory = 0
		m.Change.Memory = 0
	}
	return m
}

// large reports whether a limit changes by the given share or more. From no limit to
// one is always large.
func (m Move) large(least mdp.Ratio) bool {
	far := func(from, to int64) bool {
		return to > 0 && to != from && float64(max(to-from, from-to)) >= float64(least)*float64(from)
	}
	return far(int64(m.From.CPU), int64(m.To.CPU)) || far(int64(m.From.Memory), int64(m.To.Memory))
}

// Stats is what a Limiter has measured.
type Stats struct {
	Calls   uint64
	Refused uint64        // moves that were not tried
	Errors  uint64        // calls that failed
	P50     time.Duration // of the recent calls; 0 when there were none
	P99     time.Duration // of the recent calls; 0 when there were none
	Breaker Breaker
	Why     string // the breaker is open
	Stalls  bool   // it is open because the node stalls, and not for what the runtime did
}

// Limiter stands between the agent and its runtime. Its decisions take the time as an
// argument. Its own clock measures only how long a call takes.
type Limiter struct {
	runtime Runtime
	rules   Rules
	clock   func() time.Time
	observe func(time.Duration)

	flight sync.Mutex // one call at a time on the whole node: held for the call

	mu      sync.Mutex // of the fields below
	bucket  *rate.Limiter
	last    map[string]time.Time // when a container was last moved
	recent  []time.Duration      // a ring of the durations of recent calls
	next    int                  // index of the next call in the ring
	breaker Breaker
	opened  time.Time // when the breaker opened last
	why     string    // it opened
	stalls  bool      // it opened because the node stalls
	stats   Stats
}

// NewLimiter makes the limiter of a node. The clock, usually time.Now, measures
// calls. observe gets the duration of each call, and may be nil.
func NewLimiter(r Runtime, rules Rules, clock func() time.Time, observe func(time.Duration)) *Limiter {
	if observe == nil {
		observe = func(time.Duration) {}
	}
	return &Limiter{runtime: r, rules: rules, clock: clock, observe: observe,
		bucket: rate.NewLimiter(rate.Limit(rules.PerSecond), rules.Burst), last: make(map[string]time.Time)}
}

// steps is the calls that a Change needs. In one update the runtime writes memory
// before CPU. That is right unless memory goes down: then CPU goes first, in a call of
// its own, so that memory becomes tight last.
func (m Move) steps() []Change {
	down := m.Change.Memory > 0 && m.From.Memory > 0 && m.Change.Memory < m.From.Memory
	if down && m.Change.Quota != 0 {
		return []Change{{Quota: m.Change.Quota, Period: m.Change.Period}, {Memory: m.Change.Memory}}
	}
	return []Change{m.Change}
}

// Allowed is nil when a Move may be made now, and a [*RefusedError] otherwise. It
// changes nothing.
func (l *Limiter) Allowed(now time.Time, m Move) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.allowed(now, m); err != nil {
		l.stats.Refused++
		return err
	}
	return nil
}

// allowed is Allowed, for a caller that holds the lock.
func (l *Limiter) allowed(now time.Time, m Move) error {
	if err := l.pass(now); err != nil {
		return err
	}
	// The steps of a loop come a little early or late: a tenth is not counted.
	if since := now.Sub(l.last[m.ID]); since < l.rules.Every-l.rules.Every/10 {
		return &RefusedError{fmt.Sprintf("the container was moved %v ago; %v is the least", since, l.rules.Every)}
	}
	if !m.Must && !m.Commit && !m.raises() && !m.large(l.rules.MinChange) {
		return &RefusedError{
			fmt.Sprintf("%v to %v is less than %v %%", m.From, m.To, float64(l.rules.MinChange)*100),
		}
	}
	need := float64(len(m.steps()))
	if !m.raises() && !m.Must {
		need += float64(l.rules.Reserve)
	}
	if have := l.bucket.TokensAt(now); have < need {
		return &RefusedError{fmt.Sprintf("%.1f calls left on this node now, %.0f needed", have, need)}
	}
	return nil
}

// pass is nil when the breaker lets a call pass.
func (l *Limiter) pass(now time.Time) error {
	l.cool(now)
	if l.breaker == Open {
		return fmt.Errorf("%w: %w", ErrOpen, &RefusedError{l.why})
	}
	return nil
}

// cool makes an open breaker half-open after its cooldown, also where nobody wants to call.
func (l *Limiter) cool(now time.Time) {
	if l.breaker == Open && now.Sub(l.opened) >= l.rules.Cooldown {
		l.breaker, l.why, l.stalls = HalfOpen, "", false
	}
}

// Update makes a Move, in at most two calls. After an error that is not a
// [*RefusedError] it is not known what is in force. ErrNoContainer is not the
// runtime's fault.
func (l *Limiter) Update(ctx context.Context, now time.Time, m Move) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("updating container %s: %w", m.ID, err)
	}
	if err := l.Allowed(now, m); err != nil {
		return err
	}
	l.mu.Lock()
	l.bucket.AllowN(now, len(m.steps()))
	l.last[m.ID] = now
	l.mu.Unlock()
	return l.calls(ctx, now, m)
}

// Told is what the runtime was told last of a container's limits, by whomever. It is an error when that is not known.
func (l *Limiter) Told(ctx context.Context, now time.Time, id string) (Change, error) {
	l.mu.Lock()
	err := l.pass(now)
	l.mu.Unlock()
	if err != nil {
		return Change{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.rules.Deadline)
	defer cancel()
	c, err := l.runtime.Container(bounded, id)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		l.mu.Lock()
		l.open(now, fmt.Sprintf("a question took longer than %v", l.rules.Deadline))
		l.mu.Unlock()
	}
	switch {
	case err != nil:
		return Change{}, err
	case c.Told == nil:
		return Change{}, fmt.Errorf("container %s: the runtime does not say what its limits are", id)
	}
	return *c.Told, nil
}

// Restore sets a container's own values. Size, time and budget do not matter. But it
// waits for the call in flight, and it does not call a runtime whose breaker is open.
func (l *Limiter) Restore(ctx context.Context, now time.Time, m Move) error {
	l.mu.Lock()
	err := l.pass(now)
	if err != nil {
		l.stats.Refused++
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.calls(ctx, now, m)
}

// Insist makes a Move although the breaker is open: raises and restores where the
// cgroup cannot be written directly. Only the time between two calls of one container
// counts.
func (l *Limiter) Insist(ctx context.Context, now time.Time, m Move) error {
	l.mu.Lock()
	since := now.Sub(l.last[m.ID])
	if since < l.rules.Every-l.rules.Every/10 {
		l.stats.Refused++
		l.mu.Unlock()
		return &RefusedError{fmt.Sprintf("the container was moved %v ago; %v is the least", since, l.rules.Every)}
	}
	l.last[m.ID] = now
	l.mu.Unlock()
	return l.calls(ctx, now, m)
}

// calls makes the calls of a Move.
func (l *Limiter) calls(ctx context.Context, now time.Time, m Move) error {
	for _, c := range m.steps() {
		if err := l.call(ctx, now, m.ID, c); err != nil {
			return err
		}
	}
	return nil
}

// Forget drops what is known of a container that ended.
func (l *Limiter) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, id)
}

// call makes one call, and lets its duration and error open or close the breaker.
func (l *Limiter) call(ctx context.Context, now time.Time, id string, c Change) error {
	l.flight.Lock()
	defer l.flight.Unlock()
	bounded, cancel := context.WithTimeout(ctx, l.rules.Deadline)
	defer cancel()
	begin := l.clock()
	err := l.runtime.Update(bounded, id, c)
	took := l.clock().Sub(begin)
	l.observe(took)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Calls++
	if errors.Is(err, ErrNoContainer) {
		return err // the runtime answered
	}
	if ctx.Err() != nil && err != nil {
		return err // the caller cancelled: that says nothing about the runtime
	}
	l.remember(took)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		l.open(now, fmt.Sprintf("a call took longer than %v", l.rules.Deadline))
	case errors.Is(err, ErrUnavailable):
		l.open(now, err.Error())
	case l.p(99) > l.rules.Slow && len(l.recent) >= l.rules.MinSamples && l.slow() >= l.rules.SlowCalls:
		l.open(
			now,
			fmt.Sprintf("99th percentile of the last %d calls is %v, above %v", len(l.recent), l.p(99),
				l.rules.Slow),
		)
	case l.breaker == HalfOpen && took > l.rules.Slow:
		l.open(now, fmt.Sprintf("the call that tried again took %v", took))
	case l.breaker == HalfOpen:
		l.breaker = Closed
	}
	if err != nil {
		l.stats.Errors++
	}
	return err
}

// Pressure takes in the node's full pressure for memory: the share of time in which all tasks waited for
// it. CPU is not taken in: for a whole node the kernel defines no full CPU pressure, and resizing is needed
// under CPU contention. Nor is I/O: on a node with little to do, one database that waits for its disk is full
// pressure for I/O. A disk that slows the runtime down shows in how long its calls take (ADR 42).
func (l *Limiter) Pressure(now time.Time, memory mdp.Ratio) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if memory > l.rules.PressureThreshold {
		l.open(now, fmt.Sprintf("the node stalls %.0f %% for memory, above %.0f %%",
			float64(memory)*100, float64(l.rules.PressureThreshold)*100))
		l.stalls = true
	}
}

// open opens the breaker, and forgets the recent calls: the slow ones among them would
// open it again as soon as it closes.
func (l *Limiter) open(now time.Time, why string) {
	l.breaker = Open
	l.opened = now
	l.why, l.stalls = why, false
	l.recent = l.recent[:0]
	l.next = 0
}

// remember adds a duration to the recent calls.
func (l *Limiter) remember(took time.Duration) {
	if len(l.recent) < l.rules.Window {
		l.recent = append(l.recent, took)
		return
	}
	l.recent[l.next] = took
	l.next = (l.next + 1) % len(l.recent)
}

// slow is how many of the recent calls were slow.
func (l *Limiter) slow() int {
	n := 0
	for _, took := range l.recent {
		if took > l.rules.Slow {
			n++
		}
	}
	return n
}

// p is a percentile of the recent calls, by nearest rank.
func (l *Limiter) p(percentile int) time.Duration {
	n := len(l.recent)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.recent))
	return sorted[max(0, (n*percentile+99)/100-1)]
}

// Stats is what was measured until now.
func (l *Limiter) Stats(now time.Time) Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cool(now)
	s := l.stats
	s.P50 = l.p(50)
	s.P99 = l.p(99)
	s.Breaker = l.breaker
	s.Why, s.Stalls = l.why, l.stalls
	return s
}
