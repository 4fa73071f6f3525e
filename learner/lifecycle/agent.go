package lifecycle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
)

// AgentConfig is what an [Agent] is made of.
type AgentConfig struct {
	// Settings are the owner's. Without thresholds they are made of what the fallback earns.
	Settings   Settings
	Thresholds func(fallback Summary) Thresholds // that makes them; nil is [Default]

	Fallback mdp.Policy      // asked at each step, whoever drives, so that it knows what it decides on when it drives again
	Encoder  *encode.Encoder // of choices, by which other actions are tried
	Try      mdp.Ratio       // share of the steps in which another action is tried, where the stage wants that
	Seed     uint64

	// Objective is what the workload is to keep, for [Agent.Advise], and says what a step earns at least. The zero value promises
	// nothing.
	Objective mdp.Objective
}

// Agent is a workload's policy that acts by the stage of its lifecycle. One goroutine uses it at a time.
//
// The order of a step is [Agent.Decide], or [Agent.Advise] where nobody acts on it; then, once it is known what the decision
// before it led to, [Agent.Record] and [Agent.Tick]. It stands behind guards, as any policy.
type Agent struct {
	config  AgentConfig
	machine Machine
	random  *rand.Rand

	learned    mdp.Policy // nil: there is none
	generation uint64     // of learned; it only grows
	estimate   Estimate   // of learned, when it was offered
	before     mdp.Policy // what was replaced by learned while it drove; nil: nothing
	worth      Summary    // of before

	previous Driver    // who decided at the one before last, to which the next transition belongs
	recent   *Profile  // of who drives, since the stage or the policy changed
	fallback *Profile  // of the fallback
	workload Workload  // that the agent knows
	proven   bool      // the policy that there is has been, in other workloads
	served   bool      // the policy that drives has served, in the workload that it is
	stale    bool      // fallback is of the workload before it changed: it begins anew when the fallback drives
	judged   int       // complete episodes of the fallback, of which it was asked whether they are of another workload
	odd      bool      // the last ones might be
	detector *Detector // of drift, while a policy serves
	harm     *Detector // against what the fallback earned, while a policy drives
	drift    string
	harmful  string
	failed   error      // of the learned policy at the last decision
	now      time.Time  // of the last transition's decision
	last     Choice     // of the last decision
	lately   Departures // since recent began
}

// Choice is what is known of a decision beside what was decided.
type Choice struct {
	Driver   Driver
	Fallback mdp.Action // what the fallback wanted, before any guards; meaningful when Known
	Known    bool
	Departs  bool // what was decided leads to something else than that; false where it is not known
	Tried    bool // it is not what the driver wanted, but something to see what it leads to
}

// Departures is in how many of some steps a learned policy did something else than the fallback would have done.
type Departures struct{ Steps, Departed int }

// Workload is which of the workloads it is that an agent has known: an update makes it another one.
type Workload struct {
	Changes int       `json:"changes"`        // that were seen
	Since   time.Time `json:"since,omitzero"` // what was decided before is of another workload; zero: it was always this one
}

