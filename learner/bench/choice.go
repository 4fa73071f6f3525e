package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/policy/heuristic/aimd"
	"awarescale.dev/aware/learner/policy/heuristic/captain"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/learner/policy/heuristic/kcpu"
	"awarescale.dev/aware/learner/policy/heuristic/static"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/sim"
)

// Encoding is the version of policy files. A file with another version is
// rejected, because its settings can have another meaning.
const Encoding = 1

// Choice is a policy with its settings.
type Choice struct {
	Encoding int                `json:"encoding"`
	Policy   string             `json:"policy"`
	Settings map[string]float64 `json:"settings"`

	learned *learned.File // of a learned policy, which has no Settings; otherwise nil
	custom  *baseline     // of a policy that is no row of the table; otherwise nil
	joint   Joint         // of a policy that is served; otherwise nil
	lead    *leader       // of a demand policy with corrections; otherwise nil
}

// Learned is a choice of a learned policy: the same network for each service,
// with the bounds of that service, the guards of the central autoscaler, and
// its own step.
func Learned(f learned.File) Choice {
	return Choice{Encoding: Encoding, Policy: "learned", learned: &f}
}

// baseline is a rule-based policy: its settings with defaults and limits, the
// grid for tuning, and its constructor.
type baseline struct {
	name      string
	does      string        // one line of description
	every     time.Duration // decision interval: whole seconds, or slices of the simulator that divide a second
	path      sim.ActuationPath
	guards    guard.Settings // around the policy
	memory    bool           // memory limits follow what is in use, above the setting minMemory
	settings  []setting
	grid      []map[string]float64 // settings that Tune tries; nil for a baseline that is not tuned
	newPolicy func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error)
}

// setting is a setting of a baseline.
type setting struct {
	name       string
	fallback   float64 // default value
	lowest     float64 // allowed minimum
	highest    float64 // allowed maximum
	perService bool    // name is the prefix of a setting for each service
	whole      bool    // its grid is all that there is: it is not refined
}

// baselines are the rule-based policies, in reading order.
func baselines() []baseline {
	return append(append(kubernetesBaselines(), publishedBaselines()...), demandBaselines()...)
}

