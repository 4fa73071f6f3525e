package api

import (
	"fmt"

	"awarescale.dev/aware/learner/mdp"
)

// Permit is what central has promised the scheduler of a node: the limits in force of
// its managed containers come to at most Amount, in sum. A memory limit that would go
// beyond it is raised only into memory that the node has free. A CPU limit is raised in
// any case, because CPU can be shared: the node asks for more then.
type Permit struct {
	ID     PermitID
	Amount mdp.Size
}

// PermitID names a permit. The zero value names none.
type PermitID struct {
	Epoch  uint64 // of the central that gave it: another process, or another term, has another one
	Number uint64 // rises within the epoch, from 1; each message has a new one
}

// Known reports whether there is a permit.
func (p Permit) Known() bool { return p.ID != PermitID{} }

// Then is the permit that holds when another one arrives after p. One that is older,
// of the same central, does not count any more.
func (p Permit) Then(next Permit) Permit {
	if !next.Known() || next.ID.Epoch == p.ID.Epoch && next.ID.Number <= p.ID.Number {
		return p
	}
	return next
}

// Account is what a node reports of the limits of its managed containers, in sum.
type Account struct {
	InForce mdp.Size // their limits in force; one that has none counts 0
	Asked   mdp.Size // what a permit should allow: what is in force, and what may soon be
	Holds   PermitID // the permit that the node has taken in last, while it holds; zero is none
}

// mostCPU and mostMemory are more than any node has.
const (
	mostCPU    mdp.MilliCPU = 1_000_000_000
	mostMemory mdp.Bytes    = 1 << 50
)

// Check is nil for an account that a node can have. Limits may be above what the node
// has, as the API allows.
func (a Account) Check() error {
	if err := checkSum("limits in force", a.InForce); err != nil {
		return err
	}
	if err := checkSum("limits that are asked for", a.Asked); err != nil {
		return err
	}
	return a.Holds.check()
}

// check is nil for a permit that central can give, and for none.
func (p Permit) check() error {
	if err := p.ID.check(); err != nil {
		return err
	}
	return checkSum("limits that are permitted", p.Amount)
}

func (id PermitID) check() error {
	if (id.Epoch == 0) != (id.Number == 0) {
		return fmt.Errorf("permit %d of epoch %d: both must be above 0, or both 0 for none", id.Number, id.Epoch)
	}
	return nil
}

func checkSum(what string, s mdp.Size) error {
	if s.CPU < 0 || s.CPU > mostCPU || s.Memory < 0 || s.Memory > mostMemory {
		return fmt.Errorf("%s: %v in sum: it must be from 0 to %v", what, s, mdp.Size{CPU: mostCPU, Memory: mostMemory})
	}
	return nil
}
