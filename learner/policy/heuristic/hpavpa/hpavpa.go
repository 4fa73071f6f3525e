// Package hpavpa is the initial policy and the fallback policy of AWARE. It
// uses the formulas of the Kubernetes autoscalers, from their own libraries.
// VPA's recommender (decaying histograms, a percentile, a safety margin) gives
// the size of a replica. HPA's usage ratios and tolerance give the number of
// replicas.
//
// Departures, because HPA and VPA are not designed to control the same
// workload:
//  1. HPA's utilisation refers to the largest allowed size of a replica, not to
//     its current request. Otherwise VPA changes the request, this changes the
//     utilisation, and the two oscillate. A replica grows first; replicas are
//     added when the largest size is still too small, or when the SLO is
//     violated at this size. With a Request it is what the Kubernetes
//     documentation advises: HPA for CPU, by the utilisation of a constant
//     request, and VPA for memory only.
//  2. Where a CPU limit is set, VPA's CPU samples are the short peaks of usage. Where
//     a CPU reservation is set they are the mean usage, as VPA's own, which the metrics
//     server measures over a quarter of a minute to a minute: bursts go up to the
//     ceiling. Both are increased by the share of throttled periods, because the
//     usage of a throttled container shows its limit and not its demand.
//  3. The half-life of the histograms is minutes, not a day: an in-place resize
//     costs milliseconds, not a restart.
//  4. A latency objective is a normal HPA metric (value: latency; target: the
//     objective), except for a pause after a scale-out: a percentile over a
//     window still includes the time before the scale-out.
//  5. With a BurstUtilization, a scale-in leaves as many replicas as can carry, beneath
//     their ceilings, the largest burst of the stabilization window. And HPA's utilisation is that of
//     the mean usage of a quarter of a minute, as the metrics server measures it: the usage of a
//     second adds replicas when it is above the BurstUtilization. Throttling below that is
//     of a limit that was low, and not of the ceiling. A latency adds them when it has been too long for as long a time: one
//     window of a burst is over before a pod has started.
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

// Config is the settings of the policy. Start with [Default].
type Config struct {
	SLO               mdp.SLO
	Largest           mdp.Size     // largest allowed size of a replica; the utilisation refers to it
	Request           mdp.MilliCPU // HPA: the CPU request of a replica, which the utilisation then refers to; 0 leaves CPU to VPA
	TargetUtilization int32        // HPA: desired usage in percent of Request or Largest.CPU; HPA's example is 70
	// A scale-in leaves the largest burst of the window at most this percentage of the ceilings, and a burst that needs more
	// is scaled out for at once; 0 does not look at bursts.
	BurstUtilization int32
	Tolerance        mdp.Ratio     // HPA: a usage ratio of 1 plus or minus this changes nothing
	Stabilization    time.Duration // HPA: a scale-in uses the highest desired number in this window
	Settling         time.Duration // minimum time between two scale-outs because of latency
	HalfLife         time.Duration // VPA: the weight of a sample halves in this time
	Smoothing        time.Duration // the half-life of the mean usage that a reservation is for; before it stays as it is
	// Beneath a ceiling that is above it a reservation rises to the lowest one that was desired in this
	// window, as in HPA's scaleUp.stabilizationWindowSeconds; 0 is at once. The ceiling carries a burst,
	// and a resize takes CPU from it.
	RaiseWindow time.Duration
	// VPA: the width of the first bucket of CPU usage, at least 1. VPA's own is 10, which does not tell
	// small containers apart.
	Finest       mdp.MilliCPU
	Percentile   float64 // VPA, in (0, 1]: of CPU peaks and of memory peaks
	SafetyMargin float64 // VPA: relative margin above the percentile; 0.15 is 15 %
}

// resolution is the half-life of the mean usage that replicas are for: the metrics server measures every 15 s.
const resolution = 15 * time.Second

// Default has the defaults of HPA and VPA, except for the departures in the
// package comment.
var Default = Config{
	TargetUtilization: 70,
	Tolerance:         0.1,
	Stabilization:     time.Minute,
	Settling:          30 * time.Second,
	HalfLife:          5 * time.Minute,
	Smoothing:         30 * time.Second,
	Finest:            10,
	Percentile:        0.95,
	SafetyMargin:      0.15,
}

