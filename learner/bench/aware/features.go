package aware

import (
	"errors"
	"math"
	"slices"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
)

// Features are what TL+ adds to the state (§5.2): a forecast of the load in the next step by ARIMA, and a table of what each
// allocation was worth. The table has the mean SLO preservation that was seen in each of its cells.
type Features struct {
	bounds mdp.Bounds
	slo    mdp.SLO

	loads    []float64 // of the episode, a step each
	ahead    []float64 // forecast, from the last fit on
	sum      [cells]float64
	seen     [cells]int
	failures int // fits without a solution
}

// The table's cells: the knobs' ranges in equal parts of the logarithm.
const (
	replicaParts = 3
	cpuParts     = 4
	memoryParts  = 3
	cells        = replicaParts * cpuParts * memoryParts
)

// width is how many numbers are added: the forecast and whether there is one, and of each cell what it is worth and whether
// it was seen.
const width = 2 + 2*cells

// ARIMA(2, 0, 1) is fitted to the loads of the episode every few steps, and forecasts until the next fit.
const (
	fewestLoads = 20
	refit       = 10
)

// NewFeatures is those of a workload of which nothing is known.
func NewFeatures(bounds mdp.Bounds, slo mdp.SLO) *Features {
	return &Features{bounds: bounds, slo: slo}
}

// begin forgets the load: another episode is at another time.
func (f *Features) begin() { f.loads, f.ahead = nil, nil }

// add takes in what was seen at the end of a step.
func (f *Features) add(s mdp.State) {
	if s.Knows(mdp.Replicas, mdp.CPULimit, mdp.MemoryLimit) {
		if sp, ok := f.slo.Preservation(s); ok {
			at := f.cell(s)
			f.sum[at] += float64(sp)
			f.seen[at]++
		}
	}
	if !s.Knows(mdp.Arrivals) {
		f.begin() // a gap: what was before is not the step before
		return
	}
	f.loads = append(f.loads, float64(s.Arrivals))
	if len(f.ahead) > 0 {
		f.ahead = f.ahead[1:]
	}
	if len(f.ahead) > 0 || len(f.loads) < fewestLoads {
		return
	}
	m, err := fitARMA(f.loads)
	if err != nil {
		f.failures++
		return
	}
	f.ahead = m.forecast(refit)
}

// cell is the table's cell of an allocation.
func (f *Features) cell(s mdp.State) int {
	part := func(v int64, r mdp.Range[int64], parts int) int {
		low, high := math.Log(float64(max(1, r.Min))), math.Log(float64(max(1, r.Max)))
		if high <= low {
			return 0
		}
		return max(0, min(parts-1, int(float64(parts)*(math.Log(float64(max(1, v)))-low)/(high-low))))
	}
	r := part(int64(s.Replicas), f.bounds.Knob(mdp.Replicas), replicaParts)
	c := part(int64(s.Limit.CPU), f.bounds.Knob(mdp.CPULimit), cpuParts)
	m := part(int64(s.Limit.Memory), f.bounds.Knob(mdp.MemoryLimit), memoryParts)
	return (r*cpuParts+c)*memoryParts + m
}

// write writes the features.
func (f *Features) write(to []float64) {
	clear(to)
	if len(f.ahead) > 0 && !math.IsNaN(f.ahead[0]) {
		to[0], to[1] = math.Log2(1+max(0, min(simMost, f.ahead[0])))/5, 1 // on encode's scale of rates
	}
	for i := range cells {
		if f.seen[i] > 0 {
			to[2+2*i], to[3+2*i] = f.sum[i]/float64(f.seen[i]), 1
		}
	}
}

// simMost bounds a forecast: an unstable fit can say anything.
const simMost = 1e6

// featured is an environment with features in its observations.
type featured struct {
	workload.Encoded
	features *Features
	space    env.Space
}

// withFeatures adds features to the observations of an environment. Whoever measures the environment adds to the features.
func withFeatures(e workload.Encoded, f *Features) env.Env {
	low, high := slices.Clone(e.Observation().Low), slices.Clone(e.Observation().High)
	for range width {
		low, high = append(low, math.Inf(-1)), append(high, math.Inf(1))
	}
	return &featured{e, f, env.Space{Low: low, High: high}}
}

// Observation implements [env.Env].
func (f *featured) Observation() env.Space { return f.space }

// Reset implements [env.Env].
func (f *featured) Reset(seed uint64, obs []float64) error {
	f.features.begin()
	n := len(obs) - width
	if err := f.Encoded.Reset(seed, obs[:n]); err != nil {
		return err
	}
	f.features.write(obs[n:])
	return nil
}

// Step implements [env.Env].
func (f *featured) Step(action, obs []float64) (env.Outcome, error) {
	n := len(obs) - width
	out, err := f.Encoded.Step(action, obs[:n])
	f.features.write(obs[n:])
	return out, err
}

// Observe implements [env.Env].
func (f *featured) Observe(obs []float64) error {
	n := len(obs) - width
	f.features.write(obs[n:])
	return f.Encoded.Observe(obs[:n])
}

// MarshalBinary implements [env.Env]: the features are not saved.
func (f *featured) MarshalBinary() ([]byte, error) {
	return nil, errors.New("an environment with features cannot be saved")
}

// UnmarshalBinary implements [env.Env].
func (f *featured) UnmarshalBinary([]byte) error {
	return errors.New("an environment with features cannot be restored")
}
