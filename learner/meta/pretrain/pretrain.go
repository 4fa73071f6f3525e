package pretrain

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn"
)

// Config is the settings of a pretraining.
type Config struct {
	Meta meta.Config
	Base ddpg.Config // its State is an observation and an embedding, its Batch is Tasks times the rows of each
	// Choices is the base-learner where actions are choices; Base means nothing then.
	Choices *Choices

	Plays        int     // workloads that are played in a round, or all where there are fewer
	Tasks        int     // workloads of an update whose gradient goes on into the meta-learner
	Spread       int     // workloads of any other update, where as many have experience
	Updates      int     // of a round: as many as steps are taken makes one per step
	Through      int     // every how many updates the gradient goes on into the meta-learner
	LearningRate float64 // of the meta-learner's Adam
	Averaged     float64 // share of the rounds, the last ones, of whose parameters the result is the mean; 0: those of the last one
	// Settled is the share of the rounds, the last ones, in which the meta-learner is what it will be in the result, and does not
	// move. Averaged is of the rounds before that for the meta-learner, and of those rounds for the base-learner.
	Settled   float64
	Final     float64 // share of all learning rates that is left in the last round; they fall linearly
	Clip      float64 // norm of its gradient, at most
	Capacity  int     // transitions that are kept of each workload
	Guided    int     // first episodes of a workload, which its guide plays
	Imitation float64 // of the guides' actions (ddpg.Config.Imitation), times the share of the episodes that they have played
	Rounds    int
	Seed      uint64
}

// Default is settings for workloads of a form with actions between -1 and 1.
func Default(f meta.Form) Config {
	m := meta.Small(f)
	low, high := make([]float64, f.Action), make([]float64, f.Action)
	for i := range low {
		low[i], high[i] = -1, 1
	}
	b := ddpg.Default(f.Observation+m.Embedding, low, high)
	b.Batch = 256
	return Config{
		Meta: m, Base: b, Plays: 4, Tasks: 4, Updates: 200, Through: 20, LearningRate: 3e-4, Final: 0.1, Clip: 1,
		Spread: 4, Capacity: 2000, Guided: 1, Imitation: 5, Rounds: 1000,
	}
}

// Check is nil for valid settings. Otherwise the error names the setting, its value and the rule.
func (c Config) Check() error {
	if err := c.Meta.Check(); err != nil {
		return err
	}
	if c.Choices != nil {
		if err := c.Choices.Check(); err != nil {
			return err
		}
	} else if err := c.Base.Check(); err != nil {
		return err
	}
	size := c.sizes()
	if err := size.fits(c.Meta); err != nil {
		return err
	}
	switch {
	case c.Tasks < 1 || size.batch%c.Tasks != 0:
		return fmt.Errorf("pretraining: tasks %d: it must be at least 1, and divide the batch of %d", c.Tasks, size.batch)
	case c.Spread < 1 || size.batch%c.Spread != 0:
		return fmt.Errorf("pretraining: spread %d: it must be at least 1, and divide the batch of %d", c.Spread, size.batch)
	case c.Plays < 1:
		return fmt.Errorf("pretraining: plays %d: it must be at least 1", c.Plays)
	case c.Updates < 0 || c.Through < 1 || c.Guided < 0 || c.Rounds < 1:
		return fmt.Errorf("pretraining: updates %d, through %d, guided %d, rounds %d: they must be at least 0, 1, 0 and 1",
			c.Updates, c.Through, c.Guided, c.Rounds)
	case !(c.Imitation >= 0) || math.IsInf(c.Imitation, 0):
		return fmt.Errorf("pretraining: imitation %v: it must be finite and at least 0", c.Imitation)
	case c.Capacity < 1:
		return fmt.Errorf("pretraining: capacity %d: it must be at least 1", c.Capacity)
	case !(c.Averaged >= 0 && c.Averaged <= 1):
		return fmt.Errorf("pretraining: averaged %v: it must be in [0, 1]", c.Averaged)
	case !(c.Settled >= 0 && c.Settled < 1):
		return fmt.Errorf("pretraining: settled %v: it must be in [0, 1)", c.Settled)
	case !(c.Final > 0 && c.Final <= 1):
		return fmt.Errorf("pretraining: final %v: it must be above 0, and at most 1", c.Final)
	case !(c.LearningRate > 0) || !(c.Clip > 0):
		return fmt.Errorf("pretraining: learning rate %v, clip %v: they must be above 0", c.LearningRate, c.Clip)
	}
	return nil
}

