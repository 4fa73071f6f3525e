package aware

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
)

// The arms of figures 9 and 10, beside [AWARE].
const (
	Rule         Arm = "rule"          // HPA and VPA, tuned for the workload: the fallback of AWARE
	NoBootstrap  Arm = "no bootstrap"  // the agent drives and learns from the first step on, from nothing
	NoRetraining Arm = "no retraining" // a converged policy that goes on as it is
	Converged    Arm = "converged"     // a policy that was trained in the workload before it is measured
)

// Drive is one arm in one workload.
type Drive struct {
	Repetition int       `json:"repetition"`
	Workload   string    `json:"workload"`
	Arm        Arm       `json:"arm"`
	Phases     []string  `json:"phases,omitempty"` // updates, each with the same number of episodes
	Episodes   []Episode `json:"episodes"`
	Changes    []Change  `json:"changes,omitempty"` // of AWARE's stage
	// Seconds is the CPU time of learning while it drove. It is measured, and not the same in each run.
	Seconds float64 `json:"seconds"`
}

// Window is the number of episodes over which an arm is compared with the fallback.
const Window = 20

// Worst is the most that an arm earned less than another one in any window of n episodes, as a share of what the other one
// earned in the same episodes; below zero where it earned more in all. ok is false where there is no window of which the
// rewards are known.
func Worst(arm, other []Episode, n int) (loss float64, ok bool) {
	loss = math.Inf(-1)
	for i := 0; i+n <= min(len(arm), len(other)); i++ {
		mine, theirs := total(arm[i:i+n]), total(other[i:i+n])
		if mine.Known == 0 || theirs.Known == 0 || theirs.Mean() == 0 {
			continue
		}
		loss, ok = max(loss, (theirs.Mean()-mine.Mean())/math.Abs(theirs.Mean())), true
	}
	return loss, ok
}

// ArmSummary is an arm over all workloads and repetitions, with 95 % intervals over the repetitions' means.
type ArmSummary struct {
	Arm        Arm      `json:"arm"`
	Runs       int      `json:"runs"`
	Reward     Interval `json:"reward"` // of a step
	CPU        Interval `json:"cpu"`    // utilisation
	Memory     Interval `json:"memory"`
	Violations Interval `json:"violations"` // steps of an episode over the SLO
	Seconds    Interval `json:"seconds"`    // CPU time of learning
	// Worse is the most that the arm earned less than the rule in any window of episodes, as a share: see [Worst].
	Worse   *Interval `json:"worse,omitempty"`
	Worst   *float64  `json:"worst,omitempty"` // the same of the worst run
	Offline Interval  `json:"offline"`         // episodes in that stage
	Online  Interval  `json:"online"`
	Serving Interval  `json:"serving"`
}

// Claim is a figure of the paper, and what was found.
type Claim struct {
	What  string    `json:"what"`
	Bar   float64   `json:"bar"`             // the paper's
	Least bool      `json:"least"`           // the bar is the least that it must be; otherwise the most
	Found *Interval `json:"found,omitempty"` // nil: it cannot be said, such as a ratio to none at all
	Held  bool      `json:"held"`            // the mean is on the right side
	// Reported is a figure whose bar is of another form of the experiment (Setting.Demand): it is neither held nor missed.
	Reported bool `json:"reported,omitempty"`
}

// judged is claims as they are in a setting: with Demand they have no bar.
func (s Setting) judged(claims []Claim) []Claim {
	for i := range claims {
		if s.Demand {
			claims[i].Held, claims[i].Reported = false, true
		}
	}
	return claims
}

func claim(what string, bar float64, least bool, found *Interval) Claim {
	c := Claim{What: what, Bar: bar, Least: least, Found: found}
	if found != nil {
		c.Held = found.Mean >= bar == least || found.Mean == bar
	}
	return c
}

// of is the drives of an arm, by repetition.
func of(all []Drive, arm Arm) map[int][]Drive {
	by := map[int][]Drive{}
	for _, d := range all {
		if d.Arm == arm {
			by[d.Repetition] = append(by[d.Repetition], d)
		}
	}
	return by
}

