package train_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
)

// stepper is what a recurrent learner has in common with the others.
type stepper interface {
	Envs() int
	Explore(obs []float64, legal []bool, actions []float64) error
	Learn(env.Rows) error
}

// inWorld are learners for envtest.World, small. A choice of 0 is continuous.
func inWorld(t testing.TB, choices int) map[string]stepper {
	t.Helper()
	must := func(l stepper, err error) stepper {
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	all := map[string]stepper{}
	p := ppo.Default(1, choices, nil, nil)
	if choices == 0 {
		p = ppo.Default(1, 0, []float64{-1}, []float64{1})
		d := ddpg.Default(1, []float64{-1}, []float64{1})
		d.Hidden = []int{8}
		d.Batch = 8
		d.Warmup = 20
		all["ddpg"] = must(ddpg.New(d))
	} else {
		d := dqn.Default(1, choices)
		d.Hidden = []int{8}
		d.Batch = 8
		d.Warmup = 20
		d.EpsilonDecaySteps = 100
		all["dqn"] = must(dqn.New(d))
		d.Steps, d.Prioritised = 3, true
		all["dqn of three steps"] = must(dqn.New(d))
	}
	p.Hidden = []int{8}
	p.Envs = 2
	p.Horizon = 8
	p.Minibatch = 8
	p.Epochs = 2
	all["ppo"] = must(ppo.New(p))
	p.NormaliseObservation, p.NormaliseReward = false, false
	all["recurrent ppo"] = must(ppo.NewRecurrent(p))
	return all
}

// walkWorld lets a learner step in worlds, and sees every step's rows.
func walkWorld(t testing.TB, l stepper, make func() env.Env, steps int, see func(v *env.Vector, actions []float64)) {
	t.Helper()
	var envs []env.Env
	for range l.Envs() {
		envs = append(envs, make())
	}
	v, err := env.NewVector(1, envs...)
	if err == nil {
		err = v.Reset()
	}
	if err != nil {
		t.Fatal(err)
	}
	actions := slices.Repeat([]float64{0}, l.Envs())
	for range steps {
		if err := l.Explore(v.Observations, v.Legal, actions); err != nil {
			t.Fatal(err)
		}
		if err := v.StepAll(actions); err != nil {
			t.Fatal(err)
		}
		if see != nil {
			see(v, actions)
		}
		if err := l.Learn(v.Rows); err != nil {
			t.Fatal(err)
		}
	}
}

// A choice pays 1 when it was legal. Only the choices of the step's parity are:
// the vector itself refuses an illegal one.
func TestLearnersExploreLegalChoicesOnly(t *testing.T) {
	world := func() env.Env {
		return envtest.Masked{World: &envtest.World{
			Choices: 6, Limit: 7, Pay: envtest.Constant(1),
			Allow: func(step, choice int) bool { return choice%2 == step%2 },
		}}
	}
	for name, l := range inWorld(t, 6) {
		t.Run(name, func(t *testing.T) {
			taken := map[float64]int{}
			walkWorld(t, l, world, 400, func(_ *env.Vector, actions []float64) {
				for _, a := range actions {
					taken[a]++
				}
			})
			if len(taken) != 6 {
				t.Errorf("choices were taken %v times: all legal ones must be explored", taken)
			}
			if name == "ppo" || name == "recurrent ppo" {
				return
			}
			for _, tr := range transitions(t, name, 6, l) {
				step := int(math.Round(7 * tr.Next[0]))
				if len(tr.NextLegal) != 6 || tr.NextLegal[0] != (step%2 == 0) || tr.NextLegal[1] != (step%2 == 1) {
					t.Fatalf("stored %+v: the legal choices are those of step %d", tr, step)
				}
			}
		})
	}
}

// The greedy choice is the best legal one, also when an illegal one is valued
// more: in the same run as it is trained and evaluated.
func TestRunsEvaluateLegalChoicesOnly(t *testing.T) {
	world := func() (env.Env, error) {
		return envtest.Masked{World: &envtest.World{
			Choices: 3, Limit: 10,
			Pay:   func(_ int, action float64) (float64, bool) { return action, true },
			Allow: func(step, choice int) bool { return choice < 2 || step%2 == 0 },
		}}, nil
	}
	for name, l := range inWorld(t, 3) {
		l, ok := l.(train.Learner)
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r, err := train.New(train.Config{
				Env:      "World",
				Steps:    600,
				Seed:     1,
				Evaluate: 200,
				Episodes: 2,
			}, world, l)
			if err == nil {
				err = r.Train(t.Context(), 600)
			}
			if err != nil {
				t.Fatal(err)
			}
			action := []float64{0}
			if l.GreedyAction([]float64{0, 1, 2}, []bool{true, true, false}, action); action[0] != 1 {
				t.Errorf("the greedy action is %v: the best legal one is 1", action)
			}
			if l.GreedyAction([]float64{0, 1, 2}, nil, action); action[0] != 2 {
				t.Errorf("the greedy action is %v: the best one is 2", action)
			}
		})
	}
}

