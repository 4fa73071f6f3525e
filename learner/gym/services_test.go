package gym_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"connectrpc.com/connect"
)

// The gym over all services is what the bench does: one loop for each service of
// one world, in the application's order.
func TestEpisodeOverAllServicesEqualsTheEpisodeOfLoops(t *testing.T) {
	const seed, steps = 11, 60
	c, _ := config(seed)
	w, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	var loops []mdp.Loop
	for _, h := range w.Services() {
		loops = append(loops, mdp.Loop{
			Sensor:    h.Sensor(),
			Actuator:  h.Actuator(sim.L2),
			Policy:    mdp.PolicyFunc(rule),
			Objective: mdp.Objective{SLO: shop().SLO, Alpha: 0.5},
		})
	}
	want := make([][]mdp.Decision, steps+1)
	for i := range want {
		w.Advance(step)
		for k := range loops {
			d, err := loops[k].Step(t.Context(), w.Now())
			if err != nil {
				t.Fatal(err)
			}
			want[i] = append(want[i], d)
		}
	}

	env, err := openAll(t.Context(), gym.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, url := serve(t, nil)
	remote := gymv1.NewGymClient(http.DefaultClient, url, connect.WithGRPCWeb())
	opened, err := remote.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{
		Options: &gymv1.Options{AllServices: true, Encoded: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	id, s := opened.Msg.Session, uint64(seed)
	states, err := env.Reset(t.Context(), seed)
	if err != nil {
		t.Fatal(err)
	}
	first, err := remote.Reset(t.Context(), connect.NewRequest(&gymv1.ResetRequest{Session: id, Seed: &s}))
	if err != nil {
		t.Fatal(err)
	}
	for k, spaces := range env.Spaces() {
		if states[k] != want[0][k].State {
			t.Fatalf("the first state of %s is %+v, the loop's %+v", spaces.Service, states[k], want[0][k].State)
		}
		sameState(t, first.Msg.Services[spaces.Service], states[k], spaces)
	}
	for i := range steps {
		actions, named := make([]mdp.Action, len(states)), map[string]*gymv1.Action{}
		for k := range states {
			actions[k], _ = rule(states[k])
			named[env.Spaces()[k].Service] = &gymv1.Action{Knobs: wire(actions[k])}
		}
		out, err := env.Step(t.Context(), actions)
		if err != nil {
			t.Fatal(err)
		}
		far, err := remote.Step(t.Context(), connect.NewRequest(&gymv1.StepRequest{Session: id, Services: named}))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for k, spaces := range env.Spaces() {
			got, now, next := out[k], want[i][k], want[i+1][k]
			if actions[k] != now.Action || got.Effect != now.Effect || got.State != next.State ||
				got.RewardKnown != next.RewardKnown || got.Reward != next.Reward {
				t.Fatalf("step %d, %s: %v led to %+v; the loop's %v to %v %+v %v", i+1, spaces.Service, actions[k], got,
					now.Action, now.Effect, next.State, next.Reward)
			}
			m := far.Msg.Services[spaces.Service]
			if m.GetReward() != float64(got.Reward) || m.GetEffect() != got.Effect.String() {
				t.Fatalf("step %d, %s over the wire: %v; here %+v", i+1, spaces.Service, m, got)
			}
			sameState(t, m.GetState(), got.State, spaces)
			sum += float64(got.Reward)
			states[k] = got.State
		}
		if far.Msg.GetReward() != sum/2 || far.Msg.State != nil {
			t.Fatalf("step %d: reward %v, the services' mean is %v; state %v", i+1, far.Msg.Reward, sum/2, far.Msg.State)
		}
	}
}

// sameState compares a State with what came over the wire, its vector included.
func sameState(t *testing.T, got *gymv1.State, want mdp.State, spaces workload.Spaces) {
	t.Helper()
	e, err := encode.New(encode.Discrete(mdp.LimitKnobs), encode.Place{Bounds: spaces.Bounds, SLO: spaces.SLO})
	if err != nil {
		t.Fatal(err)
	}
	vector := make([]float64, e.Form().Dim())
	if err := e.Observe(want, vector); err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for one := range want.Observed.Signals() {
		figures[one.String()] = one.Value(&want)
	}
	if fmt.Sprint(got.GetSignals()) != fmt.Sprint(figures) || !slices.Equal(got.GetEncoded(), vector) ||
		!got.GetAt().AsTime().Equal(want.At) {
		t.Fatalf("%s over the wire: %v; here %+v, encoded %v", spaces.Service, got, want, vector)
	}
}

func TestSpacesOfAllServicesListEachOne(t *testing.T) {
	_, url := serve(t, nil)
	_, body := post(t, url, "Init", `{"options": {"allServices": true, "encoded": true}}`)
	var m struct{ Spaces map[string]json.RawMessage }
	var services []struct {
		Name        string
		Action      []struct{ Name string }
		Observation []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(m.Spaces["services"], &services); err != nil {
		t.Fatal(err)
	}
	if len(services) != 2 || services[0].Name != "store" || services[1].Name != "web" || len(services[1].Action) != 3 ||
		len(services[1].Observation) != workload.Seen.Len() {
		t.Errorf("services: %s", body)
	}
	if want := fmt.Sprint(2 * mdp.SignalCount); string(m.Spaces["encodedLength"]) != want || m.Spaces["service"] != nil ||
		m.Spaces["action"] != nil {
		t.Errorf("encoded length %s, want %s; service and action of all: %s", m.Spaces["encodedLength"], want, body)
	}
}

// allBodies is an episode over all services as its answers came.
func allBodies(t *testing.T, url, session string, steps int) []byte {
	t.Helper()
	var all bytes.Buffer
	_, body := post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, session))
	all.WriteString(body)
	for i := range steps {
		step := fmt.Sprintf(`{"session": %q, "services": {"web": {"knobs": {"cpu-limit": %d}}, "store": {"knobs": {"replicas": %d}}}}`,
			session, 400+50*i, 1+i%3)
		_, body := post(t, url, "Step", step)
		all.WriteString(body)
	}
	return all.Bytes()
}

func TestSameSeedGivesSameBytesForAllServices(t *testing.T) {
	_, url := serve(t, nil)
	run := func(seed int) []byte {
		return allBodies(t, url, begin(t, url, fmt.Sprintf(`{"seed": %d, "options": {"allServices": true}}`, seed)), 20)
	}
	a, b, other := run(5), run(5), run(6)
	if !bytes.Equal(a, b) {
		t.Errorf("the same seed:\n%s\n%s", a, b)
	}
	if bytes.Equal(a, other) {
		t.Error("another seed gave the same world")
	}
}

// What is wrong for one service happens to none.
func TestAWrongActionOnOneServiceLeavesAllAsTheyWere(t *testing.T) {
	_, url := serve(t, nil)
	all := begin(t, url, `{"options": {"allServices": true}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, all))
	clipped := begin(t, url, `{"options": {"allServices": true, "clip": true}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, clipped))
	one := begin(t, url, `{}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, one))
	for name, c := range map[string]struct {
		session, rest string
		says          []string
	}{
		"an unknown service": {
			all, `"services": {"store": {"knobs": {"replicas": 2}}, "cache": {}}`, []string{`services "cache"`, "there are store, web"},
		},
		"outside of its bounds": {
			all, `"services": {"store": {"knobs": {"replicas": 2}}, "web": {"knobs": {"cpu-limit": 4001}}}`,
			[]string{`services "web"`, "cpu-limit = 4001 millicores", "[100, 4000]"},
		},
		"within the bounds of another service": {
			all, `"services": {"web": {"knobs": {"memory-limit": 2147483648}}}`,
			[]string{`services "web"`, "memory-limit = 2147483648 bytes", "[134217728, 1073741824]"},
		},
		"half a replica, though clipped": {
			clipped, `"services": {"store": {"knobs": {"replicas": 2}}, "web": {"knobs": {"replicas": 1.5}}}`,
			[]string{`services "web"`, "replicas = 1.5", "whole number"},
		},
		"an action of no service": {
			all, `"services": {"store": {"knobs": {"replicas": 2}}}, "action": {"cpu-limit": 500}`,
			[]string{"action cpu-limit = 500", "acts on all services"},
		},
		"services of one service": {
			one, `"services": {"web": {"knobs": {"cpu-limit": 500}}}`,
			[]string{`services "web"`, "acts on one service, web", "all_services"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q, %s}`, c.session, c.rest))
			var e struct{ Code, Message string }
			if err := json.Unmarshal([]byte(body), &e); err != nil || status == http.StatusOK || e.Code != "invalid_argument" {
				t.Fatalf("%d %s; want invalid_argument", status, body)
			}
			for _, want := range c.says {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%q does not say %q", e.Message, want)
				}
			}
		})
	}
	for _, session := range []string{all, clipped} {
		_, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q}`, session))
		var got struct {
			Info     struct{ Step int }
			Services map[string]struct {
				State  struct{ Signals map[string]float64 }
				Effect string
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if got.Info.Step != 1 || got.Services["store"].State.Signals["replicas"] != 1 || got.Services["store"].Effect != "unchanged" {
			t.Errorf("after refused actions the first step is %s", body)
		}
	}
}

func TestEffectAndClipsAreToldOfEachService(t *testing.T) {
	_, url := serve(t, nil)
	id := begin(t, url, `{"options": {"allServices": true, "clip": true}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, id))
	_, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q, "services": {"store": {"knobs": {"cpu-limit": 9000}}}}`, id))
	var got struct {
		Info struct {
			Effect string
			Clips  []string
		}
		Services map[string]struct {
			State  struct{ Signals map[string]float64 }
			Effect string
			Clips  []string
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	web, store := got.Services["web"], got.Services["store"]
	if store.State.Signals["cpu-limit"] != 4000 || fmt.Sprint(store.Clips) != "[max]" || store.Effect != "pending" {
		t.Errorf("of the service that was acted on: %s", body)
	}
	if web.State.Signals["cpu-limit"] != 500 || len(web.Clips) != 0 || web.Effect != "unchanged" {
		t.Errorf("of the service that was left alone: %s", body)
	}
	if got.Info.Effect != "pending" || fmt.Sprint(got.Info.Clips) != "[max]" {
		t.Errorf("in sum: %s", body)
	}
}

// dim is two services of which one shows too little for a reward.
type dim struct{ workload.Joint }

func (d dim) Step(ctx context.Context, actions []mdp.Action) ([]workload.Outcome, error) {
	out, err := d.Joint.Step(ctx, actions)
	out[0].Reward, out[0].RewardKnown = 0, false
	return out, err
}

func TestRewardOfAllIsUnknownWhereOneIs(t *testing.T) {
	_, url := serve(t, func(s *gym.Server) {
		s.OpenAll = func(ctx context.Context, b gym.OpenRequest) (workload.Joint, error) {
			j, err := openAll(ctx, b)
			return dim{j}, err
		}
	})
	id := begin(t, url, `{"options": {"allServices": true}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, id))
	_, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q}`, id))
	var got struct {
		Reward   *float64
		Services map[string]struct{ Reward *float64 }
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Reward != nil || got.Services["store"].Reward != nil || got.Services["web"].Reward == nil {
		t.Errorf("with a reward of web only: %s", body)
	}
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	b := &blind{}
	_, real := serve(t, func(s *gym.Server) {
		s.Sessions, s.OpenAll = 1, nil
		s.Open = func(context.Context, gym.OpenRequest) (workload.Environment, error) { return b.environment() }
	})
	if _, body := post(t, real, "Init", `{"options": {"allServices": true}}`); !strings.Contains(body, "failed_precondition") ||
		!strings.Contains(body, "options.all_services") {
		t.Errorf("all services of a real workload: %s", body)
	}
	begin(t, real, `{}`) // the refused one gave its place back
	_, simulated := serve(t, nil)
	if _, body := post(t, simulated, "Init", `{"options": {"allServices": true, "service": "web"}}`); !strings.Contains(body,
		"invalid_argument") || !strings.Contains(body, `options.service \"web\"`) {
		t.Errorf("all services, and one of them: %s", body)
	}
}

