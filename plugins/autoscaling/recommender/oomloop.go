package recommender

import (
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// An OOM loop is a container that is killed for want of memory, restarted, and killed
// again. A resize may not end it: a kubelet may leave the memory limit of the pod's own
// group where it was while the container is down (kubernetes issue 138760). So it is
// found in the pods' statuses, where it also shows when no agent reports the container.
const (
	// oomWindow is how long a kill counts. A loop is over when there was none for so long.
	oomWindow = 10 * time.Minute
	// oomRepeats is how many kills within oomWindow make a loop of a container that runs.
	oomRepeats = 3
	// oomKept is how many kills of one container are remembered.
	oomKept = 32
)

// After a kill memory goes up as VPA does it (AggregateContainerState.RecordOOM): by a
// fifth, and by 100 MiB at least.
const (
	oomRaise    = 1.2
	oomLeastMiB = 100 * mdp.MiB
)

// raisedMemory is the memory limit after a kill at a limit.
func raisedMemory(limit mdp.Bytes) mdp.Bytes {
	return max(limit+oomLeastMiB, mdp.Bytes(float64(limit)*oomRaise))
}

// NeedsMemory reports whether a workload's containers are, or were a short while ago, in an
// OOM loop, as their object says: a pod was evicted for one that is to have more memory.
func NeedsMemory(now time.Time, status v1alpha1.MultidimPodAutoscalerStatus) bool {
	last := status.LastOOMEviction
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.OOMLoop) ||
		last != nil && now.Sub(last.Time.Time) < oomWindow
}

// oomKey is one container of one pod.
type oomKey struct {
	pod       types.UID
	container string
}

// oomTrack is what was seen of one container's OOM kills, look by look.
type oomTrack struct {
	pod       string
	container string
	spec      mdp.Bytes // the memory limit in the API; 0 is none
	since     time.Time // when spec was first seen; zero before the first look
	inForce   mdp.Bytes // the limit of which the kubelet said last that it is carried out

	last  time.Time   // when the newest kill was, by the node's clock; zero before one was seen
	kills []time.Time // within oomWindow, oldest first
	fresh int         // kills that the newest look found
	limit mdp.Bytes   // that was in force at the newest kill

	down    bool      // the container does not run now
	settled bool      // the kubelet says that it has what the API gives it
	loop    bool      // it is in an OOM loop
	began   mdp.Bytes // limit when the loop was found: the one that was in force for certain
	asked   time.Time // when more than began was first asked for in this loop
	again   bool      // it was killed after that
	said    bool      // the loop was an event

	tries   int       // evictions that were refused in this loop
	retry   time.Time // no eviction before
	refusal string    // of the last one
}

// oomLoops is what was seen of the containers of one workload's pods. It remembers
// containers of pods that are there, and a few kills of each.
type oomLoops map[oomKey]*oomTrack

// look takes in the workload as it is now. What a pod's status does not say is no kill.
func (o oomLoops) look(now time.Time, w *updater.Workload) {
	there := map[oomKey]bool{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		for _, s := range pod.Status.ContainerStatuses {
			key := oomKey{pod.UID, s.Name}
			spec, ok := memoryLimit(&pod.Spec, s.Name)
			if !ok {
				continue
			}
			there[key] = true
			if o[key] == nil {
				o[key] = &oomTrack{pod: pod.Name, container: s.Name}
			}
			template, _ := memoryLimit(&w.Template.Spec, s.Name)
			o[key].look(now, s, spec, template, updater.Settled(pod, s.Name))
		}
	}
	for key := range o {
		if !there[key] {
			delete(o, key)
		}
	}
}

// memoryLimit is the memory limit of a pod's container, 0 for none; ok is false
// without such a container.
func memoryLimit(spec *corev1.PodSpec, container string) (limit mdp.Bytes, ok bool) {
	for _, c := range spec.Containers {
		if c.Name == container {
			return updater.Limits(c.Resources).Memory, true
		}
	}
	return 0, false
}

