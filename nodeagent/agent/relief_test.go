package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// burning is real groups whose processes use all CPU that they get, and a sampler that may
// raise their limits.
type burning struct {
	host    *cgrouptest.Host
	sampler *Sampler
	paths   []string
	tracks  []*Track
	mu      sync.Mutex
	l0      []time.Duration // of each raise
}

var (
	lowLimit = limitsOf(mdp.Size{CPU: 20})
	topLimit = limitsOf(mdp.Size{CPU: 60})
)

func burn(tb testing.TB, n int) *burning {
	tb.Helper()
	b := &burning{host: cgrouptest.Real(tb)}
	b.sampler = &Sampler{tree: b.host.Tree, relieved: func(took time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.l0 = append(b.l0, took)
	}}
	for i := range n {
		path := fmt.Sprintf("%s/pod%d/c", b.host.Parent, i)
		b.host.Add(tb, fmt.Sprintf("%s/pod%d", b.host.Parent, i), cgroup.Limits{})
		b.host.Add(tb, path, topLimit)
		group, err := b.host.Tree.Group(path)
		if err != nil {
			tb.Fatal(err)
		}
		track := b.sampler.Add(group)
		b.paths, b.tracks = append(b.paths, path), append(b.tracks, track)
		b.host.Start(tb, path, cgrouptest.Burn)
	}
	tb.Cleanup(func() {
		for _, track := range b.tracks {
			b.sampler.Remove(track)
		}
	})
	return b
}

// lower is what a step does after a burst.
func (b *burning) lower(tb testing.TB, i int) {
	tb.Helper()
	b.shut(tb, i)
	b.open(i)
}

// shut writes the low limit, which stays until [burning.open].
func (b *burning) shut(tb testing.TB, i int) {
	tb.Helper()
	b.sampler.Shut(b.tracks[i])
	if err := b.host.Tree.Write(b.paths[i], lowLimit); err != nil {
		tb.Fatal(err)
	}
	b.sampler.Heard(b.tracks[i])
}

func (b *burning) open(i int) { b.sampler.Open(b.tracks[i], lane{has: lowLimit, top: topLimit}) }

// The counter is read by somebody else just before the sample. What it shows then is answered in
// that sample, at whatever time it comes.
func TestThrottledPeriodsAreAnsweredByTheNextSample(t *testing.T) {
	const samples = 60
	b := burn(t, 4)
	before := make([]uint64, len(b.paths))
	counted := func(i int) uint64 {
		t.Helper()
		g, err := b.host.Tree.Group(b.paths[i])
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		var c cgroup.CPU
		if err := g.ReadCPU(&c); err != nil {
			t.Fatal(err)
		}
		return c.ThrottledPeriods
	}
	b.sampler.Sample(time.Now())
	for i := range b.paths {
		b.lower(t, i)
		before[i] = counted(i)
	}
	shown, answered := 0, 0
	for range samples {
		time.Sleep(100 * time.Millisecond)
		throttled := make([]bool, len(b.paths))
		for i := range b.paths {
			throttled[i] = counted(i) > before[i]
		}
		b.sampler.Sample(time.Now())
		for i, path := range b.paths {
			raised := b.host.Limits(t, path).SameCPU(topLimit)
			if throttled[i] {
				shown++
			}
			if throttled[i] && raised {
				answered++
			}
			if raised {
				b.lower(t, i)
			}
			before[i] = counted(i)
		}
	}
	t.Logf("%d throttled periods were shown before a sample, and %d answered by it", shown, answered)
	if shown < samples/2 {
		t.Errorf("only %d throttled periods in %d samples of %d containers: nothing is shown", shown, samples, len(b.paths))
	}
	if answered*100 < shown*99 {
		t.Errorf("%d of %d throttled periods were answered by the next sample", answered, shown)
	}
}

// BenchmarkRelief is how long a container waits for relief on this machine: ten samples a second
// of 110 pods with two containers each, one of which is throttled. It prints, in milliseconds and
// microseconds, the time from the end of the throttled period to the larger limit as somebody
// else sees it, and L0, from the sampler's decision to the return of the write. Compare quiet
// with hogs, of one run.
func BenchmarkRelief(b *testing.B) {
	for _, hogs := range []int{0, 2 * runtime.NumCPU()} {
		name := "quiet"
		if hogs > 0 {
			name = "hogs"
		}
		b.Run(name, func(b *testing.B) {
			r := burn(b, 1)
			for i := range 2*110 - 1 {
				path := fmt.Sprintf("%s/idle%d/c%d", r.host.Parent, i/2, i%2)
				r.host.Add(b, path, topLimit)
				group, err := r.host.Tree.Group(path)
				if err != nil {
					b.Fatal(err)
				}
				r.tracks = append(r.tracks, r.sampler.Add(group))
			}
			r.host.Add(b, r.host.Parent+"/hogs", cgroup.Limits{})
			for range hogs {
				r.host.Start(b, r.host.Parent+"/hogs", cgrouptest.Burn)
			}
			ctx, cancel := context.WithCancel(b.Context())
			// Samples and CFS periods are as long as each other. So each burst gets another
			// phase, and the samples before it do not count.
			shift := make(chan time.Duration)
			var sampling sync.WaitGroup
			defer sampling.Wait()
			defer cancel()
			sampling.Go(func() {
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					select {
					case by := <-shift:
						time.Sleep(by)
						tick.Reset(100 * time.Millisecond)
						r.sampler.Sample(time.Now())
						shift <- 0
					case <-tick.C:
					}
					r.sampler.Sample(time.Now())
				}
			})
			phases := rand.New(rand.NewPCG(1, 1))
			var took []time.Duration
			for b.Loop() {
				// The lane opens when the watcher has seen the low limit, however late that is.
				r.shut(b, 0)
				shift <- time.Duration(phases.IntN(100)) * time.Millisecond
				<-shift
				within, done := context.WithTimeout(ctx, 30*time.Second)
				one, err := cgrouptest.Watch(within, r.host.Tree, r.paths[0], func() { r.open(0) })
				done()
				if err != nil || !one.Raised {
					b.Fatalf("%+v, %v", one, err)
				}
				if one.Throttled {
					took = append(took, one.Took)
				}
			}
			report := func(unit string, per time.Duration, values []time.Duration) {
				slices.Sort(values)
				if n := len(values); n > 0 {
					b.ReportMetric(float64(values[n/2])/float64(per), unit+"-p50")
					b.ReportMetric(float64(values[(99*n+99)/100-1])/float64(per), unit+"-p99")
				}
			}
			report("relief-ms", time.Millisecond, took)
			r.mu.Lock()
			defer r.mu.Unlock()
			report("L0-us", time.Microsecond, r.l0)
		})
	}
}
