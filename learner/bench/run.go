package bench

import (
	"context"
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
)

// Cell is an application under a load.
type Cell struct {
	Application string
	App         sim.App
	Trace       workload.Trace // counted
	Warm        workload.Trace // the warm-up trace at this cell's mean rate: settings are tuned on it, and towers have their first hours
	Bin         mdp.Rate       // of the tower
}

// Machines are those of Autothrottle's cluster: five of 32 cores.
var Machines = sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 128 << 30})

// WarmUp is how long a policy drives, under the beginning of the trace, before the trace begins anew and is counted.
const WarmUp = 12 * time.Minute

// Score is what came of a run.
type Score struct {
	Cores       float64       `json:"cores"` // mean of allocated cores
	Used        float64       `json:"used_cores"`
	MemoryGiB   float64       `json:"memory_gib"` // mean of memory limits
	P99         time.Duration `json:"-"`          // over the whole run
	P99MS       float64       `json:"p99_ms"`
	Violates    bool          `json:"violates"`            // P99 is above the objective
	Ratio       float64       `json:"slo_violation_ratio"` // of windows of 10 s whose p99 is above it
	Mitigate    float64       `json:"time_to_mitigate_s"`  // mean length of a run of such windows
	Flapping    float64       `json:"flapping"`            // total variation of the allocation against its trend, in means of it, per hour
	Started     int           `json:"replicas_started"`
	Resizes     int           `json:"resizes"`
	OOMKills    int           `json:"oom_kills"`
	RateMean    float64       `json:"requests_per_s"`
	WindowCount int           `json:"windows"`
}

// Point is one window of a run, for people to look at.
type Point struct {
	Second float64 // since the beginning of what is counted
	Rate   float64
	P99    float64 // seconds; 0 is: no requests
	Cores  float64
	Used   float64
}

// Options of a run.
type Options struct {
	Seed     uint64
	Fidelity sim.Fidelity
	Watch    func(Point)        // is shown every window; may be nil
	Length   time.Duration      // of what is counted; 0 is the trace's length
	After    func(*tower.Tower) // is given the tower at the end; may be nil
	Tower    *tower.Tower       // a warm one; nil is a new one
}

// then is one load after another.
type then struct {
	first sim.Load
	until time.Duration
	next  sim.Load
}

func (t then) Rate(at time.Duration) mdp.Rate {
	if at < t.until {
		return t.first.Rate(at)
	}
	return t.next.Rate(at - t.until)
}

// Run lets a choice drive a cell.
func Run(ctx context.Context, cell Cell, c Choice, o Options) (Score, error) {
	fail := func(err error) (Score, error) {
		return Score{}, fmt.Errorf("%s under %s with %s: %w", cell.Application, cell.Trace.Name, c.Policy, err)
	}
	if o.Length == 0 {
		o.Length = cell.Trace.Length()
	}
	w, err := sim.New(sim.Config{
		App: cell.App, Cluster: Machines, Load: then{cell.Trace, WarmUp, cell.Trace}, Seed: o.Seed, Fidelity: o.Fidelity,
	})
	if err != nil {
		return fail(err)
	}
	p, err := c.start(w, cell.App, o.Tower, o.Seed)
	if err != nil {
		return fail(err)
	}
	var m *meter
	for end := WarmUp + o.Length; w.Elapsed() < end; {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		if w.Elapsed() == WarmUp {
			m = newMeter(w, cell.App.SLO, o.Watch)
		}
		if err := p.second(ctx); err != nil {
			return fail(err)
		}
		if m != nil && (w.Elapsed()-WarmUp)%window == 0 {
			m.window()
		}
	}
	if o.After != nil {
		o.After(p.tower)
	}
	return m.score(), nil
}

const window = 10 * time.Second

// meter keeps the books of a run.
type meter struct {
	world    *sim.World
	slo      mdp.SLO
	watch    func(Point)
	from     sim.Snapshot
	last     sim.Totals
	alloc    []float64
	bad      int
	episodes int
	inside   bool
	windows  int
}

func newMeter(w *sim.World, slo mdp.SLO, watch func(Point)) *meter {
	m := w.Snapshot()
	return &meter{world: w, slo: slo, watch: watch, from: m, last: m.Totals}
}

func (m *meter) window() {
	now := m.world.Totals()
	seconds := window.Seconds()
	cores := (now.Allocated - m.last.Allocated) / seconds
	m.alloc = append(m.alloc, math.Round(cores*1e6)/1e6) // what is smaller comes of adding floats
	m.windows++
	l, ok := m.world.Latency(m.slo.Percentile)
	violated := ok && l > m.slo.Latency
	if violated {
		m.bad++
		if !m.inside {
			m.episodes++
		}
	}
	m.inside = violated
	if m.watch != nil {
		m.watch(Point{
			Second: (now.Elapsed - m.from.Totals.Elapsed).Seconds(), Rate: (now.Requests - m.last.Requests) / seconds,
			P99: l.Seconds(), Cores: cores, Used: (now.Used - m.last.Used) / seconds,
		})
	}
	m.last = now
}

func (m *meter) score() Score {
	now, from := m.world.Totals(), m.from.Totals
	seconds := (now.Elapsed - from.Elapsed).Seconds()
	s := Score{
		Cores: (now.Allocated - from.Allocated) / seconds, Used: (now.Used - from.Used) / seconds,
		MemoryGiB: (now.Memory - from.Memory) / seconds / (1 << 30),
		Started:   now.Started - from.Started, Resizes: now.Resizes - from.Resizes, OOMKills: now.OOMKills - from.OOMKills,
		RateMean: (now.Requests - from.Requests) / seconds, Flapping: flapping(m.alloc), WindowCount: m.windows,
	}
	if m.windows > 0 {
		s.Ratio = float64(m.bad) / float64(m.windows)
	}
	if m.episodes > 0 {
		s.Mitigate = float64(m.bad) / float64(m.episodes) * window.Seconds()
	}
	s.P99, _ = m.world.Overall(m.from, m.slo.Percentile)
	s.P99MS = float64(s.P99) / float64(time.Millisecond)
	s.Violates = s.P99 > m.slo.Latency
	return s
}

// flapping is the total variation of an allocation less that of its trend (its moving mean over five minutes), divided by
// its mean, per hour: how many times over the allocation goes up and down for nothing.
func flapping(alloc []float64) float64 {
	const half = 15 // windows on either side
	if len(alloc) < 2 {
		return 0
	}
	sums := make([]float64, len(alloc)+1)
	for i, a := range alloc {
		sums[i+1] = sums[i] + a
	}
	trend := func(i int) float64 {
		lo, hi := max(0, i-half), min(len(alloc), i+half+1)
		return (sums[hi] - sums[lo]) / float64(hi-lo)
	}
	raw, smooth := 0.0, 0.0
	for i := 1; i < len(alloc); i++ {
		raw += math.Abs(alloc[i] - alloc[i-1])
		smooth += math.Abs(trend(i) - trend(i-1))
	}
	mean := sums[len(alloc)] / float64(len(alloc))
	hours := float64(len(alloc)) * window.Hours()
	if mean == 0 {
		return 0
	}
	return max(0, raw-smooth) / mean / hours
}
