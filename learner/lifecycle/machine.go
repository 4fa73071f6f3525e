package lifecycle

import (
	"fmt"
	"math"

	"awarescale.dev/aware/learner/mdp"
)

// Stage is where the agent of a workload is in its life (Algorithm 1).
type Stage uint8

// The stages.
const (
	// Initialized: nothing was decided yet.
	Initialized Stage = iota
	// Offline: the fallback drives the workload, and the agent learns from what it does.
	Offline
	// Online: the agent drives, and learns.
	Online
	// Serving: the agent drives, and its policy does not change.
	Serving

	stages
)

var stageNames = [stages]string{"Initialized", "Offline", "Online", "Serving"}

func (s Stage) String() string {
	if s >= stages {
		return fmt.Sprintf("Stage(%d)", uint8(s))
	}
	return stageNames[s]
}

// Thresholds are the rewards of a step, and their deviation between episodes, at which a stage changes. A reward of
// an episode of n steps is n times that of a step.
type Thresholds struct {
	Online   float64 // T_online: what a learned policy is worth at least before it drives
	Serving  float64 // T_serving: what it is worth at least before it is left as it is
	Variance float64 // T_var: the standard deviation of the episodes' mean rewards, at most
}

// Check is nil for thresholds in order. Otherwise the error names the field, its value and the rule.
func (t Thresholds) Check() error {
	switch {
	case !finite(t.Online) || !finite(t.Serving):
		return fmt.Errorf("thresholds online %v, serving %v: they must be numbers", t.Online, t.Serving)
	case t.Online > t.Serving:
		return fmt.Errorf("threshold online %v: it must not be above serving, %v", t.Online, t.Serving)
	case !(t.Variance > 0) || !finite(t.Variance):
		return fmt.Errorf("threshold variance %v: it must be above zero", t.Variance)
	}
	return nil
}

// Default is thresholds for a workload whose owner gave none: an agent drives when it is worth what
// the fallback is, is left alone when it is worth that in fact, and varies at most twice as much (a
// fiftieth of the reward, where the fallback does not vary).
func Default(fallback Summary) Thresholds {
	return Thresholds{
		Online:   fallback.Mean,
		Serving:  fallback.Mean,
		Variance: max(2*fallback.Deviation, 0.02*math.Abs(fallback.Mean), 1e-6),
	}
}

// Settings are what the owner of a workload says of its agent's life (the user profile P of Algorithm 1).
type Settings struct {
	Bootstrap  bool // begin Offline; otherwise the agent drives from the begin
	HighStakes bool // learn again Offline, and not Online
	Thresholds Thresholds
	Episodes   int       // that a judgement needs
	Coverage   mdp.Ratio // of the steps of those episodes, of which the reward must be known
	Worse      mdp.Ratio // than the fallback, by which the agent may be before it hands back
}

// DefaultSettings has no thresholds: see [Default].
var DefaultSettings = Settings{Bootstrap: true, Episodes: 5, Coverage: 0.5, Worse: 0.05}

// Check is nil for valid settings.
func (s Settings) Check() error {
	switch {
	case s.Episodes < 1:
		return fmt.Errorf("lifecycle episodes %d: it must be 1 or more", s.Episodes)
	case !(s.Coverage > 0 && s.Coverage <= 1):
		return fmt.Errorf("lifecycle coverage %v: it must be above 0 and at most 1", float64(s.Coverage))
	case !(s.Worse >= 0 && s.Worse < 1):
		return fmt.Errorf("lifecycle worse %v: it must be in [0, 1)", float64(s.Worse))
	}
	return s.Thresholds.Check()
}

// Summary is the rewards of episodes, of each step of which the reward is known.
type Summary struct {
	Mean      float64   // of a step
	Deviation float64   // of the episodes' means
	Episodes  int       // complete ones
	Coverage  mdp.Ratio // share of their steps of which the reward is known
}

// Estimate is what a policy that does not drive is worth: by off-policy evaluation, or in fact, where it has driven in this
// workload and handed back.
type Estimate struct {
	Known     bool
	Mean      float64 // of a step
	Low, High float64 // its interval
	Proven    bool    // in other workloads, of which an estimate in this one knows nothing
}

// Evidence is what is known at a tick.
type Evidence struct {
	Policy   bool     // there is a learned policy that can decide
	Learned  Estimate // what it is worth, where it does not drive
	Recent   Summary  // episodes of whoever drives now, since the stage began
	Fallback Summary  // episodes of the fallback, the last ones that there are
	Drift    string   // why the workload is another one than before, seen by the [Detector]; empty: it is not
	Harm     string   // why the agent is far worse than the fallback was, seen within an episode; empty: it is not
}

