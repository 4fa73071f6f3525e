package api

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func refToWire(c ContainerRef) *linkv1.ContainerRef {
	return &linkv1.ContainerRef{Namespace: c.Namespace, Pod: c.Pod, PodUid: c.PodUID, Container: c.Container}
}

func refFromWire(c *linkv1.ContainerRef) ContainerRef {
	return ContainerRef{Namespace: c.GetNamespace(), Pod: c.GetPod(), PodUID: c.GetPodUid(), Container: c.GetContainer()}
}

func boundsToWire(b mdp.Bounds) *linkv1.Bounds {
	return &linkv1.Bounds{CpuMinMillicores: int64(b.CPU.Min), CpuMaxMillicores: int64(b.CPU.Max),
		MemoryMinBytes: int64(b.Memory.Min), MemoryMaxBytes: int64(b.Memory.Max)}
}

func boundsFromWire(b *linkv1.Bounds) mdp.Bounds {
	return mdp.Bounds{
		CPU:    mdp.Range[mdp.MilliCPU]{Min: mdp.MilliCPU(b.GetCpuMinMillicores()), Max: mdp.MilliCPU(b.GetCpuMaxMillicores())},
		Memory: mdp.Range[mdp.Bytes]{Min: mdp.Bytes(b.GetMemoryMinBytes()), Max: mdp.Bytes(b.GetMemoryMaxBytes())},
	}
}

func stateToWire(s mdp.State) *linkv1.State {
	return &linkv1.State{
		At: timestamppb.New(s.At), Observed: uint32(s.Observed), Replicas: int64(s.Replicas),
		CpuLimitMillicores: int64(s.Limit.CPU), MemoryLimitBytes: int64(s.Limit.Memory),
		CpuUsageMillicores: int64(s.Usage.CPU), MemoryUsageBytes: int64(s.Usage.Memory),
		CpuPeakMillicores: int64(s.CPUPeak), CpuDeviationMillicores: int64(s.CPUDeviation),
		ThrottledRatio: float64(s.Throttled), CpuPressureRatio: float64(s.CPUPressure),
		MemoryPressureRatio: float64(s.MemoryPressure), IoPressureRatio: float64(s.IOPressure),
		IoBytesPerSecond: float64(s.IORate), Latency: durationpb.New(s.Latency),
		ThroughputPerSecond: float64(s.Throughput), LoadChangeRatio: float64(s.LoadChange), OomKills: int64(s.OOMKills),
	}
}

func stateFromWire(s *linkv1.State) mdp.State {
	return mdp.State{
		At: s.GetAt().AsTime(), Observed: mdp.Set(s.GetObserved()), Replicas: int(s.GetReplicas()),
		Limit:   mdp.Size{CPU: mdp.MilliCPU(s.GetCpuLimitMillicores()), Memory: mdp.Bytes(s.GetMemoryLimitBytes())},
		Usage:   mdp.Size{CPU: mdp.MilliCPU(s.GetCpuUsageMillicores()), Memory: mdp.Bytes(s.GetMemoryUsageBytes())},
		CPUPeak: mdp.MilliCPU(s.GetCpuPeakMillicores()), CPUDeviation: mdp.MilliCPU(s.GetCpuDeviationMillicores()),
		Throttled: mdp.Ratio(s.GetThrottledRatio()), CPUPressure: mdp.Ratio(s.GetCpuPressureRatio()),
		MemoryPressure: mdp.Ratio(s.GetMemoryPressureRatio()), IOPressure: mdp.Ratio(s.GetIoPressureRatio()),
		IORate: mdp.Rate(s.GetIoBytesPerSecond()), Latency: s.GetLatency().AsDuration(),
		Throughput: mdp.Rate(s.GetThroughputPerSecond()), LoadChange: mdp.Ratio(s.GetLoadChangeRatio()), OOMKills: int(s.GetOomKills()),
	}
}

func histogramFromWire(h *linkv1.Histogram) (Histogram, error) {
	upper, counts := h.GetUpperSeconds(), h.GetCounts()
	if len(upper) != len(counts) {
		return Histogram{}, fmt.Errorf("histogram of %d bounds and %d counts", len(upper), len(counts))
	}
	for i := 1; i < len(upper); i++ {
		if !(upper[i] > upper[i-1]) || counts[i] < counts[i-1] {
			return Histogram{}, fmt.Errorf("histogram whose bucket %d (%v s, %d) is below the one before it (%v s, %d)", i, upper[i], counts[i], upper[i-1], counts[i-1])
		}
	}
	return Histogram{Upper: upper, Counts: counts}, nil
}

