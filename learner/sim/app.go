package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim/perfmodel"
)

// App is an application: services, what can be asked of them, and how clients ask.
type App struct {
	Name       string
	SLO        mdp.SLO       // of the whole application, as its clients see it
	Timeout    time.Duration // clients wait no longer than this, and no queue keeps a request longer; 0 is [DefaultTimeout]
	Services   []Service
	Operations []Operation
	Endpoints  []Endpoint
}

// DefaultTimeout is after how much waiting a request is given up.
const DefaultTimeout = 10 * time.Second

// Service is a workload: replicas of one container.
type Service struct {
	Name      string
	Threads   int       // requests that one replica holds at once, those that wait for an answer from elsewhere included
	Procs     int       // requests that one replica computes at once: its event loops, worker processes or GOMAXPROCS
	Variation float64   // coefficient of variation of a request's CPU work, which is gamma distributed
	Parallel  int       // CPUs that one request computes on; 1 when it is sequential
	Serial    mdp.Ratio // share of a request's work that is sequential (Amdahl); counts when Parallel is above 1
	Memory    Memory
	Start     time.Duration // from the start of its container until a replica takes requests
	Sensitive Pressure      // how much more CPU work a request needs at full pressure: 0.5 is half as much again
	Exerts    Pressure      // what one busy core of it takes of its node, as a share of the node's whole
	Replicas  int           // at the beginning
	Size      mdp.Size      // of a replica at the beginning; its API limit
	Bounds    mdp.Bounds    // what its owner lets be done with it
}

// Memory is what a replica holds.
type Memory struct {
	Base       mdp.Bytes // with no request in it
	PerRequest mdp.Bytes // more for each request that is in it
}

// Operation is one thing that a service does: CPU work, then waiting for I/O, then calls of other operations.
type Operation struct {
	Name       string // unique in the application, such as search.nearby
	Service    string
	Work       time.Duration // mean CPU time on a core of its own, without interference
	Wait       time.Duration // for disks, networks and what is not simulated
	Stages     [][]Call      // one after the other; the calls of a stage go out together and are awaited together
	Background []Call        // sent when the operation is done; nobody waits for them
}

// Call is a call of an operation, made by a share of the requests (a cache that misses in 20 % of them: 0.2).
type Call struct {
	Operation string
	Share     mdp.Ratio // in (0, 1]
}

// Endpoint is an operation that clients ask for, and its share of their requests.
type Endpoint struct {
	Operation string
	Share     mdp.Ratio // relative to the other endpoints' shares
}

// Check is nil for an application that can be simulated; otherwise it names the service or operation, the field and the
// value that is wrong.
func (a App) Check() error {
	_, err := compile(a)
	return err
}

func (s Service) check() error {
	bad := func(field string, value any, rule string) error {
		return fmt.Errorf("service %q: %s %v: it must be %s", s.Name, field, value, rule)
	}
	switch {
	case s.Name == "":
		return errors.New("a service without a name")
	case s.Threads < 1:
		return bad("threads", s.Threads, "at least 1")
	case s.Procs < 1:
		return bad("procs", s.Procs, "at least 1")
	case !(s.Variation > 0 && s.Variation <= 4):
		return bad("variation", s.Variation, "above 0 and at most 4")
	case s.Parallel < 1:
		return bad("parallel", s.Parallel, "at least 1")
	case !(s.Serial >= 0 && s.Serial <= 1):
		return bad("serial", float64(s.Serial), "in [0, 1]")
	case s.Memory.Base < 0 || s.Memory.PerRequest < 0:
		return bad("memory", s.Memory, "not negative")
	case s.Start < 0:
		return bad("start", s.Start, "not negative")
	case s.Replicas < 1:
		return bad("replicas", s.Replicas, "at least 1")
	}
	for r := range s.Sensitive {
		if !(s.Sensitive[r] >= 0 && s.Sensitive[r] <= 20) {
			return bad("sensitive to "+Shared(r).String(), s.Sensitive[r], "in [0, 20]")
		}
		if !(s.Exerts[r] >= 0 && s.Exerts[r] <= 10) {
			return bad("exerts on "+Shared(r).String(), s.Exerts[r], "in [0, 10]")
		}
	}
	if err := s.Bounds.Check(); err != nil {
		return fmt.Errorf("service %q: %w", s.Name, err)
	}
	if !s.Bounds.CPU.Has(s.Size.CPU) || !s.Bounds.Memory.Has(s.Size.Memory) {
		return bad("size", s.Size, fmt.Sprintf("within its bounds (cpu %v to %v, memory %v to %v)",
			s.Bounds.CPU.Min, s.Bounds.CPU.Max, s.Bounds.Memory.Min, s.Bounds.Memory.Max))
	}
	if !s.Bounds.Replicas.Has(s.Replicas) {
		return bad("replicas", s.Replicas, fmt.Sprintf("within its bounds (%d to %d)", s.Bounds.Replicas.Min, s.Bounds.Replicas.Max))
	}
	return nil
}

// span is the time of a request on free CPUs as a share of its work.
func (s Service) span() float64 { return 1 / perfmodel.Amdahl(float64(s.Serial), float64(s.Parallel)) }

// graph is an App with names resolved.
type graph struct {
	App
	ops       []op
	order     []int     // of ops, every callee before its callers
	endpoints []int     // of ops
	shares    []float64 // of endpoints, adding up to 1
	names     map[string]int
}

