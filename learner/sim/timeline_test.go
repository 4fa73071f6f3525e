package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The samples of an operation arrive when its requests do, which is not when the
// clients' do: here a service before it held them for five slices.
func TestSamplesArriveWhenTheOperationsRequestsDo(t *testing.T) {
	const window = 10
	f := &fluid{arrivals: make([][]float64, 2*ring), moves: make([]move, 1)}
	for slice := range f.arrivals {
		f.arrivals[slice] = make([]float64, 2)
	}
	f.came(20)[1] = 100                   // of clients
	f.came(25)[0], f.came(29)[0] = 75, 25 // of the operation
	f.start = 20
	st := &station{crowds: make([]crowd, slots(window))}
	tl := &timeline{first: make([]int32, window+1)}
	tl.plan(f, window, 0, st)
	count := map[int32]int{}
	for _, slot := range tl.slot {
		count[slot]++
	}
	if count[5] != draws*3/4 || count[9] != draws/4 {
		t.Errorf("samples by slice: %v, want three quarters in slice 5 and the others in slice 9", count)
	}
}

// A call of a request that throttling has held meets one of those that come together;
// any other call meets one that comes at its own time.
func TestAHeldRequestMeetsTheCrowd(t *testing.T) {
	const window = 2
	at := crowd{share: 0.25, at: 0.1}
	f := &fluid{arrivals: make([][]float64, 2*ring), moves: make([]move, 1)}
	for slice := range f.arrivals {
		f.arrivals[slice] = []float64{100, 100}
	}
	st := &station{crowds: make([]crowd, slots(window))}
	for slice := range st.crowds {
		st.crowds[slice] = at
	}
	to := callee{move: &move{timeline: &timeline{first: make([]int32, window+1)}}, station: st, latencies: make([]float64, draws)}
	to.timeline.plan(f, window, 0, st)
	caller := &timeline{first: make([]int32, window+1)}
	rng := rand.NewPCG(1, 2)
	meets := func(when float64, held bool) (members int) {
		caller.at[0], caller.held[0] = when, held
		for range 1000 {
			if j, _ := caller.meet(0, 0, &to, rng); to.timeline.at[j] == 1+at.at {
				members++
			}
		}
		return members
	}
	if n := meets(1.1, true); n < 950 { // the sample at the edge is one of 128
		t.Errorf("%d of 1000 held requests meet the crowd", n)
	}
	// If it is held again, it ends when they do.
	for k := range to.latencies {
		to.latencies[k], to.timeline.held[k] = 0.2, true
	}
	caller.at[0], caller.held[0] = 1.05, true
	if _, end := caller.meet(0, 0, &to, rng); math.Abs(end-0.205) > 1e-9 {
		t.Errorf("it ends after %v s, want those 5 ms later than 200 ms that the crowd comes after it", end)
	}
	if n := meets(1.7, false); n != 0 {
		t.Errorf("%d of 1000 requests that call when the crowd is long there meet it", n)
	}
}
