package bench

import (
	"reflect"
	"testing"
	"time"

	"awarescale.dev/aware/learner/sim"
)

func TestADisturbedCellIsTheCellWithAnomaliesAndItsTunedSettings(t *testing.T) {
	cells, tuned := tunedCells(t)
	kinds := map[sim.Kind]int{}
	for _, cell := range cells {
		disturbed := Disturb(cell)
		if len(cell.Anomalies) != 0 || !reflect.DeepEqual(disturbed.Anomalies, Disturb(cell).Anomalies) {
			t.Errorf("%s: the cell itself is changed, or its anomalies differ each time", disturbed.Trace.Name)
		}
		for _, a := range disturbed.Anomalies {
			kinds[a.Kind]++
			if a.From < 0 || a.From >= cell.Trace.Length() {
				t.Errorf("%s: an anomaly from %v", disturbed.Trace.Name, a.From)
			}
		}
		own, ok := tuned.For(cell, "k8s-cpu-fast")
		theirs, known := tuned.For(Delay(disturbed, time.Second), "k8s-cpu-fast")
		if !ok || !known || !reflect.DeepEqual(own, theirs) {
			t.Errorf("%s: settings %v, those of the cell are %v", disturbed.Trace.Name, theirs.Choice, own.Choice)
		}
	}
	for _, kind := range sim.Kinds {
		if kinds[kind] < 12 {
			t.Errorf("%d anomalies of %s in twelve hours", kinds[kind], kind)
		}
	}
}

func TestAnomaliesAndLateMetricsAreFelt(t *testing.T) {
	cells, tuned := tunedCells(t)
	cell := cells[6] // social-network under noisy
	p99 := func(cell Cell, policy string) float64 {
		t.Helper()
		c, err := Contestant{Name: policy}.choice(t.Context(), cell, tuned)
		if err != nil {
			t.Fatal(err)
		}
		score, err := Run(t.Context(), cell, c, Options{Seed: 1, Length: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s with %s: %.1f cores, p99 %.0f ms", cell.Trace.Name, policy, score.Cores, score.P99MS)
		return score.P99MS
	}
	if plain, disturbed := p99(cell, "static"), p99(Disturb(cell), "static"); disturbed < 2*plain {
		t.Errorf("p99 %.0f ms with anomalies, %.0f ms without", disturbed, plain)
	}
	late := Delay(cell, 30*time.Second)
	if plain, delayed := p99(cell, "k8s-cpu-fast"), p99(late, "k8s-cpu-fast"); delayed < 1.1*plain {
		t.Errorf("k8s-cpu-fast: p99 %.0f ms with metrics 30 s late, %.0f ms without", delayed, plain)
	}
	if plain, delayed := p99(cell, "captain"), p99(late, "captain"); delayed != plain {
		t.Errorf("captain reads cgroups, and its p99 is %.0f ms instead of %.0f ms", delayed, plain)
	}
}
