// Package fqe says what a policy is worth that has not driven: fitted Q evaluation (Le, Voloshin and Yue 2019), from episodes
// that another policy has driven. It learns the value of an action under the policy that is evaluated, as DDPG's critic does,
// with that policy's action in the next state.
//
// It is only as good as the data: of actions that were never taken it knows nothing, and what the network makes up there can be
// anything. Policies that take such actions must not be evaluated by it; batch-constrained learning (package bcq) keeps to
// the others.
package fqe

import (
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Config is all settings. Default returns the usual ones.
type Config struct {
	State        int // numbers in an observation
	Action       int // numbers in an action, in [-1, 1]; 0 where actions are choices
	Choices      int // choices of an action; 0 where actions are numbers
	Hidden       []int
	LearningRate float64
	Tau          float64 // Polyak factor of the target network after an update, in (0, 1]
	Batch        int     // transitions of an update
	Updates      int     // of each network
	Resamples    int     // networks, each of its own draw of episodes with replacement; the interval is of their differences
	Confidence   float64 // of the interval, in (0, 1)
	// Gamma is the discount of a step's future, in (0, 1), where transitions last for other times than a step: one of k steps
	// has the discount Gamma^k, and as its reward what a step of it earns times (1 - Gamma^k) / (1 - Gamma). 0: all have the
	// same discount.
	Gamma float64 `json:",omitempty"`
	Seed  uint64
}

// Default is settings for episodes of a hundred steps, with actions of numbers or of choices; the other is 0.
func Default(state, action, choices int) Config {
	return Config{
		State: state, Action: action, Choices: choices, Hidden: []int{32, 32}, LearningRate: 1e-3, Tau: 0.01, Batch: 64,
		Updates: 1500, Resamples: 5, Confidence: 0.95,
	}
}

// Check is nil for valid settings. Otherwise it names the wrong one and what it must be.
func (c Config) Check() error {
	bad := agent.BadSetting("fitted q evaluation")
	switch {
	case c.Action < 0 || c.Choices < 0 || (c.Action > 0) == (c.Choices > 0):
		return bad("action, choices", []int{c.Action, c.Choices}, "numbers or choices, and not both")
	case !(c.Tau > 0 && c.Tau <= 1):
		return bad("tau", c.Tau, "in (0, 1]")
	case c.Updates < 1:
		return bad("updates", c.Updates, "at least 1")
	case c.Resamples < 2:
		return bad("resamples", c.Resamples, "at least 2")
	case !(c.Confidence > 0 && c.Confidence < 1):
		return bad("confidence", c.Confidence, "in (0, 1)")
	case !(c.Gamma >= 0 && c.Gamma < 1):
		return bad("gamma", c.Gamma, "in [0, 1)")
	}
	return c.critic().Check()
}

// width is how many numbers an action has as the network reads it: a choice has one for each, and 1 at its own.
func (c Config) width() int { return c.Action + c.Choices }

// critic is the shape of the networks, as that of DDPG's critic.
func (c Config) critic() ddpg.Config {
	low, high := make([]float64, c.width()), make([]float64, c.width())
	for i := range low {
		low[i], high[i] = -1, 1
	}
	d := ddpg.Default(c.State, low, high)
	d.Hidden = c.Hidden
	d.CriticLearningRate = c.LearningRate
	d.Batch = c.Batch
	d.Capacity = max(d.Capacity, c.Batch)
	return d
}

// Policy is what is evaluated: it writes its action for an observation, numbers or the index of a choice among the legal
// ones; nil makes all legal. taken is what was done there in the data, nil where an episode ends.
type Policy func(obs []float64, legal []bool, taken, action []float64) error

// Estimate is what the policy is worth: the mean reward of a step in the discounted future of the data's states, and an
// interval of it. With the data's states it has a part of what led there: a policy that is better than the data's is worth
// more in the end.
type Estimate struct {
	Interval
	// Gain is how much more that is than a step earned in the data. Each network's worth is compared with what was earned in
	// the episodes of its own draw. So a draw of quiet episodes, in which any policy earns more, does not widen this interval.
	Gain Interval
}

// Interval is a mean of networks, and its interval.
type Interval struct {
	Mean float64
	Low  float64
	High float64
}

// data is all transitions, as the network reads them.
type data struct {
	all    []replay.Transition
	action []float64 // [transitions][width] that took force
	next   []float64 // [transitions][width] that the policy would take in Next
	length []float64 // [transitions] in steps, of which later ones count for less: (1 - Gamma^k) / (1 - Gamma)
	of     [][2]int  // each episode's first transition, and the one after its last
	mean   float64   // reward of a step
	gamma  float64   // of a step
}

func (c Config) data(episodes [][]replay.Transition, policy Policy) (data, error) {
	d := data{gamma: c.Gamma}
	size := max(c.Action, 1)
	chosen := make([]float64, size)
	steps := 0.0
	for i, e := range episodes {
		begin := len(d.all)
		for j, t := range e {
			if err := c.check(t, size, d.gamma); err != nil {
				return d, fmt.Errorf("episode %d, step %d: %w", i, j, err)
			}
			var taken []float64
			if j+1 < len(e) {
				taken = e[j+1].Action
			}
			if err := policy(t.Next, t.NextLegal, taken, chosen); err != nil {
				return d, fmt.Errorf("episode %d, step %d: the policy: %w", i, j, err)
			}
			if err := c.legal(chosen); err != nil {
				return d, fmt.Errorf("episode %d, step %d: the policy's %w", i, j, err)
			}
			if d.gamma == 0 {
				d.gamma = t.Discount
			}
			length := (1 - t.Discount) / (1 - d.gamma)
			steps += length
			d.all, d.length = append(d.all, t), append(d.length, length)
			d.action, d.next = c.append(d.action, t.Action), c.append(d.next, chosen)
			d.mean += t.Reward
		}
		if len(e) > 0 {
			d.of = append(d.of, [2]int{begin, len(d.all)})
		}
	}
	if len(d.of) < 2 {
		return d, fmt.Errorf("%d episodes: there must be two at least, of which an interval can be made", len(d.of))
	}
	d.mean /= steps
	return d, nil
}

// check is nil for a transition that can be learned from; gamma is that of a step, or 0 where it is not known yet.
func (c Config) check(t replay.Transition, size int, gamma float64) error {
	switch {
	case len(t.State) != c.State || len(t.Next) != c.State || len(t.Action) != size || !nn.Finite(t.State, t.Next, t.Action):
		return fmt.Errorf("it must have finite states of %d numbers and an action of %d", c.State, size)
	case math.IsNaN(t.Reward) || math.IsInf(t.Reward, 0):
		return fmt.Errorf("reward %v: it must be finite", t.Reward)
	case !(t.Discount > 0 && t.Discount < 1) || c.Gamma == 0 && gamma != 0 && t.Discount != gamma:
		return fmt.Errorf("discount %v: it must be in (0, 1), and the same everywhere unless that of a step is given", t.Discount)
	case t.Terminated:
		return fmt.Errorf("it terminates, and there is no reward of a step in what goes on for ever")
	}
	return c.legal(t.Action)
}

// legal is nil for an action that can be one.
func (c Config) legal(action []float64) error {
	if c.Choices > 0 && !env.IsIndex(action[0], c.Choices) {
		return fmt.Errorf("choice %v of %d", action[0], c.Choices)
	}
	if !nn.Finite(action) {
		return fmt.Errorf("action %v: %w", action, nn.ErrNotFinite)
	}
	return nil
}

// append appends an action as the network reads it.
func (c Config) append(to, action []float64) []float64 {
	if c.Choices == 0 {
		return append(to, action...)
	}
	begin := len(to)
	to = append(to, make([]float64, c.Choices)...)
	to[begin+int(action[0])] = 1
	return to
}

// Evaluate estimates what a policy is worth in the states of the episodes. All transitions must have a discount below 1, the
// same one unless Config.Gamma is given, and none terminates. The same settings and data give the same estimate.
func Evaluate(c Config, episodes [][]replay.Transition, policy Policy, w *agent.Workspace) (Estimate, error) {
	fail := func(err error) (Estimate, error) {
		return Estimate{}, fmt.Errorf("evaluating a policy by fitted q: %w", err)
	}
	if err := c.Check(); err != nil {
		return Estimate{}, err
	}
	d, err := c.data(episodes, policy)
	if err != nil {
		return fail(err)
	}
	shape := c.critic()
	g, err := agent.Lend(w, "fitted q evaluation", shape, func() (ddpg.Gradients, error) { return ddpg.Gorgonia(shape) })
	if err != nil {
		return fail(err)
	}
	worth, gain := make([]float64, c.Resamples), make([]float64, c.Resamples)
	for i := range worth {
		var earned float64
		if worth[i], earned, err = c.fit(d, g, rand.New(rand.NewPCG(c.Seed, uint64(i)))); err != nil {
			return fail(err)
		}
		gain[i] = worth[i] - earned
	}
	return Estimate{c.interval(worth), c.interval(gain)}, nil
}

// interval is of one value by each network.
func (c Config) interval(values []float64) Interval {
	mean, deviation := stat.MeanStdDev(values, nil)
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(c.Resamples - 1)}.Quantile((1 + c.Confidence) / 2)
	return Interval{Mean: mean, Low: mean - t*deviation, High: mean + t*deviation}
}

