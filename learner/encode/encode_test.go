package encode_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
)

var place = encode.Place{
	Bounds: mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 8},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 4000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 1024 * mdp.MiB},
	},
	SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond},
}

func encoder(t testing.TB, f encode.Form) *encode.Encoder {
	t.Helper()
	e, err := encode.New(f, place)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What knobs set is on the scale of a box's actions: the bounds are -1 and 1, and twice as much is the same step for a small
// workload and for a large one. Of a usage of zero something can be said, too.
func TestAFactorIsTheSameStepEverywhere(t *testing.T) {
	e := encoder(t, encode.Box(mdp.LimitKnobs))
	obs := make([]float64, e.Form().Dim())
	at := func(s mdp.State, one mdp.Signal) float64 {
		t.Helper()
		s.Observed = mdp.SetOf(one)
		if err := e.Observe(s, obs); err != nil {
			t.Fatal(err)
		}
		i := 0
		for before := range mdp.All.Signals() {
			if before == one {
				break
			}
			i++
		}
		if obs[2*i+1] != 1 {
			t.Fatalf("%v is not observed in %v", one, obs)
		}
		return obs[2*i]
	}
	cores := func(m mdp.MilliCPU) float64 { return at(mdp.State{Usage: mdp.Size{CPU: m}}, mdp.CPUUsage) }
	memory := func(b mdp.Bytes) float64 { return at(mdp.State{Limit: mdp.Size{Memory: b}}, mdp.MemoryLimit) }
	replicas := func(n int) float64 { return at(mdp.State{Replicas: n}, mdp.Replicas) }
	for what, ends := range map[string][2]float64{
		"cores": {cores(50), cores(4000)}, "memory": {memory(32 * mdp.MiB), memory(1024 * mdp.MiB)},
		"replicas": {replicas(1), replicas(8)},
	} {
		if math.Abs(ends[0]+1) > 1e-9 || math.Abs(ends[1]-1) > 1e-9 {
			t.Errorf("the bounds of %s are %v", what, ends)
		}
	}
	for _, steps := range [][2]float64{
		{cores(200) - cores(100), cores(4000) - cores(2000)},
		{memory(128*mdp.MiB) - memory(64*mdp.MiB), memory(1024*mdp.MiB) - memory(512*mdp.MiB)},
	} {
		if math.Abs(steps[0]/steps[1]-1) > 0.05 {
			t.Errorf("twice as much is %v for a small limit, and %v for a large one", steps[0], steps[1])
		}
	}
	rate := func(r mdp.Rate) float64 { return at(mdp.State{Arrivals: r}, mdp.Arrivals) }
	if few, many := rate(20)-rate(5), rate(2000)-rate(500); few < 0.3 || few > many {
		t.Errorf("four times as many requests are %v for few, and %v for many", few, many)
	}
	if none := cores(0); !(none < cores(5) && none > -4) {
		t.Errorf("no usage is %v, 5m are %v", none, cores(5))
	}
	box := make([]float64, 3)
	if err := e.ToBox(mdp.State{}, mdp.Action{}.WithReplicas(1).WithCPU(700).WithMemory(32*mdp.MiB), box); err != nil {
		t.Fatal(err)
	}
	if math.Abs(box[1]-cores(700)) > 0.03 {
		t.Errorf("700m are %v in an action, and %v in a state", box[1], cores(700))
	}
}

// Latency is told against the SLO, and so are requests where it is of them; without an SLO on a scale of their own.
func TestLatencyAndRequestsAreToldAgainstTheSLO(t *testing.T) {
	latency, throughput := place, place
	throughput.SLO = mdp.SLO{Throughput: 40}
	for _, c := range []struct {
		place encode.Place
		one   mdp.Signal
		s     mdp.State
		want  float64
	}{
		{latency, mdp.Latency, mdp.State{Latency: 100 * time.Millisecond}, 1},
		{latency, mdp.Latency, mdp.State{Latency: 300 * time.Millisecond}, 2},
		{latency, mdp.Arrivals, mdp.State{Arrivals: 31}, 1},
		{throughput, mdp.Latency, mdp.State{Latency: 300 * time.Millisecond}, 2}, // of a tenth of a second
		{throughput, mdp.Arrivals, mdp.State{Arrivals: 40}, 1},
		{throughput, mdp.Throughput, mdp.State{Throughput: 120}, 2},
		{latency, mdp.Throttled, mdp.State{Throttled: 0.25}, 0.25},
	} {
		e, err := encode.New(encode.Box(mdp.LimitKnobs), c.place)
		if err != nil {
			t.Fatal(err)
		}
		obs := make([]float64, e.Form().Dim())
		c.s.Observed = mdp.SetOf(c.one)
		if err := e.Observe(c.s, obs); err != nil {
			t.Fatal(err)
		}
		i := 2 * slices.Index(slices.Collect(mdp.All.Signals()), c.one)
		if math.Abs(obs[i]-c.want) > 1e-9 {
			t.Errorf("%v of %v with %v: %v, want %v", c.one, c.s, c.place.SLO, obs[i], c.want)
		}
	}
}

// Bounds that nothing satisfies are refused, and one value is room enough: a box has one number for it.
func TestBoundsThatNothingSatisfiesAreRefused(t *testing.T) {
	for k := range mdp.LimitKnobs.Signals() {
		for _, r := range []mdp.Range[int64]{{Min: mdp.KnobLeast(k) - 1, Max: 8}, {Min: 8, Max: 7}, {Min: 0, Max: 0}} {
			bad := place
			bad.Bounds = bad.Bounds.WithKnob(k, r)
			_, err := encode.New(encode.Box(mdp.LimitKnobs), bad)
			if err == nil || !strings.Contains(err.Error(), "bounds of "+k.String()) {
				t.Errorf("%v in %v: %v", k, r, err)
			}
		}
	}
	fixed := place
	fixed.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 400, Max: 400}
	e, err := encode.New(encode.Box(mdp.SetOf(mdp.CPULimit)), fixed)
	if err != nil {
		t.Fatal(err)
	}
	x := []float64{7}
	if err := e.ToBox(mdp.State{}, mdp.Action{}.WithCPU(400), x); err != nil || x[0] != 0 {
		t.Errorf("the only value is %v, %v", x, err)
	}
	if a, err := e.FromBox([]float64{1}); err != nil || a != (mdp.Action{}).WithCPU(400) {
		t.Errorf("%v, %v", a, err)
	}
}