// SummariseDrives is the arms' summaries, in the order in which they are given.
func SummariseDrives(all []Drive, arms []Arm) []ArmSummary {
	var out []ArmSummary
	for _, arm := range arms {
		by := of(all, arm)
		if len(by) == 0 {
			continue
		}
		s := ArmSummary{Arm: arm}
		per := func(figure func(f Figures) float64) Interval {
			return overRepetitions(by, func(d Drive) float64 {
				f := total(d.Episodes)
				return figure(f) / float64(max(1, f.Steps))
			})
		}
		s.Reward = overRepetitions(by, func(d Drive) float64 { return total(d.Episodes).Mean() })
		s.CPU = per(func(f Figures) float64 { return f.CPU })
		s.Memory = per(func(f Figures) float64 { return f.Memory })
		s.Violations = overRepetitions(by, func(d Drive) float64 {
			return float64(total(d.Episodes).Violations) / float64(max(1, len(d.Episodes)))
		})
		s.Seconds = overRepetitions(by, func(d Drive) float64 { return d.Seconds })
		for stage, to := range map[lifecycle.Stage]*Interval{
			lifecycle.Offline: &s.Offline, lifecycle.Online: &s.Online, lifecycle.Serving: &s.Serving,
		} {
			*to = overRepetitions(by, func(d Drive) float64 { return d.in(stage) })
		}
		worse := map[int][]float64{}
		for repetition, drives := range by {
			s.Runs += len(drives)
			for _, d := range drives {
				if loss, ok := Worst(d.Episodes, d.beside(all, Rule), Window); ok && arm != Rule {
					worse[repetition] = append(worse[repetition], loss)
				}
			}
		}
		if len(worse) > 0 {
			over := overRepetitions(worse, func(v float64) float64 { return v })
			most := math.Inf(-1)
			for _, losses := range worse {
				most = max(most, slices.Max(losses))
			}
			s.Worse, s.Worst = &over, &most
		}
		out = append(out, s)
	}
	return out
}

// in is the episodes that an arm was in a stage.
func (d Drive) in(stage lifecycle.Stage) float64 {
	steps, all := 0, 0
	for _, e := range d.Episodes {
		steps += e.Stages[stage]
		all += e.Steps
	}
	return float64(steps*len(d.Episodes)) / float64(max(1, all))
}

// beside is the episodes of another arm in the same workload.
func (d Drive) beside(all []Drive, arm Arm) []Episode {
	for _, o := range all {
		if o.Arm == arm && o.Repetition == d.Repetition && o.Workload == d.Workload {
			return o.Episodes
		}
	}
	return nil
}

// compared is a figure of two arms' sums over all repetitions; nil where it cannot be said, such as a ratio to no violations. The
// sums count each step the same: a mean of the repetitions' ratios would be that of the few with hardly any violations. The
// interval is the jackknife's, of the sums without each of the repetitions.
func compared(all []Drive, a, b Arm, figure func(a, b Figures) (float64, bool)) *Interval {
	mine, theirs := of(all, a), of(all, b)
	return jackknife(slices.Sorted(maps.Keys(mine)), func(left int) (float64, bool) {
		var sum [2]Figures
		for i, arm := range []map[int][]Drive{mine, theirs} {
			for _, repetition := range slices.Sorted(maps.Keys(arm)) {
				for _, d := range arm[repetition] {
					if repetition != left {
						sum[i] = sum[i].plus(total(d.Episodes))
					}
				}
			}
		}
		return figure(sum[0], sum[1])
	})
}

// gain is by which share a figure is above another one.
func gain(of func(Figures) float64) func(a, b Figures) (float64, bool) {
	return func(a, b Figures) (float64, bool) {
		mine, theirs := of(a)/float64(max(1, a.Steps)), of(b)/float64(max(1, b.Steps))
		return mine/theirs - 1, theirs > 0
	}
}

// fewer is how many times as many violations the other arm has.
func fewer(a, b Figures) (float64, bool) {
	return float64(b.Violations) / float64(a.Violations), a.Violations > 0
}

// settings are [Settings] for what is driven.
func (d *driven) settings(seed uint64) ddpg.Config {
	c := Settings(d.width(), len(d.executed))
	c.Seed = seed
	return c
}

// newAgent is an agent for what is driven, from nothing or from saved weights.
func newAgent(d *driven, from *weights.File, seed uint64) (*ddpg.Agent, error) {
	a, err := ddpg.New(d.settings(seed))
	if err == nil && from != nil {
		err = a.Restore(*from)
	}
	return a, err
}

// newPupil is an agent that begins with what the fallback does, and not with steps at random.
func newPupil(d *driven, seed uint64) (*ddpg.Agent, error) {
	c := d.settings(seed)
	c.Warmup = c.Batch
	return ddpg.New(c)
}