// look takes in one container. settled means that the kubelet says that the limit of
// the spec is carried out.
func (t *oomTrack) look(now time.Time, s corev1.ContainerStatus, spec, template mdp.Bytes, settled bool) {
	first := t.since.IsZero()
	if first {
		// A pod starts with its template's size. What it has beyond that it may have got
		// after the kill that is found here.
		t.inForce = spec
		if template > 0 {
			t.inForce = min(spec, template)
		}
	}
	if first || spec != t.spec {
		t.spec = spec
		t.since = now
	}
	t.count(now, s, first, settled)
	t.down = s.State.Running == nil
	t.settled = settled
	t.again = t.again || t.fresh > 0 && !t.asked.IsZero()
	if !t.down && settled {
		t.inForce = spec
	}
	was := t.loop
	t.loop = t.loops(now, s) || t.loop && len(t.kills) > 0
	if t.loop && !was {
		t.began = t.limit
		t.asked = time.Time{}
		t.said = false
		t.tries = 0
		t.retry = time.Time{}
		t.refusal = ""
	}
}

// count notes the kills that are new in a status, and forgets the old ones. At the
// first look nothing is fresh: an earlier instance of central may have seen it.
func (t *oomTrack) count(now time.Time, s corev1.ContainerStatus, first, settled bool) {
	t.fresh = 0
	for _, end := range []*corev1.ContainerStateTerminated{s.LastTerminationState.Terminated, s.State.Terminated} {
		if !oomKilled(end) || end.FinishedAt.IsZero() || !end.FinishedAt.After(t.last) {
			continue
		}
		t.last = end.FinishedAt.Time
		t.limit = t.inForce
		if !first {
			t.fresh++
			if settled && t.last.After(t.since) {
				t.limit = t.spec
			}
		}
		at := t.last
		if at.After(now) { // the node's clock is ahead
			at = now
		}
		t.kills = append(t.kills, at)
	}
	t.kills = slices.DeleteFunc(t.kills, func(at time.Time) bool { return now.Sub(at) > oomWindow })
	t.kills = t.kills[max(0, len(t.kills)-oomKept):]
}

// loops reports whether a status shows a loop: the container ended for want of memory
// last, and it waits for its next start in back-off, or ended so twice, or oomRepeats times.
func (t *oomTrack) loops(now time.Time, s corev1.ContainerStatus) bool {
	before := s.LastTerminationState.Terminated
	switch {
	case s.State.Terminated != nil:
		again := oomKilled(before) && now.Sub(before.FinishedAt.Time) <= oomWindow
		return oomKilled(s.State.Terminated) && (again || len(t.kills) >= oomRepeats)
	case s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff":
		return oomKilled(before)
	}
	return oomKilled(before) && len(t.kills) >= oomRepeats
}

func oomKilled(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.Reason == "OOMKilled"
}

// all is the loops, by pod and container.
func (o oomLoops) all() []oomKey {
	var keys []oomKey
	for key, t := range o {
		if t.loop {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b oomKey) int {
		return strings.Compare(o[a].pod+"/"+a.container, o[b].pod+"/"+b.container)
	})
	return keys
}

// least is the memory that a container gets at least while one of its pods is in a
// loop: more than what it was killed with, and what it has; 0 is none.
func (o oomLoops) least(container string) mdp.Bytes {
	var least mdp.Bytes
	for key, t := range o {
		if key.container == container && t.loop && t.spec > 0 {
			least = max(least, t.spec, raisedMemory(t.limit))
		}
	}
	return least
}

// killed is what a container was killed of in one pod since the look before.
type killed struct {
	times int
	limit mdp.Bytes // memory that it had then
}

// fresh is the kills of a container that the newest look found, by pod. A kill at a
// size that a resize has replaced since says nothing about the size of now.
func (o oomLoops) fresh(container string) map[types.UID]killed {
	found := map[types.UID]killed{}
	for key, t := range o {
		if key.container == container && t.fresh > 0 && t.limit == t.spec && t.spec > 0 {
			found[key.pod] = killed{t.fresh, t.limit}
		}
	}
	return found
}

// relief is a policy that does not take memory from a container in an OOM loop, and
// gives it more, whatever the policy in it says or does not know.
type relief struct {
	policy mdp.Policy
	bounds mdp.Bounds
	least  mdp.Bytes // of memory; 0 is none
	gave   bool      // the last decision is not the policy's alone
}

// Decide implements [mdp.Policy].
func (r *relief) Decide(s mdp.State) (mdp.Action, error) {
	a, err := r.policy.Decide(s)
	r.gave = r.least > 0 && (err != nil || !a.Sets.Has(mdp.MemoryLimit) || a.Limit.Memory < r.least)
	if !r.gave {
		return a, err
	}
	if err != nil {
		a = mdp.Action{}
	}
	return r.bounds.Clip(a.WithMemory(r.least)), nil
}
