package bench

import (
	"context"
	"math"
	"slices"
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

	// What else can differ between cells. The zero values are [workload.Machines],
	// no anomaly, and metrics without delay.
	Cluster   sim.Cluster
	Anomalies []sim.Anomaly // times count from the start of the scored run; see Disturb
	Metrics   time.Duration // age of what rules that act through the API observe; see Delay

	tunedFor string // trace whose tuned settings the baselines have; empty is Trace
}

// Before a scored run a policy drives the application for WarmUp under the
// warm-up trace, and for Ramp while the rate goes from there to the first second
// of the cell's trace. Neither is counted. Nothing of the cell's trace is seen
// before it counts but its mean rate and its first second.
const (
	WarmUp = 12 * time.Minute
	Ramp   = 3 * time.Minute
	lead   = WarmUp + Ramp
)

// Score is the result of a run.
type Score struct {
	Cores       float64       `json:"cores"`                 // mean of the CPU limits in force, in cores, with what resizes cost
	Acting      float64       `json:"acting_cores"`          // of Cores, the mean cost of the agents' calls
	Used        float64       `json:"used_cores"`            // mean CPU use of the application, in cores
	MemoryGiB   float64       `json:"memory_gib"`            // mean of the memory limits, in GiB
	P99         time.Duration `json:"-"`                     // percentile of the SLO over the whole run
	P99MS       float64       `json:"p99_ms"`                // P99 in milliseconds
	LostRatio   float64       `json:"lost_ratio"`            // share of the requests that got no answer in time; open ones are lost
	Late        float64       `json:"background_late_ratio"` // share of the background work that failed, was late or is left undone
	Violates    bool          `json:"violates"`              // it breaks one of the promises: P99, lost requests, background work
	Ratio       float64       `json:"windows_over"`          // share of the 10 s windows with a p99 above the SLO
	Reward      float64       `json:"reward"`                // mean reward of the services in the windows that can be judged
	Judged      float64       `json:"reward_coverage"`       // share of the windows that can be judged
	Mitigate    float64       `json:"time_to_mitigate_s"`    // mean length of a sequence of such windows, in seconds
	Flapping    float64       `json:"flapping"`              // variation of the allocation around its trend; see flapping
	Started     int           `json:"replicas_started"`
	Resizes     int           `json:"resizes"` // of replicas
	Calls       int           `json:"calls"`   // of container runtimes by the nodes' agents
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
	Lead     time.Duration      // before the scored run, a fifth of it the ramp; 0 is WarmUp and Ramp
	After    func(*tower.Tower) // called with the tower at the end; may be nil
	Tower    *tower.Tower       // a warm tower; nil is a new one
	Tail     func(above Above)  // called at the end; may be nil
}

// Above is the share of a run's requests that took longer than a latency.
type Above func(latency time.Duration) float64

// sequence is the load of a run: the warm-up trace, a ramp, the cell's trace.
type sequence struct {
	warm, trace sim.Load
	lead        time.Duration // before the trace
}

// Rate implements [sim.Load].
func (t sequence) Rate(at time.Duration) mdp.Rate {
	warm := t.lead - t.lead/(lead/Ramp)
	switch {
	case at < warm:
		return t.warm.Rate(at)
	case at < t.lead:
		from, to := t.warm.Rate(warm-time.Second), t.trace.Rate(0)
		done := float64(at-warm) / float64(t.lead-warm)
		return from + mdp.Rate(done)*(to-from)
	}
	return t.trace.Rate(at - t.lead)
}

// world is the world of a run. Where a policy acts on the nodes, the limits in
// the API are as high as the owner allows: a rule that does not set them is not
// held back by them.
func (c Cell) world(path sim.ActuationPath, o Options) (*sim.World, error) {
	app, metrics := c.App, c.Metrics
	if path != sim.L2 {
		metrics = 0
		app.Services = slices.Clone(app.Services)
		for i := range app.Services {
			s := &app.Services[i]
			s.Ceiling = mdp.Size{CPU: s.Bounds.CPU.Max, Memory: s.Bounds.Memory.Max}
		}
	}
	anomalies := slices.Clone(c.Anomalies)
	for i := range anomalies {
		anomalies[i].From += o.Lead
		anomalies[i].To += o.Lead
	}
	return sim.New(sim.Config{
		App:       app,
		Cluster:   c.machines(),
		Load:      sequence{warm: c.Warm, trace: c.Trace, lead: o.Lead},
		Anomalies: anomalies,
		Seed:      o.Seed,
		Fidelity:  o.Fidelity,
		Metrics:   metrics,
	})
}

// machines is the cluster of the cell.
func (c Cell) machines() sim.Cluster {
	if len(c.Cluster.Nodes) == 0 {
		return workload.Machines
	}
	return c.Cluster
}

