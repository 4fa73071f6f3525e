package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// What filling up relies on: a container that has used its quota up goes on at the next write of the same limit, while the period
// that it used it up in goes on.
func TestAWriteFillsTheQuotaUp(t *testing.T) {
	host := cgrouptest.Real(t)
	path := host.Parent + "/pod/c"
	limit := cgroup.Limits{Quota: 20_000, Period: 1_000_000}
	host.Add(t, host.Parent+"/pod", cgroup.Limits{})
	host.Add(t, path, limit)
	host.Start(t, path, cgrouptest.Burn)
	group, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	read := func() (c cgroup.CPU) {
		t.Helper()
		if err := group.ReadCPU(&c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// stands waits until it has hardly moved for some time: it is held, or the machine is busy. A thread on another CPU, whose
	// slice is not used up, may still do something now and then.
	stands := func() cgroup.CPU {
		is := read()
		for still := time.Now(); time.Since(still) < 50*ms; time.Sleep(5 * ms) {
			if next := read(); next.Usage-is.Usage > ms {
				is, still = next, time.Now()
			}
		}
		return is
	}
	const tries, writes = 50, 3 // a machine that is busy may take a whole period for a few
	quota := microseconds(limit.Quota)
	for range tries {
		for begun := read().Periods; read().Periods == begun; time.Sleep(5 * ms) {
		}
		before := stands()
		for range writes {
			if err := group.ReplaceCPU(limit, limit); err != nil {
				t.Fatal(err)
			}
			stands()
		}
		after := read()
		used := after.Usage - before.Usage
		if after.Periods != before.Periods || used < quota*3/2 { // more than there can have been left
			continue
		}
		if used > (writes+1)*quota*3/2 {
			t.Errorf("%d writes gave it %v, and its quota is %v", writes, used, quota)
		}
		return
	}
	t.Errorf("%d times %d writes, and none let it go on within the period", tries, writes)
}

// relieved is a container that was relieved from a limit in a long period a moment ago, and is full on.
func relieved(t *testing.T, version cgroup.Version) *looked {
	t.Helper()
	l := look(t, version, rand.New(rand.NewPCG(1, 6)), 230, 0.12)
	for range 30 {
		l.tenth(0, 0.12)
	}
	for i := 0; !l.relieved(); i++ {
		if l.tenth(0, 0.9); i == 6 {
			t.Fatal("a burst is not relieved")
		}
	}
	if l.sampler.Due().IsZero() {
		t.Fatal("the old period may go on for 0.3 s, and no refill is due")
	}
	return l
}

// Quotas are filled up once in each new period, until the old one must be over; and only where the limit is the one that was
// written.
func TestAQuotaIsFilledUpAsOftenAsItsPeriodBegins(t *testing.T) {
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		l := relieved(t, version)
		at := []time.Time{l.track.lane.news.at}
		for end := l.now.Add(time.Second); l.now.Before(end); {
			due := l.sampler.Due()
			if due.IsZero() {
				break
			}
			l.now = due
			l.sampler.Glance(due.Add(-ms))
			l.sampler.Glance(due)
			at = append(at, due)
		}
		for i := range len(at) - 1 {
			if d := at[i+1].Sub(at[i]); d < 100*ms {
				t.Errorf("%v: filled up twice in %v", version, d)
			}
		}
		if whole := at[len(at)-1].Sub(at[0]); len(at) < 4 || whole >= 400*ms {
			t.Errorf("%v: filled up %d times in %v", version, len(at)-1, whole)
		}
	}
}

// The step opens the lane anew each second, and may set another limit meanwhile: the old period goes on all the same.
func TestAQuotaIsFilledUpWhateverTheStepDoes(t *testing.T) {
	top := limitsOf(web)
	for name, meanwhile := range map[string]func(l *looked){
		"it opens the lane": func(l *looked) { l.sampler.Open(l.track, lane{has: top, top: top}) },
		"it sets less": func(l *looked) {
			l.sampler.Heard(l.track)
			l.sampler.Open(l.track, lane{has: top, top: top})
			if _, err := l.sampler.Set(l.track, cgroup.Limits{Quota: 90_000, Period: top.Period}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := relieved(t, cgroup.V2)
			l.t = t
			meanwhile(l)
			l.hear(t)
			due := l.sampler.Due()
			if due.IsZero() || due.Sub(l.now) > 200*ms {
				t.Fatalf("a refill is due in %v", due.Sub(l.now))
			}
			l.got = -1
			l.sampler.Glance(due)
			if l.hear(t); l.got == -1 {
				t.Error("it was not filled up")
			}
		})
	}
}

func TestNobodyElsesLimitIsFilledUp(t *testing.T) {
	for name, meanwhile := range map[string]func(l *looked){
		"somebody else writes": func(l *looked) { l.host.Add(t, l.path, cgroup.Limits{Quota: 33_000, Period: 100_000}) },
		"the same in another period": func(l *looked) {
			l.host.Add(t, l.path, cgroup.Limits{Quota: 200_000, Period: 200_000})
		},
		"it has no limit": func(l *looked) { l.host.Put(t, l.path, "cpu.max", "max 100000\n") },
		"it is removed":   func(l *looked) { l.sampler.Remove(l.track) },
		"it is taken back": func(l *looked) {
			if !l.track.lower(l.now, stretch(230, 1000, 100_000, longest)) {
				t.Error("it could not be taken back")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := relieved(t, cgroup.V2)
			l.t = t
			meanwhile(l)
			l.hear(t)
			for range 5 {
				l.now = l.now.Add(tenth)
				l.sampler.Glance(l.now)
			}
			l.got = -1
			if l.hear(t); l.got != -1 {
				t.Errorf("%+v was written again", l.limit)
			}
			if due := l.sampler.Due(); !due.IsZero() {
				t.Error("a refill is due")
			}
		})
	}
}

// The step's own writes are followed as relief is: directly, or by the container runtime.
func TestWhatTheStepRaisesIsFilledUp(t *testing.T) {
	low, more := stretch(230, 1000, 100_000, longest), stretch(600, 1000, 100_000, longest)
	for name, raise := range map[string]func(l *looked){
		"directly": func(l *looked) {
			if relieved, err := l.sampler.Set(l.track, more); relieved || err != nil {
				t.Fatal(relieved, err)
			}
		},
		"by the runtime": func(l *looked) {
			l.sampler.Expect(l.track, more)
			l.host.Add(t, l.path, more)
			l.sampler.Open(l.track, lane{has: more, top: limitsOf(web)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := look(t, cgroup.V2, rand.New(rand.NewPCG(1, 7)), 230, 0.01) // too little to be looked at for itself
			for range 3 {
				l.tenth(0, 0.01)
			}
			if !l.sampler.Due().IsZero() {
				t.Fatal("a refill is due, and nothing was written")
			}
			raise(l)
			l.hear(t)
			n := 0
			for due := l.sampler.Due(); !due.IsZero(); due = l.sampler.Due() {
				if n++; due.Before(l.now.Add(microseconds(more.Period))) || n > 3 {
					t.Fatalf("refill %d is due %v after the last sample", n, due.Sub(l.now))
				}
				l.got = -1
				l.sampler.Glance(due)
				if l.hear(t); l.got == -1 {
					t.Fatal("it was not filled up")
				}
			}
			if want := int((low.Period - 1) / more.Period); n != want {
				t.Errorf("%d refills of a limit in %d us, in what was left of %d us: want %d", n, more.Period, low.Period, want)
			}
		})
	}
}
