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

// Rules are how much a node's runtime is asked to bear. Begin with [DefaultRules].
type Rules struct {
	PerSecond         float64       // calls, on average
	Burst             int           // calls at once, at most
	Reserve           int           // of the burst, kept for raises: a shrink saves money, a raise saves an SLO
	Every             time.Duration // between two moves of one container
	MinChange         mdp.Ratio     // a move smaller than this share of the limit is not worth a call
	Deadline          time.Duration // of one call
	Slow              time.Duration // the breaker opens when the 99th percentile of recent calls is above it
	Window            int           // how many calls are recent
	MinSamples        int           // with fewer recent calls there is no percentile to speak of
	PressureThreshold mdp.Ratio     // the breaker opens when memory or I/O full pressure of the node is above it
	Cooldown          time.Duration // how long the breaker stays open before one call may try again
}

// DefaultRules are the design's. Measured on containerd 2.4: p50 7 ms idle, p99 56 ms under CPU contention, some 200
// calls a second at most; 250 ms is a runtime in trouble.
var DefaultRules = Rules{
	PerSecond: 5, Burst: 20, Reserve: 5, Every: time.Second, MinChange: 0.1, Deadline: time.Second,
	Slow: 250 * time.Millisecond, Window: 100, MinSamples: 10, PressureThreshold: 0.2, Cooldown: time.Minute,
}

// Check names the field that is wrong, its value and the rule.
func (r Rules) Check() error {
	switch {
	case !(r.PerSecond > 0):
		return fmt.Errorf("cri rules: %v calls per second: must be above 0", r.PerSecond)
	case r.Burst < 2: // one move may be two calls
		return fmt.Errorf("cri rules: burst %d: must be 2 or more", r.Burst)
	case r.Reserve < 0 || r.Reserve > r.Burst-2:
		return fmt.Errorf("cri rules: reserve %d: must be in [0, burst-2 = %d]", r.Reserve, r.Burst-2)
	case r.Every < 0 || r.Deadline <= 0 || r.Slow <= 0 || r.Cooldown <= 0:
		return fmt.Errorf("cri rules: every %v, deadline %v, slow %v, cooldown %v: must be above 0", r.Every, r.Deadline, r.Slow, r.Cooldown)
	case !(r.MinChange >= 0 && r.MinChange < 1):
		return fmt.Errorf("cri rules: least move %v: must be in [0, 1)", float64(r.MinChange))
	case r.Window < 1 || r.MinSamples < 1 || r.MinSamples > r.Window:
		return fmt.Errorf("cri rules: window %d, enough %d: need 1 <= enough <= window", r.Window, r.MinSamples)
	case !(r.PressureThreshold > 0):
		return fmt.Errorf("cri rules: stall %v: must be above 0", float64(r.PressureThreshold))
	}
	return nil
}

// Breaker is the state of the breaker.
type Breaker int

// Its states.
const (
	Closed   Breaker = iota // calls pass
	Open                    // none does; observing goes on
	HalfOpen                // one may, and what comes of it decides
)

func (b Breaker) String() string { return [...]string{"closed", "open", "half-open"}[b] }

// RefusedError says why a move was not tried. Nothing was changed.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return "refused: " + e.Why }

// ErrOpen is wrapped by refusals of an open breaker.
var ErrOpen = errors.New("the breaker is open")

// Move is a wish to bring one container's limits from one size to another. In Size 0 is no limit, or no wish.
type Move struct {
	ID     string
	From   mdp.Size // in force
	To     mdp.Size // wanted; 0 keeps
	Change Change   // what that is for the runtime
	Must   bool     // small moves too: the limit in force is outside of its envelope
}

// raises tells whether something gets more.
func (m Move) raises() bool {
	return m.To.CPU > m.From.CPU && m.To.CPU > 0 || m.To.Memory > m.From.Memory && m.To.Memory > 0
}

