package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
)

// crew is a joint policy that notes how it is called.
type crew struct {
	step   time.Duration // that it wants; 0 takes the one that is offered
	decide func(states []mdp.State) ([]mdp.Action, error)
	asked  []time.Time
	ended  int
}

func (c *crew) Begin(_ context.Context, _ sim.App, _ uint64, offered time.Duration) (JointRun, time.Duration, error) {
	if c.step == 0 {
		return c, offered, nil
	}
	return c, c.step, nil
}

func (c *crew) Decide(_ context.Context, states []mdp.State) ([]mdp.Action, error) {
	c.asked = append(c.asked, states[0].At)
	if c.decide == nil {
		return make([]mdp.Action, len(states)), nil
	}
	return c.decide(states)
}

func (c *crew) End(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // a call that does not reach the program
	}
	c.ended++
	return nil
}

// minutes are the first minutes of a cell.
func minutes(ctx context.Context, t *testing.T, c Choice) (Score, error) {
	t.Helper()
	cells, err := Cells()
	if err != nil {
		t.Fatal(err)
	}
	return Run(ctx, cells[8], c, Options{Seed: 1, Length: 3 * time.Minute, Lead: 5 * time.Minute})
}

func TestAJointPolicyIsAskedOnceInEachOfItsSteps(t *testing.T) {
	for step, want := range map[time.Duration]int{0: 48, time.Second: 480, 20 * time.Second: 24} {
		c := &crew{step: step}
		if _, err := minutes(t.Context(), t, Served("crew", c)); err != nil {
			t.Fatal(err)
		}
		if len(c.asked) != want || c.ended != 1 {
			t.Errorf("with steps of %v it was asked %d times in 8 minutes, want %d; ended %d times", step, len(c.asked), want, c.ended)
		}
	}
}

// The same rule for each service decides alone or as one joint policy, and the
// same actions come out, behind the same guards.
func TestAJointPolicyOfRulesScoresAsTheRules(t *testing.T) {
	rule := func(s mdp.State) (mdp.Action, error) {
		if !s.Knows(mdp.CPUUsage) {
			return mdp.Action{}, nil
		}
		return mdp.Action{}.WithCPU(max(20, s.Usage.CPU*3/2)), nil
	}
	alone, err := minutes(t.Context(), t, Choice{Encoding: Encoding, Policy: "alone", custom: &baseline{
		name: "alone", every: 10 * time.Second, path: sim.L2, guards: guard.Central,
		newPolicy: func(Choice, sim.App, sim.Service) (mdp.Policy, error) { return mdp.PolicyFunc(rule), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	together, err := minutes(t.Context(), t, Served("crew", &crew{decide: func(states []mdp.State) ([]mdp.Action, error) {
		var all []mdp.Action
		for _, s := range states {
			a, _ := rule(s)
			all = append(all, a)
		}
		return all, nil
	}}))
	if err != nil || together != alone || alone.Resizes == 0 {
		t.Errorf("together %+v, %v\nalone %+v", together, err, alone)
	}
}

// Who began a run is told when it is over, however that came.
func TestAJointRunIsEndedAfterAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		crew *crew
		want string
	}{
		"half a second": {&crew{step: time.Second / 2}, "step 500ms: it must be whole seconds"},
		"no time":       {&crew{step: -time.Second}, "step -1s: it must be whole seconds"},
		"an error": {
			&crew{decide: func([]mdp.State) ([]mdp.Action, error) { return nil, errors.New("out of ideas") }}, "out of ideas",
		},
		"too few": {
			&crew{decide: func([]mdp.State) ([]mdp.Action, error) { return make([]mdp.Action, 1), nil }},
			"1 actions: there must be one for each",
		},
		"an illegal action": {
			&crew{decide: func(s []mdp.State) ([]mdp.Action, error) {
				all := make([]mdp.Action, len(s))
				all[2] = all[2].WithCPU(-1)
				return all, nil
			}}, "service geo: deciding: the policy gave no legal action",
		},
		"the bench is stopped": {
			&crew{decide: func(s []mdp.State) ([]mdp.Action, error) {
				cancel()
				return make([]mdp.Action, len(s)), nil
			}}, context.Canceled.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			within := t.Context()
			if name == "the bench is stopped" {
				within = ctx
			}
			_, err := minutes(within, t, Served("crew", c.crew))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "with crew") {
				t.Errorf("err = %v, want %q", err, c.want)
			}
			if c.crew.ended != 1 {
				t.Errorf("ended %d times", c.crew.ended)
			}
		})
	}
}
