// Package presets has settings with which each algorithm is known to learn in
// an environment, and what it should reach.
package presets

import (
	"fmt"
	"slices"
	"strings"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/train"
	"awarescale.dev/aware/learner/train/corrections"
)

// Algorithms are those that learn by acting.
func Algorithms() []string { return []string{ddpg.Algorithm, dqn.Algorithm, ppo.Algorithm, "td3"} }

// Steps is the default number of steps of a preset.
func Steps(environment string) int {
	if strings.HasPrefix(environment, workload.Prefix) || strings.HasPrefix(environment, corrections.Prefix) {
		return 20_000
	}
	switch environment {
	case "Pendulum-v1":
		return 30_000
	case "Acrobot-v1", "MountainCar-v0":
		return 200_000
	case "IdentityDiscrete-v0", "IdentityContinuous-v0", "Grid4x4-v0":
		return 10_000
	}
	return 100_000
}

// Environment makes an environment by its name: a classic one, a simulated
// workload such as sim:social-network/bursty, or corrections of the demand policy such as
// correct:social-network/nginx-web-server. Its actions are of the kind that
// the algorithm learns.
func Environment(algorithm, name string) (env.Env, error) {
	box := algorithm == ddpg.Algorithm || algorithm == "td3"
	switch {
	case strings.HasPrefix(name, workload.Prefix):
		return workload.Make(name, box)
	case strings.HasPrefix(name, corrections.Prefix):
		return corrections.Make(name, box)
	}
	return classic.Make(name)
}

// Make is a training in an environment, by its name.
func Make(algorithm, environment string, steps int, seed uint64) (*train.Run, error) {
	return New(algorithm, func() (env.Env, error) { return Environment(algorithm, environment) }, steps, seed)
}

// New is a training by an algorithm in the environments that a factory makes,
// with the algorithm's preset for the environment's name; where there is none,
// with its default settings.
func New(algorithm string, factory func() (env.Env, error), steps int, seed uint64) (*train.Run, error) {
	e, err := factory()
	if err != nil {
		return nil, err
	}
	l, err := learner(algorithm, e, steps, seed)
	if err != nil {
		return nil, err
	}
	c := train.Config{Env: e.Name(), Steps: steps, Seed: seed, Evaluate: max(1, steps/40), Episodes: 10}
	if corrects(e) { // worlds differ more than policies do
		c.Evaluate, c.Episodes, c.Paired = max(corrections.Length, steps/8), max(1, min(10, steps/1000)), true
	}
	return train.New(c, factory, l)
}

// corrects reports whether an environment is of corrections of the demand policy, or of raw limits in their place.
func corrects(e env.Env) bool { return strings.HasPrefix(e.Name(), corrections.Prefix) }

func learner(algorithm string, e env.Env, steps int, seed uint64) (train.Learner, error) {
	state, action := e.Observation().Dim(), e.Action()
	choices := action.N > 0
	switch algorithm {
	case ddpg.Algorithm, "td3":
		if choices {
			return nil, fmt.Errorf("%s learns continuous actions, and those of %s are discrete: take ppo or dqn",
				algorithm, e.Name())
		}
		c := ddpg.Default(state, action.Low, action.High)
		c.Seed = seed
		if algorithm == "td3" {
			c.Twin = true
			c.TargetNoise = 0.2
			c.Delay = 2
		}
		if e.Name() == "MountainCarContinuous-v0" {
			// Noise of independent steps never gets the car up the hill: it
			// must push one way for as long as a swing takes.
			c.Noise = ddpg.Noise{Sigma: 1, Theta: 0.15, Step: 0.05, Final: 0.2, AnnealSteps: steps / 2}
		}
		if corrects(e) {
			c.Gamma = corrections.Gamma
		}
		return ddpg.New(c)
	case discrete.Algorithm:
		if !choices || !corrects(e) {
			return nil, fmt.Errorf("%s learns of what the demand policy does, and %s is none of its environments: take %s...",
				algorithm, e.Name(), corrections.Prefix)
		}
		return corrections.NewBatch(state, action.N, steps, seed)
	case dqn.Algorithm:
		if !choices {
			return nil, fmt.Errorf("dqn learns discrete actions, and those of %s are continuous: take ddpg, td3 or ppo",
				e.Name())
		}
		c := dqn.Default(state, action.N)
		c.Seed = seed
		c.AnnealSteps = steps
		c.EpsilonDecaySteps = max(1, steps/10)
		if e.Name() == "CartPole-v1" {
			// Of six seeds one never got beyond 240 with single steps at twice
			// the rate and half of the updates.
			c.Steps = 3
			c.LearningRate = 5e-4
			c.Every = 2
		}
		if corrects(e) {
			c.Gamma = corrections.Gamma
		}
		return dqn.New(c)
	case ppo.Algorithm:
		c := ppo.Default(state, action.N, action.Low, action.High)
		c.Seed, c.AnnealSteps = seed, steps
		switch e.Name() {
		case "CartPole-v1": // rl-zoo's
			c.Envs = 8
			c.Horizon = 32
			c.Minibatch = 256
			c.Epochs = 20
			c.Gamma = 0.98
			c.Lambda = 0.8
			c.LearningRate = 1e-3
			c.Entropy = 0
			c.AnnealClip = true
		case "Pendulum-v1":
			c.Envs = 4
			c.Horizon = 1024
			c.Minibatch = 64
			c.Gamma = 0.9
			c.LearningRate = 1e-3
		}
		if corrects(e) {
			c.Gamma = corrections.Gamma
			c.LearningRate = 1e-3
			c.NormaliseObservation, c.NormaliseReward = true, true
		}
		return ppo.New(c)
	}
	return nil, fmt.Errorf("algorithm %q: known are %s", algorithm,
		strings.Join(slices.Sorted(slices.Values(append(Algorithms(), discrete.Algorithm))), ", "))
}
