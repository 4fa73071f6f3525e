package mdp

import (
	"fmt"
	"math"
	"time"
)

// SLO is a service-level objective. The zero SLO asks for nothing.
type SLO struct {
	Percentile float64       // of latency, in (0, 100); 99 is the usual
	Latency    time.Duration // at that percentile, at most; 0 is no latency objective
	Throughput Rate          // requests per second, at least; 0 is no throughput objective
	Lost       Ratio         // share of the requests that may be lost; 0 is no such objective
	Background Ratio         // share of background work that must be done in its time; 0 is no such objective
}

// Check is nil for an SLO that can be judged.
func (o SLO) Check() error {
	switch {
	case o.Latency < 0:
		return fmt.Errorf("slo latency %v: it must not be negative", o.Latency)
	case o.Latency > 0 && !(o.Percentile > 0 && o.Percentile < 100):
		return fmt.Errorf("slo percentile %v: it must be between 0 and 100", o.Percentile)
	case !(o.Throughput >= 0) || math.IsInf(float64(o.Throughput), 0):
		return fmt.Errorf("slo throughput %v: it must be a number that is not negative", float64(o.Throughput))
	case !(o.Lost >= 0 && o.Lost <= 1):
		return fmt.Errorf("slo lost %v: it must be in [0, 1]", float64(o.Lost))
	case !(o.Background >= 0 && o.Background < 1):
		return fmt.Errorf("slo background %v: it must be in [0, 1)", float64(o.Background))
	}
	return nil
}

// Preservation is SP of AWARE (§2.2): objective over measured, 1 when it is
// met, the worst of the objectives. It is 1 when there is no objective or when
// there is no traffic. ok is false when an objective's signal was not observed;
// lost requests and late background work count as far as they were observed.
//
// It is 0 whatever else is known when a container was killed for memory, or when
// requests arrived and none was answered. No answers alone say nothing: without
// [Arrivals] nobody knows whether there was traffic.
func (o SLO) Preservation(s State) (sp Ratio, ok bool) {
	sp = 1
	if (o == SLO{}) {
		return sp, true
	}
	if s.Knows(OOMKills) && s.OOMKills > 0 {
		return 0, true
	}
	if o.Background > 0 && s.Knows(BackgroundLate) {
		sp = min(sp, within(1-o.Background, s.BackgroundLate))
	}
	if o.Lost > 0 && s.Knows(Lost) {
		sp = min(sp, within(o.Lost, s.Lost))
	}
	if o.Latency == 0 && o.Throughput == 0 {
		return sp, true
	}
	if s.Knows(Throughput) && s.Throughput == 0 {
		switch {
		case s.Knows(Missed) && s.Missed > 0:
			return 0, true
		case !s.Knows(Arrivals):
			return 0, false
		case s.Arrivals > 0:
			return 0, true
		}
		return sp, true
	}
	if o.Latency > 0 {
		if !s.Knows(Latency) {
			return 0, false
		}
		if s.Latency > o.Latency {
			sp = min(sp, Ratio(float64(o.Latency)/float64(s.Latency)))
		}
	}
	if o.Throughput > 0 {
		if !s.Knows(Throughput) {
			return 0, false
		}
		sp = min(sp, Ratio(s.Throughput/o.Throughput))
	}
	return sp, true
}

// within is 1 while a share is within what is allowed, and allowed over share
// above it.
func within(allowed, share Ratio) Ratio {
	if share <= allowed {
		return 1
	}
	return allowed / share
}

// excess is how much of the objective's tolerance the worst of the observed
// shares takes beyond half of it, in tolerances: 0 up to a half, 0.5 at the whole
// tolerance. A share counts up to mostMissed.
func (o SLO) excess(s State) float64 {
	worst := 0.0
	add := func(signal Signal, share, tolerance Ratio) {
		if s.Knows(signal) && tolerance > 0 {
			worst = max(worst, (min(float64(share), mostMissed)-float64(tolerance)/2)/float64(tolerance))
		}
	}
	if o.Latency > 0 {
		add(Missed, s.Missed, Ratio(1-o.Percentile/100))
	}
	add(Lost, s.Lost, o.Lost)
	if o.Background > 0 {
		add(BackgroundLate, s.BackgroundLate, 1-o.Background)
	}
	return worst
}

