package ppo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Algorithm and Encoding are written into saved weights: the algorithm, and the
// version of its format.
const (
	Algorithm = "ppo"
	Encoding  = 2
)

// Agent learns in Envs environments at once. One goroutine uses it at a time.
type Agent struct {
	Theta []float64 // all parameters, in the order of Config.Params
	Last  Stats     // of the last update
	agent.Skipped

	c       Config
	shape   agent.Shape
	scratch *scratch
	adam    *nn.Adam
	pcg     *rand.PCG
	r       *rand.Rand
	seen    *nn.Normaliser // of observations
	earned  *nn.Normaliser // of discounted returns
	returns []float64      // running discounted returns, for each environment
	steps   int            // of all environments together
	sent    []float64      // actions of the last Explore, as the environments got them

	rollout
	policy *kernel.Tape[float64] // of Envs rows
	critic *kernel.Tape[float64] // of Envs rows
	batch  Minibatch             // of the last update
}

// rollout is what was observed and done since the last update, [time][envs].
type rollout struct {
	time       int       // steps since the last update
	state      []float64 // normalised
	final      []float64 // normalised true next observations
	action     []float64 // as sampled
	logProb    []float64
	value      []float64
	reward     []float64
	nextValue  []float64
	advantage  []float64
	target     []float64 // returns
	terminated []bool
	ended      []bool
	overruled  []bool // another action than the sampled one took force
	unknown    []bool // the reward is not known
	legal      []bool // nil until a mask was given
}

func newRollout(c Config) rollout {
	n := c.Envs * c.Horizon
	return rollout{
		state:      make([]float64, n*c.State),
		final:      make([]float64, n*c.State),
		action:     make([]float64, n*c.Action()),
		logProb:    make([]float64, n),
		value:      make([]float64, n),
		reward:     make([]float64, n),
		nextValue:  make([]float64, n),
		advantage:  make([]float64, n),
		target:     make([]float64, n),
		terminated: make([]bool, n),
		ended:      make([]bool, n),
		overruled:  make([]bool, n),
		unknown:    make([]bool, n),
	}
}

// New makes an Agent with graphs of its own.
func New(c Config) (*Agent, error) { return NewWith(c, nil) }

// scratch is what an update needs, and what is not the Agent's state.
type scratch struct {
	updater *Updater
	next    *kernel.Tape[float64] // of a whole rollout
	sorted  Minibatch             // the rollout, in the order of an epoch
	order   []int
}

func newScratch(c Config) (*scratch, error) {
	g, err := Gorgonia(c)
	if err != nil {
		return nil, fmt.Errorf("ppo: %w", err)
	}
	n := c.Envs * c.Horizon
	return &scratch{
		updater: NewUpdater(c, g),
		next:    kernel.NewTape[float64](c.Critic(), n),
		sorted: Minibatch{
			State:     make([]float64, n*c.State),
			Action:    make([]float64, n*c.Action()),
			LogProb:   make([]float64, n),
			Advantage: make([]float64, n),
			Return:    make([]float64, n),
			Overruled: make([]bool, n),
			Unknown:   make([]bool, n),
		},
		order: make([]int, n),
	}, nil
}

// NewWith makes an Agent that shares graphs with the others of a Workspace.
func NewWith(c Config, w *agent.Workspace) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s, err := agent.Lend(w, Algorithm, c.updates(), func() (*scratch, error) { return newScratch(c) })
	if err != nil {
		return nil, err
	}
	a := &Agent{
		c:       c,
		shape:   c.shape(Algorithm),
		scratch: s,
		Theta:   make([]float64, c.Params()),
		adam:    nn.NewAdam(c.Params(), c.LearningRate, 1e-5),
		pcg:     rand.NewPCG(c.Seed, 0x990),
		seen:    nn.NewNormaliser(c.State),
		earned:  nn.NewNormaliser(1),
		returns: make([]float64, c.Envs),
		sent:    make([]float64, c.Envs*c.Action()),
		rollout: newRollout(c),
		policy:  kernel.NewTape[float64](c.Policy(), c.Envs),
		critic:  kernel.NewTape[float64](c.Critic(), c.Envs),
	}
	a.r = rand.New(a.pcg)
	policy, deviations, critic := c.parts(a.Theta)
	nn.OrthogonalMLP(c.Policy(), policy, 0.01, a.r)
	for i := range deviations {
		deviations[i] = c.Deviation
	}
	nn.OrthogonalMLP(c.Critic(), critic, 1, a.r)
	return a, nil
}

