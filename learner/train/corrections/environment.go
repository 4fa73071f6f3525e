package corrections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/train/margins"
)

// Prefix is what the names of these environments begin with: correct:APPLICATION/SERVICE.
const Prefix = "correct:"

// Settings are what an environment is made of. Start with [Named].
type Settings struct {
	Name    string
	Cell    bench.Cell   // its application and warm-up trace
	Service string       // the lead
	Law     bench.Choice // the demand policy, which drives
	Form    encode.Form  // corrections, or a box of limits
	Step    time.Duration
	Length  int           // steps of an episode
	Lead    time.Duration // before the first step: the demand policy alone, until it knows its services
	Worlds  Worlds        // that episodes are played in
}

// Worlds is what worlds are for. No two of them have a world in common, and none has one of package margins, by which the
// margins that come with aware were learned and chosen.
type Worlds uint8

const (
	Training   Worlds = iota // learning, and choosing the best actor on the way
	Validation               // deciding whether what was learned is kept
	HeldOut                  // comparing: nothing is decided by them
)

// Seed is the seed of the world of an episode.
func (w Worlds) Seed(episode uint64) uint64 {
	const free = 60 // bits; the highest four say what the world is for, two of them that it is ours (margins.HeldOutWorld)
	return 0b11<<62 | uint64(w)<<free | episode&(1<<free-1)
}

// The times of an episode: half an hour of half minutes.
const (
	Step   = 30 * time.Second
	Length = 60
	before = 10 * time.Minute
)

// Parse is the application and the service of a name.
func Parse(name string) (application, service string, err error) {
	rest, ok := strings.CutPrefix(name, Prefix)
	application, service, cut := strings.Cut(rest, "/")
	if !ok || !cut || application == "" || service == "" {
		return "", "", fmt.Errorf("environment %q: it must be %sAPPLICATION/SERVICE", name, Prefix)
	}
	return application, service, nil
}

// Named is the settings of the environment of a name, with corrections as actions, or with the raw limits of the service.
func Named(name string, raw bool) (Settings, error) {
	application, service, err := Parse(name)
	if err != nil {
		return Settings{}, err
	}
	cells, err := bench.Cells()
	if err != nil {
		return Settings{}, err
	}
	i := slices.IndexFunc(cells, func(c bench.Cell) bool { return c.Application == application })
	if i < 0 {
		return Settings{}, fmt.Errorf("environment %q: application %q: known are %s", name, application,
			strings.Join(bench.Applications(), ", "))
	}
	s := Settings{
		Name: name, Cell: cells[i], Service: service, Law: bench.Law(application), Form: encode.Correct(),
		Step: Step, Length: Length, Lead: before,
	}
	if raw {
		s.Form = encode.Box(mdp.LimitKnobs)
	}
	return s, s.Check()
}

// Check is nil for settings of which an environment can be made.
func (s Settings) Check() error {
	at := slices.IndexFunc(s.Cell.App.Services, func(one sim.Service) bool { return one.Name == s.Service })
	var names []string
	for _, one := range s.Cell.App.Services {
		names = append(names, one.Name)
	}
	switch {
	case at < 0:
		return fmt.Errorf("environment %s: service %q: known are %s", s.Name, s.Service, strings.Join(names, ", "))
	case s.Step < bench.Window || s.Step%bench.Window != 0:
		return fmt.Errorf("environment %s: step %v: it must be a multiple of %v", s.Name, s.Step, bench.Window)
	case s.Length < 1:
		return fmt.Errorf("environment %s: %d steps: it must be at least 1", s.Name, s.Length)
	case s.Lead < s.Step || s.Lead%bench.Window != 0:
		return fmt.Errorf("environment %s: lead %v: it must be a multiple of %v, and at least a step", s.Name, s.Lead, bench.Window)
	case s.Worlds > HeldOut:
		return fmt.Errorf("environment %s: worlds %d: they must be at most %d", s.Name, s.Worlds, HeldOut)
	case s.Form.Corrections == nil && s.Form.NumActions() > 0:
		return fmt.Errorf("environment %s: a form of choices without corrections", s.Name)
	}
	return s.Form.Check()
}

// Env is an environment of one lead. One goroutine uses it at a time.
type Env struct {
	settings Settings
	space    env.Space
	action   env.Space

	seed    uint64
	taken   [][]float64 // actions of the episode, by which it is saved
	session *bench.Session
	judge   *judge
	raw     *limits // nil with corrections
	running bool
	total   Played
	from    sim.Totals // when the first step began
}

// Played is what an episode has come to.
type Played struct {
	Reward float64 // sum over the steps whose reward is known
	Known  int     // such steps
	Steps  int
	Late   float64 // share of the requests that ended in it that were lost or above the SLO's latency; 0 of none
}

