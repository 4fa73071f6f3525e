package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// kernel is one group that is always at work on something.
type kernel struct {
	cfs
	t      *testing.T
	now    time.Time
	demand float64 // cores that it could use
	waited time.Duration
}

// until works until a time, and writes what the kernel counts.
func (k *kernel) until(now time.Time) {
	k.t.Helper()
	k.hear(k.t)
	for ; k.now.Before(now); k.now = k.now.Add(ms) {
		wants := time.Duration(k.demand * float64(ms))
		if k.take(wants) < wants {
			k.waited += ms
		}
		k.pass()
	}
	k.count(k.t)
}

// looked is a Sampler at work on a kernel: samples each tenth of a second, and glances when they are due.
type looked struct {
	*kernel
	sampler *Sampler
	track   *Track
	glances int // between the last two samples, at most
	never   bool
	found   bool          // that it is relieved
	before  time.Duration // that it had waited then
}

// look makes a container whose target leaves room, with a ceiling of one core, at a random place in its period.
func look(t *testing.T, version cgroup.Version, rng *rand.Rand, limit mdp.MilliCPU, base float64) *looked {
	host := cgrouptest.Fixture(t, version)
	path := host.Parent + "/pod/c"
	top := limitsOf(mdp.Size{CPU: 1000})
	low := stretch(limit, 1000, top.Period, longest)
	host.Add(t, host.Parent+"/pod", top)
	host.Add(t, path, low)
	group, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sampler{tree: host.Tree}
	l := &looked{
		kernel:  &kernel{cfs: cfs{host: host, path: path}, t: t, now: time.Unix(1000, 0), demand: base},
		sampler: s,
		track:   s.Add(group),
	}
	l.left = microseconds(low.Period) - time.Duration(rng.IntN(int(microseconds(low.Period)/ms)))*ms
	t.Cleanup(func() { s.Remove(l.track) })
	s.Open(l.track, lane{has: low, top: top})
	return l
}

// tenth works for a tenth of a second, in which the demand changes after a time, and samples at its end.
func (l *looked) tenth(after time.Duration, demand float64) {
	l.t.Helper()
	begin := l.now
	change := begin.Add(after)
	end := begin.Add(tenth)
	n := 0
	for l.now.Before(end) {
		next := end
		if due := l.sampler.Due(); !l.never && !due.IsZero() && due.Before(end) {
			next = due.Truncate(ms).Add(ms) // a timer is never early
		}
		if l.now.Before(change) && change.Before(next) {
			l.until(change)
		}
		if !l.now.Before(change) {
			l.demand = demand
		}
		l.until(next)
		if next != end {
			n++
			l.sampler.Glance(l.now)
			l.note()
		}
	}
	l.glances = max(l.glances, n)
	l.sampler.Sample(l.now)
	l.note()
}

// note sets before, once it is relieved.
func (l *looked) note() {
	if !l.found && l.relieved() {
		l.found, l.before = true, l.waited
	}
}

func (l *looked) relieved() bool { return l.host.Limits(l.t, l.path).CPU() == 1000 }

// surge is a container that rests, and a burst.
type surge struct {
	version     cgroup.Version
	limit       mdp.MilliCPU
	base, burst float64 // cores
}

// waits is how long a burst waits that begins anywhere between two samples and anywhere in a period: until it is relieved, and
// then, where it is beneath the ceiling.
func (c surge) waits(t *testing.T, seed uint64, never bool) (waited, then time.Duration) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	l := look(t, c.version, rng, c.limit, c.base)
	l.never = never
	for range 30 {
		l.tenth(0, c.base)
	}
	if l.relieved() || l.waited > 0 {
		t.Fatalf("seed %d: steady use was relieved, or waited for %v", seed, l.waited)
	}
	l.tenth(time.Duration(rng.IntN(100))*ms, c.burst)
	for i := 0; !l.relieved(); i++ {
		if l.tenth(0, c.burst); i == 6 {
			t.Fatalf("seed %d: a burst of %v, and it is not relieved", seed, 600*ms)
		}
	}
	if l.glances > mostGlances+1 { // one more where the quota is filled up
		t.Errorf("seed %d: %d glances between two samples", seed, l.glances)
	}
	for range 5 {
		l.glances = 0
		if l.tenth(0, min(c.burst, 0.9)); l.glances > 1 {
			t.Errorf("seed %d: %d glances between two samples at what is relieved", seed, l.glances)
		}
	}
	if l.glances > 0 {
		t.Errorf("seed %d: %d glances at what was relieved long ago", seed, l.glances)
	}
	return l.before, l.waited - l.before
}