// Envs is the number of environments that an Agent learns in at once.
func (a *Agent) Envs() int { return a.c.Envs }

// GreedyAction is the policy's action without exploration: the most probable
// legal choice, or the mean.
func (a *Agent) GreedyAction(out []float64, legal []bool, action []float64) {
	a.head().Action(out, legal, action)
}

func (a *Agent) head() kernel.Head {
	if a.c.NumActions > 0 {
		return kernel.Head{Kind: kernel.Argmax}
	}
	return kernel.Head{Kind: kernel.Clamp, Low: a.c.Low, High: a.c.High}
}

// Explore samples actions among the legal choices: legal is [envs][NumActions],
// at least one of each row true; nil allows all.
func (a *Agent) Explore(obs []float64, legal []bool, actions []float64) error {
	if err := a.shape.Explore(obs, legal, actions); err != nil {
		return err
	}
	c := a.c
	a.legal = c.keepMask(a.legal, legal, a.time)
	at := a.time * c.Envs
	state := a.state[at*c.State:][:c.Envs*c.State]
	for i := range c.Envs {
		if c.NormaliseObservation {
			a.seen.Observe(obs[i*c.State:][:c.State])
		}
	}
	a.normalise(state, obs)
	policy, deviations, critic := c.parts(a.Theta)
	out := a.policy.Forward(policy, state, c.Envs)
	copy(a.value[at:][:c.Envs], a.critic.Forward(critic, state, c.Envs))
	for i := range c.Envs {
		row, action := out[i*c.Outputs():][:c.Outputs()], a.action[(at+i)*c.Action():][:c.Action()]
		free := a.policy.Out()[i*c.Outputs():][:c.Outputs()] // not in use until the next backward pass
		mask := nn.RowOf(a.legal, at+i, c.NumActions)
		a.logProb[at+i] = c.choose(row, deviations, mask, free, a.r, action)
		c.clip(action, actions[i*c.Action():][:c.Action()])
	}
	copy(a.sent, actions)
	return nil
}

// keepMask stores what is legal at a time of the rollout. Kept is nil until the
// first mask is given: until then everything was legal.
func (c Config) keepMask(kept, legal []bool, time int) []bool {
	width := c.Envs * c.NumActions
	if kept == nil {
		if legal == nil {
			return nil
		}
		kept = make([]bool, c.Horizon*width)
		for i := range kept {
			kept[i] = true
		}
	}
	row := kept[time*width:][:width]
	for i := range row {
		row[i] = legal == nil || legal[i]
	}
	return kept
}

// choose samples an action by a row of the policy's output, and gives the
// logarithm of its probability. logs is room for a logarithm of each choice.
func (c Config) choose(row, deviations []float64, legal []bool, logs []float64, r *rand.Rand,
	action []float64) float64 {
	if c.NumActions > 0 {
		categorical(row, legal, 0, logs)
		k := sample(logs, r.Float64())
		action[0] = float64(k)
		return logs[k]
	}
	for j, mean := range row {
		action[j] = mean + math.Exp(deviations[j])*r.NormFloat64()
	}
	return normal(row, deviations, action)
}

// clip is an action as the environment gets it: within its bounds.
func (c Config) clip(action, clipped []float64) {
	copy(clipped, action)
	for j := range c.Low {
		clipped[j] = max(c.Low[j], min(c.High[j], action[j]))
	}
}

// sample is the choice that a uniform number u selects.
func sample(logs []float64, u float64) int {
	last := 0
	for j, l := range logs {
		p := math.Exp(l)
		if p == 0 {
			continue
		}
		if u < p {
			return j
		}
		u -= p
		last = j
	}
	return last // rounding has left a remainder
}