func ReportToWire(r Report) *linkv1.Report {
	w := &linkv1.Report{Node: r.Node, Agent: r.Agent, At: timestamppb.New(r.At), Sequence: r.Sequence}
	for _, s := range r.Containers {
		w.Containers = append(w.Containers, &linkv1.Summary{
			Container: refToWire(s.Container), State: stateToWire(s.State), Bounds: boundsToWire(s.Bounds), Mode: string(s.Mode),
			Want: &linkv1.Action{Sets: uint32(s.Want.Sets), CpuLimitMillicores: int64(s.Want.Limit.CPU),
				MemoryLimitBytes: int64(s.Want.Limit.Memory), Clipped: uint32(s.Want.Clipped)},
			Effect: uint32(s.Effect), Resizes: s.Resizes, Conflicts: s.Conflicts, Problem: s.Problem,
			Latency: &linkv1.Histogram{UpperSeconds: s.Latency.Upper, Counts: s.Latency.Counts},
		})
	}
	return w
}

func ReportFromWire(w *linkv1.Report) (Report, error) {
	r := Report{Node: w.GetNode(), Agent: w.GetAgent(), At: w.GetAt().AsTime(), Sequence: w.GetSequence()}
	for _, s := range w.GetContainers() {
		ref := refFromWire(s.GetContainer())
		latency, err := histogramFromWire(s.GetLatency())
		if err != nil {
			return Report{}, fmt.Errorf("container %v: %w", ref, err)
		}
		r.Containers = append(r.Containers, Summary{
			Container: ref, State: stateFromWire(s.GetState()), Bounds: boundsFromWire(s.GetBounds()), Mode: Mode(s.GetMode()),
			Want: mdp.Action{Sets: mdp.Set(s.GetWant().GetSets()), Clipped: mdp.Clips(s.GetWant().GetClipped()),
				Limit: mdp.Size{CPU: mdp.MilliCPU(s.GetWant().GetCpuLimitMillicores()), Memory: mdp.Bytes(s.GetWant().GetMemoryLimitBytes())}},
			Effect: mdp.Effect(s.GetEffect()), Resizes: s.GetResizes(), Conflicts: s.GetConflicts(), Problem: s.GetProblem(), Latency: latency,
		})
	}
	return r, nil
}

func GrantsToWire(m Grants) *linkv1.Grants {
	w := &linkv1.Grants{Sequence: m.Sequence, Ttl: durationpb.New(m.TTL)}
	for _, one := range m.All {
		w.All = append(w.All, &linkv1.Grant{
			Container: refToWire(one.Container), Mode: string(one.Mode), Paused: one.Paused, Bounds: boundsToWire(one.Bounds),
			ThrottleRatio: float64(one.Throttle),
			Latency:       &linkv1.Source{Port: one.Latency.Port, Path: one.Latency.Path, Metric: one.Latency.Metric},
		})
	}
	return w
}

// GrantsFromWire refuses the whole set when one grant cannot be read: an agent that took a part of it would restore the
// other containers.
func GrantsFromWire(w *linkv1.Grants) (Grants, error) {
	m := Grants{Sequence: w.GetSequence(), TTL: w.GetTtl().AsDuration()}
	if m.TTL <= 0 || m.TTL > 24*time.Hour {
		return Grants{}, fmt.Errorf("grants with a time to live of %v: it must be above zero and at most a day", m.TTL)
	}
	for _, one := range w.GetAll() {
		ref := refFromWire(one.GetContainer())
		mode, err := ParseMode(one.GetMode())
		if err != nil {
			return Grants{}, fmt.Errorf("grant of container %v: %w", ref, err)
		}
		throttle := mdp.Ratio(one.GetThrottleRatio())
		if !(throttle >= 0 && throttle < 1) {
			return Grants{}, fmt.Errorf("grant of container %v: throttle ratio %v: it must be in [0, 1)", ref, float64(throttle))
		}
		m.All = append(m.All, Grant{
			Container: ref, Mode: mode, Paused: one.GetPaused(), Bounds: boundsFromWire(one.GetBounds()), Throttle: throttle,
			Latency: Source{Port: one.GetLatency().GetPort(), Path: one.GetLatency().GetPath(), Metric: one.GetLatency().GetMetric()},
		})
	}
	return m, nil
}
