package recommender

import (
	"context"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
)

// Sensor looks at one container of a workload over all its pods: its limits as the API has them, its use as the
// nodes report it, and the workload's latency. Aim it at what was just loaded and read before each step.
type Sensor struct {
	Fleet     *fleet.Fleet
	Container string
	MaxAge    time.Duration // of a node's report

	Workload *updater.Workload
	Reading  slo.Reading
}

// Sense means over pods. A signal is observed when at least one pod's is; pods that are not reported count for none.
func (s *Sensor) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	state := mdp.State{At: now, Observed: s.Reading.Observed | mdp.SetOf(mdp.Replicas), Replicas: s.Workload.Ready()}
	state.Latency, state.Throughput, state.LoadChange = s.Reading.Latency, s.Reading.Throughput, s.Reading.LoadChange
	limits, reports := 0, mean{}
	for i := range s.Workload.Pods {
		pod := &s.Workload.Pods[i]
		for _, c := range pod.Spec.Containers {
			if c.Name != s.Container || c.Resources.Limits == nil {
				continue
			}
			limit := updater.Limits(c.Resources)
			state.Limit.CPU += limit.CPU
			state.Limit.Memory += limit.Memory
			limits++
			if summary, ok := s.Fleet.Summary(string(pod.UID), s.Container, now, s.MaxAge); ok {
				reports.add(summary.State, limit)
			}
		}
	}
	if limits > 0 {
		state.Limit.CPU /= mdp.MilliCPU(limits)
		state.Limit.Memory /= mdp.Bytes(limits)
		if state.Limit.CPU > 0 {
			state.Observed |= mdp.SetOf(mdp.CPULimit)
		}
		if state.Limit.Memory > 0 {
			state.Observed |= mdp.SetOf(mdp.MemoryLimit)
		}
	}
	reports.into(&state)
	return state, nil
}

// mean sums up one container's states over pods; every signal has a count of its own.
type mean struct {
	sum   mdp.State
	count [mdp.OOMKills + 1]int
}

func (m *mean) add(s mdp.State, allocated mdp.Size) {
	sum := func(signal mdp.Signal, add func()) {
		if s.Knows(signal) {
			add()
			m.count[signal]++
		}
	}
	sum(mdp.CPUUsage, func() { m.sum.Usage.CPU += s.Usage.CPU })
	sum(mdp.MemoryUsage, func() { m.sum.Usage.Memory += s.Usage.Memory })
	sum(mdp.CPUPeak, func() { m.sum.CPUPeak = max(m.sum.CPUPeak, s.CPUPeak) })
	sum(mdp.CPUDeviation, func() { m.sum.CPUDeviation += s.CPUDeviation })
	sum(mdp.CPUPressure, func() { m.sum.CPUPressure += s.CPUPressure })
	sum(mdp.MemoryPressure, func() { m.sum.MemoryPressure += s.MemoryPressure })
	sum(mdp.IOPressure, func() { m.sum.IOPressure += s.IOPressure })
	sum(mdp.IORate, func() { m.sum.IORate += s.IORate })
	sum(mdp.OOMKills, func() { m.sum.OOMKills += s.OOMKills })
	if s.Knows(mdp.Throttled, mdp.CPULimit) {
		m.count[mdp.Throttled]++
		// Below its allocated limit a container is throttled by the node's own policy, on purpose, and that policy
		// answers within a second. Only at the limit does throttling say that the limit is too small.
		if s.Limit.CPU >= allocated.CPU*9/10 {
			m.sum.Throttled += s.Throttled
		}
	}
}

func (m *mean) into(s *mdp.State) {
	div := func(signal mdp.Signal, set func(n int)) {
		if n := m.count[signal]; n > 0 {
			set(n)
			s.Observed |= mdp.SetOf(signal)
		}
	}
	div(mdp.CPUUsage, func(n int) { s.Usage.CPU = m.sum.Usage.CPU / mdp.MilliCPU(n) })
	div(mdp.MemoryUsage, func(n int) { s.Usage.Memory = m.sum.Usage.Memory / mdp.Bytes(n) })
	div(mdp.CPUPeak, func(int) { s.CPUPeak = m.sum.CPUPeak })
	div(mdp.CPUDeviation, func(n int) { s.CPUDeviation = m.sum.CPUDeviation / mdp.MilliCPU(n) })
	div(mdp.Throttled, func(n int) { s.Throttled = m.sum.Throttled / mdp.Ratio(n) })
	div(mdp.CPUPressure, func(n int) { s.CPUPressure = m.sum.CPUPressure / mdp.Ratio(n) })
	div(mdp.MemoryPressure, func(n int) { s.MemoryPressure = m.sum.MemoryPressure / mdp.Ratio(n) })
	div(mdp.IOPressure, func(n int) { s.IOPressure = m.sum.IOPressure / mdp.Ratio(n) })
	div(mdp.IORate, func(n int) { s.IORate = m.sum.IORate / mdp.Rate(n) })
	div(mdp.OOMKills, func(int) { s.OOMKills = m.sum.OOMKills })
}

// histograms are the pods' cumulative latencies, by pod UID: of whichever container was reported with one.
func histograms(f *fleet.Fleet, w *updater.Workload, now time.Time, maxAge time.Duration) (byPod map[string]api.Histogram, problem string) {
	byPod = map[string]api.Histogram{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		for _, c := range pod.Spec.Containers {
			summary, ok := f.Summary(string(pod.UID), c.Name, now, maxAge)
			switch {
			case ok && summary.Latency.Known():
				byPod[string(pod.UID)] = summary.Latency
			case ok && summary.Problem != "":
				problem = "pod " + pod.Name + ": " + summary.Problem
			}
		}
	}
	return byPod, problem
}

// effective is the mean of the limits in force as the nodes report them; ok is false when none does.
func effective(f *fleet.Fleet, pods []corev1.Pod, container string, now time.Time, maxAge time.Duration) (size mdp.Size, ok bool) {
	n := 0
	for i := range pods {
		if s, known := f.Summary(string(pods[i].UID), container, now, maxAge); known && s.State.Knows(mdp.CPULimit, mdp.MemoryLimit) {
			size.CPU += s.State.Limit.CPU
			size.Memory += s.State.Limit.Memory
			n++
		}
	}
	if n == 0 {
		return mdp.Size{}, false
	}
	return mdp.Size{CPU: size.CPU / mdp.MilliCPU(n), Memory: size.Memory / mdp.Bytes(n)}, true
}
