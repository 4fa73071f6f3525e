package fqe_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/fqe"
	"awarescale.dev/aware/learner/experience/replay"
)

const gamma = 0.8

// record is episodes of a world in which a choice is paid a step later: the state is the last choice, and a step earns what
// the state is worth, less the price of choosing 1. Choices are random; 1 is taken with the given probability.
func record(episodes int, one float64) [][]replay.Transition {
	r := rand.New(rand.NewPCG(4, 2))
	var all [][]replay.Transition
	for range episodes {
		var e []replay.Transition
		state := 0.0
		for step := range 50 {
			choice := 0.0
			if r.Float64() < one {
				choice = 1
			}
			e = append(e, replay.Transition{
				State: []float64{1, state}, Action: []float64{choice}, Reward: state - 0.3*choice + 0.1*r.NormFloat64(),
				Next: []float64{1, choice}, Discount: gamma, Truncated: step == 49,
			})
			state = choice
		}
		all = append(all, e)
	}
	return all
}

func always(choice float64) fqe.Policy {
	return func(_ []float64, _ []bool, _, action []float64) error {
		action[0] = choice
		return nil
	}
}

// Data of a policy that takes 1 in a third of the steps, so that a third of the states is 1. What other policies earn from
// there on, of which a step ahead counts 0.8, is known exactly. Always 1: from state 1 on 0.7 a step, from 0 on less for the
// first one.
func TestWhatOtherPoliciesWouldHaveEarned(t *testing.T) {
	episodes := record(20, 1.0/3)
	w := agent.NewWorkspace()
	for name, c := range map[string]struct {
		policy fqe.Policy
		want   float64
	}{
		"always": {always(1), 0.7/3 + (0.2*-0.3+0.8*0.7)*2/3},
		"never":  {always(0), 0.2 / 3},
		"in turns": {func(obs []float64, _ []bool, _, action []float64) error {
			action[0] = 1 - obs[1]
			return nil
		}, 0.2 * (5.0/3.6*2/3 + (1+0.8*5.0/3.6)/3)},
	} {
		got, err := fqe.Evaluate(fqe.Default(2, 0, 2), episodes, c.policy, w)
		if err != nil {
			t.Fatal(err)
		}
		if got.Mean < c.want-0.08 || got.Mean > c.want+0.08 || !(got.Low < got.Mean && got.Mean < got.High) {
			t.Errorf("%s: %+v, and it earns %v", name, got, c.want)
		}
	}
	if w.Len() != 1 {
		t.Errorf("%d graphs were built for one shape", w.Len())
	}
}

