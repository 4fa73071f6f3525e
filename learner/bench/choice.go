package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/aimd"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/learner/policy/heuristic/kcpu"
	"awarescale.dev/aware/learner/policy/heuristic/static"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/sim"
)

// Encoding is the version of policy files. A file of another version is refused: its settings may mean something else.
const Encoding = 1

// Choice is a policy with its settings.
type Choice struct {
	Encoding int                `json:"encoding"`
	Policy   string             `json:"policy"`
	Settings map[string]float64 `json:"settings"`

	learned *learned.File // of a learned policy; then Settings are empty
}

// Learned is a choice of a learned policy: the same network for each service, at that service's bounds, with central's
// guards and in its own step.
func Learned(f learned.File) Choice {
	return Choice{Encoding: Encoding, Policy: "learned", learned: &f}
}

// baseline is one rule: its settings with their defaults and limits, what tuning tries, and how it is made.
type baseline struct {
	name     string
	does     string
	every    time.Duration
	path     sim.ActuationPath
	guards   guard.Settings // what is around the rule
	settings []setting
	grid     []map[string]float64
	make     func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error)
}

type setting struct {
	name       string
	fallback   float64
	min, max   float64
	perService bool // name is the prefix of a setting for each service
}

// baselines are the rules, in reading order.
func baselines() []baseline {
	target := func(fallback float64) []setting {
		return []setting{{name: "target", fallback: fallback, min: 0.01, max: 1}}
	}
	return []baseline{
		{
			name: "static", does: "the same limits for ever: what the peak rate takes", every: 10 * time.Second, path: sim.L2, guards: guard.Published,
			settings: []setting{{name: "factor", fallback: 1, min: 0.01, max: 100}, {name: "cpu.", min: 1, max: 1e6, perService: true}},
			grid:     sweep("factor", 0.7, 0.8, 0.9, 1, 1.15, 1.3, 1.5),
			make: func(c Choice, _ sim.App, s sim.Service) (mdp.Policy, error) {
				cpu, ok := c.Settings["cpu."+s.Name]
				if !ok {
					cpu = float64(s.Size.CPU)
				}
				return static.New(static.Config{Size: mdp.Size{CPU: max(1, mdp.MilliCPU(cpu*c.get("factor")))}}), nil
			},
		},
		{
			name: "k8s-cpu", does: "Kubernetes' rule on CPU use, each 15 s, the highest of 5 min", every: 15 * time.Second, path: sim.L2, guards: guard.Published,
			settings: target(float64(kcpu.Default.Target)), grid: sweep("target", 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
			make: func(c Choice, _ sim.App, _ sim.Service) (mdp.Policy, error) {
				k := kcpu.Default
				k.Target = mdp.Ratio(c.get("target"))
				return kcpu.New(k), k.Check()
			},
		},
		{
			name: "k8s-cpu-fast", does: "the same each second, the highest of 20 s", every: time.Second, path: sim.L2, guards: guard.Published,
			settings: target(float64(kcpu.Fast.Target)), grid: sweep("target", 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
			make: func(c Choice, _ sim.App, _ sim.Service) (mdp.Policy, error) {
				k := kcpu.Fast
				k.Target = mdp.Ratio(c.get("target"))
				return kcpu.New(k), k.Check()
			},
		},
		{
			name: "hpa-vpa", does: "HPA's and VPA's arithmetic together, as AWARE begins with", every: 10 * time.Second, path: sim.L2, guards: guard.Central,
			settings: []setting{{name: "utilization", fallback: float64(hpavpa.Default.TargetUtilization), min: 1, max: 100},
				{name: "margin", fallback: hpavpa.Default.SafetyMargin, min: 0, max: 5}},
			grid: sweep("margin", 0, 0.05, 0.15, 0.3, 0.5, 0.8),
			make: func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error) {
				h := hpavpa.Default
				h.SLO, h.Largest = app.SLO, mdp.Size{CPU: s.Bounds.CPU.Max, Memory: s.Bounds.Memory.Max}
				h.TargetUtilization, h.SafetyMargin = int32(c.get("utilization")), c.get("margin")
				return hpavpa.New(h), h.Check()
			},
		},
		{
			name: "aimd", does: "more while the SLO is violated, a share less while it holds with room (FIRM's baseline)", every: 10 * time.Second, path: sim.L2, guards: guard.Published,
			settings: []setting{{name: "increase", fallback: float64(aimd.Default.Increase), min: 1, max: 1e5},
				{name: "decrease", fallback: float64(aimd.Default.Decrease), min: 0.01, max: 0.999},
				{name: "headroom", fallback: float64(aimd.Default.Headroom), min: 0.01, max: 1}},
			grid: cross(sweep("increase", 100, 300), sweep("decrease", 0.95, 0.99), sweep("headroom", 0.4, 0.8)),
			make: func(c Choice, app sim.App, _ sim.Service) (mdp.Policy, error) {
				a := aimd.Default
				a.SLO, a.Increase = app.SLO, mdp.MilliCPU(c.get("increase"))
				a.Decrease, a.Headroom = mdp.Ratio(c.get("decrease")), mdp.Ratio(c.get("headroom"))
				return aimd.New(a), a.Check()
			},
		},
		{
			name: "captain", does: "Autothrottle's captains with one target for all services", every: time.Second, path: sim.L1, guards: guard.Published,
			settings: []setting{{name: "target", fallback: float64(captain.Default.Target), min: 0, max: 0.99}},
			grid:     sweep("target", 0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3),
			make:     newCaptain,
		},
		{
			name: "autothrottle", does: "captains whose targets a tower picks each minute", every: time.Second, path: sim.L1, guards: guard.Published,
			settings: []setting{{name: "target", fallback: 0, min: 0, max: 0.99},
				{name: "warm_hours", fallback: 4, min: 0, max: 1000}, {name: "bin_rps", fallback: float64(tower.Default.BinRPS), min: 0.1, max: 1e6},
				{name: "guard", fallback: 1, min: 0.1, max: 1}},
			grid: sweep("guard", 0.6, 0.8, 1),
			make: newCaptain,
		},
	}
}

func newCaptain(c Choice, _ sim.App, _ sim.Service) (mdp.Policy, error) {
	k := captain.Default
	k.Target = mdp.Ratio(c.get("target"))
	return captain.New(k), k.Check()
}

func sweep(name string, values ...float64) []map[string]float64 {
	grid := make([]map[string]float64, len(values))
	for i, v := range values {
		grid[i] = map[string]float64{name: v}
	}
	return grid
}

func cross(grids ...[]map[string]float64) []map[string]float64 {
	all := []map[string]float64{{}}
	for _, g := range grids {
		var next []map[string]float64
		for _, a := range all {
			for _, b := range g {
				m := maps.Clone(a)
				maps.Copy(m, b)
				next = append(next, m)
			}
		}
		all = next
	}
	return all
}

// Policies names the baselines and says what each does, in reading order.
func Policies() (names, does []string) {
	for _, b := range baselines() {
		names, does = append(names, b.name), append(does, b.does)
	}
	return names, does
}

// Named is a baseline with its default settings.
func Named(name string) (Choice, error) {
	c := Choice{Encoding: Encoding, Policy: name}
	_, err := c.baseline()
	return c, err
}

// ReadChoice reads a policy file. Errors call it name.
func ReadChoice(name string, r io.Reader) (Choice, error) {
	text, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return Choice{}, fmt.Errorf("policy %s: %w", name, err)
	}
	var c Choice
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Choice{}, fmt.Errorf("policy %s: %w", name, err)
	}
	if err := c.Check(); err != nil {
		return Choice{}, fmt.Errorf("policy %s: %w", name, err)
	}
	return c, nil
}

