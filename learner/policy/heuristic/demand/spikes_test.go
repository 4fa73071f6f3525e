package demand_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
)

// pulses run a container with a base demand, and a second of several times that in each twenty. The share of the pulses' work
// that is not done within the pulse's second is returned.
func (c *container) pulses(n int, base, pulse float64) (late float64) {
	c.t.Helper()
	for range n {
		c.run(19, constant(base))
		c.run(1, constant(pulse))
		late += c.backlog / pulse / float64(n)
	}
	return late
}

// The story of the rule: pulses come too fast for what reacts. The first one in a late window is remembered, and the next ones
// fit. Five minutes after the last one it is forgotten.
func TestASpikeOfALateWindowIsHeldAndForgotten(t *testing.T) {
	for fast, least := range map[bool]float64{false: 0.1, true: 0.02} { // the fast lane misses less
		config := demand.Default
		config.Fast = fast
		c := box(t, config, 2)
		c.policy.SetLateWindows(7)
		before := c.pulses(5, 0.5, 2)
		var after float64
		for n := range uint32(3) { // as long as they are late, the window after the pulse says so
			c.policy.SetLateWindows(8 + n)
			after = c.pulses(1, 0.5, 2)
		}
		after = c.pulses(30, 0.5, 2)
		if before < least || after > 0.001 {
			t.Errorf("fast %v: %.3f of a pulse was late, and %.4f with the spike held: want %v at least, and next to nothing",
				fast, before, after, least)
		}
		c.run(295, constant(0.5))
		if c.limit < 1.8 {
			t.Errorf("fast %v: 295 s after the last pulse the limit is %.3f cores, and a pulse needs 2", fast, c.limit)
		}
		c.run(10, constant(0.5))
		if c.policy.Holds() || c.limit > 1.5 { // the margin still knows how the demand scattered
			t.Errorf("fast %v: 305 s after the last pulse the limit is %.3f cores, and 0.5 are used", fast, c.limit)
		}
	}
}

// Whoever's windows are not late pays nothing: spikes alone hold nothing.
func TestWithoutALateWindowNothingIsHeld(t *testing.T) {
	told, plain := box(t, demand.Default, 2), box(t, demand.Default, 2)
	for i, counts := range [][]uint32{{5}, {5, 5, 5}, {0}, {0}} { // the first count, the same again, one that began anew
		for _, n := range counts {
			told.policy.SetLateWindows(n)
		}
		told.pulses(3, 0.5, 2)
		plain.pulses(3, 0.5, 2)
		if told.limit != plain.limit || told.policy.Holds() {
			t.Errorf("after counts %v (number %d) the limit is %.3f, and %.3f without them", counts, i, told.limit, plain.limit)
		}
	}
	told.policy.SetLateWindows(1)
	if !told.policy.Holds() {
		t.Error("after a count that began anew the first late window holds nothing")
	}
}

// What is late without a spike is late for another reason, and what was long ago was no spike of this window.
func TestOnlyTheLastMinutesSpikeIsHeld(t *testing.T) {
	for name, one := range map[string]struct {
		since int // seconds since the spike
		spike float64
		want  bool
	}{
		"a spike just now":            {1, 2, true},
		"nearly a minute ago":         {50, 2, true},
		"more than a minute ago":      {70, 2, false},
		"hardly more than the demand": {1, 0.6, false},
	} {
		c := box(t, demand.Config{Floor: 10, Margin: 3}, 3)
		c.policy.SetLateWindows(0)
		c.run(300, constant(0.5))
		c.run(1, constant(one.spike))
		c.run(one.since, constant(0.5))
		c.policy.SetLateWindows(1)
		if got := c.policy.Holds(); got != one.want {
			t.Errorf("%s: held: %v, want %v", name, got, one.want)
		}
	}
}

