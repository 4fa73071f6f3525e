package aware

import (
	"context"
	"fmt"
	"math"
	"slices"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
)

// Convergence is how it is found out that a policy has converged (design before the first run): the mean reward of Episodes
// evaluation episodes, without exploration, stays within Within of a target for Steady episodes of training. The policy of an arm
// is the one that was promoted last, see [Course.Promoted].
type Convergence struct {
	Every    int     `json:"every"`    // episodes of training from one evaluation to the next
	Episodes int     `json:"episodes"` // of an evaluation
	Within   float64 `json:"within"`   // share of the target that may be missing
	Steady   int     `json:"steady"`   // episodes of training for which that holds
	Most     int     `json:"most"`     // episodes of training after which it is given up
}

// Usual is what the experiments take.
var Usual = Convergence{Every: 5, Episodes: 10, Within: 0.02, Steady: 20, Most: 400}

// Course is how an agent did in a workload.
type Course struct {
	Evaluations []Point   `json:"evaluations"` // the first is before any training
	Chosen      []Point   `json:"chosen"`      // of the same policies in episodes that are not scored: what promotes them
	Evaluated   []Figures `json:"evaluated"`   // of the same evaluations
	Training    []Figures `json:"training"`    // of each episode of training
	Seconds     []float64 `json:"seconds"`     // CPU time of learning in each of them; it is measured, and not the same in each run
	Converged   int       `json:"converged"`   // episodes of training until it had converged; -1: it has not
}

// Point is an evaluation.
type Point struct {
	Episode int     `json:"episode"` // of training that were over
	Reward  float64 `json:"reward"`  // mean of a step
}

// Promoted is what the policy earns that was promoted last, after each evaluation: each one that is better than all before it, in
// episodes that are not scored, is promoted, with the embedding of then. So the converged policy is chosen, too.
func (c Course) Promoted() []Point {
	out := slices.Clone(c.Evaluations)
	for i := range out {
		out[i].Reward = c.Evaluations[promoted(c.Chosen[:i+1])].Reward
	}
	return out
}

// promoted is which of some policies was promoted last: the first one of the best.
func promoted(chosen []Point) (best int) {
	for i, p := range chosen {
		if p.Reward > chosen[best].Reward {
			best = i
		}
	}
	return best
}

// Converged is the first evaluation from which on all those of the next Steady episodes reach the target; -1 where there is none.
func (c Convergence) Converged(evaluations []Point, target float64) int {
	if math.IsInf(target, 0) {
		return -1
	}
	least := target - c.Within*math.Abs(target)
	for i, first := range evaluations {
		for _, p := range evaluations[i:] {
			if p.Reward < least {
				break
			}
			if p.Episode-first.Episode >= c.Steady {
				return first.Episode
			}
		}
	}
	return -1
}

// Beginner is an agent and the environments that it learns and is judged in.
type Beginner struct {
	Agent    *ddpg.Agent
	Looks    int          // first episodes in which nothing is learned but what the workload is like; what was seen in them is kept
	Memory   *meta.Memory // whose embedding it reads, until that is hidden; nil: it reads none
	Patience int          // episodes without a better policy after which it goes on from its best one as Plain, once; 0: never
	Plain    ddpg.Config
	Training func() (env.Env, error)
	Judged   func() (env.Env, error)
	Figures  *Figures // to which the training's environment adds
	Seen     *Figures // to which the environment adds that it is judged in
}

// notScored makes another seed: of episodes by which policies are promoted.
const notScored = 0x5c0ed << 40

// timed is an agent of which the CPU time of learning is known.
type timed struct {
	*ddpg.Agent
	meter
	looks int // episodes that are left, of those in which it learns nothing
}

// Learn implements [train.Learner].
func (t *timed) Learn(rows env.Rows) error {
	if t.looks > 0 {
		if rows.Ended(0) {
			t.looks--
		}
		return t.Agent.Watch(rows)
	}
	return t.time(func() error { return t.Agent.Learn(rows) })
}

