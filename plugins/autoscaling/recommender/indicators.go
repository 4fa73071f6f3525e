package recommender

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
)

// indicators measures a workload's latency and throughput, by one of two sources
// or by none.
type indicators struct {
	meter      *slo.Meter      // of the histograms that agents report
	prometheus *slo.Prometheus // of a Prometheus server
}

// newIndicators opens the source that a spec names.
func newIndicators(mpa *object, percentile float64) (indicators, error) {
	s := mpa.Spec.SLO
	if s == nil {
		return indicators{}, nil
	}
	if percentile == 0 {
		percentile = 99
	}
	if s.Source.Type != "prometheus" {
		return indicators{meter: slo.NewMeter(percentile)}, nil
	}
	p, err := slo.NewPrometheus(s.Source.Server, s.Source.Metric, mpa.Namespace, mpa.Spec.TargetRef.Name,
		percentile)
	if err != nil {
		return indicators{}, fmt.Errorf("spec.slo.source: %w", err)
	}
	return indicators{prometheus: p}, nil
}

// has reports whether there is a source.
func (i indicators) has() bool { return i.meter != nil || i.prometheus != nil }

// read measures once.
func (i indicators) read(ctx context.Context, now time.Time, f *fleet.Fleet, w *updater.Workload) slo.Reading {
	switch {
	case i.prometheus != nil:
		return i.prometheus.Read(ctx, now)
	case i.meter != nil:
		byPod, problem := histograms(f, w, now, maxReportAge)
		r := i.meter.Read(now, byPod)
		if len(byPod) == 0 && problem != "" {
			r.Problem = problem
		}
		return r
	}
	return slo.Reading{}
}

// sloObserved is the condition SLOObserved of a reading; ok is false when the
// reading says nothing new. waiting means that the process is too young for a
// missing histogram to be a problem.
func sloObserved(r slo.Reading, pods int, waiting bool) (c condition, ok bool) {
	switch {
	case r.Observed != 0:
		return condition{v1alpha1.SLOObserved, true, "Read", "latency and throughput are read"}, true
	case pods == 0, waiting && r.Problem == slo.Unread:
		return condition{v1alpha1.SLOObserved, false, "Waiting", "the nodes' first reports are awaited"}, true
	case r.Problem != "":
		return condition{v1alpha1.SLOObserved, false, "Unreachable", r.Problem}, true
	}
	return condition{}, false
}

// violates reports whether a reading violates the SLO, and its preservation. A
// reading that is not known violates nothing.
func violates(o mdp.SLO, r slo.Reading) (preservation mdp.Ratio, violated bool) {
	s := mdp.State{Observed: r.Observed, Latency: r.Latency, Throughput: r.Throughput}
	p, ok := o.Preservation(s)
	return mdp.Ratio(p), ok && p < 1
}
