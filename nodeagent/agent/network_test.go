package agent

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/pressure"
)

// counter is a process whose counter a test sets.
type counter struct {
	bytes uint64
	err   error
	reads int
}

func (c *counter) Network(int) (uint64, error) {
	c.reads++
	return c.bytes, c.err
}

func TestTrafficIsARateAndUnknownIsNotZero(t *testing.T) {
	c := &counter{bytes: 1000}
	one := traffic{reader: c}
	now := time.Unix(100, 0)
	for i, step := range []struct {
		bytes uint64
		err   error
		want  mdp.Rate
		known bool
	}{
		{1000, nil, 0, false}, // the first reading has nothing before it
		{1000, nil, 0, true},
		{5000, nil, 400, true},
		{5500, errors.New("it ended"), 0, false},
		{9000, nil, 0, false}, // after a gap the time is not known either
		{10000, nil, 100, true},
		{50, nil, 0, false}, // a counter that went back is another one
		{1050, nil, 100, true},
	} {
		c.bytes, c.err = step.bytes, step.err
		now = now.Add(trafficEvery)
		var s mdp.State
		one.observe(now, 7, &s)
		if s.Knows(mdp.NetworkRate) != step.known || s.NetworkRate != step.want {
			t.Errorf("step %d: %v, known %v; want %v, %v", i, s.NetworkRate, s.Knows(mdp.NetworkRate), step.want, step.known)
		}
	}
	var s mdp.State
	(&traffic{}).observe(now, 7, &s)
	(&traffic{reader: c}).observe(now, 0, &s)
	(*traffic)(nil).observe(now, 7, &s)
	if s.Observed != 0 {
		t.Errorf("nothing can be read, and observed is %v", s.Observed)
	}
}

// Two containers of a pod look at their traffic each second. Once the rate is known, the
// counters are read once in ten seconds, and both have the rate all the time.
func TestThePodsTrafficIsReadOnceForAllItsContainers(t *testing.T) {
	c := &counter{}
	pod := traffic{reader: c}
	now := noon
	for i := range 42 {
		c.bytes += 300
		for _, pid := range []int{7, 8} {
			var s mdp.State
			pod.observe(now, pid, &s)
			if known := s.Knows(mdp.NetworkRate); known != (i > 0) || known && s.NetworkRate != 300 {
				t.Errorf("after %d s process %d: %v, known %v", i, pid, s.NetworkRate, known)
			}
		}
		now = now.Add(time.Second)
	}
	if c.reads != 2+40/10 {
		t.Errorf("%d readings in 41 s, want two for the first rate and then one in ten seconds", c.reads)
	}
}

func TestContainersOfAPodShareItsTraffic(t *testing.T) {
	a := &Agent{
		deps:       Deps{Pressure: &countingPressure{}},
		containers: map[api.ContainerRef]*managedContainer{},
	}
	web, side := a.trafficOf("u1"), (*traffic)(nil)
	a.containers[api.ContainerRef{PodUID: "u1", Container: "web"}] = &managedContainer{net: web}
	if side = a.trafficOf("u1"); side != web {
		t.Error("another container of the pod reads the same counters again")
	}
	if a.trafficOf("u2") == web {
		t.Error("another pod has the same traffic")
	}
	a.deps.Pressure = nil
	if a.trafficOf("u3") != nil {
		t.Error("nothing can be read, and something reads it")
	}
}

// countingPressure is a reader of a node that counts bytes.
type countingPressure struct{ counter }

func (*countingPressure) Read() (pressure.Node, error) { return pressure.Node{}, nil }
