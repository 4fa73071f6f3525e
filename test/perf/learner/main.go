// Command learner measures the cost of learning: updates through gorgonia's graphs
// against the same updates in hand-written code, decisions, and many agents on two
// workers. The last line is JSON.
//
// Rounds of both sides alternate, and medians are compared, because the machine is
// shared. Compare the ratios, not the microseconds.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
)

func main() {
	name := flag.String("gemm", gemm.Choose().Name, "matrix products")
	flag.Parse()
	if err := measure(*name); err != nil {
		fmt.Fprintln(os.Stderr, "bench-learner:", err)
		os.Exit(1)
	}
}

type figures map[string]float64

func measure(name string) error {
	set, err := gemm.Named(name)
	if err != nil {
		return err
	}
	graph.Use(set.BLAS())
	result := map[string]figures{}
	for _, part := range []struct {
		name string
		do   func() (figures, error)
	}{
		{"ddpg", ddpgUpdate}, {"ppo", ppoUpdate}, {"gru", func() (figures, error) { return encoderStep(set) }},
		{"decision", decisions}, {"agents200", agents}, {"memory", memory},
	} {
		f, err := part.do()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("%s, products by %s: %v\n", part.name, set.Name, f)
		result[part.name] = f
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// compare is the median time of each side, in seconds, over alternating rounds.
func compare(rounds, times int, all ...func() error) ([]float64, error) {
	taken := make([][]float64, len(all))
	for round := range rounds + 1 {
		for i, do := range all {
			begin := time.Now()
			for range times {
				if err := do(); err != nil {
					return nil, err
				}
			}
			if round > 0 { // the first warms up
				taken[i] = append(taken[i], time.Since(begin).Seconds()/float64(times))
			}
		}
	}
	medians := make([]float64, len(all))
	for i, t := range taken {
		slices.Sort(t)
		medians[i] = t[len(t)/2]
	}
	return medians, nil
}

// allocations of a call, mean of some.
func allocations(do func() error) (float64, error) {
	const calls = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		if err := do(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / calls, nil
}

// heap is the memory of a value, in MiB: the mean of ten, after a first one that fills
// the caches of packages.
func heap[T any](build func() (T, error)) (last T, mib float64, err error) {
	const things = 10
	kept := make([]T, 0, things)
	if last, err = build(); err != nil {
		return last, 0, err
	}
	live := func() float64 {
		var m runtime.MemStats
		for range 3 { // pools release their memory after two collections
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := live()
	for range things {
		v, err := build()
		if err != nil {
			return last, 0, err
		}
		kept = append(kept, v)
	}
	mib = (live() - before) / things / (1 << 20)
	runtime.KeepAlive(kept)
	return last, mib, nil
}

func actorCritic() ddpg.Config {
	ones := []float64{1, 1, 1, 1, 1}
	c := ddpg.Default(8, []float64{-1, -1, -1, -1, -1}, ones)
	c.Hidden, c.Batch = []int{40, 40}, 64
	return c
}

func batch(c ddpg.Config) (*replay.Batch, error) {
	b, err := replay.NewBatch(replay.Config{Capacity: c.Batch, State: c.State, Action: c.Action}, c.Batch)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, part := range [][]float64{b.State, b.Next, b.Reward} {
		for i := range part {
			part[i] = r.NormFloat64()
		}
	}
	for i := range b.Action {
		b.Action[i] = 2*r.Float64() - 1
	}
	for i := range b.Bootstrap {
		b.Bootstrap[i], b.Weight[i] = 0.99, 1
	}
	return b, nil
}

func ddpgUpdate() (figures, error) {
	c := actorCritic()
	b, err := batch(c)
	if err != nil {
		return nil, err
	}
	g, size, err := heap(func() (ddpg.Gradients, error) {
		g, err := ddpg.Gorgonia(c)
		if err != nil {
			return nil, err
		}
		u := ddpg.NewUpdater(c, g) // the first run makes the graph's buffers
		_, err = u.Update(ddpg.NewPolicy(c, rand.New(rand.NewPCG(1, 1))), b, nil)
		return g, err
	})
	if err != nil {
		return nil, err
	}
	update := func(g ddpg.Gradients) func() error {
		u, p := ddpg.NewUpdater(c, g), ddpg.NewPolicy(c, rand.New(rand.NewPCG(1, 1)))
		return func() error {
			_, err := u.Update(p, b, nil)
			return err
		}
	}
	byGraph, byHand := update(g), update(ddpg.Hand(c))
	times, err := compare(25, 40, byGraph, byHand)
	if err != nil {
		return nil, err
	}
	n, err := allocations(byGraph)
	return figures{"ratio": times[0] / times[1], "us": times[0] * 1e6, "allocs": n, "graph_mib": size}, err
}

func ppoUpdate() (figures, error) {
	c := ppo.Default(8, 5, nil, nil)
	c.Minibatch = 64
	r := rand.New(rand.NewPCG(1, 2))
	m := &ppo.Minibatch{
		State:     make([]float64, 64*8),
		Action:    make([]float64, 64),
		LogProb:   make([]float64, 64),
		Advantage: make([]float64, 64),
		Return:    make([]float64, 64),
		Clip:      0.2,
	}
	for i := range m.State {
		m.State[i] = r.NormFloat64()
	}
	for i := range m.Action {
		m.Action[i] = float64(r.IntN(5))
		m.LogProb[i] = -1.6
		m.Advantage[i] = r.NormFloat64()
		m.Return[i] = r.NormFloat64()
	}
	g, size, err := heap(func() (ppo.Gradients, error) {
		g, err := ppo.Gorgonia(c)
		if err != nil {
			return nil, err
		}
		_, err = g.Gradient(make([]float64, c.Params()), m, make([]float64, c.Params()))
		return g, err
	})
	if err != nil {
		return nil, err
	}
	update := func(g ppo.Gradients) func() error {
		u := ppo.NewUpdater(c, g)
		theta := make([]float64, c.Params())
		adam := nn.NewAdam(c.Params(), 1e-4, 1e-5)
		nn.OrthogonalMLP(c.Policy(), theta, 0.01, rand.New(rand.NewPCG(3, 3)))
		return func() error {
			_, err := u.Update(theta, adam, m)
			return err
		}
	}
	byGraph, byHand := update(g), update(ppo.Hand(c))
	times, err := compare(25, 40, byGraph, byHand)
	if err != nil {
		return nil, err
	}
	n, err := allocations(byGraph)
	return figures{"ratio": times[0] / times[1], "us": times[0] * 1e6, "allocs": n, "graph_mib": size}, err
}

// The meta-learner's encoder (AWARE §3.2): two bidirectional layers of 256, 100
// steps of 20 trajectories, a layer of 64.
const (
	span         = 100
	trajectories = 20
	seen         = 16
)

var (
	first  = kernel.GRU{In: seen, Hidden: 256, Bidirectional: true}
	second = kernel.GRU{In: 512, Hidden: 256, Bidirectional: true}
	head   = kernel.NewMLP(kernel.ReLU, kernel.ReLU, 512, 64)
)

func encoderStep(set gemm.Set) (figures, error) {
	n := first.Params() + second.Params() + head.Params()
	r := rand.New(rand.NewPCG(1, 2))
	theta, x := make([]float64, n), make([]float64, span*trajectories*seen)
	for i := range theta {
		theta[i] = 0.06 * (2*r.Float64() - 1)
	}
	for i := range x {
		x[i] = r.NormFloat64()
	}
	var input graph.Input[float64]
	g, err := graph.Build(n, func(b *graph.Builder[float64]) *graph.Node {
		input = b.Input("trajectories", span*trajectories, seen)
		h := b.GRU("first", first, span, trajectories, nil, input.Node, 0)
		h = b.GRU("second", second, span, trajectories, nil, h, first.Params())
		return b.Mean(b.Square(b.MLP("head", head, h, first.Params()+second.Params())))
	})
	if err != nil {
		return nil, err
	}
	copy(g.Theta, theta)
	copy(input.Data, x)
	byGraph := func() error {
		_, err := g.Run()
		return err
	}
	hand := newEncoder(theta, x)
	byHand := func() error {
		hand.step()
		return nil
	}
	times, err := compare(9, 1, byGraph, byHand)
	if err != nil {
		return nil, err
	}
	for i, v := range hand.grad {
		if d := g.Grad[i] - v; d > 1e-9 || d < -1e-9 {
			return nil, fmt.Errorf("gradient %d is %v, by hand %v", i, g.Grad[i], v)
		}
	}
	allocs, err := allocations(byGraph)
	if err != nil {
		return nil, err
	}
	slow := func() error {
		graph.Use(gemm.Gonum().BLAS())
		defer graph.Use(set.BLAS())
		return byGraph()
	}
	both, err := compare(3, 1, slow, byGraph)
	if err != nil {
		return nil, err
	}
	return figures{"ratio": times[0] / times[1], "s": times[0], "allocs": allocs,
		"speedup_over_gonum": both[0] / both[1]}, nil
}

// encoder is the same in hand-written code.
type encoder struct {
	theta []float64
	x     []float64
	grad  []float64
	one   *kernel.GRUTape[float64]
	two   *kernel.GRUTape[float64]
	top   *kernel.Tape[float64]
	a     []float64
	b     []float64
	da    []float64
	db    []float64
	dx    []float64
}

func newEncoder(theta, x []float64) *encoder {
	rows := span * trajectories
	return &encoder{
		theta: theta,
		x:     x,
		grad:  make([]float64, len(theta)),
		one:   kernel.NewGRUTape[float64](first, span, trajectories),
		two:   kernel.NewGRUTape[float64](second, span, trajectories),
		top:   kernel.NewTape[float64](head, rows),
		a:     make([]float64, rows*512),
		b:     make([]float64, rows*512),
		da:    make([]float64, rows*512),
		db:    make([]float64, rows*512),
		dx:    make([]float64, len(x)),
	}
}

func (e *encoder) step() {
	n, m := first.Params(), first.Params()+second.Params()
	e.one.Forward(e.theta[:n], e.x, e.a)
	e.two.Forward(e.theta[n:m], e.a, e.b)
	out := e.top.Forward(e.theta[m:], e.b, span*trajectories)
	d := e.top.Out()
	for i, v := range out {
		d[i] = 2 * v / float64(len(out))
	}
	e.top.Backward(e.theta[m:], e.grad[m:], e.db)
	e.two.Backward(e.theta[n:m], e.a, e.db, e.grad[n:m], e.da)
	e.one.Backward(e.theta[:n], e.x, e.da, e.grad[:n], nil)
}

// decisions of 200 workloads' own policies, in random order.
func decisions() (figures, error) {
	c := actorCritic()
	const workloads, times = 200, 200_000
	servers := make([]kernel.Server, workloads)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range servers {
		if err := servers[i].Publish(kernel.Snapshot{
			MLP:   c.Actor(),
			Theta: ddpg.NewPolicy(c, r).Actor.Theta,
		}); err != nil {
			return nil, err
		}
	}
	var scratch kernel.Scratch
	x := []float64{1, 2, 3, 4, 5, 6, 7, 8}
	taken := make([]time.Duration, times)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range taken {
		s := &servers[r.IntN(workloads)]
		begin := time.Now()
		if _, _, ok := s.Decide(x, 1, &scratch); !ok {
			return nil, errors.New("nothing was decided")
		}
		taken[i] = time.Since(begin)
	}
	runtime.ReadMemStats(&after)
	slices.Sort(taken)
	us := func(q float64) float64 { return float64(taken[int(q*times)].Nanoseconds()) / 1e3 }
	return figures{"p50_us": us(0.5), "p99_us": us(0.99),
		"allocs": float64((after.Mallocs - before.Mallocs) / times)}, nil
}

// agents are 200 policies, one update each, by one worker and by two: a worker
// has one graph set for all of its agents.
func agents() (figures, error) {
	c := actorCritic()
	const n = 200
	policies := make([]*ddpg.Policy, n)
	for i := range policies {
		policies[i] = ddpg.NewPolicy(c, rand.New(rand.NewPCG(uint64(i), 1)))
	}
	b, err := batch(c)
	if err != nil {
		return nil, err
	}
	round := func(workers int) (func() error, error) {
		updaters := make([]*ddpg.Updater, workers)
		for i := range updaters {
			g, err := ddpg.Gorgonia(c)
			if err != nil {
				return nil, err
			}
			updaters[i] = ddpg.NewUpdater(c, g)
		}
		return func() error {
			errs := make([]error, workers)
			var wait sync.WaitGroup
			for w, u := range updaters {
				wait.Go(func() {
					for i := w; i < n; i += workers {
						if _, err := u.Update(policies[i], b, nil); err != nil {
							errs[w] = err
							return
						}
					}
				})
			}
			wait.Wait()
			return errors.Join(errs...)
		}, nil
	}
	one, err := round(1)
	if err != nil {
		return nil, err
	}
	two, err := round(2)
	if err != nil {
		return nil, err
	}
	times, err := compare(15, 1, one, two)
	if err != nil {
		return nil, err
	}
	return figures{"speedup": times[0] / times[1], "one_ms": times[0] * 1e3, "two_ms": times[1] * 1e3}, nil
}

// memory is the memory of an agent before its replay is filled, in bytes: of
// agents with default settings that share the graphs of one worker, and of one
// with its own.
func memory() (figures, error) {
	ones := []float64{1, 1, 1, 1, 1}
	continuous, discrete := ddpg.Default(8, []float64{-1, -1, -1, -1, -1}, ones), dqn.Default(8, 15)
	f := figures{}
	for name, build := range map[string]func(w *agent.Workspace) (any, error){
		"ddpg": func(w *agent.Workspace) (any, error) { return ddpg.NewWith(continuous, w) },
		"dqn":  func(w *agent.Workspace) (any, error) { return dqn.NewWith(discrete, w) },
	} {
		w := agent.NewWorkspace()
		shared := func() (any, error) { return many(20, func() (any, error) { return build(w) }) }
		_, mib, err := heap(shared)
		if err != nil {
			return nil, err
		}
		f["bytes_per_agent_"+name] = mib * (1 << 20) / 20
		_, mib, err = heap(func() (any, error) { return build(nil) })
		if err != nil {
			return nil, err
		}
		f["bytes_per_agent_"+name+"_own_graphs"] = mib * (1 << 20)
	}
	return f, nil
}

func many(n int, build func() (any, error)) ([]any, error) {
	all := make([]any, n)
	for i := range all {
		var err error
		if all[i], err = build(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
