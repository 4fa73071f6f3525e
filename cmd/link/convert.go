package link

import (
	"fmt"
	"time"

	"awarescale.dev/aware/cmd/link/linkv1"
	"awarescale.dev/aware/learner/mdp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func refToWire(c mdp.ContainerRef) *linkv1.ContainerRef {
	return &linkv1.ContainerRef{Namespace: c.Namespace, Pod: c.Pod, PodUid: c.PodUID, Container: c.Container}
}

func refFromWire(c *linkv1.ContainerRef) mdp.ContainerRef {
	return mdp.ContainerRef{Namespace: c.GetNamespace(), Pod: c.GetPod(), PodUID: c.GetPodUid(), Container: c.GetContainer()}
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

func histogramFromWire(h *linkv1.Histogram) (mdp.Histogram, error) {
	upper, counts := h.GetUpperSeconds(), h.GetCounts()
	if len(upper) != len(counts) {
		return mdp.Histogram{}, fmt.Errorf("histogram of %d bounds and %d counts", len(upper), len(counts))
	}
	for i := 1; i < len(upper); i++ {
		if !(upper[i] > upper[i-1]) || counts[i] < counts[i-1] {
			return mdp.Histogram{}, fmt.Errorf("histogram whose bucket %d (%v s, %d) is below the one before it (%v s, %d)", i, upper[i], counts[i], upper[i-1], counts[i-1])
		}
	}
	return mdp.Histogram{Upper: upper, Counts: counts}, nil
}

func reportToWire(r mdp.Report) *linkv1.Report {
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

func reportFromWire(w *linkv1.Report) (mdp.Report, error) {
	r := mdp.Report{Node: w.GetNode(), Agent: w.GetAgent(), At: w.GetAt().AsTime(), Sequence: w.GetSequence()}
	for _, s := range w.GetContainers() {
		ref := refFromWire(s.GetContainer())
		latency, err := histogramFromWire(s.GetLatency())
		if err != nil {
			return mdp.Report{}, fmt.Errorf("container %v: %w", ref, err)
		}
		r.Containers = append(r.Containers, mdp.Summary{
			Container: ref, State: stateFromWire(s.GetState()), Bounds: boundsFromWire(s.GetBounds()), Mode: mdp.Mode(s.GetMode()),
			Want: mdp.Action{Sets: mdp.Set(s.GetWant().GetSets()), Clipped: mdp.Clips(s.GetWant().GetClipped()),
				Limit: mdp.Size{CPU: mdp.MilliCPU(s.GetWant().GetCpuLimitMillicores()), Memory: mdp.Bytes(s.GetWant().GetMemoryLimitBytes())}},
			Effect: mdp.Effect(s.GetEffect()), Resizes: s.GetResizes(), Conflicts: s.GetConflicts(), Problem: s.GetProblem(), Latency: latency,
		})
	}
	return r, nil
}

func mandatesToWire(m mdp.Mandates) *linkv1.Mandates {
	w := &linkv1.Mandates{Sequence: m.Sequence, Ttl: durationpb.New(m.TTL)}
	for _, one := range m.All {
		w.All = append(w.All, &linkv1.Mandate{
			Container: refToWire(one.Container), Mode: string(one.Mode), Paused: one.Paused, Bounds: boundsToWire(one.Bounds),
			ThrottleRatio: float64(one.Throttle),
			Latency:       &linkv1.Source{Port: one.Latency.Port, Path: one.Latency.Path, Metric: one.Latency.Metric},
		})
	}
	return w
}

// mandatesFromWire refuses the whole word when one mandate cannot be read: an agent that took a part would put the
// rest back.
func mandatesFromWire(w *linkv1.Mandates) (mdp.Mandates, error) {
	m := mdp.Mandates{Sequence: w.GetSequence(), TTL: w.GetTtl().AsDuration()}
	if m.TTL <= 0 || m.TTL > 24*time.Hour {
		return mdp.Mandates{}, fmt.Errorf("mandates with a time to live of %v: it must be above zero and at most a day", m.TTL)
	}
	for _, one := range w.GetAll() {
		ref := refFromWire(one.GetContainer())
		mode, err := mdp.ParseMode(one.GetMode())
		if err != nil {
			return mdp.Mandates{}, fmt.Errorf("mandate of container %v: %w", ref, err)
		}
		throttle := mdp.Ratio(one.GetThrottleRatio())
		if !(throttle >= 0 && throttle < 1) {
			return mdp.Mandates{}, fmt.Errorf("mandate of container %v: throttle ratio %v: it must be in [0, 1)", ref, float64(throttle))
		}
		m.All = append(m.All, mdp.Mandate{
			Container: ref, Mode: mode, Paused: one.GetPaused(), Bounds: boundsFromWire(one.GetBounds()), Throttle: throttle,
			Latency: mdp.Source{Port: one.GetLatency().GetPort(), Path: one.GetLatency().GetPath(), Metric: one.GetLatency().GetMetric()},
		})
	}
	return m, nil
}