// What has another shape than the form is refused, and nothing of it is read.
func TestAnotherShapeIsRefused(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	n, dim := e.Form().NumActions(), e.Form().Dim()
	for what, err := range map[string]error{
		"a state that is too long":  e.Observe(mdp.State{}, make([]float64, dim+1)),
		"numbers that are too many": second(e.State(make([]float64, dim+1))),
		"a choice below the first":  second(e.Choice(mdp.State{}, -1)),
		"a choice after the last":   second(e.Choice(mdp.State{}, n)),
		"a box that is too long":    second(e.FromBox(make([]float64, 4))),
		"an action as a short box":  e.ToBox(mdp.State{}, mdp.Action{}, make([]float64, 2)),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a mask that is too long was taken")
		}
	}()
	e.Legal(mdp.State{}, make([]bool, n+1))
}

func second[T any](_ T, err error) error { return err }

// random is a State with a random part observed; what was not observed is garbage.
func random(r *rand.Rand) mdp.State {
	s := mdp.State{Observed: mdp.All}
	for one := range mdp.Signals() {
		switch one.Unit() {
		case mdp.ReplicaCount:
			one.Set(&s, float64(1+r.IntN(8)))
		case mdp.Millicores:
			one.Set(&s, float64(50+r.IntN(3950)))
		case mdp.ByteCount:
			one.Set(&s, float64((32+r.IntN(992))<<20))
		case mdp.Kills:
			one.Set(&s, float64(r.IntN(4)))
		default:
			one.Set(&s, math.Round(1e6*r.ExpFloat64())/1e6)
		}
	}
	s.Observed = mdp.Set(r.Uint32()) & mdp.All
	return s
}

