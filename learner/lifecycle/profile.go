// Package lifecycle is the lifecycle of a workload's agent in AWARE (ATC'23, Algorithm 1).
//
// A [Profile] has the rewards of recent episodes. The [Machine] makes of them the stage of the lifecycle, and of the stage a
// [Plan]: who drives, and what is learned from. An [Agent] is a workload's policy that acts by it: the fallback drives, and the
// learned policy takes over when it is as good, and hands back when it is not. Nothing here trains: whoever does offers
// policies, with what they are worth.
package lifecycle

import (
	"math"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Profile keeps the rewards of the last episodes of a workload. An episode has
// a constant number of steps (100 in the paper, §2.2). Its fields are its state.
type Profile struct {
	Steps int // number of steps in an episode
	Keep  int // number of episodes to keep

	Over    []Episode // the last complete episodes, oldest first
	Count   int       // number of complete episodes, including those no longer kept
	Running Episode

	Skip int `json:",omitempty"` // next steps that count for nothing: what was left behind is in them
}

// Episode is the sums of an episode's steps.
type Episode struct {
	Begin   time.Time `json:",omitzero"` // when its first decision was made
	Steps   int
	Known   int     // steps of which the reward is known
	Sum     float64 // of the known rewards
	Squares float64 // of their squares
}

// mean is the mean reward of a step, where one is known.
func (e Episode) mean() float64 { return e.Sum / float64(e.Known) }

// NewProfile creates a profile that keeps the last 20 episodes of 100 steps.
func NewProfile() *Profile { return &Profile{Steps: 100, Keep: 20} }

// Add adds a step. A step of which the reward is not known is a step all the same: it makes the coverage less.
func (p *Profile) Add(t mdp.Transition) {
	if p.Skip > 0 {
		p.Skip--
		return
	}
	if p.Running.Steps == 0 {
		p.Running.Begin = t.State.At
	}
	p.Running.Steps++
	if t.RewardKnown {
		r := float64(t.Reward)
		p.Running.Known++
		p.Running.Sum += r
		p.Running.Squares += r * r
	}
	if p.Running.Steps < p.Steps {
		return
	}
	p.Over = append(p.Over, p.Running)
	if len(p.Over) > p.Keep {
		p.Over = p.Over[1:]
	}
	p.Count++
	p.Running = Episode{}
}

// clone is a copy that shares nothing.
func (p *Profile) clone() *Profile {
	c := *p
	c.Over = slices.Clone(p.Over)
	return &c
}

// valid reports whether a profile of a file can be gone on with.
func (p *Profile) valid() bool {
	return p != nil && p.Steps > 0 && p.Keep > 0 && len(p.Over) <= p.Keep && p.Skip >= 0
}

// Totals returns the mean and the standard deviation of the total rewards of the kept episodes, and the number of complete
// episodes. Steps without a known reward count as the others do in the mean. Before the first episode is complete, the mean is
// the reward of the running episode, scaled to the full length. ok is false where no reward is known.
func (p *Profile) Totals() (mean, std float64, episodes int, ok bool) {
	steps := float64(p.Steps)
	s := p.Summary()
	if s.Coverage > 0 {
		return s.Mean * steps, s.Deviation * steps, p.Count, true
	}
	if p.Running.Known == 0 {
		return 0, 0, p.Count, false
	}
	return p.Running.mean() * steps, 0, p.Count, true
}

// Summary is the kept episodes as the [Machine] judges them. Episodes of which nothing is known count in the coverage only.
func (p *Profile) Summary() Summary { return summary(p.Over) }

func summary(over []Episode) Summary {
	s := Summary{Episodes: len(over)}
	steps, known, n := 0, 0, 0
	for _, e := range over {
		steps += e.Steps
		known += e.Known
		if e.Known > 0 {
			s.Mean += e.mean()
			n++
		}
	}
	if known == 0 {
		return s
	}
	s.Coverage = mdp.Ratio(float64(known) / float64(steps))
	s.Mean /= float64(n)
	for _, e := range over {
		if e.Known > 0 {
			s.Deviation += (e.mean() - s.Mean) * (e.mean() - s.Mean)
		}
	}
	s.Deviation = math.Sqrt(s.Deviation / float64(n))
	return s
}

// Earned is the mean reward of all steps that are kept, also those of the episode that runs; known is false where none is known.
func (p *Profile) Earned() (mean float64, known bool) {
	sum, n := p.Running.Sum, p.Running.Known
	for _, e := range p.Over {
		sum, n = sum+e.Sum, n+e.Known
	}
	if n == 0 {
		return 0, false
	}
	return sum / float64(n), true
}

// What shows that a workload is another one, by the rewards of one policy: the means of the last episodes, all of them, are far
// from those before on the same side. Whole episodes are compared, and not steps: how hours of one workload differ is in their
// deviation.
const (
	changedEpisodes = 3  // some 50 minutes: what is over sooner was no change
	changedBefore   = 5  // episodes that they are compared with, at least
	changedFar      = 4. // deviations
)

// far is the last n episodes where all of them are far from those before on the same side, and none where they are not, or where
// nobody can tell.
func (p *Profile) far(n int, coverage mdp.Ratio) []Episode {
	before := len(p.Over) - n
	if before < changedBefore {
		return nil
	}
	usual, last := summary(p.Over[:before]), p.Over[before:]
	if usual.Coverage < coverage {
		return nil
	}
	far := changedFar * max(usual.Deviation, 0.02*math.Abs(usual.Mean), 1e-9)
	side := last[0].mean() > usual.Mean
	for _, e := range last {
		known := e.Known > 0 && float64(e.Known) >= float64(coverage)*float64(e.Steps)
		if !known || math.Abs(e.mean()-usual.Mean) <= far || e.mean() > usual.Mean != side {
			return nil
		}
	}
	return last
}

// Usual is the mean and the deviation of a step's reward over the kept episodes; ok is false where none is known.
func (p *Profile) Usual() (mean, deviation float64, ok bool) {
	var all Episode
	for _, e := range p.Over {
		all.Known += e.Known
		all.Sum += e.Sum
		all.Squares += e.Squares
	}
	if all.Known == 0 {
		return 0, 0, false
	}
	mean = all.mean()
	return mean, math.Sqrt(max(0, all.Squares/float64(all.Known)-mean*mean)), true
}

// clustered is how many times as much the means of episodes vary as they would if each step were independent of those before:
// what a step earns follows from the load of minutes. It is at least 1.
func (p *Profile) clustered() float64 {
	_, deviation, ok := p.Usual()
	if !ok || deviation == 0 {
		return 1
	}
	of := summary(p.Over).Deviation
	return max(1, float64(p.Steps)*of*of/(deviation*deviation))
}
