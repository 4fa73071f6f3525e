package demand

import (
	"slices"
	"time"
)

const (
	remembered = 300  // seconds, of which the highest demand is known
	aSpike     = 1.3  // times the mean demand, at least
	ofLevel    = 0.15 // of a level below zero, by which less is held
)

// spikes are the highest demands of a container, in cores. In the hour after a late window the highest one that is known is
// held: the limit is no lower.
type spikes struct {
	last  [remembered]float64 // the demands of the last seconds
	next  int                 // index in last
	until time.Time           // spikes are held
	held  float64             // zero: none
}

// add takes in the demand of a second.
func (s *spikes) add(now time.Time, demand, mean float64) {
	s.last[s.next] = demand
	s.next = (s.next + 1) % remembered
	s.held = 0
	if now.Before(s.until) {
		s.hold(mean)
	}
}

// late says that a late window has just ended.
func (s *spikes) late(now time.Time, mean float64) {
	s.until = now.Add(Hour)
	s.hold(mean)
}

// hold holds the highest demand, if it is a spike above the mean.
func (s *spikes) hold(mean float64) {
	if highest := slices.Max(s.last[:]); highest >= aSpike*mean {
		s.held = highest
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
