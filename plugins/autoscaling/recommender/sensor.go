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
	"k8s.io/apimachinery/pkg/types"
)

// Sensor looks at one container of a workload over all its pods: its CPU reservation, CPU
// ceiling and memory as the API has them, its CPU limit in force and its usage as
// the nodes report them, and the workload's latency. Before each step the caller sets Workload and Reading to what was
// just loaded and measured.
type Sensor struct {
	Fleet     *fleet.Fleet
	Container string
	MaxAge    time.Duration // of a node's report that counts
	SLO       mdp.SLO

	Workload *updater.Workload
	Reading  slo.Reading
	Peak     mdp.Peak // of the throughput; it outlives the readings, and is none
	// killed is the OOM kills of the container since the step before, by pod, as the pods'
	// statuses show them. They count for pods whose agents do not report kills: of a
	// container that is down there is no report.
	killed map[types.UID]killed
}

// Sense merges the pods. A signal is observed when that of at least one pod is.
// Pods that are not reported do not count.
func (s *Sensor) Sense(_ context.Context, now time.Time) (mdp.State, error) {
	state := mdp.State{
		At:       now,
		Observed: s.Reading.Observed | mdp.SetOf(mdp.Replicas),
		Replicas: s.Workload.Ready(),
	}
	state.Latency = s.Reading.Latency
	state.Throughput = s.Reading.Throughput
	state.LoadChange = s.Reading.LoadChange
	if s.Reading.Requests > 0 {
		state.Missed = s.SLO.Counted(s.Reading.Missed, s.Reading.Requests)
		state.Observed |= mdp.SetOf(mdp.Missed)
	}
	if highest, ok := s.Peak.Highest(now); ok {
		state.LoadPeak = highest
		state.Observed |= mdp.SetOf(mdp.LoadPeak)
	}
	reports := merged{}
	var reported []api.Summary
	for i := range s.Workload.Pods {
		pod := &s.Workload.Pods[i]
		for _, c := range pod.Spec.Containers {
			if c.Name != s.Container || c.Resources.Limits == nil {
				continue
			}
			limit := updater.Limits(c.Resources)
			summary, ok := s.Fleet.Summary(pod.Spec.NodeName, string(pod.UID), s.Container, now, s.MaxAge)
			if ok {
				reports.add(summary.State, limit)
				if state.Replicas == 2 {
					reported = append(reported, summary)
				}
			}
			if !ok || !summary.State.Knows(mdp.OOMKills) {
				reports.kill(s.killed[pod.UID], ok && summary.State.Knows(mdp.MemoryUsage))
			}
		}
	}
	given := s.Workload.Mean(s.Container)
	state.Reservation, state.Ceiling, state.Limit.Memory = given.Reservation, given.Ceiling, given.Memory
	for signal, there := range map[mdp.Signal]bool{
		mdp.CPUReservation: state.Reservation > 0,
		mdp.CPUCeiling:     state.Ceiling > 0,
		mdp.MemoryLimit:    state.Limit.Memory > 0,
	} {
		if there {
			state.Observed |= mdp.SetOf(signal)
		}
	}
	reports.into(&state)
	if burst, ok := ofTwo(reported); ok {
		state.CPUBurst = burst
	}
	return state, nil
}

// ofTwo is the burst of two replicas, where it is known what they used at the same time: a single replica would have to carry
// that, and not the sum of what each has used in its own busiest second. Of more replicas the mean of the bursts says what each
// of them must carry when the load is not split evenly.
func ofTwo(replicas []api.Summary) (burst mdp.MilliCPU, ok bool) {
	if len(replicas) != 2 {
		return 0, false
	}
	one, two := &replicas[0], &replicas[1]
	together, ok := one.Course.Together(two.Course)
	if !ok || !one.State.Knows(mdp.CPUBurst) || !two.State.Knows(mdp.CPUBurst) {
		return 0, false
	}
	// A course is in halves of a second, and a burst may begin at any time: it is at least what one has used.
	return (max(together, one.State.CPUBurst, two.State.CPUBurst) + 1) / 2, true
}

// merged sums up one container's states over pods, by the table of signals.
// Every signal has its own count.
type merged struct {
	sum   [mdp.SignalCount]float64
	count [mdp.SignalCount]int
}

// merges are the signals that the nodes report of a container. What the API has is
// read there, and Throttled is treated apart.
const merges = mdp.All &^ (1<<mdp.Replicas | 1<<mdp.CPUReservation | 1<<mdp.CPUCeiling | 1<<mdp.MemoryLimit | 1<<mdp.Throttled)

func (m *merged) add(s mdp.State, allocated mdp.Size) {
	for one := range (s.Observed & merges).Signals() {
		v := one.Value(&s)
		switch one.Merge() {
		case mdp.OfWorkload:
			continue
		case mdp.Max:
			if m.count[one] > 0 {
				v = max(v, m.sum[one])
			}
			m.sum[one] = v
		default:
			m.sum[one] += v
		}
		m.count[one]++
	}
	if s.Knows(mdp.Throttled, mdp.CPULimit) {
		m.count[mdp.Throttled]++
		// Below its allocated limit a container is throttled by the node's own
		// policy, on purpose, and that policy reacts within a second. Only at
		// the allocated limit does throttling show that the limit is too small.
		if s.Limit.CPU >= allocated.CPU*9/10 {
			m.sum[mdp.Throttled] += float64(s.Throttled)
		}
	}
}

// kill adds OOM kills that no agent reports. A container that was killed for want of
// memory had used its limit: that counts when its usage is not measured.
func (m *merged) kill(k killed, measured bool) {
	if k.times == 0 {
		return
	}
	m.sum[mdp.OOMKills] += float64(k.times)
	m.count[mdp.OOMKills]++
	if !measured {
		m.sum[mdp.MemoryUsage] += float64(k.limit)
		m.count[mdp.MemoryUsage]++
	}
}

// into writes what was merged into a State.
func (m *merged) into(s *mdp.State) {
	for one := range mdp.Signals() {
		n := m.count[one]
		switch {
		case n == 0:
		case one.Merge() == mdp.Mean:
			one.Set(s, m.sum[one]/float64(n))
		default:
			one.Set(s, m.sum[one])
		}
	}
}

// histograms is the pods' cumulative latencies, by pod UID: of the container
// that was reported with one.
func histograms(
	f *fleet.Fleet, w *updater.Workload, now time.Time, maxAge time.Duration,
) (byPod map[string]api.Histogram, problem string) {
	byPod = map[string]api.Histogram{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		for _, c := range pod.Spec.Containers {
			summary, ok := f.Summary(pod.Spec.NodeName, string(pod.UID), c.Name, now, maxAge)
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

// effective is the mean of the limits in force, as the nodes report them. ok is
// false without a report.
func effective(
	f *fleet.Fleet, pods []corev1.Pod, container string, now time.Time, maxAge time.Duration,
) (size mdp.Size, ok bool) {
	n := 0
	for i := range pods {
		s, known := f.Summary(pods[i].Spec.NodeName, string(pods[i].UID), container, now, maxAge)
		if known && s.State.Knows(mdp.CPULimit, mdp.MemoryLimit) {
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
