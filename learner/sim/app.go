package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim/perfmodel"
)

// App is an application: its services, their operations, and the requests of
// its clients.
type App struct {
	Name string
	SLO  mdp.SLO // of the whole application, as its clients see it
	// Within is the time in which background work must be done; 0 is
	// [DefaultWithin]. SLO.Background is the share of it that must be.
	Within time.Duration
	// Timeout is the longest time that clients and queues wait for a request; 0
	// is [DefaultTimeout].
	Timeout    time.Duration
	Services   []Service
	Operations []Operation
	Endpoints  []Endpoint
}

// DefaultTimeout is the time after which a request fails, DefaultWithin the time
// after which background work is late.
const (
	DefaultTimeout = 10 * time.Second
	DefaultWithin  = time.Minute
)

// Service is a workload: replicas of one container.
type Service struct {
	Name      string
	Threads   int       // requests that one replica accepts at once, including those that wait for a call
	Procs     int       // requests that one replica computes at once: event loops, workers or GOMAXPROCS
	Variation float64   // coefficient of variation of a request's CPU work, which is gamma distributed
	Parallel  int       // CPUs that one request uses; 1 when it is sequential
	Serial    mdp.Ratio // sequential share of a request's work (Amdahl); used when Parallel is above 1
	Memory    Memory
	Start     time.Duration // time from the start of a container to its first request
	Sensitive Pressure      // relative increase of CPU work at full pressure: 0.5 is 50 % more work
	Exerts    Pressure      // pressure of one busy core, as a share of the node's resource
	Replicas  int           // initial number of replicas
	Size      mdp.Size      // initial size of a replica: what it reserves, and its limit in force
	Ceiling   mdp.Size      // initial limit in the API, above which no node's agent goes; a zero is Size's
	Bounds    mdp.Bounds    // the actions that its owner allows
}

// Memory is the memory use of a replica.
type Memory struct {
	Base       mdp.Bytes // without requests
	PerRequest mdp.Bytes // added by each request in the replica
}

// Operation is one function of a service: CPU work, then waiting for I/O, then
// calls of other operations.
type Operation struct {
	Name       string // unique in the application, such as search.nearby
	Service    string
	Work       time.Duration // mean CPU time on one core, without interference
	Wait       time.Duration // for disks, networks and everything that is not simulated
	Stages     [][]Call      // run one after the other; the calls of a stage run in parallel
	Background []Call        // sent when the operation is done; nobody waits for them
}

// Call is a call of an operation. A share of the requests make it: with a cache
// that misses in 20 % of the requests the share is 0.2.
type Call struct {
	Operation string
	Share     mdp.Ratio // in (0, 1]
}

// Endpoint is an operation that clients call, and its share of their requests.
type Endpoint struct {
	Operation string
	Share     mdp.Ratio // relative to the shares of the other endpoints
}

// Check returns nil for a valid application. Otherwise the error names the
// service or operation, the field and the value.
func (a App) Check() error {
	_, err := compile(a)
	return err
}

// check returns nil for a valid service. Otherwise the error names the service,
// the field and the value.
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
	if c := s.ceiling(); c.CPU < s.Size.CPU || c.Memory < s.Size.Memory {
		return bad("ceiling", c, fmt.Sprintf("at least its size, %v", s.Size))
	}
	if !s.Bounds.Replicas.Has(s.Replicas) {
		return bad("replicas", s.Replicas,
			fmt.Sprintf("within its bounds (%d to %d)", s.Bounds.Replicas.Min, s.Bounds.Replicas.Max))
	}
	return nil
}

// ceiling is the initial limit in the API.
func (s Service) ceiling() mdp.Size {
	c := s.Ceiling
	if c.CPU == 0 {
		c.CPU = s.Size.CPU
	}
	if c.Memory == 0 {
		c.Memory = s.Size.Memory
	}
	return c
}

// span is the computing time of a request on free CPUs, divided by its CPU
// work.
func (s Service) span() float64 { return 1 / perfmodel.Amdahl(float64(s.Serial), float64(s.Parallel)) }

// graph is an App in which names are replaced by indexes.
type graph struct {
	App
	ops       []op
	order     []int          // indexes of ops, every callee before its callers
	endpoints []int          // indexes of ops
	shares    []float64      // of endpoints; their sum is 1
	names     map[string]int // index of a service by its name
}

// op is an Operation in a graph.
type op struct {
	name       string
	service    int     // index in App.Services
	work       float64 // CPU seconds
	wait       float64 // seconds
	stages     [][]edge
	background []edge
	visits     float64 // mean number per client request
	awaited    float64 // of them, those that the client waits for
}

// edge is a Call in a graph.
type edge struct {
	op    int     // index in graph.ops
	share float64 // of the requests, in (0, 1]
}

// compile checks an application and makes its graph.
func compile(a App) (*graph, error) {
	g := &graph{App: a, names: map[string]int{}}
	fail := func(err error) (*graph, error) { return nil, fmt.Errorf("application %q: %w", a.Name, err) }
	if a.Timeout < 0 || a.Within < 0 {
		return fail(fmt.Errorf("timeout %v, background work within %v: they must not be negative", a.Timeout, a.Within))
	}
	if g.Timeout == 0 {
		g.Timeout = DefaultTimeout
	}
	if g.Within == 0 {
		g.Within = DefaultWithin
	}
	if err := a.SLO.Check(); err != nil {
		return fail(err)
	}
	if len(a.Services) == 0 || len(a.Endpoints) == 0 {
		return fail(fmt.Errorf("%d services and %d endpoints: it must have at least one of each",
			len(a.Services), len(a.Endpoints)))
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

// resolve replaces the names of operations by their indexes.
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
				return nil, fmt.Errorf("operation %q calls %q with share %v: it must be in (0, 1]",
					o.Name, c.Operation, float64(c.Share))
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
	return g.resolveEndpoints(numbers)
}

// resolveEndpoints replaces the names of the endpoints by the indexes of their
// operations, and scales their shares to a sum of 1.
func (g *graph) resolveEndpoints(numbers map[string]int) error {
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

// sort orders the operations by their calls, reports cycles, and computes the
// visits per client request.
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
		g.ops[e].awaited += g.shares[k]
	}
	for k := len(g.order) - 1; k >= 0; k-- {
		o := g.ops[g.order[k]]
		for _, e := range o.calls() {
			g.ops[e.op].visits += o.visits * e.share
		}
		for _, stage := range o.stages {
			for _, e := range stage {
				g.ops[e.op].awaited += o.awaited * e.share
			}
		}
	}
	called := make([]bool, len(g.Services))
	for _, o := range g.ops {
		if o.visits > 0 {
			called[o.service] = true
		}
	}
	for i, isCalled := range called {
		if !isCalled {
			return fmt.Errorf("service %q: no endpoint ever asks anything of it", g.Services[i].Name)
		}
	}
	return nil
}

// calls returns all calls of an operation.
func (o op) calls() []edge {
	var all []edge
	for _, s := range o.stages {
		all = append(all, s...)
	}
	return append(all, o.background...)
}
