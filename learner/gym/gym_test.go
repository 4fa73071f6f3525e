package gym_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	"connectrpc.com/connect"
)

const step = 10 * time.Second

// shop is an application of two services: the entry, and one behind it.
func shop() sim.App {
	service := func(name string, cpu mdp.MilliCPU) sim.Service {
		return sim.Service{Name: name, Threads: 64, Procs: 4, Variation: 0.5, Parallel: 1, Replicas: 1,
			Memory: sim.Memory{Base: 64 * mdp.MiB, PerRequest: mdp.MiB}, Size: mdp.Size{CPU: cpu, Memory: 256 * mdp.MiB},
			Bounds: mdp.Bounds{Replicas: mdp.Range[int]{Min: 1, Max: 4}, CPU: mdp.Range[mdp.MilliCPU]{Min: 100, Max: 4000},
				Memory: mdp.Range[mdp.Bytes]{Min: 128 * mdp.MiB, Max: 1024 * mdp.MiB}}}
	}
	store := service("store", 1000)
	store.Bounds.Memory.Max = 2048 * mdp.MiB
	return sim.App{Name: "shop", SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond},
		Services: []sim.Service{store, service("web", 500)},
		Operations: []sim.Operation{
			{Name: "page", Service: "web", Work: 5 * time.Millisecond, Stages: [][]sim.Call{{{Operation: "row", Share: 1}}}},
			{Name: "row", Service: "store", Work: 2 * time.Millisecond},
		},
		Endpoints: []sim.Endpoint{{Operation: "page", Share: 1}}}
}

// waves is a load that changes from step to step.
type waves struct{}

func (waves) Rate(at time.Duration) mdp.Rate {
	return mdp.Rate(60 + 40*math.Sin(at.Seconds()/60))
}

func config(seed uint64) (sim.Config, error) {
	return sim.Config{
		App:     shop(),
		Cluster: sim.Uniform(2, mdp.Size{CPU: 16000, Memory: 64 << 30}),
		Load:    waves{},
		Seed:    seed,
	}, nil
}

func open(_ context.Context, b gym.OpenRequest) (workload.Environment, error) {
	if b.Workload != "" && b.Workload != "shop" {
		return nil, &workload.NotFoundError{Key: "workload", Value: b.Workload, Known: []string{"shop"}}
	}
	return workload.OfWorld(config, workload.Options{Service: b.Service, Alpha: 0.5, Step: step, Guards: guard.Published})
}

func openAll(context.Context, gym.OpenRequest) (workload.Joint, error) {
	return workload.OfApplication(config, workload.Options{Alpha: 0.5, Step: step, Guards: guard.Published})
}

// serve starts a server of simulated shops.
func serve(t *testing.T, change func(*gym.Server)) (*gym.Server, string) {
	t.Helper()
	s := &gym.Server{Open: open, OpenAll: openAll, Seed: 1, Now: time.Now, Workloads: []string{"shop"}}
	if change != nil {
		change(s)
	}
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.Protocols = s.HTTP().Protocols
	h.Start()
	t.Cleanup(h.Close)
	return s, h.URL
}