func (a *Agent) normalise(to, obs []float64) {
	if !a.c.NormaliseObservation {
		copy(to, obs)
		return
	}
	for i := 0; i < len(obs); i += a.c.State {
		a.seen.Normalise(to[i:][:a.c.State], obs[i:][:a.c.State])
	}
}

// Learn takes what the actions of the last Explore led to. When the rollout is
// full the Agent learns from it. Rows in which another action took force are
// left out of the policy's loss, those without a known reward out of both. An
// update that fails is counted and learning goes on; the error is of rows that
// cannot be taken, and then nothing has changed.
func (a *Agent) Learn(rows env.Rows) error {
	if err := a.shape.Rows(rows); err != nil {
		return err
	}
	c, at := a.c, a.time*a.c.Envs
	a.normalise(a.final[at*c.State:][:c.Envs*c.State], rows.Final)
	for i := range c.Envs {
		a.reward[at+i] = a.scaled(rows, i)
		a.terminated[at+i], a.ended[at+i] = rows.Terminated[i], rows.Ended(i)
		a.overruled[at+i] = c.overruled(rows, a.sent, i)
		a.unknown[at+i] = !rows.RewardKnown[i]
		if a.overruled[at+i] || a.unknown[at+i] {
			a.SkippedRows++
		}
	}
	a.steps += c.Envs
	if a.time++; a.time == c.Horizon {
		a.time = 0
		a.improve()
	}
	return nil
}

// overruled reports whether another action took force in an environment than the
// one that was sent there.
func (c Config) overruled(rows env.Rows, sent []float64, i int) bool {
	n := c.Action()
	return !slices.Equal(rows.Executed[i*n:(i+1)*n], sent[i*n:(i+1)*n])
}

// scaled is the reward of an environment, divided by the deviation of its
// discounted returns. A return ends with its episode, and where a reward is not
// known.
func (a *Agent) scaled(rows env.Rows, i int) float64 {
	r := rows.Rewards[i]
	if !rows.RewardKnown[i] {
		a.returns[i] = 0
		return 0
	}
	if !a.c.NormaliseReward {
		return r
	}
	a.returns[i] = a.returns[i]*a.c.Gamma + r
	a.earned.Observe(a.returns[i : i+1])
	r = max(-10, min(10, r/a.earned.Deviation(0)))
	if rows.Ended(i) {
		a.returns[i] = 0
	}
	return r
}

// improve learns from a full rollout.
func (a *Agent) improve() {
	c, n := a.c, len(a.value)
	_, _, critic := c.parts(a.Theta)
	copy(a.nextValue, a.scratch.next.Forward(critic, a.final, n))
	Advantages(c.Gamma, c.Lambda, c.Envs, a.reward, a.value, a.nextValue, a.terminated, a.ended, a.unknown,
		a.advantage, a.target)
	left := c.annealed(a.steps - n) // at the rollout's start
	a.adam.LearningRate = c.LearningRate * left
	clip := c.Clip
	if c.AnnealClip {
		clip *= left
	}
	for range c.Epochs {
		order := a.scratch.order
		for i := range order {
			order[i] = i
		}
		a.r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
		a.sort()
		for from := 0; from < n; from += c.Minibatch {
			m := a.part(from)
			m.Clip = clip
			if _, rows := m.counts(); rows == 0 {
				continue // no reward is known in it
			}
			m.normalise()
			s, err := a.scratch.updater.Update(a.Theta, a.adam, m)
			if err != nil {
				a.Skip(err)
				continue
			}
			a.Last = s
		}
	}
}

