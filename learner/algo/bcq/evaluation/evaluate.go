package evaluation

import (
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/algo/bcq"
	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel"
)

// Settings are the size of an evaluation.
type Settings struct {
	Episodes           int     // of data, 200 steps each
	Mix                Mix     // of what decides in the data
	Updates            int     // of each learner
	Batch              int     // transitions of an update
	Discount           float64 // of a step's future
	Hidden             []int   // widths of the hidden layers of all networks but the generative model's
	Generative         []int   // and of that
	EvaluationEpisodes int     // of the evaluation of a learner
}

// Full is the size of the documented evaluation.
func Full() Settings {
	return Settings{
		Episodes:           150,
		Mix:                Mix{Random: 0.8},
		Updates:            10_000,
		Batch:              100,
		Discount:           0.95,
		Hidden:             []int{64, 64},
		Generative:         []int{128, 128},
		EvaluationEpisodes: 100,
	}
}

// room is the settings of a buffer of the data.
func (s Settings) room(seed uint64) replay.Config {
	return replay.Config{Capacity: 200 * s.Episodes, State: 3, Action: 1, Seed: seed}
}

// Result is the mean returns of an evaluation.
type Result struct {
	Data  float64 // mean return of the episodes in the data
	BCQ   float64 // mean return of EvaluationEpisodes, the same for all
	Clone float64 // mean return of EvaluationEpisodes, the same for all
	DDPG  float64 // mean return of EvaluationEpisodes, the same for all
}

// Evaluate records data and lets three learners learn from it alone: each makes
// the same number of updates, by the same batches in the same order. The same
// seed gives the same means, with the same matrix product (package gemm).
func Evaluate(seed uint64, s Settings) (Result, error) {
	p, err := run(seed, s)
	if err != nil {
		return p, fmt.Errorf("evaluation of bcq, seed %d: %w", seed, err)
	}
	return p, nil
}

func run(seed uint64, s Settings) (p Result, err error) {
	if s.Episodes < 1 || s.Updates < 1 || s.EvaluationEpisodes < 1 {
		return p, fmt.Errorf("episodes, updates, evaluation episodes %v: it must be at least 1",
			[]int{s.Episodes, s.Updates, s.EvaluationEpisodes})
	}
	if !(s.Mix.Random >= 0 && s.Mix.Random <= 1) {
		return p, fmt.Errorf("random %v: it must be in [0, 1]", s.Mix.Random)
	}
	var saved []byte
	if saved, p.Data, err = record(seed, s); err != nil {
		return p, err
	}
	for _, l := range []struct {
		name  string
		to    *float64
		learn func(seed uint64, s Settings, data *replay.Uniform) (act func(obs, action []float64) error, err error)
	}{{"bcq", &p.BCQ, constrained}, {"clone", &p.Clone, cloned}, {"ddpg", &p.DDPG, unconstrained}} {
		data, err := replay.NewUniform(s.room(seed))
		if err == nil {
			err = data.UnmarshalBinary(saved)
		}
		if err != nil {
			return p, err
		}
		act, err := l.learn(seed, s, data)
		if err == nil {
			*l.to, err = evaluate(act, s.EvaluationEpisodes)
		}
		if err != nil {
			return p, fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return p, nil
}

func constrained(seed uint64, s Settings, data *replay.Uniform) (func(obs, action []float64) error, error) {
	c := bcq.Default(3, []float64{-torque}, []float64{torque})
	c.Hidden = s.Hidden
	c.Generative = s.Generative
	c.Batch = s.Batch
	c.Seed = seed
	a, err := bcq.New(c, data)
	if err == nil {
		err = a.Learn(s.Updates)
	}
	if err != nil {
		return nil, err
	}
	return a.Act, a.LastError
}

func cloned(seed uint64, s Settings, data *replay.Uniform) (func(obs, action []float64) error, error) {
	a, err := clone.New(clone.Config{
		State:        3,
		Low:          []float64{-torque},
		High:         []float64{torque},
		Hidden:       s.Hidden,
		LearningRate: 1e-3,
		Batch:        s.Batch,
		Seed:         seed,
	}, data)
	if err == nil {
		err = a.Learn(s.Updates)
	}
	if err != nil {
		return nil, err
	}
	act := func(obs, action []float64) error { return a.Act(obs, nil, action) }
	return act, a.LastError
}

// unconstrained is DDPG's update: nothing restricts it to the data's actions.
func unconstrained(seed uint64, s Settings, data *replay.Uniform) (func(obs, action []float64) error, error) {
	c := ddpg.Default(3, []float64{-torque}, []float64{torque})
	c.Hidden = s.Hidden
	c.Batch = s.Batch
	c.Seed = seed
	g, err := ddpg.Gorgonia(c)
	if err != nil {
		return nil, err
	}
	batch, err := replay.NewBatch(s.room(seed), s.Batch)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(seed, 3))
	policy, updater := ddpg.NewPolicy(c, r), ddpg.NewUpdater(c, g)
	for range s.Updates {
		if err := data.Sample(batch); err != nil {
			return nil, err
		}
		if _, err := updater.Update(policy, batch, r); err != nil {
			return nil, err
		}
	}
	tape := kernel.NewTape[float64](c.Actor(), 1)
	return func(obs, action []float64) error {
		action[0] = torque * tape.Forward(policy.Actor.Theta, obs, 1)[0]
		return nil
	}, nil
}
