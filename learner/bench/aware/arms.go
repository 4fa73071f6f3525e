package aware

import (
	"fmt"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/weights"
)

// Arm is a way to begin in a workload that the policy has not seen.
type Arm string

// The arms.
const (
	Scratch Arm = "scratch" // from nothing
	TL      Arm = "TL"      // with the weights of another workload's converged policy (FIRM's transfer learning)
	TLPlus  Arm = "TL+"     // the same, with a forecast of the load and a table of allocations in the state
	AWARE   Arm = "AWARE"   // with what was pretrained, and the meta-learner's embedding in the state
)

// discount of a step's future. What limits lead to is over within some steps. With 0.9 the values have more noise than what a
// limit changes in them.
const discount = 0.5

// Settings are the algorithm's, the same in all experiments and arms: DDPG with TD3's remedies, since without them it does not
// converge in many of these workloads, and less noise. There is a cliff a little below the best limits. With much noise on
// either side of it the actor learns to keep far away, and ends with far too much of everything.
func Settings(observation, action int) ddpg.Config {
	low, high := make([]float64, action), make([]float64, action)
	for i := range low {
		low[i], high[i] = -1, 1
	}
	c := ddpg.Default(observation, low, high)
	c.Twin, c.TargetNoise, c.Delay = true, 0.05, 2
	c.Noise = ddpg.Noise{Sigma: 0.1, Final: 0.02, AnnealSteps: 3000}
	c.Gamma, c.Inward = discount, 0.01
	c.Capacity = 50_000
	return c
}

// Fine is how an agent that has learned in other workloads goes on from there. It knows more than its first episodes can teach,
// and with the settings of a beginner it loses that in them.
type Fine struct {
	Actor     float64 `json:"actor"`     // share of the actor's step size
	Critic    float64 `json:"critic"`    // of the critics'
	Imitation float64 `json:"imitation"` // of its own actions (ddpg.Config.Imitation)
	Noise     float64 `json:"noise"`     // share of the noise of exploration
	// Patience is after how many episodes without a better policy it goes on from its best one with the settings of a beginner;
	// 0: never. Where small steps have gone wrong, they do not come back.
	Patience int `json:"patience"`
}

// UsualFine is that of the arms that are better with it (ADR 38).
var UsualFine = map[Arm]Fine{AWARE: {Actor: 0.1, Critic: 0.3, Imitation: 0.5, Noise: 0.3, Patience: 30}}

// Source is what an arm begins with.
type Source struct {
	Weights    *weights.File        // of TL and TL+: another workload's agent
	Pretrained *pretrain.Pretrained // of AWARE
	// Trajectories is how many episodes its embedding is made of, at most (M); 0: as many as it was pretrained with.
	Trajectories int
	Fine         Fine // none: the settings of a beginner
}

// continued is settings of an agent that goes on from what it has learned already: it tries nothing at random.
func (s Source) continued(c ddpg.Config) ddpg.Config {
	c.Warmup = 0
	if s.Fine != (Fine{}) {
		c.ActorLearningRate *= s.Fine.Actor
		c.CriticLearningRate *= s.Fine.Critic
		c.Imitation = s.Fine.Imitation
		c.Noise.Sigma *= s.Fine.Noise
		c.Noise.Final *= s.Fine.Noise
	}
	return c
}

// Begin makes an arm's agent for a workload.
func (s Setting) Begin(arm Arm, w Workload, from Source, seed uint64) (Beginner, error) {
	fail := func(err error) (Beginner, error) {
		return Beginner{}, fmt.Errorf("arm %s in %s: %w", arm, w.Name(), err)
	}
	figures, seen := &Figures{}, &Figures{}
	plain := func(f *Figures) func() (env.Env, error) {
		return func() (env.Env, error) { return s.Env(w, f) }
	}
	b := Beginner{Figures: figures, Seen: seen, Training: plain(figures), Judged: plain(seen)}
	switch arm {
	case Scratch, TL:
	case TLPlus:
		world, err := s.World(w)
		if err != nil {
			return fail(err)
		}
		of := func(f *Figures, features *Features) func() (env.Env, error) {
			return func() (env.Env, error) {
				world, err := s.World(w)
				if err != nil {
					return nil, err
				}
				e, err := s.encoded(w, measured{Simulation: world, figures: f, features: features})
				if err != nil {
					return nil, err
				}
				return withFeatures(e, features), nil
			}
		}
		spaces := world.Spaces()
		known := NewFeatures(spaces.Bounds, spaces.SLO)
		b.Training = of(figures, known)
		// It is judged with the table that it has, to which judging adds nothing.
		b.Judged = func() (env.Env, error) {
			copied := *known
			return of(seen, &copied)()
		}
	case AWARE:
		if from.Pretrained == nil {
			return fail(fmt.Errorf("there is no pretrained meta-learner"))
		}
		learner, err := from.Pretrained.Learner()
		if err != nil {
			return fail(err)
		}
		memory := meta.NewMemory(learner)
		if from.Trajectories != 0 {
			if err := memory.Keep(from.Trajectories); err != nil {
				return fail(err)
			}
		}
		of := func(f *Figures, keep bool) func() (env.Env, error) {
			return func() (env.Env, error) {
				e, err := s.Env(w, f)
				if err != nil {
					return nil, err
				}
				return meta.Condition(e, memory, keep)
			}
		}
		b.Training, b.Judged = of(figures, true), of(seen, false)
		b.Looks, b.Memory = memory.Most(), memory
	default:
		return fail(fmt.Errorf("known are %s, %s, %s and %s", Scratch, TL, TLPlus, AWARE))
	}
	e, err := b.Judged()
	if err != nil {
		return fail(err)
	}
	c := Settings(e.Observation().Dim(), e.Action().Dim())
	c.Seed = seed
	b.Patience, b.Plain = from.Fine.Patience, c
	switch {
	case arm == AWARE:
		b.Agent, err = from.Pretrained.Agent(from.continued(c))
	case from.Weights != nil && arm != Scratch:
		if b.Agent, err = ddpg.New(from.continued(c)); err == nil {
			err = b.Agent.Restore(*from.Weights)
		}
	default:
		b.Agent, err = ddpg.New(c)
	}
	if err != nil {
		return fail(err)
	}
	return b, nil
}
