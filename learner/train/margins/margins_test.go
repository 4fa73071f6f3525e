package margins_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/train/margins"
)

// toy is an application of which the best margins are known: service i has late requests of weight[i]
// exp(-2 m), and costs price[i] exp(m). At a given share of late requests the cores are fewest where
// weight/price exp(-3 m) is the same everywhere.
type toy struct{ weight, price []float64 }

func (y toy) judge(_ context.Context, _ uint64, m []float64) (margins.Outcome, error) {
	var o margins.Outcome
	for i := range m {
		o.Late += y.weight[i] * math.Exp(-2*m[i])
		o.Cores += y.price[i] * math.Exp(m[i])
	}
	o.Tail = math.Log(o.Late)
	return o, nil
}

// best is the margins of which the toy costs least, but for their level.
func (y toy) best() []float64 {
	m := make([]float64, len(y.weight))
	for i := range m {
		m[i] = math.Log(y.weight[i]/y.price[i]) / 3
	}
	return m
}

func TestACoreBuysTheSameEverywhereInTheEnd(t *testing.T) {
	y := toy{weight: []float64{0.02, 0.005, 0.0002, 0.01}, price: []float64{1, 4, 0.5, 0.2}}
	l, err := margins.New(margins.Default, len(y.weight), y.judge, margins.State{})
	if err != nil {
		t.Fatal(err)
	}
	first := 0.0
	for i := range 30 {
		r, err := l.Round(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = r.Before
		}
	}
	s := l.State()
	got, want := centred(s.Margins), centred(y.best())
	for i := range got {
		if math.Abs(got[i]-want[i]) > 0.15 {
			t.Errorf("margins %.2f, want %.2f", got, want)
			break
		}
	}
	if last := s.Rounds[len(s.Rounds)-1]; last.Before > 0.95*first {
		t.Errorf("%.3f cores at first, %.3f in the end", first, last.Before)
	}
}

func centred(m []float64) []float64 {
	mean := 0.0
	for _, v := range m {
		mean += v / float64(len(m))
	}
	m = slices.Clone(m)
	for i := range m {
		m[i] -= mean
	}
	return m
}