// A spike that was cut off was larger than what was seen of it, by half where the whole second was throttled. A smaller one
// does not take its place, and keeps it only if it is about as large.
func TestWhatIsHeldIsTheHighest(t *testing.T) {
	ask := func(p *demand.Policy, at *time.Time, usage mdp.MilliCPU, throttled mdp.Ratio) mdp.MilliCPU {
		t.Helper()
		*at = at.Add(time.Second)
		a, err := p.Decide(mdp.State{At: *at, Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
			Limit: mdp.Size{CPU: 1}, Usage: mdp.Size{CPU: usage}, Throttled: throttled})
		if err != nil {
			t.Fatal(err)
		}
		return a.Limit.CPU
	}
	many := func(p *demand.Policy, at *time.Time, n int, usage mdp.MilliCPU) (last mdp.MilliCPU) {
		for range n {
			last = ask(p, at, usage, 0)
		}
		return last
	}
	p, at := demand.New(demand.Default), noon
	p.SetLateWindows(0)
	many(p, &at, 300, 200)
	ask(p, &at, 1000, 1)
	p.SetLateWindows(1)
	if got := many(p, &at, 30, 200); got != 1500 {
		t.Errorf("after a second of 1000m that was throttled throughout the limit is %v, want 1500m", got)
	}
	p.SetLevel(-2)
	if got := many(p, &at, 1, 200); got != 1112 { // 1500 exp(-0.15 2)
		t.Errorf("at level -2 the limit is %v, want 1112m: what is left of the error budget is used", got)
	}
	p.SetLevel(1)
	if got := many(p, &at, 1, 200); got != 1500 {
		t.Errorf("at level 1 the limit is %v, want 1500m", got)
	}
	p.SetLevel(0)
	many(p, &at, 60, 200)
	ask(p, &at, 600, 0)
	p.SetLateWindows(2)
	if got := many(p, &at, 1, 200); got != 1500 {
		t.Errorf("after a late window with a smaller spike the limit is %v, want 1500m still", got)
	}
	p, at = demand.New(demand.Default), noon
	many(p, &at, 300, 1000)
	ask(p, &at, 400, 1) // 600m was held back, by the filter's account
	p.SetLateWindows(9)
	if many(p, &at, 1, 1000); p.Holds() {
		t.Error("the first count that is heard of held a spike: nobody knows of when it is")
	}
	p.SetLateWindows(10)
	if many(p, &at, 1, 1000); !p.Holds() {
		t.Error("the spike of a second that was throttled to less than the usual is not held: its demand was higher than its usage")
	}
	for usage, held := range map[mdp.MilliCPU]bool{1040: false, 1060: true} { // 0.7 of 1500m
		p, at := demand.New(demand.Default), noon
		p.SetLateWindows(0)
		many(p, &at, 300, 200)
		ask(p, &at, 1000, 1)
		p.SetLateWindows(1)
		many(p, &at, 200, 200)
		ask(p, &at, usage, 0)
		many(p, &at, 200, 200)
		if p.Holds() != held {
			t.Errorf("400 s after a spike of 1500m, and 200 s after one of %v, it is held: %v", usage, !held)
		}
	}
}

// The second period in a row that is throttled may be chance. From the third on the limit is half as much again in each, and
// at most eight times as much. A period without throttling ends it.
func TestARowOfThrottledPeriodsIsASurge(t *testing.T) {
	config := demand.Default
	config.Fast = true
	c := box(t, config, 2)
	c.run(300, requests(rand.New(rand.NewPCG(7, 8)), 0.4, 0.001))
	c.runPeriods(1, constant(0))
	quiet := c.limit
	c.backlog = 100
	var limits []float64
	for range 8 {
		c.runPeriods(1, constant(0))
		limits = append(limits, c.limit)
	}
	for i, most := range []float64{1.2, 1.3} {
		if limits[i] > most*quiet {
			t.Errorf("after %d throttled periods the limit is %.3f, and it was %.3f", i+1, limits[i], quiet)
		}
	}
	for i := 2; i < 7; i++ {
		if ratio := limits[i] / limits[i-1]; ratio < 1.45 || ratio > 1.75 {
			t.Errorf("from the %dth throttled period to the next the limit grows %.2f times, want about 1.5", i, ratio)
		}
	}
	if ratio := limits[7] / limits[6]; ratio > 1.2 {
		t.Errorf("the eighth throttled period makes it %.2f times what it was: want at most 8 times in all", ratio)
	}
	c.backlog = 0
	c.runPeriods(1, constant(0))
	if c.limit > 4*quiet {
		t.Errorf("after a period without throttling the limit is %.3f, and %.3f before the surge", c.limit, quiet)
	}
}

func TestABudgetCountsLateWindows(t *testing.T) {
	b := demand.NewBudget(demand.DefaultBudget)
	at := noon
	for _, one := range []struct {
		missed, requests float64
		want             uint32
	}{
		{0.29, 100, 0}, {0.3, 100, 1}, {1, 1, 2}, {1, 0, 2}, {1.5, 100, 2}, {-1, 100, 2}, {0, 100, 2}, {0.9, 5, 3},
	} {
		at = at.Add(demand.Window)
		b.Observe(at, mdp.Ratio(one.missed), one.requests)
		if got := b.LateWindows(); got != one.want {
			t.Errorf("after a window in which %v of %v requests were late: %d late windows, want %d",
				one.missed, one.requests, got, one.want)
		}
	}
	if b.Observe(at, 1, 100); b.LateWindows() != 3 {
		t.Error("a window counts twice")
	}
}