// Task is one of the workloads.
type Task struct {
	Name string
	Env  env.Env // not conditioned; its actions are numbers
	// Guide writes what is done in the next step of the first episodes: what somebody does who knows no policy yet. Nil: actions
	// at random, of which hardly any says what a good one leads to.
	Guide func(action []float64, r *rand.Rand) error
}

// task is what is kept of a workload.
type task struct {
	Task
	kept      meta.Kept
	seen      []meta.Episode // some of those that were played: the first ones, and the last ones
	embedding []float64
	replay    *replay.Uniform
	episodes  int // that were played
	last      int // steps of the last one
}

// Run is a pretraining.
type Run struct {
	Rounds int     // that are done
	Curve  []Point // one for each round

	c       Config
	tasks   []*task
	order   []int // in which workloads take their turns
	learner *meta.Learner
	theta   mean // of its parameters
	adam    *nn.Adam
	base    base
	size    sizes
	wide    *replay.Batch // what the updates are given
	narrow  *replay.Batch // of one of Tasks workloads, without embeddings
	thin    *replay.Batch // of one of Spread
	rows    []int         // the workload of each row of wide
	steps   int           // that the policy has played
	guided  int           // episodes that guides have played
	played  int           // episodes in all
	random  *rand.Rand
}

// Point is a point of the learning curve.
type Point struct {
	Round  int
	Reward float64 // mean of a step, in the episodes of the round
	Loss   float64 // of the critics in the round's updates, mean
	Failed int     // updates that were skipped, as their gradient was not finite
}

// New makes a pretraining over workloads of one form.
func New(c Config, tasks []Task) (*Run, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if len(tasks) < c.Tasks {
		return nil, fmt.Errorf("pretraining over %d workloads, %d in an update: there must be as many", len(tasks), c.Tasks)
	}
	random := rand.New(rand.NewPCG(c.Seed, 0x3e7a))
	learner, err := meta.New(c.Meta, c.Meta.Initial(random))
	if err != nil {
		return nil, err
	}
	r := &Run{
		c: c, learner: learner, adam: nn.NewAdam(c.Meta.Params(), c.LearningRate, 1e-8), random: random,
		size: c.sizes(), rows: make([]int, c.sizes().batch),
	}
	if r.base, err = c.newBase(random); err != nil {
		return nil, err
	}
	narrow := replay.Config{
		Capacity: c.Capacity, State: c.Meta.Form.Observation, Action: r.size.action, NumActions: r.size.choices,
	}
	if r.narrow, err = replay.NewBatch(narrow, r.size.batch/c.Tasks); err != nil {
		return nil, err
	}
	if r.thin, err = replay.NewBatch(narrow, r.size.batch/c.Spread); err != nil {
		return nil, err
	}
	wide := narrow
	wide.State = r.size.state
	if r.wide, err = replay.NewBatch(wide, r.size.batch); err != nil {
		return nil, err
	}
	r.wide.NextLegal = make([]bool, r.size.batch*r.size.choices)
	for i, one := range tasks {
		if f := meta.FormOf(one.Env); f != c.Meta.Form {
			return nil, fmt.Errorf("pretraining: workload %s has the form %+v: it must be %+v", one.Name, f, c.Meta.Form)
		}
		narrow.Seed = c.Seed + uint64(i)
		buffer, err := replay.NewUniform(narrow)
		if err != nil {
			return nil, err
		}
		r.tasks = append(r.tasks, &task{
			Task: one, kept: meta.Kept{Most: c.Meta.Bundle}, replay: buffer, embedding: make([]float64, c.Meta.Embedding),
		})
	}
	return r, nil
}