// With a span the same share of what a replica may have is the same number, however far down its owner lets it go, and however
// much it is. What is legal still ends at the owner's bounds.
func TestASpanDoesNotDependOnTheLowerBound(t *testing.T) {
	f := encode.Discrete(mdp.LimitKnobs)
	f.Span = true
	seen := func(least, most mdp.MilliCPU, half bool) []float64 {
		t.Helper()
		p := place
		p.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: least, Max: most}
		p.Bounds.Memory = mdp.Range[mdp.Bytes]{Min: mdp.Bytes(least) * mdp.MiB, Max: mdp.Bytes(most) * mdp.MiB}
		e, err := encode.New(f, p)
		if err != nil {
			t.Fatal(err)
		}
		s := mdp.State{
			Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage),
			Limit:    mdp.Size{CPU: most, Memory: mdp.Bytes(most) * mdp.MiB}, Usage: mdp.Size{CPU: most / 160},
		}
		if half {
			s.Limit.CPU, s.Usage.CPU = most/2, most/4
		}
		obs := make([]float64, f.Dim())
		if err := e.Observe(s, obs); err != nil {
			t.Fatal(err)
		}
		legal := make([]bool, f.NumActions())
		e.Legal(s, legal)
		for i, name := range f.Names() {
			if name == "cpu-limit x0.8" && legal[i] == (least == most) {
				t.Errorf("%s with bounds of %d and %d: legal %v", name, least, most, legal[i])
			}
		}
		return obs
	}
	whole := seen(50, 1600, false)
	if i := 2 * slices.Index(slices.Collect(f.Signals.Signals()), mdp.CPULimit); math.Abs(whole[i]-1) > 1e-9 {
		t.Errorf("all that a replica may have is %v", whole[i])
	}
	if i := 2 * slices.Index(slices.Collect(f.Signals.Signals()), mdp.CPUUsage); math.Abs(whole[i]+1) > 1e-9 {
		t.Errorf("a 160th part of it is %v", whole[i])
	}
	for _, half := range []bool{false, true} {
		first := seen(50, 1600, half)
		for _, other := range [][]float64{seen(1, 1600, half), seen(1600, 1600, half), seen(50, 16000, half)} {
			for i := range first {
				if math.Abs(first[i]-other[i]) > 1e-9 {
					t.Errorf("number %d is %v, and %v with other bounds (half: %v)", i, first[i], other[i], half)
				}
			}
		}
	}
}

