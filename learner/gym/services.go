package gym

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
)

// alone is an Environment as a Joint of its one service.
type alone struct{ env workload.Environment }

// Spaces implements [workload.Joint], and so on.
func (a alone) Spaces() []workload.Spaces { return []workload.Spaces{a.env.Spaces()} }

func (a alone) Reset(ctx context.Context, seed uint64) ([]mdp.State, error) {
	s, err := a.env.Reset(ctx, seed)
	return []mdp.State{s}, err
}

func (a alone) Step(ctx context.Context, actions []mdp.Action) ([]workload.Outcome, error) {
	out, err := a.env.Step(ctx, actions[0])
	return []workload.Outcome{out}, err
}

// Close implements [workload.Closer].
func (a alone) Close(ctx context.Context) error {
	if c, ok := a.env.(workload.Closer); ok {
		return c.Close(ctx)
	}
	return nil
}

// spaces describes the session's environment.
func (one *session) spaces() *gymv1.Spaces {
	all := one.env.Spaces()
	step := all[0].Step.Seconds()
	w := &gymv1.Spaces{
		Encoding:     Encoding,
		World:        string(all[0].World),
		Workload:     all[0].Workload,
		StepSeconds:  &step,
		EpisodeSteps: uint32(one.episode),
	}
	if len(one.encoders) > 0 {
		w.EncodedLength = uint32(one.encoders[0].Form().Dim())
	}
	if !one.all {
		s := ServiceToWire(all[0])
		w.Service, w.Action, w.Observation = s.Name, s.Action, s.Observation
		return w
	}
	for _, s := range all {
		w.Services = append(w.Services, ServiceToWire(s))
	}
	return w
}

// states converts the States of the services, with their vectors when the client
// wants them.
func (one *session) states(found []mdp.State) ([]*gymv1.State, error) {
	states := make([]*gymv1.State, len(found))
	for i, s := range found {
		states[i] = StateToWire(s)
		if len(one.encoders) == 0 {
			continue
		}
		states[i].Encoded = make([]float64, one.encoders[i].Form().Dim())
		if err := one.encoders[i].Observe(s, states[i].Encoded); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// actions reads the Actions of a step, one for each service. It reads all before
// any is carried out.
func (one *session) actions(r *gymv1.StepRequest) ([]mdp.Action, error) {
	spaces := one.env.Spaces()
	if one.all {
		if knobs := slices.Sorted(maps.Keys(r.GetAction())); len(knobs) > 0 {
			return nil, fmt.Errorf("action %s = %v: this session acts on all services: it must be in services, by the service's name",
				knobs[0], r.GetAction()[knobs[0]])
		}
		return ParseActions(spaces, r.GetServices(), one.clip)
	}
	if names := slices.Sorted(maps.Keys(r.GetServices())); len(names) > 0 {
		return nil, fmt.Errorf("services %q: this session acts on one service, %s: its knobs must be in action; "+
			"a session with options.all_services takes services", names[0], spaces[0].Service)
	}
	a, err := parseAction(spaces[0], r.GetAction(), one.clip)
	return []mdp.Action{a}, err
}

// whole writes what a step led to at every service, and what sums it up.
func (one *session) whole(answer *gymv1.StepResponse, out []workload.Outcome, states []*gymv1.State) {
	answer.Services = map[string]*gymv1.ServiceStep{}
	worst, clips, sum, known := mdp.Unchanged, mdp.Clips(0), 0.0, true
	for i, spaces := range one.env.Spaces() {
		answer.Services[spaces.Service] = &gymv1.ServiceStep{
			State:  states[i],
			Reward: rewardToWire(out[i]),
			Effect: out[i].Effect.String(),
			Clips:  out[i].Clipped.Names(),
			Text:   out[i].Text,
		}
		worst = worst.Worse(out[i].Effect)
		clips |= out[i].Clipped
		sum += float64(out[i].Reward)
		known = known && out[i].RewardKnown
	}
	if known {
		mean := sum / float64(len(out))
		answer.Reward = &mean
	}
	answer.Info = one.info(worst, "")
	answer.Info.Clips = clips.Names()
}

// rewardToWire is the reward of an Outcome; nil is one that is not known.
func rewardToWire(out workload.Outcome) *float64 {
	if !out.RewardKnown {
		return nil
	}
	r := float64(out.Reward)
	return &r
}
