package bcq

import (
	"math"

	"awarescale.dev/aware/learner/nn/kernel"
)

type hand struct {
	c            Config
	trunk        *kernel.Tape[float64]
	decoder      *kernel.Tape[float64]
	perturbation *kernel.Tape[float64]
	critic       *kernel.Tape[float64]
	sa           []float64 // states and actions beside each other
	sm           []float64 // states and perturbed actions
	dsm          []float64 // gradient of sm
	moved        []float64 // perturbed actions
	sz           []float64 // states and latent numbers
	dsz          []float64 // gradient of sz
	mean         []float64 // [batch][Latent]
	log          []float64 // [batch][Latent]
	z            []float64 // [batch][Latent]
	dmean        []float64 // [batch][Latent]
	dlog         []float64 // [batch][Latent]
	dh           []float64 // the gradient of the trunk's output by one of the two layers on it
}

// Hand computes the same with hand-written backward passes.
func Hand(c Config) Gradients {
	numbers := func(width int) []float64 { return make([]float64, c.Batch*width) }
	tape := func(m kernel.MLP) *kernel.Tape[float64] { return kernel.NewTape[float64](m, c.Batch) }
	return &hand{
		c:            c,
		trunk:        tape(c.Trunk()),
		decoder:      tape(c.Decoder()),
		perturbation: tape(c.Perturbation()),
		critic:       tape(c.Critic()),
		sa:           numbers(c.State + c.Action),
		sm:           numbers(c.State + c.Action),
		dsm:          numbers(c.State + c.Action),
		moved:        numbers(c.Action),
		sz:           numbers(c.State + c.Latent),
		dsz:          numbers(c.State + c.Latent),
		mean:         numbers(c.Latent),
		log:          numbers(c.Latent),
		z:            numbers(c.Latent),
		dmean:        numbers(c.Latent),
		dlog:         numbers(c.Latent),
		dh:           numbers(c.Latents().In),
	}
}

func (h *hand) VAE(theta, s, a, noise, grad []float64) (float64, error) {
	c, d := h.c, h.c.Latents()
	begin := c.Trunk().Params()
	middle := c.Trunk().Params() + d.Params()
	end := c.encoder()
	join(h.sa, s, a, c.State, c.Action)
	trunk := h.trunk.Forward(theta, h.sa, c.Batch)
	kernel.DenseForward(d, theta[begin:middle], trunk, c.Batch, h.mean)
	kernel.DenseForward(d, theta[middle:end], trunk, c.Batch, h.log)
	for i, log := range h.log {
		h.z[i] = h.mean[i] + math.Exp(max(leastLog, min(mostLog, log)))*noise[i]
	}
	join(h.sz, s, h.z, c.State, c.Latent)
	u := h.decoder.Forward(theta[end:], h.sz, c.Batch)

	loss := 0.0
	du, n := h.decoder.Out(), float64(len(a))
	for i, v := range u {
		loss += (v - a[i]) * (v - a[i]) / n
		du[i] = 2 * (v - a[i]) / n
	}
	h.decoder.Backward(theta[end:], grad[end:], h.dsz)
	take(h.dmean, h.dsz, c.State, c.Latent) // z's gradient is the mean's
	weight := c.Divergence / float64(len(h.z))
	for i, dz := range h.dmean {
		log, inside := h.log[i], h.log[i] > leastLog && h.log[i] < mostLog
		log = max(leastLog, min(mostLog, log))
		deviation := math.Exp(log)
		loss += weight * ((h.mean[i]*h.mean[i]+deviation*deviation-1)/2 - log)
		h.dmean[i] += weight * h.mean[i]
		h.dlog[i] = 0
		if inside {
			h.dlog[i] = dz*noise[i]*deviation + weight*(deviation*deviation-1)
		}
	}
	kernel.DenseParams(d, trunk, h.dmean, c.Batch, grad[begin:middle])
	kernel.DenseParams(d, trunk, h.dlog, c.Batch, grad[middle:end])
	out := h.trunk.Out()
	kernel.DenseInput(d, theta[begin:middle], h.dmean, c.Batch, out)
	kernel.DenseInput(d, theta[middle:end], h.dlog, c.Batch, h.dh)
	for i, v := range h.dh {
		out[i] += v
	}
	h.trunk.Backward(theta[:begin], grad[:begin], nil)
	return loss, nil
}

func (h *hand) Critic(theta, s, a, y, grad []float64) (float64, error) {
	join(h.sa, s, a, h.c.State, h.c.Action)
	loss, n := 0.0, float64(h.c.Batch)
	q := h.critic.Forward(theta, h.sa, h.c.Batch)
	dq := h.critic.Out()
	for i, v := range q {
		loss += (v - y[i]) * (v - y[i]) / n
		dq[i] = 2 * (v - y[i]) / n
	}
	h.critic.Backward(theta, grad, nil)
	return loss, nil
}

func (h *hand) Perturbation(theta, critic, s, a, grad []float64) (float64, error) {
	c := h.c
	join(h.sa, s, a, c.State, c.Action)
	xi := h.perturbation.Forward(theta, h.sa, c.Batch)
	for i, v := range xi {
		h.moved[i] = clip(a[i] + c.Phi*v)
	}
	join(h.sm, s, h.moved, c.State, c.Action)
	q := h.critic.Forward(critic, h.sm, c.Batch)
	loss, n := 0.0, float64(c.Batch)
	dq := h.critic.Out()
	for i, v := range q {
		loss -= v / n
		dq[i] = -1 / n
	}
	h.critic.Backward(critic, nil, h.dsm)
	dxi := h.perturbation.Out()
	take(dxi, h.dsm, c.State, c.Action)
	for i, v := range h.moved {
		dxi[i] *= c.Phi
		if v == -1 || v == 1 { // it was cut
			dxi[i] = 0
		}
	}
	h.perturbation.Backward(theta, grad, nil)
	return loss, nil
}

// join puts the rows of two matrices beside each other, left and right numbers
// wide.
func join(to, a, b []float64, left, right int) {
	for i := range len(a) / left {
		row := to[i*(left+right):]
		copy(row[:left], a[i*left:])
		copy(row[left:][:right], b[i*right:])
	}
}

// take is the right part of rows that join made.
func take(to, from []float64, left, right int) {
	for i := range len(to) / right {
		copy(to[i*right:][:right], from[i*(left+right)+left:])
	}
}
