package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"sigs.k8s.io/yaml"
)

// maxFile is the maximum size of an application file, in bytes. The largest
// file here has 17,000.
const maxFile = 1 << 20

// Read reads an application in YAML:
//
//	name: shop
//	slo: {percentile: 99, latency: 100ms}   # throughput: 50 is requests per second
//	  # lost: 0.005 is the share of requests that may be lost, background: 0.99 the share of background work that must
//	  # be done in its time; these are what is taken when they are left out
//	timeout: 10s                            # after which clients, and requests in a queue, give up; 10s when left out
//	within: 60s                             # for background work; 60s when left out
//	kinds:                                  # what services have in common; a service's own fields count more
//	  store: {threads: 64, memory: {base: 200Mi, perRequest: 64Ki}}
//	services:
//	- name: front
//	  size: {cpu: 500m, memory: 256Mi}
//	- name: db
//	  kind: store
//	  replicas: 2
//	operations:
//	- name: front.page
//	  service: front
//	  work: 2ms                             # of CPU
//	  wait: 500us
//	  stages:                               # one after the other; what is in one goes out together
//	  - [db.get, db.count 20%]              # the second one by every fifth request
//	  background: [db.log 1%]
//	- {name: db.get, service: db, work: 300us}
//	- {name: db.count, service: db, work: 1ms}
//	- {name: db.log, service: db, work: 100us}
//	endpoints:
//	- {operation: front.page, share: 1}
//
// CPU is in cores, or in thousandths of them as 250m; memory in bytes, or in
// Ki, Mi or Gi. What a service leaves out is
//
//	threads: 256             # requests in a replica, those that wait for others included
//	procs: 16                # requests that compute at once
//	variation: 0.5           # of a request's work: standard deviation over mean
//	parallel: 1              # CPUs that a request computes on, and
//	serial: 0                # the share of its work that only one of them can do
//	start: 0s                # from its container's start until it takes requests
//	memory: {base: 64Mi, perRequest: 128Ki}
//	sensitive: {}            # more work under full pressure on cpu, llc, memory-bandwidth, disk, network: 0.5 is 50 % more
//	exerts: {}               # what a busy core of it takes of its node's, as a share
//	replicas: 1              # at the beginning
//	size: {cpu: 1, memory: 512Mi}           # at the beginning: what a replica reserves, and its limit in force
//	ceiling: {}                             # its limit in the API; what is left out is as in size
//	bounds:
//	  replicas: {min: 1, max: 10}
//	  cpu: {min: 10m, max: 16}
//	  memory: {min: 32Mi, max: 8Gi}
//
// An unknown field is an error, and so is an application that [sim.App.Check]
// rejects. Errors contain the name of the file, the service or the operation,
// the field and the value.
func Read(name string, r io.Reader) (sim.App, error) {
	app, err := read(r)
	if err != nil {
		return sim.App{}, fmt.Errorf("application file %s: %w", name, err)
	}
	return app, nil
}

func read(r io.Reader) (sim.App, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return sim.App{}, err
	}
	if len(text) > maxFile {
		return sim.App{}, fmt.Errorf("over %d bytes long", maxFile)
	}
	document, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return sim.App{}, err
	}
	var f appFile
	if err := strictly(document, &f); err != nil {
		return sim.App{}, err
	}
	app, err := f.app()
	if err != nil {
		return sim.App{}, err
	}
	return app, app.Check()
}

