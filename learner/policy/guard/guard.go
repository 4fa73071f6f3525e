// Package guard makes any Policy safe to act on. [Standard] is the one chain of
// guards that central, the node agent, the bench and the gym use; only its [Settings]
// differ. A guard never makes an Action bolder, and it leaves its reason in
// Action.Clipped.
//
// The guards, innermost first:
//
//  1. legality: a policy that fails, panics or gives an illegal Action is replaced by the fallback
//  2. knobs: only what may be set is set; a limit that stands outside of its bounds is moved even if the policy is content
//  3. SLO: nothing shrinks while the SLO is violated
//  4. burst: nothing is resized within one, except that memory may rise, and no replica is removed that bursts need
//  5. steps: no step is larger, and no shrink comes sooner, than the settings allow
//  6. memory in use: a memory limit stays above it by a margin, also above that of the last minutes
//  7. budget: no raise beyond what the node has left
//  8. bounds: the owner's constraints or the container's envelope have the last word
package guard

import (
	"fmt"
	"math"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Settings are the settings of a chain. The zero value of a field switches its
// guard off; bounds and legality cannot be switched off.
type Settings struct {
	Name          string        // for results and logs
	Up            mdp.Ratio     // the most that a limit may grow in one step; 2 doubles it
	Down          mdp.Ratio     // the part of a limit that at least remains after one step; 0.8 takes a fifth
	ReplicasUp    mdp.Ratio     // the most that replicas may grow in one step, or by ReplicasBurst if that is more
	ReplicasBurst int           // replicas that may always be added in one step
	ReplicasDwell time.Duration // between two removals of a replica; one is removed at a time
	MemoryDwell   time.Duration // between two shrinks of memory
	ReservedDwell time.Duration // between two shrinks of a CPU reservation
	MemoryMargin  mdp.Ratio     // a memory limit is at least so many times the memory in use; 1.25 leaves a quarter
	MemoryPast    time.Duration // for so long memory in use counts; a container that was killed for memory has used its limit
	BurstShare    mdp.Ratio     // a removal leaves ceilings of which the largest burst of the last BurstPast needs at most so much
	BurstPast     time.Duration
	HoldSLO       bool // nothing shrinks while the SLO is violated
	// How long a burst, in which more CPU is used than is reserved, keeps the reservation as it is, and memory from
	// shrinking: a resize takes CPU from it. What goes on for longer is no burst.
	HoldBurst time.Duration
}

// The named sets.
var (
	// Central is for decisions through the API server, every 10 s. Scale-out
	// follows HPA's own default: doubled, or 4 more.
	Central = Settings{
		Name: "central", Up: 2, Down: 0.8, ReplicasUp: 2, ReplicasBurst: 4, ReplicasDwell: time.Minute,
		MemoryDwell: time.Minute, ReservedDwell: time.Minute, MemoryMargin: 1.25, HoldSLO: true, HoldBurst: time.Minute,
	}
	// Node is for decisions on the node, every second: a raise up to the
	// ceiling is not limited, for relief must come at once; a captain may halve
	// a limit.
	Node = Settings{Name: "node", Down: 0.5, MemoryDwell: time.Minute, MemoryMargin: 1.25, HoldSLO: true}
	// Blind is Node for an agent that does not see how the SLO fares.
	Blind = func() Settings { s := Node; s.HoldSLO = false; return s }()
	// Published is for rules that others published: they run within bounds
	// only, as their authors ran them.
	Published = Settings{Name: "published"}
)

// Named finds a named set.
func Named(name string) (Settings, error) {
	for _, s := range []Settings{Central, Node, Published} {
		if s.Name == name {
			return s, nil
		}
	}
	return Settings{}, fmt.Errorf("guards %q: they must be central, node or published", name)
}

// Check is nil for settings that make sense, and otherwise names the field, its
// value and the rule.
func (s Settings) Check() error {
	switch {
	case s.Up != 0 && !(s.Up > 1):
		return fmt.Errorf("guards %s: up %v: it must be above 1, or 0 for no limit", s.Name, float64(s.Up))
	case !(s.Down >= 0 && s.Down < 1):
		return fmt.Errorf("guards %s: down %v: it must be in [0, 1)", s.Name, float64(s.Down))
	case s.ReplicasUp != 0 && !(s.ReplicasUp > 1) || s.ReplicasBurst < 0:
		return fmt.Errorf("guards %s: replicas up %v, burst %d: they must be above 1 and at least 0",
			s.Name, float64(s.ReplicasUp), s.ReplicasBurst)
	case s.ReplicasDwell < 0 || s.MemoryDwell < 0 || s.ReservedDwell < 0 || s.HoldBurst < 0:
		return fmt.Errorf("guards %s: dwell of replicas %v, of memory %v, of a reservation %v, within a burst %v: "+
			"they must not be negative", s.Name, s.ReplicasDwell, s.MemoryDwell, s.ReservedDwell, s.HoldBurst)
	case s.MemoryPast < 0 || s.BurstPast < 0 || !(s.BurstShare >= 0 && s.BurstShare <= 1):
		return fmt.Errorf("guards %s: memory past %v, burst past %v, burst share %v: "+
			"the times must not be negative, and the share in [0, 1]", s.Name, s.MemoryPast, s.BurstPast, float64(s.BurstShare))
	case s.MemoryMargin != 0 && !(s.MemoryMargin >= 1):
		return fmt.Errorf("guards %s: memory margin %v: it must be at least 1, or 0 for none", s.Name,
			float64(s.MemoryMargin))
	}
	return nil
}

// String lists the guards that are on, for a line of a report.
func (s Settings) String() string {
	parts := []string{s.Name + ":"}
	add := func(on bool, format string, v any) {
		if on {
			parts = append(parts, fmt.Sprintf(format, v))
		}
	}
	add(s.HoldSLO, "no shrink while the SLO is violated%v;", "")
	add(s.HoldBurst != 0, "no resize within the first %v of a burst;", s.HoldBurst)
	add(s.Up != 0, "limits up at most x%v;", s.Up)
	add(s.Down != 0, "down at most x%v;", s.Down)
	add(s.ReplicasUp != 0, "replicas up at most x%v", s.ReplicasUp)
	add(s.ReplicasUp != 0, "or %d more;", s.ReplicasBurst)
	add(s.ReplicasDwell != 0, "one replica less each %v;", s.ReplicasDwell)
	add(s.MemoryDwell != 0, "memory down each %v;", s.MemoryDwell)
	add(s.ReservedDwell != 0, "a reservation down each %v;", s.ReservedDwell)
	add(s.MemoryMargin != 0, "memory at least x%v of what is in use;", s.MemoryMargin)
	add(s.MemoryPast != 0, "or was in the last %v;", s.MemoryPast)
	add(s.BurstShare != 0, "no replica less where bursts would need more than %v of the ceilings;", s.BurstShare)
	return strings.Join(append(parts, "bounds"), " ")
}

// Place is what a chain protects. Functions are asked at each decision, because
// an envelope and a budget move.
type Place struct {
	Bounds   func() mdp.Bounds
	Knobs    func() mdp.Set                  // what may be set; nil is everything
	Budget   func() (free mdp.Size, ok bool) // what a raise of one replica may take at most; nil is no budget
	SLO      mdp.SLO
	Fallback mdp.Policy // decides when the policy cannot; nil is nobody: then that is an error
}

// IllegalError says that a policy panicked or gave an illegal Action, and that
// there is no fallback.
type IllegalError struct{ Err error }

func (e *IllegalError) Error() string { return "the policy gave no legal action: " + e.Err.Error() }

// Unwrap is for errors.Is and errors.As.
func (e *IllegalError) Unwrap() error { return e.Err }

// Standard puts the chain around a policy. The chain remembers what it let
// through; a policy whose actions were not carried out for a while needs a new
// chain. The chain is an [encoding.BinaryMarshaler] and an
// [encoding.BinaryUnmarshaler] of what it remembers; what the policies remember is
// their own.
func Standard(policy mdp.Policy, s Settings, p Place) mdp.Policy {
	return &chain{policy: policy, settings: s, place: p}
}

type chain struct {
	policy     mdp.Policy
	settings   Settings
	place      Place
	lastMemory time.Time // of the last shrink that was let through
	lastCPU    time.Time // of a reservation's
	lastScale  time.Time // of the last removal of a replica that was let through
	burst      time.Time // since when there is a burst; zero: there is none
	memory     past      // memory in use
	bursts     past      // CPU that all replicas used in one second
}

// Decide implements [mdp.Policy].
func (c *chain) Decide(s mdp.State) (mdp.Action, error) {
	a, err := c.legal(s)
	if err != nil {
		return mdp.Action{}, err
	}
	bounds := c.place.Bounds()
	a = c.settable(s, a, bounds)
	a = c.holdSLO(s, a)
	a = c.holdBurst(s, a)
	a = c.keepForBursts(s, a)
	a = c.pace(s, a)
	a = c.aboveUse(s, a)
	a = c.withinBudget(s, a)
	return bounds.Clip(a), nil
}

// legal asks the policy, and the fallback where that fails. The fallback sees
// every State, so that it is warm when it is needed.
func (c *chain) legal(s mdp.State) (mdp.Action, error) {
	a, broken, err := guarded(c.policy, s)
	if c.place.Fallback == nil {
		if broken {
			err = &IllegalError{err}
		}
		return a, err
	}
	safe, brokenToo, fallbackErr := guarded(c.place.Fallback, s)
	if err == nil {
		return a, nil
	}
	if fallbackErr != nil {
		if brokenToo {
			fallbackErr = &IllegalError{fallbackErr}
		}
		return mdp.Action{}, fallbackErr
	}
	safe.Clipped |= mdp.ClippedFallback
	if broken {
		safe.Clipped |= mdp.ClippedNaN
	}
	return safe, nil
}

// guarded asks a policy. broken is true when it panicked or gave an illegal
// Action; err then says which.
func guarded(p mdp.Policy, s mdp.State) (a mdp.Action, broken bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			a, broken, err = mdp.Action{}, true, fmt.Errorf("panic: %v", v)
		}
	}()
	if a, err = p.Decide(s); err != nil {
		return mdp.Action{}, false, err
	}
	if err = a.Check(); err != nil {
		return mdp.Action{}, true, err
	}
	return a, false, nil
}