// kubernetesBaselines are constant limits and the rules of Kubernetes.
func kubernetesBaselines() []baseline {
	target := func(fallback float64) []setting {
		return []setting{{name: "target", fallback: fallback, lowest: 0.01, highest: 1}}
	}
	return []baseline{
		{
			name:   "static",
			does:   "constant limits for the peak rate",
			every:  10 * time.Second,
			path:   sim.L2,
			guards: guard.Published,
			settings: []setting{
				{name: "factor", fallback: 1, lowest: 0.01, highest: 100},
				{name: "cpu.", lowest: 1, highest: 1e6, perService: true},
			},
			grid: sweep("factor", twentieths(0.7, 1.3)...),
			newPolicy: func(c Choice, _ sim.App, s sim.Service) (mdp.Policy, error) {
				cpu, ok := c.Settings["cpu."+s.Name]
				if !ok {
					cpu = float64(s.Size.CPU)
				}
				return static.New(static.Config{Size: mdp.Size{CPU: max(1, mdp.MilliCPU(cpu*c.get("factor")))}}), nil
			},
		},
		{
			name:     "k8s-cpu",
			does:     "Kubernetes' rule on CPU use, every 15 s, the highest result of 5 min",
			every:    15 * time.Second,
			path:     sim.L2,
			guards:   guard.Published,
			settings: target(float64(kcpu.Default.Target)),
			grid:     sweep("target", twentieths(0.3, 0.95)...),
			newPolicy: func(c Choice, _ sim.App, _ sim.Service) (mdp.Policy, error) {
				k := kcpu.Default
				k.Target = mdp.Ratio(c.get("target"))
				return kcpu.New(k), k.Check()
			},
		},
		{
			name:     "k8s-cpu-fast",
			does:     "the same every second, the highest result of 20 s",
			every:    time.Second,
			path:     sim.L2,
			guards:   guard.Published,
			settings: target(float64(kcpu.Fast.Target)),
			grid:     sweep("target", twentieths(0.3, 0.95)...),
			newPolicy: func(c Choice, _ sim.App, _ sim.Service) (mdp.Policy, error) {
				k := kcpu.Fast
				k.Target = mdp.Ratio(c.get("target"))
				return kcpu.New(k), k.Check()
			},
		},
		{
			name:   "hpa-vpa",
			does:   "HPA's and VPA's formulas together, the initial policy of AWARE",
			every:  10 * time.Second,
			path:   sim.L2,
			guards: guard.Central,
			settings: []setting{
				{
					name:     "utilization",
					fallback: float64(hpavpa.Default.TargetUtilization),
					lowest:   1,
					highest:  100,
				},
				{name: "margin", fallback: hpavpa.Default.SafetyMargin, lowest: 0, highest: 5},
				{name: "percentile", fallback: hpavpa.Default.Percentile, lowest: 0.01, highest: 1},
				{name: "request", fallback: 0, lowest: 0, highest: 10}, // share of the service's size; 0 is VPA's
			},
			grid: slices.Concat(
				// VPA sets CPU.
				cross(sweep("margin", 0, 0.15, 0.5), sweep("percentile", 0.1, 0.25, 0.5, 0.75, 0.95)),
				// HPA sets CPU, by replicas.
				cross(sweep("request", 0.1, 0.2, 0.4), sweep("utilization", 50, 70, 90, 100)),
			),
			newPolicy: func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error) {
				h := hpavpa.Default
				h.SLO = app.SLO
				h.Largest = mdp.Size{CPU: s.Bounds.CPU.Max, Memory: s.Bounds.Memory.Max}
				h.TargetUtilization = int32(c.get("utilization"))
				h.SafetyMargin = c.get("margin")
				h.Percentile = c.get("percentile")
				h.Request = min(h.Largest.CPU, mdp.MilliCPU(float64(s.Size.CPU)*c.get("request")))
				return hpavpa.New(h), h.Check()
			},
		},
	}
}

// captainPlus is the baseline that is tuned from captain's settings.
const captainPlus = "captain+"

