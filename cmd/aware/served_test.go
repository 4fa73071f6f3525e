package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/gym/gymv1"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/learner/sim/workload"
	"connectrpc.com/connect"
)

// program is a stranger's program. Without other answers it decides as hpa-vpa.
type program struct {
	begin  func(*gymv1.BeginRequest) *gymv1.BeginResponse
	decide func(*gymv1.DecideRequest) (*gymv1.DecideResponse, error)

	mu    sync.Mutex
	runs  map[string]map[string]mdp.Policy // by run and service
	begun int
	ended []string
}

func (p *program) Begin(
	_ context.Context, r *connect.Request[gymv1.BeginRequest],
) (*connect.Response[gymv1.BeginResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	run := fmt.Sprintf("run-%d", p.begun)
	o, services := r.Msg.GetObjective(), map[string]mdp.Policy{}
	for _, s := range r.Msg.GetServices() {
		h := hpavpa.Default
		h.SLO = mdp.SLO{
			Percentile: o.GetPercentile(), Latency: time.Duration(math.Round(o.GetLatencySeconds() * 1e9)),
			Lost: mdp.Ratio(o.GetLost()), Background: mdp.Ratio(o.GetBackground()),
		}
		for _, k := range s.GetAction() {
			switch k.GetName() {
			case mdp.CPULimit.String():
				h.Largest.CPU = mdp.MilliCPU(k.GetMax())
			case mdp.MemoryLimit.String():
				h.Largest.Memory = mdp.Bytes(k.GetMax())
			}
		}
		services[s.GetName()] = hpavpa.New(h)
	}
	if p.runs == nil {
		p.runs = map[string]map[string]mdp.Policy{}
	}
	p.runs[run] = services
	if p.begin != nil {
		a := p.begin(r.Msg)
		return connect.NewResponse(a), nil
	}
	return connect.NewResponse(&gymv1.BeginResponse{Run: run}), nil
}

func (p *program) Decide(
	_ context.Context, r *connect.Request[gymv1.DecideRequest],
) (*connect.Response[gymv1.DecideResponse], error) {
	if p.decide != nil {
		a, err := p.decide(r.Msg)
		return connect.NewResponse(a), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &gymv1.DecideResponse{Services: map[string]*gymv1.Action{}}
	for name, w := range r.Msg.GetServices() {
		s := mdp.State{At: w.GetAt().AsTime()}
		for signal, value := range w.GetSignals() {
			one, ok := mdp.SignalNamed(signal)
			if !ok {
				return nil, fmt.Errorf("signal %q: there is none", signal)
			}
			one.Set(&s, value)
		}
		action, err := p.runs[r.Msg.GetRun()][name].Decide(s)
		var unknown *mdp.UnknownError
		if err != nil && !errors.As(err, &unknown) {
			return nil, err
		}
		knobs := map[string]float64{}
		for k := range action.Sets.Signals() {
			v, _ := action.Knob(k)
			knobs[k.String()] = float64(v)
		}
		a.Services[name] = &gymv1.Action{Knobs: knobs}
	}
	return connect.NewResponse(a), nil
}

func (p *program) End(
	_ context.Context, r *connect.Request[gymv1.EndRequest],
) (*connect.Response[gymv1.EndResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, r.Msg.GetRun())
	return connect.NewResponse(&gymv1.EndResponse{}), nil
}

// serve starts the program and returns HOST:PORT.
func (p *program) serve(t *testing.T) string {
	t.Helper()
	_, handler := gymv1.NewPolicyHandler(p)
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = (&gym.Server{}).HTTP().Protocols
	s.Start()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// short is some minutes of a cell.
func short(t *testing.T, c bench.Choice) (bench.Score, error) {
	t.Helper()
	trace, err := workload.Named("bursty")
	if err != nil {
		t.Fatal(err)
	}
	app, err := workload.NamedApp("hotel-reservation")
	if err != nil {
		t.Fatal(err)
	}
	cell, err := bench.Single("hotel-reservation", app, trace, 0)
	if err != nil {
		t.Fatal(err)
	}
	return bench.Run(t.Context(), cell, c, bench.Options{Seed: 3, Length: 10 * time.Minute, Lead: 5 * time.Minute})
}

// choose is what --policy makes of an address.
func choose(t *testing.T, address string) bench.Choice {
	t.Helper()
	c, err := openChoice(address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestARuleThatIsServedScoresAsInTheBench(t *testing.T) {
	rule, err := bench.Named("hpa-vpa")
	if err != nil {
		t.Fatal(err)
	}
	want, err := short(t, rule)
	if err != nil {
		t.Fatal(err)
	}
	if want.Resizes == 0 {
		t.Fatal("the rule changed nothing: there is nothing to compare")
	}
	for _, scheme := range []string{"grpc", "http"} {
		p := &program{}
		got, err := short(t, choose(t, scheme+"://"+p.serve(t)))
		if err != nil || got != want {
			t.Errorf("over %s:\n%+v, %v\nin the bench:\n%+v", scheme, got, err, want)
		}
		if fmt.Sprint(p.ended) != "[run-1]" {
			t.Errorf("over %s: ended are %v", scheme, p.ended)
		}
	}
}

func TestAProgramIsToldOfTheApplication(t *testing.T) {
	var told *gymv1.BeginRequest
	p := &program{begin: func(r *gymv1.BeginRequest) *gymv1.BeginResponse {
		told = r
		return &gymv1.BeginResponse{Run: "run-1", StepSeconds: 300}
	}}
	asked := 0
	p.decide = func(r *gymv1.DecideRequest) (*gymv1.DecideResponse, error) {
		asked++
		if r.GetRun() != "run-1" || len(r.GetServices()) != len(told.GetServices()) {
			t.Errorf("asked about %v", r)
		}
		return &gymv1.DecideResponse{}, nil
	}
	if _, err := short(t, choose(t, "grpc://"+p.serve(t))); err != nil {
		t.Fatal(err)
	}
	if asked != 3 {
		t.Errorf("asked %d times in 15 minutes with steps of 300 s", asked)
	}
	app, err := workload.NamedApp("hotel-reservation")
	if err != nil {
		t.Fatal(err)
	}
	o := told.GetObjective()
	if told.GetWorkload() != "hotel-reservation" || told.GetSeed() != 3 || told.GetStepSeconds() != 10 ||
		told.GetEncoding() != gym.Encoding || o.GetPercentile() != app.SLO.Percentile ||
		o.GetLatencySeconds() != app.SLO.Latency.Seconds() || o.GetLost() != float64(app.SLO.Lost) ||
		o.GetBackground() != float64(app.SLO.Background) || o.GetRequestsPerSecond() != float64(app.SLO.Throughput) {
		t.Errorf("told %v, of an application that promises %+v", told, app.SLO)
	}
	for i, s := range app.Services {
		got := told.GetServices()[i]
		cpu := got.GetAction()[1]
		if got.GetName() != s.Name || len(got.GetAction()) != 3 || len(got.GetObservation()) == 0 ||
			cpu.GetName() != "cpu-limit" || cpu.GetMin() != float64(s.Bounds.CPU.Min) || cpu.GetMax() != float64(s.Bounds.CPU.Max) {
			t.Errorf("told %v of %s with bounds %+v", got, s.Name, s.Bounds)
		}
	}
}

// Whatever a program answers wrongly ends its run with an error in which a person
// finds the place, and the program is told that the run is over.
func TestAWrongAnswerEndsTheRun(t *testing.T) {
	action := func(service, knob string, value float64) func(*gymv1.DecideRequest) (*gymv1.DecideResponse, error) {
		return func(*gymv1.DecideRequest) (*gymv1.DecideResponse, error) {
			return &gymv1.DecideResponse{Services: map[string]*gymv1.Action{
				"frontend": {Knobs: map[string]float64{mdp.CPULimit.String(): 1000}},
				service:    {Knobs: map[string]float64{knob: value}},
			}}, nil
		}
	}
	steps := func(seconds float64) func(*gymv1.BeginRequest) *gymv1.BeginResponse {
		return func(*gymv1.BeginRequest) *gymv1.BeginResponse {
			return &gymv1.BeginResponse{Run: "run-1", StepSeconds: seconds}
		}
	}
	for name, c := range map[string]struct {
		program *program
		says    []string
		ended   string
	}{
		"an unknown service": {
			&program{decide: action("cache", "cpu-limit", 1)}, []string{`services "cache"`, "there are ", "frontend"}, "[run-1]",
		},
		"an unknown knob": {
			&program{decide: action("search", "gpu", 1)}, []string{`services "search"`, "gpu = 1", "cpu-limit"}, "[run-1]",
		},
		"out of bounds": {
			&program{decide: action("search", "cpu-limit", 1e9)},
			[]string{`services "search"`, "cpu-limit = 1000000000 millicores", "it must be in ["}, "[run-1]",
		},
		"not whole": {
			&program{decide: action("search", "replicas", 1.5)},
			[]string{`services "search"`, "replicas = 1.5", "whole number"}, "[run-1]",
		},
		"not a number": {
			&program{decide: action("search", "cpu-limit", math.NaN())},
			[]string{`services "search"`, "cpu-limit = NaN", "whole number"}, "[run-1]",
		},
		"an error": {
			&program{decide: func(*gymv1.DecideRequest) (*gymv1.DecideResponse, error) {
				return nil, connect.NewError(connect.CodeInternal, errors.New("my network is missing"))
			}}, []string{"decide", "my network is missing"}, "[run-1]",
		},
		"half a second": {&program{begin: steps(0.5)}, []string{"step_seconds 0.5", "whole number"}, "[run-1]"},
		"two hours":     {&program{begin: steps(7200)}, []string{"step_seconds 7200", "[0, 3600]"}, "[run-1]"},
		"no run": {
			&program{begin: func(*gymv1.BeginRequest) *gymv1.BeginResponse { return &gymv1.BeginResponse{} }},
			[]string{`run ""`, "empty"}, "[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			address := "grpc://" + c.program.serve(t)
			_, err := short(t, choose(t, address))
			if err == nil {
				t.Fatal("the run went on")
			}
			says := append(c.says, address)
			if c.ended != "[]" {
				says = append(says, `run "run-1"`)
			}
			for _, want := range says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if got := fmt.Sprint(c.program.ended); got != c.ended {
				t.Errorf("ended are %s, want %s", got, c.ended)
			}
		})
	}
}

// A misspelt field would otherwise be a policy that never acts, and gets a score.
func TestAMisspeltFieldInJSONIsAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answers := map[string]string{"Begin": `{"run": "7"}`, "Decide": `{"service": {}}`, "End": `{}`}
		fmt.Fprint(w, answers[filepath.Base(r.URL.Path)])
	}))
	defer s.Close()
	if _, err := short(t, choose(t, s.URL)); err == nil || !strings.Contains(err.Error(), `"service"`) {
		t.Errorf("err = %v", err)
	}
}

