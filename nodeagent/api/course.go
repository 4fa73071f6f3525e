package api

import (
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Half is what a [Course] is in parts of.
const Half = time.Second / 2

const (
	// MaxHalves is how many halves a course has at most: two nodes report up to five seconds apart, and both courses have the
	// five seconds before the earlier report.
	MaxHalves = 20
	recent    = 10 // halves that two courses are looked at in
)

// Course is the CPU use of a container in each of the last halves of a second. With it central knows what two replicas have
// used at the same time, which is less than what each has used in its own busiest second.
type Course struct {
	Until int64          // when the last one ended, in halves of a second since 1970; 0: nothing is known
	Use   []mdp.MilliCPU // of each half in the mean, the last one last
}

// Together is the highest mean use of two containers together over one second, in the last five that both courses have; ok is
// false where they have not so many.
func (c Course) Together(other Course) (highest mdp.MilliCPU, ok bool) {
	until := min(c.Until, other.Until)
	one, two := c.before(until), other.before(until)
	if one == nil || two == nil {
		return 0, false
	}
	for i := 1; i < recent; i++ {
		highest = max(highest, (one[i-1]+one[i]+two[i-1]+two[i]+1)/2)
	}
	return highest, true
}

// before is the recent halves up to one; nil where not all are known.
func (c Course) before(half int64) []mdp.MilliCPU {
	last := int64(len(c.Use)) - (c.Until - half)
	if c.Until <= 0 || last < recent {
		return nil
	}
	return c.Use[last-recent : last]
}

// check is nil for a course that a container on a node with so much CPU can have.
func (c Course) check(node mdp.MilliCPU) error {
	if len(c.Use) > MaxHalves || c.Until < 0 || c.Until == 0 && len(c.Use) > 0 {
		return fmt.Errorf("course of %d halves of a second until %d: at most %d, and a time above 0", len(c.Use), c.Until, MaxHalves)
	}
	for _, used := range c.Use {
		if used < 0 || float64(used) > jitter*float64(node) {
			return fmt.Errorf("course: a use of %d millicores: it must be in [0, %v]", used, jitter*float64(node))
		}
	}
	return nil
}