// A guard overrules everything that is proposed. Off-policy learners store what
// was executed.
func TestOffPolicyLearnersLearnFromWhatWasExecuted(t *testing.T) {
	world := func(choices int) func() env.Env {
		return func() env.Env {
			return envtest.Workload{World: &envtest.World{
				Choices: choices, Limit: 5, Blind: true,
				Pay:     func(_ int, action float64) (float64, bool) { return action, true },
				Execute: func(_ int, action float64) float64 { return 0 },
			}}
		}
	}
	for name, l := range inWorld(t, 3) {
		if name == "ppo" || name == "recurrent ppo" {
			continue
		}
		walkWorld(t, l, world(3), 60, nil)
		if got := actions(t, name, 3, l); len(got) != 1 || got[0] == 0 {
			t.Errorf("%s stored the actions %v: only 0 was executed", name, got)
		}
	}
	guarded := func() env.Env {
		return envtest.Guarded{World: &envtest.World{
			Limit: 5, Pay: envtest.Constant(1), Execute: func(int, float64) float64 { return 0.25 },
		}}
	}
	l := inWorld(t, 0)["ddpg"]
	walkWorld(t, l, guarded, 60, nil)
	if got := actions(t, "ddpg", 0, l); len(got) != 1 || got[0.25] == 0 {
		t.Errorf("ddpg stored the actions %v: only 0.25 was executed", got)
	}
}

// actions counts those that an off-policy learner's buffer holds.
func actions(t testing.TB, name string, choices int, l stepper) map[float64]int {
	t.Helper()
	held := map[float64]int{}
	for _, tr := range transitions(t, name, choices, l) {
		held[tr.Action[0]]++
	}
	return held
}

