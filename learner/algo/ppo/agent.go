package ppo

import (
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
)

// Algorithm and Encoding say in saved weights what they are of.
const (
	Algorithm = "ppo"
	Encoding  = 1
)

// Agent learns in Envs environments at once. One goroutine uses it at a time.
type Agent struct {
	Theta          []float64 // all parameters, in the order of Config.Params
	Last           Stats     // of the last update
	SkippedUpdates int       // updates that came to no number, or could not be computed; the last one's reason is in Trouble
	LastError      error

	c       Config
	updater *Updater
	adam    *nn.Adam
	pcg     *rand.PCG
	r       *rand.Rand
	seen    *nn.Normaliser // of observations
	earned  *nn.Normaliser // of discounted returns
	returns []float64      // running discounted returns, for each environment
	steps   int            // of all environments together

	rollout
	policy, critic *kernel.Tape[float64] // of Envs rows
	next           *kernel.Tape[float64] // of a whole rollout
	batch          Minibatch
	sorted         Minibatch // the rollout, in the order of an epoch
	order          []int
}

// rollout is what was seen and done since the last update, [time][envs].
type rollout struct {
	time                                                         int
	state, final                                                 []float64 // normalised
	action, logProb, value, reward, nextValue, advantage, target []float64
	terminated, ended                                            []bool
	legal                                                        []bool // nil until a mask was given
}

// New makes an Agent.
func New(c Config) (*Agent, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	g, err := Gorgonia(c)
	if err != nil {
		return nil, fmt.Errorf("ppo: %w", err)
	}
	return newAgent(c, g), nil
}

func newAgent(c Config, g Gradients) *Agent {
	n := c.Envs * c.Horizon
	a := &Agent{
		c: c, updater: NewUpdater(c, g), Theta: make([]float64, c.Params()), adam: nn.NewAdam(c.Params(), c.LearningRate, 1e-5), pcg: rand.NewPCG(c.Seed, 0x990),
		seen: nn.NewNormaliser(c.State), earned: nn.NewNormaliser(1), returns: make([]float64, c.Envs),
		rollout: rollout{
			state: make([]float64, n*c.State), final: make([]float64, n*c.State), action: make([]float64, n*c.Action()),
			logProb: make([]float64, n), value: make([]float64, n), reward: make([]float64, n), nextValue: make([]float64, n),
			advantage: make([]float64, n), target: make([]float64, n), terminated: make([]bool, n), ended: make([]bool, n),
		},
		policy: kernel.NewTape[float64](c.Policy(), c.Envs), critic: kernel.NewTape[float64](c.Critic(), c.Envs),
		next: kernel.NewTape[float64](c.Critic(), n),
		sorted: Minibatch{
			State: make([]float64, n*c.State), Action: make([]float64, n*c.Action()), LogProb: make([]float64, n),
			Advantage: make([]float64, n), Return: make([]float64, n),
		},
		order: make([]int, n),
	}
	a.r = rand.New(a.pcg)
	policy, deviations, critic := c.parts(a.Theta)
	nn.OrthogonalMLP(c.Policy(), policy, 0.01, a.r)
	for i := range deviations {
		deviations[i] = c.Deviation
	}
	nn.OrthogonalMLP(c.Critic(), critic, 1, a.r)
	return a
}

// Envs is the number of environments that an Agent learns in at once.
func (a *Agent) Envs() int { return a.c.Envs }

// Head is what the environment is told when the policy says out: the most probable choice, or the mean.
func (a *Agent) GreedyAction(out []float64, legal []bool, action []float64) {
	if a.c.NumActions > 0 {
		best := -1
		for j, v := range out {
			if (legal == nil || legal[j]) && (best < 0 || v > out[best]) {
				best = j
			}
		}
		action[0] = float64(max(best, 0))
		return
	}
	for j, v := range out {
		action[j] = max(a.c.Low[j], min(a.c.High[j], v))
	}
}

