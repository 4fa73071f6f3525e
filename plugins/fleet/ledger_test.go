package fleet_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
)

const (
	permitTTL = 2 * time.Minute
	freshness = 30 * time.Second // of reports, as the scheduler has it
)

// play is a node without free memory, its link, and central, in a random order of events. The
// node obeys: it raises its limits within its permit, and without one up to its ceiling.
type play struct {
	rng     *rand.Rand
	now     time.Time
	fleet   *fleet.Fleet
	ceiling mdp.Bytes

	inForce mdp.Bytes
	permit  api.Permit
	until   time.Time // it holds

	up   []api.Report // on their way
	down []api.Permit
	cut  bool   // the stream has broken, and central has not noticed
	did  string // the last event, for messages
}

func newPlay(seed uint64) *play {
	p := &play{rng: rand.New(rand.NewPCG(seed, 7)), now: noon, ceiling: 100, inForce: 100}
	p.startCentral()
	return p
}

func (p *play) startCentral() {
	p.fleet = fleet.New(permitTTL)
	p.fleet.Open()
}

// most is what the node may have in force.
func (p *play) most() mdp.Bytes {
	if !p.permit.Known() {
		return p.ceiling
	}
	return min(p.ceiling, max(p.permit.Amount.Memory, p.inForce))
}

func (p *play) random(n mdp.Bytes) mdp.Bytes { return mdp.Bytes(p.rng.Int64N(int64(n) + 1)) }

// events are what can happen, with how often it does.
var events = []struct {
	name  string
	often int
	do    func(*play)
}{
	{"a second passes", 20, func(p *play) { p.now = p.now.Add(time.Second) }},
	{"time passes", 1, func(p *play) { p.now = p.now.Add(time.Duration(p.rng.Int64N(int64(2 * permitTTL)))) }},
	{"the node raises", 10, func(p *play) { p.inForce = max(p.inForce, p.random(p.most())) }},
	{"the node raises all that it may", 4, func(p *play) { p.inForce = p.most() }},
	{"the node lowers", 8, func(p *play) { p.inForce = p.random(p.inForce) }},
	{"the node reports", 20, func(p *play) {
		if !p.cut {
			p.up = append(p.up, api.Report{
				Node: "one", At: p.now.Add(time.Duration(p.rng.Int64N(int64(time.Hour))) - time.Hour/2), // its clock jumps
				Account: &api.Account{InForce: mdp.Size{Memory: p.inForce}, Asked: mdp.Size{Memory: p.random(p.ceiling)}, Holds: p.permit.ID},
			})
		}
	}},
	{"a report arrives", 20, func(p *play) { p.arrive(0) }},
	{"a later report arrives first", 3, func(p *play) { p.arrive(p.rng.IntN(len(p.up) + 1)) }},
	{"central sends", 15, func(p *play) {
		if permit := p.fleet.Permit(p.now, "one"); permit.Known() && !p.cut {
			p.down = append(p.down, permit)
		}
	}},
	{"a permit arrives", 20, func(p *play) {
		if len(p.down) == 0 {
			return
		}
		if next := p.permit.Then(p.down[0]); next != p.permit {
			p.permit, p.until = next, p.now.Add(permitTTL)
		}
		p.down = p.down[1:]
	}},
	{"the stream breaks", 1, func(p *play) { p.cut, p.up, p.down = true, nil, nil }},
	{"central notices", 3, func(p *play) { p.notice() }},
	{"the agent starts anew", 1, func(p *play) { p.notice(); p.permit, p.inForce = api.Permit{}, p.ceiling }},
	{"central starts anew", 1, func(p *play) { p.startCentral(); p.cut, p.up, p.down = false, nil, nil }},
	{"central's term ends, and begins again", 1, func(p *play) { p.fleet.Close(); p.fleet.Open() }},
}

func (p *play) arrive(i int) {
	if i >= len(p.up) {
		return
	}
	r := p.up[i]
	p.up = append(p.up[:i:i], p.up[i+1:]...)
	p.fleet.Accept(p.now, r)
}

// notice ends the stream, and opens another one.
func (p *play) notice() {
	p.up, p.down, p.cut = nil, nil, false
	p.fleet.Lost("one")
}

