package bench

import (
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

func TestCloseCallsAreJudgedByRequestsToo(t *testing.T) {
	slo := mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond, Lost: 0.005}
	row := func(cores, lost float64, p99 ...float64) Row {
		r := Row{Cores: cores, SLOMS: 100, Holds: true}
		for _, ms := range p99 {
			s := Score{P99MS: ms, P99: time.Duration(ms * float64(time.Millisecond)), LostRatio: lost}
			r.Runs = append(r.Runs, s)
			r.Holds = r.Holds && !s.breaks(slo)
		}
		return r
	}
	rows := []Row{
		row(9, 0, 60, 60),     // the second best that holds
		row(5, 0, 90, 119),    // a close call, and the fewest cores of all
		row(6, 0.01, 90, 101), // loses requests
		row(7, 0, 90, 121),    // too far
		row(8, 0, 80, 80),     // the best that holds
		row(10, 0, 101, 60),   // a close call, with more cores than the best two
		row(11, 0, 10, 10),
	}
	c := Contest{Best: 2, Contestants: make([]Contestant, len(rows))}
	for i := range c.Contestants {
		c.Contestants[i].Name = "captain"
	}
	cell := Cell{App: sim.App{SLO: slo}}
	if got, want := c.finalists(cell, rows), []int{1, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("finalists %v, want %v", got, want)
	}
	c.Best = 3
	if got, want := c.finalists(cell, rows), []int{1, 4, 0, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("finalists %v, want %v", got, want)
	}
	c.Contestants[3].Choice = &Choice{}
	if got, want := c.finalists(cell, rows), []int{1, 4, 0, 5, 6, 3}; !slices.Equal(got, want) {
		t.Errorf("finalists %v, with a policy file %v", got, want)
	}
	c.Contestants[2].Name = Aware // that is not tuned for the cell is no rule
	if got, want := c.finalists(cell, rows), []int{1, 4, 0, 5, 6, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("finalists %v, with AWARE's own row %v", got, want)
	}
}
