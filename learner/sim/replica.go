package sim

import "awarescale.dev/aware/learner/mdp"

// node is a machine and its current state.
type node struct {
	Node
	free      mdp.Size // not reserved by replicas; negative when the start overcommits the node
	pressure  Pressure // in the last second
	hasImage  []bool   // per service: the node has pulled its image, or will have when starts is over
	starts    int64    // slice at which its runtime has started all containers so far
	tokens    float64  // calls of the container runtime that its agent may make now
	busy      float64  // time in seconds until which its runtime updates containers
	contended bool     // its containers want more CPU than it has
}

// service is the state of a Service in a world.
type service struct {
	Service
	index    int     // in World.services
	span     float64 // see Service.span
	replicas []replica
	leaving  int      // of replicas, the last ones: they take no more requests
	want     int      // desired number of replicas
	size     mdp.Size // desired size of each replica in the API
	ceiling  mdp.Size // desired limit of each replica in the API
	changes  []change // not in effect yet, in the order of the actions
	deferred bool     // a node had no room for size

	ops    []int   // operations that receive requests
	rate   float64 // arrivals per second, all replicas
	mix    float64 // mean CPU work of an arrival in seconds, without interference
	square float64 // second moment of that work, divided by mix squared
	slow   float64 // factor by which interference increases the work, at least 1
	hold   float64 // seconds that a request occupies a thread
	gain   float64 // completed / arrived requests in the last second
	delay  float64 // network delay on calls to the service, in seconds

	// Counters since the start of the world, for all replicas.
	arrived   float64 // requests
	completed float64 // requests whose work here is done
	answered  float64 // of completed, those that no failure elsewhere ended
	failed    float64 // requests
	used      float64 // CPU seconds
	given     float64 // CPU seconds of limits
	alive     float64 // replica-seconds
	periods   float64 // CFS periods
	throttled float64 // CFS periods in which the quota was used up
	kills     int     // out-of-memory kills

	// Counters at the last full second.
	before struct {
		arrived   float64
		completed float64
	}
}

// replica is one container of a service.
type replica struct {
	node     int      // index in World.nodes
	ready    int64    // first slice in which it serves requests
	until    int64    // of a leaving replica: the slice in which it is killed
	request  mdp.Size // what it reserves on its node
	ceiling  mdp.Size // limits in the API
	size     mdp.Size // limits in force, at most ceiling
	commit   commit   // of limits in force that only the cgroup has
	quota    float64  // CPU seconds per slice, from the limit
	capacity float64  // CPU seconds per slice, after contention on the node
	backlog  float64  // CPU seconds of unfinished work
	queued   float64  // part of the backlog that waits, in CPU seconds
	second   float64  // CPU seconds used since the last full second
	usage    [samples]float32
	memory   mdp.Bytes // in use
	crashes  int       // kills in a row
	flow     flow      // state of the fluid level
	pod      int32     // state of the request level; -1 is none
}

// samples is the number of slices over which peak and deviation of CPU use are
// computed: 5 s, as in Autothrottle.
const samples = 50

// staying is the number of replicas that take requests when they are ready.
func (s *service) staying() int { return len(s.replicas) - s.leaving }

// place starts a replica on the node with the most free CPU. With ready 0 the
// replica is ready at once; otherwise it takes its start time. It returns false
// when no node has room.
func (w *World) place(s *service, ready int64) bool {
	best := -1
	for i := range w.nodes {
		free := w.nodes[i].free
		if free.CPU >= s.size.CPU && free.Memory >= s.size.Memory && (best < 0 || free.CPU > w.nodes[best].free.CPU) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	n := &w.nodes[best]
	n.free.CPU -= s.size.CPU
	n.free.Memory -= s.size.Memory
	if ready > 0 {
		ready = w.startOn(n, s)
	}
	n.hasImage[s.index] = true
	r := replica{
		node:    best,
		ready:   ready,
		request: s.size,
		ceiling: s.ceiling,
		size:    s.size,
		commit:  commit{cpu: s.size.CPU},
		memory:  s.Memory.Base,
		pod:     -1,
	}
	r.limit()
	k := s.staying()
	s.replicas = append(s.replicas, r)
	copy(s.replicas[k+1:], s.replicas[k:])
	s.replicas[k] = r
	w.totals.Started++
	return true
}

// limit applies the CPU limit of the replica's size.
func (r *replica) limit() {
	r.quota = r.size.CPU.Cores() * slice
	r.capacity = r.quota
}

// live is the number of replicas that serve requests.
func (w *World) live(s *service) int {
	n := 0
	for k := range s.staying() {
		if w.now >= s.replicas[k].ready {
			n++
		}
	}
	return n
}