// masked is an Env with choices.
type masked struct{ *Env }

// Legal implements [env.Masker].
func (m masked) Legal(legal []bool) { m.session.Corrected().Legal(legal) }

// New makes an environment: an [env.Masker] where its actions are corrections.
func New(s Settings) (env.Env, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	e := &Env{settings: s}
	high := make([]float64, s.Form.Dim())
	for i := range high {
		high[i] = math.Inf(1)
	}
	e.space = env.Box(high...)
	if n := s.Form.NumActions(); n > 0 {
		e.action = env.Discrete(n)
		return masked{e}, nil
	}
	e.action = env.Box(slices.Repeat([]float64{1}, s.Form.ActionDim())...)
	return e, nil
}

// Make makes the environment of a name.
func Make(name string, raw bool) (env.Env, error) {
	s, err := Named(name, raw)
	if err != nil {
		return nil, err
	}
	return New(s)
}

// Name implements [env.Env].
func (e *Env) Name() string { return e.settings.Name }

// Observation is the space of states.
func (e *Env) Observation() env.Space { return e.space }

// Action is the space of actions: corrections, or a box.
func (e *Env) Action() env.Space { return e.action }

// Form is how states and actions are encoded.
func (e *Env) Form() encode.Form { return e.settings.Form }

// Interval is the time between two choices.
func (e *Env) Interval() time.Duration { return e.settings.Step }

// Reset implements [env.Env].
func (e *Env) Reset(seed uint64, obs []float64) error {
	s, world := e.settings, e.settings.Worlds.Seed(seed)
	length := s.Step * time.Duration(s.Length)
	choice := s.Law.Without(s.Service)
	if s.Form.Corrections != nil {
		choice = s.Law.Corrected(s.Service, s.Form)
	}
	next := Env{settings: s, space: e.space, action: e.action, seed: seed, running: true}
	ctx := context.Background()
	var err error
	next.session, err = bench.Open(ctx, margins.Random(s.Cell, world, max(length, 4*s.Lead)), choice, bench.Options{
		Seed: world, Fidelity: sim.Fluid, Length: length, Lead: s.Lead,
	})
	if err == nil && s.Form.Corrections == nil {
		next.raw, err = newLimits(next.session.World(), s)
	}
	for err == nil && next.session.Leading() {
		if next.session.World().Elapsed() == s.Lead-s.Step {
			next.end(ctx) // so that the first observation is of a step
		}
		err = next.session.Second(ctx)
	}
	if err == nil {
		err = next.end(ctx)
	}
	if err == nil {
		next.judge = newJudge(next.session.World(), s.Cell.App.SLO)
		next.from = next.session.World().Totals()
		err = next.Observe(obs)
	}
	if err != nil {
		return fmt.Errorf("%s: reset: %w", e.Name(), err)
	}
	*e = next
	return nil
}

// end ends an interval.
func (e *Env) end(ctx context.Context) error {
	if e.raw != nil {
		return e.raw.look(ctx)
	}
	e.session.Corrected().End()
	return nil
}

// Step implements [env.Env].
func (e *Env) Step(action, obs []float64) (env.Outcome, error) {
	fail := func(err error) (env.Outcome, error) {
		return env.Outcome{}, fmt.Errorf("%s: step after %d: %w", e.Name(), len(e.taken), err)
	}
	switch {
	case !e.running:
		return fail(env.ErrNotRunning)
	case len(obs) != e.space.Dim():
		return fail(fmt.Errorf("obs has length %d: it must have %d", len(obs), e.space.Dim()))
	}
	if err := e.action.Check(action); err != nil {
		return fail(err)
	}
	ctx := context.Background()
	effect := mdp.Applied
	var err error
	if e.raw != nil {
		effect, err = e.raw.act(ctx, action)
	} else {
		err = e.session.Corrected().Choose(int(action[0]))
	}
	if err != nil {
		return fail(err)
	}
	e.taken = append(e.taken, slices.Clone(action))
	e.running = false // until it is known that the step came to its end
	var sum float64
	known := 0
	for second := range int(e.settings.Step / time.Second) {
		if err := e.session.Second(ctx); err != nil {
			return fail(err)
		}
		if (second+1)%int(bench.Window/time.Second) != 0 {
			continue
		}
		reward, ok, err := e.judge.window(ctx)
		if err != nil {
			return fail(err)
		}
		if ok {
			sum += reward
			known++
		}
	}
	if err := e.end(ctx); err != nil {
		return fail(err)
	}
	if err := e.Observe(obs); err != nil {
		return fail(err)
	}
	e.running = len(e.taken) < e.settings.Length
	out := env.Outcome{RewardKnown: known > 0, Effect: effect, Truncated: !e.running}
	e.total.Steps++
	if known > 0 {
		out.Reward = sum / float64(known)
		e.total.Reward += out.Reward
		e.total.Known++
	}
	return out, nil
}

