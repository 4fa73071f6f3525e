package encode

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Corrections are the steps and the bounds of corrections of the demand policy (package demand).
type Corrections struct {
	MarginStep float64 `json:"margin_step"` // of a service's margin, a logarithm of deviations
	MarginMost int     `json:"margin_most"` // steps, up and down
	LevelStep  float64 `json:"level_step"`  // of the application's level, which the error budget moves
	LevelMost  int     `json:"level_most"`  // steps, up and down
	// ReplicasMost is how many replicas more, or fewer, than without corrections.
	ReplicasMost int `json:"replicas_most"`
	// Dwell is the time between two removals of a replica.
	Dwell time.Duration `json:"dwell_ns"`
}

// Correct is the default form of corrections: margins within a factor of 2.7 of what they are, in steps of a fifth.
func Correct() Form {
	return Form{
		Version: Version,
		Signals: mdp.LimitKnobs | mdp.SetOf(mdp.CPUUsage, mdp.MemoryUsage, mdp.CPUPeak, mdp.CPUDeviation, mdp.Throttled,
			mdp.Latency, mdp.Throughput, mdp.LoadChange, mdp.Arrivals, mdp.Missed, mdp.Lost),
		Knobs: mdp.SetOf(mdp.CPULimit, mdp.Replicas),
		Corrections: &Corrections{
			MarginStep: 0.2, MarginMost: 5, LevelStep: 0.2, LevelMost: 5, ReplicasMost: 2, Dwell: time.Minute,
		},
	}
}

// check is nil for steps that can be taken.
func (c Corrections) check() error {
	switch {
	case !(c.MarginStep > 0 && c.MarginStep <= 1) || !(c.LevelStep > 0 && c.LevelStep <= 1):
		return fmt.Errorf("encoding: steps of margin %v and level %v: they must be in (0, 1]", c.MarginStep, c.LevelStep)
	case c.MarginMost < 0 || c.MarginMost > mostSteps || c.LevelMost < 0 || c.LevelMost > mostSteps ||
		c.ReplicasMost < 0 || c.ReplicasMost > mostSteps:
		return fmt.Errorf("encoding: at most %d steps of margin, %d of level, %d replicas: they must be in [0, %d]",
			c.MarginMost, c.LevelMost, c.ReplicasMost, mostSteps)
	case c.Dwell < 0:
		return fmt.Errorf("encoding: dwell %v: it must not be negative", c.Dwell)
	}
	return nil
}

// mostSteps bounds a correction: a thousand deviations more or less mean nothing.
const mostSteps = 20

// Correction is where the corrections stand, in steps. The zero Correction is the demand policy itself.
type Correction struct {
	Margin   int `json:"margin"`
	Level    int `json:"level"`
	Replicas int `json:"replicas"`
}

// moves are the choices of corrections. The first one does nothing.
var moves = [...]struct {
	name string
	by   Correction
}{
	{"keep", Correction{}},
	{"margin +1", Correction{Margin: 1}},
	{"margin -1", Correction{Margin: -1}},
	{"level +1", Correction{Level: 1}},
	{"level -1", Correction{Level: -1}},
	{"replicas +1", Correction{Replicas: 1}},
	{"replicas -1", Correction{Replicas: -1}},
}

// Standing is what a [Corrector] reads beside a State.
type Standing struct {
	Correction
	Level      float64 // of the error budget, without the correction; meaningful when LevelKnown
	LevelKnown bool
	Base       int       // replicas without corrections
	Removed    time.Time // when a correction last removed a replica; zero is never
}

// standing is how many numbers the vector has for a Standing: three corrections, level, usage of the limit, missed
// of what the SLO allows, the latter ones with whether they are known.
const standing = 3 + 3*2

// Corrector encodes corrections at a place. One goroutine uses it at a time; it allocates nothing.
type Corrector struct {
	form    Form
	place   Place
	signals *Encoder
}

