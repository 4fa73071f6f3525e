package aware

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/train/margins"
)

// The whole of it, small: margins are tried in some applications and judged in others, the same each time, and nothing is better
// than to know each hour before. An application's services are given margins that were tried, each by what it is like itself.
func TestMarginsArePredicted(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of hours")
	}
	p := pretrained(t)
	choice, err := bench.Named("demand-1s")
	if err != nil {
		t.Fatal(err)
	}
	a := Afford{Setting: brief, Policy: choice, Apps: 4, Held: 2, Seed: 3, Split: 1}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	learn := func() *Afforded {
		t.Helper()
		told := 0
		got, err := a.Learn(t.Context(), p, func(string) { told++ })
		if err != nil || told != a.Runs() {
			t.Fatalf("%d of %d runs are told, %v", told, a.Runs(), err)
		}
		return got
	}
	got := learn()
	if again := learn(); !reflect.DeepEqual(again.Held, got.Held) || !reflect.DeepEqual(again.Tried, got.Tried) {
		t.Errorf("%+v, and again %+v", got.Held, again.Held)
	}
	none, known := got.Held[0], got.Held[2]
	if len(got.Held) != 3 || len(none.Hours) != a.Held || none.Cores != 1 || known.Cores > 1 || known.Broken > none.Broken {
		t.Errorf("in others %+v", got.Held)
	}
	if len(got.Tried) != 1+len(margins.Neighbours) || len(got.Tried[0].Hours) != a.Apps {
		t.Errorf("tried are %+v", got.Tried)
	}
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	small := slices.IndexFunc(cells, func(c bench.Cell) bool { return c.Application == "hotel-reservation" })
	got.Neighbours = 0
	if levels, err := got.Margins(t.Context(), cells[small], 1); err != nil || levels != nil {
		t.Errorf("no margin is predicted, and there are %v, %v", levels, err)
	}
	if x, y := []float64{1, 2}, []float64{2, 1}; got.known.Alike(x, y) != meta.Similarity(x, y) {
		t.Error("workloads are not compared by the similarity of their embeddings")
	}
	// Of one application alone each service has the margin that suits that one.
	got.Neighbours = 1
	var mu sync.Mutex
	compared, services := 0, map[string]bool{}
	got.known.Parts = []margins.Part{got.known.Parts[0], got.known.Parts[len(got.known.Parts)-1]}
	first := got.known.Embeddings[0]
	got.known.Alike = func(e, known []float64) float64 {
		mu.Lock()
		defer mu.Unlock()
		compared++
		services[fmt.Sprint(e)] = true
		if &known[0] == &first[0] {
			return 1
		}
		return meta.Similarity(e, known) - 1
	}
	cell := cells[small]
	levels, err := got.Margins(t.Context(), cell, 1)
	if n := len(cell.App.Services); err != nil || len(levels) != n || compared != a.Apps*n || len(services) != n {
		t.Fatalf("%v, %v: %d services, compared %d times", levels, err, len(services), compared)
	}
	// A service is known by what it does under the warm-up load, and not under the one that is judged.
	cell.Trace = cells[0].Trace
	if _, err := got.Margins(t.Context(), cell, 1); err != nil || len(services) != len(levels) {
		t.Errorf("under another trace: %d services, %v", len(services), err)
	}
	if cell.Warm, err = cell.Warm.Times(0.5); err != nil {
		t.Fatal(err)
	}
	if _, err := got.Margins(t.Context(), cell, 1); err != nil || len(services) != 2*len(levels) {
		t.Errorf("under half of the warm-up load: %d services, %v", len(services), err)
	}
	want := got.known.Parts[margins.Choose([]margins.Part{firstHour(got.known.Parts[0]), firstHour(got.known.Parts[1])})].Level
	for service, level := range levels {
		if level != want {
			t.Errorf("service %s has %v, want %v", service, level, want)
		}
	}
	for says, bad := range map[string]Afford{
		"apps 1":     {Apps: 1, Held: 2, Split: 1},
		"apps 801":   {Apps: 801, Held: 2, Split: 1},
		"held-out 1": {Apps: 2, Held: 1, Split: 1}, "held-out 201": {Apps: 2, Held: 201, Split: 1},
	} {
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// firstHour is a part of its first hour alone.
func firstHour(p margins.Part) margins.Part { return margins.Mixed([]margins.Part{p}, []int{0}) }
