package ppo

import (
	"math"
	"slices"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
)

// Rows that are left out count as if they were not there: the gradient is that
// of the other rows alone, whatever the left-out ones hold.
func TestRowsThatAreLeftOutDoNotCount(t *testing.T) {
	for name, c := range map[string]Config{"discrete": discrete(nil), "continuous": continuous(nil)} {
		all := minibatch(c, false)
		all.Overruled, all.Unknown = make([]bool, c.Minibatch), make([]bool, c.Minibatch)
		var rest Minibatch
		rest.Clip = all.Clip
		for i := range c.Minibatch {
			if i == 3 || i == 7 {
				all.Unknown[i] = true
				all.Return[i], all.Advantage[i] = 1e6, -1e6
				continue
			}
			rest.State = append(rest.State, all.State[i*c.State:][:c.State]...)
			rest.Action = append(rest.Action, all.Action[i*c.Action():][:c.Action()]...)
			rest.LogProb = append(rest.LogProb, all.LogProb[i])
			rest.Advantage = append(rest.Advantage, all.Advantage[i])
			rest.Return = append(rest.Return, all.Return[i])
		}
		fewer := c
		fewer.Minibatch -= 2
		theta := nntest.Normal(1, c.Params(), 0.1)
		got, want := make([]float64, c.Params()), make([]float64, c.Params())
		all.normalise()
		rest.normalise()
		if _, err := Hand(c).Gradient(theta, all, got); err != nil {
			t.Fatal(err)
		}
		if _, err := Hand(fewer).Gradient(theta, &rest, want); err != nil {
			t.Fatal(err)
		}
		near(t, name+", unknown rewards", got, want)

		// An overruled row counts in the value's loss alone.
		all.Overruled, all.Unknown = all.Unknown, make([]bool, c.Minibatch)
		if _, err := Hand(c).Gradient(theta, all, got); err != nil {
			t.Fatal(err)
		}
		policy, deviations, critic := c.parts(got)
		wantPolicy, wantDeviations, wantCritic := c.parts(want)
		near(t, name+", policy of overruled rows", policy, wantPolicy)
		near(t, name+", deviations of overruled rows", deviations, wantDeviations)
		if math.Abs(critic[len(critic)-1]-wantCritic[len(critic)-1]) < 1 {
			t.Errorf("%s: the value's loss does not see the returns of overruled rows", name)
		}
	}
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12*(1+math.Abs(want[i])) {
			t.Fatalf("%s: gradient %d is %v, without the rows %v", what, i, got[i], want[i])
		}
	}
}

// step explores and learns once: the same observation everywhere, and rows as a
// test changes them.
func step(t *testing.T, a *Agent, obs float64, change func(r *env.Rows)) {
	t.Helper()
	n, c := a.Envs(), a.c
	all := slices.Repeat([]float64{obs}, n*c.State)
	actions := make([]float64, n*c.Action())
	if err := a.Explore(all, nil, actions); err != nil {
		t.Fatal(err)
	}
	rows := envtest.Rows(actions, slices.Repeat([]float64{1}, n), slices.Clone(all), nil, nil)
	if change != nil {
		change(&rows)
	}
	if err := a.Learn(rows); err != nil {
		t.Fatal(err)
	}
}

