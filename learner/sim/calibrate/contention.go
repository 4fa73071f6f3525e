package calibrate

import (
	"math"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// contention is the sensitivity of workloads to pressure on shared resources.
type contention struct {
	base        map[string]float64 // duration alone in seconds, per workload: geometric mean over the fitted teams
	sensitivity map[string]perfmodel.Sensitivity
	typical     perfmodel.Sensitivity // geometric mean over workloads, for unknown workloads
	general     float64               // mean over all resources, for resources without measurements
}

// logMeans collects logarithms by key and computes their means.
type logMeans[K comparable] struct {
	sum map[K]float64
	n   map[K]float64
}

func newLogMeans[K comparable]() logMeans[K] { return logMeans[K]{map[K]float64{}, map[K]float64{}} }

func (m logMeans[K]) add(k K, v float64) { m.sum[k] += math.Log(v); m.n[k]++ }

func (m logMeans[K]) mean(k K) (float64, bool) {
	if m.n[k] == 0 {
		return 0, false
	}
	return math.Exp(m.sum[k] / m.n[k]), true
}

type job struct{ team, workload string }

// bases returns the durations in seconds of each team's workloads without a
// neighbour.
func bases(runs []Contended) logMeans[job] {
	m := newLogMeans[job]()
	for _, r := range runs {
		if r.Resource == alone {
			m.add(job{r.Team, r.Workload}, r.Seconds)
		}
	}
	return m
}

type exposure struct {
	workload string
	resource perfmodel.Shared
}

// fitContention computes each slowdown relative to the same team's run alone,
// and the geometric mean: first over the runs of a team, then over the teams,
// so that each team has the same weight.
func fitContention(runs []Contended) *contention {
	base := bases(runs)
	type cell struct {
		job
		resource perfmodel.Shared
	}
	byTeam := newLogMeans[cell]()
	var cells []cell
	for _, r := range runs {
		c := cell{job{r.Team, r.Workload}, r.Resource}
		if b, ok := base.mean(c.job); ok && r.Resource != alone {
			if byTeam.n[c] == 0 {
				cells = append(cells, c)
			}
			byTeam.add(c, r.Seconds/b)
		}
	}
	byWorkload, typical, general := newLogMeans[exposure](), newLogMeans[perfmodel.Shared](), newLogMeans[bool]()
	for _, c := range cells {
		f, _ := byTeam.mean(c)
		byWorkload.add(exposure{c.workload, c.resource}, f)
		typical.add(c.resource, f)
		general.add(true, f)
	}
	m := &contention{
		base:        map[string]float64{},
		sensitivity: map[string]perfmodel.Sensitivity{},
		typical:     perfmodel.Sensitivity{},
	}
	m.learn(runs, byWorkload, typical)
	if f, ok := general.mean(true); ok {
		m.general = max(0, f-1)
	}
	return m
}

// learn converts mean slowdowns to sensitivities: slowdown - 1 at full pressure
// on one resource. Pressure never makes a run faster, so a negative value
// becomes 0.
func (m *contention) learn(runs []Contended, byWorkload logMeans[exposure], typical logMeans[perfmodel.Shared]) {
	times := newLogMeans[string]()
	for _, r := range runs {
		if r.Resource == alone {
			times.add(r.Workload, r.Seconds)
			continue
		}
		if f, ok := byWorkload.mean(exposure{r.Workload, r.Resource}); ok {
			if m.sensitivity[r.Workload] == nil {
				m.sensitivity[r.Workload] = perfmodel.Sensitivity{}
			}
			m.sensitivity[r.Workload][r.Resource] = max(0, f-1)
		}
		if f, ok := typical.mean(r.Resource); ok {
			m.typical[r.Resource] = max(0, f-1)
		}
	}
	for w := range times.n {
		m.base[w], _ = times.mean(w)
	}
}

// slowdown predicts the slowdown of a workload under full pressure on one
// resource.
func (m *contention) slowdown(workload string, r perfmodel.Shared) float64 {
	s := m.general
	if v, ok := m.typical[r]; ok {
		s = v
	}
	if v, ok := m.sensitivity[workload][r]; ok {
		s = v
	}
	return perfmodel.Slowdown(perfmodel.Sensitivity{r: s}, perfmodel.Pressure{r: 1})
}

// fitSerial fits the serial share of each workload (Amdahl) to its speedups
// relative to one thread, with the least mean absolute log error. It skips
// workloads without runs on one thread and on several threads.
func fitSerial(runs []Threaded) map[string]float64 {
	ups := speedups(runs)
	out := map[string]float64{}
	for _, w := range names(ups) {
		lowest := math.Inf(1)
		for i := range 201 {
			share, cost := float64(i)/200, 0.0
			for _, u := range ups[w] {
				cost += math.Abs(math.Log(u.times / perfmodel.Amdahl(share, u.threads)))
			}
			if cost < lowest {
				out[w], lowest = share, cost
			}
		}
	}
	return out
}

type speedup struct{ threads, times float64 }

func speedups(runs []Threaded) map[string][]speedup {
	single := newLogMeans[job]()
	for _, r := range runs {
		if r.Threads == 1 {
			single.add(job{r.Team, r.Workload}, r.Seconds)
		}
	}
	out := map[string][]speedup{}
	for _, r := range runs {
		if b, ok := single.mean(job{r.Team, r.Workload}); ok && r.Threads > 1 {
			out[r.Workload] = append(out[r.Workload], speedup{r.Threads, b / r.Seconds})
		}
	}
	return out
}
