package perfmodel

import (
	"errors"
	"math"
)

// ErrMemory says that a run got less memory than it needs: it ends in an out-of-memory kill, so it has no duration.
var ErrMemory = errors.New("less memory than the run needs")

// Work is what one run asks of the machine.
type Work struct {
	Floor    float64 // s; waiting for disks and networks, which no CPU shortens
	CPU      float64 // s; time on exactly one core
	Parallel float64 // cores that the run can keep busy at once; +Inf when there is no end to it
	Serial   float64 // share of CPU, 0 to 1, that cannot be spread over cores (Amdahl, AFIPS 1967)
	Throttle float64 // exponent of the CPU limit, 1 for ideal; above 1 small limits cost more than their share (CFS periods)
	Memory   float64 // bytes below which the run fails; 0 when not known
}

// Duration is the time in seconds of a run under a limit of cpu cores and memory bytes:
//
//	floor + work * (serial/e(1) + (1-serial)/e(parallel)),   e(most) = min(cpu, most)^throttle
//
// A serial part uses one core at most, and is slower still when the limit is below one core. Measured example
// (ChunkFunc's cut-video): 47.8 s on 1 core, 18.6 s on 2, 8.0 s on 4, and 96.1 s on 0.583.
// It is +Inf when cpu is not positive, and fails with [ErrMemory] below the memory need. More CPU is never slower.
func (w Work) Duration(cpu, memory float64) (float64, error) {
	if memory < w.Memory {
		return 0, ErrMemory
	}
	if w.CPU == 0 {
		return w.Floor, nil
	}
	if !(cpu > 0) {
		return math.Inf(1), nil
	}
	return w.Floor + w.CPU*(w.Serial*Share(cpu, 1, w.Throttle)+(1-w.Serial)*Share(cpu, w.Parallel, w.Throttle)), nil
}

// Share is the time that one second of work takes under a limit of cpu cores when it can keep parallel of them busy.
func Share(cpu, parallel, throttle float64) float64 {
	return math.Pow(min(cpu, parallel), -throttle)
}

// Amdahl is the speedup of n threads over one when the share serial of the work cannot be spread (Amdahl, AFIPS 1967):
// 1 / (serial + (1-serial)/n). Eight threads with a fifth serial are 3.3 times as fast as one.
func Amdahl(serial, n float64) float64 {
	return 1 / (serial + (1-serial)/n)
}

// LambdaCores is how many cores AWS Lambda gives with so many MB of memory: one for each 1,769 MB (AWS Lambda Developer
// Guide, "Configure Lambda function memory").
func LambdaCores(memoryMB float64) float64 { return memoryMB / 1769 }
