package fleet

import (
	"math/rand/v2"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// ledger is what central has promised the scheduler of one node: the permits that the
// node may hold. A larger one counts from before it is sent, and a smaller one once the
// node has said that it has taken it in.
type ledger struct {
	epoch   uint64 // of these permits; above 0
	number  uint64 // of the newest one; 0 before the first
	given   []given
	holds   bool         // the node has said on its present stream that it holds given[0]
	account *api.Account // the node's last; nil: not known
}

// given is a permit that the node may hold: the one that it has taken in last, or one
// that was given since.
type given struct {
	number uint64
	amount mdp.Size
	at     time.Time // when it was sent, or before
}

// unacknowledged is how many permits are remembered. A node whose answer is to an older
// one has no promise until it has taken in a newer one.
const unacknowledged = 64

func newLedger() ledger { return ledger{epoch: rand.Uint64N(1<<63) + 1} }

// hear takes in what a node reports. A permit that it holds and that is not known here is
// another central's, or one from before a later answer: then it is not known what the node
// may do.
func (l *ledger) hear(a *api.Account) {
	l.account = a
	l.holds = false
	if a == nil || a.Holds.Epoch != l.epoch {
		return
	}
	at := slices.IndexFunc(l.given, func(g given) bool { return g.number == a.Holds.Number })
	if at >= 0 {
		l.given = slices.Delete(l.given, 0, at)
		l.holds = true
	}
}

// lost forgets what the node holds: its stream has ended. An agent that starts anew holds
// nothing.
func (l *ledger) lost() { l.holds = false }

// due reports whether the node asks for something else than it was given last.
func (l *ledger) due() bool {
	return l.account != nil && (len(l.given) == 0 || l.given[len(l.given)-1].amount != l.account.Asked)
}

// give makes the next permit: for what the node has asked. It is none while that is not
// known.
func (l *ledger) give(now time.Time) api.Permit {
	if l.account == nil {
		return api.Permit{}
	}
	if len(l.given) == unacknowledged {
		l.given = slices.Delete(l.given, 0, 1)
		l.holds = false
	}
	l.number++
	l.given = append(l.given, given{l.number, l.account.Asked, now})
	return api.Permit{ID: api.PermitID{Epoch: l.epoch, Number: l.number}, Amount: l.account.Asked}
}

// promise is the most that the limits in force of a node's managed containers come to.
type promise struct {
	sum   mdp.Size
	until time.Time // when the node's permit may end; zero: nothing is promised
}

// holds reports whether a promise holds at that time.
func (p promise) holds(now time.Time) bool { return now.Before(p.until) }

// promise is the largest of the permits that the node may hold, and of what it has in
// force. It ends with the permit that the node has taken in: the node counts the time to
// live from a later moment.
func (l *ledger) promise(ttl time.Duration) promise {
	if !l.holds {
		return promise{}
	}
	p := promise{sum: l.account.InForce, until: l.given[0].at.Add(ttl)}
	for _, g := range l.given {
		p.sum.CPU = max(p.sum.CPU, g.amount.CPU)
		p.sum.Memory = max(p.sum.Memory, g.amount.Memory)
	}
	return p
}