// Check returns nil for valid settings. Otherwise the error names the field,
// its value and the rule.
func (c Config) Check() error {
	switch {
	case c.TargetUtilization < 1 || c.TargetUtilization > 100:
		return fmt.Errorf("hpavpa target utilization %d%%: it must be in [1, 100]", c.TargetUtilization)
	case c.BurstUtilization < 0 || c.BurstUtilization > 100:
		return fmt.Errorf("hpavpa burst utilization %d%%: it must be in [1, 100], or 0 for none", c.BurstUtilization)
	case !(c.Tolerance >= 0 && c.Tolerance < 1):
		return fmt.Errorf("hpavpa tolerance %v: it must be in [0, 1)", float64(c.Tolerance))
	case c.HalfLife <= 0:
		return fmt.Errorf("hpavpa half-life %v: it must be above zero", c.HalfLife)
	case c.Smoothing <= 0:
		return fmt.Errorf("hpavpa smoothing %v: it must be above zero", c.Smoothing)
	case c.RaiseWindow < 0:
		return fmt.Errorf("hpavpa raise window %v: it must not be negative", c.RaiseWindow)
	case c.Finest < 1 || c.Finest > 1000:
		return fmt.Errorf("hpavpa first bucket %v: it must be in [1m, 1000m]", c.Finest)
	case !(c.Percentile > 0 && c.Percentile <= 1):
		return fmt.Errorf("hpavpa percentile %v: it must be in (0, 1]", c.Percentile)
	case c.Request < 0 || c.Request > c.Largest.CPU:
		return fmt.Errorf("hpavpa request %v: it must be in [0, %v]", c.Request, c.Largest.CPU)
	case c.Largest.CPU <= 0 || c.Largest.Memory <= 0:
		return fmt.Errorf("hpavpa largest size %v: both must be above zero", c.Largest)
	}
	return c.SLO.Check()
}

// Policy controls one workload. For CPU it needs [mdp.CPUUsage], and [mdp.CPUReservation]
// or [mdp.CPULimit]: it sets the reservation where there is one, and otherwise the limit.
// [mdp.CPUPeak] and [mdp.Throttled] improve the result. For memory it needs [mdp.MemoryLimit] and [mdp.MemoryUsage], for replicas
// [mdp.Replicas] and [mdp.CPUUsage]. It sets only the knobs with known signals.
type Policy struct {
	config      Config
	typical     smoothed // the mean usage that a reservation is for
	lasting     smoothed // the mean usage that replicas are for, with a BurstUtilization
	usage       *model.AggregateContainerState
	recommender logic.PodResourceRecommender
	desired     []desire  // recent desired numbers of replicas, for HPA's stabilization
	reserves    []reserve // recent desired reservations, and the newest one before the window
	asked       int       // replicas that were decided on last
	grew        time.Time // last scale-out because of latency
	slow        time.Time // since when the latency is above the objective; zero where it was not
	least       mdp.Bytes // of memory, after an OOM kill
	leastUntil  time.Time // how long least holds
}

// desire is a desired number of replicas, at least as many as a burst needs.
type desire struct {
	at       time.Time
	replicas int
}

// reserve is a desired reservation.
type reserve struct {
	at  time.Time
	cpu mdp.MilliCPU
}

// New creates a policy. The config must pass Check.
func New(c Config) *Policy {
	options := model.GetAggregationsConfig()
	cores, err := util.NewExponentialHistogramOptions(1000, float64(c.Finest)/1000, 1+options.HistogramBucketSizeGrowth,
		options.CPUHistogramOptions.Epsilon())
	if err != nil {
		panic(err) // what Check refuses
	}
	return &Policy{
		config:  c,
		typical: smoothed{halfLife: c.Smoothing},
		lasting: smoothed{halfLife: resolution},
		usage: &model.AggregateContainerState{
			AggregateCPUUsage:    util.NewDecayingHistogram(cores, c.HalfLife),
			AggregateMemoryPeaks: util.NewDecayingHistogram(options.MemoryHistogramOptions, c.HalfLife),
		},
		recommender: logic.CreatePodResourceRecommender(logic.RecommendationConfig{
			SafetyMarginFraction:       c.SafetyMargin,
			TargetCPUPercentile:        c.Percentile,
			TargetMemoryPercentile:     c.Percentile,
			LowerBoundCPUPercentile:    0.5,
			LowerBoundMemoryPercentile: 0.5,
			UpperBoundCPUPercentile:    c.Percentile,
			UpperBoundMemoryPercentile: c.Percentile,
			ConfidenceIntervalCPU:      24 * time.Hour,
			ConfidenceIntervalMemory:   24 * time.Hour,
		}),
	}
}