func TestAStateSurvivesTheVector(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	obs := make([]float64, e.Form().Dim())
	law := func(seed uint64) bool {
		s := random(rand.New(rand.NewPCG(seed, 1)))
		if err := e.Observe(s, obs); err != nil {
			t.Log(err)
			return false
		}
		got, err := e.State(obs)
		if err != nil || got.Observed != s.Observed {
			t.Log(got, err)
			return false
		}
		for one := range s.Observed.Signals() {
			if a, b := one.Value(&s), one.Value(&got); math.Abs(a-b) > 1e-6*(1+math.Abs(a)) {
				t.Logf("%v was %v, is %v", one, a, b)
				return false
			}
		}
		return got.Mask(got.Observed) == got
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

// What was not observed looks the same whatever garbage stands in its place,
// and unlike an observed zero.
func TestUnknownIsNotZero(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	for one := range mdp.Signals() {
		s := mdp.State{Observed: mdp.All}
		zero := make([]float64, e.Form().Dim())
		if err := e.Observe(s, zero); err != nil {
			t.Fatal(err)
		}
		s.Observed = s.Observed.Without(mdp.SetOf(one))
		unknown, garbage := slices.Clone(zero), slices.Clone(zero)
		if err := e.Observe(s, unknown); err != nil {
			t.Fatal(err)
		}
		one.Set(&s, 7)
		s.Observed = s.Observed.Without(mdp.SetOf(one))
		if err := e.Observe(s, garbage); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(zero, unknown) || !slices.Equal(unknown, garbage) {
			t.Errorf("%v: zero %v, unknown %v, unknown with garbage %v", one, zero, unknown, garbage)
		}
	}
}

func TestWhatIsNotFiniteIsRefused(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	obs := slices.Repeat([]float64{5}, e.Form().Dim())
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		s := mdp.State{Observed: mdp.All, Throttled: mdp.Ratio(bad)}
		if err := e.Observe(s, obs); err == nil || !strings.Contains(err.Error(), "throttled") {
			t.Errorf("%v: %v", bad, err)
		}
		if obs[0] != 5 {
			t.Error("a refused state was written in part")
		}
		s.Observed = s.Observed.Without(mdp.SetOf(mdp.Throttled))
		if err := e.Observe(s, slices.Clone(obs)); err != nil {
			t.Errorf("garbage that was not observed: %v", err)
		}
		box := encoder(t, encode.Box(mdp.LimitKnobs))
		if _, err := box.FromBox([]float64{0, bad, 0}); err == nil {
			t.Errorf("a box with %v was taken", bad)
		}
	}
	if err := e.Observe(mdp.State{}, obs[1:]); err == nil {
		t.Error("a vector that is too short was taken")
	}
}

// Every legal choice gives a legal Action within the bounds that changes
// something, and is its own nearest choice.
func TestLegalChoicesChangeSomethingWithinTheBounds(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	legal := make([]bool, e.Form().NumActions())
	law := func(seed uint64) bool {
		s := random(rand.New(rand.NewPCG(seed, 2)))
		e.Legal(s, legal)
		if !legal[0] {
			t.Log("keeping everything is not legal")
			return false
		}
		for i, ok := range legal {
			a, err := e.Choice(s, i)
			if (err == nil) != ok {
				t.Logf("choice %d: legal %v, %v", i, ok, err)
				return false
			}
			if !ok || i == 0 {
				continue
			}
			if a.Check() != nil || place.Bounds.Clip(a) != a || a.Sets.Len() != 1 {
				t.Logf("choice %d: %v", i, a)
				return false
			}
			for k := range a.Sets.Signals() {
				if v, _ := a.Knob(k); v == s.Knob(k) {
					t.Logf("choice %d: %v changes nothing", i, a)
					return false
				}
			}
			// Two choices may come to the same value at a bound; then the first
			// of them is the nearest.
			if again, err := e.Choice(s, e.Nearest(s, a)); err != nil || again != a {
				t.Logf("choice %d, %v: the nearest is %v, %v", i, a, again, err)
				return false
			}
		}
		return true
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

func TestARulesJumpIsProjected(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	s := mdp.State{Observed: mdp.LimitKnobs, Replicas: 4, Limit: mdp.Size{CPU: 1000, Memory: 256 * mdp.MiB}}
	for _, c := range []struct {
		name string
		a    mdp.Action
		want string
	}{
		{"nothing", mdp.Action{}, "keep"},
		{"a little more is not a step", mdp.Action{}.WithCPU(1020), "keep"},
		{"three times the CPU", mdp.Action{}.WithCPU(3000), "cpu-limit x2"},
		{"a quarter of the CPU", mdp.Action{}.WithCPU(250), "cpu-limit x0.8"},
		{"the larger of two moves", mdp.Action{}.WithCPU(1050).WithReplicas(6), "replicas +2"},
		{"less memory", mdp.Action{}.WithMemory(230 * mdp.MiB), "memory-limit x0.9"},
	} {
		if got := e.Form().Names()[e.Nearest(s, c.a)]; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A container may have been made outside its bounds. Raising it from above, or
// lowering it from below, would be carried out as the opposite: neither is
// legal, and the way back is.
func TestOutsideTheBoundsOnlyTheWayBackIsLegal(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.SetOf(mdp.CPULimit)))
	legal := make([]bool, e.Form().NumActions())
	for limit, back := range map[mdp.MilliCPU]mdp.Action{
		20:   mdp.Action{}.WithCPU(50),
		9000: mdp.Action{}.WithCPU(4000),
	} {
		s := mdp.State{Observed: mdp.LimitKnobs, Limit: mdp.Size{CPU: limit}}
		e.Legal(s, legal)
		for i, ok := range legal {
			name := e.Form().Names()[i]
			a, err := e.Choice(s, i)
			raises := strings.Contains(name, "x1.") || strings.Contains(name, "x2")
			toward := raises == (limit < 50)
			if ok != (err == nil) || ok != (name == "keep" || toward) || ok && name != "keep" && a != back {
				t.Errorf("limit %v, %s: legal %v, %v, %v; want only %v", limit, name, ok, a, err, back)
			}
		}
		if got, err := e.Choice(s, e.Nearest(s, back)); err != nil || got != back {
			t.Errorf("limit %v: the way back is %v, %v", limit, got, err)
		}
	}
}

// Near a bound several choices come to one value: the first of them stands for
// it, always.
func TestTheFirstOfEqualChoicesIsTheNearest(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.SetOf(mdp.CPULimit)))
	s := mdp.State{Observed: mdp.LimitKnobs, Limit: mdp.Size{CPU: 3900}}
	first, equal := -1, 0
	for i := range e.Form().NumActions() {
		if a, err := e.Choice(s, i); err == nil && a == (mdp.Action{}).WithCPU(4000) {
			if first < 0 {
				first = i
			}
			equal++
		}
	}
	if equal < 2 {
		t.Fatalf("%d choices come to the bound: the test cannot tell", equal)
	}
	if got := e.Nearest(s, mdp.Action{}.WithCPU(4000)); got != first {
		t.Errorf("the nearest is %s, want %s", e.Form().Names()[got], e.Form().Names()[first])
	}
}

func TestABoxCoversTheBounds(t *testing.T) {
	e := encoder(t, encode.Box(mdp.LimitKnobs))
	for x, want := range map[float64]mdp.Action{
		-9: mdp.Action{}.WithReplicas(1).WithCPU(50).WithMemory(32 * mdp.MiB),
		-1: mdp.Action{}.WithReplicas(1).WithCPU(50).WithMemory(32 * mdp.MiB),
		1:  mdp.Action{}.WithReplicas(8).WithCPU(4000).WithMemory(1024 * mdp.MiB),
	} {
		if got, err := e.FromBox([]float64{x, x, x}); err != nil || got != want {
			t.Errorf("%v: %v, %v; want %v", x, got, err, want)
		}
	}
	law := func(a, b uint16) bool {
		x := []float64{0, float64(a)/32768 - 1, float64(b)/32768 - 1}
		action, err := e.FromBox(x)
		if err != nil {
			return false
		}
		back := make([]float64, 3)
		if err := e.ToBox(mdp.State{}, action, back); err != nil {
			return false
		}
		again, err := e.FromBox(back)
		return err == nil && again == action && math.Abs(back[1]-x[1]) < 0.01 && math.Abs(back[2]-x[2]) < 0.01
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
}

func TestAFormSurvivesJSONAndAnotherIsNamed(t *testing.T) {
	spanned := encode.Discrete(mdp.LimitKnobs)
	spanned.Span = true
	for _, f := range []encode.Form{encode.Discrete(mdp.LimitKnobs), spanned, encode.Box(mdp.SetOf(mdp.CPULimit))} {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var got encode.Form
		if err := json.Unmarshal(text, &got); err != nil || f.Same(got) != nil {
			t.Errorf("%s: %v, %v", text, err, f.Same(got))
		}
	}
	if err := encode.Discrete(mdp.LimitKnobs).Same(spanned); err == nil {
		t.Error("a form with a span is the same as one without")
	}
	err := encode.Discrete(mdp.LimitKnobs).Same(encode.Box(mdp.LimitKnobs))
	if err == nil || !strings.Contains(err.Error(), "factors") {
		t.Errorf("%v, want the difference", err)
	}
	for want, change := range map[string]func(*encode.Form){
		"version 7":   func(f *encode.Form) { f.Version = 7 },
		"factor 1":    func(f *encode.Form) { f.Factors = []float64{1} },
		"0 replicas":  func(f *encode.Form) { f.Replicas = []int{0} },
		"signals":     func(f *encode.Form) { f.Signals = 0 },
		"knobs":       func(f *encode.Form) { f.Knobs = mdp.SetOf(mdp.Latency) },
		"not among":   func(f *encode.Form) { f.Signals = mdp.SetOf(mdp.Latency) },
		"factor +Inf": func(f *encode.Form) { f.Factors = []float64{math.Inf(1)} },
		"span":        func(f *encode.Form) { f.Factors, f.Replicas, f.Span = nil, nil, true },
	} {
		f := encode.Discrete(mdp.LimitKnobs)
		change(&f)
		if _, err := encode.New(f, place); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := json.Unmarshal([]byte(`{"version":1,"signals":["gpu"],"knobs":[]}`), new(encode.Form)); err == nil {
		t.Error("a signal that nobody knows was taken")
	}
}

// A decision on the node encodes once a second for each container.
func TestEncodingDoesNotAllocate(t *testing.T) {
	e := encoder(t, encode.Discrete(mdp.LimitKnobs))
	s := random(rand.New(rand.NewPCG(1, 1)))
	s.Observed = mdp.All
	obs, legal := make([]float64, e.Form().Dim()), make([]bool, e.Form().NumActions())
	if n := testing.AllocsPerRun(100, func() {
		if err := e.Observe(s, obs); err != nil {
			t.Fatal(err)
		}
		e.Legal(s, legal)
		if _, err := e.Choice(s, e.Nearest(s, mdp.Action{}.WithCPU(3000))); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