// A sample relieves a burst that has used its quota up before, and never leaves it to the end of a
// period: with a tenth of a second between samples none waits for longer. With glances most do not
// wait.
func TestABurstIsRelievedWhenItsQuotaIsUsedUp(t *testing.T) {
	for _, c := range []surge{
		{cgroup.V1, 230, 0.12, 0.9},
		{cgroup.V2, 230, 0.12, 0.9},
		{cgroup.V2, 390, 0.28, 0.9},
		{cgroup.V2, 390, 0.28, 2},
		{cgroup.V2, 130, 0.06, 0.9},
		{cgroup.V2, 600, 0.45, 1.5},
	} {
		t.Run(fmt.Sprintf("%v of %v, %v cores after %v", c.version, c.limit, c.burst, c.base), func(t *testing.T) {
			const bursts = 60
			var with, without, most, then time.Duration
			for seed := range uint64(bursts) {
				one, after := c.waits(t, seed, false)
				other, _ := c.waits(t, seed, true)
				with += one
				then = max(then, after)
				without += other
				most = max(most, one, other)
			}
			t.Logf("a burst waits for %v in the mean, %v without glances, %v at most; %v after its relief", with/bursts,
				without/bursts, most, then)
			if c.burst < 1 && then > 0 {
				t.Errorf("a burst within the ceiling waited for %v after its relief", then)
			}
			if most > tenth {
				t.Errorf("a burst waited for %v: longer than to the next sample", most)
			}
			if with > without/2 {
				t.Errorf("bursts wait for %v in the mean with glances, and for %v without", with/bursts, without/bursts)
			}
		})
	}
}

// A peak that is over before its quota is used up is looked at, and not relieved.
func TestAPeakWithinItsQuotaIsNotRelieved(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		l := look(t, cgroup.V2, rng, 230, 0.05)
		glanced := 0
		for i := range 100 {
			l.glances = 0
			if i%10 == 9 { // 40 ms of one core, and then as before
				begin := time.Duration(rng.IntN(60)) * ms
				l.now0(begin, 40*ms, 1, 0.05)
			} else {
				l.tenth(0, 0.05)
			}
			glanced += l.glances
			if l.relieved() {
				t.Fatalf("seed %d: relieved after %d tenths, waited for %v", seed, i, l.waited)
			}
		}
		if l.waited > 0 {
			t.Errorf("seed %d: a peak of 40 ms waited for %v", seed, l.waited)
		}
	}
}

// now0 is a tenth of a second with a peak in it.
func (l *looked) now0(begin, lasts time.Duration, demand, base float64) {
	l.t.Helper()
	from := l.now
	l.until(from.Add(begin))
	l.demand = demand
	l.until(from.Add(begin + lasts))
	l.demand = base
	l.until(from.Add(tenth))
	l.sampler.Sample(l.now)
}

// What somebody else sets meanwhile, and a lane that is shut, are respected by a glance as by a sample.
func TestAGlanceRespectsWhatASampleDoes(t *testing.T) {
	for name, meanwhile := range map[string]func(l *looked){
		"somebody else writes": func(l *looked) { l.host.Add(t, l.path, stretch(200, 1000, 100_000, longest)) },
		"the lane is shut":     func(l *looked) { l.sampler.Shut(l.track) },
		"it is removed":        func(l *looked) { l.sampler.Remove(l.track) },
	} {
		t.Run(name, func(t *testing.T) {
			l := look(t, cgroup.V2, rand.New(rand.NewPCG(1, 3)), 230, 0.12)
			l.t = t
			for range 30 {
				l.tenth(0, 0.12)
			}
			l.never = true
			l.tenth(60*ms, 0.9)
			due := l.sampler.Due()
			if due.IsZero() {
				t.Fatal("a surge, and no glance is due")
			}
			meanwhile(l)
			l.until(l.now.Add(90 * ms))
			l.sampler.Glance(l.now)
			if l.relieved() {
				t.Error("it was relieved")
			}
			if name == "it is removed" && !l.sampler.Due().IsZero() {
				t.Error("what is removed is looked at")
			}
		})
	}
}

// The agent glances when it is due, and does not wait for its next sample.
func TestAnAgentGlancesBetweenSamples(t *testing.T) {
	l := look(t, cgroup.V2, rand.New(rand.NewPCG(1, 4)), 230, 0.12)
	l.now = time.Now().Add(-31 * tenth)
	for range 30 {
		l.tenth(0, 0.12)
	}
	l.never = true
	if l.tenth(60*ms, 0.9); l.sampler.Due().IsZero() {
		t.Fatal("a surge, and no glance is due")
	}
	l.used += time.Hour // however late the glance comes, it is more than the quota of that time
	l.until(l.now.Add(ms))
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{config: Config{SampleEvery: time.Hour}, access: access{sampler: l.sampler, metrics: m}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		for ; ctx.Err() == nil && !l.sampler.Due().IsZero(); time.Sleep(ms) {
		}
		cancel()
	}()
	if a.sampleUntil(ctx); !l.relieved() {
		t.Error("a quota is used up, and nobody looked")
	}
}

// Most containers of a node do little nearly all the time: what they cost stays what it is. One that
// is busy is looked at once more, and one whose limit cannot be used up before the next sample is not.
func TestOnlyBusyContainersAreLookedAtTwiceAsOften(t *testing.T) {
	for name, c := range map[string]struct {
		limit mdp.MilliCPU
		base  float64
		want  int
	}{
		"busy":           {230, 0.12, 1},
		"hardly busy":    {60, 0.03, 0},
		"at its ceiling": {1000, 0.5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := look(t, cgroup.V2, rand.New(rand.NewPCG(1, 5)), c.limit, c.base)
			for range 15 {
				l.tenth(0, c.base)
			}
			for range 20 {
				l.glances = 0
				if l.tenth(0, c.base); l.glances != c.want {
					t.Fatalf("%d glances between two samples, want %d", l.glances, c.want)
				}
			}
		})
	}
}
