// Package fleet is what central knows of the nodes' agents: the last report of
// each node, the grants of each workload, and the permits of each node. The link
// writes reports and reads grants and permits; the autoscaler and the scheduler plugins
// read reports and what is promised, and write grants. It is in memory only: after a
// restart the agents fill it within seconds.
package fleet

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// Fleet is safe for concurrent use. Each node has a lock of its own: nobody waits
// for the reports of another node.
type Fleet struct {
	// TTL is how long a grant holds on a node that gets no new message.
	TTL time.Duration
	// Pressed, when it is set, is called with a workload one of whose containers is
	// reported to be throttled at its ceiling. It must not wait. It is set before the
	// first report.
	Pressed func(workload string)

	open    atomic.Bool   // see Open
	changes atomic.Uint64 // of grants, so far
	mu      sync.RWMutex
	nodes   map[string]*node
	swept   time.Time // when nodes that are gone were last forgotten

	granting sync.Mutex
	where    map[string][]string // workload -> the nodes that it has grants on

	id         string     // of this fleet: no other process has the same one
	publishing sync.Mutex // of upper bounds that changed; see publish
}

// gone is how long after its last report a node is forgotten.
const gone = time.Hour

// node is one node.
type node struct {
	upper atomic.Pointer[upper] // nil before the first report

	mu         sync.Mutex
	ledger     ledger
	at         time.Time // of the last report; before the first, when the node was seen first
	containers map[container]api.Summary
	grants     map[string][]api.Grant // by workload
	version    uint64                 // of the grants: no two sets of the fleet have the same one
	changed    chan struct{}          // closed when the grants change
}

// container is the part of a ContainerRef that identifies it on its node.
type container struct {
	podUID string
	name   string
}

func idOf(c api.ContainerRef) container { return container{c.PodUID, c.Container} }

// upper is what the pods of a node can use. It does not change.
type upper struct {
	at      time.Time // of the report
	version uint64    // another one whenever byPod is
	byPod   map[string]mdp.Size
	promise promise // of the same pods together
}

// New makes an empty fleet.
func New(ttl time.Duration) *Fleet {
	return &Fleet{TTL: ttl, id: rand.Text(), nodes: map[string]*node{}, where: map[string][]string{}}
}

// Open says that every workload was looked at once, so that a container without
// a grant really has none. Before that agents get no grants: otherwise a
// restart of central would make them restore everything.
func (f *Fleet) Open() {
	f.open.Store(true)
	f.notify()
}