// Decide adds the State to the histograms and returns the Action.
func (p *Policy) Decide(s mdp.State) (mdp.Action, error) {
	if err := plausible(s); err != nil {
		return mdp.Action{}, err
	}
	var a mdp.Action
	reserves := false // what the typical use is
	switch {
	case s.Knows(mdp.CPUReservation, mdp.CPUUsage):
		if s.Reservation > 0 {
			// Until it is known it stays as it is, and is set all the same: the ceiling comes with it.
			a = a.WithReservation(s.Reservation)
		}
		var mean float64
		mean, reserves = p.typical.add(s.At, float64(raised(s.Usage.CPU, s)))
		if reserves {
			p.sample(s.At, model.ResourceCPU, int64(mean))
		}
	case s.Knows(mdp.CPULimit, mdp.CPUUsage):
		p.sample(s.At, model.ResourceCPU, int64(demand(s)))
		a.Sets |= mdp.SetOf(mdp.CPULimit)
	}
	if s.Knows(mdp.MemoryLimit, mdp.MemoryUsage) {
		p.sample(s.At, model.ResourceMemory, int64(s.Usage.Memory))
		a.Sets |= mdp.SetOf(mdp.MemoryLimit)
	}
	containers := model.ContainerNameToAggregateStateMap{"": p.usage}
	size := p.recommender.GetRecommendedPodResources(containers)[""].Target
	if reserves {
		a = a.WithReservation(p.sustained(s, max(1, mdp.MilliCPU(size[model.ResourceCPU]))))
	}
	if a.Sets.Has(mdp.CPULimit) {
		a = a.WithCPU(max(1, mdp.MilliCPU(size[model.ResourceCPU])))
		if p.config.Request > 0 {
			a = a.WithCPU(p.config.Request)
		}
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		a = a.WithMemory(max(1, mdp.Bytes(size[model.ResourceMemory]), p.afterKill(s)))
	}
	if s.Knows(mdp.Replicas, mdp.CPUUsage) && s.Replicas > 0 {
		n, err := p.replicas(s)
		if err != nil {
			return mdp.Action{}, err
		}
		a = a.WithReplicas(n)
	}
	if a.Sets == 0 && !s.Knows(mdp.CPUReservation, mdp.CPUUsage) {
		return a, s.Require("hpavpa", mdp.CPULimit, mdp.CPUUsage, mdp.MemoryLimit, mdp.MemoryUsage, mdp.Replicas)
	}
	return a, nil
}

// smoothed is a mean of which a value's weight halves in a time. A State's usage is that of
// the moment, and a burst brings more States than quiet does: each counts for the time since the
// one before. So the first one, which is of a start, does not count.
type smoothed struct {
	halfLife time.Duration
	mean     float64
	weight   float64 // of all values, below 1
	at       time.Time
}

// add takes in a value. known is false until the values of one half-life are in the mean.
func (m *smoothed) add(at time.Time, value float64) (mean float64, known bool) {
	if since := at.Sub(m.at); !m.at.IsZero() && since > 0 {
		part := -math.Expm1(-math.Ln2 * since.Seconds() / m.halfLife.Seconds())
		m.weight += (1 - m.weight) * part
		m.mean += (value - m.mean) * part / m.weight
	}
	m.at = at
	return m.mean, m.weight >= 0.5
}

// sustained is the reservation to set where that one is desired now.
func (p *Policy) sustained(s mdp.State, desired mdp.MilliCPU) mdp.MilliCPU {
	p.reserves = append(p.reserves, reserve{s.At, desired})
	begin := s.At.Add(-p.config.RaiseWindow)
	for len(p.reserves) > 1 && !p.reserves[1].at.After(begin) {
		p.reserves = p.reserves[1:]
	}
	if desired <= s.Reservation || !s.Knows(mdp.CPUCeiling) || s.Ceiling <= s.Reservation {
		return desired
	}
	if p.reserves[0].at.After(begin) {
		return s.Reservation // what was desired before is not known
	}
	lowest := desired
	for _, r := range p.reserves {
		lowest = min(lowest, r.cpu)
	}
	return max(s.Reservation, lowest)
}

