package kcpu_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/kcpu"
)

func TestKCPUIsAPolicy(t *testing.T) {
	t.Run("default", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return kcpu.New(kcpu.Default) }) })
	t.Run("fast", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return kcpu.New(kcpu.Fast) }) })
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// container is a container with a demand. It never uses more than its limit.
type container struct {
	t      *testing.T
	policy *kcpu.Policy
	limit  mdp.MilliCPU
	second int
}

// run simulates seconds with one State each, and counts the changes of the
// limit.
func (c *container) run(seconds int, demand mdp.MilliCPU) (changes int) {
	c.t.Helper()
	for range seconds {
		a, err := c.policy.Decide(mdp.State{
			At:       noon.Add(time.Duration(c.second) * time.Second),
			Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage),
			Limit:    mdp.Size{CPU: c.limit}, Usage: mdp.Size{CPU: min(c.limit, demand)},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if a.Sets.Has(mdp.CPULimit) {
			c.limit = a.Limit.CPU
			changes++
		}
		c.second++
	}
	return changes
}

func TestConstantUsageGivesUsageDividedByTarget(t *testing.T) {
	c := &container{t: t, policy: kcpu.New(kcpu.Default), limit: 1000}
	if changes := c.run(600, 150); c.limit != 300 || changes != 1 {
		t.Errorf("limit = %v after %d changes, want 300m after one", c.limit, changes)
	}
}

func TestLimitOfAThrottledContainerGrowsGeometrically(t *testing.T) {
	c := &container{t: t, policy: kcpu.New(kcpu.Fast), limit: 100}
	for _, want := range []mdp.MilliCPU{167, 279, 465, 775, 1292, 1667, 1667} { // 1/0.6 at each step; 1000/0.6 at last
		if c.run(1, 1000); c.limit != want {
			t.Fatalf("at second %d the limit is %v, want %v", c.second, c.limit, want)
		}
	}
}

func TestLimitIsConstantBetweenDecisions(t *testing.T) {
	c := &container{t: t, policy: kcpu.New(kcpu.Default), limit: 1000}
	c.run(1, 200)
	if changes := c.run(13, 900); changes != 0 || c.limit != 400 {
		t.Fatalf("limit = %v after %d changes within 15 s", c.limit, changes)
	}
	// The next decision, at a tenth early or later, sees 13 s or more of a
	// demand that is throttled at 400m.
	if c.run(2, 900); c.limit != 800 {
		t.Errorf("limit = %v, want 800m", c.limit)
	}
}

func TestUsageIsTheMeanSinceTheLastDecision(t *testing.T) {
	c := &container{t: t, policy: kcpu.New(kcpu.Default), limit: 1000}
	c.run(1, 100)  // decides: 200m
	c.limit = 1000 // as if it had not been carried out
	c.run(7, 100)
	c.run(7, 500)
	if c.limit != 600 {
		t.Errorf("limit = %v, want 600m: twice the mean of 100m and 500m, not of a single second", c.limit)
	}
}

func TestLimitStaysAtTheHighestOfTheWindow(t *testing.T) {
	for name, c := range map[string]kcpu.Config{"default": kcpu.Default, "fast": kcpu.Fast} {
		t.Run(name, func(t *testing.T) {
			c.Target = 0.5
			box := &container{t: t, policy: kcpu.New(c), limit: 2000}
			box.run(1, 600)
			window := int(c.Window / time.Second)
			if box.run(window-1, 100); box.limit != 1200 {
				t.Fatalf("inside the window the limit is %v, want 1200m", box.limit)
			}
			if box.run(2*int(c.Every/time.Second), 100); box.limit != 200 {
				t.Errorf("after the window the limit is %v, want 200m", box.limit)
			}
		})
	}
}

func TestSlightlyEarlyTickIsAccepted(t *testing.T) {
	p := kcpu.New(kcpu.Fast)
	for i := range 10 {
		demand := mdp.MilliCPU(100 * (i + 1))
		a, err := p.Decide(mdp.State{
			At:       noon.Add(time.Duration(i) * 999 * time.Millisecond),
			Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage), Limit: mdp.Size{CPU: 5000}, Usage: mdp.Size{CPU: demand},
		})
		if err != nil || !a.Sets.Has(mdp.CPULimit) {
			t.Errorf("tick %d: %v (%v), want a limit", i, a, err)
		}
	}
}

func TestIdleContainerGetsTheFloor(t *testing.T) {
	c := &container{t: t, policy: kcpu.New(kcpu.Fast), limit: 500}
	if c.run(30, 0); c.limit != kcpu.Fast.Floor {
		t.Errorf("limit = %v, want the floor of %v", c.limit, kcpu.Fast.Floor)
	}
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	for want, change := range map[string]func(*kcpu.Config){
		"kcpu target 0: it must be in (0, 1]":                                func(c *kcpu.Config) { c.Target = 0 },
		"kcpu every 0s: it must be above zero":                               func(c *kcpu.Config) { c.Every = 0 },
		"kcpu window 1s: it must not be below every, 15s":                    func(c *kcpu.Config) { c.Window = time.Second },
		"kcpu floor " + mdp.MilliCPU(0).String() + ": it must be above zero": func(c *kcpu.Config) { c.Floor = 0 },
	} {
		c := kcpu.Default
		change(&c)
		if err := c.Check(); err == nil || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
	for _, c := range []kcpu.Config{kcpu.Default, kcpu.Fast} {
		if err := c.Check(); err != nil {
			t.Error(err)
		}
	}
}