// large tells whether some limit moves by the given share or more. From no limit to one is always large.
func (m Move) large(least mdp.Ratio) bool {
	far := func(from, to int64) bool {
		return to > 0 && to != from && float64(max(to-from, from-to)) >= float64(least)*float64(from)
	}
	return far(int64(m.From.CPU), int64(m.To.CPU)) || far(int64(m.From.Memory), int64(m.To.Memory))
}

// Stats is what a Discipline has seen.
type Stats struct {
	Calls, Refused, Errors uint64
	P50, P99               time.Duration // of the recent calls; 0 when there were none
	Breaker                Breaker
	Why                    string // the breaker is not closed
}

// Discipline stands between the agent and its runtime. Its decisions take the time as an argument; only how long a
// call takes is measured, by its clock.
type Limiter struct {
	runtime Runtime
	rules   Rules
	clock   func() time.Time
	observe func(time.Duration)

	flight sync.Mutex // one call at a time on the whole node: held for the call

	mu      sync.Mutex // of what follows
	bucket  *rate.Limiter
	last    map[string]time.Time // when a container was last moved
	recent  []time.Duration      // ring
	next    int
	breaker Breaker
	opened  time.Time
	why     string
	stats   Stats
}

// NewDiscipline makes the discipline of a node. The clock measures calls, usually time.Now; observe is told how long
// each took, and may be nil.
func NewLimiter(r Runtime, rules Rules, clock func() time.Time, observe func(time.Duration)) *Limiter {
	if observe == nil {
		observe = func(time.Duration) {}
	}
	return &Limiter{runtime: r, rules: rules, clock: clock, observe: observe,
		bucket: rate.NewLimiter(rate.Limit(rules.PerSecond), rules.Burst), last: make(map[string]time.Time)}
}

// steps are the calls that a Change is made of. The runtime writes memory before CPU in one update, which is right
// unless memory goes down: then CPU goes first, in a call of its own, so that what is made tight last is memory.
func (m Move) steps() []Change {
	down := m.Change.Memory > 0 && m.From.Memory > 0 && m.Change.Memory < m.From.Memory
	if down && m.Change.Quota != 0 {
		return []Change{{Quota: m.Change.Quota, Period: m.Change.Period}, {Memory: m.Change.Memory}}
	}
	return []Change{m.Change}
}

// Allowed is nil when a Move may be made now, and a [*RefusedError] otherwise. It changes nothing but an open
// breaker's state, which is half-open after its cooldown.
func (d *Limiter) Allowed(now time.Time, m Move) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.allowed(now, m); err != nil {
		d.stats.Refused++
		return err
	}
	return nil
}

func (d *Limiter) allowed(now time.Time, m Move) error {
	if err := d.pass(now); err != nil {
		return err
	}
	if since := now.Sub(d.last[m.ID]); since < d.rules.Every {
		return &RefusedError{fmt.Sprintf("container moved %v ago, %v is the least", since, d.rules.Every)}
	}
	if !m.Must && !m.large(d.rules.MinChange) {
		return &RefusedError{fmt.Sprintf("%v to %v is less than %v %%", m.From, m.To, float64(d.rules.MinChange)*100)}
	}
	need := float64(len(m.steps()))
	if !m.raises() && !m.Must {
		need += float64(d.rules.Reserve)
	}
	if have := d.bucket.TokensAt(now); have < need {
		return &RefusedError{fmt.Sprintf("%.1f calls left on this node now, %.0f needed", have, need)}
	}
	return nil
}

// pass lets a call through the breaker.
func (d *Limiter) pass(now time.Time) error {
	if d.breaker == Open {
		if now.Sub(d.opened) < d.rules.Cooldown {
			return fmt.Errorf("%w: %w", ErrOpen, &RefusedError{"runtime breaker is open: " + d.why})
		}
		d.breaker = HalfOpen
	}
	return nil
}

