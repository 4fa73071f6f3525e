package aware

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/sim/workload"
	"gonum.org/v1/gonum/stat"
)

// Embedding is the settings of the experiment on embeddings (§3.2, fig. 6; dissertation §5.6): is a policy worth less in a
// workload, and longer to retrain, the less similar the embedding of that workload is to the one of its own?
type Embedding struct {
	Setting     Setting     `json:"setting"`
	Convergence Convergence `json:"convergence"` // of the trainings and retrainings
	Life        Life        `json:"life"`
	Repetitions int         `json:"repetitions"`
	Apps        int         `json:"apps"` // unseen workloads in each repetition, of which all pairs are made
	Seed        uint64      `json:"seed"`
}

// Check is nil for settings that make sense.
func (e Embedding) Check() error {
	if e.Apps < 2 {
		return fmt.Errorf("embedding: apps %d: a pair needs 2", e.Apps)
	}
	return checkDrives("embedding", e.Seed, e.Repetitions, e.Apps, e.Convergence.Most)
}

// Runs is how many runs a repetition has: a policy for each workload, and a retraining for each pair.
func (e Embedding) Runs() int { return e.Apps * e.Apps }

// Embedded is the workloads of a repetition.
type Embedded struct {
	Repetition int        `json:"repetition"`
	Workloads  []Place    `json:"workloads"`
	Pairs      []Transfer `json:"pairs"`
}

// Place is where a workload is among those of the training.
type Place struct {
	Workload   string    `json:"workload"`
	Odd        bool      `json:"odd"` // it has pulses of load, as none of the training has (Workload.pulsing)
	Embedding  []float64 `json:"embedding"`
	Nearest    string    `json:"nearest"` // workload of the training
	Similarity float64   `json:"similarity"`
	Outside    bool      `json:"outside"` // it is said to be unlike those of the training
}

// Transfer is a policy of one workload, trained on in another one.
type Transfer struct {
	From       string     `json:"from"`
	To         string     `json:"to"`
	Similarity float64    `json:"similarity"` // of their embeddings
	Retraining Retraining `json:"retraining"`
}

// Repetition measures some workloads. done is called after each run; it may be nil.
func (e Embedding) Repetition(ctx context.Context, number int, p pretrain.Pretrained, done func(string)) (Embedded, error) {
	if done == nil {
		done = func(string) {}
	}
	out := Embedded{Repetition: number}
	familiar, err := p.Familiar()
	if err != nil {
		return out, err
	}
	_, unseen := workload.Split(e.Seed)
	order := rand.New(rand.NewPCG(e.Seed, uint64(number))).Perm(len(unseen))[:e.Apps]
	all := make([]Workload, e.Apps)
	policies := make([]*weights.File, e.Apps)
	places := make([][]Place, e.Apps)
	err = bench.InParallel(ctx, e.Apps, func(ctx context.Context, k int) (err error) {
		seed := runSeed(e.Seed, number, k)
		if all[k], err = Of(unseen[order[k]]); err != nil {
			return err
		}
		if policies[k], err = e.policy(ctx, all[k], seed); err != nil {
			return fmt.Errorf("%s: %w", all[k].Name(), err)
		}
		odd, err := all[k].pulsing()
		if err != nil {
			return err
		}
		for _, w := range []Workload{all[k], odd} {
			at, err := e.Setting.embed(ctx, w, p, seed)
			if err != nil {
				return fmt.Errorf("%s: %w", w.Name(), err)
			}
			place := Place{Workload: w.Name(), Odd: len(places[k]) > 0, Embedding: at}
			if j, ok := familiar.Judge(at); ok {
				place.Nearest, place.Similarity, place.Outside = j.Nearest, j.Similarity, j.Outside
			}
			places[k] = append(places[k], place)
		}
		done(all[k].Name() + ": trained and embedded")
		return nil
	})
	if err != nil {
		return out, err
	}
	out.Workloads = slices.Concat(places...)
	out.Pairs = make([]Transfer, e.Apps*(e.Apps-1))
	return out, bench.InParallel(ctx, len(out.Pairs), func(ctx context.Context, i int) error {
		from, to := i/(e.Apps-1), i%(e.Apps-1)
		if to >= from {
			to++
		}
		course, err := e.Setting.retrain(ctx, e.Convergence, all[to], policies[from], runSeed(e.Seed, number, to))
		if err != nil {
			return fmt.Errorf("%s, of %s: %w", all[to].Name(), all[from].Name(), err)
		}
		t := Transfer{
			From: all[from].Name(), To: all[to].Name(), Retraining: Retraining{What: Another, Course: course},
			Similarity: meta.Similarity(places[from][0].Embedding, places[to][0].Embedding),
		}
		out.Pairs[i] = t
		drop, _ := t.Retraining.Drop()
		done(fmt.Sprintf("%s, of %s: similarity %.2f, %.0f %% less reward, converged after %d episodes", t.To, t.From, t.Similarity,
			100*drop, course.Converged))
		return nil
	})
}