func TestAnInterruptedLearnerGoesOnAsIfNothingHadHappened(t *testing.T) {
	y := toy{weight: []float64{0.02, 0.001}, price: []float64{1, 1}}
	through, _ := margins.New(margins.Default, 2, y.judge, margins.State{})
	for range 6 {
		if _, err := through.Round(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	var kept margins.State
	for range 6 {
		l, err := margins.New(margins.Default, 2, y.judge, kept)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Round(ctx, nil); !errors.Is(err, context.Canceled) ||
			!reflect.DeepEqual(l.State().Margins, orZero(kept.Margins)) {
			t.Fatalf("an interrupted round: %v, %+v", err, l.State())
		}
		if _, err := l.Round(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		kept = l.State()
	}
	if !reflect.DeepEqual(kept, through.State()) {
		t.Errorf("%+v\n%+v", kept, through.State())
	}
}

func orZero(m []float64) []float64 {
	if m == nil {
		return make([]float64, 2)
	}
	return m
}

// What does not help is not kept, and the next step is smaller.
func TestAWorseResultIsNotKept(t *testing.T) {
	y := toy{weight: []float64{0.01, 0.01}, price: []float64{1, 1}}
	lies := func(ctx context.Context, world uint64, m []float64) (margins.Outcome, error) {
		o, err := y.judge(ctx, world, m)
		if m[0] < m[1]-0.5 { // only where the first one is lowered: it seems to buy nothing
			o.Tail = math.Log(0.008)
		}
		return o, err
	}
	l, _ := margins.New(margins.Default, 2, lies, margins.State{})
	r, err := l.Round(t.Context(), nil)
	if err != nil || r.Kept || l.State().Step != margins.Default.Step/2 ||
		!reflect.DeepEqual(l.State().Margins, []float64{0, 0}) {
		t.Errorf("%+v (%v), %+v", r, err, l.State())
	}
}

func TestWhatIsNoOutcomeIsAnError(t *testing.T) {
	for _, bad := range []margins.Outcome{{Tail: math.NaN()}, {Tail: math.Inf(-1)}, {Cores: math.NaN()}, {Late: math.NaN()}} {
		judge := func(context.Context, uint64, []float64) (margins.Outcome, error) { return bad, nil }
		l, _ := margins.New(margins.Default, 2, judge, margins.State{})
		if _, err := l.Round(t.Context(), nil); err == nil {
			t.Errorf("%+v is an outcome", bad)
		}
	}
	if _, err := margins.New(margins.Default, 2, nil, margins.State{Margins: make([]float64, 3)}); err == nil {
		t.Error("a state of three services fits two")
	}
	for _, c := range []margins.Config{{}, {Worlds: 1, Late: 0.008}, {Worlds: 1, Late: math.NaN(), Lower: 1, Step: 1, Most: 1}} {
		if c.Check() == nil {
			t.Errorf("%+v passes", c)
		}
	}
}

// A random world is another one for each seed, the same for the same seed, and never the trace that is judged.
func TestRandomWorldsAreNotTheCell(t *testing.T) {
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cells {
		one := margins.Random(cells[i], 7, 10*time.Minute)
		clear(cells[i].Trace.Rates) // nothing of it may be read
		again := margins.Random(cells[i], 7, 10*time.Minute)
		if !reflect.DeepEqual(one.Warm, again.Warm) || !reflect.DeepEqual(one.App, again.App) {
			t.Fatalf("%s: the same seed gives two worlds", cells[i].Application)
		}
		if reflect.DeepEqual(one.Warm, margins.Random(cells[i], 8, 10*time.Minute).Warm) {
			t.Fatalf("%s: two seeds give one world", cells[i].Application)
		}
		if err := one.App.Check(); err != nil {
			t.Error(err)
		}
		if err := one.Trace.Check(); err != nil {
			t.Error(err)
		}
	}
}

// With margins that are far too wide learning's result is left aside: the fewest cores win.
func TestWhatWasLearnedIsTakenAsFarAsItHelpsInOtherWorlds(t *testing.T) {
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cells, func(c bench.Cell) bool { return c.Application == "hotel-reservation" })
	choice, err := bench.Named("demand-1s")
	if err != nil {
		t.Fatal(err)
	}
	wide := make([]float64, len(cells[i].App.Services))
	for k := range wide {
		wide[k] = 4
	}
	parts := []margins.Part{{Of: 0}, {Of: 1}}
	hours := 0
	best, err := margins.HeldOut(t.Context(), cells[i], choice, wide, parts, 1, func(of int) {
		if hours++; of != 2 {
			t.Errorf("%d hours are said to be run", of)
		}
	})
	if err != nil || best != 0 || hours != 2 || parts[0].Cores <= 0 || parts[1].Cores < 1.05*parts[0].Cores {
		t.Errorf("part %d was taken after %d hours: %+v, %v", best, hours, parts, err)
	}
	again := slices.Clone(parts)
	best, err = margins.HeldOut(t.Context(), cells[i], choice, wide, again, 1, func(int) { t.Error("an hour was judged twice") })
	if err != nil || best != 0 || !reflect.DeepEqual(again, parts) {
		t.Errorf("what was judged became %+v, %v", again, err)
	}
}

func TestAPartIsNotTakenForItsCoresAlone(t *testing.T) {
	for name, c := range map[string]struct {
		parts []margins.Part
		want  int
	}{
		"fewest cores":          {[]margins.Part{{Cores: 9}, {Cores: 8}, {Cores: 8.5}}, 1},
		"too many late":         {[]margins.Part{{Cores: 9}, {Cores: 5, Late: 0.02}, {Cores: 8.5}}, 2},
		"too many windows over": {[]margins.Part{{Cores: 9}, {Cores: 5, Windows: 0.06}, {Cores: 8.5, Windows: 0.05}}, 2},
		"no more than without margins": {[]margins.Part{
			{Cores: 9, Late: 0.03, Windows: 0.2}, {Cores: 5, Late: 0.03, Windows: 0.2},
		}, 1},
		"more applications miss": {[]margins.Part{
			{Cores: 9, Broken: 1}, {Cores: 5, Broken: 2}, {Cores: 8, Broken: 1},
		}, 2},
		"nothing is better than to try": {[]margins.Part{{Cores: 9}, {Cores: 9.1}}, 0},
		"no more than chance explains": {[]margins.Part{
			{Cores: 9, Hours: []float64{8, 9, 10}}, {Cores: 8.9, Hours: []float64{9.5, 8.2, 9}},
		}, 0},
		"a little in each hour": {[]margins.Part{
			{Cores: 9, Hours: []float64{8, 9, 10}}, {Cores: 8.9, Hours: []float64{7.9, 8.89, 9.91}},
		}, 1},
	} {
		if got := margins.Choose(c.parts); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestAPartIsOfMarginsAndALevel(t *testing.T) {
	learned := []float64{2, -2, 20}
	if got := (margins.Part{Of: 0.5, Level: -1}).Margins(learned); !slices.Equal(got, []float64{0, -2, 5}) || learned[0] != 2 {
		t.Errorf("%v from %v", got, learned)
	}
}
