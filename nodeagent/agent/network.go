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

// traffic turns a pod's byte counters into a rate. The zero value knows nothing.
type traffic struct {
	reader networkReader
	pid    int // of the container's first process
	bytes  uint64
	at     time.Time // when bytes were read; zero when they were not
}

// observe sets the rate since the call before. What cannot be read is not observed:
// a process that has ended, or a proc root that does not show it.
func (t *traffic) observe(now time.Time, s *mdp.State) {
	if t.reader == nil || t.pid <= 0 {
		return
	}
	bytes, err := t.reader.Network(t.pid)
	if err != nil {
		t.at = time.Time{}
		return
	}
	if took := now.Sub(t.at).Seconds(); !t.at.IsZero() && took > 0 && bytes >= t.bytes {
		mdp.NetworkRate.Set(s, float64(bytes-t.bytes)/took)
	}
	t.bytes = bytes
	t.at = now
}
