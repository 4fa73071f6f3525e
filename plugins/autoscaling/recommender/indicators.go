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
	refused    string          // why the source may not be read; empty when it may
}

// newIndicators opens the source that a spec names.
func newIndicators(mpa *object, percentile float64, servers *slo.Servers) indicators {
	s := mpa.Spec.SLO
	if s == nil {
		return indicators{}
	}
	if percentile == 0 {
		percentile = 99
	}
	threshold := time.Duration(0)
	if s.Latency != nil {
		threshold = s.Latency.Threshold.Duration
	}
	if s.Source.Type != "prometheus" {
		return indicators{meter: slo.NewMeter(percentile, threshold)}
	}
	p, err := servers.New(s.Source.Server, s.Source.Metric, mpa.Namespace, percentile, threshold)
	if err != nil {
		return indicators{refused: fmt.Sprintf("spec.slo.source: %v", err)}
	}
	return indicators{prometheus: p}
}

// has reports whether there is a source.
func (i indicators) has() bool { return i.meter != nil || i.prometheus != nil || i.refused != "" }

// read measures once.
func (i indicators) read(ctx context.Context, now time.Time, f *fleet.Fleet, w *updater.Workload) slo.Reading {
	switch {
	case i.refused != "":
		return slo.Reading{Problem: i.refused}
	case i.prometheus != nil:
		pods := make([]string, len(w.Pods))
		for k := range w.Pods {
			pods[k] = w.Pods[k].Name
		}
		return i.prometheus.Read(ctx, now, pods)
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
	case r.Unresolved:
		return condition{v1alpha1.SLOObserved, false, "Unresolved", r.Problem}, true
	case r.Observed != 0 && r.Problem != "":
		return condition{v1alpha1.SLOObserved, true, "Read", "latency and throughput are read: " + r.Problem}, true
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
