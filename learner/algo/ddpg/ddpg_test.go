package ddpg

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
)

func small(change func(c *Config)) Config {
	c := Default(3, []float64{-1, -2}, []float64{1, 2})
	c.Hidden = []int{16, 16}
	c.Batch = 8
	c.Capacity = 100
	c.Warmup = 0
	if change != nil {
		change(&c)
	}
	return c
}

func batch(t testing.TB, c Config) *replay.Batch {
	t.Helper()
	b, err := replay.NewBatch(replay.Config{Capacity: c.Batch, State: c.State, Action: c.Action}, c.Batch)
	if err != nil {
		t.Fatal(err)
	}
	copy(b.State, nntest.Normal(1, len(b.State), 1))
	copy(b.Next, nntest.Normal(2, len(b.Next), 1))
	copy(b.Reward, nntest.Normal(3, len(b.Reward), 1))
	for i, v := range nntest.Normal(4, len(b.Action), 0.5) {
		b.Action[i] = math.Tanh(v)
	}
	for i := range b.Weight {
		b.Weight[i], b.Bootstrap[i] = 1, 0.9
	}
	return b
}

func updater(t testing.TB, c Config) (*Updater, *Policy) {
	t.Helper()
	g, err := Gorgonia(c)
	if err != nil {
		t.Fatal(err)
	}
	return NewUpdater(c, g), NewPolicy(c, rand.New(rand.NewPCG(1, 2)))
}

