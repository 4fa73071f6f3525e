package bench

import (
	"bytes"
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

// shortCell is a small application under two minutes of pulses.
func shortCell(t *testing.T) Cell {
	t.Helper()
	trace, err := workload.Pulses(100, 3, 5, 20*time.Second, 2*time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	app, err := workload.Read("shop", strings.NewReader(`
name: shop
slo: {percentile: 99, latency: 100ms}
services:
- {name: front, size: {cpu: 8, memory: 512Mi}}
- {name: back, size: {cpu: 8, memory: 512Mi}}
operations:
- {name: page, service: front, work: 5ms, stages: [[get]]}
- {name: get, service: back, work: 3ms}
endpoints:
- {operation: page, share: 1}
`))
	if err != nil {
		t.Fatal(err)
	}
	cell, err := Single("shop", app, trace, 1)
	if err != nil {
		t.Fatal(err)
	}
	return cell
}

// The CPU time that the world uses is the dumb twin of the oracle's graph.
func TestTheOracleKnowsTheDemandOfEveryService(t *testing.T) {
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{1, 5, 9} { // constant
		cell := cells[i]
		for k := range cell.App.Services { // without interference
			cell.App.Services[k].Sensitive = sim.Pressure{}
		}
		w, err := sim.New(sim.Config{App: cell.App, Cluster: workload.Machines, Load: cell.Trace, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		w.Advance(time.Minute)
		before := w.Totals().Used
		w.Advance(2 * time.Minute)
		used := (w.Totals().Used - before) / 120
		known := 0.0
		o := newOracle(cell.App, cell.Trace, 5*time.Minute)
		for _, s := range cell.App.Services {
			known += o.services[s.Name].mean[100] * float64(s.Replicas)
		}
		if math.Abs(known/used-1) > 0.02 {
			t.Errorf("%s: the oracle expects %.3f cores, the world uses %.3f", cell.Application, known, used)
		}
	}
}

func TestTheOracleSeesASpikeComeLateToWhatIsBehind(t *testing.T) {
	app := sim.App{
		Services: []sim.Service{{Name: "front", Replicas: 2, Variation: 1}, {Name: "back", Replicas: 1, Variation: 1}},
		Operations: []sim.Operation{
			{
				Name: "page", Service: "front", Work: 100 * time.Millisecond, Wait: 200 * time.Millisecond,
				Stages: [][]sim.Call{{{Operation: "get", Share: 0.5}}},
			},
			{Name: "get", Service: "back", Work: 10 * time.Millisecond},
		},
		Endpoints: []sim.Endpoint{{Operation: "page", Share: 3}},
	}
	load := workload.Trace{Step: time.Second, Rates: []float64{10, 10, 110, 10, 10}}
	o := newOracle(app, load, 5*time.Second)
	front, back := o.services["front"], o.services["back"]
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"a replica of the front before the spike", front.mean[1], 0.5},
		{"a replica of the front in it", front.mean[2], 5.5},
		{"the service behind before it", back.mean[1], 0.05},
		{"the service behind in it, three slices late", back.mean[2], 0.05 + 0.7*0.5},
		{"the service behind after it", back.mean[3], 0.05 + 0.3*0.5},
		{"its highest slice after it", back.peak[3], 0.55},
		{"scatter of the front: the root of 2 x 100 ms / 100 ms", front.scatter, math.Sqrt2},
	} {
		if math.Abs(c.got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestTheOracleDoesNotLookBeyondItsForesight(t *testing.T) {
	cell := shortCell(t)
	other := cell.Trace
	other.Rates = append([]float64(nil), other.Rates...)
	for i := 70; i < len(other.Rates); i++ {
		other.Rates[i] *= 3
	}
	m := Margins{Z: 1, Ahead: int(Foresight / time.Second), Backlog: 1}
	for _, s := range cell.App.Services {
		var limits [2][]mdp.MilliCPU
		for k, trace := range []workload.Trace{cell.Trace, other} {
			o := newOracle(cell.App, trace, 2*time.Minute)
			p := &seer{demand: o.services[s.Name], margins: m, z: m.Z}
			for now := range 61 {
				a, err := p.Decide(mdp.State{At: sim.Epoch.Add(time.Duration(now) * time.Second)})
				if err != nil {
					t.Fatal(err)
				}
				limits[k] = append(limits[k], a.Limit.CPU)
			}
		}
		if !reflect.DeepEqual(limits[0], limits[1]) {
			t.Errorf("%s: arrivals from second 70 on change a limit before second 61", s.Name)
		}
	}
}

func TestAFloorHoldsIsDeterministicAndBelowSafeLimits(t *testing.T) {
	cell := shortCell(t)
	o := FloorOptions{Seeds: 2, Runs: 14}
	a, err := FindFloor(t.Context(), cell, o)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := FindFloor(t.Context(), cell, o); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("two searches differ: %v\n%+v\n%+v", err, a, b)
	}
	c, err := Named("static")
	if err != nil {
		t.Fatal(err)
	}
	static, err := Run(t.Context(), cell, c, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !a.Holds || a.Used <= 0 || a.Cores <= a.Used || a.Cores >= static.Cores/2 || a.Runs > o.Runs+8*o.Seeds {
		t.Errorf("floor %+v; static limits take %.1f cores", a, static.Cores)
	}
	again, err := Run(t.Context(), cell, newOracle(cell.App, sequence{warm: cell.Warm, trace: cell.Trace},
		lead+cell.Trace.Length()).choice(a.Margins), Options{Seed: 2})
	if err != nil || again.Violates || again.P99MS > a.P99MS {
		t.Errorf("the margins that were found give %+v, %v", again, err)
	}
	t.Logf("floor %.2f, used %.2f, static %.2f, %d runs", a.Cores, a.Used, static.Cores, a.Runs)
}

// A floor that is built in is one of the present simulator: its margins still keep
// the promises with its cores.
func TestShippedFloorsAreOfThisSimulator(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates several hours")
	}
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	floors, err := ShippedFloors(cells)
	if err != nil || len(floors) != len(cells) {
		t.Fatalf("%d floors of %d cells, %v", len(floors), len(cells), err)
	}
	for i, c := range cells {
		if c.Trace.Name != "constant" {
			continue
		}
		f := floors[slices.IndexFunc(floors, func(f Floor) bool { return f.App == c.Application && f.Trace == c.Trace.Name })]
		o := newOracle(c.App, sequence{warm: c.Warm, trace: c.Trace}, lead+c.Trace.Length())
		score, err := Run(t.Context(), cells[i], o.choice(f.Margins), Options{Seed: 1})
		if err != nil || score.Violates || math.Abs(score.Cores/f.Searched-1) > 0.01 {
			t.Errorf("%s under %s: %.2f cores, violates %v, %v; built in are %.2f that hold: run aware bench anchors --floor again",
				f.App, f.Trace, score.Cores, score.Violates, err, f.Searched)
		}
	}
}

func TestMarksPutEveryRowBetweenTheBestRuleAndTheFloor(t *testing.T) {
	rows := func() []Row {
		return []Row{
			{App: "a", Trace: "t", Policy: "captain", Cores: 10, Used: 5},
			{App: "a", Trace: "t", Policy: "static", Cores: 18, Used: 6},
			{App: "a", Trace: "t", Policy: "k8s-cpu", Cores: 7, Used: 4, Violates: true},
			{App: "a", Trace: "t", Policy: "mine", Cores: 9},
			{App: "b", Trace: "t", Policy: "captain", Cores: 1},
		}
	}
	for _, c := range []struct {
		name   string
		found  Floor
		cores  float64
		isRule bool
		shares []float64 // of the first four rows; none for the one that violates
	}{
		{"below the best rule", Floor{Searched: 8, Holds: true}, 8, false, []float64{0, -4, math.NaN(), 0.5}},
		{"above it", Floor{Searched: 11, Holds: true}, 10, true, nil},
		{"nothing holds", Floor{Searched: 8}, 10, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.found
			f.App, f.Trace, f.Cores, f.Used = "a", "t", f.Searched, 5.5
			floors, rows := []Floor{f}, rows()
			rows[3].Used = 5.2
			Marks(rows, floors)
			if f = floors[0]; f.Cores != c.cores || f.IsRule != c.isRule || f.Rule != "captain" || f.Best != 10 || f.Used != 5 {
				t.Errorf("floor %+v", f)
			}
			for i, r := range rows[:4] {
				known := c.shares != nil && !math.IsNaN(c.shares[i])
				if r.FloorCores != c.cores || r.FloorIsRule != c.isRule || (r.ToFloor != nil) != known ||
					r.ToFloor != nil && math.Abs(*r.ToFloor-c.shares[i]) > 1e-9 {
					t.Errorf("%s: floor %v, rule %v, share %v", r.Policy, r.FloorCores, r.FloorIsRule, r.ToFloor)
				}
			}
			if rows[4].FloorCores != 0 || rows[4].ToFloor != nil {
				t.Errorf("a row of another cell is marked: %+v", rows[4])
			}
			var out bytes.Buffer
			if err := PrintMarks(&out, rows, floors); err != nil || !strings.Contains(out.String(), "best rule") {
				t.Errorf("%v: %s", err, out.String())
			}
		})
	}
}

func TestSpikyCellsAreTheFourColumnsOfEveryApplication(t *testing.T) {
	cells, err := Spiky()
	if err != nil || len(cells) != 12 {
		t.Fatalf("%d cells, want 12: %v", len(cells), err)
	}
	for i, c := range cells {
		times, _ := workload.Multiple(c.Application)
		named, err := workload.Named(workload.Spiky()[i/3])
		if err != nil || c.Trace.Name != named.Name || math.Abs(c.Trace.Mean()/named.Mean()/times-1) > 1e-9 {
			t.Errorf("%s under %s: mean %.1f", c.Application, c.Trace.Name, c.Trace.Mean())
		}
	}
}

// tunedCells is the twelve cells and the settings that aware ships.
func tunedCells(t *testing.T) ([]Cell, TunedSettings) {
	t.Helper()
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	tuned, err := Shipped()
	if err != nil {
		t.Fatal(err)
	}
	return cells, tuned
}

func TestScarceNodesHaveAFifthMoreThanTheStaticPeak(t *testing.T) {
	cells, tuned := tunedCells(t)
	for _, cell := range cells {
		scarce, err := Scarce(t.Context(), cell, tuned)
		if err != nil {
			t.Fatal(err)
		}
		one, ok := tuned.For(cell, "static")
		if !ok {
			t.Fatal("static limits are not tuned")
		}
		total, cpu := mdp.MilliCPU(0), mdp.MilliCPU(0)
		for _, s := range cell.App.Services {
			total += staticCPU(s, one.Choice) * mdp.MilliCPU(s.Replicas)
		}
		for _, n := range scarce.Cluster.Nodes {
			cpu += n.Size.CPU
		}
		if math.Abs(float64(cpu)/float64(total)-Scarcity) > 0.001 || scarce.Trace.Name != cell.Trace.Name+" (scarce)" {
			t.Errorf("%s: %v on %d nodes, static limits take %v", scarce.Trace.Name, cpu, len(scarce.Cluster.Nodes), total)
		}
		if len(cell.Cluster.Nodes) != 0 {
			t.Error("the cell itself is changed")
		}
	}
}

func TestScarceCellsRun(t *testing.T) {
	cells, tuned := tunedCells(t)
	scarce, err := Scarce(t.Context(), cells[8], tuned)
	if err != nil {
		t.Fatal(err)
	}
	one, _ := tuned.For(cells[8], "static")
	o := newOracle(scarce.App, sequence{warm: scarce.Warm, trace: scarce.Trace}, time.Hour)
	for _, c := range []Choice{one.Choice, o.choice(Margins{Z: 2, Ahead: 1, Backlog: 1})} {
		score, err := Run(t.Context(), scarce, c, Options{Seed: 1, Length: 5 * time.Minute})
		if err != nil || score.Violates {
			t.Errorf("%s: %+v, %v", c.Policy, score, err)
		}
		t.Logf("%s on %d scarce nodes: %.1f cores, p99 %.0f ms", c.Policy, len(scarce.Cluster.Nodes), score.Cores, score.P99MS)
	}
}
