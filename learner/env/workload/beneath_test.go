package workload_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// above is the shop with a policy of its node.
func above(t *testing.T, step time.Duration, beneath workload.Beneath) (*workload.Simulation, error) {
	t.Helper()
	return workload.OfWorld(steady(60), workload.Options{Alpha: 0.5, Step: step, Guards: guard.Published, Beneath: beneath})
}

// always is a policy of a node that wants one limit.
func always(limit mdp.MilliCPU) workload.Beneath {
	return func(string, uint64) (mdp.Policy, error) {
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithCPU(limit), nil }), nil
	}
}

// With a policy beneath an action sets the ceiling: that is what a State shows, and what a learner reads. What is judged is the
// limit that was in force, which the node has set, and never above the ceiling.
func TestAPolicyBeneathDecidesOnTheLimitInForce(t *testing.T) {
	e, err := above(t, 10*time.Second, always(400))
	if err != nil {
		t.Fatal(err)
	}
	first, err := e.Reset(t.Context(), 1)
	if err != nil || first.Limit.CPU != 1000 {
		t.Fatalf("%v is set at the begin, %v", first.Limit, err)
	}
	step := func(a mdp.Action) workload.Outcome {
		t.Helper()
		out, err := e.Step(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		objective := mdp.Objective{SLO: shop().SLO, Alpha: 0.5}
		if r, ok := objective.Judge(out.Judged); r != out.Reward || ok != out.RewardKnown {
			t.Errorf("reward %v (%v): that of what was in force is %v (%v)", out.Reward, out.RewardKnown, r, ok)
		}
		return out
	}
	calm := step(mdp.Action{})
	if calm.State.Limit.CPU != 1000 || calm.Judged.Limit.CPU != 400 || calm.State.Usage != calm.Judged.Usage {
		t.Errorf("set %v, in force %v: want 1000 and 400", calm.State.Limit, calm.Judged.Limit)
	}
	// The kubelet brings a new ceiling into force, and the node takes it back by halves.
	raised := step(mdp.Action{}.WithCPU(3000).WithMemory(300 * mdp.MiB).WithReplicas(3))
	if got := raised.Judged.Limit.CPU; raised.State.Limit.CPU != 3000 || got <= 400 || got >= 1500 {
		t.Errorf("set %v, in force %v: want 3000, and less than half of it in the mean", raised.State.Limit, raised.Judged.Limit)
	}
	if raised.Judged.Limit.Memory != 300*mdp.MiB || raised.State.Limit.Memory != 300*mdp.MiB || raised.State.Replicas != 3 {
		t.Errorf("%+v: memory and replicas are as they were set", raised.State)
	}
	if raised.Executed.Limit.CPU != 3000 {
		t.Errorf("executed %v", raised.Executed)
	}
	low := step(mdp.Action{}.WithCPU(200))
	if low = step(mdp.Action{}); low.State.Limit.CPU != 200 || low.Judged.Limit.CPU != 200 {
		t.Errorf("set %v, in force %v: the node stays below the ceiling of 200", low.State.Limit, low.Judged.Limit)
	}

	if _, err := e.MarshalBinary(); err == nil || !strings.Contains(err.Error(), "beneath") {
		t.Errorf("saved: %v", err)
	}
	if err := e.UnmarshalBinary([]byte("{}")); err == nil || !strings.Contains(err.Error(), "beneath") {
		t.Errorf("restored: %v", err)
	}
}

// Each episode has a policy of its own: what one has learned in an episode is not known in the next one. Its errors end the
// episode, but for what it could not see.
func TestThePolicyBeneathIsThatOfTheEpisode(t *testing.T) {
	var seeds []uint64
	var fails error
	e, err := above(t, 2*time.Second, func(service string, seed uint64) (mdp.Policy, error) {
		if service != "web" {
			t.Errorf("a policy for %q", service)
		}
		seeds = append(seeds, seed)
		return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, fails }), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{7, 8} {
		if _, err := e.Reset(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
	}
	if len(seeds) != 2 || seeds[0] != 7 || seeds[1] != 8 {
		t.Errorf("policies for the seeds %v", seeds)
	}
	fails = &mdp.UnknownError{Who: "node", Missing: mdp.SetOf(mdp.CPUUsage)}
	if out, err := e.Step(t.Context(), mdp.Action{}); err != nil || out.Judged.Limit.CPU != 1000 {
		t.Errorf("it knows too little: %v in force, %v", out.Judged.Limit, err)
	}
	if _, err := above(t, 2500*time.Millisecond, always(1)); err == nil || !strings.Contains(err.Error(), "multiple of 1s") {
		t.Errorf("a step of 2.5 s: %v", err)
	}
	broken := errors.New("no model")
	bad, err := above(t, 2*time.Second, func(string, uint64) (mdp.Policy, error) { return nil, broken })
	if err == nil {
		_, err = bad.Reset(t.Context(), 1)
	}
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "web") {
		t.Errorf("%v", err)
	}
}

// Without a policy beneath what is set is in force, and is judged.
func TestWithoutAPolicyBeneathWhatIsSetIsJudged(t *testing.T) {
	e := environment(t, guard.Central)
	if _, err := e.Reset(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	out, err := e.Step(t.Context(), mdp.Action{}.WithCPU(900))
	if err != nil || out.State != out.Judged || out.State.Limit.CPU != 900 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Where reservations are set, as in central, a ceiling is the upper bound all the time; what is judged is what was reserved, and
// not what the node let it use.
func TestReservationsAreSetBeneathTheUpperBound(t *testing.T) {
	world := steady(60)
	o := workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Published, Reserved: true}
	if _, err := workload.OfWorld(world, o); err == nil || !strings.Contains(err.Error(), "beneath") {
		t.Errorf("without a policy beneath: %v", err)
	}
	o.Beneath = always(700)
	e, err := workload.OfWorld(world, o)
	if err != nil {
		t.Fatal(err)
	}
	spaces := e.Spaces()
	if spaces.Knobs != mdp.ReservedKnobs || spaces.Bounds.Knob(mdp.CPUReservation) != spaces.Bounds.Knob(mdp.CPULimit) {
		t.Errorf("knobs %v, bounds %v", spaces.Knobs, spaces.Bounds)
	}
	for range 2 { // each episode begins as the first one did
		s, err := e.Reset(t.Context(), 1)
		if err != nil || s.Reservation != 1000 || s.Ceiling != 4000 || s.Limit.CPU >= 1000 || !spaces.Signals.Contains(s.Observed) {
			t.Fatalf("%+v, %v", s, err)
		}
		if s.CPUBurst < s.Usage.CPU || !s.Knows(mdp.CPUBurst) {
			t.Errorf("a burst of %v, and %v in the mean", s.CPUBurst, s.Usage.CPU)
		}
		out, err := e.Step(t.Context(), mdp.Action{}.WithReservation(200).WithMemory(300*mdp.MiB).WithReplicas(3))
		if err != nil || out.Executed.Reservation != 200 || out.Effect != mdp.Applied && out.Effect != mdp.Pending {
			t.Fatalf("%+v, %v", out, err)
		}
		got := out.State
		if got.Reservation != 200 || got.Ceiling != 4000 || got.Limit.CPU >= 2000 || got.Limit.Memory != 300*mdp.MiB ||
			got.Replicas != 3 || got != out.Judged {
			t.Errorf("%+v", got)
		}
		if !got.Knows(mdp.Missed) || got.Knows(mdp.Lost) {
			t.Errorf("%v is known: of what failed central knows what was late", got.Observed)
		}
		objective := mdp.Objective{SLO: shop().SLO, Alpha: 0.5, Reserved: true}
		if r, _ := objective.Judge(got); r != out.Reward {
			t.Errorf("reward %v, that of the reservation is %v", out.Reward, r)
		}
		if out, err = e.Step(t.Context(), mdp.Action{}.WithReservation(150)); err != nil || out.Effect != mdp.Applied {
			t.Errorf("a reservation alone: %v, %v", out.Effect, err)
		}
		if out, err = e.Step(t.Context(), mdp.Action{}.WithReservation(150)); err != nil || out.Effect != mdp.Unchanged ||
			out.State.Reservation != 150 || out.State.Ceiling != 4000 {
			t.Errorf("the same again: %v, %+v, %v", out.Effect, out.State, err)
		}
	}
}

// Central counts what was late as a share of at least as many requests as make one late one the objective's tolerance, and so
// do its worlds.
func TestWhatWasLateIsCountedAsCentralCountsIt(t *testing.T) {
	e, err := workload.OfWorld(steady(2), workload.Options{
		Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Published, Reserved: true, Beneath: always(4),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	most := mdp.Ratio(0)
	for range 20 {
		out, err := e.Step(t.Context(), mdp.Action{})
		if err != nil {
			t.Fatal(err)
		}
		s := out.State
		if !s.Knows(mdp.Missed, mdp.Throughput) {
			continue
		}
		most = max(most, s.Missed)
		if counted := shop().SLO.Counted(1, float64(s.Throughput)*10); s.Missed > counted+1e-9 {
			t.Errorf("%v at %v/s: it counts as %v at most", s.Missed, s.Throughput, counted)
		}
	}
	if most == 0 {
		t.Error("nothing was late with 4 millicores")
	}
}

// An action that failed has changed nothing, its reservation neither.
func TestAReservationThatCouldNotBeSetIsNot(t *testing.T) {
	cluster := sim.Uniform(2, mdp.Size{CPU: 16_000, Memory: 64 << 30})
	cluster.Delays.Faults = 0.5
	e, err := workload.OfWorld(func(seed uint64) (sim.Config, error) {
		return sim.Config{App: shop(), Cluster: cluster, Load: sim.Steady(60), Seed: seed}, nil
	}, workload.Options{Alpha: 0.5, Step: 10 * time.Second, Guards: guard.Published, Reserved: true, Beneath: always(700)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reset(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	has := mdp.MilliCPU(1000)
	failed, set := 0, 0
	for i := range mdp.MilliCPU(30) {
		wish := 300 + 10*i
		out, err := e.Step(t.Context(), mdp.Action{}.WithReservation(wish).WithMemory(mdp.Bytes(200+i)*mdp.MiB))
		switch {
		case errors.Is(err, sim.ErrCall):
			failed++
			if out, err = e.Step(t.Context(), mdp.Action{}); err != nil || out.State.Reservation != has {
				t.Errorf("after a call that failed %v is reserved, and was %v (%v)", out.State.Reservation, has, err)
			}
		case err != nil:
			t.Fatal(err)
		default:
			set++
			if has = wish; out.State.Reservation != has {
				t.Errorf("%v is reserved, want %v", out.State.Reservation, has)
			}
		}
	}
	if failed < 5 || set < 5 {
		t.Errorf("%d calls failed, %d did not", failed, set)
	}
}
