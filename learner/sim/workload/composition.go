package workload

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"gonum.org/v1/gonum/stat/distuv"
)

// Composition is one of AWARE's synthetic applications: the segments that each
// request runs in sequence.
type Composition []Segment

// String is the names of the segments in the format of ReadCompositions.
func (c Composition) String() string {
	names := make([]string, len(c))
	for i, s := range c {
		names[i] = s.Name
	}
	return strings.Join(names, ",")
}

// maxSegments is the maximum number of segments of an application. The
// published ones have one to three.
const maxSegments = 32

// theirs maps the names in the published compositions to the names here. The
// published compositions use eleven of the sixteen segments.
//
//	readFile         read         floatOperations  float
//	writeFile        write        matMul           matmul
//	imageResize      resize       compress         compress
//	imageRotate      rotate       decompress       decompress
//	imageCompress    jpeg         json2yaml        json
//	sleep            sleep
var theirs = map[string]string{
	"readFile":        "read",
	"writeFile":       "write",
	"imageResize":     "resize",
	"imageRotate":     "rotate",
	"imageCompress":   "jpeg",
	"floatOperations": "float",
	"matMul":          "matmul",
	"json2yaml":       "json",
}

// ReadCompositions reads applications, one per line, as names of segments
// separated by commas. The names are ours or those of the paper's artefact. It
// skips blank lines and lines that start with #. Errors contain the name and
// the line.
func ReadCompositions(name string, r io.Reader) ([]Composition, error) {
	var all []Composition
	lines := bufio.NewScanner(r)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Split(line, ",")
		if len(words) > maxSegments {
			return nil, fmt.Errorf("compositions %s, line %d: %d segments: at most %d", name, number, len(words), maxSegments)
		}
		var c Composition
		for _, word := range words {
			word = strings.TrimSpace(word)
			if ours, known := theirs[word]; known {
				word = ours
			}
			s, err := FindSegment(word)
			if err != nil {
				return nil, fmt.Errorf("compositions %s, line %d: %w", name, number, err)
			}
			c = append(c, s)
		}
		all = append(all, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("compositions %s, after line %d: %w", name, number, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("compositions %s: there are none in it", name)
	}
	return all, nil
}

// Compositions returns the 1,000 applications that were published with AWARE.
func Compositions() []Composition {
	const file = "data/aware/generatedFunctions.txt"
	all, err := ReadCompositions(file, embedded(file))
	if err != nil {
		panic(err) // it is compiled in
	}
	return all
}

// generated is the number of different applications with one to three segments.
const generated = 16 + 16*16 + 16*16*16

// Generate draws n different applications as AWARE does (dissertation §5.5.1),
// by sampling from the 16 segments with replacement: a number of segments from
// one to three, each as likely as the others, then the segments; what was drawn
// before is drawn again. The published ones look like that: of their eleven
// segments they have all 11 applications of one and all 121 of two. The same
// seed gives the same applications.
func Generate(seed uint64, n int) ([]Composition, error) {
	if n < 1 || n > generated {
		return nil, fmt.Errorf("generating %d applications: there are 1 to %d", n, generated)
	}
	pool := Segments()
	r := rand.New(source(seed))
	seen := map[string]bool{}
	var all []Composition
	for len(all) < n {
		c := make(Composition, 1+r.IntN(3))
		for i := range c {
			c[i] = pool[r.IntN(len(pool))]
		}
		if name := c.String(); !seen[name] {
			seen[name] = true
			all = append(all, c)
		}
	}
	return all, nil
}

// The applications of [Compositions] are divided by 8 to 2, as in the paper.
const (
	pretraining = 800
	published   = 1000
)

// Split divides the indexes of [Compositions] at random: 800 for pretraining,
// and 200 that pretraining does not see.
func Split(seed uint64) (pretrain, unseen []int) {
	order := rand.New(source(seed)).Perm(published)
	return order[:pretraining], order[pretraining:]
}

// Values of every service of a generated application, in addition to its segment.
// All are chosen.
const (
	handling    = 100 * us      // CPU time to receive and answer a request
	handlingVar = 0.1           // its standard deviation over its mean
	runtimeBase = 30 * mdp.MiB  // memory of the runtime
	perRequest  = 32 << 10      // memory of a request
	margin      = 3             // SLO / unloaded p99, and initial size / mean demand
	leastSize   = 500           // minimum initial CPU of a replica, in millicores
	leastMemory = 128 * mdp.MiB // minimum initial memory of a replica
	poolThreads = 256
	poolProcs   = 8
)

// entryService is the service that receives the clients' requests and calls one
// segment after the other.
const entryService = "app"

// envelope is the bounds of each service. They are chosen: at a hundred requests
// per second, up to 80 cores are enough for a doubled load, and for an update that
// makes requests 27 times as long.
var envelope = mdp.Bounds{
	Replicas: mdp.Range[int]{Min: 1, Max: 10},
	CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 8000},
	Memory:   mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 8 << 30},
}

