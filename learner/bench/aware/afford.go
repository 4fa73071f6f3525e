package aware

import (
	"context"
	"fmt"
	"sync"

	"awarescale.dev/aware/learner/bench"
	env "awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/margins"
)

// Afford is the settings of predicting margins of the demand policy: a workload of which nothing was learned is given the margin
// that suits the workloads that are most like it, by the meta-learner's embedding.
type Afford struct {
	Setting Setting      `json:"setting"` // in which embeddings are made
	Policy  bench.Choice `json:"policy"`
	Apps    int          `json:"apps"`     // published applications in which margins are tried
	Held    int          `json:"held_out"` // others, in which the predicted ones are judged
	Seed    uint64       `json:"seed"`
	Split   uint64       `json:"split"`
}

// Check is nil for settings that make sense.
func (a Afford) Check() error {
	seen, unseen := workload.Split(a.Split)
	if a.Apps < 2 || a.Apps > len(seen) {
		return fmt.Errorf("apps %d: it must be in [2, %d]", a.Apps, len(seen))
	}
	if a.Held < 2 || a.Held > len(unseen) {
		return fmt.Errorf("held-out %d: it must be in [2, %d]", a.Held, len(unseen))
	}
	return nil
}

// Runs is how many things Learn tells of: an embedding of each application, and an hour of each margin.
func (a Afford) Runs() int { return (a.Apps + a.Held) * (1 + len(margins.CommonLevels())) }

// Afforded is what was learned of margins.
type Afforded struct {
	Neighbours int            `json:"neighbours"` // of which a margin is predicted; 0: none is, since no margin at all was as good
	Tried      []margins.Part `json:"tried"`      // no margin, and by [margins.Neighbours], each application by all the others
	Held       []margins.Part `json:"held_out"`   // no margin, the predicted ones, and what knowing each hour before would bring

	setting Setting
	meta    pretrain.Pretrained
	known   margins.Survey
}

// Learn tries margins in applications, learns of how many of them a margin is to be predicted, and judges that in others. told is
// called after each run, by one goroutine at a time; it may be nil.
func (a Afford) Learn(ctx context.Context, p pretrain.Pretrained, told func(what string)) (*Afforded, error) {
	var mu sync.Mutex
	done := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		if told != nil {
			told(what)
		}
	}
	seen, unseen := workload.Split(a.Split)
	known, err := a.try(ctx, seen, a.Apps, p, func(k int) uint64 { return a.Seed<<20 + uint64(k) }, done)
	if err != nil {
		return nil, err
	}
	known.Alike = meta.Similarity
	out := &Afforded{setting: a.Setting, meta: p, known: known}
	out.Neighbours, out.Tried = known.Learn()
	held, err := a.try(ctx, unseen, a.Held, p, margins.HeldOutWorld, done)
	if err != nil {
		return nil, err
	}
	which := make([]int, a.Held)
	none := margins.Mixed(held.Parts, which)
	if out.Neighbours > 0 {
		for k, e := range held.Embeddings {
			which[k] = known.Predict(e, out.Neighbours)
		}
	}
	out.Held = []margins.Part{none, margins.Mixed(held.Parts, which), margins.Best(held.Parts)}
	return out, nil
}

// try tries all margins in some of the applications, and makes their embeddings.
func (a Afford) try(
	ctx context.Context, indexes []int, n int, p pretrain.Pretrained, world func(k int) uint64, done func(string),
) (margins.Survey, error) {
	t := margins.Survey{Parts: margins.CommonLevels(), Embeddings: make([][]float64, n)}
	cells := make([]bench.Cell, n)
	workloads, err := Some(indexes, n, a.Seed)
	if err != nil {
		return t, err
	}
	err = bench.InParallel(ctx, n, func(ctx context.Context, k int) (err error) {
		w := workloads[k]
		if cells[k], err = w.Cell(); err != nil {
			return err
		}
		if t.Embeddings[k], err = a.Setting.embed(ctx, w, p, world(k)); err != nil {
			return fmt.Errorf("%s: %w", w.Name(), err)
		}
		done(w.Name() + ": embedded")
		return nil
	})
	if err != nil {
		return t, err
	}
	_, err = margins.Common(ctx, cells, a.Policy, t.Parts, world, func(int) { done("an hour of an application") })
	return t, err
}

// Margins are the margins that are predicted for the services of an application, each by episodes in which it alone is sized,
// under the cell's warm-up load; nil where none is predicted.
func (a *Afforded) Margins(ctx context.Context, cell bench.Cell, seed uint64) (map[string]float64, error) {
	if a.Neighbours == 0 {
		return nil, nil
	}
	services := cell.App.Services
	levels := make([]float64, len(services))
	err := bench.InParallel(ctx, len(services), func(ctx context.Context, k int) error {
		fail := func(err error) error {
			return fmt.Errorf("service %s of %s: %w", services[k].Name, cell.Application, err)
		}
		world, err := env.OfWorld(func(seed uint64) (sim.Config, error) {
			return sim.Config{App: cell.App, Cluster: workload.Machines, Load: env.Anywhere(cell.Warm, seed), Seed: seed}, nil
		}, env.Options{Service: services[k].Name, Alpha: a.setting.Alpha, Step: env.Step, Guards: guard.Published})
		if err != nil {
			return fail(err)
		}
		inner, err := env.Encode(services[k].Name, world, a.setting.form(), a.setting.Length)
		if err != nil {
			return fail(err)
		}
		e, err := embedIn(ctx, inner, a.meta, seed)
		if err != nil {
			return fail(err)
		}
		levels[k] = a.known.Parts[a.known.Predict(e, a.Neighbours)].Level
		return nil
	})
	all := map[string]float64{}
	for k, s := range services {
		all[s.Name] = levels[k]
	}
	return all, err
}