// Observe implements [env.Env].
func (e *Env) Observe(obs []float64) error {
	var err error
	switch {
	case e.session == nil:
		err = env.ErrNotRunning
	case e.raw != nil:
		err = e.raw.encoder.Observe(e.raw.state, obs)
	default:
		err = e.session.Corrected().Observe(obs)
	}
	if err != nil {
		return fmt.Errorf("%s: observe: %w", e.Name(), err)
	}
	return nil
}

// Executed implements [env.Executor]: a choice takes force as it is, and of raw limits what the guards left.
func (e *Env) Executed(action []float64) {
	if e.raw != nil {
		copy(action, e.raw.executed)
	} else if n := len(e.taken); n > 0 {
		copy(action, e.taken[n-1])
	}
}

// Result is what the bench measured of the episode, and what it earned. There must have been a step.
func (e *Env) Result() (bench.Score, Played) {
	now, p := e.session.World().Totals(), e.total
	if n := now.Ended - e.from.Ended; n > 0 {
		p.Late = (now.Missed - e.from.Missed) / n
	}
	return e.session.Score(), p
}

// saved is an episode: a world is determined by its seed and by what was done in it.
type saved struct {
	Started bool        `json:"started"`
	Seed    uint64      `json:"seed"`
	Taken   [][]float64 `json:"taken"`
}

const savedHeader = "aware corrections 1\n"

func (e *Env) head() string { return savedHeader + e.Name() + "\n" }

// MarshalBinary implements [env.Env].
func (e *Env) MarshalBinary() ([]byte, error) {
	text, err := json.Marshal(saved{Started: e.session != nil, Seed: e.seed, Taken: e.taken})
	if err != nil {
		return nil, fmt.Errorf("%s: save: %w", e.Name(), err)
	}
	return env.Seal(append([]byte(e.head()), text...)), nil
}

// UnmarshalBinary implements [env.Env]: it plays the episode again.
func (e *Env) UnmarshalBinary(data []byte) error {
	fail := func(err error) error { return fmt.Errorf("%s: restore from %d bytes: %w", e.Name(), len(data), err) }
	text, err := env.Unseal(data, e.head())
	if err != nil {
		return fail(err)
	}
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return fail(err)
	}
	next := &Env{settings: e.settings, space: e.space, action: e.action}
	if !s.Started {
		*e = *next
		return nil
	}
	if len(s.Taken) > e.settings.Length {
		return fail(errors.New("the episode is longer than its length"))
	}
	obs := make([]float64, e.space.Dim())
	if err := next.Reset(s.Seed, obs); err != nil {
		return fail(err)
	}
	for _, action := range s.Taken {
		if _, err := next.Step(action, obs); err != nil {
			return fail(err)
		}
	}
	*e = *next
	return nil
}

// limits is a lead of which the agent sets the limits and the replicas.
type limits struct {
	encoder  *encode.Encoder
	sensor   mdp.Sensor
	actuator mdp.Actuator
	guards   mdp.Policy
	now      func() time.Time
	proposed mdp.Action
	state    mdp.State
	executed []float64
}

func newLimits(w *sim.World, s Settings) (*limits, error) {
	h, err := w.Service(s.Service)
	if err != nil {
		return nil, err
	}
	l := &limits{sensor: h.Sensor(), actuator: h.Actuator(sim.L2), now: w.Now, executed: make([]float64, s.Form.ActionDim())}
	place := encode.Place{Bounds: h.Bounds(), SLO: s.Cell.App.SLO}
	l.guards = guard.Standard(mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return l.proposed, nil }), guard.Central,
		guard.Place{Bounds: h.Bounds, SLO: place.SLO})
	l.encoder, err = encode.New(s.Form, place)
	return l, err
}

func (l *limits) look(ctx context.Context) (err error) {
	l.state, err = l.sensor.Sense(ctx, l.now())
	return err
}

// act carries out what the guards leave of a box.
func (l *limits) act(ctx context.Context, action []float64) (mdp.Effect, error) {
	var err error
	if l.proposed, err = l.encoder.FromBox(action); err != nil {
		return mdp.Failed, err
	}
	guarded, err := l.guards.Decide(l.state)
	if err != nil {
		return mdp.Failed, err
	}
	executed, effect, err := l.actuator.Act(ctx, l.now(), guarded)
	if err != nil {
		return effect, err
	}
	if executed == l.proposed {
		for i, v := range action {
			l.executed[i] = max(-1, min(1, v))
		}
		return effect, nil
	}
	return effect, l.encoder.ToBox(l.state, executed, l.executed)
}