// sample adds a sample to a histogram.
func (p *Policy) sample(at time.Time, resource model.ResourceName, amount int64) {
	p.usage.AddSample(&model.ContainerUsageSample{
		MeasureStart: at, Usage: model.ResourceAmount(amount), Resource: resource,
	})
}

// replicas is HPA's formula: the larger of the desired numbers for CPU and
// latency, with stabilization for a scale-in.
func (p *Policy) replicas(s mdp.State) (int, error) {
	lasting, lasts, atOnce := raised(s.Usage.CPU, s), true, 0
	if p.config.BurstUtilization > 0 {
		// A pod takes seconds to start, and the CPU for that from the burst.
		var mean float64
		mean, lasts = p.lasting.add(s.At, float64(p.wanted(s.Usage.CPU, s)))
		lasting, atOnce = mdp.MilliCPU(mean), p.carry(s.Usage.CPU, s)
	}
	ratio, _, _, err := hpa.GetResourceUtilizationRatio(
		hpa.PodMetricsInfo{"mean": {Value: int64(lasting)}},
		map[string]int64{"mean": int64(p.full())}, p.config.TargetUtilization)
	if err != nil {
		return 0, fmt.Errorf("hpavpa: utilisation of %v: %w", p.full(), err)
	}
	want := max(s.Replicas, atOnce)
	if lasts {
		want = max(p.scaled(s.Replicas, ratio), atOnce)
	}
	if slo := p.config.SLO.Latency; slo > 0 && s.Knows(mdp.Latency) && p.slowed(s) && p.grown(s) {
		pods := hpa.PodMetricsInfo{"p": {Value: s.Latency.Microseconds()}}
		ratio, _ := hpa.GetMetricUsageRatio(pods, max(1, slo.Microseconds()))
		// Latency is not linear in the number of replicas, so the number at
		// most doubles.
		if n := p.scaled(s.Replicas, min(ratio, 2)); n > s.Replicas && s.At.Sub(p.grew) >= p.config.Settling {
			p.grew = s.At
			want = max(want, n)
		}
	}
	if p.config.BurstUtilization > 0 && len(p.desired) == 0 {
		// What was before is not known. HPA's history begins with the present number, too.
		p.desired = append(p.desired, desire{s.At, s.Replicas})
	}
	kept := p.desired[:0]
	keep := max(want, p.forBurst(s))
	highest := keep
	for _, w := range p.desired {
		if s.At.Sub(w.at) < p.config.Stabilization {
			kept = append(kept, w)
			highest = max(highest, w.replicas)
		}
	}
	p.desired = append(kept, desire{s.At, keep})
	have := s.Replicas
	if p.config.BurstUtilization > 0 {
		have = max(have, p.asked) // some may not be ready, for they start, or for the load itself
	}
	if want < have {
		want = min(have, highest)
	}
	p.asked = want
	return want, nil
}

// forBurst is how many replicas carry the present burst beneath their ceilings.
func (p *Policy) forBurst(s mdp.State) int {
	if p.config.BurstUtilization == 0 || !s.Knows(mdp.CPUBurst) {
		return 0
	}
	return p.carry(s.CPUBurst, s)
}

// carry is how many replicas carry, beneath their ceilings, what each uses in a second.
func (p *Policy) carry(each mdp.MilliCPU, s mdp.State) int {
	return int(math.Ceil(float64(p.wanted(each, s)) * float64(s.Replicas) / p.part()))
}

// wanted is what a replica wants that uses so much. Throttling says that it wants more only where it has used what it may: else
// its limit was low, and the node has raised it.
func (p *Policy) wanted(each mdp.MilliCPU, s mdp.State) mdp.MilliCPU {
	if float64(each) < p.part() {
		return each
	}
	return raised(each, s)
}

// part is what of a replica's ceiling a burst may use.
func (p *Policy) part() float64 { return float64(p.config.BurstUtilization) / 100 * float64(p.full()) }