// publishedBaselines are the baselines from papers.
func publishedBaselines() []baseline {
	targets := []setting{{name: "target", fallback: float64(captain.Default.Target), lowest: 0, highest: 0.99}}
	return []baseline{
		{
			name:   "aimd",
			does:   "additive increase while the SLO is violated, multiplicative decrease while it is met with headroom (FIRM's baseline)",
			every:  10 * time.Second,
			path:   sim.L2,
			guards: guard.Published,
			settings: []setting{
				{name: "increase", fallback: float64(aimd.Default.Step), lowest: 1, highest: 1e5},
				{name: "decrease", fallback: float64(aimd.Default.Factor), lowest: 0.01, highest: 0.9999},
				{name: "headroom", fallback: float64(aimd.Default.Headroom), lowest: 0.01, highest: 1},
			},
			grid: cross(
				sweep("increase", 30, 300),
				sweep("decrease", 0.95, 0.99, 0.997),
				sweep("headroom", 0.2, 0.4, 0.8),
			),
			newPolicy: func(c Choice, app sim.App, _ sim.Service) (mdp.Policy, error) {
				a := aimd.Default
				a.SLO = app.SLO
				a.Step = mdp.MilliCPU(c.get("increase"))
				a.Factor = mdp.Ratio(c.get("decrease"))
				a.Headroom = mdp.Ratio(c.get("headroom"))
				return aimd.New(a), a.Check()
			},
		},
		{
			name:   "miad",
			does:   "the reverse: multiplicative increase, additive decrease",
			every:  10 * time.Second,
			path:   sim.L2,
			guards: guard.Published,
			settings: []setting{
				{name: "increase", fallback: float64(aimd.DefaultMIAD.Factor), lowest: 1.0001, highest: 100},
				{name: "decrease", fallback: float64(aimd.DefaultMIAD.Step), lowest: 1, highest: 1e5},
				{name: "headroom", fallback: float64(aimd.DefaultMIAD.Headroom), lowest: 0.01, highest: 1},
			},
			grid: cross(
				sweep("increase", 1.1, 1.3, 2),
				sweep("decrease", 1, 5),
				sweep("headroom", 0.2, 0.4, 0.8),
			),
			newPolicy: func(c Choice, app sim.App, _ sim.Service) (mdp.Policy, error) {
				a := aimd.DefaultMIAD
				a.SLO = app.SLO
				a.Factor = mdp.Ratio(c.get("increase"))
				a.Step = mdp.MilliCPU(c.get("decrease"))
				a.Headroom = mdp.Ratio(c.get("headroom"))
				return aimd.New(a), a.Check()
			},
		},
		{
			name:      "captain",
			does:      "Autothrottle's captains with one target for all services",
			every:     sim.Slice,
			path:      sim.L0,
			guards:    guard.Published,
			settings:  targets,
			grid:      sweep("target", append(twentieths(0, 0.5), 0.02)...),
			newPolicy: newCaptain,
		},
		{
			name:      captainPlus,
			does:      "the same, with a target for each of the services that use most",
			every:     sim.Slice,
			path:      sim.L0,
			guards:    guard.Published,
			settings:  append(targets, setting{name: "target.", lowest: 0, highest: 0.99, perService: true}),
			newPolicy: newCaptain,
		},
		{
			name:   "autothrottle",
			does:   "captains with targets that a tower selects every minute",
			every:  sim.Slice,
			path:   sim.L0,
			guards: guard.Published,
			settings: []setting{
				{name: "target", fallback: 0, lowest: 0, highest: 0.99},
				{name: "warm_hours", fallback: 12, lowest: 0, highest: 1000},
				{name: "bin_rps", fallback: float64(tower.Default.BinRPS), lowest: 0.1, highest: 1e6},
				{name: "guard", fallback: 1, lowest: 0.1, highest: 1, whole: true}, // each point costs twelve hours of warm-up
			},
			grid:      sweep("guard", 0.8, 1),
			newPolicy: newCaptain,
		},
	}
}

// demandBaselines are AWARE's own rule, as a node runs it, with the level that central
// would send. It is not tuned: its error budget does in each run what tuning does for a
// rule with a target.
func demandBaselines() []baseline {
	row := func(name, does string, every time.Duration, fast bool, windows float64, margins ServiceMargins) baseline {
		return baseline{
			name:   name,
			does:   does,
			every:  every,
			path:   sim.L0,
			guards: memoryGuards(),
			memory: true,
			settings: []setting{
				{name: "margin", lowest: -5, highest: 5},
				{name: "margin.", lowest: -5, highest: 5, perService: true},
				{name: "share", fallback: float64(demand.DefaultBudget.Share), lowest: 0, highest: 0.5}, // 0: no budget
				{name: "windows", fallback: windows, lowest: 0.001, highest: 1},
				{name: minMemory, fallback: 1, lowest: 0, highest: 1},
			},
			newPolicy: func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error) {
				d := demand.Default
				d.Margin = c.get("margin")
				d.Fast = fast
				if own, ok := c.Settings["margin."+s.Name]; ok {
					d.Margin += own
				} else {
					d.Margin += margins.Of(app.Name, s.Name)
				}
				return demand.New(d), d.Check()
			},
		}
	}
	anyWindows, none := float64(demand.DefaultBudget.Windows), ServiceMargins{}
	return []baseline{
		row("demand-1s", "expected demand and a margin for its scatter, once a second, by the error budget",
			time.Second, false, anyWindows, none),
		row("demand", "the same, and half a deviation more after each throttled period", sim.Slice, true, anyWindows, none),
		row(Aware, "the same with learned margins, and few windows over the SLO", sim.Slice, true, fewWindows, ShippedMargins()),
	}
}

// minMemory is the setting for how far memory limits may sink, as a share of the service's size.
const minMemory = "min_memory"

