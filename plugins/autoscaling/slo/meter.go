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
	"math"
	"strings"
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
	Requests   float64   // of which Missed is known, since the reading before; 0: it is not known
	Missed     mdp.Ratio // share of them that took longer than the SLO's latency
	Problem    string    // why something is unknown or not exact, for people
	Unresolved bool      // the latency is unknown because the histogram's buckets do not tell on which side of the SLO it is
}

// Unread is the problem of a reading for which no node reported a histogram or
// a reason.
const Unread = "no pod's histogram has been read"

// Meter turns cumulative histograms of pods into readings. It is used by one goroutine.
type Meter struct {
	Percentile  float64       // of latency, in (0, 100)
	Threshold   time.Duration // of the SLO: the latency is known when it is known on which side of it it is; 0 is none
	Window      time.Duration // of the latency
	MinRequests uint64        // with fewer requests in the window the latency is unknown

	pods  map[string]pod // by UID
	steps []step         // of the window
	rate  mdp.Rate       // throughput of the step before
	rated bool           // rate is known
}

// pod is one pod's last reading.
type pod struct {
	last  api.Histogram
	rate  mdp.Rate // of requests, between its last two readings
	rated bool     // rate is known
}

// step is the requests that were new at one time.
type step struct {
	at        time.Time
	histogram api.Histogram
}

// NewMeter makes a meter of a percentile, in (0, 100), for an SLO's threshold, with the
// default window: a pod's histogram is read every ten seconds.
func NewMeter(percentile float64, threshold time.Duration) *Meter {
	return &Meter{
		Percentile:  percentile,
		Threshold:   threshold,
		Window:      30 * time.Second,
		MinRequests: 20,
		pods:        map[string]pod{},
	}
}

// Read takes in the cumulative histograms of all pods, by pod UID, at the time
// now. A new pod counts from its second reading on, because the age of its
// first counts is not known. A pod that is gone is forgotten.
func (m *Meter) Read(now time.Time, pods map[string]api.Histogram) Reading {
	var r Reading
	before := m.pods
	m.pods = make(map[string]pod, len(pods))
	var sum api.Histogram
	for uid, h := range pods {
		if !h.Known() {
			continue
		}
		if h.At.IsZero() {
			h.At = now
		}
		p, fresh := before[uid].next(h)
		m.pods[uid] = p
		merged, err := sum.Plus(fresh)
		if err != nil {
			r.Problem = err.Error()
			continue
		}
		sum = merged
	}
	if len(m.pods) == 0 && r.Problem == "" {
		r.Problem = Unread
	}
	m.throughput(&r)
	m.latency(now, sum, &r)
	r.miss(sum, m.Threshold, float64(sum.Total()))
	return r
}

// next is the pod after another reading, and the requests that are new in it.
func (p pod) next(h api.Histogram) (after pod, fresh api.Histogram) {
	if !p.last.Known() {
		return pod{last: h}, api.Histogram{}
	}
	took := h.At.Sub(p.last.At)
	if took <= 0 {
		return p, api.Histogram{} // it was not read again
	}
	fresh, ok := h.Since(p.last)
	if !ok {
		return pod{last: h}, api.Histogram{}
	}
	return pod{last: h, rate: mdp.Rate(float64(fresh.Total()) / took.Seconds()), rated: true}, fresh
}

// throughput adds up the pods' rates.
func (m *Meter) throughput(r *Reading) {
	rated := false
	for _, p := range m.pods {
		if p.rated {
			r.Throughput += p.rate
			rated = true
		}
	}
	if !rated {
		m.rated = false
		return
	}
	r.Observed |= mdp.SetOf(mdp.Throughput)
	if m.rated && m.rate > 0 {
		r.LoadChange = mdp.Ratio(r.Throughput / m.rate)
		r.Observed |= mdp.SetOf(mdp.LoadChange)
	}
	m.rate, m.rated = r.Throughput, true
}

// latency adds the new requests to the window, and finds the percentile.
func (m *Meter) latency(now time.Time, fresh api.Histogram, r *Reading) {
	if fresh.Known() {
		m.steps = append(m.steps, step{now, fresh})
	}
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
		return
	}
	r.judge(window, m.Percentile, m.Threshold)
}

// miss sets the share of requests that took longer than a threshold, as far as the histogram says it.
func (r *Reading) miss(h api.Histogram, threshold time.Duration, requests float64) {
	if share, ok := h.Above(threshold); ok && threshold > 0 {
		r.Missed, r.Requests = mdp.Ratio(share), requests
	}
}

// judge sets the latency from a histogram of requests, as far as its buckets tell
// whether it is within a threshold.
func (r *Reading) judge(h api.Histogram, percentile float64, threshold time.Duration) {
	q, ok := h.Quantile(percentile)
	if !ok {
		if h.Total() > 0 {
			r.Problem = "the histogram has no bound but +Inf: it says nothing of latencies"
		}
		return
	}
	_, known := q.Within(threshold)
	known = known || threshold <= 0
	last := q.Upper == math.MaxInt64
	switch {
	case !known && (q.Lower == 0 || last):
		// Neither that the SLO is met is known, nor that it is not.
		r.Unresolved = true
		r.Problem = fmt.Sprintf("whether the p%v is at most %v is not known: it is %v, and the histogram has no bound between "+
			"(it has %s)", percentile, threshold, side(q), bounds(h.Upper))
		return
	case !known:
		r.Problem = fmt.Sprintf("the p%v is estimated between %v and %v: the histogram has no bound at %v (it has %s)",
			percentile, q.Lower, q.Upper, threshold, bounds(h.Upper))
	case q.Lower == 0:
		r.Problem = fmt.Sprintf("the p%v is at most %v, the first bound of the histogram (it has %s)", percentile, q.Upper,
			bounds(h.Upper))
	}
	r.Latency = q.Latency
	r.Observed |= mdp.SetOf(mdp.Latency)
}

// side says where a quantile in the first or the last bucket is.
func side(q api.Quantile) string {
	if q.Lower == 0 {
		return fmt.Sprintf("at most %v", q.Upper)
	}
	return fmt.Sprintf("above %v", q.Lower)
}

// bounds names the bounds of a histogram, the first ten of them.
func bounds(upper []float64) string {
	var names []string
	for i, b := range upper {
		if math.IsInf(b, 1) {
			continue
		}
		if i == 10 {
			names = append(names, "...")
			break
		}
		names = append(names, fmt.Sprintf("%v", time.Duration(b*float64(time.Second))))
	}
	return strings.Join(names, ", ")
}
