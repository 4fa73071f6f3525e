package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/kcpu"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// K8s-CPU-Fast has the bounds that AWARE has from its annotations.
const leastMilli, mostMilli = 100, 1200

// fast is K8s-CPU-Fast on real pods: once a second it reads what each container has used, and
// resizes its pod in place. A container's request follows its limit in the template's proportion.
type fast struct {
	clients   kubernetes.Interface
	namespace string
	policies  map[string]*kcpu.Policy // by the container's group
	usage     map[string]time.Duration
	at        time.Time
}

// startCPUFast runs it until the returned function is called.
func (s *stage) startCPUFast(ctx context.Context, namespace string, sampler *sampler) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		f := &fast{clients: s.clients, namespace: namespace}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if err := f.step(ctx, now, sampler); err != nil && ctx.Err() == nil {
					s.screen.say("%s: %v", cpuFast, err) // the next second tries again
				}
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// step decides once for each running container.
func (f *fast) step(ctx context.Context, now time.Time, sampler *sampler) error {
	usage, policies := map[string]time.Duration{}, map[string]*kcpu.Policy{}
	since := now.Sub(f.at)
	for _, pod := range sampler.podsNow() {
		for _, c := range containersOf(pod, sampler.parent) {
			r, err := sampler.host.read(c.path)
			if err != nil || r.limit.milli == nil || c.leaving {
				continue // it has just ended, or begins
			}
			usage[c.path] = r.usage
			policy := f.policies[c.path]
			if policy == nil {
				policy = kcpu.New(kcpu.Fast)
			}
			policies[c.path] = policy
			before, seen := f.usage[c.path]
			if !seen || since <= 0 {
				continue
			}
			a, err := policy.Decide(mdp.State{
				At:       now,
				Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage),
				Limit:    mdp.Size{CPU: mdp.MilliCPU(*r.limit.milli)},
				Usage:    mdp.Size{CPU: mdp.MilliCPU(1000 * (r.usage - before) / since)},
			})
			if err != nil {
				return err
			}
			if !a.Sets.Has(mdp.CPULimit) {
				continue
			}
			if err := f.resize(ctx, pod, min(max(int64(a.Limit.CPU), leastMilli), mostMilli)); err != nil {
				return err
			}
		}
	}
	f.usage, f.policies, f.at = usage, policies, now
	return nil
}

// resize sets a pod's CPU limit, in millicores, where it is another one.
func (f *fast) resize(ctx context.Context, pod *corev1.Pod, limit int64) error {
	container := pod.Spec.Containers[0]
	if container.Resources.Limits.Cpu().MilliValue() == limit {
		return nil
	}
	milli := func(n int64) map[string]string { return map[string]string{"cpu": fmt.Sprintf("%dm", n)} }
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []map[string]any{{
		"name": container.Name, "resources": map[string]any{"limits": milli(limit), "requests": milli(limit * 2 / 3)},
	}}}})
	if err != nil {
		return err
	}
	pods := f.clients.CoreV1().Pods(f.namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "resize")
	if err != nil {
		return fmt.Errorf("resizing pod %s to %dm: %w", pod.Name, limit, err)
	}
	return nil
}