type op struct {
	name       string
	service    int
	work, wait float64 // seconds
	stages     [][]edge
	background []edge
	visits     float64 // per request of the application
}

type edge struct {
	op    int
	share float64
}

func compile(a App) (*graph, error) {
	g := &graph{App: a, names: map[string]int{}}
	fail := func(err error) (*graph, error) { return nil, fmt.Errorf("application %q: %w", a.Name, err) }
	if a.Timeout < 0 {
		return fail(fmt.Errorf("timeout %v: it must not be negative", a.Timeout))
	}
	if g.Timeout == 0 {
		g.Timeout = DefaultTimeout
	}
	if err := a.SLO.Check(); err != nil {
		return fail(err)
	}
	if len(a.Services) == 0 || len(a.Endpoints) == 0 {
		return fail(fmt.Errorf("%d services and %d endpoints: it must have at least one of each", len(a.Services), len(a.Endpoints)))
	}
	for i, s := range a.Services {
		if err := s.check(); err != nil {
			return fail(err)
		}
		if _, twice := g.names[s.Name]; twice {
			return fail(fmt.Errorf("service %q: it is there twice", s.Name))
		}
		g.names[s.Name] = i
	}
	if err := g.resolve(); err != nil {
		return fail(err)
	}
	if err := g.sort(); err != nil {
		return fail(err)
	}
	return g, nil
}

// resolve turns the names of operations into numbers.
func (g *graph) resolve() error {
	numbers := map[string]int{}
	for i, o := range g.Operations {
		if o.Name == "" {
			return errors.New("an operation without a name")
		}
		if _, twice := numbers[o.Name]; twice {
			return fmt.Errorf("operation %q: it is there twice", o.Name)
		}
		numbers[o.Name] = i
	}
	edges := func(o Operation, calls []Call) ([]edge, error) {
		var es []edge
		for _, c := range calls {
			to, known := numbers[c.Operation]
			if !known {
				return nil, fmt.Errorf("operation %q calls %q: there is no such operation", o.Name, c.Operation)
			}
			if !(c.Share > 0 && c.Share <= 1) {
				return nil, fmt.Errorf("operation %q calls %q with share %v: it must be in (0, 1]", o.Name, c.Operation, float64(c.Share))
			}
			es = append(es, edge{to, float64(c.Share)})
		}
		return es, nil
	}
	for _, o := range g.Operations {
		service, known := g.names[o.Service]
		switch {
		case !known:
			return fmt.Errorf("operation %q: there is no service %q", o.Name, o.Service)
		case o.Work <= 0:
			return fmt.Errorf("operation %q: work %v: it must be above zero", o.Name, o.Work)
		case o.Wait < 0:
			return fmt.Errorf("operation %q: wait %v: it must not be negative", o.Name, o.Wait)
		}
		r := op{name: o.Name, service: service, work: o.Work.Seconds(), wait: o.Wait.Seconds()}
		for _, stage := range o.Stages {
			es, err := edges(o, stage)
			if err != nil {
				return err
			}
			r.stages = append(r.stages, es)
		}
		var err error
		if r.background, err = edges(o, o.Background); err != nil {
			return err
		}
		g.ops = append(g.ops, r)
	}
	total := 0.0
	for _, e := range g.Endpoints {
		to, known := numbers[e.Operation]
		if !known {
			return fmt.Errorf("endpoint %q: there is no such operation", e.Operation)
		}
		if !(e.Share > 0) || math.IsInf(float64(e.Share), 0) {
			return fmt.Errorf("endpoint %q: share %v: it must be above zero", e.Operation, float64(e.Share))
		}
		g.endpoints = append(g.endpoints, to)
		g.shares = append(g.shares, float64(e.Share))
		total += float64(e.Share)
	}
	for i := range g.shares {
		g.shares[i] /= total
	}
	return nil
}

// sort orders the operations, finds cycles, and counts visits.
func (g *graph) sort() error {
	const (
		unseen = iota
		open
		done
	)
	state := make([]int, len(g.ops))
	var path []string
	var visit func(i int) error
	visit = func(i int) error {
		path = append(path, g.ops[i].name)
		defer func() { path = path[:len(path)-1] }()
		switch state[i] {
		case open:
			return fmt.Errorf("its calls go in a circle: %v", path)
		case done:
			return nil
		}
		state[i] = open
		for _, e := range g.ops[i].calls() {
			if err := visit(e.op); err != nil {
				return err
			}
		}
		state[i] = done
		g.order = append(g.order, i)
		return nil
	}
	for i := range g.ops {
		if err := visit(i); err != nil {
			return err
		}
	}
	for k, e := range g.endpoints {
		g.ops[e].visits += g.shares[k]
	}
	for k := len(g.order) - 1; k >= 0; k-- {
		o := g.ops[g.order[k]]
		for _, e := range o.calls() {
			g.ops[e.op].visits += o.visits * e.share
		}
	}
	asked := make([]bool, len(g.Services))
	for _, o := range g.ops {
		if o.visits > 0 {
			asked[o.service] = true
		}
	}
	for i, yes := range asked {
		if !yes {
			return fmt.Errorf("service %q: no endpoint ever asks anything of it", g.Services[i].Name)
		}
	}
	return nil
}

// calls are all calls of an operation.
func (o op) calls() []edge {
	var all []edge
	for _, s := range o.stages {
		all = append(all, s...)
	}
	return append(all, o.background...)
}