// Train goes on for rounds until there are as many as given, or ctx ends.
func (r *Run) Train(ctx context.Context, until int) error {
	for r.Rounds < min(until, r.c.Rounds) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("pretraining, round %d: %w", r.Rounds, err)
		}
		if err := r.round(); err != nil {
			return fmt.Errorf("pretraining, round %d: %w", r.Rounds, err)
		}
	}
	return nil
}

// round plays an episode in some workloads, by the policy as it is, and then improves it.
func (r *Run) round() error {
	p := Point{Round: r.Rounds}
	now := r.turn()
	seeds := make([]uint64, len(now))
	for i := range seeds {
		seeds[i] = r.random.Uint64()
	}
	rewards := make([]float64, len(now))
	errs := make([]error, len(now))
	var wait sync.WaitGroup
	for i, t := range now {
		wait.Go(func() { rewards[i], errs[i] = r.play(t, seeds[i]) })
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("workload %s: %w", now[i].Name, err)
		}
		p.Reward += rewards[i] / float64(len(now))
	}
	for _, t := range now {
		r.learner.Embed(t.kept.Episodes, t.embedding)
		r.played++
		if t.episodes <= r.c.Guided {
			r.guided++
		} else {
			r.steps += t.last
		}
	}
	// Of actions that nobody has tried the critics know nothing, and a policy that does what they like best ends at a bound.
	imitation := r.c.Imitation * float64(r.guided) / float64(r.played)
	rate := 1 - (1-r.c.Final)*float64(r.Rounds)/float64(r.c.Rounds)
	r.adam.LearningRate = rate * r.c.LearningRate
	r.base.pace(rate, imitation)
	settled := r.settle()
	made := 0
	for i := range r.c.Updates {
		loss, err := r.update(i%r.c.Through == 0, !settled)
		if err != nil {
			p.Failed++
			continue
		}
		made++
		p.Loss += loss
	}
	p.Loss /= float64(max(1, made))
	r.Rounds++
	r.average(settled)
	r.Curve = append(r.Curve, p)
	return nil
}

// moving is how many rounds the meta-learner moves in: the others are the last ones.
func (r *Run) moving() float64 { return (1 - r.c.Settled) * float64(r.c.Rounds) }

// settle reports whether these are the last rounds. In the first of them the meta-learner becomes what it will be in the result.
// What was learned from its earlier embeddings does not fit it: all workloads have new ones.
func (r *Run) settle() bool {
	if r.c.Settled == 0 || float64(r.Rounds) < r.moving() {
		return false
	}
	if float64(r.Rounds-1) >= r.moving() {
		return true
	}
	copy(r.learner.Theta, r.theta.or(r.learner.Theta))
	r.base.forget()
	for _, t := range r.tasks {
		if len(t.kept.Episodes) > 0 {
			r.learner.Embed(r.bundle(t), t.embedding)
		}
	}
	return true
}

// average takes the round's parameters into the mean that is the result.
func (r *Run) average(settled bool) {
	begin, end := 0.0, r.moving()
	if settled {
		begin, end = end, float64(r.c.Rounds)
	}
	if float64(r.Rounds) <= end-r.c.Averaged*(end-begin) {
		return
	}
	r.base.average()
	if !settled {
		r.theta.add(r.learner.Theta)
	}
}

// turn is the workloads of the next round: each takes its turn once before any does again, in a random order.
func (r *Run) turn() []*task {
	var now []*task
	for len(now) < min(r.c.Plays, len(r.tasks)) {
		if len(r.order) == 0 {
			r.order = r.random.Perm(len(r.tasks))
		}
		next := r.tasks[r.order[0]]
		r.order = r.order[1:]
		if !slices.Contains(now, next) { // a new order can begin within the round
			now = append(now, next)
		}
	}
	return now
}

