package sim

import "awarescale.dev/aware/learner/mdp"

// node is a machine and its current state.
type node struct {
	Node
	free     mdp.Size // not reserved by limits; negative when the start overcommits the node
	pressure Pressure // in the last second
	hasImage []bool   // per service: the node has pulled its image
}

// service is the state of a Service in a world.
type service struct {
	Service
	index    int     // in World.services
	span     float64 // see Service.span
	replicas []replica
	want     int      // desired number of replicas
	size     mdp.Size // desired size of each replica
	due      int64    // slice in which size takes effect; 0 when it is in effect
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
	completed float64 // requests
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
	size     mdp.Size // limits in effect
	quota    float64  // CPU seconds per slice, from the limit
	capacity float64  // CPU seconds per slice, after contention on the node
	backlog  float64  // CPU seconds of unfinished work
	queued   float64  // part of the backlog that waits, in CPU seconds
	jobs     float64  // requests in the backlog
	second   float64  // CPU seconds used since the last full second
	usage    [samples]float32
	memory   mdp.Bytes // in use
	tags     []tag     // state of the fluid level
	request  any       // state of the request level
}

// samples is the number of slices over which peak and deviation of CPU use are
// computed: 5 s, as in Autothrottle.
const samples = 50

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
		ready = w.after(w.startTime(s, n.hasImage[s.index]))
	}
	n.hasImage[s.index] = true
	r := replica{node: best, ready: ready, size: s.size, memory: s.Memory.Base}
	r.limit()
	s.replicas = append(s.replicas, r)
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
	for k := range s.replicas {
		if w.now >= s.replicas[k].ready {
			n++
		}
	}
	return n
}