// Explore samples actions among the legal choices: legal is [envs][Choices], at least one of each row true; nil allows all.
func (a *Agent) Explore(obs []float64, legal []bool, actions []float64) error {
	c := a.c
	if len(obs) != c.Envs*c.State || len(actions) != c.Envs*c.Action() {
		return fmt.Errorf("ppo: %d observed numbers and %d for actions: it must be %d and %d", len(obs), len(actions), c.Envs*c.State, c.Envs*c.Action())
	}
	if legal != nil && len(legal) != c.Envs*c.NumActions {
		return fmt.Errorf("ppo: a mask of %d: it must be of %d", len(legal), c.Envs*c.NumActions)
	}
	if !nn.Finite(obs) {
		return fmt.Errorf("ppo: the observation %v: %w", obs, nn.ErrNotFinite)
	}
	if legal != nil && a.legal == nil {
		a.legal = make([]bool, len(a.value)*c.NumActions)
		for i := range a.legal {
			a.legal[i] = true
		}
	}
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
		var mask []bool
		if a.legal != nil {
			mask = a.legal[(at+i)*c.NumActions:][:c.NumActions]
			for j := range mask {
				mask[j] = legal == nil || legal[i*c.NumActions+j]
			}
		}
		free := a.policy.Out()[i*c.Outputs():][:c.Outputs()] // until the next way back
		a.logProb[at+i] = c.choose(row, deviations, mask, free, a.r, action)
		c.clip(action, actions[i*c.Action():][:c.Action()])
	}
	return nil
}