func (p *play) step() {
	all := 0
	for _, e := range events {
		all += e.often
	}
	pick := p.rng.IntN(all)
	for _, e := range events {
		if pick -= e.often; pick < 0 {
			p.did = e.name
			e.do(p)
			break
		}
	}
	if p.permit.Known() && p.now.After(p.until) {
		p.permit, p.inForce = api.Permit{}, p.ceiling // everything is restored
	}
}

// Whatever is lost, late, out of order or restarted: what is promised is never below what
// the node has in force.
func TestWhatIsPromisedIsNeverBelowWhatIsInForce(t *testing.T) {
	checked, below := 0, 0
	for seed := range uint64(60) {
		p := newPlay(seed)
		for step := range 3000 {
			p.step()
			sum, ok := p.fleet.Promised("one", p.now, freshness)
			if !ok {
				continue
			}
			checked++
			if sum.Memory < p.ceiling {
				below++
			}
			if p.inForce > sum.Memory {
				t.Fatalf("seed %d, step %d, after %q: %v is in force, and %v is promised", seed, step, p.did, p.inForce, sum.Memory)
			}
		}
	}
	// A promise that is never made, or is always everything, would be of no use.
	if checked < 20000 || below < checked/2 {
		t.Errorf("%d promises in 180,000 steps, %d of them below the ceiling", checked, below)
	}
}

// permits is a fleet with one node that takes in what it is given at once.
type permits struct {
	t    *testing.T
	f    *fleet.Fleet
	now  time.Time
	last api.Permit
}

func newPermits(t *testing.T) *permits {
	p := &permits{t: t, f: fleet.New(permitTTL), now: noon}
	p.f.Open()
	return p
}

func (p *permits) report(inForce, asked mdp.Bytes, holds api.PermitID) {
	p.f.Accept(p.now, api.Report{Node: "one", Account: &api.Account{
		InForce: mdp.Size{Memory: inForce}, Asked: mdp.Size{Memory: asked}, Holds: holds,
	}})
}

func (p *permits) given() api.Permit {
	p.t.Helper()
	p.last = p.f.Permit(p.now, "one")
	return p.last
}

// wants fails unless that is promised; -1 is nothing.
func (p *permits) wants(when string, want mdp.Bytes) {
	p.t.Helper()
	sum, ok := p.f.Promised("one", p.now, freshness)
	if ok != (want >= 0) || ok && sum.Memory != want {
		p.t.Errorf("%s: %v is promised, %v; want %v", when, sum.Memory, ok, want)
	}
}

func TestALargerPermitCountsAtOnceAndASmallerOneWhenItIsTakenIn(t *testing.T) {
	p := newPermits(t)
	if p.given().Known() {
		t.Error("a node that has not reported got a permit")
	}
	p.report(100, 60, api.PermitID{})
	p.wants("before there is a permit", -1)
	first := p.given()
	if first.Amount.Memory != 60 || !first.Known() {
		t.Fatalf("permit %+v, want what is asked for", first)
	}
	p.wants("not taken in", -1)
	p.report(50, 90, first.ID)
	p.wants("taken in", 60)
	second := p.given()
	p.wants("a larger one is on its way", 90)
	if second.ID.Epoch != first.ID.Epoch || second.ID.Number <= first.ID.Number {
		t.Errorf("%+v after %+v", second, first)
	}
	p.report(85, 40, second.ID)
	third := p.given()
	p.wants("a smaller one is on its way", 90)
	p.report(85, 40, second.ID)
	p.wants("it is not taken in", 90)
	p.report(85, 40, third.ID)
	p.wants("it is taken in, and more is in force", 85)
	p.report(30, 40, third.ID)
	p.wants("and then it is not", 40)
	r := report("one", "a")
	r.Account = &api.Account{InForce: mdp.Size{Memory: 41}, Asked: mdp.Size{Memory: 40}, Holds: third.ID}
	p.f.Accept(p.now, r)
	p.wants("a pod has come", 41)
}

// A central that is not open, or whose term has ended, gives no permit.
func TestAPermitIsGivenByTheCentralThatDecides(t *testing.T) {
	p := &permits{t: t, f: fleet.New(permitTTL), now: noon}
	for range 2 {
		p.report(10, 60, api.PermitID{})
		if given := p.given(); given.Known() {
			t.Errorf("permit %+v", given)
		}
		p.f.Open()
		p.report(10, 60, api.PermitID{})
		if !p.given().Known() {
			t.Error("no permit of a central that is open")
		}
		p.f.Close()
	}
}

