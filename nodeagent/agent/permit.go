package agent

import (
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

const (
	// memoryMargin is the free memory that the agent leaves to the node. The kubelet evicts
	// pods when there is less than 100 MiB, by default.
	memoryMargin = 256 * mdp.MiB
	// What is asked for is askTimes what is in force. It is asked for anew when more than
	// askAbove of the permit is in force, or less than askBelow: in between nothing is said.
	askTimes = 1.5
	askAbove = 0.8
	askBelow = 0.4
)

// anyCPU and anyMemory are no bound: more than any node has.
const (
	anyCPU    mdp.MilliCPU = 1 << 40
	anyMemory mdp.Bytes    = 1 << 60
)

// budget is what the limits of the managed containers come to in a step, and what they may
// come to. The goroutine that steps uses it.
type budget struct {
	permit    api.Permit                // zero: there is none, and then only the API's limits bound
	sum       mdp.Size                  // of the limits in force, with what the step has set
	ceilings  mdp.Size                  // what that can come to
	raised    mdp.Bytes                 // that memory limits were raised by in the step
	since     mdp.Bytes                 // and in the steps before it, under the same permit
	available func() (mdp.Bytes, error) // memory that the node has free; asked once in a step
}

// open begins a step. taken is what the fast lanes have raised memory limits by since the last.
func (b *budget) open(p api.Permit, all []*managedContainer, taken mdp.Bytes, available func() (mdp.Bytes, error)) {
	since := b.since + b.raised + taken
	if p.ID != b.permit.ID {
		since = 0
	}
	*b = budget{permit: p, since: since, available: sync.OnceValues(available)}
	for _, c := range all {
		held, top := c.held(), c.facts.Ceiling()
		b.sum = plus(b.sum, held)
		b.ceilings = plus(b.ceilings, mdp.Size{CPU: max(held.CPU, top.CPU), Memory: max(held.Memory, top.Memory)})
	}
}

func plus(a, b mdp.Size) mdp.Size { return mdp.Size{CPU: a.CPU + b.CPU, Memory: a.Memory + b.Memory} }

// moved takes in the step of one container, whose limits counted for that much before; nil is
// one that is gone. What it was raised by is from what the step has found in force.
func (b *budget) moved(before mdp.Size, c *managedContainer) {
	after := c.held()
	b.sum = plus(b.sum, mdp.Size{CPU: after.CPU - before.CPU, Memory: after.Memory - before.Memory})
	if c != nil {
		b.raised += max(0, after.Memory-c.inForce.Memory)
	}
}

// held is the limits that a container has, or is getting; 0 is none.
func (c *managedContainer) held() mdp.Size {
	if c == nil {
		return mdp.Size{}
	}
	is, ours := c.inForce.Size(), c.ownership.Ours.Size()
	return mdp.Size{CPU: max(is.CPU, ours.CPU, c.restored.CPU), Memory: max(is.Memory, ours.Memory, c.restored.Memory)}
}

// free is the memory that the node can give away.
func (b *budget) free() (mdp.Bytes, error) {
	available, err := b.available()
	return max(0, available-memoryMargin), err
}

// raise is what a raise may take at most, for the guards; ok is false without a permit. A
// CPU limit is always raised: CPU is shared. A memory limit is raised within the permit, and
// beyond it into memory that is free. What was raised beyond this permit before has been
// taken from that; limits that were beyond it when it came have not.
func (b *budget) raise() (most mdp.Size, ok bool) {
	if !b.permit.Known() {
		return mdp.Size{}, false
	}
	within, taken := b.spare()
	return mdp.Size{CPU: anyCPU, Memory: (within + max(0, orNone(b.free())-taken)) / page * page}, true
}

// spare is what the permit leaves, and what was taken of the node's free memory.
func (b *budget) spare() (within, taken mdp.Bytes) {
	within = max(0, b.permit.Amount.Memory-b.sum.Memory)
	beyond := max(0, b.sum.Memory-b.permit.Amount.Memory)
	return within, min(beyond, b.since+b.raised)
}

// orNone is free memory, and none where that is not known.
func orNone(free mdp.Bytes, err error) mdp.Bytes {
	if err != nil {
		return 0
	}
	return free
}

// lend is what the fast lanes may raise memory limits by, all together, until the next step. The
// node's free memory is that of the moment in which they do.
func (b *budget) lend(available func() (mdp.Bytes, error)) func() mdp.Bytes {
	if !b.permit.Known() {
		return func() mdp.Bytes { return anyMemory }
	}
	within, taken := b.spare()
	return func() mdp.Bytes {
		return within + max(0, orNone(available())-memoryMargin-taken)
	}
}

// restorable is what the memory limit of a container may be raised by when it is restored.
// The API's limit is legal whatever the node has: where that is not known there is no bound.
func (b *budget) restorable() mdp.Bytes {
	free, err := b.free()
	if err != nil {
		return anyMemory
	}
	if most, ok := b.raise(); ok {
		return most.Memory
	}
	return max(0, free-b.raised)
}

// problem says that an action waits for the node's permit.
func (b *budget) problem(a mdp.Action) string {
	if a.Clipped&mdp.ClippedBudget == 0 {
		return ""
	}
	return fmt.Sprintf("its memory limit waits: the node's limits are %v in sum, its permit is for %v, "+
		"and it has no free memory for more", b.sum.Memory, b.permit.Amount.Memory)
}

// account is what the node reports after a step.
func (b *budget) account() api.Account {
	return api.Account{
		InForce: b.sum,
		Asked: mdp.Size{
			CPU:    ask(b.sum.CPU, b.ceilings.CPU, b.permit.Amount.CPU),
			Memory: ask(b.sum.Memory, b.ceilings.Memory, b.permit.Amount.Memory),
		},
		Holds: b.permit.ID,
	}
}

// ask is what a permit should allow when sum is in force: more than that, because an answer
// takes time, and at most what can be in force. While the present permit does, it is that.
func ask[T ~int64](sum, ceilings, permitted T) T {
	most := max(sum, ceilings)
	if inUse := float64(sum); inUse <= askAbove*float64(permitted) && inUse >= askBelow*float64(permitted) {
		return min(permitted, most)
	}
	return min(T(askTimes*float64(sum)), most)
}

// ask has a report sent at once when more is needed than is permitted, and that is news.
func (a *Agent) ask(now time.Time, account api.Account) {
	asked, permit := account.Asked, a.budget.permit
	more := asked.CPU > permit.Amount.CPU && asked.CPU > a.askedFor.CPU ||
		asked.Memory > permit.Amount.Memory && asked.Memory > a.askedFor.Memory
	if !permit.Known() || asked.CPU <= permit.Amount.CPU && asked.Memory <= permit.Amount.Memory {
		a.askedFor = mdp.Size{}
	}
	if !permit.Known() || !more || now.Sub(a.askedAt) < api.ReportEvery {
		return
	}
	a.askedFor, a.askedAt = asked, now
	select {
	case a.urgent <- struct{}{}:
	default: // what is sent next has it
	}
}

// available is the memory that the node has free.
func (a *Agent) available() (mdp.Bytes, error) {
	if a.deps.Memory == nil {
		return 0, fmt.Errorf("the node's memory is not read")
	}
	return a.deps.Memory.MemoryAvailable()
}
