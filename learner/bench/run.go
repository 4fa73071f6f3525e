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

// Cell is an application with a load.
type Cell struct {
	Application string // name
	App         sim.App
	Trace       workload.Trace // of the run that is scored
	Warm        workload.Trace // for tuning and for the warm-up of towers; has the mean rate of Trace
	Bin         mdp.Rate       // width of the tower's bins of the request rate
}

// Machines is the cluster of Autothrottle's evaluation: five nodes with 32
// cores.
var Machines = sim.Uniform(5, mdp.Size{CPU: 32_000, Memory: 128 << 30})

// WarmUp is the time for which a policy runs with the start of the trace before
// the scored run. The trace then starts again.
const WarmUp = 12 * time.Minute

// Score is the result of a run.
type Score struct {
	Cores       float64       `json:"cores"`               // mean of the CPU limits, in cores
	Used        float64       `json:"used_cores"`          // mean CPU use, in cores
	MemoryGiB   float64       `json:"memory_gib"`          // mean of the memory limits, in GiB
	P99         time.Duration `json:"-"`                   // percentile of the SLO over the whole run
	P99MS       float64       `json:"p99_ms"`              // P99 in milliseconds
	Violates    bool          `json:"violates"`            // P99 is above the SLO
	Ratio       float64       `json:"slo_violation_ratio"` // share of the 10 s windows with a p99 above the SLO
	Mitigate    float64       `json:"time_to_mitigate_s"`  // mean length of a sequence of such windows, in seconds
	Flapping    float64       `json:"flapping"`            // variation of the allocation around its trend; see flapping
	Started     int           `json:"replicas_started"`
	Resizes     int           `json:"resizes"` // of replicas
	OOMKills    int           `json:"oom_kills"`
	RateMean    float64       `json:"requests_per_s"`
	WindowCount int           `json:"windows"`
}

// Point describes one window of a run, for display.
type Point struct {
	Second float64 // time since the start of the scored run
	Rate   float64 // requests per second
	P99    float64 // in seconds; 0 when there were no requests
	Cores  float64 // CPU limits, in cores
	Used   float64 // CPU use, in cores
}

// Options are the options of a run.
type Options struct {
	Seed     uint64
	Fidelity sim.Fidelity
	Watch    func(Point)        // called after every window; may be nil
	Length   time.Duration      // of the scored run; 0 is the length of the trace
	After    func(*tower.Tower) // called with the tower at the end; may be nil
	Tower    *tower.Tower       // a warm tower; nil is a new one
}

// sequence is the load first until a time, then the load next.
type sequence struct {
	first sim.Load
	until time.Duration
	next  sim.Load
}

// Rate implements [sim.Load].
func (t sequence) Rate(at time.Duration) mdp.Rate {
	if at < t.until {
		return t.first.Rate(at)
	}
	return t.next.Rate(at - t.until)
}

// Run runs a choice in a cell.
func Run(ctx context.Context, cell Cell, c Choice, o Options) (Score, error) {
	fail := func(err error) (Score, error) {
		return Score{}, fmt.Errorf("%s under %s with %s: %w", cell.Application, cell.Trace.Name, c.Policy, err)
	}
	if o.Length == 0 {
		o.Length = cell.Trace.Length()
	}
	w, err := sim.New(sim.Config{
		App:      cell.App,
		Cluster:  Machines,
		Load:     sequence{first: cell.Trace, until: WarmUp, next: cell.Trace},
		Seed:     o.Seed,
		Fidelity: o.Fidelity,
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

// window is the interval of the measurements.
const window = 10 * time.Second

// meter measures a run.
type meter struct {
	world    *sim.World
	slo      mdp.SLO
	watch    func(Point)
	from     sim.Snapshot // at the start
	last     sim.Totals   // at the end of the last window
	alloc    []float64    // allocated cores in each window
	bad      int          // windows that violate the SLO
	episodes int          // sequences of such windows
	inside   bool         // the last window violates the SLO
	windows  int          // windows so far
}

// newMeter starts a measurement now.
func newMeter(w *sim.World, slo mdp.SLO, watch func(Point)) *meter {
	m := w.Snapshot()
	return &meter{world: w, slo: slo, watch: watch, from: m, last: m.Totals}
}

// window measures the window that ends now.
func (m *meter) window() {
	now := m.world.Totals()
	seconds := window.Seconds()
	cores := (now.Allocated - m.last.Allocated) / seconds
	m.alloc = append(m.alloc, math.Round(cores*1e6)/1e6) // removes rounding errors of the sums
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
			Second: (now.Elapsed - m.from.Totals.Elapsed).Seconds(),
			Rate:   (now.Requests - m.last.Requests) / seconds,
			P99:    l.Seconds(),
			Cores:  cores,
			Used:   (now.Used - m.last.Used) / seconds,
		})
	}
	m.last = now
}

// score is the result of the measurement up to now.
func (m *meter) score() Score {
	now, from := m.world.Totals(), m.from.Totals
	seconds := (now.Elapsed - from.Elapsed).Seconds()
	s := Score{
		Cores:       (now.Allocated - from.Allocated) / seconds,
		Used:        (now.Used - from.Used) / seconds,
		MemoryGiB:   (now.Memory - from.Memory) / seconds / (1 << 30),
		Started:     now.Started - from.Started,
		Resizes:     now.Resizes - from.Resizes,
		OOMKills:    now.OOMKills - from.OOMKills,
		RateMean:    (now.Requests - from.Requests) / seconds,
		Flapping:    flapping(m.alloc),
		WindowCount: m.windows,
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

// flapping is the total variation of an allocation minus the total variation of
// its trend (the moving mean over five minutes), divided by the mean
// allocation, per hour. It measures increases and decreases that cancel each
// other.
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
