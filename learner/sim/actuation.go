package sim

import (
	"fmt"
	"math"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// Delays says how long an action takes until it is in effect, and what it costs.
type Delays struct {
	Local    time.Duration // of a resize at L1 or of a commit: by the node agent, through the container runtime
	Busy     time.Duration // the same on a node whose CPUs are contended
	LocalCPU time.Duration // CPU time of such a call
	Resize   time.Duration // of a resize at L2: through the API server and the kubelet
	Schedule time.Duration // from the creation of a pod until its node starts it
	Warm     time.Duration // mean start time of a container when the node has its image
	Cold     time.Duration // mean start time of a container when the node pulls its image
	WarmStd  time.Duration // standard deviation of Warm
	ColdSD   time.Duration // standard deviation of Cold
	Grace    time.Duration // for which a pod that leaves may finish its requests
	Faults   mdp.Ratio     // share of actions whose call fails
}

// Measured holds measured delays. The resizes were measured with the node agent
// on a real node (L1: p50 7 ms and 7 ms of CPU each, 23 ms under contention; L2:
// 50 to 80 ms). The start times are FIRM's (dissertation, table 3.5). Grace is
// Kubernetes' default. Schedule is chosen: Kubernetes' own objective is that 99 %
// of pods run within 5 s, without their images.
var Measured = Delays{
	Local:    7 * time.Millisecond,
	Busy:     23 * time.Millisecond,
	LocalCPU: 7 * time.Millisecond,
	Resize:   80 * time.Millisecond,
	Schedule: time.Second,
	Warm:     45700 * time.Microsecond,
	WarmStd:  6900 * time.Microsecond,
	Cold:     2050800 * time.Microsecond,
	ColdSD:   291400 * time.Microsecond,
	Grace:    30 * time.Second,
}

// check returns an error when a value is impossible.
func (d Delays) check() error {
	for _, v := range []time.Duration{
		d.Local, d.Busy, d.LocalCPU, d.Resize, d.Schedule, d.Warm, d.Cold, d.WarmStd, d.ColdSD, d.Grace,
	} {
		if v < 0 {
			return fmt.Errorf("delays %+v: none may be negative", d)
		}
	}
	if !(d.Faults >= 0 && d.Faults <= 1) {
		return fmt.Errorf("delays: faults %v: it must be in [0, 1]", float64(d.Faults))
	}
	return nil
}

// The node agents' discipline, as in the product: calls of the container runtime
// have a token bucket per node; a container is committed at most once a second
// and only for a difference of a tenth; one whose commit is late is not shrunk
// further by writes to its cgroup.
const (
	callsPerSecond = 5.0
	burst          = 20.0
	worthCommit    = 0.1
	late           = 5 * slicesPerSecond
)

// change is an action that is not in effect yet.
type change struct {
	due  int64    // slice
	api  bool     // the API's size; otherwise limits by a node's agent
	sets mdp.Set  // of an agent's change
	size mdp.Size // of the knobs in sets
}

// commit is what the container runtime knows of a CPU limit that was written to
// the cgroup.
type commit struct {
	cpu   mdp.MilliCPU // the limit that the runtime knows
	since int64        // first slice with a limit that differs, since the last commit; 0 is none
}

// later queues a change. One that came before it keeps its own time.
func (w *World) later(s *service, c change) {
	s.changes = append(s.changes, c)
	w.due = min(w.due, c.due)
}

// force sets limits in force below those in the API, as a node's agent does. It
// clips to the API's limit. At L0 CPU changes at once.
func (w *World) force(s *service, action mdp.Action, path ActuationPath) (mdp.Action, mdp.Effect) {
	executed, effect := action, mdp.Unchanged
	if executed.Limit.CPU > s.ceiling.CPU && executed.Sets.Has(mdp.CPULimit) {
		executed = executed.WithCPU(s.ceiling.CPU)
	}
	if executed.Limit.Memory > s.ceiling.Memory && executed.Sets.Has(mdp.MemoryLimit) {
		executed = executed.WithMemory(s.ceiling.Memory)
	}
	now := s.inForce()
	runtime := executed.Sets
	if executed.Limit.CPU == now.CPU {
		runtime = runtime.Without(mdp.SetOf(mdp.CPULimit))
	}
	if executed.Limit.Memory == now.Memory {
		runtime = runtime.Without(mdp.SetOf(mdp.MemoryLimit))
	}
	if path == L0 && runtime.Has(mdp.CPULimit) {
		runtime = runtime.Without(mdp.SetOf(mdp.CPULimit))
		effect = mdp.Refused
		for k := range s.replicas {
			if w.write(&s.replicas[k], executed.Limit.CPU) {
				effect = mdp.Applied
			}
		}
		if effect == mdp.Refused {
			executed = executed.Without(mdp.SetOf(mdp.CPULimit))
		}
	}
	if runtime != 0 {
		w.later(s, change{due: w.after(w.config.Cluster.Delays.Local), sets: runtime, size: executed.Limit})
		effect = mdp.Pending
	}
	return executed, effect
}

// inForce is the limits in force of the first replica, as a sensor shows them,
// with the agents' changes that are on their way.
func (s *service) inForce() mdp.Size {
	size := s.size
	if len(s.replicas) > 0 {
		size = s.replicas[0].size
	}
	for _, c := range s.changes {
		if c.api {
			size = c.size
		}
		if c.sets.Has(mdp.CPULimit) {
			size.CPU = c.size.CPU
		}
		if c.sets.Has(mdp.MemoryLimit) {
			size.Memory = c.size.Memory
		}
	}
	return size
}

// write sets the CPU limit in a replica's cgroup. It refuses to shrink a replica
// whose commit is late.
func (w *World) write(r *replica, cpu mdp.MilliCPU) bool {
	cpu = min(cpu, r.ceiling.CPU)
	if cpu < r.size.CPU && r.commit.since > 0 && w.now-r.commit.since > late {
		return false
	}
	if cpu == r.size.CPU {
		return true
	}
	r.size.CPU = cpu
	r.limit()
	w.totals.Resizes++
	if r.commit.since == 0 && r.uncommitted() >= worthCommit {
		r.commit.since = max(1, w.now)
	}
	return true
}

// uncommitted is how much the limit in force differs from what the runtime
// knows, as a share of the latter.
func (r *replica) uncommitted() float64 {
	return math.Abs(float64(r.size.CPU-r.commit.cpu)) / float64(r.commit.cpu)
}

// runtime lets a node's container runtime update one container. It does one at
// a time, and returns false when it is busy until after this slice.
func (w *World) runtime(n *node) bool {
	begin := max(n.busy, float64(w.now)*slice)
	if begin >= float64(w.now+1)*slice {
		return false
	}
	d := w.config.Cluster.Delays.Local
	if n.contended {
		d = w.config.Cluster.Delays.Busy
	}
	n.busy = begin + d.Seconds()
	return true
}

// callRuntime sets limits of all replicas through the container runtimes of
// their nodes. It does nothing and returns false when one of the nodes has no
// call left.
func (w *World) callRuntime(s *service, c change) bool {
	for k := range s.replicas {
		if n := &w.nodes[s.replicas[k].node]; n.tokens < 1 || !w.runtime(n) {
			return false
		}
	}
	for k := range s.replicas {
		r := &s.replicas[k]
		if c.sets.Has(mdp.CPULimit) {
			r.size.CPU = min(c.size.CPU, r.ceiling.CPU)
		}
		if c.sets.Has(mdp.MemoryLimit) {
			r.size.Memory = min(c.size.Memory, r.ceiling.Memory)
		}
		r.limit()
		w.totals.Resizes++
		w.called(r)
	}
	return true
}

// called accounts for a call of the container runtime.
func (w *World) called(r *replica) {
	w.nodes[r.node].tokens--
	w.totals.Calls++
	w.totals.Acting += w.config.Cluster.Delays.LocalCPU.Seconds()
	r.commit = commit{cpu: r.size.CPU}
}

// commitLimits gives every node's agent its calls of this second. It commits
// limits that have been in their cgroups for a second, the largest difference
// first.
func (w *World) commitLimits() {
	for i := range w.nodes {
		w.nodes[i].tokens = min(burst, w.nodes[i].tokens+callsPerSecond)
	}
	for {
		var worst *replica
		most := 0.0
		for i := range w.services {
			for k := range w.services[i].replicas {
				r := &w.services[i].replicas[k]
				if r.commit.since == 0 || w.now-r.commit.since < slicesPerSecond || w.nodes[r.node].tokens < 1 {
					continue
				}
				d := r.uncommitted()
				if d < worthCommit {
					r.commit.since = 0 // it is back where the runtime knows it
					continue
				}
				if d > most {
					worst, most = r, d
				}
			}
		}
		if worst == nil {
			return
		}
		w.called(worst)
	}
}

// after is the first slice that starts at least d from now.
func (w *World) after(d time.Duration) int64 {
	return w.now + max(1, int64(math.Ceil(float64(d)/float64(Slice))))
}

// never is a slice that is never reached.
const never = math.MaxInt64

// startOn is the first slice in which a new replica on the node serves requests.
// The node's runtime starts one container after the other; the first one of a
// service pulls its image.
func (w *World) startOn(n *node, s *service) int64 {
	d := w.config.Cluster.Delays
	begin := max(n.starts, w.after(d.Schedule))
	n.starts = begin + w.slices(w.containerStart(n.hasImage[s.index]))
	return n.starts + w.slices(s.Start)
}

// slices is a time in slices, rounded up.
func (w *World) slices(d time.Duration) int64 { return int64(math.Ceil(float64(d) / float64(Slice))) }

// containerStart samples the time that a node's runtime needs to start a
// container. warm means that the node has the image.
func (w *World) containerStart(warm bool) time.Duration {
	d := w.config.Cluster.Delays
	mean, std := d.Cold, d.ColdSD
	if warm {
		mean, std = d.Warm, d.WarmStd
	}
	z := normalTable[w.rng.Uint64()&tableMask]
	return max(0, mean+time.Duration(float64(std)*z))
}

// restart is the first slice in which a killed container serves requests again.
// The kubelet waits longer after each kill: 10 s after the second one in a row,
// then twice as long each time, up to 5 minutes. A container that ran for 10
// minutes begins anew.
func (w *World) restart(s *service, r *replica) int64 {
	if w.now-r.ready > 10*60*slicesPerSecond {
		r.crashes = 0
	}
	wait := time.Duration(0)
	if r.crashes > 0 {
		wait = min(5*time.Minute, 10*time.Second<<min(r.crashes-1, 10))
	}
	r.crashes++
	return w.after(wait + w.containerStart(true) + s.Start)
}