// With less data the interval is wider: nobody hands over to a policy after two episodes.
func TestFewEpisodesMakeAWideInterval(t *testing.T) {
	width := func(episodes int) float64 {
		e, err := fqe.Evaluate(fqe.Default(2, 0, 2), record(episodes, 0.2), always(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		return e.High - e.Low
	}
	if few, many := width(2), width(40); few < 1.5*many {
		t.Errorf("an interval of %.3f of 2 episodes, and of %.3f of 40", few, many)
	}
}

// Episodes that differ in what any policy earns make it uncertain what a policy is worth, and not whether it is worth more than
// the data's.
func TestTheGainIsComparedWithinADraw(t *testing.T) {
	episodes := record(20, 0.2)
	for i, e := range episodes {
		for k := range e {
			e[k].Reward += 3 * float64(i%4) // a quarter of the episodes is of nothing but busy hours
			e[k].State = append(e[k].State, float64(i%4))
			e[k].Next = append(e[k].Next, float64(i%4))
		}
	}
	got, err := fqe.Evaluate(fqe.Default(3, 0, 2), episodes, always(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	worth, gain := got.High-got.Low, got.Gain.High-got.Gain.Low
	if gain > worth/3 {
		t.Errorf("the gain's interval is %.3f wide, that of the worth %.3f", gain, worth)
	}
	// The data earns 0.2 - 0.06 of a step. Always 1 earns 0.7 in state 1 and 0.5 in state 0, by the sum above.
	if want := 0.7*0.2 + 0.5*0.8 - 0.14; got.Gain.Low > want || got.Gain.High < want {
		t.Errorf("the gain is %+v, want %.3f", got.Gain, want)
	}
}

// The mask of the next state is what the policy chooses by.
func TestThePolicyIsAskedForLegalChoices(t *testing.T) {
	episodes := record(3, 0.5)
	for _, e := range episodes {
		for i := range e {
			e[i].NextLegal = []bool{true, false}
		}
	}
	c := fqe.Default(2, 0, 2)
	c.Updates = 1
	asked := 0
	_, err := fqe.Evaluate(c, episodes, func(_ []float64, legal []bool, _, action []float64) error {
		asked++
		if legal[1] || !legal[0] {
			t.Fatalf("legal are %v", legal)
		}
		action[0] = 0
		return nil
	}, nil)
	if err != nil || asked != 150 {
		t.Errorf("asked %d times (%v)", asked, err)
	}
	// It is told what was done in the state of which it is asked, which is the next transition's.
	at, i := 0, 0
	_, err = fqe.Evaluate(c, episodes, func(_ []float64, _ []bool, taken, action []float64) error {
		e := episodes[at]
		if i++; i < len(e) && (len(taken) != 1 || taken[0] != e[i].Action[0]) || i == len(e) && taken != nil {
			t.Fatalf("episode %d, step %d: %v was done", at, i, taken)
		}
		if i == len(e) {
			at, i = at+1, 0
		}
		action[0] = 0
		return nil
	}, nil)
	if err != nil || at != len(episodes) {
		t.Errorf("%d episodes (%v)", at, err)
	}
}

func TestDataThatMakesNoSenseIsNamed(t *testing.T) {
	for want, change := range map[string]func(*fqe.Config, *replay.Transition){
		"discount 1":   func(_ *fqe.Config, t *replay.Transition) { t.Discount = 1 },
		"choice 5":     func(_ *fqe.Config, t *replay.Transition) { t.Action = []float64{5} },
		"terminates":   func(_ *fqe.Config, t *replay.Transition) { t.Terminated = true },
		"states of 2":  func(_ *fqe.Config, t *replay.Transition) { t.Next = []float64{1} },
		"and not both": func(c *fqe.Config, _ *replay.Transition) { c.Action = 1 },
		"resamples 1":  func(c *fqe.Config, _ *replay.Transition) { c.Resamples = 1 },
		"gamma 1":      func(c *fqe.Config, _ *replay.Transition) { c.Gamma = 1 },
		"is given":     func(_ *fqe.Config, t *replay.Transition) { t.Discount = 0.5 },
	} {
		c, episodes := fqe.Default(2, 0, 2), record(3, 0.5)
		change(&c, &episodes[1][7])
		if _, err := fqe.Evaluate(c, episodes, always(0), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if _, err := fqe.Evaluate(fqe.Default(2, 0, 2), record(1, 0.5), always(0), nil); err == nil {
		t.Error("one episode makes an interval")
	}
}

// Actions of numbers: a step earns the less the farther the action is from a half. What policies earn is known exactly.
func TestPoliciesWithActionsOfNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	var episodes [][]replay.Transition
	for range 20 {
		var e []replay.Transition
		for range 50 {
			a := 2*r.Float64() - 1
			e = append(e, replay.Transition{
				State: []float64{1}, Action: []float64{a}, Reward: 1 - (a-0.5)*(a-0.5), Next: []float64{1}, Discount: gamma,
			})
		}
		episodes = append(episodes, e)
	}
	for action, want := range map[float64]float64{0.5: 1, -0.5: 0, 0: 0.75} {
		got, err := fqe.Evaluate(fqe.Default(1, 1, 0), episodes, always(action), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.Mean < want-0.08 || got.Mean > want+0.08 {
			t.Errorf("always %v: %+v, and it earns %v", action, got, want)
		}
	}
}

// What a step earns does not depend on how long steps are. Here bad actions last for half a step, and good ones for two:
// whoever counts each transition once believes that most of the time is bad.
func TestStepsOfDifferentLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	var episodes [][]replay.Transition
	earned, steps := 0.0, 0.0
	for range 20 {
		var e []replay.Transition
		for range 50 {
			a := 2*r.Float64() - 1
			k := 2.0
			if a < 0 {
				k = 0.5
			}
			discount := math.Pow(gamma, k)
			length := (1 - discount) / (1 - gamma)
			one := replay.Transition{
				State: []float64{1}, Action: []float64{a}, Reward: length * (1 - (a-0.5)*(a-0.5)), Next: []float64{1}, Discount: discount,
			}
			earned, steps = earned+one.Reward, steps+length
			e = append(e, one)
		}
		episodes = append(episodes, e)
	}
	c := fqe.Default(1, 1, 0)
	c.Gamma, c.Tau = gamma, 0.05 // of half steps more counts, which takes longer to learn
	for action, want := range map[float64]float64{0.5: 1, -0.5: 0, 0.2: 0.91} {
		got, err := fqe.Evaluate(c, episodes, always(action), nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got.Mean-want) > 0.08 || math.Abs(got.Gain.Mean-(want-earned/steps)) > 0.08 {
			t.Errorf("always %v: %+v, and it earns %v, where the data earned %v", action, got, want, earned/steps)
		}
	}
}
