package mdp

import (
	"fmt"
	"math"
)

// MilliCPU is an amount of CPU time per time: 1000 is one core used all the
// time. A CPU limit of 250 is a CFS quota of 25 ms in each period of 100 ms, or of 100 ms in each 400 ms.
type MilliCPU int64

// Cores is the amount in cores.
func (m MilliCPU) Cores() float64 { return float64(m) / 1000 }

func (m MilliCPU) String() string { return fmt.Sprintf("%dm", int64(m)) }

// Bytes is an amount of memory.
type Bytes int64

// MiB is 2^20 bytes.
const MiB Bytes = 1 << 20

// MiB is the amount in mebibytes.
func (b Bytes) MiB() float64 { return float64(b) / float64(MiB) }

func (b Bytes) String() string {
	if b%MiB == 0 {
		return fmt.Sprintf("%dMi", int64(b/MiB))
	}
	if b > MiB || b < -MiB {
		return fmt.Sprintf("%.1fMi", b.MiB())
	}
	return fmt.Sprintf("%d", int64(b))
}

// Ratio is a share of something, usually in [0, 1]; 1.2 is a hundred and twenty
// percent.
type Ratio float64

// Finite reports whether the ratio is neither NaN nor infinite.
func (r Ratio) Finite() bool { return !math.IsNaN(float64(r)) && !math.IsInf(float64(r), 0) }

// Rate counts something per second: requests, or bytes.
type Rate float64

// Size is an amount of CPU and memory: what one replica may use, or uses.
type Size struct {
	CPU    MilliCPU
	Memory Bytes
}

func (s Size) String() string { return fmt.Sprintf("%v/%v", s.CPU, s.Memory) }