// settable takes out what may not be set. A limit in force that lies outside of
// its bounds is set to what it is, so that the bounds move it; without knowing
// the limit in force nothing is done. Replicas are left alone: a State counts
// the ready ones, and more may have been asked for.
func (c *chain) settable(s mdp.State, a mdp.Action, bounds mdp.Bounds) mdp.Action {
	knobs := mdp.Knobs
	if c.place.Knobs != nil {
		knobs = c.place.Knobs()
	}
	a = a.Only(knobs)
	for k := range (knobs & s.Observed).Without(a.Sets | mdp.SetOf(mdp.Replicas)).Signals() {
		r, now := bounds.Knob(k), s.Knob(k)
		if r.Min > 0 && !r.Has(now) {
			a = a.WithKnob(k, max(now, mdp.KnobLeast(k)))
		}
	}
	return a
}

// holdSLO forbids to shrink while the SLO is violated. Where the SLO cannot be
// judged it forbids nothing: the guard of a blind workload is its bounds.
func (c *chain) holdSLO(s mdp.State, a mdp.Action) mdp.Action {
	if !c.settings.HoldSLO {
		return a
	}
	if sp, ok := c.place.SLO.Preservation(s); !ok || sp >= 1 {
		return a
	}
	for k := range (a.Sets & s.Observed).Signals() {
		if v, _ := a.Knob(k); v < s.Knob(k) {
			a = a.WithKnob(k, s.Knob(k))
			a.Clipped |= mdp.ClippedSLO
		}
	}
	return a
}

