// Package slo measures a workload's service-level indicators: latency at the
// objective's percentile, and throughput.
//
// By default they come from the pods' own Prometheus histograms, which the node
// agents scrape and report. [Meter] merges them over pods and over a sliding
// window. [Prometheus] asks a Prometheus server instead. With too few requests
// an indicator is unknown.
package slo

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// Reading is what was measured over a window. What is not in Observed is unknown.
type Reading struct {
	Observed   mdp.Set // of Latency, Throughput, LoadChange
	Latency    time.Duration
	Throughput mdp.Rate
	LoadChange mdp.Ratio
	Problem    string // why something is unknown, for people
}

// Unread is the problem of a reading for which no node reported a histogram or
// a reason.
const Unread = "no pod's histogram has been read"

// Meter turns cumulative histograms of pods into readings. It is used by one goroutine.
type Meter struct {
	Percentile  float64       // of latency, in (0, 100)
	Window      time.Duration // of the latency; throughput is of the last step
	MinRequests uint64        // with fewer requests in the window the latency is unknown

	last  map[string]api.Histogram // by pod UID
	at    time.Time                // of the last reading
	steps []step                   // of the window
	rate  mdp.Rate                 // throughput of the step before
	rated bool                     // rate is known
}

// step is the requests between two readings.
type step struct {
	at        time.Time
	histogram api.Histogram
}

// NewMeter makes a meter of a percentile, in (0, 100), with the default window.
func NewMeter(percentile float64) *Meter {
	return &Meter{
		Percentile:  percentile,
		Window:      20 * time.Second,
		MinRequests: 20,
		last:        map[string]api.Histogram{},
	}
}

// Read takes in the cumulative histograms of all pods, by pod UID, at the time
// now. A new pod counts from its second reading on, because the age of its
// first counts is not known. A pod that is gone is forgotten.
func (m *Meter) Read(now time.Time, pods map[string]api.Histogram) Reading {
	var r Reading
	var sum api.Histogram
	before := m.last
	m.last = make(map[string]api.Histogram, len(pods))
	counted := 0
	for uid, h := range pods {
		if !h.Known() {
			continue
		}
		m.last[uid] = h
		old, ok := before[uid]
		if !ok {
			continue
		}
		d, ok := h.Since(old)
		if !ok {
			continue
		}
		merged, err := sum.Plus(d)
		if err != nil {
			r.Problem = err.Error()
			continue
		}
		sum = merged
		counted++
	}
	elapsed := now.Sub(m.at)
	first := m.at.IsZero()
	m.at = now
	if counted == 0 || first || elapsed <= 0 {
		m.rated = false
		if len(m.last) == 0 && r.Problem == "" {
			r.Problem = Unread
		}
		return r
	}
	r.Throughput = mdp.Rate(float64(sum.Total()) / elapsed.Seconds())
	r.Observed |= mdp.SetOf(mdp.Throughput)
	if m.rated && m.rate > 0 {
		r.LoadChange = mdp.Ratio(r.Throughput / m.rate)
		r.Observed |= mdp.SetOf(mdp.LoadChange)
	}
	m.rate, m.rated = r.Throughput, true

	m.steps = append(m.steps, step{now, sum})
	var window api.Histogram
	kept := m.steps[:0]
	for _, s := range m.steps {
		if now.Sub(s.at) >= m.Window {
			continue
		}
		kept = append(kept, s)
		if merged, err := window.Plus(s.histogram); err == nil {
			window = merged
		}
	}
	m.steps = kept
	if n := window.Total(); n < m.MinRequests {
		if n > 0 {
			r.Problem = fmt.Sprintf("%d requests in %v: too few for a percentile", n, m.Window)
		}
		return r
	}
	latency, ok := window.Quantile(m.Percentile)
	if ok {
		r.Latency = latency
		r.Observed |= mdp.SetOf(mdp.Latency)
	}
	return r
}