// Counted is the share of missed requests that a reward is to count. Where one request is more than the objective tolerates,
// because there were so few, it counts as the whole tolerance: a step with one late request of five is no step with a fifth of
// them late.
func (o SLO) Counted(missed Ratio, requests float64) Ratio {
	return missed * Ratio(min(1, requests*(1-o.Percentile/100)))
}

// mostMissed is the share of missed requests above which a step gets no worse.
// It bounds the reward from below.
const mostMissed = 0.2

// Reward is what a State is worth. With n = 2 resources it is at most 2. Where the
// shares of missed, lost and late work are not observed it is at least 0, as
// AWARE's; with them it can be below.
type Reward float64

// Objective is what the owner of a workload wants.
type Objective struct {
	SLO   SLO
	Alpha Ratio // weight of the SLO against efficiency, in [0, 1]; 0.5 weighs them equally
	// Reserved lets CPU count as allocated by its reservation, as central decides on it, and not by the limit in force, on which
	// a node decides. Beneath a ceiling more than it can be used, and costs others of the node what they have reserved: a
	// reservation that is half of the usage is worth no more than one that is twice as much.
	Reserved bool
}

// Worst is what a step is worth at least where the shares of missed, lost and late work are observed. Where none of them is, a
// step is worth at least 0.
func (o Objective) Worst() Reward {
	var s State
	s.Missed, s.Lost, s.BackgroundLate = 1, 1, 1
	s.Observed = SetOf(Missed, Lost, BackgroundLate)
	return Reward(-(1 - float64(o.Alpha)) * resources * o.SLO.excess(s))
}

// resources is the n of the reward: CPU and memory.
const resources = 2

// Judge gives a State its reward, AWARE's (§2.2): alpha * SP * n + (1 - alpha) *
// sum of utilisations, each utilisation being of what is allocated and at most 1.
// ok is false when a signal it needs was not observed; a reward is never made
// up. Two exceptions make sure that a bad step counts. When nothing of the SLO is
// preserved, utilisation is worth nothing, and the reward is known without it. And
// a step that has a price counts with what is known of it: the parts that are
// not, which could only raise the reward, are left out. A policy gains nothing by
// failing where it is not seen.
//
// Beyond AWARE there is a price for missed requests. SP falls by at most 1 in a
// step, so a policy that is too small for one minute in thirty would earn more
// than one that never is. The price of missing as many requests as the SLO
// tolerates (1 % at the 99th percentile) is half of all that efficiency can
// earn, and it rises in proportion. Half of the tolerance is free.
func (o Objective) Judge(s State) (r Reward, ok bool) {
	a := float64(o.Alpha)
	price := (1 - a) * resources * o.SLO.excess(s)
	sp, ok := o.SLO.Preservation(s)
	switch {
	case !ok && price == 0:
		return 0, false
	case !ok || sp == 0:
		return Reward(-price), true
	}
	preserved := Reward(a*float64(sp)*resources - price)
	allocated, signal := s.Limit.CPU, CPULimit
	if o.Reserved {
		allocated, signal = s.Reservation, CPUReservation
	}
	if !s.Knows(signal, MemoryLimit, CPUUsage, MemoryUsage) || allocated <= 0 || s.Limit.Memory <= 0 {
		if price == 0 {
			return 0, false
		}
		return preserved, true
	}
	cpu := float64(s.Usage.CPU) / float64(allocated)
	if cpu > 1 && o.Reserved {
		cpu = 1 / cpu
	}
	cpu = min(1, cpu)
	memory := min(1, float64(s.Usage.Memory)/float64(s.Limit.Memory))
	return preserved + Reward((1-a)*(cpu+memory)), true
}