// holdBurst keeps sizes as they are within a burst. The ceiling carries it, and a smaller size would free nothing in it that
// could not be freed after it. Without a ceiling above the reservation there is no burst: what is reserved has to rise.
func (c *chain) holdBurst(s mdp.State, a mdp.Action) mdp.Action {
	switch {
	case c.settings.HoldBurst == 0:
		return a
	case !s.Knows(mdp.CPUReservation, mdp.CPUCeiling, mdp.CPUUsage) || s.Usage.CPU <= s.Reservation || s.Ceiling <= s.Reservation:
		c.burst = time.Time{}
		return a
	case c.burst.IsZero():
		c.burst = s.At
	}
	if s.At.Sub(c.burst) >= c.settings.HoldBurst {
		return a
	}
	for k := range (a.Sets & s.Observed).Signals() {
		v, _ := a.Knob(k)
		if k == mdp.CPUReservation && v != s.Knob(k) || k == mdp.MemoryLimit && v < s.Knob(k) {
			a = a.WithKnob(k, s.Knob(k))
			a.Clipped |= mdp.ClippedBurst
		}
	}
	return a
}

// keepForBursts removes no replica without which the ceilings would not carry the bursts of the last minutes. What a burst of
// replicas at their ceilings would have needed is not known, but it was more: then the share says that none is removed.
func (c *chain) keepForBursts(s mdp.State, a mdp.Action) mdp.Action {
	if c.settings.BurstShare == 0 || !s.Knows(mdp.Replicas) {
		return a
	}
	if s.Knows(mdp.CPUBurst) {
		c.bursts.see(s.At, int64(s.CPUBurst)*int64(s.Replicas))
	}
	most := float64(c.bursts.highest(s.At, c.settings.BurstPast))
	want, ok := a.Knob(mdp.Replicas)
	now := int64(s.Replicas)
	if !ok || want >= now || !s.Knows(mdp.CPUCeiling) || s.Ceiling <= 0 {
		return a
	}
	least := int64(math.Ceil(most / (float64(c.settings.BurstShare) * float64(s.Ceiling))))
	if want < least {
		a = a.WithKnob(mdp.Replicas, min(now, least))
		a.Clipped |= mdp.ClippedBurst
	}
	return a
}