// strictly decodes JSON and rejects unknown fields.
func strictly(document []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	err := d.Decode(value)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field == "" {
		return fmt.Errorf("it must not be a %s", wrong.Value)
	}
	if wrong != nil {
		return fmt.Errorf("%s: it must not be a %s", wrong.Field, wrong.Value)
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// The format of the file. Values with units are parsed later, when the name of
// their owner is known, so that errors can contain it.
type (
	appFile struct {
		Name       string                     `json:"name"`
		SLO        sloFile                    `json:"slo"`
		Timeout    figure                     `json:"timeout"`
		Within     figure                     `json:"within"`
		Kinds      map[string]json.RawMessage `json:"kinds"`
		Services   []json.RawMessage          `json:"services"`
		Operations []operationFile            `json:"operations"`
		Endpoints  []endpointFile             `json:"endpoints"`
	}
	sloFile struct {
		Percentile float64  `json:"percentile"`
		Latency    figure   `json:"latency"`
		Throughput float64  `json:"throughput"`
		Lost       *float64 `json:"lost"`
		Background *float64 `json:"background"`
	}
	serviceFile struct {
		Name      string       `json:"name"`
		Kind      string       `json:"kind"`
		Threads   int          `json:"threads"`
		Procs     int          `json:"procs"`
		Variation float64      `json:"variation"`
		Parallel  int          `json:"parallel"`
		Serial    float64      `json:"serial"`
		Start     figure       `json:"start"`
		Memory    memoryFile   `json:"memory"`
		Sensitive pressureFile `json:"sensitive"`
		Exerts    pressureFile `json:"exerts"`
		Replicas  int          `json:"replicas"`
		Size      sizeFile     `json:"size"`
		Ceiling   sizeFile     `json:"ceiling"`
		Bounds    boundsFile   `json:"bounds"`
	}
	memoryFile struct {
		Base       figure `json:"base"`
		PerRequest figure `json:"perRequest"`
	}
	sizeFile struct {
		CPU    figure `json:"cpu"`
		Memory figure `json:"memory"`
	}
	pressureFile struct {
		CPU             float64 `json:"cpu"`
		LLC             float64 `json:"llc"`
		MemoryBandwidth float64 `json:"memory-bandwidth"`
		Disk            float64 `json:"disk"`
		Network         float64 `json:"network"`
	}
	boundsFile struct {
		Replicas struct {
			Min int `json:"min"`
			Max int `json:"max"`
		} `json:"replicas"`
		CPU    rangeFile `json:"cpu"`
		Memory rangeFile `json:"memory"`
	}
	rangeFile struct {
		Min figure `json:"min"`
		Max figure `json:"max"`
	}
	operationFile struct {
		Name       string     `json:"name"`
		Service    string     `json:"service"`
		Work       figure     `json:"work"`
		Wait       figure     `json:"wait"`
		Stages     [][]string `json:"stages"`
		Background []string   `json:"background"`
	}
	endpointFile struct {
		Operation string  `json:"operation"`
		Share     float64 `json:"share"`
	}
)

// plain is a service with default values.
func plain() serviceFile {
	s := serviceFile{
		Threads: 256, Procs: 16, Variation: 0.5, Parallel: 1, Replicas: 1,
		Memory: memoryFile{"64Mi", "128Ki"},
		Size:   sizeFile{"1", "512Mi"},
	}
	s.Bounds.Replicas.Min, s.Bounds.Replicas.Max = 1, 10
	s.Bounds.CPU = rangeFile{"10m", "16"}
	s.Bounds.Memory = rangeFile{"32Mi", "8Gi"}
	return s
}

// figure is the text of a number with or without a unit.
type figure string

// UnmarshalJSON accepts a number or a string.
func (f *figure) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*f = figure(text)
		return nil
	}
	var number json.Number
	if err := json.Unmarshal(b, &number); err != nil {
		return fmt.Errorf("%s: it must be a number, with a unit or without", b)
	}
	*f = figure(number)
	return nil
}

// What an application promises when its file does not say: at most 0.5 % of the
// requests are lost, and 99 % of the background work is done in its time.
const (
	defaultLost       = 0.005
	defaultBackground = 0.99
)

// share is a share from a file, or the default.
func share(value *float64, otherwise float64) mdp.Ratio {
	if value == nil {
		return mdp.Ratio(otherwise)
	}
	return mdp.Ratio(*value)
}