// post is a call as people write it with curl.
func post(t *testing.T, url, method, body string) (int, string) {
	t.Helper()
	r, err := http.Post(url+"/awarescale.gym.v1.Gym/"+method, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// begin opens a session over JSON.
func begin(t *testing.T, url, request string) string {
	t.Helper()
	code, body := post(t, url, "Init", request)
	var opened struct{ Session string }
	if err := json.Unmarshal([]byte(body), &opened); err != nil || code != http.StatusOK {
		t.Fatalf("init %s: %d %s", request, code, body)
	}
	return opened.Session
}

// rule is some policy that moves all knobs, by what it sees.
func rule(s mdp.State) (mdp.Action, error) {
	a := mdp.Action{}
	if s.Knows(mdp.CPUUsage) {
		a = a.WithCPU(min(4000, max(100, s.Usage.CPU*10/6)))
	}
	if s.Knows(mdp.MemoryUsage) {
		a = a.WithMemory(min(1024*mdp.MiB, max(128*mdp.MiB, s.Usage.Memory*2)))
	}
	if s.Knows(mdp.Throughput) {
		a = a.WithReplicas(1 + int(s.Throughput/50))
	}
	return a, nil
}

func wire(a mdp.Action) map[string]float64 {
	w := map[string]float64{}
	if a.Sets.Has(mdp.Replicas) {
		w["replicas"] = float64(a.Replicas)
	}
	if a.Sets.Has(mdp.CPULimit) {
		w["cpu-limit"] = float64(a.Limit.CPU)
	}
	if a.Sets.Has(mdp.MemoryLimit) {
		w["memory-limit"] = float64(a.Limit.Memory)
	}
	return w
}

func TestPythonStandardLibraryRunsAnEpisode(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on the PATH: nothing to drive the service with")
	}
	_, url := serve(t, nil)
	arguments := []string{"example/autoscale.py", url, "100", "--seed", "7", "--slow", "0.1"}
	out, err := exec.CommandContext(t.Context(), python, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"simulated workload shop, service web: step 10 s, episode 100 steps, knobs replicas, cpu-limit, memory-limit",
		"100 steps, 1 episodes, reward known in 100, return ", " pending",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the example does not say %q:\n%s", want, out)
		}
	}
	_, after, _ := strings.Cut(string(out), ", return ")
	var sum float64
	if _, err := fmt.Sscanf(after, "%g", &sum); err != nil || sum < 80 || sum > 120 {
		t.Errorf("the example's return is %v, %v: a rule that follows the load earns about 1 a step", sum, err)
	}
	t.Logf("%s", out)
}

// The environment and a loop give the same states, actions and rewards.
func TestEpisodeEqualsTheEpisodeOfALoop(t *testing.T) {
	const seed, steps = 11, 100
	c, _ := config(seed)
	w, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	web, err := w.Service("web")
	if err != nil {
		t.Fatal(err)
	}
	loop := mdp.Loop{
		Sensor:    web.Sensor(),
		Actuator:  web.Actuator(sim.L2),
		Policy:    mdp.PolicyFunc(rule),
		Objective: mdp.Objective{SLO: shop().SLO, Alpha: 0.5},
	}
	var want []mdp.Decision
	for range steps + 1 {
		w.Advance(step)
		d, err := loop.Step(t.Context(), w.Now())
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, d)
	}

	env, err := workload.OfWorld(config, workload.Options{Alpha: 0.5, Step: step, Guards: guard.Published})
	if err != nil {
		t.Fatal(err)
	}
	_, url := serve(t, nil)
	remote := gymv1.NewGymClient(http.DefaultClient, url, connect.WithGRPCWeb())
	opened, err := remote.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	id, s := opened.Msg.Session, uint64(seed)
	state, err := env.Reset(t.Context(), seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Reset(t.Context(), connect.NewRequest(&gymv1.ResetRequest{Session: id, Seed: &s})); err != nil {
		t.Fatal(err)
	}
	if state != want[0].State {
		t.Fatalf("the first state is %+v, the loop's %+v", state, want[0].State)
	}
	for i := range steps {
		action, _ := rule(state)
		got, err := env.Step(t.Context(), action)
		if err != nil {
			t.Fatal(err)
		}
		next := want[i+1]
		if action != want[i].Action || got.Effect != want[i].Effect || got.State != next.State ||
			got.RewardKnown != next.RewardKnown || got.Reward != next.Reward {
			t.Fatalf("step %d: %v led to %+v; the loop's %v to %v %+v %v", i+1, action, got, want[i].Action,
				want[i].Effect, next.State, next.Reward)
		}
		far, err := remote.Step(t.Context(), connect.NewRequest(&gymv1.StepRequest{Session: id, Action: wire(action)}))
		if err != nil {
			t.Fatal(err)
		}
		m := far.Msg
		if m.GetReward() != float64(got.Reward) || m.Info.Effect != got.Effect.String() ||
			!m.State.At.AsTime().Equal(got.State.At) ||
			m.GetTruncated() != (i+1 == steps) || m.GetTerminated() || len(m.State.Signals) != got.State.Observed.Len() ||
			m.State.Signals["cpu-usage"] != float64(got.State.Usage.CPU) ||
			m.State.Signals["latency"] != float64(got.State.Latency)/1e9 ||
			m.State.Signals["memory-limit"] != float64(got.State.Limit.Memory) ||
			m.State.Signals["replicas"] != float64(got.State.Replicas) {
			t.Fatalf("step %d over the wire: %v; here %+v", i+1, m, got)
		}
		state = got.State
	}
}

