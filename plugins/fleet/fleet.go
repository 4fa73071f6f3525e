// Package fleet is what central knows of the nodes' agents: the last report of
// each node, and the grants of each workload. The link writes reports and reads
// grants; the autoscaler and the scheduler plugins read reports and write
// grants. It is in memory only: after a restart the agents fill it within
// seconds.
package fleet

import (
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
)

// Fleet is safe for concurrent use.
type Fleet struct {
	// TTL is how long a grant holds on a node that gets no new message.
	TTL time.Duration

	mu        sync.RWMutex
	open      bool // see Open
	nodes     map[string]reported
	swept     time.Time // when nodes that are gone were last forgotten
	summaries map[container]entry
	grants    map[string]map[string][]api.Grant // node -> workload
	where     map[string][]string               // workload -> its nodes
}

// gone is how long after its last report a node is forgotten.
const gone = time.Hour

// reported is a node's last report.
type reported struct {
	report api.Report
	at     time.Time
}

// container is the part of a ContainerRef that identifies it: a pod's UID is never used
// again.
type container struct {
	podUID string
	name   string
}

type entry struct {
	summary api.Summary
	at      time.Time
}

// New makes an empty fleet.
func New(ttl time.Duration) *Fleet {
	return &Fleet{TTL: ttl, nodes: map[string]reported{}, summaries: map[container]entry{},
		grants: map[string]map[string][]api.Grant{}, where: map[string][]string{}}
}

// Open says that every workload was looked at once, so that a container without
// a grant really has none. Before that agents get no grants: otherwise a
// restart of central would make them restore everything.
func (f *Fleet) Open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = true
}

// Close is the inverse of Open: another instance decides now.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
	clear(f.grants)
	clear(f.where)
}

// Accept takes in a node's report, and returns that node's grants. ok is false
// when there are none to send yet.
func (f *Fleet) Accept(now time.Time, r api.Report) (m api.Grants, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(r.Node)
	f.sweep(now)
	f.nodes[r.Node] = reported{r, now}
	for _, s := range r.Containers {
		f.summaries[container{s.Container.PodUID, s.Container.Container}] = entry{s, now}
	}
	if !f.open {
		return api.Grants{}, false
	}
	m = api.Grants{Sequence: r.Sequence, TTL: f.TTL}
	for _, all := range f.grants[r.Node] {
		m.All = append(m.All, all...)
	}
	return m, true
}

// forget drops what a node reported.
func (f *Fleet) forget(node string) {
	for _, s := range f.nodes[node].report.Containers {
		delete(f.summaries, container{s.Container.PodUID, s.Container.Container})
	}
	delete(f.nodes, node)
}

// sweep forgets nodes that are gone, from time to time. In a cluster whose
// nodes come and go their names would fill the memory.
func (f *Fleet) sweep(now time.Time) {
	if now.Sub(f.swept) < gone/10 {
		return
	}
	f.swept = now
	for name, h := range f.nodes {
		if now.Sub(h.at) > gone {
			f.forget(name)
		}
	}
}

// Grant sets all grants of a workload, by node. Without grants the workload is
// forgotten.
func (f *Fleet) Grant(workload string, byNode map[string][]api.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range f.where[workload] {
		delete(f.grants[node], workload)
		if len(f.grants[node]) == 0 {
			delete(f.grants, node)
		}
	}
	delete(f.where, workload)
	for node, all := range byNode {
		if f.grants[node] == nil {
			f.grants[node] = map[string][]api.Grant{}
		}
		f.grants[node][workload] = all
		f.where[workload] = append(f.where[workload], node)
	}
}

// Summary is the last report of one container, unless it is older than maxAge.
func (f *Fleet) Summary(podUID, name string, now time.Time, maxAge time.Duration) (api.Summary, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	e, ok := f.summaries[container{podUID, name}]
	if !ok || now.Sub(e.at) > maxAge {
		return api.Summary{}, false
	}
	return e.summary, true
}

// Upper is the most that the reported containers of a node can use, by pod UID.
// ok is false when the node has not reported for maxAge.
func (f *Fleet) Upper(node string, now time.Time, maxAge time.Duration) (upper map[string]mdp.Size, ok bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	h, ok := f.nodes[node]
	if !ok || now.Sub(h.at) > maxAge {
		return nil, false
	}
	upper = map[string]mdp.Size{}
	for _, s := range h.report.Containers {
		sum := upper[s.Container.PodUID]
		sum.CPU += s.Bounds.CPU.Max
		sum.Memory += s.Bounds.Memory.Max
		upper[s.Container.PodUID] = sum
	}
	return upper, true
}

// Nodes is how many nodes have reported within maxAge.
func (f *Fleet) Nodes(now time.Time, maxAge time.Duration) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	n := 0
	for _, h := range f.nodes {
		if now.Sub(h.at) <= maxAge {
			n++
		}
	}
	return n
}