// Run runs a choice in a cell.
func Run(ctx context.Context, cell Cell, c Choice, o Options) (Score, error) {
	s, err := Open(ctx, cell, c, o)
	if err != nil {
		return Score{}, err
	}
	err = s.run(ctx)
	if ended := s.Close(ctx); err == nil {
		err = ended
	}
	if err != nil {
		return Score{}, s.fail(err)
	}
	if o.After != nil {
		o.After(s.driver.tower)
	}
	if o.Tail != nil {
		o.Tail(func(latency time.Duration) float64 { return s.driver.world.Above(s.meter.from, latency) })
	}
	return s.Score(), nil
}

// Window is the interval of the measurements.
const Window = 10 * time.Second

// objective is what every service of an application is rewarded for.
func objective(app sim.App) mdp.Objective { return mdp.Objective{SLO: app.SLO, Alpha: 0.5} }

// meter measures a run.
type meter struct {
	goal     mdp.Objective
	sensors  []mdp.Sensor // of the services, for the rewards
	rewards  rewards
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
func newMeter(w *sim.World, app sim.App, watch func(Point)) *meter {
	s := w.Snapshot()
	m := &meter{world: w, slo: app.SLO, goal: objective(app), watch: watch, from: s, last: s.Totals}
	for _, h := range w.Services() {
		m.sensors = append(m.sensors, h.Sensor())
	}
	return m
}

// window measures the window that ends now.
func (m *meter) window(ctx context.Context) error {
	for _, sensor := range m.sensors {
		s, err := sensor.Sense(ctx, m.world.Now())
		if err != nil {
			return err
		}
		m.rewards.add(m.goal.Judge(s))
	}
	now := m.world.Totals()
	seconds := Window.Seconds()
	cores := (now.Allocated - m.last.Allocated) / seconds
	m.alloc = append(m.alloc, math.Round(cores*1e6)/1e6) // removes rounding errors of the sums
	m.windows++
	l, ok := m.world.Latency(m.slo.Percentile)
	// A window in which requests came and none ended is over the SLO too.
	violated := ok && l > m.slo.Latency || !ok && now.Requests > m.last.Requests
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
	return nil
}

// score is the result of the measurement up to now.
func (m *meter) score() Score {
	now, from := m.world.Totals(), m.from.Totals
	seconds := (now.Elapsed - from.Elapsed).Seconds()
	s := Score{
		Cores:       (now.Allocated - from.Allocated + now.Acting - from.Acting) / seconds,
		Acting:      (now.Acting - from.Acting) / seconds,
		Used:        (now.Used - from.Used) / seconds,
		MemoryGiB:   (now.Memory - from.Memory) / seconds / (1 << 30),
		Started:     now.Started - from.Started,
		Resizes:     now.Resizes - from.Resizes,
		Calls:       now.Calls - from.Calls,
		OOMKills:    now.OOMKills - from.OOMKills,
		RateMean:    (now.Requests - from.Requests) / seconds,
		Flapping:    flapping(m.alloc),
		WindowCount: m.windows,
	}
	if m.windows > 0 {
		s.Ratio = float64(m.bad) / float64(m.windows)
	}
	if m.episodes > 0 {
		s.Mitigate = float64(m.bad) / float64(m.episodes) * Window.Seconds()
	}
	s.P99, _ = m.world.Overall(m.from, m.slo.Percentile)
	s.P99MS = float64(s.P99) / float64(time.Millisecond)
	s.Reward, s.Judged = m.rewards.mean()
	clients, tasks := m.world.Open()
	s.LostRatio = part(now.Lost-from.Lost+clients, now.Requests-from.Requests)
	s.Late = part(now.TasksLate-from.TasksLate+tasks, now.Tasks-from.Tasks)
	s.Violates = s.breaks(m.slo)
	return s
}

// breaks reports whether a run breaks one of an application's promises.
func (s Score) breaks(slo mdp.SLO) bool {
	return s.P99 > slo.Latency ||
		slo.Lost > 0 && s.LostRatio > float64(slo.Lost) ||
		slo.Background > 0 && s.Late > 1-float64(slo.Background)
}

// part is a share of a whole, 0 of nothing.
func part(share, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return max(0, min(1, share/whole)) // sums of small shares round
}

// rewards are the rewards of all services in the windows of a run.
type rewards struct {
	sum          float64
	known, steps int
}

// add counts a step.
func (r *rewards) add(reward mdp.Reward, known bool) {
	r.steps++
	if known {
		r.known++
		r.sum += float64(reward)
	}
}

// mean is the mean reward of the steps that can be judged, and their share.
func (r rewards) mean() (reward, coverage float64) {
	return r.sum / float64(max(1, r.known)), float64(r.known) / float64(max(1, r.steps))
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
	hours := float64(len(alloc)) * Window.Hours()
	if mean == 0 {
		return 0
	}
	return max(0, raw-smooth) / mean / hours
}