func made(t *testing.T, c Config) *Agent {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The critic's next values are of observations that were normalised as those it
// learns from.
func TestFinalObservationsAreNormalised(t *testing.T) {
	c := continuous(func(c *Config) { c.Horizon, c.Minibatch = 50, 100 })
	a := made(t, c)
	for i := range 20 {
		step(t, a, float64(100+i), nil)
	}
	at := 19 * c.Envs * c.State
	want := make([]float64, c.State)
	a.seen.Normalise(want, slices.Repeat([]float64{119}, c.State))
	if got := a.final[at:][:c.State]; !slices.Equal(got, want) || math.Abs(got[0]) > 10 {
		t.Errorf("the final observation of 119 is %v, normalised %v", got, want)
	}
}

// Rewards are divided by the deviation of discounted returns, which end with
// their episode and where a reward is not known.
func TestReturnsEndWithTheirEpisode(t *testing.T) {
	c := continuous(func(c *Config) {
		c.Horizon = 50
		c.Minibatch = 100
		c.Gamma = 0.5
	})
	a := made(t, c)
	step(t, a, 0, nil)
	step(t, a, 0, nil)
	if !slices.Equal(a.returns, []float64{1.5, 1.5}) {
		t.Fatalf("returns %v after two rewards of 1: want 1 + 0.5", a.returns)
	}
	step(t, a, 0, func(r *env.Rows) { r.Truncated[0], r.Terminated[1] = true, true })
	if !slices.Equal(a.returns, []float64{0, 0}) {
		t.Errorf("returns %v after both episodes ended: want 0", a.returns)
	}
	step(t, a, 0, nil)
	step(t, a, 0, func(r *env.Rows) { r.RewardKnown[1] = false })
	if !slices.Equal(a.returns, []float64{1.5, 0}) || a.earned.Count != 9 {
		t.Errorf("returns %v of %v rewards: want 1.5, and 0 where the reward is not known; 9 rewards",
			a.returns, a.earned.Count)
	}
}

func TestAdvantagesOfAMinibatchAreNormalised(t *testing.T) {
	c := discrete(func(c *Config) { c.Epochs = 1 })
	a := made(t, c)
	for i := range c.Horizon {
		step(t, a, float64(i), func(r *env.Rows) { r.Rewards[0] = 100 * float64(i) })
	}
	mean, square := 0.0, 0.0
	for _, v := range a.batch.Advantage {
		mean += v / float64(c.Minibatch)
		square += v * v / float64(c.Minibatch-1)
	}
	if math.Abs(mean) > 1e-9 || math.Abs(square-1) > 1e-6 {
		t.Errorf("advantages of the last minibatch have mean %v and variance %v", mean, square)
	}
}

// Rollouts of 16 steps; rate and clip go to zero over 64: they are those of the
// rollout's start, and stay zero.
func TestRateAndClipAreAnnealed(t *testing.T) {
	for _, clip := range []bool{true, false} {
		c := discrete(func(c *Config) {
			c.AnnealSteps = 64
			c.AnnealClip = clip
			c.Epochs = 1
		})
		a := made(t, c)
		if got := a.Stats().LearningRate; got != c.LearningRate {
			t.Errorf("the rate starts at %v", got)
		}
		for rollout, left := range []float64{1, 0.75, 0.5, 0.25, 0, 0} {
			before := slices.Clone(a.Theta)
			for range c.Horizon {
				step(t, a, 1, nil)
			}
			want := c.Clip
			if clip {
				want *= left
			}
			if a.adam.LearningRate != c.LearningRate*left || math.Abs(a.batch.Clip-want) > 1e-15 {
				t.Errorf("rollout %d: rate %v and clip %v: want %v and %v", rollout, a.adam.LearningRate,
					a.batch.Clip, c.LearningRate*left, want)
			}
			if moved := !slices.Equal(before, a.Theta); moved != (left > 0) {
				t.Errorf("rollout %d: moved is %v with %v of the rate left", rollout, moved, left)
			}
		}
		if got := a.Stats().LearningRate; got != 0 {
			t.Errorf("the rate ends at %v", got)
		}
	}
}

func TestRateAndClipOfTrialsAreAnnealed(t *testing.T) {
	a := recurrent(t, func(c *Config) {
		c.AnnealSteps = 2 * c.Envs * c.Horizon
		c.AnnealClip = true
		c.Epochs = 1
	})
	for rollout, left := range []float64{1, 0.5, 0} {
		trialOf(t, a, nil)
		if a.adam.LearningRate != a.c.LearningRate*left || math.Abs(a.batch.Clip-a.c.Clip*left) > 1e-15 {
			t.Errorf("trial %d: rate %v and clip %v with %v left", rollout, a.adam.LearningRate,
				a.batch.Clip, left)
		}
	}
}

// trialOf plays a trial with rewards of 1.
func trialOf(t *testing.T, a *Recurrent, change func(time int, r *env.Rows)) {
	t.Helper()
	n := a.Envs()
	obs, actions := make([]float64, n*a.c.State), make([]float64, n*a.c.Action())
	for time := range a.c.Horizon {
		if err := a.Explore(obs, nil, actions); err != nil {
			t.Fatal(err)
		}
		rows := envtest.Rows(actions, slices.Repeat([]float64{1}, n), obs, nil, nil)
		if change != nil {
			change(time, &rows)
		}
		if err := a.Learn(rows); err != nil {
			t.Fatal(err)
		}
	}
}

// The world pays 1 at every step and is only ever truncated, every 5 steps: its
// value is 1/(1-gamma) = 10. A learner that takes a truncation for a
// termination comes to 1/(1-gamma*4/5) = 3.6.
func TestTheValueOfATruncatedWorld(t *testing.T) {
	c := Default(1, 2, nil, nil)
	c.Hidden = []int{16}
	c.Envs = 4
	c.Horizon = 16
	c.Minibatch = 64
	c.Gamma = 0.9
	c.LearningRate = 1e-2
	a := made(t, c)
	for i := range 300 * c.Horizon {
		step(t, a, 1, func(r *env.Rows) {
			for k := range r.Truncated {
				r.Truncated[k] = i%5 == 4
			}
		})
	}
	_, _, critic := c.parts(a.Theta)
	got := kernel.NewTape[float64](c.Critic(), 1).Forward(critic, []float64{1}, 1)[0]
	if math.Abs(got-10) > 0.3 {
		t.Errorf("V is %v: the reward 1 at every step is worth 10", got)
	}
}

func TestTheValueOfTrialsThatAreCutOff(t *testing.T) {
	a := recurrent(t, func(c *Config) {
		c.Gamma = 0.9
		c.LearningRate = 1e-2
		c.Horizon = 5
		c.Envs = 8
		c.Minibatch = 40
	})
	for range 400 {
		trialOf(t, a, func(time int, r *env.Rows) {
			for k := range r.Truncated {
				r.Truncated[k] = time == a.c.Horizon-1
			}
		})
	}
	for i, v := range a.value {
		if math.Abs(v-10) > 0.5 {
			t.Errorf("V at step %d is %v: the reward 1 at every step is worth 10", i/a.c.Envs, v)
		}
	}
	// After a termination nothing comes: a trial of 5 steps is worth 1 + 0.9 +
	// ... .
	a = recurrent(t, func(c *Config) {
		c.Gamma = 0.9
		c.LearningRate = 1e-2
		c.Horizon = 5
		c.Envs = 8
		c.Minibatch = 40
	})
	for range 400 {
		trialOf(t, a, func(time int, r *env.Rows) {
			for k := range r.Terminated {
				r.Terminated[k] = time == a.c.Horizon-1
			}
		})
	}
	for i, v := range a.value {
		left := a.c.Horizon - i/a.c.Envs
		if want := (1 - math.Pow(0.9, float64(left))) / 0.1; math.Abs(v-want) > 0.5 {
			t.Errorf("V at step %d is %v: %d rewards of 1 are worth %v", i/a.c.Envs, v, left, want)
		}
	}
}

// A rollout keeps masks, and leaves out what was overruled or not known. The row
// before an unknown reward bootstraps.
func TestRolloutsKeepMasksAndLeaveRowsOut(t *testing.T) {
	c := discrete(func(c *Config) { c.Epochs = 1 })
	a := made(t, c)
	obs, actions := make([]float64, 2*c.State), make([]float64, 2)
	legal := []bool{false, true, false, false, true, false}
	for time := range c.Horizon {
		if err := a.Explore(obs, legal, actions); err != nil {
			t.Fatal(err)
		}
		rows := envtest.Rows(slices.Clone(actions), []float64{1, 1}, obs, nil, nil)
		if time == 2 {
			rows.Executed[1] = 0
		}
		rows.RewardKnown[0] = time != 3
		if err := a.Learn(rows); err != nil {
			t.Fatal(err)
		}
	}
	b := a.batch
	if count(b.Legal) != c.Minibatch || count(b.Overruled) != 1 || count(b.Unknown) != 1 || a.SkippedRows != 2 {
		t.Errorf("%d legal choices of %d rows, %d overruled, %d unknown, %d skipped", count(b.Legal),
			c.Minibatch,
			count(b.Overruled), count(b.Unknown), a.SkippedRows)
	}
	if a.Last.Entropy != 0 {
		t.Errorf("one legal choice has no entropy: %v", a.Last.Entropy)
	}
	if want := 1 + c.Gamma*a.nextValue[2*2]; math.Abs(a.target[2*2]-want) > 1e-12 {
		t.Errorf("the return before the unknown reward is %v: want %v", a.target[2*2], want)
	}
}

func count(all []bool) (n int) {
	for _, v := range all {
		if v {
			n++
		}
	}
	return n
}

// A trial keeps masks, and leaves out what was overruled or not known.
func TestTrialsKeepMasksAndLeaveRowsOut(t *testing.T) {
	a := recurrent(t, func(c *Config) { c.Epochs = 1; c.Minibatch = c.Envs * c.Horizon })
	n, legal := a.Envs(), []bool{}
	for range n {
		legal = append(legal, false, true)
	}
	obs, actions := make([]float64, n*a.c.State), make([]float64, n)
	for time := range a.c.Horizon {
		if err := a.Explore(obs, legal, actions); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(actions, 0) {
			t.Fatalf("actions %v: 0 is not legal", actions)
		}
		rows := envtest.Rows(slices.Clone(actions), make([]float64, n), obs, nil, nil)
		if time == 1 {
			rows.Executed[0] = 0
			rows.RewardKnown[1] = false
		}
		if err := a.Learn(rows); err != nil {
			t.Fatal(err)
		}
	}
	b := a.batch
	want := a.c.Gamma * a.value[n+1] // of environment 1, before its reward was not known
	if !slices.ContainsFunc(b.Return[:n], func(v float64) bool { return math.Abs(v-want) < 1e-12 }) {
		t.Errorf("the first returns are %v: the one before the unknown reward must be %v", b.Return[:n], want)
	}
	if count(b.Legal) != len(b.Return) || count(b.Overruled) != 1 || count(b.Unknown) != 1 || a.SkippedRows != 2 {
		t.Errorf("%d legal choices of %d rows, %d overruled, %d unknown, %d skipped", count(b.Legal),
			len(b.Return),
			count(b.Overruled), count(b.Unknown), a.SkippedRows)
	}
	if a.SkippedUpdates > 0 || a.Last.Entropy != 0 {
		t.Errorf("one legal choice has no entropy: %v; %v", a.Last.Entropy, a.LastError)
	}
}
