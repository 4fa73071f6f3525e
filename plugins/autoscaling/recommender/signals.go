package recommender

import (
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Inputs says in words what a decision was made from. A signal that was not
// observed is left out.
func Inputs(s mdp.State) string {
	var parts []string
	add := func(signal mdp.Signal, text string) {
		if s.Knows(signal) {
			parts = append(parts, text)
		}
	}
	add(mdp.Replicas, fmt.Sprintf("replicas=%d", s.Replicas))
	add(mdp.CPULimit, fmt.Sprintf("cpu-limit=%v", s.Limit.CPU))
	add(mdp.CPUUsage, fmt.Sprintf("cpu=%v", s.Usage.CPU))
	add(mdp.CPUPeak, fmt.Sprintf("cpu-peak=%v", s.CPUPeak))
	add(mdp.Throttled, fmt.Sprintf("throttled=%.2f", float64(s.Throttled)))
	add(mdp.MemoryLimit, fmt.Sprintf("memory-limit=%.0fMi", s.Limit.Memory.MiB()))
	add(mdp.MemoryUsage, fmt.Sprintf("memory=%.0fMi", s.Usage.Memory.MiB()))
	add(mdp.Latency, fmt.Sprintf("latency=%v", s.Latency.Round(100*time.Microsecond)))
	add(mdp.Throughput, fmt.Sprintf("throughput=%.1f/s", float64(s.Throughput)))
	if len(parts) == 0 {
		return "nothing observed"
	}
	return strings.Join(parts, " ")
}
