// Package hpavpa is the rule that AWARE begins on and falls back to: the arithmetic of Kubernetes' own
// autoscalers, computed by their own libraries. The size of a replica comes from VPA's recommender (decaying
// histograms, a percentile, a safety margin); the number of replicas from HPA's usage ratios and tolerance.
//
// Departures, each because the two were never meant to share a workload:
//  1. HPA's utilisation is of the largest size a replica may have, not of its present request: otherwise VPA
//     moves the request, the utilisation answers, and the two chase each other. So a replica grows first, and
//     replicas are added when the largest would still be too small, or when the SLO is violated at it.
//  2. VPA's CPU samples are the short peaks of usage, raised by the share of throttled periods: what a throttled
//     container uses says what it was given and not what it wanted (the complaint "throttling invisible").
//  3. The histograms forget in minutes, not in a day: a resize in place costs milliseconds, not a restart.
//  4. A latency objective is a metric like any other to HPA (value: latency; target: the objective), but for a pause
//     after it added replicas: a percentile over a window still tells of the time before them.
package hpavpa

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
	hpa "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// Config is the rule's settings. Begin with [Default].
type Config struct {
	SLO               mdp.SLO
	Largest           mdp.Size      // the largest size a replica may have; the utilisation is of this
	TargetUtilization int32         // percent of Largest.CPU that a replica should use at most; HPA's own example is 70
	Tolerance         mdp.Ratio     // HPA's: a ratio this near to 1 changes nothing
	Stabilization     time.Duration // HPA's: scaling in follows the highest of what was wanted in this window
	Settling          time.Duration // after a scale-out for latency, how long latency asks for no other: it still tells of before
	HalfLife          time.Duration // VPA's: a sample's weight halves in this time
	Percentile        float64       // VPA's, in (0, 1]: of CPU peaks and of memory peaks
	SafetyMargin      float64       // VPA's: added to the percentile; 0.15 is fifteen percent
}

// Default is HPA's and VPA's own defaults where they have one and a reason (see the package's departures) where not.
var Default = Config{
	TargetUtilization: 70, Tolerance: 0.1, Stabilization: time.Minute, Settling: 30 * time.Second,
	HalfLife: 5 * time.Minute, Percentile: 0.95, SafetyMargin: 0.15,
}

// Check names the field that is wrong, its value and the rule.
func (c Config) Check() error {
	switch {
	case c.TargetUtilization < 1 || c.TargetUtilization > 100:
		return fmt.Errorf("hpavpa target utilization %d%%: it must be in [1, 100]", c.TargetUtilization)
	case !(c.Tolerance >= 0 && c.Tolerance < 1):
		return fmt.Errorf("hpavpa tolerance %v: it must be in [0, 1)", float64(c.Tolerance))
	case c.HalfLife <= 0:
		return fmt.Errorf("hpavpa half-life %v: it must be above zero", c.HalfLife)
	case !(c.Percentile > 0 && c.Percentile <= 1):
		return fmt.Errorf("hpavpa percentile %v: it must be in (0, 1]", c.Percentile)
	case c.Largest.CPU <= 0 || c.Largest.Memory <= 0:
		return fmt.Errorf("hpavpa largest size %v: both must be above zero", c.Largest)
	}
	return c.SLO.Check()
}

// Policy is the rule for one workload. Of CPU it needs [mdp.CPULimit], [mdp.CPUUsage] and, better, [mdp.CPUPeak] and
// [mdp.Throttled]; of memory [mdp.MemoryLimit] and [mdp.MemoryUsage]; of replicas [mdp.Replicas] and [mdp.CPUUsage].
// It sets the knobs for which it knows enough.
type Policy struct {
	config      Config
	usage       *model.AggregateContainerState
	recommender logic.PodResourceRecommender
	wanted      []wish    // the replicas wanted of late, for HPA's stabilization
	grew        time.Time // when latency last asked for more replicas
}

type wish struct {
	at       time.Time
	replicas int
}

// New makes the rule; the config must be one that passes Check.
func New(c Config) *Policy {
	options := model.GetAggregationsConfig()
	return &Policy{
		config: c,
		usage: &model.AggregateContainerState{
			AggregateCPUUsage:    util.NewDecayingHistogram(options.CPUHistogramOptions, c.HalfLife),
			AggregateMemoryPeaks: util.NewDecayingHistogram(options.MemoryHistogramOptions, c.HalfLife),
		},
		recommender: logic.CreatePodResourceRecommender(logic.RecommendationConfig{
			SafetyMarginFraction: c.SafetyMargin,
			TargetCPUPercentile:  c.Percentile, TargetMemoryPercentile: c.Percentile,
			LowerBoundCPUPercentile: 0.5, LowerBoundMemoryPercentile: 0.5,
			UpperBoundCPUPercentile: c.Percentile, UpperBoundMemoryPercentile: c.Percentile,
			ConfidenceIntervalCPU: 24 * time.Hour, ConfidenceIntervalMemory: 24 * time.Hour,
		}),
	}
}