// bodies is an episode's answers as they came, driven by fixed actions.
func bodies(t *testing.T, url, session string, steps int) []byte {
	t.Helper()
	var all bytes.Buffer
	_, body := post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, session))
	all.WriteString(body)
	for i := range steps {
		step := fmt.Sprintf(`{"session": %q, "action": {"cpu-limit": %d, "replicas": %d}}`, session, 400+50*i, 1+i%3)
		_, body := post(t, url, "Step", step)
		all.WriteString(body)
	}
	return all.Bytes()
}

func TestSameSeedGivesSameBytesAndAnotherSeedDoesNot(t *testing.T) {
	_, url := serve(t, nil)
	one, again, other := begin(t, url, `{"seed": 5}`), begin(t, url, `{"seed": 5}`), begin(t, url, `{"seed": 6}`)
	a, b, c := bodies(t, url, one, 20), bodies(t, url, again, 20), bodies(t, url, other, 20)
	if !bytes.Equal(a, b) {
		t.Errorf("the same seed:\n%s\n%s", a, b)
	}
	if bytes.Equal(a, c) {
		t.Error("another seed gave the same world")
	}
	if second := bodies(t, url, one, 20); !bytes.Equal(second, c) {
		t.Errorf("the second episode of seed 5 is not the first of seed 6:\n%s\n%s", second, c)
	}
}

func TestSessionsAreIndependent(t *testing.T) {
	_, url := serve(t, nil)
	want := bodies(t, url, begin(t, url, `{"seed": 5}`), 30)
	var wg sync.WaitGroup
	for i := range 4 {
		seed := 5 + i%2
		session := begin(t, url, fmt.Sprintf(`{"seed": %d}`, seed))
		wg.Go(func() {
			if got := bodies(t, url, session, 30); bytes.Equal(got, want) != (seed == 5) {
				t.Errorf("session %d with seed %d, beside others:\n%s", i, seed, got)
			}
		})
	}
	wg.Wait()
}

