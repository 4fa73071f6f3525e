package sim

import (
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim/perfmodel"
)

// tick updates what changes once per second: the load, the pressure of
// neighbours, memory and the number of replicas.
func (w *World) tick() {
	w.rate = max(0, float64(w.config.Load.Rate(w.Elapsed())))
	stress, delay := w.applyAnomalies()
	w.retryDeferred()
	w.commitLimits()
	w.updatePressure(stress)
	for i := range w.services {
		s := &w.services[i]
		s.delay = delay[i]
		w.updateMemory(s)
		for k := range s.replicas {
			w.totals.Memory += float64(s.replicas[k].size.Memory)
		}
		s.gain = 1
		if arrived := s.arrived - s.before.arrived; arrived > 0 && s.congested() {
			s.gain = max(0, min(4, (s.completed-s.before.completed)/arrived))
		}
		s.before.arrived = s.arrived
		s.before.completed = s.completed
	}
	w.propagateLoad()
}

// applyAnomalies applies the anomalies that are active now. It raises the
// request rate, and returns the additional pressure per node (nil when there is
// none) and the network delay in seconds per service.
func (w *World) applyAnomalies() (stress []Pressure, delay map[int]float64) {
	for _, a := range w.config.Anomalies {
		if at := w.Elapsed(); at < a.From || at >= a.To {
			continue
		}
		if r, ok := a.sharedResource(); ok {
			if stress == nil {
				stress = make([]Pressure, len(w.nodes))
			}
			for i := range w.nodes {
				if w.nodes[i].Name == a.Target {
					stress[i][r] = min(fullStress, stress[i][r]+fullStress*a.Intensity)
				}
			}
			continue
		}
		switch a.Kind {
		case WorkloadVariation:
			w.rate *= 1 + fullVariation*a.Intensity
		case NetworkDelay:
			if delay == nil {
				delay = map[int]float64{}
			}
			delay[w.graph.names[a.Target]] += fullDelay * a.Intensity
		}
	}
	return stress, delay
}

// congested reports whether work waits in a service for more than a slice. Its
// output rate then differs from its input rate.
func (s *service) congested() bool {
	for i := range s.replicas {
		if r := &s.replicas[i]; r.queued > r.capacity {
			return true
		}
	}
	return false
}

// propagateLoad computes the arrival rate of each operation and service from
// the rate of the clients.
func (w *World) propagateLoad() {
	g := w.graph
	for i := range w.opRate {
		w.opRate[i] = 0
	}
	for k, e := range g.endpoints {
		w.opRate[e] += w.rate * g.shares[k]
	}
	for i := range w.services {
		s := &w.services[i]
		s.rate = 0
		s.mix = 0
		s.square = 0
	}
	for k := len(g.order) - 1; k >= 0; k-- {
		o := &g.ops[g.order[k]]
		rate := w.opRate[g.order[k]]
		s := &w.services[o.service]
		s.rate += rate
		s.mix += rate * o.work
		s.square += rate * o.work * o.work * (1 + s.Variation*s.Variation)
		rate *= s.gain
		for _, stage := range o.stages {
			for _, e := range stage {
				w.opRate[e.op] += rate * e.share
			}
		}
		for _, e := range o.background {
			w.opRate[e.op] += rate * e.share
		}
	}
	for i := range w.services {
		if s := &w.services[i]; s.rate > 0 {
			s.mix /= s.rate
			s.square /= s.rate * s.mix * s.mix
		} else {
			s.mix, s.square = w.graph.ops[s.ops[0]].work, 1+s.Variation*s.Variation
		}
	}
}

// updatePressure computes the pressure on the shared resources of each node,
// and how much it slows the services down.
func (w *World) updatePressure(stress []Pressure) {
	for i := range w.nodes {
		w.nodes[i].pressure = Pressure{}
		if stress != nil {
			w.nodes[i].pressure = stress[i]
		}
	}
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			p := &w.nodes[r.node].pressure
			for shared, e := range s.Exerts {
				p[shared] += e * r.second
			}
		}
	}
	for i := range w.services {
		s := &w.services[i]
		slow, n := 0.0, 0.0
		for k := range s.replicas {
			slow += slowdown(s.Sensitive, w.nodes[s.replicas[k].node].pressure)
			n++
		}
		s.slow = 1
		if n > 0 {
			s.slow = slow / n
		}
	}
	w.contend(stress)
}

// slowdown is the factor by which pressure on all resources increases the work.
// It is perfmodel.Slowdown for arrays instead of maps.
func slowdown(sensitive, pressure Pressure) float64 {
	factor := 1.0
	for r := range sensitive {
		factor *= perfmodel.Slower(sensitive[r], pressure[r])
	}
	return factor
}

// contend divides a node's CPUs among its containers in proportion to their
// demand when the demand is above the CPUs of the node.
func (w *World) contend(stress []Pressure) {
	demand := w.demand // in cores, per node
	clear(demand)
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			demand[r.node] += r.demand()
		}
	}
	for i := range w.nodes {
		w.nodes[i].contended = demand[i] > w.nodes[i].Size.CPU.Cores()
	}
	for i := range w.services {
		s := &w.services[i]
		for k := range s.replicas {
			r := &s.replicas[k]
			cores := w.nodes[r.node].Size.CPU.Cores()
			if stress != nil {
				cores *= 1 - stress[r.node][SharedCPU]
			}
			r.capacity = r.quota
			if demand[r.node] > cores {
				fair := r.demand() * cores / demand[r.node] * slice
				r.capacity = min(r.quota, max(0.01*slice, fair))
			}
			r.second = 0
		}
	}
}

// demand is the CPU that the replica can use in a second, in cores: its use in
// the last second and its queued work, at most its limit.
func (r *replica) demand() float64 {
	return min(r.quota*slicesPerSecond, r.second+r.queued)
}

// updateMemory updates the memory use of each replica. It kills a replica that
// uses more than its limit: its requests fail, and it does not run until it
// is started again.
func (w *World) updateMemory(s *service) {
	for k := range s.replicas {
		r := &s.replicas[k]
		if w.now < r.ready {
			continue
		}
		r.memory = s.Memory.Base + mdp.Bytes(w.engine.occupied(s, r)*float64(s.Memory.PerRequest))
		if r.memory > r.size.Memory {
			s.failed += w.engine.drop(s, r)
			s.kills++
			w.totals.OOMKills++
			r.ready = w.restart(s, r)
			r.memory = r.size.Memory // what it was killed at
		}
	}
}