// NewCorrector makes a Corrector of a form with corrections.
func NewCorrector(f Form, p Place) (*Corrector, error) {
	if f.Corrections == nil {
		return nil, fmt.Errorf("encoding: the form has no corrections: its actions set %v", f.Knobs)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	only := f
	only.Corrections = nil
	e, err := New(only, p)
	return &Corrector{form: f, place: p, signals: e}, err
}

// Form is the corrector's form.
func (c *Corrector) Form() Form { return c.form }

// Observe writes a State of an interval, and what stands corrected, into obs, of length Form().Dim().
func (c *Corrector) Observe(s mdp.State, at Standing, obs []float64) error {
	if len(obs) != c.form.Dim() {
		return fmt.Errorf("encoding a state into %d numbers: they must be %d", len(obs), c.form.Dim())
	}
	if at.LevelKnown && (math.IsNaN(at.Level) || math.IsInf(at.Level, 0)) {
		return fmt.Errorf("encoding a level of %v: it must be finite, or not known", at.Level)
	}
	n := len(obs) - standing
	if err := c.signals.Observe(s, obs[:n]); err != nil {
		return err
	}
	rest := obs[n:]
	clear(rest)
	of := func(steps, most int) float64 { return float64(steps) / float64(max(1, most)) }
	rest[0] = of(at.Margin, c.form.Corrections.MarginMost)
	rest[1] = of(at.Correction.Level, c.form.Corrections.LevelMost)
	rest[2] = of(at.Replicas, c.form.Corrections.ReplicasMost)
	if at.LevelKnown {
		rest[3], rest[4] = min(farthest, max(-farthest, at.Level)), 1
	}
	if s.Knows(mdp.CPULimit, mdp.CPUUsage) && s.Limit.CPU > 0 {
		rest[5], rest[6] = min(farthest, float64(s.Usage.CPU)/float64(s.Limit.CPU)), 1
	}
	if allowed := 1 - c.place.SLO.Percentile/100; c.place.SLO.Latency > 0 && s.Knows(mdp.Missed) {
		rest[7], rest[8] = math.Log2(1+max(0, float64(s.Missed))/allowed), 1
	}
	return nil
}

// Legal writes which choices are legal after an interval: those within the bounds of the form and of the place. While the
// SLO is violated nothing shrinks, and replicas that were asked for are waited for. Keeping is always legal.
func (c *Corrector) Legal(s mdp.State, at Standing, legal []bool) {
	if len(legal) != len(moves) {
		panic(fmt.Sprintf("encode: a mask of %d choices: there are %d", len(legal), len(moves)))
	}
	for i := range moves {
		legal[i] = c.legal(s, at, moves[i].by)
	}
}

func (c *Corrector) legal(s mdp.State, at Standing, by Correction) bool {
	if by == (Correction{}) {
		return true
	}
	most, to := c.form.Corrections, at.Correction.plus(by)
	if abs(to.Margin) > most.MarginMost || abs(to.Level) > most.LevelMost || abs(to.Replicas) > most.ReplicasMost {
		return false
	}
	if by.Margin+by.Level+by.Replicas < 0 {
		if sp, ok := c.place.SLO.Preservation(s); ok && sp < 1 {
			return false
		}
	}
	if by.Replicas == 0 {
		return true
	}
	// Without knowing how many there are, and while some are on their way, there is no small step.
	if !s.Knows(mdp.Replicas) || s.Replicas != at.Base+at.Replicas || !c.place.Bounds.Replicas.Has(at.Base+to.Replicas) {
		return false
	}
	return by.Replicas > 0 || at.Removed.IsZero() || s.At.Sub(at.Removed) >= most.Dwell
}

// Correct is where the corrections stand after a choice. A choice that is not legal is an error.
func (c *Corrector) Correct(s mdp.State, at Standing, choice int) (Correction, error) {
	if choice < 0 || choice >= len(moves) {
		return at.Correction, fmt.Errorf("choice %d: there are %d", choice, len(moves))
	}
	m := moves[choice]
	if !c.legal(s, at, m.by) {
		return at.Correction, fmt.Errorf("choice %d (%s): it is not legal at %+v", choice, m.name, at.Correction)
	}
	return at.Correction.plus(m.by), nil
}

func (c Correction) plus(o Correction) Correction {
	return Correction{c.Margin + o.Margin, c.Level + o.Level, c.Replicas + o.Replicas}
}

func abs(n int) int { return max(n, -n) }
