package correct

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Interval merges the States of an interval into one. The zero value is empty.
type Interval struct {
	sums   [mdp.SignalCount]float64
	counts [mdp.SignalCount]int
	last   mdp.State
	before mdp.Rate  // throughput of the interval before
	known  bool      // it is
	merged mdp.State // scratch: the tables take pointers
}

// Add takes in a State. States are evenly spaced.
func (i *Interval) Add(s mdp.State) {
	i.last = s
	for one := range s.Observed.Signals() {
		v := one.Value(&i.last)
		if one.Merge() == mdp.Max {
			i.sums[one] = max(i.sums[one], v)
		} else {
			i.sums[one] += v
		}
		i.counts[one]++
	}
}

// End is the State of the interval, which is over: means of what was observed in it, its highest peak, the sum of
// its kills, and the replicas at its end. The next one begins.
func (i *Interval) End() mdp.State {
	out := &i.merged
	*out = mdp.State{At: i.last.At}
	for one := range mdp.Signals() {
		n := i.counts[one]
		switch {
		case n == 0 || one == mdp.LoadChange:
		case one == mdp.Replicas:
			one.Set(out, float64(i.last.Replicas))
		case one.Merge() == mdp.Max || one.Merge() == mdp.Sum:
			one.Set(out, i.sums[one])
		default:
			one.Set(out, i.sums[one]/float64(n))
		}
	}
	if out.Observed.Has(mdp.Replicas) && !i.last.Knows(mdp.Replicas) {
		*out = out.Mask(out.Observed.Without(mdp.SetOf(mdp.Replicas))) // an old number says nothing
	}
	if i.known && i.before > 0 && out.Knows(mdp.Throughput) {
		mdp.LoadChange.Set(out, float64(out.Throughput/i.before))
	}
	merged := *out
	*i = Interval{before: merged.Throughput, known: merged.Knows(mdp.Throughput)}
	return merged
}

// Due reports whether an interval of a length that began at a time is over now; steps between States are short.
func due(began, now time.Time, length time.Duration) bool { return !now.Before(began.Add(length)) }