// Check is nil for a choice that can be made; otherwise it names the field, the value and the rule.
func (c Choice) Check() error {
	if c.Encoding != Encoding {
		return fmt.Errorf("encoding %d: this aware reads encoding %d", c.Encoding, Encoding)
	}
	b, err := c.baseline()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		s, known := b.setting(name)
		if !known {
			return fmt.Errorf("setting %q: %s has %s", name, b.name, strings.Join(b.names(), ", "))
		}
		if v := c.Settings[name]; !(v >= s.min && v <= s.max) {
			return fmt.Errorf("setting %s %v: it must be in [%v, %v]", name, v, s.min, s.max)
		}
	}
	return nil
}

func (c Choice) baseline() (baseline, error) {
	if c.learned != nil {
		return baseline{
			name: c.Policy, every: c.learned.Step, path: sim.L2, guards: guard.Central,
			make: func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error) {
				return learned.New(*c.learned, encode.Place{Bounds: s.Bounds, SLO: app.SLO})
			},
		}, c.checkLearned()
	}
	var names []string
	for _, b := range baselines() {
		if b.name == c.Policy {
			return b, nil
		}
		names = append(names, b.name)
	}
	return baseline{}, fmt.Errorf("policy %q: known are %s", c.Policy, strings.Join(names, ", "))
}

// checkLearned is nil for a learned policy that can drive the bench, which decides at whole seconds.
func (c Choice) checkLearned() error {
	if step := c.learned.Step; step < time.Second || step%time.Second != 0 {
		return fmt.Errorf("learned policy: step %v: it must be whole seconds", step)
	}
	return c.learned.Check()
}

func (b baseline) setting(name string) (setting, bool) {
	for _, s := range b.settings {
		if s.name == name || s.perService && strings.HasPrefix(name, s.name) {
			return s, true
		}
	}
	return setting{}, false
}

func (b baseline) names() []string {
	var names []string
	for _, s := range b.settings {
		if s.perService {
			names = append(names, s.name+"SERVICE")
			continue
		}
		names = append(names, s.name)
	}
	return names
}

// get is a setting's value, or its default.
func (c Choice) get(name string) float64 {
	if v, ok := c.Settings[name]; ok {
		return v
	}
	b, err := c.baseline()
	if err != nil {
		return 0
	}
	s, _ := b.setting(name)
	return s.fallback
}

// Guards are the settings of the guards that the choice runs with.
func (c Choice) Guards() guard.Settings {
	b, err := c.baseline()
	if err != nil {
		return guard.Published
	}
	return b.guards
}

// with is the choice with some settings changed.
func (c Choice) with(settings map[string]float64) Choice {
	m := maps.Clone(c.Settings)
	if m == nil {
		m = map[string]float64{}
	}
	maps.Copy(m, settings)
	c.Settings = m
	return c
}
