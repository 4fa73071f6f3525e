package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// result is the last line.
type result struct {
	Pods       int     `json:"pods"`
	Containers int     `json:"containers"`
	Observed   int     `json:"containers_observed"` // by the installed agent
	Settled    int     `json:"containers_settled"`  // below lowShare of their ceilings, when the measurement began
	UnsettledS float64 `json:"unsettled_s"`         // the age of the oldest limit that the runtime did not know then
	Cgroup     string  `json:"cgroup"`              // v1 or v2
	Host       host    `json:"host"`

	// What the installed agent costs, over MeasuredS.
	MeasuredS     float64 `json:"measured_s"`
	HostBusy      float64 `json:"host_busy"` // share of all cores, the cluster included
	CPUMillicores float64 `json:"cpu_millicores"`
	// A piece of work that is always the same took that many times its least CPU time in the mean (see package pace). In FastS of
	// the seconds the machine was as fast as it can be, and the agent used FastMillicores.
	Slowdown       *float64 `json:"machine_slowdown"` // nil: not known
	FastS          float64  `json:"fast_s"`
	FastMillicores *float64 `json:"fast_cpu_millicores"` // nil: there were no such seconds

	RSSMiB       float64 `json:"rss_mib"`      // the most that was seen
	RSSFileMiB   float64 `json:"rss_file_mib"` // of the last reading: pages of the binary
	RSSAnonMiB   float64 `json:"rss_anon_mib"` // of the last reading
	HeapMiB      float64 `json:"heap_mib"`     // of the last reading, before the next collection
	RSS          trend   `json:"rss_trend_mib"`
	Goroutines   trend   `json:"goroutines_trend"`
	SampleUS     float64 `json:"sample_us"`          // mean time of one loop over all containers
	ResizesPerS  float64 `json:"resizes_per_s"`      // that came into force by the steps
	CallsPerS    float64 `json:"calls_per_s"`        // of the container runtime, for changes
	UncommittedS float64 `json:"uncommitted_s_most"` // the age of the oldest limit that the runtime did not know
	ReliefsPerS  float64 `json:"reliefs_per_s"`
	BreakerOpen  bool    `json:"breaker_open"` // at the end: the runtime was too slow, and is spared

	Quiet relief `json:"quiet"`
	Hogs  relief `json:"hogs"`

	// The kernel's own time for one write of a limit: L0 cannot be faster.
	BareWriteP50US float64 `json:"bare_write_p50_us"`
	BareWriteP99US float64 `json:"bare_write_p99_us"`
	// And for one read of a control file.
	BareReadUS float64 `json:"bare_read_us"`

	AllocsPerLoop float64 `json:"allocs_per_loop"`
	L1P50MS       float64 `json:"l1_p50_ms"`
	BareCRIP50MS  float64 `json:"bare_cri_p50_ms"`
	L1OverBareCRI float64 `json:"l1_over_bare_cri"`
	L1Samples     int     `json:"l1_samples"` // of each of the two

	Missed   []string `json:"missed"`             // bars
	Problems []string `json:"problems,omitempty"` // measurements that failed
}

// relief is what was measured of a number of bursts.
type relief struct {
	Bursts   int     `json:"bursts"`
	HostBusy float64 `json:"host_busy"`
	// From the sampler's decision to the return of the write, by the agent's own histogram:
	// the upper bound of the bucket.
	L0Samples int     `json:"l0_samples"`
	L0P50US   float64 `json:"l0_p50_us"`
	L0P99US   float64 `json:"l0_p99_us"`
	// One write of a limit by this process, meanwhile.
	BareP50US float64 `json:"bare_write_p50_us"`
	BareP99US float64 `json:"bare_write_p99_us"`
	// From the end of the first throttled period to the raised limit, as seen from outside;
	// never too short.
	Throttled int     `json:"throttled"` // bursts that were
	Raised    int     `json:"raised"`    // of them, within two seconds
	P50MS     float64 `json:"relief_p50_ms"`
	P99MS     float64 `json:"relief_p99_ms"`
	MaxMS     float64 `json:"relief_max_ms"`
	// From the begin of each burst to the raised limit, throttled or not, as seen from outside;
	// at most 2000, which is also what a burst without a raise counts as.
	WaitedP50MS float64 `json:"burst_to_limit_p50_ms"`
	WaitedP99MS float64 `json:"burst_to_limit_p99_ms"`
	GapP99MS    float64 `json:"look_gap_p99_ms"` // between two looks from outside
}

// trend is how a figure changed over the run.
type trend struct {
	Samples int     `json:"samples"`
	First   float64 `json:"first_third"` // the median
	Last    float64 `json:"last_third"`  // the median
	Growth  float64 `json:"growth"`      // Last over First, minus 1
}

// maxGrowth is what is not growth: the heap is collected at twice what is live, and a third of
// the run has a few collections only.
const maxGrowth = 0.05

