package workload_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// shop is an application that says everything once.
const shop = `
name: shop
slo: {percentile: 99, latency: 100ms, throughput: 5}
timeout: 2s
kinds:
  store:
    threads: 64
    memory: {base: 200Mi}
    sensitive: {llc: 0.9, disk: 1}
services:
- name: front
  procs: 4
  variation: 0.7
  parallel: 2
  serial: 0.5
  start: 1.5s
  exerts: {cpu: 0.1, memory-bandwidth: 0.02, network: 0.3}
  replicas: 3
  size: {cpu: 0.5, memory: 1Gi}
  bounds: {cpu: {max: 2}, replicas: {min: 2}}
- name: db
  kind: store
  memory: {perRequest: 65536}
operations:
- {name: front.page, service: front, work: 2ms, wait: 500us,
   stages: [[db.get, db.count 20%], [db.get 0.5%]], background: [db.log 1%]}
- {name: db.get, service: db, work: 300us}
- {name: db.count, service: db, work: 1ms}
- {name: db.log, service: db, work: 100us}
endpoints:
- {operation: front.page, share: 3}
- {operation: db.count, share: 1}
`

func TestReadAnApplication(t *testing.T) {
	got, err := workload.Read("shop.yaml", strings.NewReader(shop))
	if err != nil {
		t.Fatal(err)
	}
	bounds := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 10},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 10, Max: 16000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 8 << 30},
	}
	front := bounds
	front.CPU.Max, front.Replicas.Min = 2000, 2
	var exerts, sensitive sim.Pressure
	exerts[sim.SharedCPU], exerts[sim.MemoryBandwidth], exerts[sim.Network] = 0.1, 0.02, 0.3
	sensitive[sim.LLC], sensitive[sim.Disk] = 0.9, 1
	want := sim.App{
		Name: "shop", SLO: mdp.SLO{
			Percentile: 99, Latency: 100 * time.Millisecond, Throughput: 5, Lost: 0.005, Background: 0.99,
		}, Timeout: 2 * time.Second,
		Services: []sim.Service{
			{
				Name: "front", Threads: 256, Procs: 4, Variation: 0.7, Parallel: 2, Serial: 0.5, Start: 1500 * time.Millisecond,
				Memory: sim.Memory{Base: 64 * mdp.MiB, PerRequest: 128 << 10}, Exerts: exerts,
				Replicas: 3, Size: mdp.Size{CPU: 500, Memory: 1 << 30}, Bounds: front,
			},
			{
				Name: "db", Threads: 64, Procs: 16, Variation: 0.5, Parallel: 1,
				Memory: sim.Memory{Base: 200 * mdp.MiB, PerRequest: 65536}, Sensitive: sensitive,
				Replicas: 1, Size: mdp.Size{CPU: 1000, Memory: 512 * mdp.MiB}, Bounds: bounds,
			},
		},
		Operations: []sim.Operation{
			{
				Name: "front.page", Service: "front", Work: 2 * time.Millisecond, Wait: 500 * time.Microsecond,
				Stages: [][]sim.Call{
					{{Operation: "db.get", Share: 1}, {Operation: "db.count", Share: 0.2}},
					{{Operation: "db.get", Share: 0.005}},
				},
				Background: []sim.Call{{Operation: "db.log", Share: 0.01}},
			},
			{Name: "db.get", Service: "db", Work: 300 * time.Microsecond},
			{Name: "db.count", Service: "db", Work: time.Millisecond},
			{Name: "db.log", Service: "db", Work: 100 * time.Microsecond},
		},
		Endpoints: []sim.Endpoint{{Operation: "front.page", Share: 3}, {Operation: "db.count", Share: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestReadRejectsInvalidApplications(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"no text":                   {shop, "", `the application has no name`},
		"no name":                   {"name: shop", "", `the application has no name`},
		"no YAML":                   {shop, "a: [", `yaml: line 1: did not find expected node content`},
		"another document":          {shop, "3", `it must not be a number`},
		"a field that is not known": {"timeout: 2s", "time-out: 2s", `unknown field "time-out"`},
		"a field twice": {
			"timeout: 2s", "timeout: 2s\ntimeout: 3s",
			`yaml: unmarshal errors:` + "\n  line 5: key \"timeout\" already set in map",
		},
		"a service's unknown field": {"procs: 4", "processes: 4", `service 1: "front": unknown field "processes"`},
		"a kind's unknown field":    {"    threads: 64", "    thread: 64", `kind "store": unknown field "thread"`},
		"an unknown kind":           {"kind: store", "kind: stores", `service 2: "db": there is no kind "stores"`},
		"an unknown resource":       {"llc: 0.9", "l3: 0.9", `kind "store": unknown field "l3"`},
		"a service without fields": {
			"- name: db\n  kind: store\n  memory: {perRequest: 65536}", "- db",
			`service 2: it must have fields`,
		},
		"a word for a number":          {"procs: 4", "procs: four", `service 1: "front": procs: it must not be a string`},
		"an operation's unknown field": {"work: 300us", "cpu: 300us", `unknown field "cpu"`},
		"a service without threads": {
			"threads: 64", "threads: 0", `application "shop": service "db": threads 0: it must be at least 1`,
		},
		"a negative number": {
			"procs: 4", "procs: -4", `application "shop": service "front": procs -4: it must be at least 1`,
		},
		"work that is no time": {
			"work: 300us", "work: fast",
			`operation "db.get": work "fast": it must be a time such as 2ms or 1.5s`,
		},
		"a time without a unit": {
			"work: 300us", "work: 300", `operation "db.get": work "300": it must be a time such as 2ms or 1.5s`,
		},
		"a negative time": {
			"timeout: 2s", "timeout: -2s", `application: timeout "-2s": it must be a time such as 2ms or 1.5s`,
		},
		"no work": {
			"work: 300us", "wait: 300us",
			`application "shop": operation "db.get": work 0s: it must be above zero`,
		},
		"CPU that is no number": {
			"cpu: 0.5", "cpu: half",
			`service "front": size cpu "half": it must be cores such as 2 or 0.5, or thousandths of them such as 250m`,
		},
		"CPU that is negative": {
			"cpu: 0.5", "cpu: -1",
			`service "front": size cpu "-1": it must be cores such as 2 or 0.5, or thousandths of them such as 250m`,
		},
		"memory in another unit": {
			"memory: 1Gi", "memory: 1GB",
			`service "front": size memory "1GB": it must be bytes such as 65536, or with a unit such as 64Ki, 512Mi or 1Gi`,
		},
		"memory that is no number": {
			"{base: 200Mi}", "{base: NaN}",
			`service "db": memory base "NaN": it must be bytes such as 65536, or with a unit such as 64Ki, 512Mi or 1Gi`,
		},
		"memory that is a list": {
			"{base: 200Mi}", "{base: [1]}", `kind "store": [1]: it must be a number, with a unit or without`,
		},
		"a size below its bounds": {
			"cpu: 0.5", "cpu: 5m",
			`application "shop": service "front": size 5m/1024Mi: it must be within its bounds (cpu 10m to 2000m, memory 32Mi to 8192Mi)`,
		},
		"bounds that nothing satisfies": {
			"{max: 2}", "{max: 0.005}",
			`application "shop": service "front": cpu bounds [10m, 5m]: need 1m <= min <= max`,
		},
		"a call of nothing": {
			"[db.get, db.count 20%]", "[db.put]",
			`application "shop": operation "front.page" calls "db.put": there is no such operation`,
		},
		"a share that is no share": {
			"db.count 20%", "db.count 120%",
			`operation "front.page": call "db.count 120%": it must be made by a share of the requests above 0 % and at most 100 %`,
		},
		"a call of two": {
			"db.count 20%", "db.count db.get",
			`operation "front.page": call "db.count db.get": ` +
				`it must be the name of an operation, such as db.get, and when not all requests call it a share, such as db.get 20%`,
		},
		"an empty call": {
			"db.count 20%", `""`,
			`operation "front.page": call "": ` +
				`it must be the name of an operation, such as db.get, and when not all requests call it a share, such as db.get 20%`,
		},
		"calls in a circle": {
			"work: 1ms}", "work: 1ms, stages: [[front.page 1%]]}",
			`application "shop": its calls go in a circle: [front.page db.count front.page]`,
		},
		"an operation of no service": {
			"service: db, work: 300us", "service: cache, work: 300us",
			`application "shop": operation "db.get": there is no service "cache"`,
		},
		"an endpoint of nothing": {
			"operation: db.count", "operation: db.put",
			`application "shop": endpoint "db.put": there is no such operation`,
		},
		"a negative share": {
			"share: 3", "share: -3",
			`application "shop": endpoint "front.page": share -3: it must be above zero`,
		},
		"a service that is not asked": {
			"- name: db\n", "- name: idle\n- name: db\n",
			`application "shop": service "idle": no endpoint ever asks anything of it`,
		},
		"a percentile beyond all": {
			"percentile: 99", "percentile: 100",
			`application "shop": slo percentile 100: it must be between 0 and 100`,
		},
		"a very long file": {"name: shop", "name: shop" + strings.Repeat(" ", 1<<20), `over 1048576 bytes long`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(shop, c.from, c.to, 1)
			if text == shop {
				t.Fatal("nothing was changed")
			}
			_, err := workload.Read("shop.yaml", strings.NewReader(text))
			says(t, err, "application file shop.yaml: "+c.want)
		})
	}
}

func TestCompiledInApplicationsAreValid(t *testing.T) {
	type figures struct {
		services int
		slo      time.Duration
	}
	got := map[string]figures{}
	for _, name := range workload.Apps() {
		app, err := workload.NamedApp(name)
		if err != nil {
			t.Fatal(err)
		}
		if app.Name != name {
			t.Errorf("file %s has application %s", name, app.Name)
		}
		got[name] = figures{len(app.Services), app.SLO.Latency}
	}
	want := map[string]figures{
		"hotel-reservation": {19, 100 * time.Millisecond},
		"social-network":    {28, 200 * time.Millisecond},
		"train-ticket":      {50, time.Second},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err := workload.NamedApp("shop")
	says(t, err, `application "shop": known are hotel-reservation, social-network, train-ticket`)
}

func FuzzReadApp(f *testing.F) {
	// Not the shipped files: mutating 15 KB finds nothing that mutating 1 KB
	// does not.
	f.Add(shop)
	f.Add("name: x\nkinds: {a: {threads: 1}}\nservices: [{name: a, kind: a}]\n" +
		"operations: [{name: o, service: a, work: 1ms}]\nendpoints: [{operation: o, share: 1}]")
	f.Fuzz(func(t *testing.T, text string) {
		app, err := workload.Read("fuzz", strings.NewReader(text))
		if err == nil && app.Check() != nil {
			t.Errorf("%q was read, and is not right: %v", text, app.Check())
		}
	})
}