// policy is one that has converged in a workload.
func (e Embedding) policy(ctx context.Context, w Workload, seed uint64) (*weights.File, error) {
	_, _, best, err := e.Setting.mastered(ctx, w, e.Convergence, e.Life, seed)
	return best, err
}

// embed plays as many episodes in a workload as the meta-learner reads, by what was pretrained, and returns the embedding in the
// end.
func (s Setting) embed(ctx context.Context, w Workload, p pretrain.Pretrained, seed uint64) ([]float64, error) {
	inner, err := s.Env(w, nil)
	if err != nil {
		return nil, err
	}
	return embedIn(ctx, inner, p, seed)
}

// embedIn is embed in an environment.
func embedIn(ctx context.Context, inner env.Env, p pretrain.Pretrained, seed uint64) ([]float64, error) {
	learner, err := p.Learner()
	if err != nil {
		return nil, err
	}
	memory := meta.NewMemory(learner)
	e, err := meta.Condition(inner, memory, true)
	if err != nil {
		return nil, err
	}
	obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
	a, err := p.Agent(Settings(len(obs), len(action)))
	if err != nil {
		return nil, err
	}
	tape := kernel.NewTape[float64](a.Snapshot().MLP, 1)
	for _, one := range episodeSeeds(seed, knownSeeds, learner.Config.Bundle) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := e.Reset(one, obs); err != nil {
			return nil, err
		}
		for ended := false; !ended; {
			a.GreedyAction(tape.Forward(a.Policy.Actor.Theta, obs, 1), nil, action)
			out, err := e.Step(action, obs)
			if err != nil {
				return nil, err
			}
			ended = out.Ended()
		}
	}
	if len(memory.Episodes()) == 0 {
		return nil, fmt.Errorf("there is nothing to embed: in %d episodes no reward was known", learner.Config.Bundle)
	}
	return slices.Clone(memory.Embedding()), nil
}

// Foretold is what embeddings foretell, with 95 % intervals over the repetitions. The correlations are Spearman's, of ranks: -1
// where the more similar pair always has the lower figure, 0 where similarity says nothing.
type Foretold struct {
	Pairs    int       `json:"pairs"`              // of which both figures can be said
	Drop     *Interval `json:"drop,omitempty"`     // correlation of similarity and drop of reward
	Episodes *Interval `json:"episodes,omitempty"` // correlation of similarity and episodes of retraining
	Outside  *Interval `json:"outside,omitempty"`  // share of the unseen workloads that are said to be unlike the training's
	Odd      *Interval `json:"odd,omitempty"`      // the same share of those that are
}

// Foretell sums up repetitions.
func Foretell(all []Embedded) Foretold {
	var out Foretold
	var drops, episodes, outside, odd []float64
	for _, one := range all {
		var similar, drop, long []float64
		for _, p := range one.Pairs {
			if d, ok := p.Retraining.Drop(); ok {
				similar, drop, long = append(similar, p.Similarity), append(drop, d), append(long, float64(p.Retraining.Episodes()))
			}
		}
		out.Pairs += len(similar)
		drops, episodes = correlation(drops, similar, drop), correlation(episodes, similar, long)
		for _, is := range []bool{false, true} {
			said, n := 0.0, 0.0
			for _, w := range one.Workloads {
				if w.Odd != is || w.Nearest == "" {
					continue
				}
				if n++; w.Outside {
					said++
				}
			}
			switch {
			case n == 0:
			case is:
				odd = append(odd, said/n)
			default:
				outside = append(outside, said/n)
			}
		}
	}
	for _, one := range []struct {
		of []float64
		to **Interval
	}{{drops, &out.Drop}, {episodes, &out.Episodes}, {outside, &out.Outside}, {odd, &out.Odd}} {
		if len(one.of) > 0 {
			i := interval(one.of)
			*one.to = &i
		}
	}
	return out
}

// correlation appends the rank correlation of two figures, where there is one: with all values equal there is none.
func correlation(to, x, y []float64) []float64 {
	if len(x) < 2 || slices.Min(x) == slices.Max(x) || slices.Min(y) == slices.Max(y) {
		return to
	}
	return append(to, stat.Correlation(ranks(x), ranks(y), nil))
}

// ranks is the place of each value among all; equal ones share the mean of theirs.
func ranks(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		for _, other := range values {
			switch {
			case other < v:
				out[i]++
			case other == v:
				out[i] += 0.5
			}
		}
	}
	return out
}