// play is one episode of a workload with exploration. It changes the workload's part only.
func (r *Run) play(t *task, seed uint64) (reward float64, err error) {
	c := r.c
	random := rand.New(rand.NewPCG(seed, 0x9d))
	n := c.Meta.Form.Observation
	obs, next := make([]float64, r.size.state), make([]float64, r.size.state)
	copy(obs[n:], t.embedding)
	action, sent, executed := make([]float64, r.size.action), make([]float64, r.size.action), make([]float64, r.size.action)
	if err := t.Env.Reset(seed, obs[:n]); err != nil {
		return 0, err
	}
	executor, _ := t.Env.(env.Executor)
	masker, _ := t.Env.(env.Masker)
	look := func() []bool { return nil } // at what is legal
	if masker != nil && r.size.choices > 0 {
		look = func() []bool {
			legal := make([]bool, r.size.choices)
			masker.Legal(legal)
			return legal
		}
	}
	legal := look()
	act := r.base.actor(r.steps, random)
	decide := func() error {
		act(obs, legal, action)
		return nil
	}
	if t.episodes < c.Guided {
		decide = func() error { return r.guide(t, legal, action, random) }
	}
	var e meta.Episode
	for {
		if err := decide(); err != nil {
			return 0, err
		}
		copy(sent, action)
		out, err := t.Env.Step(sent, next[:n])
		if err != nil {
			return 0, err
		}
		copy(executed, action)
		if executor != nil {
			executor.Executed(executed)
		}
		e.Add(c.Meta.Form, obs[:n], executed, out.Reward, out.RewardKnown)
		legal = look()
		if out.RewardKnown {
			err := t.replay.Add(replay.Transition{
				State: obs[:n], Action: executed, Reward: out.Reward, Next: next[:n], NextLegal: legal,
				Discount: positive(r.size.gamma), Terminated: out.Terminated, Truncated: out.Truncated,
			})
			if err != nil {
				return 0, err
			}
		}
		copy(obs[:n], next[:n])
		if out.Ended() {
			break
		}
	}
	t.episodes++
	t.last = len(e.Steps) / c.Meta.Form.Width()
	t.kept.Add(e)
	if t.seen = append(t.seen, e); len(t.seen) > 3*c.Meta.Bundle {
		t.seen = slices.Delete(t.seen, c.Meta.Bundle, c.Meta.Bundle+1) // the first Bundle stay
	}
	reward, _ = e.Reward()
	return reward, nil
}

// guide is an action of an episode that the policy does not play.
func (r *Run) guide(t *task, legal []bool, action []float64, random *rand.Rand) error {
	switch {
	case t.Guide != nil:
		return t.Guide(action, random)
	case r.size.choices > 0:
		action[0] = float64(anyOf(legal, r.size.choices, random))
	default:
		for i := range action {
			action[i] = 2*random.Float64() - 1
		}
	}
	return nil
}

// bundle is some episodes of a workload for the meta-learner: half of the time those that it has in the end, and else
// one to Bundle of any. A workload that is new to it has only episodes of a policy that does not know the workload.
func (r *Run) bundle(t *task) []meta.Episode {
	if r.random.IntN(2) == 0 {
		return t.kept.Episodes
	}
	n := 1 + r.random.IntN(r.c.Meta.Bundle)
	var some []meta.Episode
	for _, i := range r.random.Perm(len(t.seen))[:min(n, len(t.seen))] {
		some = append(some, t.seen[i])
	}
	return some
}

// update improves the policy by a batch of some workloads. With on these have new embeddings, and where the meta-learner moves
// the gradient goes on into it.
func (r *Run) update(on, moves bool) (loss float64, err error) {
	c := r.c
	n, batch := c.Spread, r.thin
	if on {
		n, batch = c.Tasks, r.narrow
	}
	chosen := r.choose(n)
	if len(chosen) == 0 || on && len(chosen) < n {
		return 0, fmt.Errorf("%d workloads have experience: there must be %d", len(chosen), n)
	}
	for i := 0; len(chosen) < n; i++ { // where there are fewer, some count more than once
		chosen = append(chosen, chosen[i])
	}
	bundles := make([][]meta.Episode, len(chosen))
	for i, t := range chosen {
		if on {
			bundles[i] = r.bundle(t)
			r.learner.Embed(bundles[i], t.embedding)
		}
		if err := t.replay.Sample(batch); err != nil {
			return 0, err
		}
		r.widen(batch, i, t)
	}
	if !on || !moves {
		return r.base.update(r.wide, false, r.random)
	}
	through := r.base.through()
	through.reset(r.learner.Theta, bundles, r.rows)
	if loss, err = r.base.update(r.wide, true, r.random); err != nil {
		return 0, err
	}
	if err := nn.CheckGradient(loss, through.grad, nil); err != nil {
		return 0, err
	}
	for i := range through.grad {
		through.grad[i] /= float64(through.calls)
	}
	nn.Clip(c.Clip, through.grad)
	r.adam.Update(r.learner.Theta, through.grad)
	for i, t := range chosen {
		r.learner.Embed(bundles[i], t.embedding)
	}
	return loss, nil
}