// transitions are a learner's buffer, read from its saved state.
func transitions(t testing.TB, name string, choices int, l stepper) []replay.Transition {
	t.Helper()
	f, err := l.(train.Learner).Save()
	if err != nil {
		t.Fatal(err)
	}
	c := replay.Config{Capacity: 100_000, State: 1, Action: 1, NumActions: choices}
	var buffer interface {
		UnmarshalBinary([]byte) error
		All() iter.Seq[replay.Transition]
	}
	switch name {
	case "ddpg":
		c.Capacity = 200_000
		buffer, err = replay.NewUniform(c)
	case "dqn of three steps":
		buffer, err = replay.NewPrioritised(replay.PrioritisedConfig{
			Config:  c,
			Alpha:   0.6,
			Beta:    0.4,
			Epsilon: 1e-6,
		})
	default:
		buffer, err = replay.NewUniform(c)
	}
	if err == nil {
		err = buffer.UnmarshalBinary(f.Blobs["replay"])
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(buffer.All())
}

// Rewards of odd steps are not known. They are never stored, and no return of
// several steps has one in it: with a reward of 100 where it is not known, and 1
// elsewhere, no stored reward is above 1.
func TestUnknownRewardsAreNotLearned(t *testing.T) {
	for _, choices := range []int{3, 0} {
		world := func() env.Env {
			return &envtest.World{Choices: choices, Limit: 9, Pay: func(step int, _ float64) (float64, bool) {
				if step%2 == 1 {
					return 100, false
				}
				return 1, true
			}}
		}
		for name, l := range inWorld(t, choices) {
			unknown := 0
			walkWorld(t, l, world, 90, func(v *env.Vector, _ []float64) {
				for i, known := range v.RewardKnown {
					if !known {
						unknown++
						v.Rewards[i] = 100 // what a learner must not look at
					}
				}
			})
			skipped := reflect.ValueOf(l).Elem().FieldByName("SkippedRows").Int()
			if int(skipped) != unknown || unknown == 0 {
				t.Errorf("%s skipped %d rows: %d rewards were not known", name, skipped, unknown)
			}
			if name == "ppo" || name == "recurrent ppo" {
				continue
			}
			stored := transitions(t, name, choices, l)
			for _, tr := range stored {
				if tr.Reward != 1 || math.Abs(tr.Next[0]-tr.State[0]-1.0/9) > 1e-12 {
					t.Fatalf("%s stored %+v: it has an unknown reward in it", name, tr)
				}
			}
			if len(stored) != 90-unknown {
				t.Errorf("%s stored %d rows of %d with known rewards", name, len(stored), 90-unknown)
			}
		}
	}
}

// What is not finite, of a wrong length or not in the action space is refused by
// every learner in the same words, and nothing changes.
func TestWrongInputsAreRefusedAndChangeNothing(t *testing.T) {
	for _, choices := range []int{3, 0} {
		for name, l := range inWorld(t, choices) {
			algorithm := strings.TrimSuffix(name, " of three steps")
			n := l.Envs()
			world := func() env.Env {
				return envtest.Workload{World: &envtest.World{
					Choices: choices,
					Limit:   9,
					Pay:     envtest.Constant(1),
				}}
			}
			if choices == 0 {
				world = func() env.Env { return &envtest.World{Limit: 9, Pay: envtest.Constant(1)} }
			}
			walkWorld(t, l, world, 5, nil)
			refused := func(what, says string, notFinite bool, err error) {
				t.Helper()
				if err == nil || !strings.HasPrefix(err.Error(), algorithm+": ") || !strings.Contains(err.Error(), says) ||
					errors.Is(err, nn.ErrNotFinite) != notFinite {
					t.Errorf("%s, %s: %v: it must say %q", name, what, err, says)
				}
			}
			before := state(t, l)
			obs, acts := make([]float64, n), make([]float64, n)
			bad := slices.Clone(obs)
			bad[n-1] = math.NaN()
			refused("a NaN observation", fmt.Sprintf("observation of environment %d: number 0 is NaN", n-1), true,
				l.Explore(bad, nil, acts))
			refused("too many observations", fmt.Sprintf("observations have length %d: it must be %d", n+1, n), false,
				l.Explore(append(bad, 0), nil, acts))
			refused("too few actions", "actions have length", false, l.Explore(obs, nil, acts[1:]))
			if choices > 0 {
				refused("a short mask", "a mask of 2: it must be of", false, l.Explore(obs, make([]bool, 2), acts))
				refused("an empty mask", "none of 3 choices is legal", false, l.Explore(obs, make([]bool, 3*n), acts))
			} else {
				refused("a mask", "actions are continuous", false, l.Explore(obs, make([]bool, n), acts))
			}
			if !reflect.DeepEqual(before, state(t, l)) {
				t.Errorf("%s: a refused Explore changed something", name)
			}
			if err := l.Explore(obs, nil, acts); err != nil {
				t.Fatal(err)
			}
			before = state(t, l)
			rows := func(change func(r *env.Rows)) env.Rows {
				r := envtest.Rows(slices.Clone(acts), make([]float64, n), make([]float64, n), nil, nil)
				change(&r)
				return r
			}
			for _, x := range []struct {
				says      string
				notFinite bool
				change    func(r *env.Rows)
			}{
				{"reward of environment 0: number 0 is NaN", true, func(r *env.Rows) { r.Rewards[0] = math.NaN() }},
				{"rewards have length", false, func(r *env.Rows) { r.Rewards = append(r.Rewards, 1) }},
				{"known rewards have length", false, func(r *env.Rows) { r.RewardKnown = nil }},
				{"effects have length", false, func(r *env.Rows) { r.Effects = nil }},
				{"final observation of environment 0: number 0 is +Inf", true, func(r *env.Rows) { r.Final[0] = math.Inf(1) }},
				{"final observations have length", false, func(r *env.Rows) { r.Final = nil }},
				{"executed action of environment 0: number 0 is NaN", true, func(r *env.Rows) { r.Executed[0] = math.NaN() }},
				{"executed actions have length", false, func(r *env.Rows) { r.Executed = nil }},
				{"terminations have length", false, func(r *env.Rows) { r.Terminated = nil }},
				{"truncations have length", false, func(r *env.Rows) { r.Truncated = nil }},
				{"a mask of 1: ", false, func(r *env.Rows) { r.FinalLegal = []bool{true} }},
			} {
				refused(x.says, "learning: "+x.says, x.notFinite, l.Learn(rows(x.change)))
			}
			if choices > 0 {
				refused("an action that is none", "whole number from 0 to 2", false, l.Learn(rows(func(r *env.Rows) { r.Executed[0] = 3 })))
			}
			if !reflect.DeepEqual(before, state(t, l)) {
				t.Errorf("%s: a refused Learn changed something", name)
			}
			if err := l.Learn(rows(func(*env.Rows) {})); err != nil {
				t.Errorf("%s: afterwards: %v", name, err)
			}
		}
	}
}

// state is all that a learner saves, without what it holds between Explore and
// Learn.
func state(t testing.TB, l stepper) any {
	t.Helper()
	f, err := l.(interface{ Save() (weights.File, error) }).Save()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The mask goes with the actor to where it is served.
func TestTheServedActorIsMaskedToo(t *testing.T) {
	for name, l := range inWorld(t, 3) {
		l, ok := l.(train.Learner)
		if !ok {
			continue
		}
		var server kernel.Server
		var scratch kernel.Scratch
		if err := server.Publish(l.Snapshot()); err != nil {
			t.Fatal(err)
		}
		out, _, ok := server.Decide([]float64{0.5}, 1, &scratch)
		if !ok || len(out) != 3 {
			t.Fatalf("%s: served %v", name, out)
		}
		action := []float64{0}
		for legal := range 3 {
			mask := make([]bool, 3)
			mask[legal] = true
			if l.GreedyAction(out, mask, action); int(action[0]) != legal {
				t.Errorf("%s: action %v: only %d is legal", name, action, legal)
			}
		}
	}
}
