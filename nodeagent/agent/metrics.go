package agent

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the agent's own metrics.
type metrics struct {
	containers prometheus.Gauge
	breaker    prometheus.Gauge
	central    prometheus.Gauge
	pressure   *prometheus.GaugeVec
	sample     prometheus.Histogram
	cri        prometheus.Histogram
	resizes    *prometheus.CounterVec
	effects    map[mdp.Effect]prometheus.Counter // of resizes, looked up once
	reliefs    prometheus.Counter
	relief     prometheus.Histogram
	restores   prometheus.Counter
	conflicts  prometheus.Counter
	failures   prometheus.Counter
	cpuSum     *prometheus.GaugeVec
	memorySum  *prometheus.GaugeVec

	uncommitted   prometheus.Gauge
	memoryReliefs prometheus.Counter
}

// reliefBuckets are close to each other, because a relief is to take tens of
// microseconds, and milliseconds at most.
var reliefBuckets = []float64{
	5e-6, 10e-6, 15e-6, 20e-6, 30e-6, 50e-6, 75e-6,
	100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.2, 1,
}

// newMetrics makes the metrics, and registers them unless r is nil.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		containers: gauge("aware_agent_containers", "Containers that are observed."),
		breaker:    gauge("aware_agent_breaker_open", "1 while the container runtime is not called for changes."),
		central: gauge("aware_agent_central_last_seen_seconds",
			"Seconds since the last message from central; NaN when there was none."),
		pressure: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aware_agent_node_pressure_ratio",
			Help: "Share of the last 10 s in which tasks of the node waited: some for cpu, all for memory and io.",
		},
			[]string{"resource"}),
		sample: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "aware_agent_sample_duration_seconds",
			Help: "Time to sample all containers once.", Buckets: prometheus.ExponentialBuckets(20e-6, 2, 14)}),
		cri: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "aware_agent_cri_duration_seconds",
			Help:    "Time of one UpdateContainerResources.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .25, .5, 1},
		}),
		resizes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aware_agent_resizes_total",
			Help: "Resizes that were decided, by their effect."}, []string{"effect"}),
		reliefs: counter("aware_agent_reliefs_total",
			"CPU limits that were raised at once, in the sample that showed throttling."),
		memoryReliefs: counter("aware_agent_memory_reliefs_total",
			"Memory limits that were raised at once, in the sample that showed them nearly full."),
		relief: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "aware_agent_relief_duration_seconds",
			Help:    "Time in which the sampler raised a limit: from its decision to the return of the write.",
			Buckets: reliefBuckets,
		}),
		restores: counter("aware_agent_restores_total", "Containers that were restored to their API values."),
		failures: counter("aware_agent_restore_failures_total",
			"Restores that failed, or were written directly because the container runtime did not take them."),
		uncommitted: gauge("aware_agent_uncommitted_seconds",
			"Age of the oldest limit that was written directly and that the container runtime does not know yet."),
		conflicts: counter("aware_agent_conflicts_total", "Changes of a container's limits by somebody else."),
		cpuSum: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aware_agent_cpu_limits_cores",
			Help: "Sum of the CPU limits of managed containers: " +
				"in force, asked for, and permitted by central (NaN without a permit).",
		}, []string{"what"}),
		memorySum: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aware_agent_memory_limits_bytes",
			Help: "Sum of the memory limits of managed containers: " +
				"in force, asked for, and permitted by central (NaN without a permit).",
		}, []string{"what"}),
	}
	m.central.Set(math.NaN())
	m.effects = map[mdp.Effect]prometheus.Counter{}
	for e := range mdp.Effects() {
		m.effects[e] = m.resizes.WithLabelValues(e.String())
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.containers, m.breaker, m.central, m.pressure, m.sample, m.cri, m.resizes, m.reliefs, m.relief, m.restores,
		m.failures, m.conflicts, m.uncommitted, m.memoryReliefs, m.cpuSum, m.memorySum,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the agent's metrics: %w", err)
		}
	}
	return m, nil
}

// called counts a call of the container runtime.
func (m *metrics) called(took time.Duration) { m.cri.Observe(took.Seconds()) }

// relieved counts a raise by the sampler.
func (m *metrics) relieved(took time.Duration) { m.relief.Observe(took.Seconds()) }

// limits shows what the limits of the managed containers come to.
func (m *metrics) limits(permit api.Permit, account api.Account) {
	show := func(what string, s mdp.Size) {
		m.cpuSum.WithLabelValues(what).Set(float64(s.CPU) / 1000)
		m.memorySum.WithLabelValues(what).Set(float64(s.Memory))
	}
	show("in_force", account.InForce)
	show("asked", account.Asked)
	if permit.Known() {
		show("permitted", permit.Amount)
		return
	}
	m.cpuSum.WithLabelValues("permitted").Set(math.NaN())
	m.memorySum.WithLabelValues("permitted").Set(math.NaN())
}
