package tower_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/tower"
)

var (
	services = []string{"front", "cart", "search", "pay", "mail"}
	heavy    = []bool{true, false, true, false, false}
	known    = mdp.SetOf(mdp.Throughput, mdp.Latency, mdp.CPULimit, mdp.CPUUsage)
)

// config has a short warm-up: each of 12 random actions for two minutes.
func config() tower.Config {
	c := tower.Default
	c.Uniform, c.Explore = 24, 0
	c.SLO = mdp.SLO{Percentile: 99, Latency: 200 * time.Millisecond}
	return c
}

// world is a toy application: what is allocated falls with the targets, latency
// rises with the targets and the load. The noise is a share of latency and
// allocation.
type world struct {
	noise  float64
	random *rand.Rand
}

func (w world) minute(rps float64, targets []mdp.Ratio) tower.Minute {
	m := tower.Minute{Observed: known, RPS: mdp.Rate(rps), Usage: make([]mdp.MilliCPU, len(targets))}
	latency, allocated := 40+rps/5, 0.0
	for i, target := range targets {
		x, use := float64(target), rps/2+float64(i)
		if heavy[i] {
			use = rps*4 + float64(i)
			latency += rps * x // at 300 RPS: 90 ms at the top of the ladder, for each of two
		} else {
			latency += 120 * x // 36 ms at the top, for each of three
		}
		allocated += use * (1 + 0.8*math.Exp(-8*x))
		m.Usage[i] = mdp.MilliCPU(use)
	}
	if w.random != nil {
		latency *= 1 + w.noise*w.random.NormFloat64()
		allocated *= 1 + w.noise*w.random.NormFloat64()
	}
	m.Latency = time.Duration(latency * float64(time.Millisecond))
	m.Allocated = mdp.MilliCPU(allocated)
	return m
}

// best is a simple second implementation: the lowest allocation that holds the
// SLO at a load, of all 81 actions.
func best(rps float64, slo time.Duration) mdp.MilliCPU {
	ladder := []mdp.Ratio{0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3}
	least := mdp.MilliCPU(math.MaxInt64)
	for _, low := range ladder {
		for _, high := range ladder {
			targets := make([]mdp.Ratio, len(heavy))
			for i := range targets {
				if targets[i] = low; heavy[i] {
					targets[i] = high
				}
			}
			if m := (world{}).minute(rps, targets); m.Latency <= slo {
				least = min(least, m.Allocated)
			}
		}
	}
	return least
}

// After an hour at each of four loads it has found most of what the largest
// targets that hold the SLO would save, and a tenth of the minutes still try a
// neighbour, which may violate it.
func TestTowerFindsTheLargestTargetsThatMeetTheSLOAtEveryLoad(t *testing.T) {
	loads := []float64{110, 210, 310, 410}
	for seed := uint64(1); seed <= 3; seed++ {
		for _, noise := range []float64{0, 0.02} {
			t.Run(fmt.Sprintf("seed %d noise %v", seed, noise), func(t *testing.T) {
				w := world{noise, rand.New(rand.NewPCG(seed, 7))}
				tw := tower.New(config(), services, seed)
				sum, count := map[float64]mdp.MilliCPU{}, map[float64]mdp.MilliCPU{}
				violated, minutes := 0, 0
				for i := range 360 {
					rps := loads[i/15%len(loads)] // a quarter of an hour each
					m := w.minute(rps, tw.Targets())
					if i >= 240 && i%15 > 1 { // the first minute of a load has the targets of the load before
						sum[rps] += m.Allocated
						count[rps]++
						minutes++
						if m.Latency > config().SLO.Latency {
							violated++
						}
					}
					if err := tw.Observe(m); err != nil {
						t.Fatal(err)
					}
				}
				for _, rps := range loads {
					mean, least := sum[rps]/count[rps], best(rps, config().SLO.Latency)
					safest := (world{}).minute(rps, make([]mdp.Ratio, len(services))).Allocated
					t.Logf("%v RPS: %v allocated, best %v, targets of zero %v", rps, mean, least, safest)
					if float64(mean-least) > 0.4*float64(safest-least) {
						t.Errorf("at %v RPS %v are allocated: the best is %v, targets of zero %v", rps, mean, least, safest)
					}
				}
				t.Logf("%d of %d violated", violated, minutes)
				if violated > minutes/6 {
					t.Errorf("%d of %d minutes violate the SLO", violated, minutes)
				}
			})
		}
	}
}