// sort copies the rollout in the order of the epoch.
func (a *Agent) sort() {
	s, c := &a.scratch.sorted, a.c
	if len(s.Legal) != len(a.legal) {
		s.Legal = make([]bool, len(a.legal))
	}
	for to, from := range a.scratch.order {
		copy(s.State[to*c.State:][:c.State], a.state[from*c.State:])
		copy(s.Action[to*c.Action():][:c.Action()], a.action[from*c.Action():])
		s.LogProb[to] = a.logProb[from]
		s.Advantage[to], s.Return[to] = a.advantage[from], a.target[from]
		s.Overruled[to], s.Unknown[to] = a.overruled[from], a.unknown[from]
		if a.legal != nil {
			copy(s.Legal[to*c.NumActions:][:c.NumActions], a.legal[from*c.NumActions:])
		}
	}
}

// part is a minibatch of the sorted rollout.
func (a *Agent) part(from int) *Minibatch {
	s, c := &a.scratch.sorted, a.c
	n := c.Minibatch
	a.batch = Minibatch{
		State:     s.State[from*c.State:][:n*c.State],
		Action:    s.Action[from*c.Action():][:n*c.Action()],
		LogProb:   s.LogProb[from:][:n],
		Advantage: s.Advantage[from:][:n],
		Return:    s.Return[from:][:n],
		Overruled: s.Overruled[from:][:n],
		Unknown:   s.Unknown[from:][:n],
	}
	if a.legal != nil {
		a.batch.Legal = s.Legal[from*c.NumActions:][:n*c.NumActions]
	}
	return &a.batch
}

// Stats are figures of how learning goes.
func (a *Agent) Stats() agent.Stats {
	return a.Skipped.Stats(a.c.LearningRate * a.c.annealed(a.steps-a.time*a.c.Envs))
}

// Snapshot is the policy as it can be served; GreedyAction makes actions of its
// output. Its parameters are not copied.
func (a *Agent) Snapshot() kernel.Snapshot {
	policy, _, _ := a.c.parts(a.Theta)
	s := kernel.Snapshot{Version: uint64(a.adam.Steps), MLP: a.c.Policy(), Theta: policy, Head: a.head()}
	if a.c.NormaliseObservation {
		s.Mean, s.ClipRange = append([]float64(nil), a.seen.Mean...), a.seen.ClipRange
		for i := range s.Mean {
			s.Scale = append(s.Scale, 1/a.seen.Deviation(i))
		}
	}
	return s
}

// Save returns all state, also in the middle of a rollout. A learner that is
// restored from it continues as if it had never stopped.
func (a *Agent) Save() (weights.File, error) { return a.checkpoint().Save() }

// Restore brings back what Save gave, of an Agent of the same identity: shape,
// bounds, activation, normalisation. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Agent) checkpoint() weights.State {
	s := weights.NewState(Algorithm, Encoding, a.c.identity(false), a.c)
	for name, data := range map[string][]float64{
		"theta":           a.Theta,
		"seen.mean":       a.seen.Mean,
		"seen.square":     a.seen.Square,
		"earned.mean":     a.earned.Mean,
		"earned.square":   a.earned.Square,
		"returns":         a.returns,
		"rollout.state":   a.state,
		"rollout.final":   a.final,
		"rollout.action":  a.action,
		"rollout.logprob": a.logProb,
		"rollout.value":   a.value,
		"rollout.reward":  a.reward,
	} {
		s.Numbers[name] = data
	}
	a.adam.State(&s, "adam")
	a.Skipped.State(&s)
	s.Counts["steps"], s.Counts["time"] = weights.Count{At: &a.steps}, weights.Count{
		At:    &a.time,
		Below: a.c.Horizon,
	}
	s.Values["seen.count"], s.Values["earned.count"] = &a.seen.Count, &a.earned.Count
	n := len(a.value)
	s.Parts["random"] = a.pcg
	s.Parts["rollout.terminated"], s.Parts["rollout.ended"] = weights.Flags{
		At:     &a.terminated,
		Length: n,
	}, weights.Flags{At: &a.ended, Length: n}
	s.Parts["rollout.overruled"] = weights.Flags{At: &a.overruled, Length: n}
	s.Parts["rollout.unknown"] = weights.Flags{At: &a.unknown, Length: n}
	s.Parts["rollout.legal"] = weights.Flags{At: &a.legal, Length: n * a.c.NumActions, Optional: true}
	return s
}
