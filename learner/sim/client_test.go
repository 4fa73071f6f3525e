package sim_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/sim"
)

// behind returns a world of one service that waits 10 ms and computes 10 us,
// with connections.
func behind(t *testing.T, connections int, rate float64) *sim.World {
	t.Helper()
	app := web()
	app.Timeout = time.Minute
	app.Operations[0].Work, app.Operations[0].Wait = 10*time.Microsecond, 10*time.Millisecond
	w := start(t, sim.Config{
		App:         app,
		Load:        sim.Steady(rate),
		Seed:        3,
		Fidelity:    sim.Requests,
		Connections: connections,
	})
	w.Advance(30 * time.Second)
	return w
}

func TestConnectionsBoundTheCompletedRate(t *testing.T) {
	w := behind(t, 8, 1000) // at most 8 / 10.01 ms = 799 per second
	rate := w.Flows()[0].Completed / 30
	if math.Abs(rate-799) > 8 {
		t.Errorf("8 connections and 10 ms: %v requests/s, want 799", rate)
	}
}

func TestWaitForAConnectionCountsAsLatency(t *testing.T) {
	w := behind(t, 8, 1000)
	// At the time t a request waits t * (1 - 799/1000): from 4 to 6 s in the last
	// of three windows.
	median, _ := w.Latency(50)
	if s := median.Seconds(); math.Abs(s-5) > 0.6 {
		t.Errorf("median latency from 20 to 30 s: %v s, want about 5", s)
	}
	if median, _ := behind(t, 0, 1000).Latency(50); median > 12*time.Millisecond {
		t.Errorf("without connections: median %v, want about 10 ms", median)
	}
}

func TestRequestsThatWaitAtTheClientAreNotAtTheService(t *testing.T) {
	f := behind(t, 8, 1000).Flows()[0]
	if f.Inside > 8 || f.Arrived != f.Completed+f.Failed+f.Inside {
		t.Errorf("%+v: at most 8 may be inside, and none may be lost", f)
	}
}

func TestFluidRefusesConnections(t *testing.T) {
	_, err := sim.New(sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(1), Connections: 3})
	if err == nil || !strings.Contains(err.Error(), "connections 3") {
		t.Errorf("error %v: it must name connections 3", err)
	}
}
