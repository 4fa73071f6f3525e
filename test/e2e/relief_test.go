package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/test/cluster/groups"
	corev1 "k8s.io/api/core/v1"
)

// heldCPU waits until some pod's CPU limit in force is at most two thirds of the API's.
func heldCPU(t *testing.T) *corev1.Pod {
	t.Helper()
	return heldAt(t, "CPU well", func(force, api mdp.Size) bool { return 3*force.CPU <= 2*api.CPU })
}

// heldMemory waits until some pod's memory limit in force is below the template's.
func heldMemory(t *testing.T) *corev1.Pod {
	t.Helper()
	return heldAt(t, "memory", func(force, api mdp.Size) bool {
		return force.Memory > 0 && force.Memory < 192*mdp.MiB && force.Memory <= api.Memory
	})
}

func heldAt(t *testing.T, what string, is func(force, api mdp.Size) bool) (held *corev1.Pod) {
	t.Helper()
	eventually(t, patience, "a container's "+what+" is held below what was given", func() (bool, string) {
		pods, err := shop(t.Context())
		if err != nil {
			return false, err.Error()
		}
		seen := ""
		for i := range pods {
			force, err := inForce(&pods[i])
			if err == nil && is(force, limits(&pods[i])) {
				held = &pods[i]
				return true, ""
			}
			seen += fmt.Sprintf("%s: %v of %v (%v); ", pods[i].Name, force, limits(&pods[i]), err)
		}
		return false, seen
	})
	return held
}

// burst keeps a pod busy with requests, until it is stopped.
func burst(t *testing.T, p *corev1.Pod) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Status.PodIP+":8080/?segments=text:100", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if answer, err := http.DefaultClient.Do(r); err == nil {
					answer.Body.Close()
				}
			}
		})
	}
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	return stop
}

// The counters of the agent that these tests look at.
const (
	reliefs   = "aware_agent_reliefs_total" // raises by the sampler
	conflicts = "aware_agent_conflicts_total"
)

// counted is a counter of the agent of the workload's node.
func counted(t *testing.T, counter, token string) (count float64) {
	t.Helper()
	eventually(t, patience, "the agent says "+counter, func() (bool, string) {
		all, err := families(t.Context(), "aware-agent", token)
		if err != nil || all[counter] == nil {
			return false, fmt.Sprint("no such metric: ", err)
		}
		count = all[counter].Metric[0].GetCounter().GetValue()
		return true, ""
	})
	return count
}

// stopped stops the container runtime while a container's CPU is held well below its API
// limit, until the test ends.
func stopped(t *testing.T) (held *corev1.Pod, was groups.Reading) {
	t.Helper()
	t.Cleanup(func() { signalRuntime(t, "CONT") })
	for range 5 {
		held = heldCPU(t)
		signalRuntime(t, "STOP")
		// Its last call may have been a raise.
		var err error
		if was, err = read(held); err == nil && 3*was.Limits.CPU <= 2*limits(held).CPU {
			return held, was
		}
		signalRuntime(t, "CONT")
	}
	t.Fatal("the container is never held while the runtime is stopped")
	return nil, was
}