func TestAPromiseEndsWithThePermitThatWasTakenIn(t *testing.T) {
	p := newPermits(t)
	p.report(10, 60, api.PermitID{})
	first := p.given()
	for range 11 { // it goes on being sent, and the node does not get it
		p.now = p.now.Add(10 * time.Second)
		p.report(10, 60, first.ID)
		p.given()
		p.wants("within its time", 60)
	}
	p.now = p.now.Add(10 * time.Second)
	p.report(10, 60, first.ID)
	p.wants("the node may have restored everything", -1)
	p.report(10, 60, p.last.ID)
	p.wants("the node has got it", 60)
	p.now = p.now.Add(freshness + 1)
	p.wants("no report for too long", -1)
}

func TestNothingIsPromisedOfANodeThatMayHoldAnything(t *testing.T) {
	for name, change := range map[string]func(*permits){
		"it holds another central's":   func(p *permits) { p.report(10, 60, api.PermitID{Epoch: p.last.ID.Epoch + 1, Number: 1}) },
		"it holds one that is unknown": func(p *permits) { p.report(10, 60, api.PermitID{Epoch: p.last.ID.Epoch, Number: 99}) },
		"its agent has started anew":   func(p *permits) { p.report(10, 60, api.PermitID{}) },
		"its agent is an older one":    func(p *permits) { p.f.Accept(p.now, api.Report{Node: "one"}) },
		"its stream has ended":         func(p *permits) { p.f.Lost("one") },
		"central's term has ended":     func(p *permits) { p.f.Close() },
		"and has begun again":          func(p *permits) { p.f.Close(); p.f.Open(); p.report(10, 60, p.last.ID) },
		"it has not answered to many": func(p *permits) {
			for range 200 {
				p.given()
			}
		},
		"it answers to none of many": func(p *permits) {
			first := p.last
			for range 200 {
				p.given()
			}
			p.report(10, 60, first.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPermits(t)
			p.report(10, 60, api.PermitID{})
			p.report(10, 60, p.given().ID)
			p.wants("first", 60)
			if n := p.f.Permitted(p.now, freshness); n != 1 {
				t.Errorf("%d nodes have a permit", n)
			}
			change(p)
			p.wants("then", -1)
			if n := p.f.Permitted(p.now, freshness); n != 0 {
				t.Errorf("then %d nodes have a permit", n)
			}
		})
	}
}

// A pod that an agent could not look at counts by the API's limits: it is not among those
// that were reported.
func TestAPodWithoutKnownLimitsIsNotReported(t *testing.T) {
	f := fleet.New(time.Minute)
	r := report("one", "a")
	r.Containers = append(r.Containers, api.Summary{
		Container: api.ContainerRef{PodUID: "b", Container: "web"},
		Problem:   "it is not running",
	})
	f.Accept(noon, r)
	if u, ok := f.Upper("one", noon, time.Minute); !ok || len(u) != 1 {
		t.Errorf("upper = %v, %v; want pod a's", u, ok)
	}
}

// An agent that asks gets a permit within the second, also when nothing else has changed, and
// it goes on to get one with each sign of life.
func TestAPermitArrivesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := unopened(t)
		promised := func(when string, want mdp.Size) {
			t.Helper()
			if sum, ok := f.Promised("one", time.Now(), freshness); sum != want || ok != (want != mdp.Size{}) {
				t.Errorf("%s: %v is promised, %v; want %v", when, sum, ok, want)
			}
		}
		s.node.asks(mdp.Size{CPU: 1000, Memory: 1 << 30}, mdp.Size{CPU: 1500, Memory: 2 << 30})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := s.node.permitted(); got != (mdp.Size{}) {
			t.Errorf("a central that is not open permits %v", got)
		}
		f.Open()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		first := s.node.permitted()
		if first != (mdp.Size{CPU: 1500, Memory: 2 << 30}) {
			t.Errorf("%v is permitted, want what was asked for", first)
		}
		promised("as asked", first)
		sets := len(s.node.applied)
		more := mdp.Size{CPU: 9e6, Memory: 1 << 50}
		s.node.asks(mdp.Size{CPU: 5000, Memory: 1 << 30}, more)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		has := mdp.Size{CPU: 3500, Memory: 6 << 30}
		if got := s.node.permitted(); got != has {
			t.Errorf("%v is permitted, want all that the node has: %v", got, has)
		}
		promised("more is in force than is permitted", mdp.Size{CPU: 5000, Memory: has.Memory})
		if len(s.node.applied) != sets {
			t.Errorf("%d sets of grants came with it", len(s.node.applied)-sets)
		}
		before := s.node.permit.ID
		time.Sleep(time.Minute)
		synctest.Wait()
		if after := s.node.permit.ID; after.Number < before.Number+5 || after.Number > before.Number+10 || after.Epoch != before.Epoch {
			t.Errorf("a minute after permit %+v there is %+v: want one each 10 s", before, after)
		}
		promised("a minute later", mdp.Size{CPU: 5000, Memory: has.Memory})
	})
}