func TestErrorNamesTheWrongValue(t *testing.T) {
	_, url := serve(t, func(s *gym.Server) { s.Sessions = 5 })
	fresh := begin(t, url, `{}`)
	ready := begin(t, url, `{}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, ready))
	over := begin(t, url, `{"options": {"episodeSteps": 1}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, over))
	if _, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q}`, over)); !strings.Contains(body, `"truncated":true`) {
		t.Fatalf("the only step of an episode is not truncated: %s", body)
	}
	closed := begin(t, url, `{}`)
	post(t, url, "Close", fmt.Sprintf(`{"session": %q}`, closed))
	for name, c := range map[string]struct {
		method, body, code string
		says               []string
	}{
		"step before reset": {
			"Step", `{"session": "` + fresh + `"}`, "failed_precondition", []string{fresh, "before reset"},
		},
		"step after the end": {
			"Step", `{"session": "` + over + `"}`, "failed_precondition",
			[]string{over, "truncated after 1 steps", "Reset"},
		},
		"unknown session": {"Step", `{"session": "nobody"}`, "not_found", []string{`session "nobody"`, "Init"}},
		"no session":      {"Reset", `{}`, "not_found", []string{`session ""`}},
		"closed session":  {"Step", `{"session": "` + closed + `"}`, "not_found", []string{closed}},
		"above the space": {
			"Step", `{"session": "` + ready + `", "action": {"cpu-limit": 4001}}`, "invalid_argument",
			[]string{"cpu-limit = 4001 millicores", "[100, 4000]"},
		},
		"below the space": {
			"Step", `{"session": "` + ready + `", "action": {"replicas": 0}}`, "invalid_argument",
			[]string{"replicas = 0", "[1, 4]"},
		},
		"unknown knob": {
			"Step", `{"session": "` + ready + `", "action": {"gpu": 1}}`, "invalid_argument",
			[]string{"gpu = 1", "replicas, cpu-limit, memory-limit"},
		},
		"a signal is no knob": {
			"Step", `{"session": "` + ready + `", "action": {"latency": 1}}`, "invalid_argument",
			[]string{"latency = 1", "no such knob"},
		},
		"half a replica": {
			"Step", `{"session": "` + ready + `", "action": {"replicas": 1.5}}`, "invalid_argument",
			[]string{"replicas = 1.5", "whole number"},
		},
		"not a number": {
			"Step", `{"session": "` + ready + `", "action": {"cpu-limit": "NaN"}}`, "invalid_argument",
			[]string{"cpu-limit = NaN", "whole number"},
		},
		"a huge number": {
			"Step", `{"session": "` + ready + `", "action": {"cpu-limit": 1e300}}`, "invalid_argument",
			[]string{"[100, 4000]"},
		},
		"a misspelt field": {
			"Step", `{"session": "` + ready + `", "acton": {"cpu-limit": 500}}`, "invalid_argument",
			[]string{"acton"},
		},
		"another encoding": {"Init", `{"encoding": 2}`, "failed_precondition", []string{"encoding 2", "encoding 1"}},
		"unknown workload": {"Init", `{"workload": "bank"}`, "not_found", []string{`workload "bank"`, "shop"}},
		"unknown service": {
			"Init", `{"options": {"service": "cache"}}`, "not_found", []string{`service "cache"`, "store, web"},
		},
		"an episode without end": {
			"Init", `{"options": {"episodeSteps": 1000000}}`, "invalid_argument",
			[]string{"episode_steps 1000000", "100000"},
		},
		"spaces of no session":     {"Spaces", `{"session": "nobody"}`, "not_found", []string{"nobody"}},
		"closing twice is unknown": {"Close", `{"session": "` + closed + `"}`, "not_found", []string{closed}},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := post(t, url, c.method, c.body)
			var e struct{ Code, Message string }
			if err := json.Unmarshal([]byte(body), &e); err != nil || status == http.StatusOK || e.Code != c.code {
				t.Fatalf("%s %s: %d %s; want %s", c.method, c.body, status, body, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%q does not say %q", e.Message, want)
				}
			}
		})
	}
	// None of it did anything: the session goes on with its first step.
	if _, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q}`, ready)); !strings.Contains(body, `"step":1`) ||
		!strings.Contains(body, "unchanged") {
		t.Errorf("after refused actions the first step is %s", body)
	}
	// Failed openings gave their places back: two are left.
	begin(t, url, `{}`)
	begin(t, url, `{}`)
	if _, body := post(t, url, "Init", `{}`); !strings.Contains(body, "resource_exhausted") ||
		!strings.Contains(body, "this server takes 5") {
		t.Errorf("the sixth session: %s", body)
	}
}

func TestClipMovesAnActionIntoTheSpace(t *testing.T) {
	_, url := serve(t, nil)
	id := begin(t, url, `{"options": {"clip": true, "service": "store"}}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, id))
	_, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q, "action": {"cpu-limit": 9000, "replicas": 0}}`, id))
	var got gymStep
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.State.Signals["cpu-limit"] != 4000 || got.State.Signals["replicas"] != 1 || fmt.Sprint(got.Info.Clips) != "[min max]" {
		t.Errorf("clipped: %s", body)
	}
}

type gymStep struct {
	State  struct{ Signals map[string]float64 }
	Reward *float64
	Info   struct {
		Effect, Text string
		Clips        []string
	}
}

