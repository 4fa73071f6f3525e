package main

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// buckets are in seconds. Neighbours are a factor of 1.3 to 2 apart, which is
// the possible error of a quantile.
var buckets = []float64{
	.001, .0015, .002, .003, .005, .0075,
	.01, .015, .02, .03, .05, .075,
	.1, .15, .2, .3, .5, .75,
	1, 1.5, 2, 3, 5, 10,
}

// metrics are the service's Prometheus metrics. They cover requests for work, not
// probes.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	queued   prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total",
			Help: "Requests that have been answered, by status.",
		}, []string{"code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "http_request_duration_seconds",
			Help:    "Time from accepting a request to the end of its answer, queueing included, by status.",
			Buckets: buckets,
			// The same as a native histogram, if the scraper requests it: each bucket
			// is at most 10 % wider than the one before. With more than 160 buckets it
			// is reset, at most once an hour.
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"code"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "http_requests_in_flight",
			Help: "Requests accepted and not yet answered, queued ones included.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "http_requests_queued",
			Help: "Requests that wait until fewer than --concurrency are worked on.",
		}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.inFlight, m.queued,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// Create the series now: if one appears with the first request, rate() does not
	// count that request.
	m.requests.WithLabelValues("200")
	m.duration.WithLabelValues("200")
	return m
}

func (m *metrics) answered(code int, took time.Duration) {
	label := strconv.Itoa(code)
	m.requests.WithLabelValues(label).Inc()
	m.duration.WithLabelValues(label).Observe(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