// scaled is HPA's formula: the replicas times the ratio, rounded up. A ratio
// within the tolerance changes nothing.
func (p *Policy) scaled(replicas int, ratio float64) int {
	if math.Abs(ratio-1) <= float64(p.config.Tolerance) {
		return replicas
	}
	return max(1, int(math.Ceil(ratio*float64(replicas))))
}

// full is the CPU that a replica has at most, to which the utilisation refers.
func (p *Policy) full() mdp.MilliCPU {
	if p.config.Request > 0 {
		return p.config.Request
	}
	return p.config.Largest.CPU
}

// slowed reports whether the latency is above the objective; with a BurstUtilization, whether it has been for a quarter of a
// minute.
func (p *Policy) slowed(s mdp.State) bool {
	if s.Latency <= p.config.SLO.Latency {
		p.slow = time.Time{}
		return false
	}
	if p.slow.IsZero() {
		p.slow = s.At
	}
	return p.config.BurstUtilization == 0 || s.At.Sub(p.slow) >= resolution
}

// grown reports whether a replica has at least 90 % of what it may have, so that
// only more replicas can help.
func (p *Policy) grown(s mdp.State) bool {
	full := p.full()
	if s.Knows(mdp.CPUCeiling) {
		full = s.Ceiling
	}
	return s.Knows(mdp.CPULimit) && s.Limit.CPU >= full*9/10
}

const (
	// stalled is the memory pressure above which the kernel is about to kill: the
	// share of time in which all processes waited for memory.
	stalled mdp.Ratio = 0.05
	// holdKill is how long memory stays up after a kill.
	holdKill = 10 * time.Minute
)

// afterKill is the least memory limit after an OOM kill, or shortly before one; 0 is
// none. It is a fifth or 100 MB above the limit that was too small, as in VPA
// (AggregateContainerState.RecordOOM). VPA gets its percentile from the peaks of whole
// days, where one kill counts; among samples of a few seconds it would not.
func (p *Policy) afterKill(s mdp.State) mdp.Bytes {
	killed := s.Knows(mdp.OOMKills) && s.OOMKills > 0
	pressed := s.Knows(mdp.MemoryPressure) && s.MemoryPressure > stalled
	if killed || pressed {
		options := model.GetAggregationsConfig()
		had := max(s.Usage.Memory, s.Limit.Memory)
		p.least = max(had+mdp.Bytes(options.OOMMinBumpUp), mdp.Bytes(float64(had)*options.OOMBumpUpRatio))
		p.leastUntil = s.At.Add(holdKill)
	}
	if s.At.Before(p.leastUntil) {
		return p.least
	}
	return 0
}

// demand is the CPU that the limit of a replica must cover: its peak if it is
// known, otherwise its mean, increased by the share of throttled periods. The
// number of replicas uses the mean instead, because replicas do not have their
// peaks at the same time.
func demand(s mdp.State) mdp.MilliCPU {
	d := s.Usage.CPU
	if s.Knows(mdp.CPUPeak) {
		d = max(d, s.CPUPeak)
	}
	return raised(d, s)
}

// raised is a usage increased by the share of throttled periods.
func raised(used mdp.MilliCPU, s mdp.State) mdp.MilliCPU {
	if !s.Knows(mdp.Throttled) {
		return used
	}
	return mdp.MilliCPU(float64(used) * (1 + float64(s.Throttled)))
}

// plausible returns an error for impossible values, so that they do not enter a
// histogram.
func plausible(s mdp.State) error {
	const maxMemory = 1 << 50
	bad := func(signal mdp.Signal, value, top int64) error {
		if s.Knows(signal) && (value < 0 || value > top) {
			return fmt.Errorf("hpavpa: %v is %d: not a figure of a workload", signal, value)
		}
		return nil
	}
	for _, err := range []error{
		bad(mdp.CPUUsage, int64(s.Usage.CPU), 1e9),
		bad(mdp.CPUPeak, int64(s.CPUPeak), 1e9),
		bad(mdp.CPUBurst, int64(s.CPUBurst), 1e9),
		bad(mdp.MemoryUsage, int64(s.Usage.Memory), maxMemory),
		bad(mdp.Replicas, int64(s.Replicas), 1e6),
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
