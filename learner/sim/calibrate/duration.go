package calibrate

import (
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// throttles are the exponents that the fit tries. 1 is ideal; above 1, small
// CPU limits cost more than their share.
var throttles = []float64{0.7, 0.85, 1, 1.15, 1.3, 1.5, 1.75, 2}

const (
	throttlePrior = 0.002 // weight of (throttle-1)^2 against the mean squared relative error
	mostParallel  = 24    // number of parallelisms that the fit tries
	fewSizes      = 3     // a series with fewer sizes uses the floor share of its family
)

// familyModel predicts the duration of the runs of one family. All its series
// share parallelism and throttle. Each series has its own floor and work.
type familyModel struct {
	parallel float64 // cores
	throttle float64 // exponent
	series   map[string]perfmodel.Work
	inputs   map[string]float64 // bytes of input, per series
}

// observed is one series of successful runs.
type observed struct {
	input  float64   // bytes
	cpu    []float64 // cores, per run
	millis []float64 // duration in ms, per run
}

// fitFamily fits a model to the successful runs of one family. It returns nil
// when there are none.
func fitFamily(runs []Run) *familyModel {
	series := map[string]*observed{}
	for _, r := range runs {
		if series[r.Series] == nil {
			series[r.Series] = &observed{input: r.Input}
		}
		s := series[r.Series]
		s.cpu, s.millis = append(s.cpu, r.CPU), append(s.millis, r.Millis)
	}
	if len(series) == 0 {
		return nil
	}
	f := bestShape(series, parallelisms(runs))
	f.inputs = map[string]float64{}
	for _, name := range names(series) {
		f.inputs[name] = series[name].input
		if len(distinct(series[name].cpu)) < fewSizes {
			f.series[name] = f.borrowed(series, name)
		}
	}
	return f
}

// names returns the keys of a map in alphabetical order, so that sums do not
// depend on the order of maps.
func names[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func distinct(v []float64) []float64 { return slices.Compact(slices.Sorted(slices.Values(v))) }

// parallelisms returns the values to try: first no limit, which then wins ties,
// then values from the largest observed CPU limit downwards.
func parallelisms(runs []Run) []float64 {
	var cpus []float64
	for _, r := range runs {
		cpus = append(cpus, r.CPU)
	}
	cpus = distinct(cpus)
	var some []float64
	for i, c := range cpus {
		some = append(some, c)
		if i > 0 {
			some = append(some, (c+cpus[i-1])/2)
		}
	}
	slices.Sort(some)
	out := []float64{math.Inf(1)}
	step := max(1, (len(some)+mostParallel-1)/mostParallel)
	for i := len(some) - 1; i >= 0; i -= step {
		out = append(out, some[i])
	}
	return out
}

func bestShape(series map[string]*observed, parallel []float64) *familyModel {
	var best *familyModel
	lowest := math.Inf(1)
	for _, p := range parallel {
		for _, a := range throttles {
			f := &familyModel{parallel: p, throttle: a, series: map[string]perfmodel.Work{}}
			cost, n := 0.0, 0
			for _, name := range names(series) {
				w, e := fitWork(series[name], p, a)
				f.series[name] = w
				cost, n = cost+e, n+len(series[name].cpu)
			}
			cost = cost/float64(n) + throttlePrior*(a-1)*(a-1)
			if best == nil || cost < lowest-1e-12 {
				best, lowest = f, cost
			}
		}
	}
	return best
}

// fitWork computes the non-negative floor and work with the least squared
// relative error. The second result is this error.
func fitWork(s *observed, parallel, throttle float64) (perfmodel.Work, float64) {
	var aa, ab, bb, ay, by float64
	for i, t := range s.millis {
		a, b := 1/t, perfmodel.Share(s.cpu[i], parallel, throttle)/t
		aa, ab, bb, ay, by = aa+a*a, ab+a*b, bb+b*b, ay+a, by+b
	}
	type pair struct{ floor, work float64 }
	trials := []pair{{ay / aa, 0}, {0, by / bb}}
	if det := aa*bb - ab*ab; det > 1e-9*aa*bb {
		if p := (pair{(ay*bb - by*ab) / det, (aa*by - ab*ay) / det}); p.floor >= 0 && p.work >= 0 {
			trials = []pair{p}
		}
	}
	var best pair
	lowest := math.Inf(1)
	for _, p := range trials {
		e := p.floor*p.floor*aa + 2*p.floor*p.work*ab + p.work*p.work*bb - 2*p.floor*ay - 2*p.work*by + float64(len(s.cpu))
		if e < lowest {
			best, lowest = p, e
		}
	}
	return perfmodel.Work{
		Floor:    best.floor / 1000,
		CPU:      best.work / 1000,
		Parallel: parallel,
		Throttle: throttle,
	}, max(0, lowest)
}

// borrowed fits a series with few sizes. It uses the median floor share, at one
// core, of the other series in the family, and fits only the level.
func (f *familyModel) borrowed(series map[string]*observed, name string) perfmodel.Work {
	var shares []float64
	for _, other := range names(series) {
		if w := f.series[other]; len(distinct(series[other].cpu)) >= fewSizes && w.Floor+w.CPU > 0 {
			shares = append(shares, w.Floor/(w.Floor+w.CPU))
		}
	}
	if len(shares) == 0 {
		return f.series[name]
	}
	w := perfmodel.Work{
		Floor:    median(shares),
		CPU:      1 - median(shares),
		Parallel: f.parallel,
		Throttle: f.throttle,
	}
	var levels []float64
	for i, cpu := range series[name].cpu {
		shape, _ := w.Duration(cpu, 0)
		levels = append(levels, series[name].millis[i]/1000/shape)
	}
	level := median(levels)
	w.Floor, w.CPU = w.Floor*level, w.CPU*level
	return w
}

// millis predicts the duration of a run in ms. For an unknown series it uses
// the series of the family with the closest input (by ratio; of equal ones the
// first by name). ok is false when there is none.
func (f *familyModel) millis(r Run) (t float64, ok bool) {
	if f == nil {
		return 0, false
	}
	w, known := f.series[r.Series]
	if !known {
		w = f.series[f.closest(r.Input)]
	}
	d, err := w.Duration(r.CPU, r.Memory)
	return 1000 * d, err == nil
}

// floorShare is the share of the time on one core that more CPU does not
// shorten; the median over the series.
func (f *familyModel) floorShare() *float64 {
	var shares []float64
	for _, name := range names(f.series) {
		if w := f.series[name]; w.Floor+w.CPU > 0 {
			shares = append(shares, w.Floor/(w.Floor+w.CPU))
		}
	}
	return figure(median(shares))
}

func (f *familyModel) closest(input float64) string {
	best, lowest := "", math.Inf(1)
	for _, name := range names(f.inputs) {
		if d := math.Abs(math.Log((1 + input) / (1 + f.inputs[name]))); d < lowest {
			best, lowest = name, d
		}
	}
	return best
}

// cliff is the memory need of a series, in bytes. The prediction "runs with a
// lower limit fail" makes the fewest errors on the fitted runs with this value.
// It is 0 when no run failed.
func cliff(runs []Run) float64 {
	limits := []float64{0}
	for _, r := range runs {
		limits = append(limits, r.Memory, math.Nextafter(r.Memory, math.Inf(1)))
	}
	best, fewest := 0.0, len(runs)+1
	for _, limit := range distinct(limits) {
		wrong := 0
		for _, r := range runs {
			if (r.Memory < limit) != r.Failed {
				wrong++
			}
		}
		if wrong < fewest {
			best, fewest = limit, wrong
		}
	}
	return best
}
