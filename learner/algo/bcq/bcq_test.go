package bcq

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// data is a bandit's record: one step an episode, in states of one number x.
// Its policy takes x or -x, half and half, with a little noise, and act says
// which it earns for.
func data(t testing.TB, n int, earns func(x, a float64) float64) *replay.Uniform {
	t.Helper()
	r := rng(1)
	u, err := replay.NewUniform(replay.Config{Capacity: n, State: 1, Action: 1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		x := 0.2 + 0.6*r.Float64()
		a := x
		if r.IntN(2) == 0 {
			a = -x
		}
		a = clip(a + 0.02*r.NormFloat64())
		s := []float64{x}
		if err := u.Add(replay.Transition{
			State:      s,
			Action:     []float64{a},
			Reward:     earns(x, a),
			Next:       s,
			Discount:   0.9,
			Terminated: true,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

func settings() Config {
	c := Default(1, []float64{-10}, []float64{30})
	c.Hidden = []int{32}
	c.Generative = []int{32}
	c.Batch = 64
	c.SampledActions = 50
	c.Seed = 1
	return c
}

func mustAgent(t testing.TB, c Config, u *replay.Uniform) *Agent {
	t.Helper()
	a, err := New(c, u)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func learn(t testing.TB, a *Agent, updates int) {
	t.Helper()
	if err := a.Learn(updates); err != nil || a.SkippedUpdates > 0 {
		t.Fatal(err, a.SkippedUpdates, a.LastError)
	}
}

// The data takes x or -x, and x earns more. An action of 1 would earn most by
// far, if the critic is asked, who has seen that more is better: it was never
// taken, so it is not believed in.
func TestTheBetterOfTheDatasActionsIsTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector, and nothing is concurrent here")
	}
	a := mustAgent(t, settings(), data(t, 4000, func(_, a float64) float64 { return a }))
	learn(t, a, 1500)
	action := []float64{0}
	for _, x := range []float64{0.3, 0.5, 0.7} {
		for range 20 {
			if err := a.Act([]float64{x}, action); err != nil {
				t.Fatal(err)
			}
			if got := (action[0]+10)/20 - 1; got < x-0.2 || got > x+0.2 { // Low -10, High 30: stretched outside
				t.Errorf("in %v the action is %v, in [-1, 1]: %v", x, action[0], got)
			}
		}
	}
}

// Actions are near the data's: what decides is generated and moved by at most
// Phi.
func TestThePerturbationMovesNoFurtherThanPhi(t *testing.T) {
	for _, phi := range []float64{0, 0.05, 0.5} {
		c := shape(3, 2, 50, 16)
		c.Phi = phi
		p := newProposals(c, 50)
		policy := NewPolicy(c, rng(1))
		for i := range policy.Perturbation.Theta {
			policy.Perturbation.Theta[i] *= 40 // tanh at its ends
		}
		states := make([]float64, 150)
		for i := range states {
			states[i] = math.Sin(float64(i))
		}
		p.of(states, 1)
		generated := append([]float64(nil), p.generate(policy.VAE.Theta, rng(2))...)
		p.perturb(policy.Perturbation.Theta, generated)
		most := 0.0
		for i, v := range generated {
			moved := p.action(i / 2)[i%2]
			if math.Abs(moved) > 1 {
				t.Fatalf("action %v", moved)
			}
			most = max(most, math.Abs(moved-v))
		}
		if most > phi+1e-12 || most < 0.9*phi {
			t.Errorf("phi %v: moved by %v at most", phi, most)
		}
	}
}

// What decides moves actions as what is trained does: the loss is minus the
// mean value of the proposals.
func TestThePerturbationThatIsTrainedIsTheOneThatDecides(t *testing.T) {
	c := shape(3, 2, 20, 16)
	in := inputsOf(c)
	p := newProposals(c, 20)
	p.of(in.s, 1)
	p.perturb(in.move, in.a)
	mean := 0.0
	for _, q := range p.value(in.critic) {
		mean += q / 20
	}
	loss, err := Hand(c).Perturbation(in.move, in.critic, in.s, in.a, make([]float64, len(in.move)))
	if err != nil || math.Abs(loss+mean) > 1e-12 {
		t.Errorf("the loss is %v, the mean value %v (%v)", loss, mean, err)
	}
}

// The target by hand, row by row: the same candidates, by the same random
// numbers, one at a time.
func TestTargetsByHand(t *testing.T) {
	c := shape(3, 2, 4, 16)
	c.Candidates, c.Lambda = 5, 0.75
	p := NewPolicy(c, rng(1))
	for i := range p.Critics {
		for k := range p.Critics[i].Target {
			p.Critics[i].Target[k] *= 1.5 // targets are not the online networks
		}
	}
	for k := range p.Perturbation.Target {
		p.Perturbation.Target[k] *= -2
	}
	b := batch(t, c)
	u := NewUpdater(c, Hand(c))
	u.targets(p, b, rng(9))
	r := rng(9)
	one := newProposals(c, 1)
	for i := range c.Batch {
		best := math.Inf(-1)
		for range c.Candidates {
			one.of(b.Next[i*3:][:3], 1)
			one.perturb(p.Perturbation.Target, one.generate(p.VAE.Theta, r))
			q1 := one.value(p.Critics[0].Target)[0]
			q2 := one.value(p.Critics[1].Target)[0]
			best = max(best, 0.75*math.Min(q1, q2)+0.25*math.Max(q1, q2))
		}
		want := b.Reward[i] + b.Bootstrap[i]*best
		if math.Abs(u.y[i]-want) > 1e-12 {
			t.Errorf("row %d: y is %v, by hand %v", i, u.y[i], want)
		}
	}
	if b.Bootstrap[1] != 0 || u.y[1] != b.Reward[1] {
		t.Errorf("after an end the target is %v: it must be the reward %v", u.y[1], b.Reward[1])
	}
}

// batch is one of c's size with a terminated second row.
func batch(t testing.TB, c Config) *replay.Batch {
	t.Helper()
	b, err := replay.NewBatch(replay.Config{Capacity: 1, State: c.State, Action: c.Action}, c.Batch)
	if err != nil {
		t.Fatal(err)
	}
	r := rng(4)
	for _, part := range [][]float64{b.State, b.Next, b.Reward} {
		for i := range part {
			part[i] = r.NormFloat64()
		}
	}
	for i := range b.Action {
		b.Action[i] = 2*r.Float64() - 1
	}
	for i := range b.Bootstrap {
		b.Bootstrap[i] = 0.9
	}
	b.Bootstrap[1] = 0
	return b
}

// A state never decodes to an action by latent numbers beyond 0.5: a decoder
// that only passes them on shows them.
func TestGeneratedActionsComeFromTheMiddleOfTheLatentNumbers(t *testing.T) {
	c := shape(1, 1, 1000, 4)
	c.Latent = 1
	theta := make([]float64, c.encoder()+c.Decoder().Params())
	decoder := theta[c.encoder():]
	decoder[0*2+1], decoder[1*2+1] = 1, -1 // units max(z, 0) and max(-z, 0) of inputs s, z
	decoder[12], decoder[13] = 1, -1       // z = max(z, 0) - max(-z, 0)
	p := newProposals(c, 1000)
	p.of(make([]float64, 1000), 1)
	least, most := 0.0, 0.0
	for _, a := range p.generate(theta, rng(1)) {
		least, most = min(least, a), max(most, a)
	}
	if end := math.Tanh(0.5); math.Abs(most-end) > 1e-12 || math.Abs(least+end) > 1e-12 {
		t.Errorf("actions from %v to %v: it must be ±%v", least, most, end)
	}
}

func TestTargetsHaveSoftUpdates(t *testing.T) {
	c := shape(2, 1, 8, 8)
	p := NewPolicy(c, rng(1))
	g := Hand(c)
	before := append([]float64(nil), p.Perturbation.Target...)
	if _, err := NewUpdater(c, g).Update(p, batch(t, c), rng(1)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*nn.Network{p.Perturbation, p.Critics[0], p.Critics[1]} {
		if n.Adam.Steps != 1 {
			t.Errorf("%d steps", n.Adam.Steps)
		}
	}
	for i, v := range p.Perturbation.Target {
		if want := before[i] + c.Tau*(p.Perturbation.Theta[i]-before[i]); math.Abs(v-want) > 1e-15 {
			t.Fatalf("target %d is %v: it must be %v", i, v, want)
		}
	}
}

// numbers is all of a Policy.
func numbers(p *Policy) (all []float64) {
	for _, n := range []*nn.Network{p.VAE, p.Perturbation, p.Critics[0], p.Critics[1]} {
		for _, part := range [][]float64{n.Theta, n.Target, n.Adam.M, n.Adam.V} {
			all = append(all, part...)
		}
	}
	return all
}

func same(a, b []float64) bool {
	for i, v := range a {
		if v != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestAnInvalidBatchIsRefusedAndChangesNothing(t *testing.T) {
	a := mustAgent(t, settings(), data(t, 200, func(_, a float64) float64 { return a }))
	learn(t, a, 3)
	for name, c := range map[string]struct {
		spoil func(b *replay.Batch)
		says  string
	}{
		"NaN in a state":          {func(b *replay.Batch) { b.State[3] = math.NaN() }, "finite"},
		"an infinite reward":      {func(b *replay.Batch) { b.Reward[0] = math.Inf(-1) }, "finite"},
		"NaN in a next state":     {func(b *replay.Batch) { b.Next[0] = math.NaN() }, "finite"},
		"an action out of bounds": {func(b *replay.Batch) { b.Action[2] = -1.5 }, "action 2 of the batch is -1.5"},
		"too few rows":            {func(b *replay.Batch) { b.Index = b.Index[1:] }, "a batch of 63 transitions"},
	} {
		b := batch(t, a.c)
		c.spoil(b)
		before, refused := numbers(a.Policy), a.SkippedUpdates
		err := a.Update(b)
		if err == nil || !strings.Contains(err.Error(), c.says) || a.SkippedUpdates != refused+1 || !errors.Is(a.LastError, err) {
			t.Errorf("%s: %v; %d skipped", name, err, a.SkippedUpdates)
		}
		if !same(before, numbers(a.Policy)) || a.Updates != 3 {
			t.Errorf("%s changed the policy", name)
		}
	}
}

// spoiled computes gradients that are not finite, from the n-th one on.
type spoiled struct {
	Gradients
	n int
}

func (s *spoiled) spoil(loss float64, grad []float64) float64 {
	if s.n--; s.n < 0 {
		grad[len(grad)-1] = math.NaN()
	}
	return loss
}

func (s *spoiled) VAE(theta, st, a, noise, grad []float64) (float64, error) {
	l, err := s.Gradients.VAE(theta, st, a, noise, grad)
	return s.spoil(l, grad), err
}

func (s *spoiled) Critic(theta, st, a, y, grad []float64) (float64, error) {
	l, err := s.Gradients.Critic(theta, st, a, y, grad)
	return s.spoil(l, grad), err
}

func (s *spoiled) Perturbation(theta, critic, st, a, grad []float64) (float64, error) {
	l, err := s.Gradients.Perturbation(theta, critic, st, a, grad)
	return s.spoil(l, grad), err
}

// Four gradients make an update: the generative model's, two critics', the
// perturbation's. Whichever is none, all weights stay numbers, the networks
// from there on are unchanged, and both critics take the same number of steps.
func TestAGradientThatIsNotFiniteIsNotApplied(t *testing.T) {
	for n := range 4 {
		c := settings()
		a, err := newAgent(c, data(t, 200, func(_, a float64) float64 { return a }), NewUpdater(c, &spoiled{Hand(c), n}))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Learn(2); err != nil {
			t.Fatal(err)
		}
		if a.SkippedUpdates != 2 || a.Updates != 0 || !errors.Is(a.LastError, nn.ErrNotFinite) {
			t.Errorf("gradient %d: %d skipped, %d made: %v", n, a.SkippedUpdates, a.Updates, a.LastError)
		}
		for i, v := range numbers(a.Policy) {
			if math.IsNaN(v) {
				t.Fatalf("gradient %d: number %d is none", n, i)
			}
		}
		p := a.Policy
		if one, two := p.Critics[0].Adam.Steps, p.Critics[1].Adam.Steps; one != two {
			t.Errorf("gradient %d: the critics took %d and %d steps", n, one, two)
		}
		if p.Perturbation.Adam.Steps != 0 || n == 0 && p.VAE.Adam.Steps != 0 || n > 0 && p.VAE.Adam.Steps == 0 {
			t.Errorf("gradient %d: steps of the perturbation %d, of the generative model %d", n,
				p.Perturbation.Adam.Steps, p.VAE.Adam.Steps)
		}
	}
}