// Update makes a Move, in at most two calls. An error that is no [*RefusedError] means that it is not known what is
// in force now. ErrNoContainer is no fault of the runtime.
func (d *Limiter) Update(ctx context.Context, now time.Time, m Move) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("updating container %s: %w", m.ID, err)
	}
	if err := d.Allowed(now, m); err != nil {
		return err
	}
	d.mu.Lock()
	steps := m.steps()
	d.bucket.AllowN(now, len(steps))
	d.last[m.ID] = now
	d.mu.Unlock()
	for _, c := range steps {
		if err := d.call(ctx, now, m.ID, c); err != nil {
			return err
		}
	}
	return nil
}

// Restore puts a container's own values back. It is neither too small nor too soon nor too often; but it waits for
// the call in flight, and it does not press on a runtime whose breaker is open.
func (d *Limiter) Restore(ctx context.Context, now time.Time, m Move) error {
	d.mu.Lock()
	err := d.pass(now)
	if err != nil {
		d.stats.Refused++
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	for _, c := range m.steps() {
		if err := d.call(ctx, now, m.ID, c); err != nil {
			return err
		}
	}
	return nil
}

// Forget drops what is remembered of a container that ended.
func (d *Limiter) Forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.last, id)
}

func (d *Limiter) call(ctx context.Context, now time.Time, id string, c Change) error {
	d.flight.Lock()
	defer d.flight.Unlock()
	bounded, cancel := context.WithTimeout(ctx, d.rules.Deadline)
	defer cancel()
	begin := d.clock()
	err := d.runtime.Update(bounded, id, c)
	took := d.clock().Sub(begin)
	d.observe(took)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Calls++
	if errors.Is(err, ErrNoContainer) {
		return err // an honest and quick answer
	}
	if ctx.Err() != nil && err != nil {
		return err // our caller went away: that says nothing of the runtime
	}
	d.remember(took)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		d.open(now, fmt.Sprintf("a call took longer than %v", d.rules.Deadline))
	case errors.Is(err, ErrUnavailable):
		d.open(now, err.Error())
	case d.p(99) > d.rules.Slow && len(d.recent) >= d.rules.MinSamples:
		d.open(now, fmt.Sprintf("99th percentile of the last %d calls is %v, above %v", len(d.recent), d.p(99), d.rules.Slow))
	case d.breaker == HalfOpen && took > d.rules.Slow:
		d.open(now, fmt.Sprintf("the call that tried again took %v", took))
	case d.breaker == HalfOpen:
		d.breaker, d.why = Closed, ""
	}
	if err != nil {
		d.stats.Errors++
	}
	return err
}

// Pressure tells of the node's full pressure: shares of time in which all tasks waited for memory, and for I/O. CPU has
// none: for a whole node the kernel defines no full CPU pressure, and contention of CPU is when resizing is needed.
func (d *Limiter) Pressure(now time.Time, memory, io mdp.Ratio) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if memory > d.rules.PressureThreshold || io > d.rules.PressureThreshold {
		d.open(now, fmt.Sprintf("the node stalls %.0f %% for memory and %.0f %% for I/O, above %.0f %%",
			float64(memory)*100, float64(io)*100, float64(d.rules.PressureThreshold)*100))
	}
}

// open forgets the recent calls: the slow ones would open it again as soon as it closes.
func (d *Limiter) open(now time.Time, why string) {
	d.breaker, d.opened, d.why = Open, now, why
	d.recent, d.next = d.recent[:0], 0
}

func (d *Limiter) remember(took time.Duration) {
	if len(d.recent) < d.rules.Window {
		d.recent = append(d.recent, took)
		return
	}
	d.recent[d.next] = took
	d.next = (d.next + 1) % len(d.recent)
}

// p is a percentile of the recent calls, by nearest rank.
func (d *Limiter) p(percentile int) time.Duration {
	n := len(d.recent)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d.recent))
	return sorted[max(0, (n*percentile+99)/100-1)]
}

// Stats is what was seen until now.
func (d *Limiter) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.P50, s.P99, s.Breaker, s.Why = d.p(50), d.p(99), d.breaker, d.why
	return s
}
