package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// grace is how long after a change of the API's limits the larger of old and new
// may be in force. The kubelet carries out a change some time after it was
// accepted, and reports it later; on an emulated node, on a busy machine, after seconds in which it says nothing.
func grace() time.Duration { return emulated(30*time.Second, 5*time.Second) }

// resizing reports whether a kubelet that is emulated, or that a test stops, has not carried out a change yet. It takes
// as long as it takes: grace begins when it says that it is done.
func resizing(p *corev1.Pod) bool {
	return (*onSecond || *faults) && (p.Status.ObservedGeneration < p.Generation || slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return (c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress) && c.Status == corev1.ConditionTrue
		}))
}

// watchdog samples the limits in force and the API's limits while the tests run.
type watchdog struct {
	mu         sync.Mutex
	samples    int
	moved      int // samples in which the limits in force were below the API's
	violations []string
	restarts   map[string]int32      // by pod UID
	allowed    map[string][]ceilings // by pod UID, oldest first
}

// ceilings is the limits that the API allowed up to a time.
type ceilings struct {
	until time.Time // zero: they are the present ones
	size  mdp.Size
}

func newWatchdog() *watchdog {
	return &watchdog{restarts: map[string]int32{}, allowed: map[string][]ceilings{}}
}

func (w *watchdog) run(ctx context.Context) {
	var pods []corev1.Pod
	for ctx.Err() == nil {
		// The limits in force are read before the API's. So a raise between the two
		// reads is known when they are compared. A cut between them is covered by
		// grace.
		force := map[string]mdp.Size{}
		for i := range pods {
			if size, err := inForce(&pods[i]); err == nil { // otherwise it is starting, or gone
				force[string(pods[i].UID)] = size
			}
		}
		now, err := shop(ctx)
		if err == nil {
			pods = now
			w.sample(time.Now(), pods, force)
		}
		time.Sleep(emulated[time.Duration](500, 200) * time.Millisecond)
	}
}

func (w *watchdog) sample(now time.Time, pods []corev1.Pod, inForce map[string]mdp.Size) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range pods {
		p := &pods[i]
		uid := string(p.UID)
		w.restarts[uid] = max(w.restarts[uid], restarts(p))
		spec := limits(p)
		history := w.allowed[uid]
		if len(history) == 0 && carriedOut(p) != spec { // it was resized before it was seen
			history = append(history, ceilings{size: carriedOut(p)})
		}
		if len(history) == 0 || history[len(history)-1].size != spec {
			if len(history) > 0 {
				history[len(history)-1].until = now.Add(grace())
			}
			history = append(history, ceilings{size: spec})
		}
		for i := range history[:len(history)-1] {
			if resizing(p) && now.Before(history[i].until) {
				history[i].until = now.Add(grace())
			}
		}
		w.allowed[uid] = history
		var most mdp.Size
		for _, c := range history {
			if c.until.IsZero() || now.Before(c.until) {
				most.CPU, most.Memory = max(most.CPU, c.size.CPU), max(most.Memory, c.size.Memory)
			}
		}
		force, ok := inForce[uid]
		if !ok {
			continue
		}
		w.samples++
		if force.CPU > most.CPU || force.Memory > most.Memory {
			w.violations = append(w.violations,
				fmt.Sprintf("%s %s: %v in force, %v allocated", now.Format("15:04:05.0"), p.Name, force, most))
		}
		if force.CPU < spec.CPU || force.Memory < spec.Memory {
			w.moved++
		}
	}
}

// verdict is the counts of all samples so far.
func (w *watchdog) verdict() (samples, moved int, violations []string, restarts int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.restarts {
		restarts += n
	}
	return w.samples, w.moved, w.violations, restarts
}

func restarts(p *corev1.Pod) (n int32) {
	for _, s := range p.Status.ContainerStatuses {
		n += s.RestartCount
	}
	return n
}

// limits is the API's limits of the pod's one container.
func limits(p *corev1.Pod) mdp.Size {
	l := p.Spec.Containers[0].Resources.Limits
	return mdp.Size{CPU: mdp.MilliCPU(l.Cpu().MilliValue()), Memory: mdp.Bytes(l.Memory().Value())}
}

// carriedOut is the limits that the kubelet says it has carried out; none before it says anything.
func carriedOut(p *corev1.Pod) mdp.Size {
	if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].Resources == nil {
		return mdp.Size{}
	}
	l := p.Status.ContainerStatuses[0].Resources.Limits
	return mdp.Size{CPU: mdp.MilliCPU(l.Cpu().MilliValue()), Memory: mdp.Bytes(l.Memory().Value())}
}

// podOf is a part's one pod. One that is going does not count: the autoscaler's first one
// may still be there after its Deployment was changed.
func podOf(ctx context.Context, part string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace("aware-system"),
		client.MatchingLabels{"app.kubernetes.io/name": part}); err != nil {
		return nil, err
	}
	staying := slices.DeleteFunc(pods.Items,
		func(p corev1.Pod) bool { return p.DeletionTimestamp != nil || !isOf(part, &p) })
	if len(staying) != 1 {
		return nil, fmt.Errorf("%d pods of %s", len(staying), part)
	}
	return &staying[0], nil
}
