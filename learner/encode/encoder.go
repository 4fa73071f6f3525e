package encode

import (
	"fmt"
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Place is the workload that a vector is of.
type Place struct {
	Bounds mdp.Bounds
	SLO    mdp.SLO
}

// Encoder is a form at a place. One goroutine uses it at a time; encoding and
// decoding allocate nothing.
type Encoder struct {
	form    Form
	place   Place
	signals []mdp.Signal
	knobs   []mdp.Signal
	choices []choice
	state   mdp.State // scratch: the tables take pointers
}

// New makes an Encoder. The bounds must be satisfiable for all knobs of the form.
func New(f Form, p Place) (*Encoder, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	if f.Corrections != nil {
		return nil, fmt.Errorf("encoding: actions that correct the demand policy: they must set knobs")
	}
	for k := range f.Knobs.Signals() {
		if r := p.Bounds.Knob(k); r.Min < mdp.KnobLeast(k) || r.Max < r.Min || r.Max < 1 {
			return nil, fmt.Errorf("encoding: bounds of %v %s to %s: need %s <= min <= max, and max above zero",
				k, mdp.FormatKnob(k, r.Min), mdp.FormatKnob(k, r.Max), mdp.FormatKnob(k, mdp.KnobLeast(k)))
		}
	}
	if err := p.SLO.Check(); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	e := &Encoder{form: f, place: p, choices: f.choices()}
	for one := range f.Signals.Signals() {
		e.signals = append(e.signals, one)
	}
	for one := range f.Knobs.Signals() {
		e.knobs = append(e.knobs, one)
	}
	return e, nil
}

// Form is the encoder's form.
func (e *Encoder) Form() Form { return e.form }

// farthest bounds every number of a vector: what lies beyond it says no more
// than it does.
const farthest = 20

// Observe writes a State into obs, of length Form().Dim(). An observed value
// that is not finite is an error, and obs is then as it was.
func (e *Encoder) Observe(s mdp.State, obs []float64) error {
	if len(obs) != e.form.Dim() {
		return fmt.Errorf("encoding a state into %d numbers: they must be %d", len(obs), e.form.Dim())
	}
	e.state = s
	for _, one := range e.signals {
		if v, ok := one.Get(&e.state); ok && (math.IsNaN(v) || math.IsInf(v, 0)) {
			return fmt.Errorf("encoding a state: %v is %v: it must be finite, or not observed", one, v)
		}
	}
	for i, one := range e.signals {
		obs[2*i], obs[2*i+1] = 0, 0
		if v, ok := one.Get(&e.state); ok {
			obs[2*i], obs[2*i+1] = min(farthest, max(-farthest, e.scale(one.Unit()).to(v))), 1
		}
	}
	return nil
}

// State is the inverse of Observe: what was observed, with its values, up to
// rounding and to what Observe cut off. It has no time.
func (e *Encoder) State(obs []float64) (mdp.State, error) {
	if len(obs) != e.form.Dim() {
		return mdp.State{}, fmt.Errorf("decoding a state of %d numbers: they must be %d", len(obs), e.form.Dim())
	}
	e.state = mdp.State{}
	for i, one := range e.signals {
		v, known := obs[2*i], obs[2*i+1]
		switch {
		case known == 0 && v == 0:
		case known != 1 || math.IsNaN(v) || math.IsInf(v, 0):
			return mdp.State{}, fmt.Errorf(
				"decoding a state: %v is %v, observed %v: it must be finite, and observed 0 or 1",
				one,
				v,
				known,
			)
		default:
			one.Set(&e.state, e.scale(one.Unit()).from(v))
		}
	}
	return e.state, nil
}

// scale brings values of one unit to numbers of about 1, and back. The zero value leaves them as they are.
type scale struct {
	unit      float64 // what logarithmic scales count a value in; geometric ones add it to a value, so that 0 has a place
	doublings float64 // of logarithmic scales, log2(1 + v/unit), how many of them are 1; 0 for others
	low       float64 // of geometric scales: the logarithm at -1
	half      float64 // of geometric scales: from there to the one at 0; 0 for others
}

// geometric is the scale of what knobs set, as a box has it: the bounds are -1 and 1, and a factor is the same step everywhere.
// Zero, which is no bound of a limit, is about -2.
func geometric(r mdp.Range[int64]) scale {
	const most = 1e4 // between bounds that are farther apart the lower one counts as less far
	high := float64(max(1, r.Max))
	low := max(float64(r.Min), high/most)
	unit := low / 16
	return scale{unit: unit, low: math.Log(low + unit), half: max(math.Log(2), math.Log((high+unit)/(low+unit))) / 2}
}

func (s scale) to(v float64) float64 {
	switch {
	case s.half > 0:
		return (math.Log(max(0, v)+s.unit)-s.low)/s.half - 1
	case s.doublings > 0:
		return math.Log2(1+max(0, v)/s.unit) / s.doublings
	}
	return v
}

func (s scale) from(x float64) float64 {
	switch {
	case s.half > 0:
		return math.Exp(s.low+(x+1)*s.half) - s.unit
	case s.doublings > 0:
		return (math.Exp2(x*s.doublings) - 1) * s.unit
	}
	return x
}

// Upper over lower end of the scales with [Form].Span.
const (
	spanCPU    = 160
	spanMemory = 128
)

// scale is the scale of a unit at this place: replicas, limits and usages on the scale of a box's actions, and latency against
// the SLO. A policy that sets a limit at a multiple of the usage then is a sum, whatever the workload's size.
func (e *Encoder) scale(u mdp.Unit) scale {
	b := e.place.Bounds
	if e.form.Span {
		b.CPU.Min, b.Memory.Min = max(1, b.CPU.Max/spanCPU), max(1, b.Memory.Max/spanMemory)
	}
	switch u {
	case mdp.ReplicaCount:
		return geometric(b.Knob(mdp.Replicas))
	case mdp.Millicores:
		return geometric(b.Knob(mdp.CPULimit))
	case mdp.ByteCount:
		return geometric(b.Knob(mdp.MemoryLimit))
	case mdp.BytesPerSecond:
		return scale{unit: 1 << 20, doublings: 1}
	case mdp.Seconds:
		if e.place.SLO.Latency > 0 {
			return scale{unit: e.place.SLO.Latency.Seconds(), doublings: 1}
		}
		return scale{unit: 0.1, doublings: 1}
	case mdp.RequestsPerSec:
		if e.place.SLO.Throughput > 0 {
			return scale{unit: float64(e.place.SLO.Throughput), doublings: 1}
		}
		return scale{unit: 1, doublings: 5} // a few large requests differ as much as many small ones do
	case mdp.Kills:
		return scale{unit: 1, doublings: 1}
	}
	return scale{}
}

// target is what a choice sets its knob to, from a State and within the bounds.
// ok is false when the choice would change nothing, or when the knob's value is
// not known.
func (e *Encoder) target(s *mdp.State, c choice) (v int64, ok bool) {
	if !c.moves || !s.Observed.Has(c.knob) {
		return 0, false
	}
	now := s.Knob(c.knob)
	v = now + int64(c.delta)
	if c.factor > 0 {
		v = int64(math.Round(float64(now) * c.factor))
	}
	v, _ = e.place.Bounds.Knob(c.knob).Clip(v)
	// Clipping must not turn the step around: below the least bound there is no
	// way further down.
	if (v-now)*e.direction(c) <= 0 {
		return 0, false
	}
	return v, true
}

// direction is 1 for a choice that raises its knob, and -1 for one that lowers it.
func (e *Encoder) direction(c choice) int64 {
	if c.factor > 1 || c.delta > 0 {
		return 1
	}
	return -1
}

// Legal writes which choices are legal in a State: those that change something
// within the bounds, and keeping everything. It panics where legal has another
// length than NumActions.
func (e *Encoder) Legal(s mdp.State, legal []bool) {
	if len(legal) != len(e.choices) {
		panic(fmt.Sprintf("encode: a mask of %d choices: there are %d", len(legal), len(e.choices)))
	}
	e.state = s
	for i, c := range e.choices {
		_, ok := e.target(&e.state, c)
		legal[i] = ok || !c.moves
	}
}

// Choice is the Action of a choice in a State. A choice that is not legal is an error.
func (e *Encoder) Choice(s mdp.State, i int) (mdp.Action, error) {
	if i < 0 || i >= len(e.choices) {
		return mdp.Action{}, fmt.Errorf("choice %d: there are %d", i, len(e.choices))
	}
	c := e.choices[i]
	if !c.moves {
		return mdp.Action{}, nil
	}
	e.state = s
	v, ok := e.target(&e.state, c)
	if !ok {
		return mdp.Action{}, fmt.Errorf("choice %d (%s): it changes nothing within the bounds", i,
			e.form.Names()[i])
	}
	return mdp.Action{}.WithKnob(c.knob, v), nil
}

// Nearest is the legal choice that is nearest to an Action in a State: by the
// sum over knobs of the distances of logarithms. Of equal ones it is the first,
// so that keeping wins over moving.
func (e *Encoder) Nearest(s mdp.State, a mdp.Action) int {
	e.state = s
	best, least := 0, math.Inf(1)
	for i, c := range e.choices {
		v, ok := e.target(&e.state, c)
		if c.moves && !ok {
			continue
		}
		far := 0.0
		for _, k := range e.knobs {
			if !e.state.Observed.Has(k) {
				continue
			}
			now := e.state.Knob(k)
			want, mine := now, now
			if set, ok := a.Knob(k); ok {
				want = set
			}
			if c.moves && c.knob == k {
				mine = v
			}
			far += math.Abs(math.Log(float64(max(0, want)+1)) - math.Log(float64(max(0, mine)+1)))
		}
		if far < least-1e-12 {
			best, least = i, far
		}
	}
	return best
}

// FromBox makes an Action of a box: x has one number for each knob, in mdp's
// order; -1 is the least bound and 1 the largest, geometrically between them.
// Numbers beyond are cut off; one that is not finite is an error.
func (e *Encoder) FromBox(x []float64) (mdp.Action, error) {
	if len(x) != len(e.knobs) {
		return mdp.Action{}, fmt.Errorf("a box of %d numbers: it must have %d", len(x), len(e.knobs))
	}
	var a mdp.Action
	for i, k := range e.knobs {
		if math.IsNaN(x[i]) || math.IsInf(x[i], 0) {
			return mdp.Action{}, fmt.Errorf("a box with %v for %v: it must be finite", x[i], k)
		}
		lo, hi := e.span(k)
		v := math.Exp(lo + (max(-1, min(1, x[i]))+1)/2*(hi-lo))
		n, _ := e.place.Bounds.Knob(k).Clip(int64(math.Round(v)))
		a = a.WithKnob(k, n)
	}
	return a, nil
}

// ToBox writes an Action as a box. A knob that it does not set is what it is in
// the State, or the middle where that is not known.
func (e *Encoder) ToBox(s mdp.State, a mdp.Action, x []float64) error {
	if len(x) != len(e.knobs) {
		return fmt.Errorf("a box of %d numbers: it must have %d", len(x), len(e.knobs))
	}
	for i, k := range e.knobs {
		v, ok := a.Knob(k)
		if !ok {
			v, ok = s.Knob(k), s.Knows(k)
		}
		lo, hi := e.span(k)
		x[i] = 0
		if ok && hi > lo {
			x[i] = max(-1, min(1, 2*(math.Log(float64(max(1, v)))-lo)/(hi-lo)-1))
		}
	}
	return nil
}

// span is the logarithms of a knob's bounds.
func (e *Encoder) span(k mdp.Signal) (lo, hi float64) {
	r := e.place.Bounds.Knob(k)
	return math.Log(float64(max(1, r.Min))), math.Log(float64(max(1, r.Max)))
}
