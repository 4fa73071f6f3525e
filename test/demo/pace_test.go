package main

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/perf/pace"
)

// Whether a slice is measured again is decided by the machine's speed alone, and what counts is the try in which it was fastest:
// also when another one had fewer requests over the SLO.
func TestASliceOnASlowMachineIsMeasuredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		slower  []float64 // of each try; 0: not known
		repeats int
		tries   int
		counts  int // the try, from 1
		left    int
	}{
		"fast enough":                 {[]float64{1.1}, 5, 1, 1, 5},
		"slow once":                   {[]float64{1.4, 1.0}, 5, 2, 2, 4},
		"slow always":                 {[]float64{1.4, 1.25, 1.3}, 5, 3, 2, 3},
		"no repeats left":             {[]float64{1.4}, 0, 1, 1, 0},
		"one left":                    {[]float64{1.4, 1.3}, 1, 2, 2, 0},
		"how fast it was is unknown":  {[]float64{0}, 5, 1, 1, 5},
		"faster than when it was fit": {[]float64{0.7}, 5, 1, 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			played, said := 0, 0
			play := func() (*Record, error) {
				r := &Record{Run: aware, SLOViolationRatio: float64(played), Requests: played + 1}
				if v := c.slower[played]; v != 0 {
					r.Slowdown = &v
				}
				played++
				return r, nil
			}
			left := c.repeats
			got, err := steady(play, &left, func(string, ...any) { said++ })
			if err != nil || played != c.tries || got.Tries != c.tries || got.Requests != c.counts || left != c.left || said != c.tries-1 {
				t.Errorf("%d tries (said %d), %+v counts, %d repeats are left, %v", played, said, got, left, err)
			}
		})
	}
	broken := errors.New("no cluster")
	if _, err := steady(func() (*Record, error) { return nil, broken }, new(int), nil); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// A slow second counts by the requests that met it.
func TestTheSlowdownIsThatOfTheRequests(t *testing.T) {
	began := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	at := func(second int, took time.Duration) pace.Sample {
		return pace.Sample{At: began.Add(time.Duration(second)*time.Second + time.Second/3), Took: took * time.Microsecond}
	}
	seconds := []load.Second{{Second: 0, IntendedRPS: 10}, {Second: 1, IntendedRPS: 80}, {Second: 2, IntendedRPS: 10}}
	of := func(all ...pace.Sample) float64 {
		if v := slowdown(since(began, all), seconds, time.Millisecond); v != nil {
			return math.Round(100**v) / 100
		}
		return -1
	}
	for name, c := range map[string]struct{ got, want float64 }{
		"slow in a quiet second":         {of(at(0, 2000), at(1, 1000), at(2, 1000)), 1.1},
		"slow in the burst":              {of(at(0, 1000), at(1, 2000), at(2, 1000)), 1.8},
		"a quiet second is not known":    {of(at(1, 2000), at(2, 1000)), 1.89},
		"the burst is not known":         {of(at(0, 2000), at(2, 2000)), -1},
		"nothing is known":               {of(), -1},
		"before the begin and after all": {of(at(0, 1000), at(1, 1000), at(2, 1000), at(7, 9000), at(-1, 9000)), 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if v := slowdown(since(began, []pace.Sample{at(1, 1000)}), seconds, 0); v != nil {
		t.Errorf("%v of an unknown pace", *v)
	}
}

// The load is fitted to the fast machine: what was measured in slow seconds does not count, also when it is less.
func TestTheLoadIsFittedToTheFastMachine(t *testing.T) {
	m := func(cost, pace int) measured { return measured{time.Duration(cost), time.Duration(pace)} }
	for name, c := range map[string]struct {
		all     []measured
		fastest time.Duration
		want    []measured
	}{
		"nothing yet":             {nil, 100, nil},
		"all are fast":            {[]measured{m(9, 100), m(8, 105)}, 100, []measured{m(9, 100), m(8, 105)}},
		"slow ones":               {[]measured{m(9, 100), m(7, 180), m(8, 111)}, 100, []measured{m(9, 100)}},
		"it was faster before":    {[]measured{m(9, 180), m(8, 190)}, 100, nil},
		"it is faster meanwhile":  {[]measured{m(15, 180), m(8, 100)}, 180, []measured{m(8, 100)}},
		"before it was not known": {[]measured{m(15, 180), m(8, 100)}, 0, []measured{m(8, 100)}},
	} {
		if got := fittest(c.all, c.fastest); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