// choose is that many different workloads, or fewer, of those that have experience.
func (r *Run) choose(n int) []*task {
	var chosen []*task
	for _, i := range r.random.Perm(len(r.tasks)) {
		if r.tasks[i].replay.Len() > 0 {
			if chosen = append(chosen, r.tasks[i]); len(chosen) == n {
				break
			}
		}
	}
	return chosen
}

// widen copies the batch of one of an update's workloads into the wide one, with the workload's embedding.
func (r *Run) widen(from *replay.Batch, number int, t *task) {
	n, w, a := r.c.Meta.Form.Observation, r.size.state, r.size.action
	begin := number * from.Size()
	for i := range from.Size() {
		to := begin + i
		for _, column := range [][2][]float64{{r.wide.State, from.State}, {r.wide.Next, from.Next}} {
			copy(column[0][to*w:][:n], column[1][i*n:])
			copy(column[0][to*w+n:][:w-n], t.embedding)
		}
		copy(r.wide.Action[to*a:][:a], from.Action[i*a:])
		k := r.size.choices
		for j := range k {
			r.wide.NextLegal[to*k+j] = from.NextLegal == nil || from.NextLegal[i*k+j]
		}
		r.rows[to] = number
	}
	copy(r.wide.Reward[begin:], from.Reward)
	copy(r.wide.Discount[begin:], from.Discount)
	copy(r.wide.Bootstrap[begin:], from.Bootstrap)
	copy(r.wide.Weight[begin:], from.Weight)
	copy(r.wide.Terminated[begin:], from.Terminated)
	copy(r.wide.Truncated[begin:], from.Truncated)
}

// Learner is the meta-learner of the result so far.
func (r *Run) Learner() (*meta.Learner, error) {
	return meta.New(r.c.Meta, r.theta.or(r.learner.Theta))
}

// Base is a base-learner that begins with what the policies of the workloads have learned, and no experience. It is for
// environments conditioned on the meta-learner's embeddings.
func (r *Run) Base(seed uint64) (*ddpg.Agent, error) {
	b, ok := r.base.(*continuous)
	if !ok {
		return nil, fmt.Errorf("pretraining: its base-learner chooses: it is no DDPG")
	}
	c := r.c.Base
	c.Seed = seed
	a, err := ddpg.New(c)
	if err != nil {
		return nil, err
	}
	b.result(a.Policy)
	return a, nil
}

// Choosing is what a run's base-learner of choices has learned: its shape, the parameters of its values and those of its
// behaviour, averaged (Config.Averaged). ok is false where actions are numbers.
func (r *Run) Choosing() (shape discrete.Config, values, behaviour []float64, ok bool) {
	b, ok := r.base.(*choosing)
	if !ok {
		return shape, nil, nil, false
	}
	values, behaviour = b.result()
	return b.c.Config, values, behaviour, true
}

// Familiar is the workloads of the training, of which there are episodes.
func (r *Run) Familiar() (*meta.Familiar, error) {
	learner, err := r.Learner()
	if err != nil {
		return nil, err
	}
	return meta.NewFamiliar(r.known(learner))
}

// known is the names and the embeddings of the workloads of which there are episodes.
func (r *Run) known(learner *meta.Learner) (names []string, embeddings [][]float64) {
	for _, t := range r.tasks {
		if len(t.kept.Episodes) > 0 {
			embedding := make([]float64, r.c.Meta.Embedding)
			learner.Embed(t.kept.Episodes, embedding)
			names, embeddings = append(names, t.Name), append(embeddings, embedding)
		}
	}
	return names, embeddings
}