// NewAgent begins in the stage Initialized.
func NewAgent(c AgentConfig) (*Agent, error) {
	s := c.Settings
	if s.Thresholds == (Thresholds{}) {
		s.Thresholds.Variance = 1 // they are not known yet
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !(c.Try >= 0 && c.Try < 1) {
		return nil, fmt.Errorf("lifecycle try %v: it must be in [0, 1)", float64(c.Try))
	}
	if c.Thresholds == nil {
		c.Thresholds = Default
	}
	return &Agent{
		config: c, random: rand.New(rand.NewPCG(c.Seed, 0x11fe)), recent: NewProfile(), fallback: NewProfile(),
	}, nil
}

// Stage is where the agent is in its life, and why.
func (a *Agent) Stage() Machine { return a.machine }

// Generation is that of the learned policy; 0: there is none.
func (a *Agent) Generation() uint64 { return a.generation }

// Drives is who decided last, and why the learned policy did not although the stage says so; nil in all other cases.
func (a *Agent) Drives() (Driver, error) { return a.last.Driver, a.failed }

// Choice is of the last decision.
func (a *Agent) Choice() Choice { return a.last }

// Departures is how often the learned policy has departed from the fallback since it drives as it is, in this process.
func (a *Agent) Departures() Departures { return a.lately }

// Training is what is to be learned from now.
func (a *Agent) Training() Training { return a.plan().Training }

// Workload is which workload it is now: what is learned from, and what a policy is worth, must be of this one.
func (a *Agent) Workload() Workload { return a.workload }

// Renew says that the workload is another one from a time on: its owner has changed what it may use, or what it is to keep.
func (a *Agent) Renew(at time.Time) { a.workload = Workload{a.workload.Changes + 1, at} }

// plan is what follows from the stage.
func (a *Agent) plan() Plan { return a.machine.Plan(a.config.Settings) }

// Advise is what the driver decides. When the learned policy gives no legal action that is the fallback. Where the SLO is not
// kept a learned policy may ask for more than the fallback, and for nothing less (ADR 46).
func (a *Agent) Advise(s mdp.State) (mdp.Action, error) {
	action, err := a.config.Fallback.Decide(s)
	a.previous, a.failed = a.last.Driver, nil
	a.last = Choice{Driver: Fallback, Fallback: action, Known: err == nil}
	if a.plan().Driver != Learned {
		return action, err
	}
	chosen, wrong := a.ask(s, action, err == nil)
	if a.failed = wrong; wrong != nil {
		return action, err
	}
	a.last.Driver = Learned
	chosen = a.held(s, chosen)
	a.last.Departs = a.departs(s, chosen)
	return chosen, nil
}

// held is a learned policy's action, with nothing less than the fallback wants where the SLO is not kept; what the fallback
// leaves as it is, or does not know, does not shrink. Such states are rare in what a policy has learned from, and what it makes
// of them can be anything. Replicas that the fallback leaves are left: a State may have those that are ready, which after a kill
// can be none, and one more than that would be a removal of all others that were asked for.
func (a *Agent) held(s mdp.State, action mdp.Action) mdp.Action {
	if sp, known := a.config.Objective.SLO.Preservation(s); !known || sp >= 1 {
		return action
	}
	var least mdp.Action
	if a.last.Known {
		least = a.last.Fallback
	}
	if !least.Sets.Has(mdp.Replicas) {
		action = action.Without(mdp.SetOf(mdp.Replicas))
	}
	for k := range (action.Sets | least.Sets).Signals() {
		if v := value(s, least, k); value(s, action, k) < v {
			action = action.WithKnob(k, v)
		}
	}
	return action
}

// Decide implements [mdp.Policy]: what the driver decides, or now and then another action, where the stage wants that.
func (a *Agent) Decide(s mdp.State) (mdp.Action, error) {
	action, err := a.Advise(s)
	if a.last.Driver == Learned {
		a.lately.Steps++
		if a.last.Departs {
			a.lately.Departed++
		}
	}
	plan := a.plan()
	own := action
	switch {
	case err != nil || !(plan.Jitter || plan.Explore) || a.random.Float64() >= float64(a.config.Try):
	case a.last.Driver == Learned:
		action = a.held(s, a.other(s, action))
	default:
		action = a.raised(s, action)
	}
	a.last.Tried = action != own
	a.last.Departs = a.departs(s, action)
	return action, err
}

// departs reports whether an action leads to something else than what the fallback wants in the State.
func (a *Agent) departs(s mdp.State, action mdp.Action) bool {
	if !a.last.Known {
		return false
	}
	for k := range (action.Sets | a.last.Fallback.Sets).Signals() {
		if value(s, action, k) != value(s, a.last.Fallback, k) {
			return true
		}
	}
	return false
}

// value is a knob's after an action.
func value(s mdp.State, a mdp.Action, k mdp.Signal) int64 {
	if v, ok := a.Knob(k); ok {
		return v
	}
	return s.Knob(k)
}

// beside is a learned policy that wants to know what the fallback would do.
type beside interface {
	Beside(s mdp.State, fallback mdp.Action) (mdp.Action, error)
}

// ask is what the learned policy decides, beside what the fallback would do, where that is known.
func (a *Agent) ask(s mdp.State, fallback mdp.Action, known bool) (action mdp.Action, err error) {
	if a.learned == nil {
		return action, fmt.Errorf("stage %v without a learned policy", a.machine.Stage)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the learned policy panicked: %v", p)
		}
	}()
	if b, ok := a.learned.(beside); ok && known {
		action, err = b.Beside(s, fallback)
	} else {
		action, err = a.learned.Decide(s)
	}
	if err == nil {
		err = action.Check()
	}
	return action, err
}