// Close is the inverse of Open: another instance decides now.
func (f *Fleet) Close() {
	f.open.Store(false)
	f.granting.Lock()
	defer f.granting.Unlock()
	for workload := range f.where {
		f.grant(workload, nil)
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, n := range f.nodes {
		n.mu.Lock()
		n.ledger = newLedger()
		n.promised(f.TTL)
		n.mu.Unlock()
	}
}

// notify tells every node's stream to look at its grants.
func (f *Fleet) notify() {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, n := range f.nodes {
		n.mu.Lock()
		n.touch(f.changes.Add(1))
		n.mu.Unlock()
	}
}

// touch says that the grants have changed. The lock is held.
func (n *node) touch(version uint64) {
	n.version = version
	n.wake()
}

// wake makes the node's stream send something. The lock is held.
func (n *node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// find is the node of that name, or nil.
func (f *Fleet) find(name string) *node {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.nodes[name]
}

// node is the node of that name, which is made if need be.
func (f *Fleet) node(name string) *node {
	if n := f.find(name); n != nil {
		return n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil {
		n = &node{
			ledger:     newLedger(),
			containers: map[container]api.Summary{},
			grants:     map[string][]api.Grant{},
			version:    f.changes.Add(1),
			changed:    make(chan struct{}),
		}
		f.nodes[name] = n
	}
	return n
}

// Accept takes in a node's report. Containers of other nodes do not change.
func (f *Fleet) Accept(now time.Time, r api.Report) {
	f.sweep(now)
	n := f.node(r.Node)
	n.accept(f, now, r)
	if f.Pressed == nil {
		return
	}
	for _, s := range r.Containers {
		if s.AtCeiling() {
			if workload, ok := n.workloadOf(s.Container); ok {
				f.Pressed(workload)
			}
		}
	}
}

// workloadOf is the workload that has a grant for a container.
func (n *node) workloadOf(c api.ContainerRef) (workload string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for workload, all := range n.grants {
		if slices.ContainsFunc(all, func(g api.Grant) bool { return idOf(g.Container) == idOf(c) }) {
			return workload, true
		}
	}
	return "", false
}

func (n *node) accept(f *Fleet, now time.Time, r api.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = now
	n.ledger.hear(r.Account)
	if f.open.Load() && n.ledger.due() {
		n.wake()
	}
	before := n.upper.Load()
	same := before != nil // what the pods can use
	if r.Full {
		there := make(map[container]bool, len(r.Containers))
		for _, s := range r.Containers {
			there[idOf(s.Container)] = true
		}
		for id := range n.containers {
			if !there[id] {
				delete(n.containers, id)
				same = false
			}
		}
	}
	for _, s := range r.Containers {
		id := idOf(s.Container)
		had, known := n.containers[id]
		same = same && known && had.Bounds.CPU.Max == s.Bounds.CPU.Max && had.Bounds.Memory.Max == s.Bounds.Memory.Max
		if known {
			s.Container = had.Container // one copy of its names is enough
			id = idOf(had.Container)
		}
		n.containers[id] = s
	}
	for _, c := range r.Gone {
		delete(n.containers, idOf(c))
		same = false
	}
	if same { // as in most reports
		n.upper.Store(&upper{at: now, version: before.version, byPod: before.byPod, promise: n.ledger.promise(f.TTL)})
		return
	}
	f.publish(n, now, n.sum())
}

// promised brings what the scheduler reads up to the ledger. The lock is held.
func (n *node) promised(ttl time.Duration) {
	if u := n.upper.Load(); u != nil {
		next := *u
		next.promise = n.ledger.promise(ttl)
		n.upper.Store(&next)
	}
}

// sum is the most that the reported containers can use, by pod UID. A container of which
// the agent knows no limit, because it could not be read, says nothing of its pod.
func (n *node) sum() map[string]mdp.Size {
	byPod := make(map[string]mdp.Size, len(n.containers))
	for _, s := range n.containers {
		if s.Bounds.CPU.Max == 0 && s.Bounds.Memory.Max == 0 {
			continue
		}
		sum := byPod[s.Container.PodUID]
		sum.CPU += s.Bounds.CPU.Max
		sum.Memory += s.Bounds.Memory.Max
		byPod[s.Container.PodUID] = sum
	}
	return byPod
}

// sweep forgets nodes that are gone, from time to time. In a cluster whose
// nodes come and go their names would fill the memory.
func (f *Fleet) sweep(now time.Time) {
	f.mu.RLock()
	recent := now.Sub(f.swept) < gone/10
	f.mu.RUnlock()
	if recent {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.swept = now
	maps.DeleteFunc(f.nodes, func(_ string, n *node) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.at.IsZero() {
			n.at = now // its stream is open, and its first report is on its way
		}
		return now.Sub(n.at) > gone && len(n.grants) == 0
	})
}

// Grant sets all grants of a workload, by node. Without grants the workload is
// forgotten.
func (f *Fleet) Grant(workload string, byNode map[string][]api.Grant) {
	f.granting.Lock()
	defer f.granting.Unlock()
	f.grant(workload, byNode)
}

// grant is Grant. The lock granting is held.
func (f *Fleet) grant(workload string, byNode map[string][]api.Grant) {
	for _, name := range f.where[workload] {
		if len(byNode[name]) == 0 {
			f.node(name).grant(f, workload, nil)
		}
	}
	delete(f.where, workload)
	for name, all := range byNode {
		f.node(name).grant(f, workload, all)
		f.where[workload] = append(f.where[workload], name)
	}
}

func (n *node) grant(f *Fleet, workload string, all []api.Grant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(n.grants[workload], all) {
		return
	}
	if len(all) == 0 {
		delete(n.grants, workload)
	} else {
		n.grants[workload] = all
	}
	n.touch(f.changes.Add(1))
}

// Grants is a node's grants. The version is another one whenever the grants are, and
// changed is closed when they change. The version is 0, and the set is none, while
// the fleet is not open.
func (f *Fleet) Grants(name string) (m api.Grants, version uint64, changed <-chan struct{}) {
	n := f.node(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	m.TTL = f.TTL
	if !f.open.Load() {
		return m, 0, n.changed
	}
	for _, workload := range slices.Sorted(maps.Keys(n.grants)) {
		m.All = append(m.All, n.grants[workload]...)
	}
	return m, n.version, n.changed
}

// Permit makes the permit that is sent to a node now. It is none while the fleet is not
// open, or the node has not said what it needs.
func (f *Fleet) Permit(now time.Time, name string) api.Permit {
	n := f.find(name)
	if n == nil || !f.open.Load() {
		return api.Permit{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.ledger.give(now)
	n.promised(f.TTL)
	return p
}

// Lost says that a node's stream has ended: until its next report nothing is promised.
func (f *Fleet) Lost(name string) {
	n := f.find(name)
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ledger.lost()
	n.promised(f.TTL)
}

// Promised is the most that the limits in force of a node's reported containers come to,
// in sum: they are the pods that [Fleet.Upper] names. ok is false when the node holds no
// permit of this fleet, or has not reported for maxAge. It does not wait for reports.
func (f *Fleet) Promised(name string, now time.Time, maxAge time.Duration) (sum mdp.Size, ok bool) {
	n := f.find(name)
	if n == nil {
		return mdp.Size{}, false
	}
	u := n.upper.Load()
	if u == nil || now.Sub(u.at) > maxAge || !u.promise.holds(now) {
		return mdp.Size{}, false
	}
	return u.promise.sum, true
}

// Summary is the last report of one container by its node, unless the node's
// last report is older than maxAge.
func (f *Fleet) Summary(name, podUID, containerName string, now time.Time, maxAge time.Duration) (api.Summary, bool) {
	n := f.find(name)
	if n == nil {
		return api.Summary{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.containers[container{podUID, containerName}]
	if !ok || now.Sub(n.at) > maxAge {
		return api.Summary{}, false
	}
	return s, true
}

// Upper is the most that the reported containers of a node can use, by pod UID. It
// is not to be changed. ok is false when the node has not reported for maxAge. It
// does not wait for reports.
func (f *Fleet) Upper(name string, now time.Time, maxAge time.Duration) (byPod map[string]mdp.Size, ok bool) {
	n := f.find(name)
	if n == nil {
		return nil, false
	}
	u := n.upper.Load()
	if u == nil || now.Sub(u.at) > maxAge {
		return nil, false
	}
	return u.byPod, true
}

// Nodes is how many nodes have reported within maxAge.
func (f *Fleet) Nodes(now time.Time, maxAge time.Duration) int {
	return f.count(func(u *upper) bool { return now.Sub(u.at) <= maxAge })
}

// Permitted is how many of these nodes hold a permit.
func (f *Fleet) Permitted(now time.Time, maxAge time.Duration) int {
	return f.count(func(u *upper) bool { return now.Sub(u.at) <= maxAge && u.promise.holds(now) })
}

func (f *Fleet) count(is func(*upper) bool) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	count := 0
	for _, n := range f.nodes {
		if u := n.upper.Load(); u != nil && is(u) {
			count++
		}
	}
	return count
}
