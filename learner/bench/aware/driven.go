package aware

import (
	"context"
	"fmt"
	"math/rand/v2"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

// driver decides for a workload, and may learn on the way.
type driver interface {
	// begin says that another episode begins, at another time of the trace.
	begin() error
	// decide is the action for what was seen last.
	decide(d *driven) (mdp.Action, error)
	// embedding is that of the workload, which it reads beside the state in the episode that begins; nil: none.
	embedding() []float64
	// took is what the last decision led to.
	took(d *driven, t taken) error
	// stage is where the driver is in its life; Initialized where it has none.
	stage() lifecycle.Stage
	// cost is the CPU time of learning until now, in seconds.
	cost() float64
}

// taken is a step, as a learner takes it in.
type taken struct {
	workload.Outcome
	last bool     // of the episode
	rows env.Rows // the same in numbers
}

// driven is a workload that a driver drives.
type driven struct {
	world   *workload.Simulation
	encoder *encode.Encoder
	slo     mdp.SLO

	state    mdp.State // that was seen last
	obs      []float64 // the same in numbers, and the driver's embedding
	before   []float64 // obs, a step before
	executed []float64
	length   int
}

// width is how many numbers a state has.
func (d *driven) width() int { return d.encoder.Form().Dim() }

// embed puts an embedding behind each state from now on.
func (d *driven) embed(e []float64) {
	d.obs = append(d.obs[:d.width()], e...)
	d.before = append(d.before[:d.width()], e...)
}

// driven makes a workload that can be driven, in the same world as [Setting.Env].
func (s Setting) driven(w Workload) (*driven, error) {
	world, err := s.World(w)
	if err != nil {
		return nil, err
	}
	form := encode.Box(mdp.LimitKnobs)
	spaces := world.Spaces()
	e, err := spaces.Encoder(form)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Name(), err)
	}
	return &driven{
		world: world, encoder: e, slo: spaces.SLO, length: s.Length, obs: make([]float64, form.Dim()),
		before: make([]float64, form.Dim()), executed: make([]float64, form.ActionDim()),
	}, nil
}

// Episode is what was seen in an episode.
type Episode struct {
	Figures
	Stages [4]int `json:"stages"` // steps in which the driver was in each stage of its life
}

// episode is one episode by a driver. All that is random in the world follows from the seed.
func (d *driven) episode(ctx context.Context, by driver, seed uint64) (Episode, error) {
	var e Episode
	fail := func(err error) (Episode, error) { return e, fmt.Errorf("episode of seed %d: %w", seed, err) }
	if err := by.begin(); err != nil {
		return fail(err)
	}
	d.embed(by.embedding())
	state, err := d.world.Reset(ctx, seed)
	if err == nil {
		d.state = state
		err = d.encoder.Observe(state, d.obs[:d.width()])
	}
	if err != nil {
		return fail(err)
	}
	for step := range d.length {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		action, err := by.decide(d)
		if err != nil {
			return fail(fmt.Errorf("step %d: deciding: %w", step, err))
		}
		e.Stages[by.stage()]++
		t, err := d.step(ctx, action, step == d.length-1)
		if err != nil {
			return fail(fmt.Errorf("step %d: %w", step, err))
		}
		e.add(t.Outcome, d.slo)
		if err := by.took(d, t); err != nil {
			return fail(fmt.Errorf("step %d: learning: %w", step, err))
		}
	}
	return e, nil
}

// step carries an action out.
func (d *driven) step(ctx context.Context, a mdp.Action, last bool) (taken, error) {
	out, err := d.world.Step(ctx, a)
	if err != nil {
		return taken{}, err
	}
	if err := d.encoder.ToBox(d.state, out.Executed, d.executed); err != nil {
		return taken{}, err
	}
	copy(d.before, d.obs)
	d.state = out.State
	if err := d.encoder.Observe(out.State, d.obs[:d.width()]); err != nil {
		return taken{}, err
	}
	return taken{Outcome: out, last: last, rows: env.Rows{
		Executed: d.executed, Rewards: []float64{float64(out.Reward)}, RewardKnown: []bool{out.RewardKnown},
		Effects: []mdp.Effect{out.Effect}, Final: d.obs, Terminated: []bool{false}, Truncated: []bool{last},
	}}, nil
}

// What the seeds of episodes are for. Those that are scored are in no other stream.
const (
	scoredSeeds   = 0x5c0
	tuningSeeds   = 0x70e
	knownSeeds    = 0x4b0 // of the episodes that an arm knows before it is scored
	trainingSeeds = 0x7a1 // of a policy that is trained before it is scored
)

// episodeSeeds is seeds of n episodes: the same ones for all arms.
func episodeSeeds(seed, stream uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(seed, stream))
	all := make([]uint64, n)
	for i := range all {
		all[i] = r.Uint64()
	}
	return all
}

// play is episodes by a driver.
func (d *driven) play(ctx context.Context, by driver, seeds []uint64) ([]Episode, error) {
	all := make([]Episode, len(seeds))
	for i, seed := range seeds {
		var err error
		if all[i], err = d.episode(ctx, by, seed); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// total is the sum of episodes.
func total(all []Episode) (sum Figures) {
	for _, e := range all {
		sum = sum.plus(e.Figures)
	}
	return sum
}