// other is a legal choice, each as likely as the others.
func (a *Agent) other(s mdp.State, action mdp.Action) mdp.Action {
	all := a.choices(s, false)
	if len(all) == 0 {
		return action
	}
	return all[a.random.IntN(len(all))]
}

// raised is an action with one knob higher than it and than what is in force. It is never lower: the fallback is what is safe.
func (a *Agent) raised(s mdp.State, action mdp.Action) mdp.Action {
	all := a.choices(s, true)
	if len(all) == 0 {
		return action
	}
	higher := all[a.random.IntN(len(all))]
	for k := range higher.Sets.Signals() {
		v, _ := higher.Knob(k)
		if has, ok := action.Knob(k); !ok || v > has {
			action = action.WithKnob(k, v)
		}
	}
	return action
}

// choices are the legal choices in a State that move something; with up those alone that raise it.
func (a *Agent) choices(s mdp.State, up bool) []mdp.Action {
	legal := make([]bool, a.config.Encoder.Form().NumActions())
	if len(legal) == 0 {
		return nil
	}
	a.config.Encoder.Legal(s, legal)
	var all []mdp.Action
	for i, ok := range legal {
		if !ok {
			continue
		}
		action, err := a.config.Encoder.Choice(s, i)
		if err != nil || action.Sets == 0 {
			continue
		}
		lower := false
		for k := range action.Sets.Signals() {
			v, _ := action.Knob(k)
			lower = lower || v <= s.Knob(k)
		}
		if !up || !lower {
			all = append(all, action)
		}
	}
	return all
}

// Record takes in what the decision before the last one led to. It counts for who made that decision: the first step of a
// stage was still decided in the one before, and where the learned policy could not decide the fallback did.
func (a *Agent) Record(t mdp.Transition) {
	if a.previous == Fallback {
		a.fallback.Add(t)
	}
	a.now = t.State.At
	if a.previous != a.plan().Driver {
		return
	}
	a.recent.Add(t)
	if t.RewardKnown {
		a.drift = a.detector.seen(a.drift, t.Reward)
		a.harmful = a.harm.seen(a.harmful, t.Reward)
	}
}

// Offer offers a policy that was learned, with what it is worth. Generations only grow. While the fallback drives the policy is
// taken, and waits. While a learned policy drives it is replaced only by one that beats it: the lower end of the estimate is
// above what the one that drives has earned in fact. why says what became of it.
func (a *Agent) Offer(p mdp.Policy, generation uint64, worth Estimate) (taken bool, why string) {
	switch {
	case p == nil || generation <= a.generation:
		return false, fmt.Sprintf("generation %d is not newer than %d", generation, a.generation)
	case !worth.Known:
		return false, "nobody knows what it is worth"
	}
	if a.plan().Driver == Learned && a.learned != nil {
		now := a.recent.Summary()
		if now.Episodes == 0 || now.Coverage < a.config.Settings.Coverage {
			return false, "what drives has not been judged yet"
		}
		if worth.Low <= now.Mean {
			return false, fmt.Sprintf("it is worth %.4g to %.4g a step, and what drives earns %.4g",
				worth.Low, worth.High, now.Mean)
		}
		a.before, a.worth = a.learned, now
		a.recent, a.lately, a.detector = NewProfile(), Departures{}, nil
	}
	a.proven = worth.Proven
	if a.config.Settings.Thresholds != (Thresholds{}) {
		worth.Proven = false // the owner says what it takes
	}
	a.learned, a.generation, a.estimate = p, generation, worth
	return true, fmt.Sprintf("generation %d is worth %.4g to %.4g a step", generation, worth.Low, worth.High)
}

// provenEpisodes is how many of the fallback a policy waits for that other workloads have proven: they say what harm is.
const provenEpisodes = 2

