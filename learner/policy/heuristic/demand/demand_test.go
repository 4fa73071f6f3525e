package demand_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/learner/policy/heuristic/demand"
)

func TestDemandIsAPolicy(t *testing.T) {
	fast := demand.Default
	fast.Fast = true
	t.Run("default", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return demand.New(demand.Default) }) })
	t.Run("fast", func(t *testing.T) { mdptest.Policy(t, func() mdp.Policy { return demand.New(fast) }) })
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// container is a container with the kernel's rule: in each period of 100 ms it does what its
// limit allows, and what is left waits.
type container struct {
	t       *testing.T
	policy  *demand.Policy
	every   int // periods between two decisions
	limit   float64
	period  int
	backlog float64 // core-seconds that wait
	late    int     // periods in which work was left
	ran     int
	sum     float64 // of the limit
}

func box(t *testing.T, c demand.Config, limit float64) *container {
	every := 10
	if c.Fast {
		every = 1
	}
	return &container{t: t, policy: demand.New(c), every: every, limit: limit}
}

// run simulates seconds, with the work that arrives in each period, in core-seconds.
func (c *container) run(seconds int, arrives func() float64) {
	c.t.Helper()
	var used, throttled float64
	for i := range seconds * 10 {
		c.backlog += arrives()
		did := min(c.backlog, c.limit/10)
		c.backlog -= did
		used += did
		c.sum += c.limit
		c.ran++
		if c.backlog > 1e-12 {
			throttled++
			c.late++
		}
		if (i+1)%c.every != 0 {
			continue
		}
		c.period += c.every
		a, err := c.policy.Decide(mdp.State{
			At:        noon.Add(time.Duration(c.period) * 100 * time.Millisecond),
			Observed:  mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
			Limit:     mdp.Size{CPU: mdp.MilliCPU(math.Round(1000 * c.limit))},
			Usage:     mdp.Size{CPU: mdp.MilliCPU(math.Round(10000 * used / float64(c.every)))},
			Throttled: mdp.Ratio(throttled / float64(c.every)),
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if a.Sets.Has(mdp.CPULimit) {
			c.limit = float64(a.Limit.CPU) / 1000
		}
		used, throttled = 0, 0
	}
}

// mean is the mean limit, and the share of periods that left work, since the last call.
func (c *container) mean() (limit, late float64) {
	limit, late = c.sum/float64(c.ran), float64(c.late)/float64(c.ran)
	c.sum, c.ran, c.late = 0, 0, 0
	return limit, late
}

func constant(cores float64) func() float64 { return func() float64 { return cores / 10 } }

// requests arrive as a Poisson process: so many cores in the mean, each with the same work in core-seconds.
func requests(rng *rand.Rand, cores, work float64) func() float64 {
	return func() float64 {
		n, p := 0, 1.0
		for limit := math.Exp(-cores / 10 / work); ; n++ {
			if p *= rng.Float64(); p < limit {
				return float64(n) * work
			}
		}
	}
}

func TestSteadyDemandGetsItselfAndTwoHundredths(t *testing.T) {
	c := box(t, demand.Default, 2)
	c.run(1200, constant(0.5))
	if want := 0.5 * (1.002 + 0.02); math.Abs(c.limit-want) > 0.002 {
		t.Errorf("the limit is %.3f cores, want %.3f", c.limit, want)
	}
}

// ew is an exponential mean with a memory in seconds.
type ew struct{ memory, sum, weight float64 }

func (m *ew) add(v float64) float64 {
	m.sum, m.weight = m.sum*(1-1/m.memory)+v, m.weight*(1-1/m.memory)+1
	return m.sum / m.weight
}

// The limit is that of the package's formulas, for each margin and level, with the figures of whatever second.
func TestTheLimitIsThatOfTheFormulas(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	rises := 0
	for _, c := range []struct{ margin, level float64 }{{0, 0}, {0.7, 0}, {-1, 0.5}, {1, -3}, {0, 2.5}} {
		p := demand.New(demand.Config{Margin: c.margin, Floor: 10})
		p.SetLevel(c.level)
		z := math.Exp(c.margin + c.level)
		mean, work, moves := ew{memory: 600}, ew{memory: 600}, ew{memory: 120}
		var d, held, before, change, w float64 // of the second before
		rose := 0
		for second := range 400 {
			u, share := float64(rng.IntN(900)+100)/1000, 0.0
			if crowd := second % 100; crowd > 80 {
				u += float64(rng.IntN(40)+4*(crowd-80)*(crowd-80)) / 100
			}
			if rng.IntN(3) == 0 {
				share = float64(rng.IntN(11)) / 10
			}
			a, err := p.Decide(mdp.State{
				At: noon.Add(time.Duration(second) * time.Second), Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
				Limit: mdp.Size{CPU: 1}, Usage: mdp.Size{CPU: mdp.MilliCPU(math.Round(1000 * u))}, Throttled: mdp.Ratio(share),
			})
			if err != nil {
				t.Fatal(err)
			}
			if second == 0 { // of a second that nobody saw begin
				continue
			}
			b := share * max(0, held+d-u)
			y := max(0, u+b-held)
			if second == 1 {
				d = y
			}
			m, q := mean.add(y), 0.0
			if second > 1 {
				q = moves.add((y - before) * (y - before))
			}
			if second > 2 {
				w = max(0, work.add(-(y-before)*change)) / m
			}
			if rose++; second == 1 || y-before <= max(0.1*d, 3*math.Sqrt(2*w*d)) {
				rose = 0
			}
			r := w * d
			q = max(0, q-2*r)
			variance := (q + math.Sqrt(q*q+4*q*r)) / 2
			gain := 0.2
			if variance > 0 {
				gain = max(gain, variance/(variance+r))
			}
			d = max(0, d+gain*(y-d))
			expected := d
			if rose >= 2 {
				expected = y + min(y-before, change)
				rises++
			}
			change, before, held = y-before, y, b
			scatter := math.Sqrt(10 * w * d)
			want := 1.002*expected + z*(math.Hypot(scatter, math.Sqrt(variance))+0.02*d) + 0.3*b + z/(z+0.03)*share*max(scatter, share*d/4)
			if got := float64(a.Limit.CPU); math.Abs(got-math.Ceil(1000*want)) > 1 {
				t.Fatalf("margin %v, level %v, second %d: %v, and the formulas say %.1f", c.margin, c.level, second, got, 1000*want)
			}
		}
	}
	if rises < 20 {
		t.Errorf("the demand rose for two seconds %d times: the test's crowds are none", rises)
	}
}

// Figures that no container has are an error, and the next second follows from none.
func TestFiguresOfNoContainerAreRefused(t *testing.T) {
	p := demand.New(demand.Default)
	good := mdp.State{At: noon, Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled), Limit: mdp.Size{CPU: 1000},
		Usage: mdp.Size{CPU: 500}}
	for name, spoil := range map[string]func(*mdp.State){
		"throttled below zero":     func(s *mdp.State) { s.Throttled = -0.1 },
		"throttled more than ever": func(s *mdp.State) { s.Throttled = 1.1 },
		"throttled NaN":            func(s *mdp.State) { s.Throttled = mdp.Ratio(math.NaN()) },
		"no limit":                 func(s *mdp.State) { s.Limit.CPU = 0 },
		"more than a million":      func(s *mdp.State) { s.Limit.CPU = 1_000_000_001 },
		"usage below zero":         func(s *mdp.State) { s.Usage.CPU = -1 },
		"usage of a million cores": func(s *mdp.State) { s.Usage.CPU = 1_000_000_001 },
	} {
		s := good
		spoil(&s)
		if a, err := p.Decide(s); err == nil || a.Sets != 0 {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if a, err := p.Decide(good); err != nil || a.Sets != 0 {
		t.Errorf("the second after it: %v, %v; want nothing, since nobody saw it begin", a, err)
	}
}

// A rule that follows usage stays where the limit is. The demand is above it.
func TestAThrottledContainerGetsItsDemand(t *testing.T) {
	for _, fast := range []bool{false, true} {
		config := demand.Default
		config.Fast = fast
		c := box(t, config, 1)
		c.run(60, constant(0.3))
		c.run(6, constant(0.9))
		if c.limit < 0.9 {
			t.Errorf("fast %v: six seconds after the demand rose to 0.9 cores the limit is %.3f", fast, c.limit)
		}
		c.run(30, constant(0.9))
		if c.backlog > 0.01 {
			t.Errorf("fast %v: half a minute later %.3f core-seconds still wait", fast, c.backlog)
		}
		c.run(30, constant(0.3))
		if c.limit > 0.45 {
			t.Errorf("fast %v: half a minute after the demand fell to 0.3 cores the limit is %.3f", fast, c.limit)
		}
	}
}

// The same mean demand scatters more when each request is larger. The margin follows, by the square root.
func TestTheMarginIsOfTheWorkOfARequest(t *testing.T) {
	margins := map[float64]float64{}
	for _, work := range []float64{0.002, 0.008, 0.032} {
		c := box(t, demand.Default, 2)
		arrives := requests(rand.New(rand.NewPCG(1, 2)), 0.8, work)
		c.run(1200, arrives)
		c.mean()
		c.run(1200, arrives)
		limit, _ := c.mean()
		margins[work] = limit - 0.8
		scatter := math.Sqrt(10 * work * 0.8) // of one period, which z = 1 covers once
		if got := margins[work] / scatter; got < 0.9 || got > 2.2 {
			t.Errorf("requests of %.0f ms: the margin is %.3f cores, %.2f deviations of a period", 1000*work, margins[work], got)
		}
	}
	for _, pair := range [][2]float64{{0.002, 0.008}, {0.008, 0.032}} {
		if ratio := margins[pair[1]] / margins[pair[0]]; ratio < 1.6 || ratio > 2.6 {
			t.Errorf("four times the work of a request changes the margin by %.2f, want about 2", ratio)
		}
	}
}

// What it is all for: a higher level buys fewer periods that leave work, and costs cores.
func TestALevelBuysLessThrottling(t *testing.T) {
	var limits, lates []float64
	for _, level := range []float64{-1.4, 0, 0.7} {
		c := box(t, demand.Default, 2)
		c.policy.SetLevel(level)
		arrives := requests(rand.New(rand.NewPCG(3, 4)), 0.8, 0.008)
		c.run(900, arrives)
		c.mean()
		c.run(1800, arrives)
		limit, late := c.mean()
		limits, lates = append(limits, limit), append(lates, late)
	}
	for i := 1; i < len(limits); i++ {
		if limits[i] <= limits[i-1] || lates[i] >= lates[i-1] {
			t.Errorf("limits %.3f leave work in %.3f of the periods: a higher level must cost more and leave less", limits, lates)
		}
	}
}

func TestTheFastLaneReactsToOnePeriod(t *testing.T) {
	config := demand.Default
	config.Fast = true
	c := box(t, config, 2)
	arrives := requests(rand.New(rand.NewPCG(5, 6)), 0.4, 0.01)
	c.run(600, arrives)
	before := c.limit
	c.every, c.period = 1, c.period/1
	c.backlog += 0.2 // two periods' work at once
	var highest float64
	for range 3 {
		c.runPeriods(1, constant(0.4))
		highest = max(highest, c.limit)
	}
	if highest <= before {
		t.Errorf("three throttled periods, and the limit is %.3f as before", highest)
	}
}

// runPeriods simulates single periods of a fast policy.
func (c *container) runPeriods(n int, arrives func() float64) {
	c.t.Helper()
	for range n {
		c.backlog += arrives()
		did := min(c.backlog, c.limit/10)
		c.backlog -= did
		c.period++
		throttled := mdp.Ratio(0)
		if c.backlog > 1e-12 {
			throttled = 1
		}
		a, err := c.policy.Decide(mdp.State{
			At:       noon.Add(time.Duration(c.period) * 100 * time.Millisecond),
			Observed: mdp.SetOf(mdp.CPULimit, mdp.CPUUsage, mdp.Throttled),
			Limit:    mdp.Size{CPU: mdp.MilliCPU(math.Round(1000 * c.limit))},
			Usage:    mdp.Size{CPU: mdp.MilliCPU(math.Round(10000 * did))}, Throttled: throttled,
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if a.Sets.Has(mdp.CPULimit) {
			c.limit = float64(a.Limit.CPU) / 1000
		}
	}
}

// After a gap nobody knows what waits. What was learned of the demand stays.
func TestAGapForgetsTheBacklogOnly(t *testing.T) {
	c := box(t, demand.Default, 2)
	c.run(300, constant(0.5))
	before := c.limit
	c.run(3, constant(3)) // throttled
	c.period += 600
	c.backlog = 0
	c.run(30, constant(0.5))
	if math.Abs(c.limit-before) > 0.1 {
		t.Errorf("half a minute after a gap the limit is %.3f, and it was %.3f before", c.limit, before)
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	p := demand.New(demand.Default)
	s := mdp.State{At: noon, Observed: mdp.All, Limit: mdp.Size{CPU: 1000}, Usage: mdp.Size{CPU: 500}}
	p.SetLateWindows(0)
	for _, usage := range []mdp.MilliCPU{500, 500, 500, 900} {
		s.At, s.Usage.CPU = s.At.Add(time.Second), usage
		if _, err := p.Decide(s); err != nil {
			t.Fatal(err)
		}
	}
	if p.SetLateWindows(1); !p.Holds() { // which takes the most
		t.Fatal("the spike is not held")
	}
	if n := testing.AllocsPerRun(1000, func() {
		s.At = s.At.Add(time.Second)
		if _, err := p.Decide(s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	for _, c := range []demand.Config{{}, {Floor: 10, Margin: math.NaN()}, {Floor: 10, Margin: 11}, {Floor: -1}} {
		if c.Check() == nil {
			t.Errorf("%+v passes", c)
		}
	}
	if err := demand.Default.Check(); err != nil {
		t.Error(err)
	}
}