func TestSpacesListKnobsSignalsWorkloadsAndTraces(t *testing.T) {
	_, url := serve(t, nil)
	_, body := post(t, url, "Spaces", `{}`)
	if !strings.Contains(body, `"shop"`) {
		t.Errorf("what can be opened: %s", body)
	}
	id := begin(t, url, `{"options": {"episodeSteps": 7}}`)
	_, body = post(t, url, "Spaces", fmt.Sprintf(`{"session": %q}`, id))
	var m struct {
		Spaces struct {
			Encoding, EpisodeSteps   int
			StepSeconds              float64
			World, Workload, Service string
			Action                   []struct {
				Name, Unit string
				Min, Max   *float64
			}
			Observation []struct{ Name, Unit string }
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	s := m.Spaces
	if s.Encoding != 1 || s.EpisodeSteps != 7 || s.StepSeconds != 10 || s.World != "simulated" ||
		s.Workload != "shop" || s.Service != "web" ||
		len(s.Action) != 3 || *s.Action[1].Min != 100 || *s.Action[1].Max != 4000 ||
		s.Action[1].Unit != "millicores" || len(s.Observation) != workload.Seen.Len() {
		t.Errorf("spaces: %s", body)
	}
}

// blind is a workload with only some observable signals. It can be set to fail.
type blind struct {
	now    time.Time
	limit  mdp.Size
	fails  error
	closed atomic.Int32
}

func (b *blind) Sense(context.Context, time.Time) (mdp.State, error) {
	return mdp.State{At: b.now, Observed: mdp.SetOf(mdp.CPULimit, mdp.Throttled), Limit: mdp.Size{CPU: b.limit.CPU}}, b.fails
}

func (b *blind) Act(_ context.Context, _ time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	b.limit.CPU = a.Limit.CPU
	return mdp.Action{}, mdp.Deferred, nil
}

func (b *blind) Why() string { return "its node is full" }

func (b *blind) environment() (workload.Environment, error) {
	pair := workload.Pair{
		Sensor:   b,
		Actuator: b,
		Now:      func() time.Time { return b.now },
		Wait:     func(_ context.Context, d time.Duration) error { b.now = b.now.Add(d); return nil },
	}
	spaces := workload.Spaces{
		Workload: "prod/Deployment/web",
		Service:  "web",
		Knobs:    mdp.SetOf(mdp.CPULimit),
		Step:     step,
		Signals:  mdp.SetOf(mdp.CPULimit),
		Bounds: mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: 1, Max: 9},
			Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 1},
		},
	}
	return workload.Live(pair, spaces, mdp.Objective{}, func(context.Context) error { b.closed.Add(1); return nil })
}

func TestUnknownSignalIsAbsentAndZeroIsPresent(t *testing.T) {
	b := &blind{}
	_, url := serve(t, func(s *gym.Server) {
		s.Open = func(context.Context, gym.OpenRequest) (workload.Environment, error) { return b.environment() }
	})
	id := begin(t, url, `{}`)
	post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, id))
	_, body := post(t, url, "Step", fmt.Sprintf(`{"session": %q, "action": {"cpu-limit": 3}}`, id))
	var got gymStep
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if throttled, ok := got.State.Signals["throttled"]; len(got.State.Signals) != 2 || !ok || throttled != 0 ||
		got.State.Signals["cpu-limit"] != 3 || got.Reward != nil {
		t.Errorf("of a workload whose usage is unknown: %s", body)
	}
	if got.Info.Effect != "deferred" || got.Info.Text != "its node is full" {
		t.Errorf("info: %s", body)
	}
	b.fails = errors.New("connection refused")
	three := fmt.Sprintf(`{"session": %q, "action": {"cpu-limit": 3}}`, id)
	if _, body := post(t, url, "Step", three); !strings.Contains(body, "unavailable") ||
		!strings.Contains(body, "step 2 of 100") || !strings.Contains(body, "connection refused") {
		t.Errorf("a step that failed: %s", body)
	}
	b.fails = nil
	if _, body := post(t, url, "Step", three); !strings.Contains(body, `"step":3`) {
		t.Errorf("the step after one that failed: %s", body)
	}
	post(t, url, "Close", fmt.Sprintf(`{"session": %q}`, id))
	if n := b.closed.Load(); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestIdleSessionEndsAndRestoresTheWorkload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blind{}
		s := &gym.Server{Now: time.Now, Idle: time.Minute, Sessions: 1,
			Open: func(context.Context, gym.OpenRequest) (workload.Environment, error) { return b.environment() }}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx, time.Second); close(done) }()
		begin := func() string {
			t.Helper()
			r, err := s.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			return r.Msg.Session
		}
		reset := func(id string) error {
			_, err := s.Reset(t.Context(), connect.NewRequest(&gymv1.ResetRequest{Session: id}))
			return err
		}
		id := begin()
		for range 5 {
			time.Sleep(50 * time.Second)
			if err := reset(id); err != nil {
				t.Fatalf("a session in use: %v", err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := b.closed.Load(); n != 1 {
			t.Errorf("after two idle minutes it was closed %d times", n)
		}
		if err := reset(id); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a session that ended: %v", err)
		}
		begin()
		stop()
		<-done
		if n := b.closed.Load(); n != 2 {
			t.Errorf("at the server's end it was closed %d times", n)
		}
	})
}

func TestSessionRejectsConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blind{}
		pair := workload.Pair{Sensor: b, Actuator: b} // waits by the clock
		spaces := workload.Spaces{
			Knobs: mdp.SetOf(mdp.CPULimit),
			Step:  step,
			Bounds: mdp.Bounds{
				CPU:    mdp.Range[mdp.MilliCPU]{Min: 1, Max: 9},
				Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: 1},
			},
		}
		s := &gym.Server{Now: time.Now, Idle: time.Second}
		s.Open = func(context.Context, gym.OpenRequest) (workload.Environment, error) {
			return workload.Live(pair, spaces, mdp.Objective{}, nil)
		}
		r, err := s.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		id := r.Msg.Session
		if _, err := s.Reset(t.Context(), connect.NewRequest(&gymv1.ResetRequest{Session: id})); err != nil {
			t.Fatal(err)
		}
		begun, took := time.Now(), time.Duration(0)
		done := make(chan error)
		go func() {
			_, err := s.Step(t.Context(), connect.NewRequest(&gymv1.StepRequest{Session: id}))
			took = time.Since(begun)
			done <- err
		}()
		time.Sleep(5 * time.Second) // longer than Idle: a session that works is not idle
		_, err = s.Step(t.Context(), connect.NewRequest(&gymv1.StepRequest{Session: id}))
		if connect.CodeOf(err) != connect.CodeAborted {
			t.Errorf("a second step at the same time: %v", err)
		}
		if err := <-done; err != nil || took != step {
			t.Errorf("the step took %v: %v", took, err)
		}
		// A client that goes away does not hold the session for the rest of the
		// step.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Step(ctx, connect.NewRequest(&gymv1.StepRequest{Session: id}))
		if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("a step whose client left: %v", err)
		}
	})
}

func TestGRPCAndJSONShareAPort(t *testing.T) {
	_, url := serve(t, nil)
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	c := gymv1.NewGymClient(&http.Client{Transport: &http.Transport{Protocols: &h2}}, url, connect.WithGRPC())
	r, err := c.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if code, body := post(t, url, "Reset", fmt.Sprintf(`{"session": %q}`, r.Msg.Session)); code != http.StatusOK {
		t.Errorf("a session opened by gRPC, over JSON: %s", body)
	}
}

// A signal that is new in mdp must get a unit and travel.
func TestEverySignalIsInTheMessages(t *testing.T) {
	all := 0
	for mdp.Signal(all).String() != "unknown-signal" {
		all++
	}
	s := &gym.Server{Now: time.Now, Open: func(context.Context, gym.OpenRequest) (workload.Environment, error) {
		return workload.Live(workload.Pair{Sensor: &blind{}, Actuator: &blind{}}, workload.Spaces{
			Knobs:   mdp.LimitKnobs,
			Signals: 1<<all - 1,
			Step:    step,
			Bounds:  shop().Services[0].Bounds,
		}, mdp.Objective{}, nil)
	}}
	r, err := s.Init(t.Context(), connect.NewRequest(&gymv1.InitRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Msg.Spaces.Observation); n != all {
		t.Errorf("%d of %d signals travel", n, all)
	}
}