// Tick moves the stage on. It reports whether the stage is another one now, or the workload.
func (a *Agent) Tick() (changed bool) {
	settings := a.config.Settings
	if a.another() {
		return true
	}
	if a.machine.Stage == Offline && a.odd {
		return false
	}
	recent, fallback := a.recent.Summary(), a.fallback.Summary()
	if settings.Thresholds == (Thresholds{}) {
		least := settings.Episodes
		if a.machine.Stage != Offline || a.estimate.Proven { // whoever drives is judged by what there was when it took over
			least = min(least, provenEpisodes)
		}
		if a.machine.Stage != Initialized && (fallback.Episodes < least || fallback.Coverage < settings.Coverage) {
			return false // nothing to compare with
		}
		settings.Thresholds = a.config.Thresholds(fallback)
	}
	a.rollback(settings, recent)
	next := a.machine.Next(settings, Evidence{
		Policy: a.learned != nil, Learned: a.estimate, Recent: recent, Fallback: fallback, Drift: a.drift, Harm: a.harmful,
	})
	drifted := a.drift != ""
	a.drift, a.harmful = "", ""
	serves := next.Stage == Serving
	if !serves || next != a.machine || a.detector == nil && recent.Episodes >= settings.Episodes {
		a.watch(serves)
	}
	if next == a.machine {
		return false
	}
	was, drove := a.machine.Stage, a.recent
	a.machine = next
	a.recent, a.lately = NewProfile(), Departures{}
	a.before = nil
	// What has served for episodes is not worth less by itself, least of all where other workloads have proven it. What was learned
	// here alone, is hardly worth less over many episodes, and still drives may be so by chance: only if it hands back after
	// that the workload was another one.
	another := a.served && a.learned != nil && (drifted || a.proven || next.Stage == Offline)
	if another {
		a.Renew(a.now)
		a.stale, a.harm = true, nil
	}
	a.served = serves || a.served && !another && next.Stage != Offline
	a.guard()
	if next.Stage == Offline && (was == Online || was == Serving) {
		a.estimate = Estimate{} // it was of a workload that is another one now
		if earned, known := drove.Earned(); known && was == Online {
			a.estimate = Estimate{Known: true, Mean: earned, Low: earned, High: earned}
		}
		a.fallback.Running = Episode{} // begun before the agent drove
		if a.stale {
			a.fallback, a.judged, a.odd, a.stale = NewProfile(), 0, false, false
		}
		a.fallback.Skip = a.fallback.Steps // it begins with queues and kills that the agent has left
	}
	return true
}

// another sees that the workload has changed while the fallback drives: then what is known of the fallback, and what the learned
// policy was estimated to be worth, are of another one. While the last episodes are odd ones, and
// too few to tell, nothing is handed over.
func (a *Agent) another() bool {
	if a.machine.Stage != Offline || a.fallback.Count == a.judged {
		return false
	}
	a.judged = a.fallback.Count
	a.odd = false
	for n := 1; n < changedEpisodes; n++ {
		a.odd = a.odd || a.fallback.far(n, a.config.Settings.Coverage) != nil
	}
	last := a.fallback.far(changedEpisodes, a.config.Settings.Coverage)
	if last == nil {
		return false
	}
	before := a.fallback.Over[:len(a.fallback.Over)-len(last)]
	a.machine.Why = fmt.Sprintf("the workload is another one: with the fallback a step is worth %.4g, and was %.4g",
		summary(last).Mean, summary(before).Mean)
	a.Renew(last[0].Begin)
	a.estimate, a.odd = Estimate{}, false
	a.fallback = NewProfile()
	a.fallback.Over, a.fallback.Count = slices.Clone(last), len(last)
	a.judged = len(last)
	return true
}

// watch makes the detector of drift of what a step has earned lately; it is needed while a policy serves. Where steps cluster a
// sum of them goes further by itself, and each busy quarter of an hour would be another workload.
func (a *Agent) watch(serves bool) {
	a.detector = nil
	if mean, deviation, ok := a.recent.Usual(); ok && serves {
		a.detector = NewDetector(mean, deviation)
		a.detector.Alarm *= a.recent.clustered()
	}
}

// What an agent loses before it hands back within an episode.
const (
	// harmAlarm is deviations of the fallback's rewards: far more than drift takes, since what changes the workload changes what the
	// fallback would earn, too.
	harmAlarm = 20
	// harmSteps is steps that are as bad as any: where late requests have a price one burst makes such a step, and a
	// fallback that was never late would have called each one harm.
	harmSteps = 2
)

