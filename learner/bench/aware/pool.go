package aware

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"awarescale.dev/aware/learner/encode"
	env "awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/meta/pretrain"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/lesson"
)

// Demand of the workloads of a pretraining, in cores: what those have that are adapted to, before and after their updates.
const (
	leastPooled = 0.1
	mostPooled  = 12.8
)

// Pool is the workloads of a pretraining: as many of the applications that may be used for it (workload.Split), in an order of
// the seed. Half of them are as they were published, and half after some of the seven updates (see [Updatable]), so that what
// is learned holds for small and large requests. Their demand is anything, each factor as likely as the others.
func (s Setting) Pool(n int, split, seed uint64) ([]pretrain.Task, error) {
	seen, _ := workload.Split(split)
	if n < 1 || n > len(seen) {
		return nil, fmt.Errorf("a pool of %d applications: it must be in [1, %d]", n, len(seen))
	}
	s.taught = true
	r := rand.New(rand.NewPCG(seed, 0x9e7))
	var tasks []pretrain.Task
	for _, i := range r.Perm(len(seen))[:n] {
		w, err := Of(seen[i])
		if err != nil {
			return nil, err
		}
		if r.IntN(2) == 0 {
			_, phases, err := Updatable(seen[i], r.Uint64())
			if err != nil {
				return nil, err
			}
			w = phases[r.IntN(len(phases))].Workload
		}
		task, err := s.pooled(w, leastPooled*math.Pow(mostPooled/leastPooled, r.Float64()))
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}

// pooled is a workload of a pretraining with a demand, or with as much of it as its bounds leave room for.
func (s Setting) pooled(w Workload, cores float64) (task pretrain.Task, err error) {
	for {
		if w, err = under(w.App, w.Trace, cores); err != nil {
			return task, err
		}
		world, err := s.World(w)
		if err != nil && cores > leastPooled {
			cores /= 2
			continue
		}
		if err != nil {
			return task, err
		}
		watched := &watched{Simulation: world}
		e, err := s.encoded(w, watched)
		if err != nil {
			return task, err
		}
		guide, err := newGuide(watched, s)
		if err != nil {
			return task, err
		}
		return pretrain.Task{Name: w.Name(), Env: e, Guide: guide.act}, nil
	}
}

// watched is an environment of which it is known what was seen last.
type watched struct {
	*env.Simulation
	state    mdp.State
	episodes int // that have begun
}

// Reset implements [env.Environment].
func (w *watched) Reset(ctx context.Context, seed uint64) (state mdp.State, err error) {
	w.state, err = w.Simulation.Reset(ctx, seed)
	w.episodes++
	return w.state, err
}

// Step implements [env.Environment].
func (w *watched) Step(ctx context.Context, a mdp.Action) (env.Outcome, error) {
	out, err := w.Simulation.Step(ctx, a)
	if err == nil {
		w.state = out.State
	}
	return out, err
}

// guide plays the first episodes of a workload of a pretraining: HPA and VPA, which nobody has tuned for it, somewhat above or
// below what they want; where actions are choices, with another one now and then. Half of the times its owner has set minima: it
// shows what it is worth to be ready for a burst while there is no load, which HPA and VPA never are. Nobody is served by it, so
// it may be far below.
type guide struct {
	of       *watched
	setting  Setting
	encoder  *encode.Encoder
	episode  int // of the rule
	rule     rule
	distance []float64 // from what the rule wants
	legal    []bool    // scratch
}

func newGuide(of *watched, s Setting) (*guide, error) {
	e, err := of.Spaces().Encoder(s.form())
	if err != nil {
		return nil, err
	}
	form := e.Form()
	return &guide{
		of: of, setting: s, encoder: e, distance: make([]float64, form.ActionDim()), legal: make([]bool, form.NumActions()),
	}, nil
}

// begin takes other settings of the rule for an episode.
func (g *guide) begin(r *rand.Rand) error {
	c := g.setting.untuned(g.of.Spaces())
	c.SafetyMargin = []float64{0.15, 0.5, 1}[r.IntN(3)]
	c.Percentile = []float64{0.75, 0.95, 1}[r.IntN(3)]
	if g.setting.Central {
		c.SafetyMargin = []float64{0, 0.15, 0.5}[r.IntN(3)]
		c.Percentile = []float64{0.5, 0.9, 1}[r.IntN(3)]
	}
	g.rule = rule{config: c}
	if most := g.of.Spaces().Bounds; r.IntN(2) == 0 {
		// Each factor is as likely as the others.
		share := func(span float64) float64 { return math.Pow(span, -r.Float64()) }
		g.rule.least = mdp.MilliCPU(share(16) * float64(most.CPU.Max))
		g.rule.memory = mdp.Bytes(share(64) * float64(most.Memory.Max))
		g.rule.replicas = int(math.Round(share(float64(most.Replicas.Max)) * float64(most.Replicas.Max)))
	}
	clear(g.distance)
	return g.rule.begin()
}

// act implements pretrain.Task's Guide.
func (g *guide) act(action []float64, r *rand.Rand) error {
	if g.episode != g.of.episodes {
		g.episode = g.of.episodes
		if err := g.begin(r); err != nil {
			return err
		}
	}
	wanted, err := g.rule.Decide(g.of.state)
	if err != nil {
		return err
	}
	if len(g.legal) > 0 {
		g.choose(wanted, action, r)
		return nil
	}
	if err := g.encoder.ToBox(g.of.state, wanted, action); err != nil {
		return err
	}
	anew := r.IntN(10) == 0 // a distance stays for ten steps in the mean, so that it shows what it leads to
	for i := range action {
		if anew {
			g.distance[i] = 0.3 * r.NormFloat64()
		}
		action[i] = max(-1, min(1, action[i]+g.distance[i]+0.05*r.NormFloat64()))
	}
	return nil
}

// choose writes the choice that is nearest to what the rule wants, or any legal one, each third time.
func (g *guide) choose(wanted mdp.Action, action []float64, r *rand.Rand) {
	action[0] = float64(g.encoder.Nearest(g.of.state, wanted))
	g.encoder.Legal(g.of.state, g.legal)
	if i := r.IntN(3 * len(g.legal)); i < len(g.legal) && g.legal[i] {
		action[0] = float64(i)
	}
}

// Shape is that of a meta-learner: of central's a smaller one, since it ships with it.
func (s Setting) Shape(f meta.Form) meta.Config {
	m := meta.Small(f)
	if s.Central {
		m.Hidden, m.Dense, m.Embedding = 32, 32, 8
	}
	return m
}

// Pretraining is the settings of a pretraining over a pool, for rounds of a few episodes each.
func (s Setting) Pretraining(shape meta.Config, rounds int, seed uint64) pretrain.Config {
	c := pretrain.Default(shape.Form)
	c.Meta, c.Rounds, c.Seed = shape, rounds, seed
	if s.Central {
		c.Guided = 2
		b := lesson.Base(central.Form())
		b.State += shape.Embedding
		b.Batch, b.LearningRate, b.Threshold = 256, 1e-3, 0.03
		c.Choices = &pretrain.Choices{Config: b, Gamma: lesson.Gamma, Tries: 0.1}
		c.Spread, c.LearningRate = 32, 1e-3
		// Lessons begin without an embedding unless somebody asks for one, so most updates are of the policy. A mean of policies is
		// steady with steps that stay large (ADR 40).
		c.Through, c.Final, c.Averaged = 200, 0.5, 0.5
		return c
	}
	c.Plays, c.Spread, c.LearningRate, c.Averaged, c.Settled = 16, 32, 1e-3, 0.5, 0.4
	batch := c.Base.Batch
	c.Base = Settings(shape.Form.Observation+shape.Embedding, shape.Form.Action)
	c.Base.Batch, c.Base.Seed = batch, seed
	c.Base.Noise.AnnealSteps = rounds * c.Plays * s.Length
	return c
}