// Aware is the row of AWARE's own policy, with the margins that come with aware.
const Aware = "aware"

// fewWindows is the share of windows of ten seconds that AWARE's own row lets be over the SLO: a twentieth, with a reserve.
const fewWindows = 0.035

// newCaptain creates a captain: a service without a target of its own has the
// common one.
func newCaptain(c Choice, _ sim.App, s sim.Service) (mdp.Policy, error) {
	k := captain.Default
	k.Target = mdp.Ratio(c.get("target"))
	if own, ok := c.Settings["target."+s.Name]; ok {
		k.Target = mdp.Ratio(own)
	}
	return captain.New(k), k.Check()
}

// twentieths are the numbers from low to high in steps of 0.05.
func twentieths(low, high float64) []float64 {
	var values []float64
	for k := math.Round(low * 20); k <= math.Round(high*20); k++ {
		values = append(values, k/20)
	}
	return values
}

// sweep is a grid over one setting.
func sweep(name string, values ...float64) []map[string]float64 {
	grid := make([]map[string]float64, len(values))
	for i, v := range values {
		grid[i] = map[string]float64{name: v}
	}
	return grid
}

// cross is the Cartesian product of grids.
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

// Policies returns the names and descriptions of the baselines, in reading
// order.
func Policies() (names, does []string) {
	for _, b := range baselines() {
		names = append(names, b.name)
		does = append(does, b.does)
	}
	return names, does
}

// Tunable returns the names of the baselines that are tuned for each cell, in reading order.
func Tunable() []string {
	var names []string
	for _, b := range baselines() {
		if b.tunable() {
			names = append(names, b.name)
		}
	}
	return names
}

// tunable reports whether a baseline is tuned for each cell. captain+ has no grid, and goes on from captain's settings.
func (b baseline) tunable() bool { return b.grid != nil || b.name == captainPlus }

// Named is a baseline with its default settings.
func Named(name string) (Choice, error) {
	c := Choice{Encoding: Encoding, Policy: name}
	_, err := c.baseline()
	return c, err
}

// With is the choice with other values of some settings.
func (c Choice) With(names []string, values []float64) Choice {
	settings := maps.Clone(c.Settings)
	if settings == nil {
		settings = map[string]float64{}
	}
	for i, name := range names {
		settings[name] = values[i]
	}
	c.Settings = settings
	return c
}

// ReadChoice reads a policy file. Errors contain its name.
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

// Check returns nil for a valid choice. Otherwise the error names the field,
// the value and the rule.
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
		if v := c.Settings[name]; !(v >= s.lowest && v <= s.highest) {
			return fmt.Errorf("setting %s %v: it must be in [%v, %v]", name, v, s.lowest, s.highest)
		}
	}
	return nil
}

// baseline is the baseline of the choice's policy. A learned policy is
// described in the same way.
func (c Choice) baseline() (baseline, error) {
	if c.custom != nil {
		return *c.custom, nil
	}
	if c.joint != nil {
		return c.servedBaseline(), nil
	}
	if c.learned != nil {
		return baseline{
			name: c.Policy, every: c.learned.Step, path: sim.L2, guards: guard.Central,
			newPolicy: func(c Choice, app sim.App, s sim.Service) (mdp.Policy, error) {
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

// checkLearned returns nil for a learned policy that can run in the bench,
// where the decision interval is whole seconds.
func (c Choice) checkLearned() error {
	if err := wholeSeconds(c.learned.Step); err != nil {
		return fmt.Errorf("learned policy: %w", err)
	}
	return c.learned.Check()
}

// setting is the setting with the given name.
func (b baseline) setting(name string) (setting, bool) {
	for _, s := range b.settings {
		if s.name == name || s.perService && strings.HasPrefix(name, s.name) {
			return s, true
		}
	}
	return setting{}, false
}

// names are the names of the settings, for error messages.
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

// get is the value of a setting, or its default.
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

// Guards are the settings of the choice's guards.
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