// guard makes the detector of harm, which is needed while a policy drives, and keeps the one that there is: what was lost in one
// stage counts in the next. What the fallback earned before the workload changed says little of what it would earn now: then
// only steps count that earn less than half of that.
func (a *Agent) guard() {
	mean, deviation, ok := a.fallback.Usual()
	switch {
	case !ok || a.plan().Driver != Learned:
		a.harm = nil
		return
	case a.harm != nil:
		return
	}
	a.harm = NewDetector(mean, deviation)
	a.harm.Alarm = max(harmAlarm, harmSteps*(mean-float64(a.config.Objective.Worst()))/a.harm.Deviation)
	if a.stale {
		a.harm.Slack = max(a.harm.Slack, math.Abs(mean)/2/a.harm.Deviation)
	}
}

// rollback puts back what a promotion has replaced, where it earned more.
func (a *Agent) rollback(s Settings, recent Summary) {
	if a.before == nil || recent.Episodes < s.Episodes || recent.Coverage < s.Coverage {
		return
	}
	if least := a.worth.Mean - float64(s.Worse)*math.Abs(a.worth.Mean); recent.Mean < least {
		a.learned, a.proven = a.before, false
		a.generation++
		a.recent, a.lately, a.detector = NewProfile(), Departures{}, nil
	}
	a.before = nil
}

// AgentState is what outlives a process. The learned policy, and the one that it has replaced, are kept by who trains.
type AgentState struct {
	Stage      Stage    `json:"stage"`
	Why        string   `json:"why"`
	Generation uint64   `json:"generation"`
	Recent     *Profile `json:"recent"`
	Fallback   *Profile `json:"fallback"`
	Workload   Workload `json:"workload"`
	Proven     bool     `json:"proven,omitempty"` // in other workloads: so is the policy of the generation
	Stale      bool     `json:"stale,omitempty"`  // Fallback is of an earlier workload
	Served     bool     `json:"served,omitempty"` // the policy that drives has, in the workload that it is

	// Replaced is what the policy earned that the present one has replaced while it drove; nil: there is nothing to go back to.
	Replaced *Summary `json:"replaced,omitempty"`

	// The detectors of drift and of harm; nil where there is none. A state of an earlier release has none: then they are made of
	// what the policy, and the fallback, have earned.
	Drift *Detector `json:"drift,omitempty"`
	Harm  *Detector `json:"harm,omitempty"`
}

// State is what outlives the process. It shares nothing with the agent.
func (a *Agent) State() AgentState {
	var replaced *Summary
	if a.before != nil {
		worth := a.worth
		replaced = &worth
	}
	return AgentState{
		Stage: a.machine.Stage, Why: a.machine.Why, Generation: a.generation,
		Recent: a.recent.clone(), Fallback: a.fallback.clone(), Workload: a.workload, Stale: a.stale, Served: a.served,
		Proven: a.proven, Replaced: replaced, Drift: a.detector.clone(), Harm: a.harm.clone(),
	}
}

// Restore goes on from a state, with the policy that drove then, and the one that it had replaced; without the first the fallback
// drives, and without the other there is nothing to go back to. On an error nothing has changed.
func (a *Agent) Restore(s AgentState, learned, replaced mdp.Policy) error {
	switch {
	case s.Stage >= stages:
		return fmt.Errorf("lifecycle stage %d: there are %d", s.Stage, stages)
	case !s.Recent.valid() || !s.Fallback.valid():
		return fmt.Errorf("a lifecycle's state without the rewards of its episodes")
	case !s.Drift.valid() || !s.Harm.valid():
		return fmt.Errorf("a lifecycle's state with detectors of drift %+v and of harm %+v: deviations and alarms must be above 0",
			s.Drift, s.Harm)
	}
	a.machine = Machine{Stage: s.Stage, Why: s.Why}
	a.recent, a.fallback = s.Recent.clone(), s.Fallback.clone()
	a.learned, a.generation = learned, s.Generation
	if a.before = nil; learned != nil && replaced != nil && s.Replaced != nil {
		a.before, a.worth = replaced, *s.Replaced
	}
	a.workload, a.stale = s.Workload, s.Stale
	a.judged, a.odd = 0, false // the next tick asks again whether the last episodes are odd ones
	a.served, a.proven = s.Served || s.Stage == Serving, s.Proven
	if a.detector = s.Drift.clone(); a.detector == nil {
		a.watch(s.Stage == Serving)
	}
	a.harm = s.Harm.clone()
	a.guard()
	return nil
}
