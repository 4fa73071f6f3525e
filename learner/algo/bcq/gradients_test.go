package bcq

import (
	"fmt"
	"math"
	"os"
	"testing"

	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"awarescale.dev/aware/learner/nn/nntest"
	"gonum.org/v1/gonum/blas/blas64"
)

func TestMain(m *testing.M) {
	blas64.Use(gemm.Choose().BLAS())
	os.Exit(m.Run())
}

// shape is a Config with the given widths and batch size.
func shape(state, action, batch int, widths ...int) Config {
	low, high := make([]float64, action), make([]float64, action)
	for i := range high {
		low[i], high[i] = -1, 2
	}
	c := Default(state, low, high)
	c.Batch = batch
	c.Hidden = widths
	c.Generative = widths
	c.Phi = 0.3 // so that some actions are moved out of bounds and cut
	return c
}

// shapes are one of AWARE's, one with widths at which gorgonia's own Slice and
// Concat are wrong, the paper's, and a small one.
func shapes() []Config {
	paper := shape(17, 6, 8, 400, 300)
	paper.Generative = []int{750, 750}
	return []Config{shape(9, 3, 100, 64, 64), shape(11, 2, 16, 256, 256), paper, shape(1, 1, 2, 5)}
}

// inputs are states, actions in [-1, 1] of which some are close to the bounds,
// noise and targets, and parameters of all networks.
type inputs struct{ s, a, noise, y, vae, critic, move []float64 }

func inputsOf(c Config) inputs {
	p := NewPolicy(c, rng(3))
	in := inputs{
		s:      nntest.Normal(1, c.Batch*c.State, 1),
		a:      nntest.Normal(2, c.Batch*c.Action, 1),
		noise:  nntest.Normal(4, c.Batch*c.Latent, 1),
		y:      nntest.Normal(5, c.Batch, 3),
		vae:    p.VAE.Theta,
		critic: p.Critics[0].Theta,
		move:   p.Perturbation.Theta,
	}
	for i, v := range in.a {
		in.a[i] = math.Tanh(v)
	}
	// Half of the deviations' logarithms beyond the lower bound: what is cut
	// has no gradient.
	d, end := c.Latents(), c.encoder()
	for i := range d.Out {
		if i%2 == 1 {
			in.vae[end-d.Out+i] -= 4
		}
	}
	return in
}

// losses are the three, by name: their parameters, and what computes them.
func losses(c Config, g Gradients, in inputs) map[string]struct {
	theta []float64
	run   func(grad []float64) (float64, error)
} {
	type loss = struct {
		theta []float64
		run   func(grad []float64) (float64, error)
	}
	return map[string]loss{
		"generative model": {in.vae, func(grad []float64) (float64, error) { return g.VAE(in.vae, in.s, in.a, in.noise, grad) }},
		"critic": {
			in.critic,
			func(grad []float64) (float64, error) { return g.Critic(in.critic, in.s, in.a, in.y, grad) },
		},
		"perturbation": {
			in.move,
			func(grad []float64) (float64, error) { return g.Perturbation(in.move, in.critic, in.s, in.a, grad) },
		},
	}
}

func TestGradientsAgreeWithCentralDifferences(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector, and nothing is concurrent here")
	}
	for _, c := range shapes()[:3] {
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		for which, g := range map[string]Gradients{"gorgonia": g, "hand": Hand(c)} {
			for name, l := range losses(c, g, inputsOf(c)) {
				grad := make([]float64, len(l.theta))
				if _, err := l.run(grad); err != nil {
					t.Fatal(err)
				}
				unread := make([]float64, len(grad))
				loss := func() float64 {
					v, err := l.run(unread)
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				nntest.Gradient(t,
					fmt.Sprintf("%s by %s, widths %v %v", name, which, c.Hidden, c.Generative), loss, l.theta, grad, 60)
			}
		}
	}
}

// The means' and deviations' layers are few parameters among many: they are
// compared alone.
func TestGradientsOfTheLatentNumbers(t *testing.T) {
	c := shape(11, 2, 16, 256, 256)
	in, g := inputsOf(c), Hand(c)
	grad := make([]float64, len(in.vae))
	if _, err := g.VAE(in.vae, in.s, in.a, in.noise, grad); err != nil {
		t.Fatal(err)
	}
	begin := c.Trunk().Params()
	middle := c.Trunk().Params() + c.Latents().Params()
	end := c.encoder()
	unread := make([]float64, len(grad))
	loss := func() float64 {
		v, _ := g.VAE(in.vae, in.s, in.a, in.noise, unread)
		return v
	}
	nntest.Gradient(t, "means", loss, in.vae[begin:middle], grad[begin:middle], 80)
	nntest.Gradient(t, "deviations", loss, in.vae[middle:end], grad[middle:end], 80)
}

func TestGorgoniaAgreesWithHand(t *testing.T) {
	for _, c := range shapes() {
		in, h := inputsOf(c), Hand(c)
		g, err := Gorgonia(c)
		if err != nil {
			t.Fatal(err)
		}
		byHand := losses(c, h, in)
		for name, l := range losses(c, g, in) {
			for round := range 2 { // what a graph keeps from run to run must not show
				grad, want := make([]float64, len(l.theta)), make([]float64, len(l.theta))
				loss, err := l.run(grad)
				if err != nil {
					t.Fatal(err)
				}
				wanted, _ := byHand[name].run(want)
				scale := 0.0
				for _, v := range want {
					scale = max(scale, math.Abs(v))
				}
				if math.Abs(loss-wanted) > 1e-12*max(1, math.Abs(wanted)) {
					t.Errorf("%s, widths %v, round %d: loss %v, by hand %v", name, c.Hidden, round, loss,
						wanted)
				}
				for i := range grad {
					if !(math.Abs(grad[i]-want[i]) <= 1e-12*scale) {
						t.Fatalf("%s, widths %v, round %d: gradient %d is %v, by hand %v", name, c.Hidden,
							round, i, grad[i], want[i])
					}
				}
				in.s[0] += 0.5
			}
		}
	}
}

// The divergence is zero for means of zero and deviations of one, and (m^2 +
// d^2 - 1)/2 - log d otherwise: a network whose weights are all zero has just
// its biases there.
func TestDivergenceByHand(t *testing.T) {
	c := shape(2, 1, 4, 3)
	c.Latent, c.Divergence = 1, 2
	g, err := Gorgonia(c)
	if err != nil {
		t.Fatal(err)
	}
	theta := make([]float64, c.encoder()+c.Decoder().Params())
	grad := make([]float64, len(theta))
	s := make([]float64, 8)
	a := make([]float64, 4)
	noise := make([]float64, 4)
	mean, log := c.Trunk().Params()+c.Latents().Params()-1, c.encoder()-1 // where the biases are
	for _, x := range [][2]float64{{0, 0}, {1.5, 0}, {0, 0.7}, {-1, -2}, {0.5, -9}} {
		theta[mean], theta[log] = x[0], x[1]
		cut := max(-4, x[1])
		want := 2 * ((x[0]*x[0]+math.Exp(2*cut)-1)/2 - cut)
		if got, err := g.VAE(theta, s, a, noise, grad); err != nil || math.Abs(got-want) > 1e-12 {
			t.Errorf("mean %v, logarithm %v: %v, by hand %v (%v)", x[0], x[1], got, want, err)
		}
	}
}
