package perfmodel

import (
	"errors"
	"math"
)

// ErrMemory means that a run has less memory than it needs. It ends with an
// out-of-memory kill, so it has no duration.
var ErrMemory = errors.New("less memory than the run needs")

// Work is the demand of one run.
type Work struct {
	Floor    float64 // seconds of waiting for disks and networks, which more CPU does not shorten
	CPU      float64 // seconds on exactly one core
	Parallel float64 // cores that the run can use at once; +Inf for no limit
	Serial   float64 // share of CPU, 0 to 1, that is sequential (Amdahl, AFIPS 1967)
	// Throttle is the exponent of the CPU limit; 1 is ideal. Above 1, small
	// limits cost more than their share, because of CFS periods.
	Throttle float64
	Memory   float64 // bytes below which the run fails; 0 when not known
}

// Duration is the duration in seconds of a run under a limit of cpu cores and
// memory bytes:
//
//	floor + work * (serial/e(1) + (1-serial)/e(parallel)),   e(most) = min(cpu, most)^throttle
//
// The serial part uses at most one core. It is slower when the limit is below
// one core. Measured example (ChunkFunc's cut-video): 47.8 s on 1 core, 18.6 s
// on 2, 8.0 s on 4, and 96.1 s on 0.583. It is +Inf when cpu is not positive,
// and fails with [ErrMemory] below the memory need. More CPU is never slower.
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
	serial := w.Serial * Share(cpu, 1, w.Throttle)
	return w.Floor + w.CPU*(serial+(1-w.Serial)*Share(cpu, w.Parallel, w.Throttle)), nil
}

// Share is the duration of one second of work under a limit of cpu cores when
// the work can use parallel cores.
func Share(cpu, parallel, throttle float64) float64 {
	return math.Pow(min(cpu, parallel), -throttle)
}

// Amdahl is the speedup of n threads over one when the share serial of the work
// is sequential (Amdahl, AFIPS 1967): 1 / (serial + (1-serial)/n). With a
// serial share of 0.2, eight threads are 3.3 times as fast as one.
func Amdahl(serial, n float64) float64 {
	return 1 / (serial + (1-serial)/n)
}

// LambdaCores is the number of cores that AWS Lambda allocates with a memory
// size in MB: one per 1,769 MB (AWS Lambda Developer Guide, "Configure Lambda
// function memory").
func LambdaCores(memoryMB float64) float64 { return memoryMB / 1769 }
