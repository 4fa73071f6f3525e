package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"connectrpc.com/connect"
)

// patience is how long a served policy may take for an answer.
const patience = 5 * time.Second

// isServed reports whether the name of a policy is an address.
func isServed(policy string) bool { return strings.Contains(policy, "://") }

// served is a policy that another program serves as gymv1.Policy.
type served struct{ client gymv1.PolicyClient }

// newServed makes the client of a policy. It does not connect yet.
func newServed(address string) (bench.Joint, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", address, err)
	}
	if u.Hostname() == "" || u.Port() == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return nil, fmt.Errorf("policy %s: it must be grpc://HOST:PORT or http://HOST:PORT", address)
	}
	var protocols http.Protocols
	transport := &http.Transport{Protocols: &protocols} // without a proxy
	switch u.Scheme {
	case "grpc":
		protocols.SetUnencryptedHTTP2(true)
		return servedBy(&http.Client{Transport: transport}, u.Host, connect.WithGRPC()), nil
	case "http":
		protocols.SetHTTP1(true)
		return servedBy(&http.Client{Transport: transport}, u.Host, connect.WithCodec(gym.JSON)), nil
	}
	return nil, fmt.Errorf("policy %s: scheme %q: it must be grpc or http", address, u.Scheme)
}

// servedBy is the policy that a host serves.
func servedBy(h connect.HTTPClient, host string, protocol connect.ClientOption) bench.Joint {
	return served{gymv1.NewPolicyClient(h, "http://"+host, protocol, connect.WithReadMaxBytes(1<<20))}
}

// ask makes one call. The context's cancellation is an error as it is; an answer
// that does not come in time is one that says so.
func ask[Q, A any](
	ctx context.Context, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q,
) (*A, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := call(limited, connect.NewRequest(q))
	switch {
	case err == nil:
		return answer.Msg, nil
	case ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer within %v: %w", patience, err)
	}
	return nil, err
}

// Begin implements [bench.Joint].
func (p served) Begin(
	ctx context.Context, app sim.App, seed uint64, offered time.Duration,
) (bench.JointRun, time.Duration, error) {
	fail := func(err error) (bench.JointRun, time.Duration, error) { return nil, 0, fmt.Errorf("begin: %w", err) }
	r := &servedRun{policy: p}
	q := &gymv1.BeginRequest{
		Workload: app.Name, StepSeconds: offered.Seconds(), Seed: seed, Encoding: gym.Encoding,
		Objective: &gymv1.Objective{
			Percentile: app.SLO.Percentile, LatencySeconds: app.SLO.Latency.Seconds(),
			RequestsPerSecond: float64(app.SLO.Throughput), Lost: float64(app.SLO.Lost), Background: float64(app.SLO.Background),
		},
	}
	for _, s := range app.Services {
		spaces := workload.Spaces{Service: s.Name, Knobs: mdp.LimitKnobs, Bounds: s.Bounds, Signals: workload.Seen}
		r.spaces = append(r.spaces, spaces)
		q.Services = append(q.Services, gym.ServiceToWire(spaces))
	}
	a, err := ask(ctx, p.client.Begin, q)
	if err != nil {
		return fail(err)
	}
	if r.id = a.GetRun(); r.id == "" {
		return fail(errors.New(`run "": it must not be empty`))
	}
	seconds := a.GetStepSeconds()
	if !(seconds >= 0 && seconds <= 3600) || seconds != math.Trunc(seconds) {
		_ = r.End(ctx) // the wrong step is the error
		return fail(fmt.Errorf("run %q: step_seconds %v: it must be a whole number in [0, 3600]", r.id, seconds))
	}
	if seconds > 0 {
		offered = time.Duration(seconds) * time.Second
	}
	return r, offered, nil
}

// servedRun is a run of a served policy.
type servedRun struct {
	policy served
	id     string
	spaces []workload.Spaces // of the services
}

// Decide implements [bench.JointRun].
func (r *servedRun) Decide(ctx context.Context, states []mdp.State) ([]mdp.Action, error) {
	q := &gymv1.DecideRequest{Run: r.id, Services: map[string]*gymv1.State{}}
	for i, s := range states {
		q.Services[r.spaces[i].Service] = gym.StateToWire(s)
	}
	a, err := ask(ctx, r.policy.client.Decide, q)
	if err != nil {
		return nil, fmt.Errorf("run %q: decide: %w", r.id, err)
	}
	actions, err := gym.ParseActions(r.spaces, a.GetServices(), false)
	if err != nil {
		return nil, fmt.Errorf("run %q: decide: %w", r.id, err)
	}
	return actions, nil
}

// End implements [bench.JointRun].
func (r *servedRun) End(ctx context.Context) error {
	if _, err := ask(ctx, r.policy.client.End, &gymv1.EndRequest{Run: r.id}); err != nil {
		return fmt.Errorf("run %q: end: %w", r.id, err)
	}
	return nil
}
