// Package handover lets a learner begin with what a learner of another algorithm has learned, where both have a network of
// the same meaning: AWARE's agents learn offline by one algorithm and go on online by another (§3.4). Everywhere else it
// refuses, and says why.
//
//	discrete BCQ -> DQN         the values of choices; without BCQ's constraint they are double DQN's
//	clone        -> PPO         the policy of discrete choices; PPO's critic begins anew
//	clone        -> DDPG, TD3   the actor; the critics begin anew
package handover

import (
	"encoding/json"
	"fmt"
	"slices"

	"awarescale.dev/aware/learner/algo/bcq/clone"
	"awarescale.dev/aware/learner/algo/bcq/discrete"
	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
)

// RefusedError says why nothing was handed over.
type RefusedError struct {
	From, To string // algorithms
	Why      string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("handing over from %s to %s: %s", e.From, e.To, e.Why)
}

// Over lets a learner begin with the saved weights of another algorithm's. What a target network has is the same. On an
// error, which is a [*RefusedError] where the two do not fit, nothing has changed.
func Over(from weights.File, to train.Learner) error {
	name := from.Meta["algorithm"]
	switch to := to.(type) {
	case *dqn.Agent:
		refused := refusal(name, dqn.Algorithm)
		if name != discrete.Algorithm {
			return refused("DQN's network values choices, and only discrete BCQ has learned such values")
		}
		theta, target, err := network(from, "values", to.Snapshot(), refused)
		if err != nil {
			return err
		}
		copy(to.Values.Theta, theta)
		copy(to.Values.Target, target)
		return nil
	case *ppo.Agent:
		refused := refusal(name, ppo.Algorithm)
		if name != clone.Algorithm {
			return refused("PPO's network gives probabilities of choices, and only a clone has learned such")
		}
		now := to.Snapshot()
		if now.Mean != nil {
			return refused("PPO normalises its observations here, and a clone reads them as they are")
		}
		theta, _, err := network(from, "network", now, refused)
		if err != nil {
			return err
		}
		copy(now.Theta, theta)
		return nil
	case *ddpg.Agent:
		refused := refusal(name, ddpg.Algorithm)
		if name != clone.Algorithm {
			return refused("DDPG's actor is one network from states to actions, and only a clone has learned such: " +
				"let a clone learn what the policy does, and hand that over")
		}
		theta, _, err := network(from, "network", to.Snapshot(), refused)
		if err != nil {
			return err
		}
		copy(to.Policy.Actor.Theta, theta)
		copy(to.Policy.Actor.Target, theta)
		return nil
	}
	return refusal(name, fmt.Sprintf("%T", to))("it has no network that another algorithm learns")
}

func refusal(from, to string) func(why string) error {
	return func(why string) error { return &RefusedError{From: from, To: to, Why: why} }
}

// network is the saved network of a name, and its target network where it has one: it must have the layers of what is served.
func network(
	from weights.File, name string, now kernel.Snapshot, refused func(string) error,
) (theta, target []float64, err error) {
	var of struct {
		State      int       `json:"state"`
		NumActions int       `json:"num_actions"`
		Low        []float64 `json:"low"`
		High       []float64 `json:"high"`
		Hidden     []int     `json:"hidden"`
	}
	if err := json.Unmarshal([]byte(from.Meta["identity"]), &of); err != nil {
		return nil, nil, fmt.Errorf("handing over: metadata \"identity\": %w", err)
	}
	var layers kernel.MLP
	if name == "values" {
		layers = discrete.Config{State: of.State, NumActions: of.NumActions, Hidden: of.Hidden}.Network()
	} else {
		layers = clone.Config{
			State: of.State, NumActions: of.NumActions, Low: of.Low, High: of.High, Hidden: of.Hidden,
		}.Network()
	}
	if !slices.Equal(layers, now.MLP) {
		return nil, nil, refused(fmt.Sprintf("the layers are %v, and must be %v", layers, now.MLP))
	}
	if theta, err = from.Take(name, layers.Params()); err != nil {
		return nil, nil, fmt.Errorf("handing over: %w", err)
	}
	if name == "values" {
		if target, err = from.Take(name+".target", layers.Params()); err != nil {
			return nil, nil, fmt.Errorf("handing over: %w", err)
		}
	}
	return theta, target, nil
}
