package demand

import (
	"slices"
	"time"
)

// Constants of what is held.
const (
	recent      = 60              // seconds, in which a late window's spike is looked for
	holds       = 5 * time.Minute // after the last spike
	aSpike      = 1.3             // times the mean demand, at least
	again       = 0.7             // of what is held, at least
	beyond      = 0.5             // of the demand, that a second lacked in which every period was throttled
	heldByLevel = 0.15            // how much less is held where the level is below zero
)

// spikes are the highest demands of a container, in cores, and which of them is held: the limit is no lower for the next five
// minutes, and for as long as spikes come that are about as large.
type spikes struct {
	last  [recent]float64 // the demands of the last seconds
	next  int             // index in last
	held  float64         // zero: none
	until time.Time       // it is held
}

// add takes in the demand of a second.
func (s *spikes) add(now time.Time, demand float64) {
	s.last[s.next] = demand
	s.next = (s.next + 1) % recent
	switch {
	case !now.Before(s.until):
		s.held = 0
	case demand >= again*s.held:
		s.until = now.Add(holds)
	}
}

// hold holds the highest demand of the last seconds, if it was a spike above the mean.
func (s *spikes) hold(now time.Time, mean float64) {
	if highest := slices.Max(s.last[:]); highest >= aSpike*mean {
		s.held, s.until = max(s.held, highest), now.Add(holds)
	}
}

// lateWindows is a count of late windows that somebody else keeps.
type lateWindows struct {
	known bool
	count uint32
}

// more reports whether the count grew.
func (l *lateWindows) more(n uint32) bool {
	grew := l.known && n > l.count
	l.known, l.count = true, n
	return grew
}