// begin makes the training of an agent.
func (c Convergence) begin(b Beginner, s Setting, seed uint64) (*train.Run, *timed, error) {
	first := true
	factory := func() (env.Env, error) {
		if first {
			first = false
			return b.Training()
		}
		return b.Judged()
	}
	probe, err := b.Judged()
	if err != nil {
		return nil, nil, err
	}
	config := train.Config{
		Env: probe.Name(), Steps: c.Most * s.Length, Seed: seed, Episodes: c.Episodes, Paired: true,
	}
	learner := &timed{Agent: b.Agent, looks: b.Looks}
	run, err := train.New(config, factory, learner)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", probe.Name(), err)
	}
	return run, learner, nil
}

// Judge is what an agent earns a step without any training, and what was seen: an evaluation, the same as the first one of
// [Convergence.Adapt].
func (c Convergence) Judge(b Beginner, s Setting, seed uint64) (float64, Figures, error) {
	run, _, err := c.begin(b, s, seed)
	was := *b.Seen
	if err == nil {
		err = run.Evaluate()
	}
	if err != nil {
		return 0, Figures{}, err
	}
	return run.Evaluations[0].Mean / float64(s.Length), b.Seen.Since(was), nil
}

// Adapt trains until the policy has converged to a target, or to the end where stop is false. The agent has the policy then that
// was promoted last.
//
// An embedding is promoted as a policy is: where the policy is no better with that of its first episodes than it was without one,
// it reads none from then on.
func (c Convergence) Adapt(ctx context.Context, b Beginner, s Setting, seed uint64, target float64, stop bool) (Course, error) {
	out := Course{Converged: -1}
	run, learner, err := c.begin(b, s, seed)
	if err != nil {
		return out, err
	}
	choosing, _, err := c.begin(b, s, seed^notScored)
	if err != nil {
		return out, err
	}
	var serves weights.File // the policy that was promoted last
	judge := func(episode int) (err error) {
		was := *b.Seen
		if err := run.Evaluate(); err != nil {
			return err
		}
		figures := b.Seen.Since(was)
		if err := choosing.Evaluate(); err != nil {
			return err
		}
		if n := len(out.Evaluations); len(run.Evaluations) == n || len(choosing.Evaluations) == n {
			return fmt.Errorf("evaluating after %d episodes: no reward was known", episode)
		}
		of := func(r *train.Run) Point {
			return Point{episode, r.Evaluations[len(r.Evaluations)-1].Mean / float64(s.Length)}
		}
		out.Evaluations, out.Chosen = append(out.Evaluations, of(run)), append(out.Chosen, of(choosing))
		out.Evaluated = append(out.Evaluated, figures)
		if promoted(out.Chosen) == len(out.Chosen)-1 {
			serves, err = b.Agent.SavePolicy()
		}
		return err
	}
	if err := judge(0); err != nil { // before any training
		return out, err
	}
	for episode := 1; episode <= c.Most; episode++ {
		was, spent := *b.Figures, learner.seconds
		if err := run.Train(ctx, episode*s.Length); err != nil {
			return out, err
		}
		out.Training = append(out.Training, b.Figures.Since(was))
		out.Seconds = append(out.Seconds, learner.seconds-spent)
		if episode%c.Every != 0 {
			continue
		}
		if err := judge(episode); err != nil {
			return out, err
		}
		if b.Memory != nil && episode >= b.Looks && promoted(out.Chosen) == 0 {
			b.Memory.Hide()
		}
		if out.Converged = c.Converged(out.Promoted(), target); stop && out.Converged >= 0 {
			break
		}
		if b.Patience > 0 && episode-out.Chosen[promoted(out.Chosen)].Episode >= b.Patience {
			if err := b.Agent.GoBack(serves); err != nil {
				return out, err
			}
			b.Agent.Retune(b.Plain)
			b.Patience = 0
		}
	}
	return out, b.Agent.Restore(serves)
}