// A session that asks for vectors gets them for its one service too, and figures
// stay in their units.
func TestEncodedStatesOfOneService(t *testing.T) {
	_, url := serve(t, nil)
	id := begin(t, url, `{"options": {"encoded": true}}`)
	_, body := post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, id))
	var got struct {
		State struct {
			Signals map[string]float64
			Encoded []float64
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	// On the scale of its bounds, 100m to 4000m, where each factor is the same step.
	at := 2 * mdp.CPULimit
	if got.State.Signals["cpu-limit"] != 500 || len(got.State.Encoded) != 2*mdp.SignalCount ||
		math.Abs(got.State.Encoded[at]-(2*math.Log(500.0/100)/math.Log(4000.0/100)-1)) > 0.02 || got.State.Encoded[at+1] != 1 {
		t.Errorf("a limit of 500m of at most 4000m: %s", body)
	}
	if _, body := post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, begin(t, url, `{}`))); strings.Contains(body, "encoded") {
		t.Errorf("vectors that nobody asked for: %s", body)
	}
}

func TestPythonDrivesAllServices(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on the PATH: nothing to drive the service with")
	}
	_, url := serve(t, nil)
	arguments := []string{"example/autoscale.py", url, "100", "--all", "--seed", "7", "--slow", "0.1"}
	out, err := exec.CommandContext(t.Context(), python, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"simulated workload shop, service store, web: step 10 s, episode 100 steps, knobs replicas, cpu-limit, memory-limit",
		"100 steps, 1 episodes, reward known in 100, return ", " pending",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the example does not say %q:\n%s", want, out)
		}
	}
}
