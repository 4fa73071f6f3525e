// Package scenario runs scripts in the simulated world and compares their
// output with golden output: test/scenario/*.txt. After an intended change of
// output, go test ./test/scenario -rewrite writes the new output. Review it
// before the commit.
//
// Each paragraph is one command, with its output below ----:
//
//	world rate=50 seed=1 nodes=2 node=8       a world of the application below the command (YAML), or app=NAME
//	policy service=web name=captain           start a production Loop with a policy for the service
//	advance 30s                               simulate this time; the output is the state at its end
//	load rate=200                             change the request rate
//	act service=web replicas=2 cpu=500 memory=256   execute an action, in millicores and MiB
//	anomaly kind=cpu target=node-0 intensity=0.9 for=30s   (before the first advance)
package scenario

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/kcpu"
	"awarescale.dev/aware/learner/policy/heuristic/workingset"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"github.com/cockroachdb/datadriven"
)

func TestScenarios(t *testing.T) {
	datadriven.Walk(t, ".", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		s := &stage{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.do(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

// stage is the state of a script: a world and its loops.
type stage struct {
	config  sim.Config
	load    *dial
	world   *sim.World
	sensors []mdp.Sensor
	loops   []*mdp.Loop
}

// dial is a load with a rate that the script sets.
type dial struct{ rate mdp.Rate }

func (d *dial) Rate(time.Duration) mdp.Rate { return d.rate }

func (s *stage) do(t *testing.T, d *datadriven.TestData) (string, error) {
	if d.Cmd == "world" {
		return "", s.open(d)
	}
	if s.load == nil {
		return "", errors.New("there is no world yet")
	}
	switch d.Cmd {
	case "anomaly":
		return "", s.anomaly(d)
	case "load":
		return "", number(d, "rate", func(v float64) { s.load.rate = mdp.Rate(v) })
	case "policy":
		return "", s.policy(d)
	case "act":
		return s.act(t, d)
	case "advance":
		return s.advance(t, d)
	}
	return "", fmt.Errorf("command %q: known are world, anomaly, policy, load, act and advance", d.Cmd)
}

func (s *stage) open(d *datadriven.TestData) error {
	var app sim.App
	var err error
	if d.HasArg("app") {
		app, err = workload.NamedApp(text(d, "app"))
	} else {
		app, err = workload.Read(d.Pos, strings.NewReader(d.Input))
	}
	if err != nil {
		// A position contains a path of this machine, which golden
		// output must not contain.
		return errors.New(strings.ReplaceAll(err.Error(), d.Pos, "app"))
	}
	*s = stage{load: &dial{}}
	nodes, node, seed := 1.0, 8.0, 1.0
	for name, to := range map[string]*float64{"nodes": &nodes, "node": &node, "seed": &seed} {
		if err := number(d, name, func(v float64) { *to = v }); err != nil {
			return err
		}
	}
	if err := number(d, "rate", func(v float64) { s.load.rate = mdp.Rate(v) }); err != nil {
		return err
	}
	s.config = sim.Config{
		App:     app,
		Cluster: sim.Uniform(int(nodes), mdp.Size{CPU: mdp.MilliCPU(1000 * node), Memory: 32 << 30}),
		Load:    s.load,
		Seed:    uint64(seed),
	}
	return s.begin()
}

func (s *stage) begin() (err error) {
	if s.world, err = sim.New(s.config); err != nil {
		return err
	}
	s.sensors, s.loops = nil, nil
	for _, h := range s.world.Services() {
		s.sensors = append(s.sensors, h.Sensor())
	}
	return nil
}

func (s *stage) anomaly(d *datadriven.TestData) error {
	if s.world.Elapsed() > 0 {
		return errors.New("an anomaly is told before the first advance")
	}
	a := sim.Anomaly{Kind: sim.Kind(text(d, "kind")), Target: text(d, "target")}
	if err := number(d, "intensity", func(v float64) { a.Intensity = v }); err != nil {
		return err
	}
	var err error
	for name, to := range map[string]*time.Duration{"from": &a.From, "to": &a.To} {
		if *to, err = time.ParseDuration(text(d, name)); err != nil {
			return err
		}
	}
	s.config.Anomalies = append(s.config.Anomalies, a)
	return s.begin()
}

func (s *stage) policy(d *datadriven.TestData) error {
	h, err := s.world.Service(text(d, "service"))
	if err != nil {
		return err
	}
	var p mdp.Policy
	level := sim.L1
	switch name := text(d, "name"); name {
	case "captain":
		p = captain.New(captain.Default)
	case "captain+workingset":
		// No agent can raise a limit above the API's, so this one acts on the API.
		p, level = mdp.Join(captain.New(captain.Default), workingset.New(workingset.Default)), sim.L2
	case "k8s-cpu":
		p, level = kcpu.New(kcpu.Default), sim.L2
	default:
		return fmt.Errorf("policy %q: known are captain, captain+workingset and k8s-cpu", name)
	}
	s.loops = append(s.loops, &mdp.Loop{
		Sensor:    h.Sensor(),
		Actuator:  h.Actuator(level),
		Policy:    guard.Standard(p, guard.Published, guard.Place{Bounds: h.Bounds}),
		Objective: mdp.Objective{SLO: s.config.App.SLO, Alpha: 0.5},
	})
	return nil
}

func (s *stage) act(t *testing.T, d *datadriven.TestData) (string, error) {
	h, err := s.world.Service(text(d, "service"))
	if err != nil {
		return "", err
	}
	var a mdp.Action
	for name, set := range map[string]func(float64){
		"replicas": func(v float64) { a = a.WithReplicas(int(v)) },
		"cpu":      func(v float64) { a = a.WithCPU(mdp.MilliCPU(v)) },
		"memory":   func(v float64) { a = a.WithMemory(mdp.Bytes(v) * mdp.MiB) },
	} {
		if err := number(d, name, set); err != nil {
			return "", err
		}
	}
	_, effect, err := h.Actuator(sim.L2).Act(t.Context(), s.world.Now(), a)
	if err != nil {
		return "", err
	}
	return effect.String() + "\n", nil
}

// advance simulates a time, one second at a time, with a step of every loop. It
// returns a description of the state.
func (s *stage) advance(t *testing.T, d *datadriven.TestData) (string, error) {
	if len(d.CmdArgs) != 1 {
		return "", errors.New("advance takes a duration")
	}
	by, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		return "", err
	}
	for end := s.world.Elapsed() + by; s.world.Elapsed() < end; {
		s.world.Advance(time.Second)
		for _, l := range s.loops {
			var unknown *mdp.UnknownError
			if _, err := l.Step(t.Context(), s.world.Now()); err != nil && !errors.As(err, &unknown) {
				return "", err
			}
		}
	}
	var b strings.Builder
	p99 := "unknown"
	if l, ok := s.world.Latency(99); ok {
		p99 = l.Round(time.Duration(round(float64(l)))).String()
	}
	fmt.Fprintf(&b, "%v: %.0f requests/s, p99 %s\n", s.world.Elapsed(), float64(s.world.Rate()), p99)
	for i, h := range s.world.Services() {
		state, err := s.sensors[i].Sense(t.Context(), s.world.Now())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "  %s: %d x %v %v", h.Name(), state.Replicas, state.Limit.CPU, state.Limit.Memory)
		if state.Knows(mdp.CPUUsage, mdp.Throttled) {
			fmt.Fprintf(&b, ", uses %v, %.0f %% throttled", state.Usage.CPU, 100*float64(state.Throttled))
		}
		if state.OOMKills > 0 {
			fmt.Fprintf(&b, ", %d killed for memory", state.OOMKills)
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}

// round is a power of ten that leaves two digits of a duration, which is enough
// for golden output.
func round(d float64) float64 {
	r := 1.0
	for d/r >= 100 {
		r *= 10
	}
	return r
}

func text(d *datadriven.TestData, name string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) == 1 {
			return a.Vals[0]
		}
	}
	return ""
}

// number passes the value of an argument to set, if the argument exists.
func number(d *datadriven.TestData, name string, set func(float64)) error {
	v := text(d, name)
	if v == "" {
		return nil
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return fmt.Errorf("%s=%s: not a number", name, v)
	}
	set(f)
	return nil
}
