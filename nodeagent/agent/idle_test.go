package agent

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
)

// node is some containers of one pod in virtual time, with a sampler and nothing else.
type node struct {
	t       *testing.T
	host    *cgrouptest.Host
	sampler *Sampler
	tracks  []*Track
	workers []*cgrouptest.Worker
	paths   []string
	now     time.Time
}

// newNode makes a pod with n containers of 100m, which may be raised to 400m.
func newNode(t *testing.T, host *cgrouptest.Host, n int) *node {
	t.Helper()
	d := &node{t: t, host: host, sampler: &Sampler{tree: host.Tree}, now: noon}
	for i := range n {
		d.add(fmt.Sprintf("%s/burstable/podu/c%d", host.Parent, i))
	}
	t.Cleanup(func() {
		for _, track := range d.tracks {
			d.sampler.Remove(track)
		}
	})
	return d
}

func (d *node) add(path string) {
	d.t.Helper()
	low := limitsOf(mdp.Size{CPU: 100, Memory: web.Memory})
	d.host.Add(d.t, path, low)
	group, err := d.host.Tree.Group(path)
	if err != nil {
		d.t.Fatal(err)
	}
	track := d.sampler.Add(group)
	d.sampler.Open(track, lane{has: low, top: limitsOf(mdp.Size{CPU: 400})})
	d.tracks = append(d.tracks, track)
	d.paths = append(d.paths, path)
	d.workers = append(d.workers, &cgrouptest.Worker{Memory: 20 * mdp.MiB})
}

// tick is a tenth of a second. It returns which containers were read.
func (d *node) tick() (read []bool) {
	d.t.Helper()
	d.now = d.now.Add(100 * time.Millisecond)
	for i, w := range d.workers {
		if w.Demand > 0 {
			w.Work(d.t, d.host, d.paths[i])
		}
	}
	d.sampler.Sample(d.now)
	for _, track := range d.tracks {
		read = append(read, track.readAt.Equal(d.now))
	}
	return read
}

func (d *node) limit(i int) mdp.MilliCPU { return d.host.Limits(d.t, d.paths[i]).CPU() }

// fixtures runs a test on a fixture of each version.
func fixtures(t *testing.T, run func(*testing.T, *cgrouptest.Host)) {
	t.Helper()
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) { run(t, cgrouptest.Fixture(t, version)) })
	}
}

// An hour of nothing costs one file of the pod for each sample. When the pod runs, its
// containers are read in the same sample, and each throttled period is answered in the sample
// that follows it, also the first one after the hour.
func TestWhatDoesNothingIsNotReadAndABurstIsRelievedAllTheSame(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 2)
		reads := 0
		for range 600 {
			for _, read := range d.tick() {
				if read {
					reads++
				}
			}
		}
		if reads > 2*5 {
			t.Errorf("two containers that do nothing were read %d times in a minute", reads)
		}
		d.workers[1].Demand = 50 // below its limit
		if read := d.tick(); !read[0] || !read[1] {
			t.Errorf("the pod has run, and read are %v", read)
		}
		d.workers[1].Demand = 5000
		for d.limit(1) == 100 {
			before := d.tracks[1].back(0).ThrottledPeriods
			d.tick()
			if shown := d.tracks[1].throttled() || d.tracks[1].full(); shown != (d.limit(1) == 400) {
				t.Fatalf("from %d to %d throttled periods, and the limit is %v", before,
					d.tracks[1].back(0).ThrottledPeriods, d.limit(1))
			}
		}
		if d.limit(0) != 100 {
			t.Errorf("the other container has %v", d.limit(0))
		}
	})
}

// A container that ran too long pays in the periods after it: they are throttled, and it does
// not run in them. The first of them ends at most a period after it ran.
func TestThrottledPeriodsWithoutCPUTimeAreSeen(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		for quiet := range 2 { // samples between its last CPU time and the first throttled period
			d := newNode(t, host, 1)
			d.workers[0].Demand = 90
			d.tick()
			d.tick()
			d.workers[0].Demand = 0
			for range quiet {
				d.tick()
			}
			throttle(t, host, d.paths[0], 1)
			if d.tick(); d.limit(0) != 400 {
				t.Errorf("%d samples after its last CPU time a period is throttled, and the limit is %v", quiet, d.limit(0))
			}
			for n := 2; n < 12; n++ {
				throttle(t, host, d.paths[0], n)
				d.tick()
				if got := d.tracks[0].back(0).ThrottledPeriods; got != uint64(n) {
					t.Fatalf("%d throttled periods in a row, and %d are seen", n, got)
				}
			}
		}
	})
}