// pace keeps every step within the settings. A knob whose value is not known is
// not moved: without knowing where one stands there is no small step.
func (c *chain) pace(s mdp.State, a mdp.Action) mdp.Action {
	g := c.settings
	if g.Up == 0 && g.Down == 0 && g.ReplicasUp == 0 && g.ReplicasDwell == 0 && g.MemoryDwell == 0 && g.ReservedDwell == 0 {
		return a
	}
	if unknown := a.Sets.Without(s.Observed); unknown != 0 {
		a = a.Without(unknown)
		a.Clipped |= mdp.ClippedStale
	}
	for k := range a.Sets.Signals() {
		want, _ := a.Knob(k)
		var why mdp.Clips
		if k == mdp.Replicas {
			want, why = c.stepReplicas(s, want)
		} else {
			want, why = c.stepLimit(s.Knob(k), want)
		}
		if last, dwell := c.lastShrink(k); dwell > 0 && want < s.Knob(k) {
			if s.At.Sub(*last) < dwell {
				want = s.Knob(k)
				why |= mdp.ClippedDwell
			} else {
				*last = s.At
			}
		}
		a = a.WithKnob(k, want)
		a.Clipped |= why
	}
	return a
}

// lastShrink is when a knob was last let shrink, and the least time between two shrinks; 0 is none.
func (c *chain) lastShrink(k mdp.Signal) (last *time.Time, dwell time.Duration) {
	switch k {
	case mdp.MemoryLimit:
		return &c.lastMemory, c.settings.MemoryDwell
	case mdp.CPUReservation:
		return &c.lastCPU, c.settings.ReservedDwell
	}
	return nil, 0
}

// stepLimit moves a limit from now towards want, within the settings; it never
// ends at zero.
func (c *chain) stepLimit(now, want int64) (int64, mdp.Clips) {
	up := int64(float64(now) * float64(c.settings.Up))
	down := max(1, int64(float64(now)*float64(c.settings.Down)))
	switch {
	case want > now && want > up && up > 0:
		return up, mdp.ClippedRateUp
	case want < now && want < down && c.settings.Down > 0:
		return down, mdp.ClippedRateDown
	}
	return want, 0
}

// stepReplicas adds at most what the settings allow, and removes one replica at a time.
func (c *chain) stepReplicas(s mdp.State, want int64) (int64, mdp.Clips) {
	g, now := c.settings, int64(s.Replicas)
	most := max(int64(float64(now)*float64(g.ReplicasUp)), now+int64(g.ReplicasBurst))
	switch {
	case want > now && want > most && g.ReplicasUp > 0:
		return most, mdp.ClippedRateUp
	case want >= now || g.ReplicasDwell == 0:
		return want, 0
	case s.At.Sub(c.lastScale) < g.ReplicasDwell:
		return now, mdp.ClippedDwell
	}
	c.lastScale = s.At
	if want < now-1 {
		return now - 1, mdp.ClippedRateDown
	}
	return want, 0
}

// aboveUse keeps a memory limit above the memory in use, and above what was in use before: a State shows a moment, and what
// a few requests need at once shows in few of them. Memory whose use is unknown is not set at all.
func (c *chain) aboveUse(s mdp.State, a mdp.Action) mdp.Action {
	if c.settings.MemoryMargin == 0 {
		return a
	}
	most := s.Usage.Memory
	if c.settings.MemoryPast > 0 {
		if s.Knows(mdp.OOMKills, mdp.MemoryLimit) && s.OOMKills > 0 {
			most = max(most, s.Limit.Memory)
		}
		c.memory.see(s.At, int64(most))
		most = mdp.Bytes(c.memory.highest(s.At, c.settings.MemoryPast))
	}
	if !a.Sets.Has(mdp.MemoryLimit) {
		return a
	}
	if !s.Knows(mdp.MemoryUsage) {
		a = a.Without(mdp.SetOf(mdp.MemoryLimit))
		a.Clipped |= mdp.ClippedStale
		return a
	}
	if least := mdp.Bytes(float64(most) * float64(c.settings.MemoryMargin)); a.Limit.Memory < least {
		a.Limit.Memory = least
		a.Clipped |= mdp.ClippedUsage
	}
	return a
}

// withinBudget keeps raises within what the node has left. A limit that is not
// known is not raised.
func (c *chain) withinBudget(s mdp.State, a mdp.Action) mdp.Action {
	if c.place.Budget == nil {
		return a
	}
	free, ok := c.place.Budget()
	if !ok {
		return a
	}
	if a.Sets.Has(mdp.CPULimit) && a.Limit.CPU > s.Limit.CPU+max(0, free.CPU) {
		a.Limit.CPU = s.Limit.CPU + max(0, free.CPU)
		a.Clipped |= mdp.ClippedBudget
	}
	if a.Sets.Has(mdp.MemoryLimit) && a.Limit.Memory > s.Limit.Memory+max(0, free.Memory) {
		a.Limit.Memory = s.Limit.Memory + max(0, free.Memory)
		a.Clipped |= mdp.ClippedBudget
	}
	return a
}