// Decide takes the State into the histograms and gives the rule's Action.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := plausible(s); err != nil {
		return mdp.Action{}, err
	}
	var a mdp.Action
	if s.Knows(mdp.CPULimit, mdp.CPUUsage) {
		p.usage.AddSample(&model.ContainerUsageSample{MeasureStart: s.At, Usage: model.ResourceAmount(demand(s)), Resource: model.ResourceCPU})
		a.Sets |= mdp.SetOf(mdp.CPULimit)
	}
	if s.Knows(mdp.MemoryLimit, mdp.MemoryUsage) {
		p.usage.AddSample(&model.ContainerUsageSample{MeasureStart: s.At, Usage: model.ResourceAmount(s.Usage.Memory), Resource: model.ResourceMemory})
		a.Sets |= mdp.SetOf(mdp.MemoryLimit)
	}
	size := p.recommender.GetRecommendedPodResources(model.ContainerNameToAggregateStateMap{"": p.usage})[""].Target
	if a.Sets.Has(mdp.CPULimit) {
		a = a.WithCPU(max(1, mdp.MilliCPU(size[model.ResourceCPU])))
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		a = a.WithMemory(max(1, mdp.Bytes(size[model.ResourceMemory])))
	}
	if s.Knows(mdp.Replicas, mdp.CPUUsage) && s.Replicas > 0 {
		n, err := p.replicas(s)
		if err != nil {
			return mdp.Action{}, err
		}
		a = a.WithReplicas(n)
	}
	if a.Sets == 0 {
		return a, s.Require("hpavpa", mdp.CPULimit, mdp.CPUUsage, mdp.MemoryLimit, mdp.MemoryUsage, mdp.Replicas)
	}
	return a, nil
}

// replicas is HPA's arithmetic: the larger of what CPU and latency ask for, damped on the way down.
func (p *Policy) replicas(s mdp.State) (int, error) {
	ratio, _, _, err := hpa.GetResourceUtilizationRatio(
		hpa.PodMetricsInfo{"mean": {Value: int64(raised(s.Usage.CPU, s))}},
		map[string]int64{"mean": int64(p.config.Largest.CPU)}, p.config.TargetUtilization)
	if err != nil {
		return 0, fmt.Errorf("hpavpa: utilisation of %v: %w", p.config.Largest.CPU, err)
	}
	want := p.scaled(s.Replicas, ratio)
	if slo := p.config.SLO.Latency; slo > 0 && s.Knows(mdp.Latency) && p.grown(s) {
		ratio, _ := hpa.GetMetricUsageRatio(hpa.PodMetricsInfo{"p": {Value: s.Latency.Microseconds()}}, max(1, slo.Microseconds()))
		// Latency is not linear in replicas: double at most.
		if n := p.scaled(s.Replicas, min(ratio, 2)); n > s.Replicas && s.At.Sub(p.grew) >= p.config.Settling {
			p.grew = s.At
			want = max(want, n)
		}
	}
	kept := p.wanted[:0]
	highest := want
	for _, w := range p.wanted {
		if s.At.Sub(w.at) < p.config.Stabilization {
			kept = append(kept, w)
			highest = max(highest, w.replicas)
		}
	}
	p.wanted = append(kept, wish{s.At, want})
	if want < s.Replicas {
		return min(s.Replicas, highest), nil
	}
	return want, nil
}

// scaled is HPA's: the replicas times the ratio, rounded up, unless the ratio is within the tolerance.
func (p *Policy) scaled(replicas int, ratio float64) int {
	if math.Abs(ratio-1) <= float64(p.config.Tolerance) {
		return replicas
	}
	return max(1, int(math.Ceil(ratio*float64(replicas))))
}

// grown tells whether a replica is as large as it may be, so that only more of them can help.
func (p *Policy) grown(s mdp.State) bool {
	return s.Knows(mdp.CPULimit) && s.Limit.CPU >= p.config.Largest.CPU*9/10
}

// demand is the CPU that a replica's limit must hold: its peak where that is known, raised by the share of periods in
// which it was throttled. Replicas share the mean, not each other's peaks.
func demand(s mdp.State) mdp.MilliCPU {
	d := s.Usage.CPU
	if s.Knows(mdp.CPUPeak) {
		d = max(d, s.CPUPeak)
	}
	return raised(d, s)
}

// raised is a usage raised by the share of periods in which it was cut short.
func raised(used mdp.MilliCPU, s mdp.State) mdp.MilliCPU {
	if !s.Knows(mdp.Throttled) {
		return used
	}
	return mdp.MilliCPU(float64(used) * (1 + float64(s.Throttled)))
}

// plausible refuses figures that no workload has, before they enter a histogram that remembers them.
func plausible(s mdp.State) error {
	const most = 1 << 50
	bad := func(signal mdp.Signal, value, top int64) error {
		if s.Knows(signal) && (value < 0 || value > top) {
			return fmt.Errorf("hpavpa: %v is %d: not a figure of a workload", signal, value)
		}
		return nil
	}
	for _, err := range []error{
		bad(mdp.CPUUsage, int64(s.Usage.CPU), 1e9), bad(mdp.CPUPeak, int64(s.CPUPeak), 1e9),
		bad(mdp.MemoryUsage, int64(s.Usage.Memory), most), bad(mdp.Replicas, int64(s.Replicas), 1e6),
	} {
		if err != nil {
			return err
		}
	}
	if s.Knows(mdp.Throttled) && (!s.Throttled.Finite() || s.Throttled < 0 || s.Throttled > 1) {
		return fmt.Errorf("hpavpa: %v is %v: not a share", mdp.Throttled, float64(s.Throttled))
	}
	return nil
}