func TestServicesAreGroupedByTheirUsage(t *testing.T) {
	tw := tower.New(config(), services, 1)
	for range 30 {
		if err := tw.Observe(world{}.minute(300, tw.Targets())); err != nil {
			t.Fatal(err)
		}
		targets := tw.Targets()
		if targets[0] != targets[2] || targets[1] != targets[3] || targets[1] != targets[4] {
			t.Fatalf("targets %v: front and search are one group, the rest the other", targets)
		}
	}
}

func TestTargetsDecreaseWhenNoActionMeetsTheSLO(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		c := config()
		c.SLO.Latency = 20 * time.Millisecond
		c.Epsilon = 0
		tw := tower.New(c, services, seed)
		for range 120 {
			if err := tw.Observe(world{}.minute(300, tw.Targets())); err != nil {
				t.Fatal(err)
			}
		}
		if targets := tw.Targets(); slices.Max(targets) > 0.04 {
			t.Errorf("seed %d: targets %v, want the safest", seed, targets)
		}
	}
}

// distance is the number of notches between two pairs of targets.
func distance(t *testing.T, a, b []mdp.Ratio) int {
	t.Helper()
	ladder := []mdp.Ratio{0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3}
	d := 0
	for i := range 2 { // front and cart are of two groups
		j, k := slices.Index(ladder, a[i]), slices.Index(ladder, b[i])
		d += max(j-k, k-j)
	}
	return d
}

// Autothrottle's evaluation.py: six hours of random actions, six hours with an
// epsilon of 0.5, and no exploration in the runs that are counted. In the world
// of this test no load changes and nothing is noise, so that what is not the
// usual action explores.
func TestExplorationHasThreePhases(t *testing.T) {
	c := config()
	c.Uniform, c.Explore = 360, 360
	tw := tower.New(c, services, 1)
	w := world{}
	var targets [][]mdp.Ratio // of each minute
	minute := func() {
		targets = append(targets, tw.Targets())
		if err := tw.Observe(w.minute(300, tw.Targets())); err != nil {
			t.Fatal(err)
		}
	}
	for range 720 {
		minute()
	}
	tried := map[string]int{}
	for i := 0; i < 360; i += 2 {
		if !slices.Equal(targets[i], targets[i+1]) {
			t.Fatalf("minute %d has targets %v, the next %v: a random action has two minutes", i, targets[i], targets[i+1])
		}
		tried[fmt.Sprint(targets[i][:2])]++
	}
	for action, n := range tried {
		if n < 2 || n > 3 {
			t.Errorf("targets %s were tried %d times in 180 draws, want 2 or 3", action, n)
		}
	}
	if len(tried) != 81 {
		t.Errorf("%d actions were tried, want 81", len(tried))
	}
	changed := func(from, to int) float64 {
		usual := map[string]int{}
		most := 0
		for _, one := range targets[from:to] {
			usual[fmt.Sprint(one)]++
			most = max(most, usual[fmt.Sprint(one)])
		}
		return 1 - float64(most)/float64(to-from)
	}
	if e := changed(600, 720); e < 0.35 || e > 0.75 {
		t.Errorf("in the second phase %.2f of the minutes explore, want about 0.5", e)
	}
	for range 240 {
		minute()
	}
	if e := changed(840, 960); e < 0.03 || e > 0.3 {
		t.Errorf("in production %.2f of the minutes explore, want about 0.1", e)
	}
	tw.StopExploring()
	for range 60 {
		minute()
	}
	far := 0
	for i := 962; i < 1020; i++ {
		far += distance(t, targets[i], targets[i-1])
	}
	if far > 0 {
		t.Errorf("in a counted run the targets moved by %d notches at a constant load", far)
	}
}

func TestStopExploringEndsTheWarmUp(t *testing.T) {
	c := config()
	c.Uniform = 360
	tw := tower.New(c, services, 1)
	moves := 0
	for i := range 160 {
		if i == 60 {
			tw.StopExploring()
		}
		before := tw.Targets()
		if err := tw.Observe(world{}.minute(300, before)); err != nil {
			t.Fatal(err)
		}
		if i >= 130 && distance(t, before, tw.Targets()) > 0 {
			moves++
		}
	}
	if moves > 4 { // what it learns may still change its mind
		t.Errorf("an hour after the warm-up ended the targets changed in %d of 30 minutes", moves)
	}
}

// The source learns that the load at the decision, and what came of it in the
// minute after.
func TestMinuteIsLearnedWithTheLoadOfTheMinuteBefore(t *testing.T) {
	c := config()
	c.Uniform = 0
	tw := tower.New(c, services, 1)
	for _, rps := range []float64{111, 300} { // of 20: bin 6, bin 15
		if err := tw.Observe(world{}.minute(rps, tw.Targets())); err != nil {
			t.Fatal(err)
		}
	}
	if state := string(encoded(t, tw)); !strings.Contains(state, `"cells":[{"bin":6,`) || strings.Count(state, `"samples"`) != 1 {
		t.Errorf("state %s: want the second minute alone, in the bin of the first", state)
	}
}

