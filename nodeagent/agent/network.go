package agent

import (
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// networkReader is a Pressure that can read the traffic of a process's network
// namespace, as pressure.Reader does.
type networkReader interface {
	Network(pid int) (bytes uint64, err error)
}

// trafficEvery is how often a pod's counters are read once its rate is known. Reading them
// costs ten times as much as any file of a container's group, and no decision of the node
// depends on them.
const trafficEvery = 10 * time.Second

// traffic turns a pod's byte counters into a rate. The pod's containers share it. The zero
// value knows nothing.
type traffic struct {
	reader networkReader
	bytes  uint64
	at     time.Time // when bytes were read; zero when they were not
	rate   float64   // bytes per second between the last two readings
	known  bool      // the rate
}

// trafficOf is the traffic of a pod, which the first of its containers makes; nil when it
// cannot be read.
func (a *Agent) trafficOf(podUID string) *traffic {
	reader, ok := a.deps.Pressure.(networkReader)
	if !ok {
		return nil
	}
	for ref, c := range a.containers {
		if ref.PodUID == podUID && c.net != nil {
			return c.net
		}
	}
	return &traffic{reader: reader}
}

// observe sets the rate, by the network namespace of a process of the pod. What cannot be read
// is not observed: a process that has ended, or a proc root that does not show it.
func (t *traffic) observe(now time.Time, pid int, s *mdp.State) {
	if t == nil || t.reader == nil || pid <= 0 {
		return
	}
	if !t.known || now.Sub(t.at) >= trafficEvery {
		t.read(now, pid)
	}
	if t.known {
		mdp.NetworkRate.Set(s, t.rate)
	}
}

func (t *traffic) read(now time.Time, pid int) {
	took := now.Sub(t.at).Seconds()
	if took <= 0 {
		return // by another container of the pod, in the same step
	}
	bytes, err := t.reader.Network(pid)
	if err != nil {
		t.known, t.at = false, time.Time{}
		return
	}
	if t.known = !t.at.IsZero() && bytes >= t.bytes; t.known {
		t.rate = float64(bytes-t.bytes) / took
	}
	t.bytes, t.at = bytes, now
}