// throttle sets the counter of throttled periods of a fixture's group, and nothing else.
func throttle(t *testing.T, host *cgrouptest.Host, path string, n int) {
	t.Helper()
	g, err := host.Tree.Group(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	used, _, err := g.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	cfs := fmt.Sprintf("nr_periods 100\nnr_throttled %d\n", n)
	if host.Tree.Version() == cgroup.V2 {
		host.Put(t, path, "cpu.stat", fmt.Sprintf("usage_usec %d\n%sthrottled_usec 0\n", used.Microseconds(), cfs))
		return
	}
	host.Put(t, path, "cpu/cpu.stat", cfs+"throttled_time 0\n")
}

// After it has run a container is read as long as one of its periods can be throttled, and once
// more when the last one has ended. One that used little is read only then.
func TestWhatCannotBeThrottledIsReadOnceMore(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		for demand, want := range map[mdp.MilliCPU]int{10: 1, 150: 1, 950: 8} {
			d := newNode(t, host, 1)
			d.limited(0, stretch(250, 1000, 100_000, longest)) // 100 ms in each 400 ms
			for range 20 {
				d.tick()
			}
			d.workers[0].Demand = demand
			if read := d.tick(); !read[0] {
				t.Fatal("it has run, and was not read")
			}
			d.workers[0].Demand = 0
			reads := 0
			for range 30 {
				if d.tick()[0] {
					reads++
				}
			}
			if cpus > 8 {
				want = 8 // what the kernel hands out in advance is all of the quota
			}
			if reads != want {
				t.Errorf("it used %v for a tenth of a second, and was read %d times after that, want %d", demand, reads, want)
			}
			d.sampler.Remove(d.tracks[0])
		}
	})
}

// A limit may be another one than at the last look: what the step has set since, or is setting now,
// counts as well. The container is read as long as a period of any of them can be throttled.
func TestAContainerIsReadForEachLimitThatItMayHave(t *testing.T) {
	low, high := stretch(250, 1000, 100_000, longest), limitsOf(mdp.Size{CPU: 4000})
	for name, place := range map[string]func(*node){
		"at the last look": func(d *node) { d.tracks[0].limits = low },
		"set since":        func(d *node) { d.sampler.Open(d.tracks[0], lane{has: low, top: high}) },
		"being set":        func(d *node) { d.sampler.Expect(d.tracks[0], low) },
	} {
		t.Run(name, func(t *testing.T) {
			fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
				d := newNode(t, host, 1)
				d.limited(0, high)
				place(d)
				for range 20 {
					d.tick()
				}
				d.workers[0].Demand = 950
				d.tick()
				d.workers[0].Demand = 0
				reads := 0
				for range 30 {
					if d.tick()[0] {
						reads++
					}
				}
				if reads != 8 {
					t.Errorf("it used 95 ms of 100 ms in each 400 ms, and was read %d times after that, want 8", reads)
				}
			})
		})
	}
}

// It pays for long ago, and its neighbour has just run: it is read, although it has used nothing in two
// periods.
func TestWhatIsThrottledIsReadAlsoWhenItsPodDoesNothing(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 2)
		d.limited(0, limitsOf(mdp.Size{CPU: 400}))
		d.workers[0].Demand = 400
		d.tick()
		d.workers[0].Demand = 0
		d.workers[1].Demand = 10
		for n := 1; n < 12; n++ {
			if n == 3 {
				d.workers[1].Demand = 0
			}
			throttle(t, host, d.paths[0], n)
			d.tick()
			if got := d.tracks[0].back(0).ThrottledPeriods; got != uint64(n) {
				t.Fatalf("%d throttled periods in a row, and %d are seen", n, got)
			}
		}
	})
}

// limited gives a container another limit, which is ours and its ceiling.
func (d *node) limited(i int, l cgroup.Limits) {
	d.t.Helper()
	l.Memory = web.Memory
	d.host.Add(d.t, d.paths[i], l)
	d.sampler.Open(d.tracks[i], lane{has: l, top: l})
	d.tracks[i].limits = l
}