// At production shapes, and at 256 wide, where gorgonia's own Concat would be
// wrong.
func TestBothLossesAgreeWithHandAndWithCentralDifferences(t *testing.T) {
	for _, hidden := range [][]int{{40, 40}, {256, 256}, {7}} {
		c := small(func(c *Config) {
			c.Hidden = hidden
			c.Batch = 20
			c.Activation = kernel.Tanh
		})
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		h := Hand(c)
		actor, critic := nntest.Normal(1, c.Actor().Params(), 0.2), nntest.Normal(2, c.Critic().Params(), 0.2)
		sa, s := nntest.Normal(3, c.Batch*(c.State+c.Action), 1), nntest.Normal(4, c.Batch*c.State, 1)
		y, w := nntest.Normal(5, c.Batch, 1), nntest.Normal(6, c.Batch, 0.1)
		for i := range w {
			w[i] = math.Abs(w[i]) + 0.5
		}
		cg := make([]float64, len(critic))
		ch := make([]float64, len(critic))
		ag := make([]float64, len(actor))
		ah := make([]float64, len(actor))
		criticLoss := func() float64 {
			l, err := g.Critic(critic, sa, y, w, cg)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		actorLoss := func() float64 {
			l, err := g.Actor(actor, critic, s, ag)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		a, b := criticLoss(), actorLoss()
		x, _ := h.Critic(critic, sa, y, w, ch)
		z, _ := h.Actor(actor, critic, s, ah)
		if math.Abs(a-x) > 1e-12*math.Abs(x) || math.Abs(b-z) > 1e-12*math.Abs(z) {
			t.Errorf("%v: losses %v and %v, by hand %v and %v", hidden, a, b, x, z)
		}
		near(t, "critic", cg, ch)
		near(t, "actor", ag, ah)
		nntest.Gradient(t, "critic", criticLoss, critic, slices.Clone(cg), 40)
		nntest.Gradient(t, "actor", actorLoss, actor, slices.Clone(ag), 40)
	}
}

func near(t *testing.T, what string, a, b []float64) {
	t.Helper()
	scale := 0.0
	for _, v := range b {
		scale = max(scale, math.Abs(v))
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-12*scale {
			t.Fatalf("%s: gradient %d is %v, by hand %v", what, i, a[i], b[i])
		}
	}
}

// FIRM's released code initialises targets independently.
func TestTargetsAreInitialisedAsExactCopies(t *testing.T) {
	_, p := updater(t, small(func(c *Config) { c.Twin = true }))
	for i, n := range append([]*nn.Network{p.Actor}, p.Critics...) {
		if !slices.Equal(n.Theta, n.Target) {
			t.Errorf("network %d and its target differ", i)
		}
	}
	if slices.Equal(p.Critics[0].Theta, p.Critics[1].Theta) {
		t.Error("both critics are the same network")
	}
}

// y is r where the task ended, and r + gamma Q' elsewhere, also where the
// episode was only truncated data. Q' is the target's, of the target's action;
// of twins the smaller.
func TestTargetsByHand(t *testing.T) {
	c := small(func(c *Config) { c.Twin = true })
	u, p := updater(t, c)
	p.Critics[1].Target[len(p.Critics[1].Target)-1] -= 0.3 // its last bias
	b := batch(t, c)
	b.Terminated[2], b.Bootstrap[2] = true, 0
	b.Truncated[3] = true
	u.targets(p, b, nil)
	for i := range c.Batch {
		s := b.Next[i*c.State:][:c.State]
		a := kernel.NewTape[float64](c.Actor(), 1).Forward(p.Actor.Target, s, 1)
		q := math.Inf(1)
		for k := range p.Critics {
			q = min(q, kernel.NewTape[float64](c.Critic(), 1).Forward(p.Critics[k].Target, slices.Concat(s, a), 1)[0])
		}
		want := b.Reward[i] + 0.9*q
		if i == 2 {
			want = b.Reward[i]
		}
		if math.Abs(u.y[i]-want) > 1e-12 {
			t.Errorf("row %d: y is %v, by hand %v", i, u.y[i], want)
		}
	}
}

// A batch whose y is shaped [B] against a Q of [B][1] would be broadcast to
// [B][B] and the loss be that of all pairs; here the loss of one wrong row is
// that row's alone.
func TestValuesAndTargetsAreComparedRowByRow(t *testing.T) {
	c := small(nil)
	g, err := Gorgonia(c)
	if err != nil {
		t.Fatal(err)
	}
	theta, sa := nntest.Normal(2, c.Critic().Params(), 0.2), nntest.Normal(3, c.Batch*(c.State+c.Action), 1)
	y := slices.Clone(kernel.NewTape[float64](c.Critic(), c.Batch).Forward(theta, sa, c.Batch))
	y[5] += 2
	ones := slices.Repeat([]float64{1}, c.Batch)
	loss, err := g.Critic(theta, sa, y, ones, make([]float64, len(theta)))
	if err != nil || math.Abs(loss-4.0/8) > 1e-12 {
		t.Errorf("loss %v, by hand %v; %v", loss, 4.0/8, err)
	}
}

func TestAnUpdateMovesWhatItShould(t *testing.T) {
	c := small(func(c *Config) { c.Delay = 2 })
	u, p := updater(t, c)
	b := batch(t, c)
	actor, target := slices.Clone(p.Actor.Theta), slices.Clone(p.Critics[0].Target)
	critic := slices.Clone(p.Critics[0].Theta)
	if s, err := u.Update(p, b, nil); err != nil || s.ActorMoved {
		t.Fatal(s, err)
	}
	if slices.Equal(critic, p.Critics[0].Theta) || !slices.Equal(actor, p.Actor.Theta) ||
		!slices.Equal(target, p.Critics[0].Target) {
		t.Error("the first of two updates must move the critic alone")
	}
	critic = slices.Clone(p.Critics[0].Theta)
	if s, err := u.Update(p, b, nil); err != nil || !s.ActorMoved {
		t.Fatal(s, err)
	}
	for i, v := range p.Critics[0].Target {
		if want := target[i] + c.Tau*(p.Critics[0].Theta[i]-target[i]); math.Abs(v-want) > 1e-15 {
			t.Fatalf("target %d is %v, a share tau of the way is %v", i, v, want)
		}
	}
	if slices.Equal(actor, p.Actor.Theta) || slices.Equal(critic, p.Critics[0].Theta) {
		t.Error("the second update must move both")
	}
}

func TestABatchWithNaNIsRefusedAndChangesNothing(t *testing.T) {
	c := small(func(c *Config) { c.Twin = true })
	u, p := updater(t, c)
	before := NewPolicy(c, rand.New(rand.NewPCG(1, 2)))
	for _, spoil := range []func(b *replay.Batch){
		func(b *replay.Batch) { b.State[3] = math.NaN() },
		func(b *replay.Batch) { b.Reward[3] = math.Inf(1) },
		func(b *replay.Batch) { b.Reward[3] = 1e200 }, // its square is infinite
	} {
		b := batch(t, c)
		spoil(b)
		if _, err := u.Update(p, b, nil); !errors.Is(err, nn.ErrNotFinite) {
			t.Error(err)
		}
	}
	if !slices.Equal(p.Critics[0].Theta, before.Critics[0].Theta) || !slices.Equal(p.Critics[1].Theta, before.Critics[1].Theta) ||
		!slices.Equal(p.Actor.Theta, before.Actor.Theta) || p.Critics[0].Adam.Steps != 0 {
		t.Error("something moved")
	}
}

func TestOrnsteinUhlenbeckNoise(t *testing.T) {
	c := small(func(c *Config) { c.Noise = Noise{Sigma: 0.5, Theta: 0.15, Step: 0.1} })
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var sum, square, lag, last float64
	const n = 200_000
	for range n {
		x := a.disturb(0, 0.5)
		sum += x
		square += x * x
		lag += x * last
		last = x
	}
	// Of x' = (1 - theta dt) x + sigma sqrt(dt) e: variance sigma^2 dt / (1 -
	// (1 - theta dt)^2), correlation 1 - theta dt.
	rho := 1 - 0.15*0.1
	variance := 0.25 * 0.1 / (1 - rho*rho)
	if math.Abs(square/n/variance-1) > 0.1 || math.Abs(lag/square-rho) > 0.002 {
		t.Errorf("variance %v of %v, correlation %v of %v, mean %v", square/n, variance, lag/square, rho, sum/n)
	}
	// It starts at zero in each episode.
	if err := a.Explore(make([]float64, 3), nil, make([]float64, 2)); err != nil {
		t.Fatal(err)
	}
	if err := a.Learn(envtest.Rows(make([]float64, 2), []float64{0}, make([]float64, 3), nil, []bool{true})); err != nil ||
		a.noise[0] != 0 || a.noise[1] != 0 {
		t.Error(a.noise, err)
	}
}

func TestActionsStayWithinTheirBounds(t *testing.T) {
	a, err := New(small(func(c *Config) { c.Noise.Sigma = 5 }))
	if err != nil {
		t.Fatal(err)
	}
	action := make([]float64, 2)
	touched := 0
	for range 100 {
		if err := a.Explore([]float64{1, -1, 2}, nil, action); err != nil {
			t.Fatal(err)
		}
		if math.Abs(action[0]) > 1 || math.Abs(action[1]) > 2 {
			t.Fatal(action)
		}
		if math.Abs(action[1]) == 2 {
			touched++
		}
	}
	if touched < 20 {
		t.Errorf("%d of 100 actions reach the bound of 2: they are not stretched to it", touched)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for says, change := range map[string]func(c *Config){
		"gamma 1":        func(c *Config) { c.Gamma = 1 },
		"tau NaN":        func(c *Config) { c.Tau = math.NaN() },
		"batch 0":        func(c *Config) { c.Batch = 0 },
		"hidden []":      func(c *Config) { c.Hidden = nil },
		"bounds [2 1]":   func(c *Config) { c.Low[0], c.High[0] = 2, 1 },
		"state 0":        func(c *Config) { c.State = 0 },
		"action 2":       func(c *Config) { c.Low = c.Low[:1] },
		"rate -1":        func(c *Config) { c.ActorLearningRate = -1 },
		"activation":     func(c *Config) { c.Activation = kernel.Linear },
		"noise":          func(c *Config) { c.Noise.Sigma = -1 },
		"imitation NaN":  func(c *Config) { c.Imitation = math.NaN() },
		"inward -1":      func(c *Config) { c.Inward = -1 },
		"warmup, every,": func(c *Config) { c.Every = 0 },
	} {
		if _, err := New(small(change)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// With Imitation alone (all values are equal to the critics' bias) the actor goes to the data's actions, and its gradient is the
// distance's.
func TestImitationGoesToTheActionsOfTheData(t *testing.T) {
	c := small(func(c *Config) { c.Imitation = 0.4 })
	u, p := updater(t, c)
	b := batch(t, c)
	for i := range u.q {
		u.q[i] = -3
	}
	distance := func() float64 { clear(u.agrad); return u.imitate(p.Actor.Theta, b) }
	distance()
	nntest.Gradient(t, "imitation", distance, p.Actor.Theta, slices.Clone(u.agrad), 40)
	before := distance()
	theta := p.Critics[0].Theta
	clear(theta)
	theta[len(theta)-1] = 5 // Q is 5 whatever is done, and its gradient for actions is zero
	for range 300 {
		copy(u.q, u.critic.Forward(theta, u.sa, c.Batch))
		if _, err := u.gradients.Actor(p.Actor.Theta, theta, b.State, u.agrad); err != nil {
			t.Fatal(err)
		}
		u.imitate(p.Actor.Theta, b)
		p.Actor.Adam.Update(p.Actor.Theta, u.agrad)
	}
	if after := distance(); after > before/4 {
		t.Errorf("the distance is %v, and was %v before", after, before)
	}
}

// Who is retuned explores and learns from then on as who has had the settings from the begin.
func TestWhoIsRetunedLearnsAsIfItHadBegunSo(t *testing.T) {
	other := func(c *Config) {
		c.ActorLearningRate, c.CriticLearningRate, c.Imitation = 0.01, 0.002, 0.7
		c.Noise = Noise{Sigma: 0.4, Final: 0.1, AnnealSteps: 20}
	}
	learned := func(change func(*Config), retune bool) []float64 {
		a, err := New(small(change))
		if err != nil {
			t.Fatal(err)
		}
		if retune {
			a.Retune(small(other))
		}
		obs, next, action := nntest.Normal(1, 3, 1), nntest.Normal(2, 3, 1), make([]float64, 2)
		for range 30 {
			if err := a.Explore(obs, nil, action); err != nil {
				t.Fatal(err)
			}
			if err := a.Learn(envtest.Rows(slices.Clone(action), []float64{action[0]}, next, nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Concat(a.Policy.Actor.Theta, a.Policy.Critics[0].Theta)
	}
	want := learned(other, false)
	if got := learned(nil, true); !slices.Equal(got, want) {
		t.Error("it learns something else")
	}
	if slices.Equal(learned(nil, false), want) {
		t.Error("the settings change nothing: this test needs others")
	}
}

// What is watched is learned from later, and who goes back to a policy learns from all that it has seen since.
func TestWhatWasSeenStays(t *testing.T) {
	a, err := New(small(nil))
	if err != nil {
		t.Fatal(err)
	}
	obs, next, action := nntest.Normal(1, 3, 1), nntest.Normal(2, 3, 1), make([]float64, 2)
	see := func(n int, take func(env.Rows) error) {
		t.Helper()
		for range n {
			if err := a.Explore(obs, nil, action); err != nil {
				t.Fatal(err)
			}
			if err := take(envtest.Rows(slices.Clone(action), []float64{action[0]}, next, nil, nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	theta := func() []float64 { return slices.Concat(a.Policy.Actor.Theta, a.Policy.Critics[0].Theta) }
	first := theta()
	see(20, a.Watch)
	if !slices.Equal(theta(), first) || a.buffer.Len() != 20 {
		t.Errorf("it learns while it watches, or has kept %d of 20 steps", a.buffer.Len())
	}
	see(1, a.Learn)
	if a.Policy.Updates != 1 {
		t.Errorf("%d updates with a batch of 8 and 21 steps", a.Policy.Updates)
	}
	before := theta()
	f, err := a.SavePolicy()
	if err != nil {
		t.Fatal(err)
	}
	see(9, a.Learn)
	if slices.Equal(theta(), before) {
		t.Fatal("it learns nothing")
	}
	if err := a.GoBack(f); err != nil || !slices.Equal(theta(), before) || a.buffer.Len() != 30 {
		t.Errorf("it goes back to another policy, or has %d of 30 steps (%v)", a.buffer.Len(), err)
	}
	if err := a.Restore(f); err != nil || a.buffer.Len() != 0 {
		t.Errorf("restored it has %d steps (%v)", a.buffer.Len(), err)
	}
}

// An actor that was sent to a bound finds back when the critics know better: with Inward, and not without, for tanh is flat
// there.
func TestAnActorFindsBackFromABound(t *testing.T) {
	for weight, back := range map[float64]bool{0: false, 0.01: true} {
		c := small(func(c *Config) { c.Inward = weight; c.ActorLearningRate = 1e-3 })
		u, p := updater(t, c)
		b := batch(t, c)
		if weight > 0 {
			more := func() float64 { clear(u.agrad); return u.inward(p.Actor.Theta, b) }
			more()
			nntest.Gradient(t, "inward", more, p.Actor.Theta, slices.Clone(u.agrad), 40)
		}
		actor, r := c.Actor(), rand.New(rand.NewPCG(1, 1))
		for i := actor.Params() - c.Action; i < actor.Params(); i++ {
			p.Actor.Theta[i] = 8 // the biases of the outputs
		}
		for range 3000 {
			clear(u.agrad)
			u.inward(p.Actor.Theta, b)
			if weight == 0 {
				clear(u.agrad)
			}
			// The value falls with each of the actions: what a critic says that has seen both sides, with the noise of a batch.
			a := u.actor.Forward(p.Actor.Theta, b.State, c.Batch)
			noise := 5 * r.NormFloat64()
			for i := range a {
				u.actor.Out()[i] = (0.2 + noise) / float64(len(a))
			}
			u.addActor(p.Actor.Theta)
			p.Actor.Adam.Update(p.Actor.Theta, u.agrad)
		}
		highest := slices.Max(u.actor.Forward(p.Actor.Theta, b.State, c.Batch))
		if found := highest < 0.5; found != back {
			t.Errorf("with a weight of %v the highest action is %v", weight, highest)
		}
	}
}
