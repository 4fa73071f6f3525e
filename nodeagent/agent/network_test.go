package agent

import (
	"errors"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// counter is a process whose counter a test sets.
type counter struct {
	bytes uint64
	err   error
}

func (c *counter) Network(int) (uint64, error) { return c.bytes, c.err }

func TestTrafficIsARateAndUnknownIsNotZero(t *testing.T) {
	c := &counter{bytes: 1000}
	one := traffic{reader: c, pid: 7}
	now := time.Unix(100, 0)
	for i, step := range []struct {
		bytes uint64
		err   error
		want  mdp.Rate
		known bool
	}{
		{1000, nil, 0, false}, // the first reading has nothing before it
		{1000, nil, 0, true},
		{3000, nil, 1000, true},
		{3500, errors.New("it ended"), 0, false},
		{9000, nil, 0, false}, // after a gap the time is not known either
		{9200, nil, 100, true},
		{50, nil, 0, false}, // a counter that went back is another one
		{250, nil, 100, true},
	} {
		c.bytes, c.err = step.bytes, step.err
		now = now.Add(2 * time.Second)
		var s mdp.State
		one.observe(now, &s)
		if s.Knows(mdp.NetworkRate) != step.known || s.NetworkRate != step.want {
			t.Errorf("step %d: %v, known %v; want %v, %v", i, s.NetworkRate, s.Knows(mdp.NetworkRate), step.want, step.known)
		}
	}
	var s mdp.State
	(&traffic{}).observe(now, &s)
	(&traffic{reader: c}).observe(now, &s)
	if s.Observed != 0 {
		t.Errorf("nothing can be read, and observed is %v", s.Observed)
	}
}