// inMemory carries calls to a handler without a network, so that time can be
// virtual. Calls of one method are never answered.
type inMemory struct {
	handler http.Handler
	hangs   string
}

func (m inMemory) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, m.hangs) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestAProgramThatHangsEndsTheRun(t *testing.T) {
	for _, method := range []string{"Begin", "Decide", "End"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &program{}
				_, handler := gymv1.NewPolicyHandler(p)
				c := bench.Served("http://strange:1",
					servedBy(inMemory{handler, "/" + method}, "strange:1", connect.WithCodec(gym.JSON)))
				start := time.Now()
				_, err := short(t, c)
				if err == nil || !strings.Contains(err.Error(), "no answer within 5s") ||
					!strings.Contains(err.Error(), strings.ToLower(method)+": ") || !strings.Contains(err.Error(), "http://strange:1") {
					t.Errorf("err = %v", err)
				}
				if took := time.Since(start); took != patience {
					t.Errorf("it took %v, want %v", took, patience)
				}
				if ended := len(p.ended) == 1; ended != (method == "Decide") {
					t.Errorf("ended are %v", p.ended)
				}
			})
		})
	}
}

func TestAnAddressWithoutAProgram(t *testing.T) {
	for address, want := range map[string]string{
		"grpc://127.0.0.1":        "grpc://HOST:PORT",
		"grpc://:7790":            "grpc://HOST:PORT",
		"http://127.0.0.1:1/here": "grpc://HOST:PORT",
		"ftp://127.0.0.1:1":       `scheme "ftp"`,
		"grpc://127.0.0.1:x":      "grpc://127.0.0.1:x",
	} {
		if _, err := openChoice(address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	address := "grpc://127.0.0.1:1" // nobody listens there
	if _, err := short(t, choose(t, address)); err == nil || !strings.Contains(err.Error(), address) ||
		!strings.Contains(err.Error(), "begin") {
		t.Errorf("nobody listens: %v", err)
	}
}

// Rows of another program do not belong into the same table, whatever the
// contestants are called.
func TestRowsRememberTheAddress(t *testing.T) {
	all, err := contestants([]string{"static"}, []string{"grpc://127.0.0.1:7790", "http://127.0.0.1:7790"})
	if err != nil {
		t.Fatal(err)
	}
	if all[1].Name != "grpc://127.0.0.1:7790" || all[2].Name != "http://127.0.0.1:7790" {
		t.Errorf("contestants %s and %s", all[1].Name, all[2].Name)
	}
	path := filepath.Join(t.TempDir(), "rows")
	_, _, err = anchors(t, "--app", "hotel-reservation", "--policies", "static", "--seeds", "1", "--resume", path,
		"--policy", "grpc://127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "grpc://127.0.0.1:1") {
		t.Errorf("nobody listens: %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(string(text), "\n"); !strings.Contains(head, "policy grpc://127.0.0.1:1") {
		t.Errorf("the file of rows begins with %s", head)
	}
}

// Rows are kept under a policy's name; a file of that name with other settings is
// another policy.
func TestRowsRememberWhatIsInAPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.json")
	mark := func(target string) string {
		t.Helper()
		text := `{"encoding": 1, "policy": "captain", "settings": {"target": ` + target + `}}`
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		m, err := markOf(path)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	one, other, again := mark("0.1"), mark("0.2"), mark("0.1")
	if one == other || one != again || !strings.HasPrefix(one, "mine.json ") {
		t.Errorf("marks %q, %q and %q", one, other, again)
	}
}

func TestPythonStandardLibraryServesAPolicy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not on the PATH: nothing to serve a policy with")
	}
	cmd := exec.CommandContext(t.Context(), python, "../../learner/gym/example/policy.py", "--listen", "127.0.0.1:0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "on ")
	got, err := short(t, choose(t, address))
	if err != nil {
		t.Fatal(err)
	}
	static, err := bench.Named("static")
	if err != nil {
		t.Fatal(err)
	}
	as, err := short(t, static)
	if err != nil {
		t.Fatal(err)
	}
	if got.Resizes == 0 || got.Cores < got.Used || got.Cores > as.Cores {
		t.Errorf("%.1f cores of which %.1f are used, in %d resizes; left alone it has %.1f", got.Cores, got.Used, got.Resizes, as.Cores)
	}
	t.Logf("%.1f cores, %.1f used, p99 %.0f ms", got.Cores, got.Used, got.P99MS)
}
