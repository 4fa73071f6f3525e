package mdp

import "time"

// PeakPast is how far a [Peak] looks back.
const PeakPast = 2 * time.Hour

const (
	peakPart  = int64(10 * time.Minute / time.Second) // in which it forgets: all that was in one, together
	peakParts = int64(PeakPast/time.Second)/peakPart + 1
	peakLeast = int64(30 * time.Minute / time.Second) // that it must have looked for to say something
)

// Peak is the highest rate of the last two hours, for [LoadPeak]: what a workload must be ready for and does not show while its
// load is calm. The zero Peak has seen nothing.
type Peak struct {
	First, Last int64           // Unix seconds of what it has seen; 0: nothing
	Parts       [peakParts]Rate // the highest rate of each part of time, by its number modulo how many there are
}

// See takes in a rate at a time. When a clock was set back, the time is that of the newest rate before.
func (p *Peak) See(at time.Time, rate Rate) {
	now := at.Unix()
	if p.First == 0 || now-p.Last >= int64(PeakPast/time.Second) {
		*p = Peak{First: now, Last: now}
	}
	for i := p.Last/peakPart + 1; i <= now/peakPart; i++ {
		p.Parts[i%peakParts] = 0
	}
	p.Last = max(p.Last, now)
	own := &p.Parts[p.Last/peakPart%peakParts]
	*own = max(*own, rate)
}

// Highest is the highest rate in the two hours before a time, or somewhat more. ok is false when it has not looked for half an
// hour, or has seen nothing in these hours.
func (p *Peak) Highest(now time.Time) (highest Rate, ok bool) {
	at := max(p.Last, now.Unix())
	if at-p.Last >= int64(PeakPast/time.Second) || p.Last-p.First < peakLeast {
		return 0, false
	}
	for i := max(0, at/peakPart-peakParts+1); i <= p.Last/peakPart; i++ {
		highest = max(highest, p.Parts[i%peakParts])
	}
	return highest, true
}
