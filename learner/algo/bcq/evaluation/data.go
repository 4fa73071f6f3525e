package evaluation

import (
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/experience/replay"
)

// world is the environment of the data and of the evaluation: torques of ±2 N m.
const (
	world  = "Pendulum-v1"
	torque = 2.0
)

// expert swings the pendulum up and holds it there, in [-1, 1] of the torque:
// Astrom and Furuta's control of the energy (2000), and near the top of angle
// and speed. obs is cosine and sine of the angle from upright, and the speed in
// rad/s. The mean return of 100 episodes is -161; that of a trained agent is
// about -150.
func expert(obs []float64) float64 {
	angle, speed := math.Atan2(obs[1], obs[0]), obs[2]
	if obs[0] > 0.9 && math.Abs(speed) < 3 {
		return clip(-(10*angle + 2.5*speed) / torque)
	}
	energy := speed*speed/2 + 15*(obs[0]-1) // by the moment of inertia; none at rest upright
	return clip(-0.3 * speed * energy)
}

func clip(v float64) float64 { return max(-1, min(1, v)) }

// Mix says when a uniformly random action replaces the expert's, whose actions
// have noise of deviation 0.1.
type Mix struct {
	Random float64 // how often, from 0 to 1
	Whole  bool    // for a whole episode at a time; otherwise for a step, and only while the pendulum hangs below the horizontal
}

// record fills a buffer with episodes of that mix. It returns the saved buffer,
// so that each learner gets its own copy, and the mean return of an episode.
func record(seed uint64, s Settings) (saved []byte, mean float64, err error) {
	e, err := classic.Make(world)
	if err != nil {
		return nil, 0, err
	}
	buffer, err := replay.NewUniform(s.room(seed))
	if err != nil {
		return nil, 0, err
	}
	r := rand.New(rand.NewPCG(seed, 5))
	obs := make([]float64, 3)
	next := make([]float64, 3)
	action := make([]float64, 1)
	out := make([]float64, 1)
	for i := range s.Episodes {
		if err := e.Reset(r.Uint64(), obs); err != nil {
			return nil, 0, err
		}
		chance := s.Mix.Whole && r.Float64() < s.Mix.Random
		for ended := false; !ended; {
			a := expert(obs) + 0.1*r.NormFloat64()
			if chance || !s.Mix.Whole && obs[0] < 0 && r.Float64() < s.Mix.Random {
				a = 2*r.Float64() - 1
			}
			action[0] = clip(a)
			out[0] = torque * action[0]
			step, err := e.Step(out, next)
			if err == nil {
				err = buffer.Add(replay.Transition{
					State: obs, Action: action, Reward: step.Reward, Next: next, Discount: s.Discount,
					Terminated: step.Terminated, Truncated: step.Truncated,
				})
			}
			if err != nil {
				return nil, 0, fmt.Errorf("recording episode %d: %w", i, err)
			}
			copy(obs, next)
			mean += step.Reward / float64(s.Episodes)
			ended = step.Ended()
		}
	}
	saved, err = buffer.MarshalBinary()
	return saved, mean, err
}

// evaluate is the mean return of episodes that are not in the data.
func evaluate(act func(obs, action []float64) error, episodes int) (mean float64, err error) {
	e, err := classic.Make(world)
	if err != nil {
		return 0, err
	}
	obs, action := make([]float64, 3), make([]float64, 1)
	for i := range episodes {
		if err := e.Reset(unseen+uint64(i), obs); err != nil {
			return 0, err
		}
		for ended := false; !ended; {
			if err := act(obs, action); err != nil {
				return 0, err
			}
			step, err := e.Step(action, obs)
			if err != nil {
				return 0, err
			}
			mean += step.Reward / float64(episodes)
			ended = step.Ended()
		}
	}
	return mean, nil
}

// unseen is the first seed of the evaluation's episodes; seeds of the data are
// random numbers of 64 bits.
const unseen = 5000
