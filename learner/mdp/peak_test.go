package mdp_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// A day of rates, seen every ten seconds with outages and a clock that is set back now and then. What a Peak says is never below
// what it saw in the last two hours, and never above what it saw in the last two hours and ten minutes.
func TestAPeakIsThatOfTheLastTwoHours(t *testing.T) {
	type seen struct {
		at   time.Time
		rate mdp.Rate
	}
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		var p mdp.Peak
		var all []seen
		begin := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
		newest, said := begin, 0
		for now := begin; now.Before(begin.Add(24 * time.Hour)); now = now.Add(10 * time.Second) {
			at := now
			switch r.IntN(500) {
			case 0:
				now = now.Add(time.Duration(r.IntN(180)) * time.Minute)
				at = now
			case 1:
				at = now.Add(-time.Duration(r.IntN(60)) * time.Minute)
			}
			if at.After(newest) {
				newest = at
			}
			rate := mdp.Rate(r.ExpFloat64())
			p.See(at, rate)
			all = append(all, seen{newest, rate})
			within := func(past time.Duration) (highest mdp.Rate) {
				for _, one := range all {
					if newest.Sub(one.at) < past {
						highest = max(highest, one.rate)
					}
				}
				return highest
			}
			if got, ok := p.Highest(at); ok && r.IntN(20) == 0 {
				said++
				if least, most := within(2*time.Hour), within(2*time.Hour+10*time.Minute); got < least || got > most {
					t.Fatalf("seed %d, %v: %v: what was seen is between %v and %v", seed, now.Sub(begin), got, least, most)
				}
			}
		}
		if said < 50 {
			t.Errorf("seed %d: it said something %d times", seed, said)
		}
	}
}

// What is not known is not zero: neither at the begin, nor after hours in which nothing was seen.
func TestAPeakSaysNothingOfWhatItHasNotSeen(t *testing.T) {
	var p mdp.Peak
	now := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	if rate, ok := p.Highest(now); ok {
		t.Errorf("it has seen nothing, and says %v", rate)
	}
	p.See(now, 5)
	p.See(now.Add(29*time.Minute), 2)
	if rate, ok := p.Highest(now.Add(time.Hour)); ok {
		t.Errorf("after half an hour less a minute it says %v", rate)
	}
	p.See(now.Add(30*time.Minute), 0)
	if rate, ok := p.Highest(now.Add(time.Hour)); !ok || rate != 5 {
		t.Errorf("%v, %v: want 5", rate, ok)
	}
	last := now.Add(30 * time.Minute)
	if rate, ok := p.Highest(last.Add(mdp.PeakPast - time.Second)); !ok || rate != 2 {
		t.Errorf("%v, %v: want 2, the one of a minute more", rate, ok)
	}
	if rate, ok := p.Highest(last.Add(mdp.PeakPast)); ok {
		t.Errorf("it saw nothing for two hours, and says %v", rate)
	}
	p.See(last.Add(3*time.Hour), 1)
	if rate, ok := p.Highest(last.Add(3 * time.Hour)); ok {
		t.Errorf("it has begun anew, and says %v", rate)
	}
}
