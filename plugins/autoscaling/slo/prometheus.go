package slo

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"time"

	"awarescale.dev/aware/learner/mdp"
	promapi "github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Prometheus reads a workload's indicators from a Prometheus server. The server
// scrapes the pods with the usual labels namespace and pod.
type Prometheus struct {
	api       promv1.API
	server    string
	metric    string
	namespace string
	pods      string // a regular expression of the workload's pod names
	window    string
	p         float64

	rate  mdp.Rate
	rated bool
}

// NewPrometheus makes a reader of a histogram metric, in seconds and without
// suffix, of the pods whose names begin with the workload's name.
func NewPrometheus(server, metric, namespace, workload string, percentile float64) (*Prometheus, error) {
	c, err := promapi.NewClient(promapi.Config{Address: server})
	if err != nil {
		return nil, fmt.Errorf("prometheus server %q: %w", server, err)
	}
	return &Prometheus{api: promv1.NewAPI(c), server: server, metric: metric, namespace: namespace,
		pods: regexp.QuoteMeta(workload) + "-.*", window: "30s", p: percentile / 100}, nil
}

// Read asks the server. What the server does not know is unknown, and the
// reading says why.
func (p *Prometheus) Read(ctx context.Context, now time.Time) Reading {
	var r Reading
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	selector := fmt.Sprintf("{namespace=%q,pod=~%q}[%s]", p.namespace, p.pods, p.window)
	if v, err := p.ask(ctx, now, fmt.Sprintf("sum(rate(%s_count%s))", p.metric, selector)); err != nil {
		r.Problem = err.Error()
		p.rated = false
	} else {
		r.Throughput = mdp.Rate(v)
		r.Observed |= mdp.SetOf(mdp.Throughput)
		if p.rated && p.rate > 0 {
			r.LoadChange = mdp.Ratio(r.Throughput / p.rate)
			r.Observed |= mdp.SetOf(mdp.LoadChange)
		}
		p.rate, p.rated = r.Throughput, true
	}
	quantile := fmt.Sprintf("histogram_quantile(%g, sum by (le) (rate(%s_bucket%s)))", p.p, p.metric, selector)
	if v, err := p.ask(ctx, now, quantile); err != nil {
		r.Problem = err.Error()
	} else {
		r.Latency = time.Duration(v * float64(time.Second))
		r.Observed |= mdp.SetOf(mdp.Latency)
	}
	return r
}

func (p *Prometheus) ask(ctx context.Context, now time.Time, query string) (float64, error) {
	value, _, err := p.api.Query(ctx, query, now)
	if err != nil {
		return 0, fmt.Errorf("asking %s for %s: %w", p.server, query, err)
	}
	v, ok := value.(model.Vector)
	if !ok || len(v) == 0 || math.IsNaN(float64(v[0].Value)) || math.IsInf(float64(v[0].Value), 0) {
		return 0, fmt.Errorf("asking %s for %s: no value", p.server, query)
	}
	return float64(v[0].Value), nil
}