// The policies get what they would get if every file were read in every sample: the twin has a
// pod of its own for each container, whose CPU time cannot be read.
func TestSamplesAreTheSameAsIfEveryFileWereRead(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 3)
		twin := &Sampler{tree: host.Tree}
		var twins []*Track
		for _, path := range d.paths {
			group, err := host.Tree.Group(path)
			if err != nil {
				t.Fatal(err)
			}
			track := twin.Add(group)
			defer twin.Remove(track)
			track.pod = &sharedGroup{path: filepath.Dir(path), tracks: 1}
			twins = append(twins, track)
		}
		demand := []mdp.MilliCPU{0, 0, 30, 90, 0, 0, 0, 0, 0, 0, 10, 0, 70}
		skipped := 0
		for i := range 400 {
			for j, w := range d.workers {
				w.Demand = demand[(i/(3+j)+5*j)%len(demand)]
				if i/100 == 2 {
					w.Demand = 0
				}
			}
			for _, read := range d.tick() {
				if !read {
					skipped++
				}
			}
			twin.Sample(d.now)
			if i%10 != 9 {
				continue
			}
			for j := range d.tracks {
				got, _, _, err := d.sampler.Look(d.tracks[j], d.now)
				if err != nil {
					t.Fatal(err)
				}
				twins[j].still = false // nor does it leave out memory, I/O and stalls
				want, _, _, err := twin.Look(twins[j], d.now)
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Fatalf("after %d samples container %d is\n%+v, and if all is read\n%+v", i+1, j, got, want)
				}
			}
		}
		if skipped < 200 {
			t.Errorf("only %d of 1200 readings were left out: nothing is shown", skipped)
		}
	})
}

// A pod that runs all the time is not looked at before its containers, which are read in any
// case.
func TestAPodThatRunsAllTheTimeIsNotLookedAtFirst(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	d.workers[0].Demand = 50
	looks := 0
	for range 200 {
		if read := d.tick(); !read[0] {
			t.Fatal("a container that runs was not read")
		}
		if d.tracks[0].pod.readAt.Equal(d.now) {
			looks++
		}
	}
	if looks > 40 {
		t.Errorf("%d looks at the pod in 200 samples", looks)
	}
	d.workers[0].Demand = 0
	for range 50 {
		d.tick()
	}
	if read := d.tick(); read[0] {
		t.Error("it does nothing any more, and is read five seconds later")
	}
}

// A pod that runs now and then, however often, is looked at first each time.
func TestAPodThatRunsNowAndThenIsLookedAtFirst(t *testing.T) {
	d := newNode(t, cgrouptest.Fixture(t, cgroup.V2), 1)
	for i := range 200 {
		d.workers[0].Demand = 0
		if i%3 == 0 {
			d.workers[0].Demand = 50
		}
		if d.tick(); !d.tracks[0].pod.readAt.Equal(d.now) {
			t.Fatalf("sample %d has no look at the pod", i)
		}
	}
}

// A container that does nothing is left alone while another one of its pod runs, all the time or now and
// then. What it does itself is noticed at once.
func TestAContainerIsQuietWhileItsNeighbourRuns(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		for name, every := range map[string]int{"all the time": 1, "now and then": 7} {
			d := newNode(t, host, 2)
			run := func(ticks int) {
				for i := range ticks {
					d.workers[0].Demand = 0
					if i%every == 0 {
						d.workers[0].Demand = 50
					}
					d.tick()
				}
			}
			run(50)
			since := d.now
			run(20)
			if d.tracks[0].quiet(d.now, since) || !d.tracks[1].quiet(d.now, since) {
				t.Errorf("%s: the one that runs is quiet: %v; the other one: %v", name,
					d.tracks[0].quiet(d.now, since), d.tracks[1].quiet(d.now, since))
			}
			if d.tracks[1].quiet(d.now.Add(restLook), since) {
				t.Errorf("%s: nobody has looked for five seconds, and it is quiet", name)
			}
			d.workers[1].Demand = 10
			run(1)
			d.workers[1].Demand = 0
			if run(9); d.tracks[1].quiet(d.now, since) {
				t.Errorf("%s: it has run, and is quiet", name)
			}
			for _, track := range d.tracks {
				d.sampler.Remove(track)
			}
		}
	})
}