func (f appFile) app() (sim.App, error) {
	p := &figures{owner: "application"}
	app := sim.App{
		Name: f.Name,
		SLO: mdp.SLO{
			Percentile: f.SLO.Percentile,
			Latency:    p.time("slo latency", f.SLO.Latency),
			Throughput: mdp.Rate(f.SLO.Throughput),
			Lost:       share(f.SLO.Lost, defaultLost),
			Background: share(f.SLO.Background, defaultBackground),
		},
		Timeout: p.time("timeout", f.Timeout),
		Within:  p.time("within", f.Within),
	}
	if f.Name == "" {
		return sim.App{}, errors.New("the application has no name")
	}
	for _, kind := range slices.Sorted(maps.Keys(f.Kinds)) { // also the kinds that no service uses
		s := plain()
		if err := strictly(f.Kinds[kind], &s); err != nil {
			return sim.App{}, fmt.Errorf("kind %q: %w", kind, err)
		}
	}
	for i, raw := range f.Services {
		s, err := f.service(raw)
		if err != nil {
			return sim.App{}, fmt.Errorf("service %d: %w", i+1, err)
		}
		app.Services = append(app.Services, s.service(p))
	}
	for _, o := range f.Operations {
		app.Operations = append(app.Operations, o.operation(p))
	}
	for _, e := range f.Endpoints {
		app.Endpoints = append(app.Endpoints, sim.Endpoint{Operation: e.Operation, Share: mdp.Ratio(e.Share)})
	}
	return app, p.err
}

// service applies the fields of a service to the values of its kind.
func (f appFile) service(raw json.RawMessage) (serviceFile, error) {
	var named struct {
		Name, Kind string
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return serviceFile{}, errors.New("it must have fields")
	}
	s := plain()
	if named.Kind != "" {
		kind, known := f.Kinds[named.Kind]
		if !known {
			return serviceFile{}, fmt.Errorf("%q: there is no kind %q", named.Name, named.Kind)
		}
		if err := strictly(kind, &s); err != nil {
			return serviceFile{}, fmt.Errorf("kind %q: %w", named.Kind, err)
		}
	}
	if err := strictly(raw, &s); err != nil {
		return serviceFile{}, fmt.Errorf("%q: %w", named.Name, err)
	}
	return s, nil
}

func (s serviceFile) service(p *figures) sim.Service {
	p.owner = fmt.Sprintf("service %q", s.Name)
	b := s.Bounds
	return sim.Service{
		Name:      s.Name,
		Threads:   s.Threads,
		Procs:     s.Procs,
		Variation: s.Variation,
		Parallel:  s.Parallel,
		Serial:    mdp.Ratio(s.Serial),
		Memory: sim.Memory{
			Base:       p.memory("memory base", s.Memory.Base),
			PerRequest: p.memory("memory perRequest", s.Memory.PerRequest),
		},
		Start:     p.time("start", s.Start),
		Sensitive: s.Sensitive.pressure(),
		Exerts:    s.Exerts.pressure(),
		Replicas:  s.Replicas,
		Size:      mdp.Size{CPU: p.cpu("size cpu", s.Size.CPU), Memory: p.memory("size memory", s.Size.Memory)},
		Ceiling:   p.ceiling(s.Ceiling),
		Bounds: mdp.Bounds{
			Replicas: mdp.Range[int]{Min: b.Replicas.Min, Max: b.Replicas.Max},
			CPU:      mdp.Range[mdp.MilliCPU]{Min: p.cpu("bounds cpu min", b.CPU.Min), Max: p.cpu("bounds cpu max", b.CPU.Max)},
			Memory: mdp.Range[mdp.Bytes]{
				Min: p.memory("bounds memory min", b.Memory.Min),
				Max: p.memory("bounds memory max", b.Memory.Max),
			},
		},
	}
}

func (f pressureFile) pressure() (p sim.Pressure) {
	p[sim.SharedCPU], p[sim.LLC], p[sim.MemoryBandwidth] = f.CPU, f.LLC, f.MemoryBandwidth
	p[sim.Disk], p[sim.Network] = f.Disk, f.Network
	return p
}