// Work is the mean CPU time of a request in all services.
func (c Composition) Work() time.Duration {
	sum := handling
	for _, g := range c {
		sum += handling + g.Work
	}
	return sum
}

// Unloaded is a percentile of the latency of a request that has all CPUs it can
// use. The services' times are added: a gamma distribution with the mean and the
// variance of the sum.
func (c Composition) Unloaded(percentile float64) time.Duration {
	wait := 0.0
	mean, variance := handling.Seconds(), math.Pow(handlingVar*handling.Seconds(), 2)
	for _, g := range c {
		s, o := g.service()
		span := o.Work.Seconds()
		if s.Parallel > 1 {
			span *= float64(s.Serial) + (1-float64(s.Serial))/float64(s.Parallel)
		}
		mean += span
		variance += math.Pow(s.Variation*span, 2)
		wait += o.Wait.Seconds()
	}
	computing := distuv.Gamma{Alpha: mean * mean / variance, Beta: mean / variance}.Quantile(percentile / 100)
	return time.Duration((wait + computing) * float64(time.Second))
}

// App is the application as a graph, for a load with the given mean: an entry
// service that calls a service for each segment, one after the other. A segment
// that comes twice is two services.
//
// Its SLO is a p99 of three times its unloaded p99, rounded up to a multiple of
// 5 ms, as an owner would set it after a measurement on an idle machine. Each
// service starts with three times the mean CPU demand of the load, in the smallest
// number of replicas that its bounds allow.
func (c Composition) App(load mdp.Rate) (sim.App, error) {
	fail := func(err error) (sim.App, error) { return sim.App{}, fmt.Errorf("application %v: %w", c, err) }
	if len(c) == 0 || len(c) > maxSegments {
		return fail(fmt.Errorf("%d segments: there must be 1 to %d", len(c), maxSegments))
	}
	if !(load > 0 && load <= MaxRate) {
		return fail(fmt.Errorf("load %v: it must be above 0 and at most %g requests per second", float64(load), MaxRate))
	}
	slo := margin * c.Unloaded(99)
	slo = (slo + 5*ms - 1) / (5 * ms) * (5 * ms)
	entry := sim.Operation{Name: entryService + ".serve", Service: entryService, Work: handling}
	app := sim.App{
		Name:      c.String(),
		SLO:       mdp.SLO{Percentile: 99, Latency: slo},
		Endpoints: []sim.Endpoint{{Operation: entry.Name, Share: 1}},
		Services:  []sim.Service{pooled(entryService, handlingVar)},
	}
	seen := map[string]int{}
	var operations []sim.Operation
	for _, g := range c {
		s, o := g.service()
		if seen[g.Name]++; seen[g.Name] > 1 {
			s.Name = fmt.Sprintf("%s-%d", g.Name, seen[g.Name])
		}
		o.Name, o.Service = s.Name+".run", s.Name
		entry.Stages = append(entry.Stages, []sim.Call{{Operation: o.Name, Share: 1}})
		app.Services = append(app.Services, s)
		operations = append(operations, o)
	}
	app.Operations = append([]sim.Operation{entry}, operations...)
	for i := range app.Services {
		if err := size(&app.Services[i], app.Operations[i].Work, load, slo); err != nil {
			return fail(err)
		}
	}
	return app, app.Check()
}

