package lifecycle

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Recorder cuts a workload's transitions into episodes, for a store, and keeps
// the Profile of their rewards. It is pure: what it is given comes back
// numbered.
type Recorder struct {
	Clock   mdp.EpisodeClock
	Profile *Profile

	next time.Time // of the State that the last transition led to
}

// NewRecorder begins at an episode; the Profile's length of an episode is the Clock's.
func NewRecorder(episode int) *Recorder {
	p := NewProfile()
	return &Recorder{Clock: mdp.EpisodeClock{Length: p.Steps, Episode: episode}, Profile: p}
}

// Add numbers a transition, and marks the last one of an episode as truncated.
// A transition that does not start where the one before ended (a failed step, a
// restart) starts a new episode: the steps of an episode follow from each
// other.
func (r *Recorder) Add(t mdp.Transition) (numbered mdp.Transition, episode, step int) {
	if !r.next.IsZero() && !t.State.At.Equal(r.next) {
		r.Clock.Cut()
	}
	r.next = t.Next.At
	episode, step = r.Clock.Number(&t)
	r.Profile.Add(t)
	return t, episode, step
}