func (o operationFile) operation(p *figures) sim.Operation {
	p.owner = fmt.Sprintf("operation %q", o.Name)
	op := sim.Operation{
		Name:       o.Name,
		Service:    o.Service,
		Work:       p.time("work", o.Work),
		Wait:       p.time("wait", o.Wait),
		Background: p.calls(o.Background),
	}
	for _, stage := range o.Stages {
		op.Stages = append(op.Stages, p.calls(stage))
	}
	return op
}

// figures parses the fields of an owner, and keeps the first error.
type figures struct {
	owner string
	err   error
}

func (p *figures) bad(field string, value any, rule string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: %s %q: it must be %s", p.owner, field, value, rule)
	}
}

func (p *figures) time(field string, f figure) time.Duration {
	if f == "" {
		return 0
	}
	d, err := time.ParseDuration(string(f))
	if err != nil || d < 0 {
		p.bad(field, f, "a time such as 2ms or 1.5s")
	}
	return d
}

// ceiling parses a limit in the API; what is left out stays 0.
func (p *figures) ceiling(f sizeFile) (c mdp.Size) {
	if f.CPU != "" {
		c.CPU = p.cpu("ceiling cpu", f.CPU)
	}
	if f.Memory != "" {
		c.Memory = p.memory("ceiling memory", f.Memory)
	}
	return c
}

// cpu parses cores, or millicores with the suffix m.
func (p *figures) cpu(field string, f figure) mdp.MilliCPU {
	number, milli := strings.CutSuffix(string(f), "m")
	n, err := strconv.ParseFloat(number, 64)
	if !milli {
		n *= 1000
	}
	if err != nil || !(n >= 0 && n <= 1e9) {
		p.bad(field, f, "cores such as 2 or 0.5, or thousandths of them such as 250m")
		return 0
	}
	return mdp.MilliCPU(math.Round(n))
}

// memory parses bytes, with an optional suffix Ki, Mi or Gi.
func (p *figures) memory(field string, f figure) mdp.Bytes {
	factor := 1.0
	number := string(f)
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if n, has := strings.CutSuffix(number, unit); has {
			number, factor = n, math.Pow(1024, float64(i+1))
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	n *= factor
	if err != nil || !(n >= 0 && n <= 1<<50) {
		p.bad(field, f, "bytes such as 65536, or with a unit such as 64Ki, 512Mi or 1Gi")
		return 0
	}
	return mdp.Bytes(n)
}

// calls parses names of operations. A share of the requests in percent can
// follow the name.
func (p *figures) calls(texts []string) []sim.Call {
	var calls []sim.Call
	for _, text := range texts {
		words := strings.Fields(text)
		c := sim.Call{Share: 1}
		switch {
		case len(words) == 1:
			c.Operation = words[0]
		case len(words) == 2 && strings.HasSuffix(words[1], "%"):
			share, err := strconv.ParseFloat(strings.TrimSuffix(words[1], "%"), 64)
			if err != nil || !(share > 0 && share <= 100) {
				p.bad("call", text, "made by a share of the requests above 0 % and at most 100 %")
			}
			c.Operation, c.Share = words[0], mdp.Ratio(share/100)
		default:
			p.bad("call", text, "the name of an operation, such as db.get, and when not all requests call it a share, such as db.get 20%")
		}
		calls = append(calls, c)
	}
	return calls
}

// Apps returns the names of the applications that are compiled in.
func Apps() []string {
	files, err := data.ReadDir("apps")
	if err != nil {
		panic(err) // the pattern of data names it
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// NamedApp returns an application that is compiled in.
func NamedApp(name string) (sim.App, error) {
	if !slices.Contains(Apps(), name) {
		return sim.App{}, fmt.Errorf("application %q: known are %s", name, strings.Join(Apps(), ", "))
	}
	file := path.Join("apps", name+".yaml")
	return Read(file, embedded(file))
}