// Deployment is the application as AWARE deploys it (§5.1): all segments in one service, one after the other in each
// request, scaled as one workload. SLO and initial size are found as those of [Composition.App].
//
// What the segments need is joined: times and the memory of loaded models are added, a request holds the memory of the
// segment that needs the most, and the rest are means weighted by the work. The serial share is that with which the service
// computes as long, on free CPUs, as the segments do.
func (c Composition) Deployment(load mdp.Rate) (sim.App, error) {
	fail := func(err error) (sim.App, error) {
		return sim.App{}, fmt.Errorf("deployment of application %v: %w", c, err)
	}
	if len(c) == 0 || len(c) > maxSegments {
		return fail(fmt.Errorf("%d segments: there must be 1 to %d", len(c), maxSegments))
	}
	if !(load > 0 && load <= MaxRate) {
		return fail(fmt.Errorf("load %v: it must be above 0 and at most %g requests per second", float64(load), MaxRate))
	}
	one := pooled(entryService, 0)
	o := sim.Operation{Name: entryService + ".serve", Service: entryService, Work: handling}
	variance, span := math.Pow(handlingVar*handling.Seconds(), 2), handling.Seconds()
	total := handling
	for _, g := range c {
		total += handling + g.Work
	}
	for _, g := range c {
		s, work := g.service()
		o.Work += work.Work
		o.Wait += work.Wait
		variance += math.Pow(s.Variation*work.Work.Seconds(), 2)
		one.Parallel = max(one.Parallel, s.Parallel)
		serial := 1.0
		if s.Parallel > 1 {
			serial = float64(s.Serial) + (1-float64(s.Serial))/float64(s.Parallel)
		}
		span += work.Work.Seconds() * serial
		one.Memory.Base += s.Memory.Base - runtimeBase
		one.Memory.PerRequest = max(one.Memory.PerRequest, s.Memory.PerRequest)
		share := work.Work.Seconds() / total.Seconds()
		for r := range one.Sensitive {
			one.Sensitive[r] += s.Sensitive[r] * share
			one.Exerts[r] += s.Exerts[r] * share
		}
	}
	one.Variation = math.Sqrt(variance) / total.Seconds()
	if p := float64(one.Parallel); p > 1 {
		one.Serial = mdp.Ratio(max(0, (span/total.Seconds()-1/p)/(1-1/p)))
	}
	slo := margin * c.Unloaded(99)
	slo = (slo + 5*ms - 1) / (5 * ms) * (5 * ms)
	if err := size(&one, o.Work, load, slo); err != nil {
		return fail(err)
	}
	app := sim.App{
		Name:       c.String(),
		SLO:        mdp.SLO{Percentile: 99, Latency: slo},
		Endpoints:  []sim.Endpoint{{Operation: o.Name, Share: 1}},
		Services:   []sim.Service{one},
		Operations: []sim.Operation{o},
	}
	return app, app.Check()
}

// size sets the initial size and the number of replicas of a service whose
// requests need an amount of work.
func size(s *sim.Service, work time.Duration, load mdp.Rate, slo time.Duration) error {
	need := math.Ceil(margin*float64(load)*work.Seconds()*10) * 100 // thousandths of a core, in whole hundreds
	s.Replicas = max(1, int(math.Ceil(need/float64(envelope.CPU.Max))))
	if s.Replicas > envelope.Replicas.Max {
		return fmt.Errorf("service %s: %v requests per second of %v of work: %d replicas of %v at the beginning, "+
			"and its bounds allow %d", s.Name, float64(load), work, s.Replicas, envelope.CPU.Max, envelope.Replicas.Max)
	}
	s.Size.CPU = max(leastSize, mdp.MilliCPU(math.Ceil(need/float64(s.Replicas)/100)*100))
	inside := min(poolThreads, float64(load)*slo.Seconds())
	s.Size.Memory = max(leastMemory, s.Memory.Base+mdp.Bytes(2*inside*float64(s.Memory.PerRequest)))
	s.Size.Memory = min(envelope.Memory.Max, (s.Size.Memory+64*mdp.MiB-1)/(64*mdp.MiB)*(64*mdp.MiB))
	return nil
}

// pooled is a service with a pool of threads and no work of its own.
func pooled(name string, variation float64) sim.Service {
	return sim.Service{
		Name: name, Threads: poolThreads, Procs: poolProcs, Parallel: 1, Variation: variation,
		Memory: sim.Memory{Base: runtimeBase, PerRequest: perRequest}, Bounds: envelope,
	}
}

// service is the segment as a service, and what a request does there: it is
// handled, and the segment runs. Properties of the work are means weighted by it.
func (s Segment) service() (sim.Service, sim.Operation) {
	o := sim.Operation{Work: handling + s.Work, Wait: s.Wait}
	total, own := o.Work.Seconds(), s.Work.Seconds()
	v := pooled(s.Name, math.Hypot(handlingVar*handling.Seconds(), s.variation()*own)/total)
	v.Memory.Base += s.Memory.Base
	v.Memory.PerRequest = max(v.Memory.PerRequest, s.Memory.PerRequest)
	if v.Parallel = max(1, s.Parallel); v.Parallel > 1 {
		v.Serial = mdp.Ratio((handling.Seconds() + own*float64(s.Serial)) / total)
	}
	for r := range v.Sensitive {
		v.Sensitive[r] = s.Sensitive[r] * own / total
		v.Exerts[r] = s.Exerts[r] * own / total
	}
	return v, o
}