func run(t *testing.T, tw *tower.Tower, w world, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := tw.Observe(w.minute(float64(100+30*(i%7)), tw.Targets())); err != nil {
			t.Fatal(err)
		}
	}
}

func encoded(t *testing.T, tw *tower.Tower) []byte {
	t.Helper()
	data, err := tw.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestUnknownOrImpossibleMinuteIsNotLearned(t *testing.T) {
	tw := tower.New(config(), services, 1)
	run(t, tw, world{}, 0, 20)
	before, targets := encoded(t, tw), tw.Targets()
	for name, change := range map[string]func(*tower.Minute){
		"latency unknown":          func(m *tower.Minute) { m.Observed = known.Without(mdp.SetOf(mdp.Latency)) },
		"allocation unknown":       func(m *tower.Minute) { m.Observed = known.Without(mdp.SetOf(mdp.CPULimit)) },
		"no traffic":               func(m *tower.Minute) { m.RPS, m.Latency = 0, 0 },
		"nothing known":            func(m *tower.Minute) { *m = tower.Minute{} },
		"load not a number":        func(m *tower.Minute) { m.RPS = mdp.Rate(math.NaN()) },
		"a load beyond all bounds": func(m *tower.Minute) { m.RPS = mdp.Rate(math.Inf(1)) },
		"latency below zero":       func(m *tower.Minute) { m.Latency = -1 },
		"allocation below zero":    func(m *tower.Minute) { m.Allocated = -1 },
		"usage of another number":  func(m *tower.Minute) { m.Usage = m.Usage[1:] },
	} {
		m := world{}.minute(200, targets)
		change(&m)
		if err := tw.Observe(m); err == nil {
			t.Errorf("%s: no error", name)
		}
		if !bytes.Equal(encoded(t, tw), before) || !slices.Equal(tw.Targets(), targets) {
			t.Errorf("%s: the tower is not as it was", name)
		}
	}
	var unknown *mdp.UnknownError
	if err := tw.Observe(tower.Minute{}); !errors.As(err, &unknown) || unknown.Missing != known.Without(mdp.SetOf(mdp.CPUUsage)) {
		t.Errorf("err = %v, want all but usage named", err)
	}
}

func TestSameSeedGivesSameBytes(t *testing.T) {
	one, two, other := tower.New(config(), services, 1), tower.New(config(), services, 1), tower.New(config(), services, 2)
	for _, tw := range []*tower.Tower{one, two, other} {
		run(t, tw, world{}, 0, 40)
	}
	if !bytes.Equal(encoded(t, one), encoded(t, two)) {
		t.Error("the same seed gave two towers")
	}
	if bytes.Equal(encoded(t, one), encoded(t, other)) {
		t.Error("another seed gave the same tower")
	}
}

func TestDecodedTowerContinuesWithTheSameResults(t *testing.T) {
	for _, stop := range []int{0, 5, 6, 24, 25, 40} { // before, in, at the end of and after the exploration
		through := tower.New(config(), services, 3)
		run(t, through, world{}, 0, 60)

		stopped := tower.New(config(), services, 3)
		run(t, stopped, world{}, 0, stop)
		resumed, err := tower.Decode(config(), services, encoded(t, stopped))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(resumed.Targets(), stopped.Targets()) {
			t.Errorf("stopped at %d with targets %v, resumed with %v", stop, stopped.Targets(), resumed.Targets())
		}
		clone, err := stopped.Clone()
		if err != nil {
			t.Fatal(err)
		}
		for name, other := range map[string]*tower.Tower{"resumed": resumed, "cloned": clone} {
			run(t, other, world{}, stop, 60)
			if !bytes.Equal(encoded(t, other), encoded(t, through)) {
				t.Errorf("stopped at %d and %s it is another tower", stop, name)
			}
		}
	}
}

func TestStateOfAnotherTowerIsRejected(t *testing.T) {
	tw := tower.New(config(), services, 1)
	run(t, tw, world{}, 0, 20)
	good := encoded(t, tw)
	with := func(old, new string) []byte {
		t.Helper()
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("the state has no %s", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	other := config()
	other.BinRPS = 200
	for name, c := range map[string]struct {
		config   tower.Config
		services []string
		data     []byte
		says     string
	}{
		"nothing":              {config(), services, nil, "tower state of 0 bytes"},
		"truncated":            {config(), services, good[:len(good)/2], "unexpected end of JSON input"},
		"no version":           {config(), services, []byte("{}"), "no version"},
		"another version":      {config(), services, with(`"version":2`, `"version":1`), "tower state of version 1: want 2"},
		"fewer services":       {config(), services[1:], good, "tower state of 5 services, usage of 5: want 4"},
		"other services":       {config(), []string{"a", "b", "c", "d", "e"}, good, `service 0 is "front": want "a"`},
		"other bins":           {other, services, good, "tower state with bins of 20 requests per second: want 200"},
		"a notch too high":     {config(), services, with(`"action":[`, `"action":[9`), "not on the ladder"},
		"no random state":      {config(), services, with(`"random":"`, `"random":"AAAA`), "random state"},
		"minutes below zero":   {config(), services, with(`"minutes":20`, `"minutes":-20`), "not numbers of minutes"},
		"a bin below zero":     {config(), services, with(`"bin":`, `"bin":-`), "bin -"},
		"a cell's below zero":  {config(), services, with(`"cells":[{"bin":`, `"cells":[{"bin":-`), "cell 0: bin -"},
		"cells out of order":   {config(), services, with(`"cells":[{"bin":`, `"cells":[{"bin":999`), "out of order"},
		"a cell of no samples": {config(), services, with(`"samples":[`, `"samples":[],"x":[`), "0 samples"},
	} {
		if _, err := tower.Decode(c.config, c.services, c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: err = %v, want %q", name, err, c.says)
		}
	}
}

// What decodes encodes to what decodes to the same, and can be gone on with.
func FuzzDecode(f *testing.F) {
	c := config()
	c.Samples, c.Uniform = 50, 2
	tw := tower.New(c, services, 1)
	for i := range 6 {
		data, err := tw.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		if err := tw.Observe(world{}.minute(float64(100+i), tw.Targets())); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		one, err := tower.Decode(c, services, data)
		if err != nil {
			return
		}
		first := encoded(t, one)
		two, err := tower.Decode(c, services, first)
		if err != nil {
			t.Fatalf("what was encoded does not decode: %v", err)
		}
		if !bytes.Equal(first, encoded(t, two)) {
			t.Fatal("decoded again it is another tower")
		}
		for range 3 {
			if err := one.Observe(world{}.minute(150, one.Targets())); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestErrorNamesTheWrongSetting(t *testing.T) {
	for want, change := range map[string]func(*tower.Config){
		"tower SLO latency 0s: it must be above zero":                  func(c *tower.Config) { c.SLO = mdp.SLO{} },
		"tower bin of 0 requests per second: it must be in (0, 1e+09]": func(c *tower.Config) { c.BinRPS = 0 },
		"tower epsilon 2: it must be in [0, 1]":                        func(c *tower.Config) { c.Epsilon = 2 },
		"tower explore epsilon 2: it must be in [0, 1]":                func(c *tower.Config) { c.ExploreEpsilon = 2 },
		"tower uniform -1 minutes: it must be in [0, 1000000000]":      func(c *tower.Config) { c.Uniform = -1 },
		"tower explore -1 minutes: it must be in [0, 1000000000]":      func(c *tower.Config) { c.Explore = -1 },
		"tower grouping 0 minutes: it must be above zero":              func(c *tower.Config) { c.Grouping = 0 },
		"tower samples 0: it must be in [1, 1000000]":                  func(c *tower.Config) { c.Samples = 0 },
	} {
		c := config()
		change(&c)
		if err := c.Check(); err == nil || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
	if err := config().Check(); err != nil {
		t.Error(err)
	}
}

// A minute of a tower, in its first hours and after weeks. Compare with
// benchstat; the budget is 5 ms, for the 72 runs of 792 minutes of a tuning in bench.
func BenchmarkObserve(b *testing.B) {
	for _, c := range []struct {
		name  string
		loads int
		warm  int
	}{{"hours", 7, 240}, {"weeks", 40, 20_000}} {
		b.Run(c.name, func(b *testing.B) {
			quick := config()
			quick.Samples, quick.Uniform = 1, 30_000 // random all the way, to fill what it remembers
			tw, w := tower.New(quick, services, 1), world{}
			observe := func(i int) {
				if err := tw.Observe(w.minute(float64(100+20*(i%c.loads)), tw.Targets())); err != nil {
					b.Fatal(err)
				}
			}
			for i := range c.warm {
				observe(i)
			}
			state, err := tw.Encode()
			if err != nil {
				b.Fatal(err)
			}
			if tw, err = tower.Decode(config(), services, state); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				observe(i)
			}
			b.ReportMetric(float64(len(state)), "state-bytes")
		})
	}
}