// clip bounds the norm of a gradient.
const clip = 10

// fit is the mean reward of a step by one network, of episodes that are drawn with replacement, and what was earned in those.
// The network learns how much more than the mean of the data an action is worth: before it has learned anything it says the
// mean, and not zero.
func (c Config) fit(d data, g ddpg.Gradients, r *rand.Rand) (worth, earned float64, err error) {
	var drawn []int
	steps := 0.0
	for range d.of {
		e := d.of[r.IntN(len(d.of))]
		for i := e[0]; i < e[1]; i++ {
			drawn = append(drawn, i)
			earned += d.all[i].Reward
			steps += d.length[i]
		}
	}
	m := c.critic().Critic()
	net := nn.NewNetwork(m, c.LearningRate, 1e-3, true, r)
	tape := kernel.NewTape[float64](m, c.Batch)
	n, a, b := c.State, c.width(), c.Batch
	sa, next := make([]float64, b*(n+a)), make([]float64, b*(n+a))
	y, discount, weight, grad := make([]float64, b), make([]float64, b), make([]float64, b), make([]float64, m.Params())
	for i := range weight {
		weight[i] = 1
	}
	for range c.Updates {
		for i := range b {
			at := drawn[r.IntN(len(drawn))]
			row := sa[i*(n+a):][:n+a]
			copy(row, d.all[at].State)
			copy(row[n:], d.action[at*a:][:a])
			d.then(next[i*(n+a):][:n+a], at, a)
			discount[i] = d.all[at].Discount
			y[i] = d.all[at].Reward - d.mean*d.length[at]
		}
		for i, q := range tape.Forward(net.Target, next, b) {
			y[i] += discount[i] * q
		}
		loss, err := g.Critic(net.Theta, sa, y, weight, grad)
		if err := nn.CheckGradient(loss, grad, err); err != nil {
			return 0, 0, err
		}
		nn.Clip(clip, grad)
		net.Adam.Update(net.Theta, grad)
		nn.SoftUpdate(net.Target, net.Theta, c.Tau)
	}
	sum := 0.0
	one, row := kernel.NewTape[float64](m, 1), make([]float64, n+a)
	for _, at := range drawn {
		d.then(row, at, a)
		sum += one.Forward(net.Theta, row, 1)[0]
	}
	return d.mean + (1-d.gamma)*sum/float64(len(drawn)), earned / steps, nil
}

// then writes the next state of a transition, and what the policy would do there.
func (d data) then(row []float64, at, width int) {
	copy(row, d.all[at].Next)
	copy(row[len(row)-width:], d.next[at*width:][:width])
}