func trendOf(values []float64) trend {
	t := trend{Samples: len(values)}
	if third := len(values) / 3; third > 0 {
		t.First, t.Last = median(values[:third]), median(values[len(values)-third:])
		t.Growth = t.Last/t.First - 1
	}
	return t
}

// host is the machine.
type host struct {
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
}

func describeHost() host {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // it is for people only
	return host{Cores: runtime.NumCPU(), Kernel: string(bytes.TrimSpace(release))}
}

// bar is what a figure must be at most.
type bar struct {
	name  string
	is    float64
	most  float64
	unit  string
	known bool
}

// waitBar is a period of the kubelet's, at whose end throttling shows, and the 150 ms from there.
// It has no twin beside hogs: there a burst may wait for a CPU, and not for its limit.
const waitBar = 250

func (r *result) bars() []bar {
	return []bar{
		{"the agent's CPU", r.CPUMillicores, 20, "millicores", true},
		{"its resident memory", r.RSSMiB, 40, "MiB", true},
		{"growth of its memory", r.RSS.Growth, maxGrowth, "of the first third", r.RSS.Samples > 0},
		{"growth of its goroutines", r.Goroutines.Growth, maxGrowth, "of the first third", r.Goroutines.Samples > 0},
		{"allocations of one sampling loop", r.AllocsPerLoop, 0, "", true},
		{"L0, median, quiet", r.Quiet.L0P50US, 50, "us", r.Quiet.L0Samples > 0},
		{"L0, 99th percentile, quiet", r.Quiet.L0P99US, 500, "us", r.Quiet.L0Samples > 0},
		{"L0, 99th percentile, beside hogs", r.Hogs.L0P99US, 5000, "us", r.Hogs.L0Samples > 0},
		{"relief, 99th percentile, quiet", r.Quiet.P99MS, 150, "ms", r.Quiet.Throttled > 0},
		{"relief, 99th percentile, beside hogs", r.Hogs.P99MS, 150, "ms", r.Hogs.Throttled > 0},
		{"burst to limit, 99th percentile, quiet", r.Quiet.WaitedP99MS, waitBar, "ms", r.Quiet.Bursts > 0},
		{"L1 over the bare runtime's call", r.L1OverBareCRI, 1.3, "", r.L1Samples > 0},
	}
}

// judge names the bars that were missed. What was not measured has missed its bar.
func (r *result) judge() {
	r.Missed = []string{}
	for _, b := range r.bars() {
		if !b.known {
			r.Missed = append(r.Missed, b.name+": not measured")
		} else if b.is > b.most {
			r.Missed = append(r.Missed, strings.TrimSpace(fmt.Sprintf("%s: %.3g, at most %.3g %s", b.name, b.is, b.most, b.unit)))
		}
	}
}

func (r *result) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "WHAT\tMEASURED\tAT MOST\tUNIT")
	for _, b := range r.bars() {
		is := fmt.Sprintf("%.3g", b.is)
		if !b.known {
			is = "not measured"
		}
		fmt.Fprintf(t, "%s\t%s\t%.3g\t%s\n", b.name, is, b.most, b.unit)
	}
}

func median[T ~int64 | ~float64](values []T) T { return percentile(values, 50) }

// percentile is the smallest value that so many percent of the values do not exceed.
func percentile[T ~int64 | ~float64](values []T, percent int) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func ms(d time.Duration) float64 { return float64(d.Round(time.Microsecond)) / 1e6 }

// busy measures how busy the machine is, with everything that runs on it.
type busy struct{ idle, all uint64 }

func newBusy() busy {
	var b busy
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return b
	}
	// cpu user nice system idle iowait irq softirq steal; proc(5).
	var n [8]uint64
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6],
		&n[7]); err != nil {
		return b
	}
	for _, v := range n {
		b.all += v
	}
	b.idle = n[3] + n[4]
	return b
}

// share is how busy it was since then: 0 to 1, or -1 when that is not known.
func (b busy) share() float64 {
	now := newBusy()
	if now.all <= b.all {
		return -1
	}
	return 1 - float64(now.idle-b.idle)/float64(now.all-b.all)
}

// schedule says what is done, and how long all of it still takes.
type schedule struct {
	left []time.Duration
}

// schedule is how long each step takes on two cores, in their order.
func (s *settings) schedule() schedule {
	bursts := time.Duration(s.bursts) * burstEvery
	return schedule{[]time.Duration{
		4 * time.Minute, 3 * time.Minute, s.measure, bursts, bursts + 30*time.Second, time.Minute,
		30*time.Second + time.Duration(s.rounds)*100*time.Millisecond,
	}}
}

func (s *schedule) begin(what string) {
	var left time.Duration
	for _, d := range s.left {
		left += d
	}
	if len(s.left) > 0 {
		s.left = s.left[1:]
	}
	say("%s %s; all is done in about %v", time.Now().Format(time.TimeOnly), what, left.Round(time.Minute))
}
