package workload_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// composed fails the test when the text is no composition.
func composed(t testing.TB, text string) workload.Composition {
	t.Helper()
	all, err := workload.ReadCompositions("test", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestSegmentsAreWithinTheMeasuredRange(t *testing.T) {
	var names []string
	for _, s := range workload.Segments() {
		names = append(names, s.Name)
		found, err := workload.FindSegment(s.Name)
		if err != nil || !reflect.DeepEqual(found, s) {
			t.Errorf("%s is found as %+v, %v", s.Name, found, err)
		}
		if s.Work <= 0 || s.Wait < 0 || s.Variation <= 0 || s.Payload.Mean() <= 0 || s.Does == "" {
			t.Errorf("%+v", s)
		}
		// Design 30: last-level cache 1.3 to 2.9 times as slow, memory
		// bandwidth 1.0 to 3.0, same-core CPU 1.0 to 2.0.
		if s.Name == "sleep" {
			continue
		}
		for _, r := range []struct {
			of          sim.Shared
			least, most float64
		}{{sim.LLC, 0.3, 1.9}, {sim.MemoryBandwidth, 0, 2}, {sim.SharedCPU, 0, 1}} {
			if v := s.Sensitive[r.of]; v < r.least || v > r.most {
				t.Errorf("%s: sensitive to %v by %v, measured were %v to %v", s.Name, r.of, v, r.least, r.most)
			}
		}
	}
	// The names of test/apps/segment, which the learner does not import.
	want := strings.Fields("float matmul inference text json page compress decompress " +
		"resize rotate jpeg table read write stream sleep")
	if !slices.Equal(names, want) {
		t.Errorf("segments %v, want %v", names, want)
	}
	_, err := workload.FindSegment("sort")
	says(t, err, `segment "sort": known are `+strings.Join(want, ", "))
}

func TestReadCompositions(t *testing.T) {
	const known = "known are float, matmul, inference, text, json, page, compress, decompress, " +
		"resize, rotate, jpeg, table, read, write, stream, sleep"
	got, err := workload.ReadCompositions("t", strings.NewReader(
		"# theirs\nreadFile,imageCompress,imageCompress\n\njson2yaml, sleep\nstream\n"))
	var names []string
	for _, c := range got {
		names = append(names, c.String())
	}
	if want := []string{"read,jpeg,jpeg", "json,sleep", "stream"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v, %v, want %v", names, err, want)
	}
	for name, c := range map[string]struct{ text, want string }{
		"an empty file": {"\n# x\n", `compositions t.txt: there are none in it`},
		"an unknown segment": {
			"sleep\nmatMul,sort\n",
			`compositions t.txt, line 2: segment "sort": ` + known,
		},
		"a comma too many": {
			"sleep,\n",
			`compositions t.txt, line 1: segment "": ` + known,
		},
		"many segments": {strings.Repeat("sleep,", 40) + "sleep", `compositions t.txt, line 1: 41 segments: at most 32`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := workload.ReadCompositions("t.txt", strings.NewReader(c.text))
			says(t, err, c.want)
		})
	}
}

// AWARE, dissertation §5.5.1: 1,000 unique applications, 800 of which are
// pretrained on.
func TestThousandPublishedApplicationsAreValid(t *testing.T) {
	all := workload.Compositions()
	lengths, names := map[int]int{}, map[string]bool{}
	for _, c := range all {
		lengths[len(c)]++
		names[c.String()] = true
		if _, err := c.App(20); err != nil {
			t.Error(err)
		}
	}
	if len(all) != 1000 || len(names) != 1000 || !reflect.DeepEqual(lengths, map[int]int{1: 11, 2: 121, 3: 868}) {
		t.Errorf("%d applications, %d of them different, numbers of segments %v", len(all), len(names), lengths)
	}
	pretrain, unseen := workload.Split(1)
	both := slices.Concat(pretrain, unseen)
	slices.Sort(both)
	if len(pretrain) != 800 || len(unseen) != 200 || len(slices.Compact(both)) != 1000 || both[0] != 0 || both[999] != 999 {
		t.Errorf("%d to pretrain on, %d unseen, %d together", len(pretrain), len(unseen), len(both))
	}
	again, _ := workload.Split(1)
	other, _ := workload.Split(2)
	if !slices.Equal(pretrain, again) || slices.Equal(pretrain, other) {
		t.Error("a split is its seed's, and no other's")
	}
}

func TestSameSeedGivesSameApplications(t *testing.T) {
	one, err := workload.Generate(7, 1000)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := workload.Generate(7, 1000)
	other, _ := workload.Generate(8, 1000)
	if !reflect.DeepEqual(one, again) || reflect.DeepEqual(one, other) {
		t.Error("applications are their seed's, and no other's")
	}
	names, segments := map[string]bool{}, map[string]int{}
	for _, c := range one {
		names[c.String()] = true
		for _, s := range c {
			segments[s.Name]++
		}
		if _, err := c.App(20); err != nil {
			t.Error(err)
		}
	}
	if len(names) != 1000 || len(segments) != 16 {
		t.Errorf("%d different applications of %d segments", len(names), len(segments))
	}
	all, err := workload.Generate(1, 16+16*16+16*16*16)
	if err != nil || len(all) != 4368 {
		t.Errorf("%d of all there are, %v", len(all), err)
	}
	for n, want := range map[int]string{
		0:    "generating 0 applications: there are 1 to 4368",
		4369: "generating 4369 applications: there are 1 to 4368",
	} {
		_, err := workload.Generate(1, n)
		says(t, err, want)
	}
}

func TestCompositionIsAGraphOfItsSegments(t *testing.T) {
	c := composed(t, "json,inference,json,read")
	app, err := c.App(100)
	if err != nil {
		t.Fatal(err)
	}
	// 0.1 ms to take a request in each of the five services; 2 of JSON twice, 3 of
	// a model, 0.8 of reading.
	if app.Name != "json,inference,json,read" || c.Work() != 8300*time.Microsecond {
		t.Errorf("%s: work %v", app.Name, c.Work())
	}
	var names []string
	var work []time.Duration
	for i, s := range app.Services {
		if app.Operations[i].Service != s.Name {
			t.Errorf("operation %d is of %s, and its service is %s", i, app.Operations[i].Service, s.Name)
		}
		names = append(names, s.Name)
		work = append(work, app.Operations[i].Work)
	}
	if !slices.Equal(names, []string{"app", "json", "inference", "json-2", "read"}) {
		t.Errorf("services %v", names)
	}
	if want := []time.Duration{100, 2100, 3100, 2100, 900}; !slices.EqualFunc(work, want,
		func(a, b time.Duration) bool { return a == b*time.Microsecond }) {
		t.Errorf("work %v, want %v µs", work, want)
	}
	if n := len(app.Operations[0].Stages); n != 4 {
		t.Errorf("the entry calls in %d stages, want one after the other", n)
	}
	for i, stage := range app.Operations[0].Stages {
		if len(stage) != 1 || stage[0].Operation != names[i+1]+".run" || stage[0].Share != 1 {
			t.Errorf("stage %d of the entry: %v", i, stage)
		}
	}
	json, model, read := app.Services[1], app.Services[2], app.Services[4]
	// Documents of 250, 500 and 1,000 bytes vary by 0.535, the work beside that by
	// 0.3: by 0.634 together. The handling by 0.1.
	if want := math.Hypot(2*0.634, 0.1*0.1) / 2.1; math.Abs(json.Variation-want) > 0.001 {
		t.Errorf("variation %v, want %v", json.Variation, want)
	}
	// Serial are the handling and 6 % of the model's 3 ms.
	if model.Parallel != 4 || math.Abs(float64(model.Serial)-(0.1+0.06*3)/3.1) > 1e-9 || json.Parallel != 1 {
		t.Errorf("parallel %d and %d, serial %v", model.Parallel, json.Parallel, model.Serial)
	}
	if want := 3 * 1.73 / 3.1; math.Abs(model.Sensitive[sim.LLC]-want) > 1e-9 {
		t.Errorf("sensitive to the cache by %v, want %v", model.Sensitive[sim.LLC], want)
	}
	if want := (sim.Memory{Base: 54 * mdp.MiB, PerRequest: 256 << 10}); model.Memory != want {
		t.Errorf("memory %v, want %v", model.Memory, want)
	}
	if app.Operations[4].Wait != 8*time.Millisecond || read.Exerts[sim.Network] == 0 || json.Exerts[sim.Network] != 0 {
		t.Errorf("%s waits for %v", read.Name, app.Operations[4].Wait)
	}
	// 100 requests/s of 3.1 ms need 0.31 cores in the mean, and three times that is
	// 0.93. Those of JSON are below 0.7.
	if model.Size.CPU != 1000 || json.Size.CPU != 700 || app.Services[0].Size.CPU != 500 || model.Replicas != 1 {
		t.Errorf("sizes %v, %v and %v", model.Size, json.Size, app.Services[0].Size)
	}
	if p99 := c.Unloaded(99); app.SLO.Latency < 3*p99 || app.SLO.Latency > 3*p99+5*time.Millisecond ||
		app.SLO.Latency%(5*time.Millisecond) != 0 {
		t.Errorf("SLO %v, unloaded %v", app.SLO, p99)
	}
	many, err := c.App(4000)
	if err != nil || many.Services[2].Replicas != 5 || many.Services[2].Size.CPU != 7500 {
		t.Errorf("37.2 cores in %d replicas of %v, %v", many.Services[2].Replicas, many.Services[2].Size, err)
	}
	_, err = c.App(0)
	says(t, err, `application json,inference,json,read: load 0: it must be above 0 and at most 1e+06 requests per second`)
	_, err = c.App(10000)
	says(t, err, `application json,inference,json,read: service inference: 10000 requests per second of 3.1ms of work: `+
		`12 replicas of 8000m at the beginning, and its bounds allow 10`)
	_, err = workload.Composition{}.App(1)
	says(t, err, `application : 0 segments: there must be 1 to 32`)
}

// A graph's unloaded p99 is what the world shows when a request has all CPUs.
func TestUnloadedIsTheLatencyOfAnIdleWorld(t *testing.T) {
	for _, name := range []string{"json,read,inference", "compress", "sleep,float,matmul"} {
		c := composed(t, name)
		app, err := c.App(20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range app.Services {
			app.Services[i].Size.CPU = 8000
			app.Services[i].Sensitive = sim.Pressure{}
		}
		w := newWorld(t, app, sim.Steady(5), sim.Requests)
		m := w.Snapshot()
		w.Advance(20 * time.Minute)
		p99, ok := w.Overall(m, 99)
		if want := c.Unloaded(99); !ok || math.Abs(p99.Seconds()/want.Seconds()-1) > 0.1 {
			t.Errorf("%s: p99 %v in an idle world, unloaded %v", name, p99, want)
		}
	}
}

// AWARE §2.3, dissertation Insight 5.2.
func TestTheSevenUpdates(t *testing.T) {
	updates := workload.Updates()
	if len(updates) != 7 {
		t.Fatalf("%d updates", len(updates))
	}
	grows := map[string]float64{"io": 3, "table": 10, "float": 20, "image": 16, "text": 10000.0 / 3 / (1750.0 / 3), "ml": 27}
	touched := map[string]string{}
	for _, u := range updates {
		for _, s := range workload.Segments() {
			before := workload.Composition{s}
			after, ok := u.Apply(before)
			if !ok {
				if !reflect.DeepEqual(before, after) {
					t.Errorf("%s does not touch %s, and changes it", u.Name, s.Name)
				}
				continue
			}
			touched[s.Name] = u.Name
			if got := float64(after[0].Work) / float64(s.Work); math.Abs(got-grows[u.Name]) > 1e-3 {
				t.Errorf("%s: the work of %s grows %v times, want %v", u.Name, s.Name, got, grows[u.Name])
			}
			if got := float64(after[0].Memory.PerRequest) / float64(s.Memory.PerRequest); math.Abs(got-grows[u.Name]) > 1e-3 {
				t.Errorf("%s: the memory of %s grows %v times", u.Name, s.Name, got)
			}
			if before[0].Work != s.Work {
				t.Errorf("%s changed the application that it was given", u.Name)
			}
			if _, err := after.App(20); err != nil {
				t.Error(err)
			}
			if twice, ok := u.Apply(after); ok {
				t.Errorf("%s updates %s twice: %v", u.Name, s.Name, twice)
			}
		}
	}
	want := map[string]string{
		"read": "io", "write": "io", "stream": "io", "compress": "io", "decompress": "io", "table": "table", "float": "float",
		"resize": "image", "rotate": "image", "jpeg": "image", "text": "text", "json": "text", "matmul": "ml", "inference": "ml",
	}
	if !reflect.DeepEqual(touched, want) {
		t.Errorf("touched are %v, want %v", touched, want)
	}
	if c, ok := updates[6].Apply(composed(t, "float")); ok || updates[6].Name != "load" {
		t.Errorf("a change of load changes an application: %v", c)
	}
}

func FuzzReadCompositions(f *testing.F) {
	for _, text := range []string{"readFile,imageCompress\n", "sleep", ",", "# x\n\nfloat , json", "float;json"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := workload.ReadCompositions("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, c := range all {
			if again := composed(t, c.String()); !reflect.DeepEqual(again, c) {
				t.Errorf("%v reads as %v", c, again)
			}
			if _, err := c.App(1); err != nil {
				t.Error(err)
			}
		}
	})
}
