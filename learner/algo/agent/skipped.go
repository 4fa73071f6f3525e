package agent

import "awarescale.dev/aware/learner/nn/weights"

// Skipped counts what an agent could not learn from. Learning goes on after it.
type Skipped struct {
	SkippedUpdates int   // updates whose loss or gradient was not finite, or could not be computed
	SkippedRows    int   // rows without a known reward, and, on-policy, rows in which another action took force
	LastError      error // of the last skipped update; it is not saved
}

// Skip counts an update.
func (s *Skipped) Skip(err error) {
	s.SkippedUpdates++
	s.LastError = err
}

// State adds the counts to an agent's state.
func (s *Skipped) State(to *weights.State) {
	to.Counts["skipped.updates"] = weights.Count{At: &s.SkippedUpdates}
	to.Counts["skipped.rows"] = weights.Count{At: &s.SkippedRows}
}

// Stats are figures of how an agent's learning goes.
type Stats struct {
	SkippedUpdates int     `json:"skipped_updates"`
	SkippedRows    int     `json:"skipped_rows"`
	LastError      string  `json:"last_error,omitempty"` // of the last skipped update of this process; empty when there is none
	LearningRate   float64 `json:"learning_rate"`        // of the next update; 0 when it was annealed: nothing more is learned
}

// Stats are the counts with the present learning rate.
func (s *Skipped) Stats(rate float64) Stats {
	stats := Stats{SkippedUpdates: s.SkippedUpdates, SkippedRows: s.SkippedRows, LearningRate: rate}
	if s.LastError != nil {
		stats.LastError = s.LastError.Error()
	}
	return stats
}
