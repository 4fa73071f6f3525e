package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// grace is how long after a change of the API's limits the larger of old and new
// may be in force. The kubelet carries out a change some time after it was
// accepted, and reports it later.
const grace = 5 * time.Second

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
		time.Sleep(200 * time.Millisecond)
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
		if len(history) == 0 || history[len(history)-1].size != spec {
			if len(history) > 0 {
				history[len(history)-1].until = now.Add(grace)
			}
			history = append(history, ceilings{size: spec})
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

// podGroup is the pod's cgroup.
func podGroup(p *corev1.Pod) string {
	return path.Join(cluster.CgroupParent(), "kubepods", strings.ToLower(string(p.Status.QOSClass)),
		"pod"+string(p.UID))
}

// podOf is a part's one pod. One that is going does not count: the autoscaler's first one
// may still be there after its Deployment was changed.
func podOf(ctx context.Context, part string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := kube.List(ctx, &pods, client.InNamespace("aware-system"),
		client.MatchingLabels{"app.kubernetes.io/name": part}); err != nil {
		return nil, err
	}
	staying := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(staying) != 1 {
		return nil, fmt.Errorf("%d pods of %s", len(staying), part)
	}
	return &staying[0], nil
}

// process is a part's one pod, and its process ID on the host. It is read from the cgroup
// of the part's container, because other labs may run the same.
func process(t *testing.T, part string) (*corev1.Pod, int) {
	t.Helper()
	p, err := podOf(t.Context(), part)
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	hierarchy := "/sys/fs/cgroup"
	if tree.Version() == cgroup.V1 {
		hierarchy = "/sys/fs/cgroup/cpu"
	}
	text, err := os.ReadFile(filepath.Join(hierarchy, podGroup(p), id, "cgroup.procs"))
	if err != nil {
		t.Fatalf("looking for %s: %v", part, err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	return p, pid
}

// inForce reads the limits of the pod's one container from its cgroup.
func inForce(p *corev1.Pod) (mdp.Size, error) {
	if len(p.Status.ContainerStatuses) == 0 {
		return mdp.Size{}, errors.New("no container yet")
	}
	_, id, ok := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	if !ok {
		return mdp.Size{}, errors.New("no container yet")
	}
	g, err := tree.Group(path.Join(podGroup(p), id))
	if err != nil {
		return mdp.Size{}, err
	}
	defer g.Close()
	l, err := g.Limits()
	return l.Size(), err
}

// used is the CPU time of a cgroup since it was created.
func used(group string) (time.Duration, error) {
	g, err := tree.Group(group)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	var c cgroup.CPU
	err = g.ReadCPU(&c)
	return c.Usage, err
}