// What somebody else does to a container that does nothing is seen all the same: its limits
// each time, and its memory within five seconds.
func TestLimitsAndMemoryOfWhatDoesNothingAreLookedAt(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		look := func() (mdp.State, cgroup.Limits) {
			t.Helper()
			for range 10 {
				d.tick()
			}
			s, l, _, err := d.sampler.Look(d.tracks[0], d.now)
			if err != nil {
				t.Fatal(err)
			}
			return s, l
		}
		for i := range 4 {
			if s, _ := look(); s.Knows(mdp.OOMKills) != (i > 0) {
				t.Errorf("look %d: kills are known %v", i, s.Knows(mdp.OOMKills))
			}
		}
		if !d.tracks[0].rested(d.now.Add(time.Second / 10)) {
			t.Fatal("it does nothing, and all is read")
		}
		if d.tracks[0].rested(d.now.Add(time.Second)) {
			t.Error("nobody has looked at the pod for a second, and nothing is read")
		}
		for !d.tracks[0].usageAt.Equal(d.now) {
			look()
		}
		if d.tracks[0].rested(d.now.Add(time.Second / 10)) {
			t.Error("nobody has looked at the pod since it was read, and nothing is read")
		}
		host.Add(t, d.paths[0], limitsOf(mdp.Size{CPU: 250, Memory: 99 * mdp.MiB}))
		if s, l := look(); l.CPU() != 250 || l.Memory != 99*mdp.MiB || s.Limit != (mdp.Size{CPU: 250, Memory: 99 * mdp.MiB}) {
			t.Errorf("limits %+v, state %v", l, s.Limit)
		}
		host.Add(t, d.paths[0], limitsOf(mdp.Size{CPU: 250, Memory: 88 * mdp.MiB}))
		if _, l := look(); l.Memory != 88*mdp.MiB || l.CPU() != 250 {
			t.Errorf("only the memory limit is another one: %+v", l)
		}
		file := "memory/memory.usage_in_bytes"
		if host.Tree.Version() == cgroup.V2 {
			file = "memory.current"
		}
		host.Put(t, d.paths[0], file, fmt.Sprintln(int64(33*mdp.MiB)))
		var s mdp.State
		for range 6 {
			s, _ = look()
		}
		if s.Usage.Memory != 33*mdp.MiB {
			t.Errorf("six seconds later the memory in use is %v", s.Usage.Memory)
		}
		for _, signal := range []mdp.Signal{mdp.OOMKills, mdp.IORate} {
			if v, known := signal.Get(&s); !known || v != 0 {
				t.Errorf("%v: %v, known %v; nothing happened, and that is known", signal, v, known)
			}
		}
	})
}

// What was read in the last second of a container's work is not said of the seconds after it.
func TestARateIsNotRepeatedWhenTheWorkHasEnded(t *testing.T) {
	fixtures(t, func(t *testing.T, host *cgrouptest.Host) {
		d := newNode(t, host, 1)
		written := 0
		look := func(bytes int) mdp.Rate {
			t.Helper()
			written += bytes
			if host.Tree.Version() == cgroup.V2 {
				host.Put(t, d.paths[0], "io.stat", fmt.Sprintf("8:0 rbytes=0 wbytes=%d rios=0 wios=1 dbytes=0 dios=0\n", written))
			} else {
				host.Put(t, d.paths[0], "blkio/blkio.throttle.io_service_bytes",
					fmt.Sprintf("8:0 Read 0\n8:0 Write %d\nTotal %d\n", written, written))
			}
			for range 10 {
				d.tick()
			}
			s, _, _, err := d.sampler.Look(d.tracks[0], d.now)
			if err != nil {
				t.Fatal(err)
			}
			rate, known := mdp.IORate.Get(&s)
			if !known && written > 0 {
				t.Fatal("the rate is not known")
			}
			return mdp.Rate(rate)
		}
		look(0)
		d.workers[0].Demand = 50
		for i, step := range []struct{ bytes, want int }{{4096, 4096}, {0, 0}, {8192, 8192}} {
			if got := look(step.bytes); got != mdp.Rate(step.want) {
				t.Errorf("second %d: %v bytes a second, want %d", i, got, step.want)
			}
		}
		d.workers[0].Demand = 0
		for i := range 8 { // the kernel may write what it did later
			want := mdp.Rate(0)
			bytes := 0
			if i == 0 {
				bytes, want = 4096, 4096
			}
			if got := look(bytes); got != want {
				t.Errorf("%d s after its work: %v bytes a second, want %v", i, got, want)
			}
		}
	})
}