// Without a stream nothing is promised: an agent that starts anew restores everything first.
func TestAPromiseEndsWithTheStream(t *testing.T) {
	s := start(t, "one")
	f := fleet.New(time.Minute)
	f.Open()
	s.server.Central = f
	s.node.asks(mdp.Size{CPU: 100}, mdp.Size{CPU: 150})
	promised := func() bool { _, ok := f.Promised("one", time.Now(), freshness); return ok }
	t.Run("one stream", func(t *testing.T) {
		s.run(t)
		eventually(t, "something is promised", promised)
	})
	eventually(t, "nothing is promised", func() bool { return !promised() })
	s.run(t)
	eventually(t, "something is promised again", promised)
}

// A node that says what cannot be is not promised anything. What it says of its containers
// counts.
func TestAnImpossibleAccountPromisesNothing(t *testing.T) {
	s := start(t, "one")
	f := fleet.New(time.Minute)
	f.Open()
	s.server.Central = f
	said := make(chan error, 100)
	s.server.Log = func(err error, _ string, _ ...any) { said <- err }
	s.node.report.Containers = []api.Summary{using("u", 100)}
	s.node.asks(mdp.Size{Memory: -1 << 40}, mdp.Size{Memory: 1 << 30})
	s.run(t)
	eventually(t, "the container is known", func() bool {
		_, ok := f.Summary("one", "u", "web", time.Now(), time.Minute)
		return ok
	})
	if err := <-said; err == nil {
		t.Error("nothing was said")
	}
	if p := f.Permit(time.Now(), "one"); p.Known() {
		t.Errorf("%+v is permitted", p)
	}
	if sum, ok := f.Promised("one", time.Now(), time.Minute); ok {
		t.Errorf("%v is promised", sum)
	}
}

// order is a central that notes what it hears in which order.
type order struct {
	central
	mu     sync.Mutex
	events []string
}

func (o *order) note(event string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event)
}

func (o *order) Accept(time.Time, api.Report) {
	o.note("report begins")
	time.Sleep(20 * time.Millisecond) // the stream may end meanwhile
	o.note("report")
}

func (o *order) Lost(string) { o.note("lost") }

// last is the last event.
func (o *order) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events) == 0 {
		return ""
	}
	return o.events[len(o.events)-1]
}

// slow is a cluster that answers when the gate is open.
type slow struct {
	cluster
	asked chan struct{} // gets a value with each question
	gate  chan struct{}
}

func (s *slow) Capacity(node string) (mdp.Size, bool) {
	s.asked <- struct{}{}
	<-s.gate
	return s.cluster.Capacity(node)
}

// A report of a stream that has ended is not accepted after that is known: it may be of an agent
// that is no more.
func TestNoReportIsAcceptedAfterItsStreamHasEnded(t *testing.T) {
	for name, test := range map[string]struct {
		until string // the stream goes on until this event
		open  bool   // the cluster answers at once
	}{
		"it is being read":     {"", false},
		"it is being accepted": {"report begins", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "one")
			o := &order{central: central{grants: api.Grants{TTL: time.Minute}}}
			placed := &slow{cluster: cluster{"one": {"u"}}, asked: make(chan struct{}, 1000), gate: make(chan struct{})}
			if test.open {
				close(placed.gate)
			}
			s.server.Central, s.server.Cluster = o, placed
			s.client.Every = time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { s.client.Run(ctx); close(done) }()
			<-placed.asked
			eventually(t, "the stream is where it shall end", func() bool { return o.last() == test.until })
			cancel()
			<-done
			eventually(t, "the stream's end is noted", func() bool { return o.last() == "lost" })
			if !test.open {
				close(placed.gate)
			}
			time.Sleep(50 * time.Millisecond)
			if event := o.last(); event != "lost" {
				t.Errorf("after its end: %s", event)
			}
		})
	}
}
