package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/load"
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

// The work costs CPU time, of about the same amount in a row, and a median needs no order.
func TestThePaceIsCPUTime(t *testing.T) {
	a, err := paceNow()
	if err != nil || a < 50*time.Microsecond {
		t.Fatalf("%v, %v: the work is not done", a, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if all := paceUntil(ctx); len(all) != 0 {
		t.Errorf("%v after the end", all)
	}
	if m := median([]time.Duration{9, 1, 5}); m != 5 {
		t.Error(fmt.Sprint("the median is ", m))
	}
}

// A slow second counts by the requests that met it.
func TestTheSlowdownIsThatOfTheRequests(t *testing.T) {
	began := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	at := func(second int, took time.Duration) paced {
		return paced{began.Add(time.Duration(second)*time.Second + time.Second/3), took * time.Microsecond}
	}
	seconds := []load.Second{{Second: 0, IntendedRPS: 10}, {Second: 1, IntendedRPS: 80}, {Second: 2, IntendedRPS: 10}}
	of := func(all ...paced) float64 {
		if v := slowdown(all, seconds, began, time.Millisecond); v != nil {
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
	if v := slowdown([]paced{at(1, 1000)}, seconds, began, 0); v != nil {
		t.Errorf("%v of an unknown pace", *v)
	}
}
