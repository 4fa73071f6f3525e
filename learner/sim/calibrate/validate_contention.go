package calibrate

import (
	"slices"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// InterferenceResult is about slowdown beside a noisy neighbour.
type InterferenceResult struct {
	Reason string              `json:"reason,omitempty"`
	MAPE   *float64            `json:"mape"`
	Held   int                 `json:"held_out"`
	Teams  map[string]*float64 `json:"by_team,omitempty"`
	// Of the runs of a team that did not measure them alone; Unpredicted are those that nobody else did either.
	Unbased      int                                      `json:"base_from_other_teams"`
	Unpredicted  int                                      `json:"not_predicted"`
	Threads      *float64                                 `json:"threads_mape"`
	Sensitivity  map[string]map[perfmodel.Shared]*float64 `json:"fitted_to_all,omitempty"`
	SerialShares map[string]float64                       `json:"serial_share,omitempty"`
	points       []Point
}

// validateContention leaves one team's measurements out at a time, fits the others,
// and predicts the slowdown in the team's.
func validateContention(in *inputs) InterferenceResult {
	r := InterferenceResult{Reason: in.why(parsecFile)}
	if r.Reason != "" {
		return r
	}
	teams := map[string][]Contended{}
	for _, c := range in.contended {
		teams[c.Team] = append(teams[c.Team], c)
	}
	r.Teams = map[string]*float64{}
	for _, team := range names(teams) {
		m := fitContention(slices.DeleteFunc(slices.Clone(in.contended), func(c Contended) bool { return c.Team == team }))
		points := r.predict(m, teams[team], len(teams) > 1)
		r.Teams[team], r.points = mape(points), append(r.points, points...)
	}
	r.MAPE, r.Held = mape(r.points), len(r.points)
	if r.MAPE == nil {
		r.Reason = "leaving a team out takes two teams that measured interference"
	}
	r.Sensitivity = rounded(fitContention(in.contended).sensitivity)
	r.Threads, r.SerialShares = validateThreads(in.threaded), fitSerial(in.threaded)
	return r
}

func rounded(m map[string]perfmodel.Sensitivity) map[string]map[perfmodel.Shared]*float64 {
	out := map[string]map[perfmodel.Shared]*float64{}
	for w, s := range m {
		out[w] = map[perfmodel.Shared]*float64{}
		for r, v := range s {
			out[w][r] = figure(v)
		}
	}
	return out
}

// predict takes the held-out team's own runs alone as its base, and the fitting
// teams' where it has none.
func (r *InterferenceResult) predict(m *contention, held []Contended, others bool) []Point {
	own := bases(held)
	var points []Point
	for _, c := range held {
		if c.Resource == alone {
			continue
		}
		base, ok := own.mean(job{c.Team, c.Workload})
		if !ok {
			base, ok = m.base[c.Workload]
			r.Unbased++
		}
		if !ok || !others {
			r.Unpredicted++
			continue
		}
		points = append(points, Point{c.Team, c.Seconds, base * m.slowdown(c.Workload, c.Resource)})
	}
	return points
}

// validateThreads leaves one team out and predicts its speedups from the serial
// shares that the others show; a workload that is not known takes the median
// share.
func validateThreads(runs []Threaded) *float64 {
	teams := map[string][]Threaded{}
	for _, r := range runs {
		teams[r.Team] = append(teams[r.Team], r)
	}
	var points []Point
	for _, team := range names(teams) {
		serial := fitSerial(slices.DeleteFunc(slices.Clone(runs), func(r Threaded) bool { return r.Team == team }))
		if len(serial) == 0 {
			continue
		}
		var shares []float64
		for _, w := range names(serial) {
			shares = append(shares, serial[w])
		}
		ups := speedups(teams[team])
		for _, w := range names(ups) {
			share, known := serial[w]
			if !known {
				share = median(shares)
			}
			for _, u := range ups[w] {
				points = append(points, Point{team, u.times, perfmodel.Amdahl(share, u.threads)})
			}
		}
	}
	return mape(points)
}