// choose samples an action by a row of the policy's output, and gives the logarithm of its probability. logs is room for a
// logarithm of each choice.
func (c Config) choose(row, deviations []float64, legal []bool, logs []float64, r *rand.Rand, action []float64) float64 {
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

// clip is what the environment is told of an action.
func (c Config) clip(action, previous []float64) {
	copy(previous, action)
	for j := range c.Low {
		previous[j] = max(c.Low[j], min(c.High[j], action[j]))
	}
}

// sample is the choice that a uniform number picks.
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
	return last // rounding has left a rest
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

// Learn takes what the actions of the last Explore led to: rewards, the true next observations (final, where an episode
// ended) and how episodes ended. When the rollout is full the Agent learns from it. Trouble of an update is remembered and
// counted, and learning goes on; the error is of experience that could not be taken.
func (a *Agent) Learn(rows env.Rows) error {
	c, at := a.c, a.time*a.c.Envs
	if !nn.Finite(rows.Rewards) || !nn.Finite(rows.Final) {
		return fmt.Errorf("ppo: rewards %v, next %v: %w", rows.Rewards, rows.Final, nn.ErrNotFinite)
	}
	a.normalise(a.final[at*c.State:][:c.Envs*c.State], rows.Final)
	for i, r := range rows.Rewards {
		ended := rows.Ended(i)
		if c.NormaliseReward {
			a.returns[i] = a.returns[i]*c.Gamma + r
			a.earned.Observe(a.returns[i : i+1])
			r = max(-10, min(10, r/a.earned.Deviation(0)))
			if ended {
				a.returns[i] = 0
			}
		}
		a.reward[at+i], a.terminated[at+i], a.ended[at+i] = r, rows.Terminated[i], ended
	}
	a.steps += c.Envs
	if a.time++; a.time == c.Horizon {
		a.time = 0
		a.improve()
	}
	return nil
}

// improve learns from a full rollout.
func (a *Agent) improve() {
	c, n := a.c, len(a.value)
	_, _, critic := c.parts(a.Theta)
	copy(a.nextValue, a.next.Forward(critic, a.final, n))
	Advantages(c.Gamma, c.Lambda, c.Envs, a.reward, a.value, a.nextValue, a.terminated, a.ended, a.advantage, a.target)
	clip := c.Clip
	if c.AnnealSteps > 0 {
		left := max(0, 1-float64(a.steps-n)/float64(c.AnnealSteps))
		a.adam.LearningRate = c.LearningRate * left
		if c.AnnealClip {
			clip *= left
		}
	}
	for range c.Epochs {
		for i := range a.order {
			a.order[i] = i
		}
		a.r.Shuffle(n, func(i, j int) { a.order[i], a.order[j] = a.order[j], a.order[i] })
		a.sort()
		for from := 0; from < n; from += c.Minibatch {
			m := a.part(from)
			m.Clip = clip
			Normalise(m.Advantage)
			s, err := a.updater.Update(a.Theta, a.adam, m)
			if err != nil {
				a.SkippedUpdates++
				a.LastError = err
				continue
			}
			a.Last = s
		}
	}
}

// sort copies the rollout in the order of the epoch.
func (a *Agent) sort() {
	s, c := &a.sorted, a.c
	if len(s.Legal) != len(a.legal) {
		s.Legal = make([]bool, len(a.legal))
	}
	for to, from := range a.order {
		copy(s.State[to*c.State:][:c.State], a.state[from*c.State:])
		copy(s.Action[to*c.Action():][:c.Action()], a.action[from*c.Action():])
		s.LogProb[to], s.Advantage[to], s.Return[to] = a.logProb[from], a.advantage[from], a.target[from]
		if a.legal != nil {
			copy(s.Legal[to*c.NumActions:][:c.NumActions], a.legal[from*c.NumActions:])
		}
	}
}

// part is a minibatch of the sorted rollout.
func (a *Agent) part(from int) *Minibatch {
	s, c, n := &a.sorted, a.c, a.c.Minibatch
	a.batch = Minibatch{
		State: s.State[from*c.State:][:n*c.State], Action: s.Action[from*c.Action():][:n*c.Action()], LogProb: s.LogProb[from:][:n],
		Advantage: s.Advantage[from:][:n], Return: s.Return[from:][:n],
	}
	if a.legal != nil {
		a.batch.Legal = s.Legal[from*c.NumActions:][:n*c.NumActions]
	}
	return &a.batch
}

// Snapshot is the policy as it can be served; Head makes actions of its output. Its parameters are the Agent's own.
func (a *Agent) Snapshot() kernel.Snapshot {
	policy, _, _ := a.c.parts(a.Theta)
	s := kernel.Snapshot{Version: uint64(a.adam.Steps), MLP: a.c.Policy(), Theta: policy}
	if a.c.NormaliseObservation {
		s.Mean, s.ClipRange = append([]float64(nil), a.seen.Mean...), a.seen.ClipRange
		for i := range s.Mean {
			s.Scale = append(s.Scale, 1/a.seen.Deviation(i))
		}
	}
	return s
}

// Save is all state: that of a learner who goes on as if never stopped, in the midst of a rollout too.
func (a *Agent) Save() (weights.File, error) { return a.checkpoint().Save() }

// Restore brings back what Save gave, of an Agent of the same shape. On an error nothing has changed.
func (a *Agent) Restore(f weights.File) error { return a.checkpoint().Restore(f) }

func (a *Agent) checkpoint() weights.State {
	s := weights.NewState(Algorithm, Encoding, a.c)
	for name, data := range map[string][]float64{
		"theta": a.Theta, "seen.mean": a.seen.Mean, "seen.square": a.seen.Square, "earned.mean": a.earned.Mean, "earned.square": a.earned.Square,
		"returns": a.returns, "rollout.state": a.state, "rollout.final": a.final, "rollout.action": a.action, "rollout.logprob": a.logProb,
		"rollout.value": a.value, "rollout.reward": a.reward,
	} {
		s.Numbers[name] = data
	}
	a.adam.State(&s, "adam")
	s.Counts["steps"], s.Counts["time"] = weights.Count{At: &a.steps}, weights.Count{At: &a.time, Below: a.c.Horizon}
	s.Values["seen.count"], s.Values["earned.count"] = &a.seen.Count, &a.earned.Count
	n := len(a.value)
	s.Parts["random"] = a.pcg
	s.Parts["rollout.terminated"], s.Parts["rollout.ended"] = weights.Flags{At: &a.terminated, Length: n}, weights.Flags{At: &a.ended, Length: n}
	s.Parts["rollout.legal"] = weights.Flags{At: &a.legal, Length: n * a.c.NumActions, Optional: true}
	return s
}