// newAdapted is a pretrained agent, and the memory of a workload of which it knows nothing.
func newAdapted(d *driven, p pretrain.Pretrained, seed uint64) (*ddpg.Agent, *meta.Memory, error) {
	learner, err := p.Learner()
	if err != nil {
		return nil, nil, err
	}
	c := Settings(d.width()+p.Meta.Embedding, len(d.executed))
	c.Seed, c.Warmup = seed, c.Batch
	a, err := p.Agent(c)
	return a, meta.NewMemory(learner), err
}

// known is how many episodes are known of a policy beforehand, where a threshold or a detector is made of them.
const known = 20

// known is episodes by a policy, of seeds that are never scored.
func (d *driven) known(ctx context.Context, by driver, seed uint64) ([]Episode, error) {
	return d.play(ctx, by, episodeSeeds(seed, knownSeeds, known))
}

// Trained is how the converged policies of figures 9 and 10 are trained: with an evaluation every few episodes, to the end.
var Trained = Convergence{Every: 5, Episodes: 10, Most: 100}

// trainedTo is the best policy of a training, and what it earned a step in the evaluation that chose it.
type trainedTo struct {
	best   *weights.File
	earned float64
}

// converged is the best policy of a whole training in a workload, from nothing or from saved weights; those are judged, too.
// Nobody is served by it, so nothing is guarded: the first episodes are the fallback's, with jitter, and from then on the agent
// drives, with the algorithm's noise in each step. From steps at random the algorithm ends with far too much of everything in
// many workloads.
func (d *driven) converged(
	ctx context.Context, c Convergence, l Life, fallback *rule, from *weights.File, seed uint64,
) (trainedTo, error) {
	a, err := newPupil(d, seed)
	if err == nil && from != nil {
		err = a.Restore(*from)
	}
	if err != nil {
		return trainedTo{}, err
	}
	return d.trained(ctx, c, l, fallback, a, nil, from != nil, seed)
}

// mastered is a workload, the rule that is tuned for it, and the best policy of a whole training there from nothing.
func (s Setting) mastered(ctx context.Context, w Workload, c Convergence, l Life, seed uint64) (
	d *driven, fallback *rule, best *weights.File, err error,
) {
	if d, err = s.driven(w); err != nil {
		return nil, nil, nil, err
	}
	if fallback, err = s.tunedRule(ctx, d, c.Episodes, seed); err != nil {
		return nil, nil, nil, err
	}
	own, err := d.converged(ctx, c, l, fallback, nil, seed)
	return d, fallback, own.best, err
}

// adapted is what [driven.converged] is, of a pretrained agent.
func (d *driven) adapted(
	ctx context.Context, c Convergence, l Life, fallback *rule, p pretrain.Pretrained, seed uint64,
) (trainedTo, error) {
	a, memory, err := newAdapted(d, p, seed)
	if err != nil {
		return trainedTo{}, err
	}
	return d.trained(ctx, c, l, fallback, a, memory, true, seed)
}

// trained is the best policy of the training of an agent. One that knows something is judged before it, too.
func (d *driven) trained(
	ctx context.Context, c Convergence, l Life, fallback *rule, a *ddpg.Agent, memory *meta.Memory, knows bool, seed uint64,
) (out trainedTo, err error) {
	first := l
	first.Least = c.Most + 1 // it is not evaluated, and stays Offline
	width := len(d.executed)
	offline, err := newLiving(first, a, width, fallback.again(), nil, seed)
	if err != nil {
		return out, err
	}
	online, judged := newActor(a, true, width), newActor(a, false, width)
	offline.memory, online.memory, judged.memory = memory, memory, memory
	same := episodeSeeds(seed, tuningSeeds, c.Episodes)
	out.earned = math.Inf(-1)
	judge := func() error {
		all, err := d.play(ctx, judged, same)
		if err != nil {
			return err
		}
		f := total(all)
		if f.Known == 0 || f.Mean() <= out.earned {
			return nil
		}
		w, err := a.SavePolicy()
		out.best, out.earned = &w, f.Mean()
		return err
	}
	if knows {
		if err := judge(); err != nil {
			return out, err
		}
	}
	for i, one := range episodeSeeds(seed, trainingSeeds, c.Most) {
		var by driver = offline
		if i >= l.Keep {
			by = online
		}
		if _, err := d.episode(ctx, by, one); err != nil {
			return out, err
		}
		if (i+1)%c.Every != 0 {
			continue
		}
		if err := judge(); err != nil {
			return out, err
		}
	}
	if out.best == nil {
		return out, fmt.Errorf("training: in %d episodes the reward of no evaluation was known", c.Most)
	}
	return out, nil
}