// Driver is who decides for the workload.
type Driver uint8

// The drivers.
const (
	Fallback Driver = iota
	Learned         // the learned policy, that is the agent of the paper
)

// Training is what an agent learns from.
type Training uint8

// The kinds of training.
const (
	NoTraining   Training = iota
	FromStore             // from trajectories of the fallback
	FromItsSteps          // from its own steps
)

// Plan is what follows from a stage.
type Plan struct {
	Driver   Driver
	Training Training
	Jitter   bool // the fallback's actions are varied, upwards only: a rule teaches nothing beyond itself
	Explore  bool // the agent tries other actions
}

// Machine is the state of Algorithm 1. It is a value: [Machine.Next] makes the next one.
type Machine struct {
	Stage Stage
	Why   string // of the last change
}

// Next is one tick. Departures from Algorithm 1, each for safety:
//
//  1. T_online is compared with the lower end of an off-policy evaluation's interval: the rewards seen Offline are the
//     fallback's and say nothing of the agent. A policy that other workloads have proven drives, where the stakes are not high,
//     unless the upper end of its estimate is below what it would be handed back for: the fallback's episodes say little of it
//     (ADR 35), and what it earns in fact is seen within an episode.
//  2. An agent that is worth less than the fallback by more than Settings.Worse hands back, and one without a policy, too.
//  3. A judgement needs episodes, and that their rewards are known: a gap is no drift, and no proof either.
//  4. Where the stakes are high, Serving goes to Offline.
//  5. Drift is also seen within an episode, and so is an agent that is far worse than the fallback: it hands back at once.
func (m Machine) Next(s Settings, e Evidence) Machine {
	to := func(stage Stage, why string, args ...any) Machine {
		return Machine{Stage: stage, Why: fmt.Sprintf(why, args...)}
	}
	t := s.Thresholds
	again := Online
	if s.HighStakes {
		again = Offline
	}
	judged := e.Recent.Episodes >= s.Episodes && e.Recent.Coverage >= s.Coverage
	switch {
	case m.Stage == Initialized && s.Bootstrap:
		return to(Offline, "the fallback drives at first")
	case m.Stage == Initialized && !e.Policy:
		return to(Offline, "there is no policy that could drive")
	case m.Stage == Initialized:
		return to(Online, "the owner wants no bootstrapping")
	case m.Stage == Offline:
		switch l, least := e.Learned, t.Online-float64(s.Worse)*math.Abs(t.Online); {
		case !e.Policy || !l.Known:
		case l.Low >= t.Online:
			return to(Online, "what was learned is worth %.4g to %.4g a step, and online takes %.4g", l.Low, l.High, t.Online)
		case l.Proven && !s.HighStakes && l.High >= least:
			return to(Online, "what other workloads have taught is tried: it may be worth %.4g a step, and has to be worth %.4g",
				l.High, least)
		}
	case !e.Policy:
		return to(Offline, "the policy cannot be used")
	case e.Harm != "":
		return to(Offline, "%s", e.Harm)
	case judged && e.Fallback.Episodes > 0 && e.Recent.Mean < e.Fallback.Mean-float64(s.Worse)*math.Abs(e.Fallback.Mean):
		return to(Offline, "the agent is worth %.4g a step, and the fallback %.4g", e.Recent.Mean, e.Fallback.Mean)
	case m.Stage == Online:
		if judged && e.Recent.Mean >= t.Serving && e.Recent.Deviation <= t.Variance {
			return to(Serving, "%d episodes are worth %.4g a step, deviation %.4g; serving takes %.4g and %.4g",
				e.Recent.Episodes, e.Recent.Mean, e.Recent.Deviation, t.Serving, t.Variance)
		}
	case e.Drift != "":
		return to(again, "%s", e.Drift)
	case judged && e.Recent.Mean < t.Serving:
		return to(again, "%d episodes are worth %.4g a step, and serving takes %.4g", e.Recent.Episodes, e.Recent.Mean, t.Serving)
	case judged && e.Recent.Deviation > t.Variance:
		return to(again, "the deviation of %d episodes is %.4g, and serving takes %.4g",
			e.Recent.Episodes, e.Recent.Deviation, t.Variance)
	}
	return m
}

// Plan is what follows from the stage.
func (m Machine) Plan(s Settings) Plan {
	switch m.Stage {
	case Online:
		return Plan{Driver: Learned, Training: FromItsSteps, Explore: !s.HighStakes}
	case Serving:
		return Plan{Driver: Learned}
	}
	return Plan{Driver: Fallback, Training: FromStore, Jitter: !s.HighStakes}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
