package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/test/perf/pace"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
)

const (
	// lookEvery is how often the agent's memory is read.
	lookEvery = 5 * time.Second
	// scrapeEvery is how often its metrics are read, as a Prometheus server does. What that
	// costs the agent is in its figures.
	scrapeEvery = 15 * time.Second
	// maxSettle is how long the first shrinks may take: 220 containers with some calls of the
	// runtime each, at five a second.
	maxSettle = 6 * time.Minute
	// settledIn is how old a limit may be of which the runtime does not know: what the agent allows itself.
	settledIn = 6 * time.Second
	// unresizedFor is how long no pod is resized any more.
	unresizedFor = 30 * time.Second
)

// group is a container's cgroup.
func (st *stage) group(p *corev1.Pod, container string) (string, error) {
	for _, s := range p.Status.ContainerStatuses {
		if _, id, ok := strings.Cut(s.ContainerID, "://"); ok && s.Name == container {
			return path.Join(st.cluster.CgroupParent(), "kubepods", strings.ToLower(string(p.Status.QOSClass)),
				"pod"+string(p.UID), id), nil
		}
	}
	return "", fmt.Errorf("pod %s has no running container %s", p.Name, container)
}

// settle waits until the agent holds all containers well below their ceilings, the runtime knows
// of it, and nobody has resized a pod for half a minute.
func (st *stage) settle(ctx context.Context, r *result) error {
	all, err := st.targets(ctx)
	if err != nil {
		return err
	}
	agent, err := st.agentPod(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	var since time.Time
	var before int64
	for {
		high := 0
		for _, t := range all {
			low, err := st.low(t)
			if err != nil {
				return err
			}
			if !low {
				high++
			}
		}
		metrics, err := st.scrape(ctx, agent)
		if err != nil {
			return err
		}
		resized, err := st.generations(ctx)
		if err != nil {
			return err
		}
		if resized != before {
			before, since = resized, time.Now()
		}
		r.Settled = len(all) - high
		r.UnsettledS = valueOf(metrics, "aware_agent_uncommitted_seconds")
		settled := high == 0 && r.UnsettledS < settledIn.Seconds() && time.Since(since) >= unresizedFor
		// On a machine that is too busy the runtime is spared, and limits stay: that is in the result.
		if settled || time.Since(begun) > maxSettle {
			say("%d of %d containers are below %v of their ceilings; the runtime does not know of limits that are %.0f s old; "+
				"the last resize of a pod was %v ago", r.Settled, len(all), lowShare, r.UnsettledS, time.Since(since).Round(time.Second))
			return nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

// generations grows with each resize of a pod.
func (st *stage) generations(ctx context.Context) (sum int64, err error) {
	crowd, err := st.crowd(ctx)
	for i := range crowd {
		sum += crowd[i].Generation
	}
	return sum, err
}

// cost measures the CPU and the memory of the installed agent.
func (st *stage) cost(ctx context.Context, r *result) error {
	pod, err := st.agentPod(ctx)
	if err != nil {
		return err
	}
	name, err := st.group(pod, "agent")
	if err != nil {
		return err
	}
	g, err := st.tree.Group(name)
	if err != nil {
		return err
	}
	defer g.Close()
	pid, err := firstProcess(st.tree, name)
	if err != nil {
		return err
	}
	busy := newBusy()
	paces := pace.Watch(ctx)
	defer paces()
	var before, after cgroup.CPU
	if err := g.ReadCPU(&before); err != nil {
		return err
	}
	begun := time.Now()
	scraped := time.Time{}
	var first, last map[string]*dto.MetricFamily
	var rss, goroutines []float64
	looks := []look{{begun, before.Usage}}
	for time.Since(begun) < st.settings.measure {
		m, err := memoryOf(pid)
		if err != nil {
			return err
		}
		rss = append(rss, m.rss)
		r.RSSFileMiB, r.RSSAnonMiB = m.file, m.anon
		if time.Since(scraped) >= scrapeEvery {
			scraped = time.Now()
			if last, err = st.scrape(ctx, pod); err != nil {
				return err
			}
			if first == nil {
				first = last
			}
			r.UncommittedS = max(r.UncommittedS, valueOf(last, "aware_agent_uncommitted_seconds"))
			goroutines = append(goroutines, valueOf(last, "go_goroutines"))
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
		if err := g.ReadCPU(&after); err != nil {
			return err
		}
		looks = append(looks, look{time.Now(), after.Usage})
	}
	took := looks[len(looks)-1].at.Sub(begun)
	if !before.Observed.Has(cgroup.CPUUsage) || !after.Observed.Has(cgroup.CPUUsage) {
		return errors.New("the kernel does not say what the agent's CPU usage is")
	}
	r.MeasuredS = took.Seconds()
	r.HostBusy = busy.share()
	r.CPUMillicores = float64(after.Usage-before.Usage) / float64(took) * 1000
	r.Slowdown, r.FastS, r.FastMillicores = fast(looks, paces())
	r.RSSMiB = slices.Max(rss)
	r.RSS = trendOf(rss)
	r.Goroutines = trendOf(goroutines)
	r.HeapMiB = valueOf(last, "go_memstats_heap_alloc_bytes") / (1 << 20)
	r.ResizesPerS = (appliedOf(last) - appliedOf(first)) / took.Seconds()
	r.CallsPerS = (callsOf(last) - callsOf(first)) / took.Seconds()
	r.ReliefsPerS = (valueOf(last, "aware_agent_reliefs_total") - valueOf(first, "aware_agent_reliefs_total")) / took.Seconds()
	r.BreakerOpen = valueOf(last, "aware_agent_breaker_open") > 0
	r.SampleUS = meanOf(first, last, "aware_agent_sample_duration_seconds") * 1e6
	r.Observed = int(valueOf(last, "aware_agent_containers"))
	say("the agent uses %.1f millicores and %.1f MiB (%.1f of them pages of its binary); busy %.2f", r.CPUMillicores, r.RSSMiB,
		r.RSSFileMiB, r.HostBusy)
	if r.Slowdown != nil {
		say("the machine took %.2f times as long for the same work as at its fastest", *r.Slowdown)
	}
	if r.FastMillicores != nil {
		say("in the %.0f s in which it was fast the agent used %.1f millicores", r.FastS, *r.FastMillicores)
	}
	if r.Observed != pods*containers {
		return fmt.Errorf("the agent observes %d containers, want %d", r.Observed, pods*containers)
	}
	return nil
}

// look is the agent's CPU usage at a time.
type look struct {
	at    time.Time
	usage time.Duration
}

// fast says how much slower than at its fastest the machine was in the mean between the first look and the last one, for how many
// seconds it was not, between two looks, and how many millicores there were in these. What is not known is nil.
func fast(looks []look, paces []pace.Sample) (slowdown *float64, seconds float64, millicores *float64) {
	fastest := pace.Fastest(paces)
	if fastest == 0 {
		return nil, 0, nil
	}
	var took, used time.Duration
	for i := range len(looks) - 1 {
		from, to := looks[i], looks[i+1]
		if p := pace.Between(paces, from.at, to.at); p > 0 && float64(p) <= pace.Fast*float64(fastest) {
			took, used = took+to.at.Sub(from.at), used+to.usage-from.usage
		}
	}
	if took > 0 {
		millicores = new(1000 * float64(used) / float64(took))
	}
	if mean := pace.Between(paces, looks[0].at, looks[len(looks)-1].at); mean > 0 {
		slowdown = new(float64(mean) / float64(fastest))
	}
	return slowdown, took.Seconds(), millicores
}

// firstProcess is a group's first process.
func firstProcess(tree *cgroup.Tree, group string) (pid string, err error) {
	hierarchy := tree.Root()
	if tree.Version() == cgroup.V1 {
		hierarchy = filepath.Join(hierarchy, "memory")
	}
	procs, err := os.ReadFile(filepath.Join(hierarchy, group, "cgroup.procs"))
	if err != nil {
		return "", err
	}
	pids := strings.Fields(string(procs))
	if len(pids) == 0 {
		return "", fmt.Errorf("no process in %s", group)
	}
	return pids[0], nil
}

// memory is a process's resident memory, in MiB.
type memory struct {
	rss  float64
	file float64 // pages of the binary, which the kernel can drop
	anon float64
}

func memoryOf(pid string) (memory, error) {
	var m memory
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return m, err
	}
	found := 0
	for line := range strings.Lines(string(status)) {
		for key, into := range map[string]*float64{"VmRSS": &m.rss, "RssFile": &m.file, "RssAnon": &m.anon} {
			var kib float64
			if n, _ := fmt.Sscanf(line, key+": %f kB", &kib); n == 1 {
				*into = kib / 1024
				found++
			}
		}
	}
	if found != 3 {
		return m, fmt.Errorf("process %s: its status has %d of VmRSS, RssFile and RssAnon", pid, found)
	}
	return m, nil
}

// scrape reads the agent's metrics.
func (st *stage) scrape(ctx context.Context, agent *corev1.Pod) (map[string]*dto.MetricFamily, error) {
	url := "https://" + net.JoinHostPort(agent.Status.PodIP, "10261") + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+st.token)
	resp, err := insecure.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	decoder := expfmt.NewDecoder(resp.Body, expfmt.ResponseFormat(resp.Header))
	families := map[string]*dto.MetricFamily{}
	for {
		var f dto.MetricFamily
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			return families, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading %s: %w", url, err)
		}
		families[f.GetName()] = &f
	}
}

// insecure does not look at certificates: the agent signs its own.
var insecure = &http.Client{
	Timeout:   10 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
}

// valueOf is the sum of a metric's counters or gauges.
func valueOf(families map[string]*dto.MetricFamily, name string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

// appliedOf is how many resizes came into force.
func appliedOf(families map[string]*dto.MetricFamily) float64 {
	for _, m := range families["aware_agent_resizes_total"].GetMetric() {
		if m.GetLabel()[0].GetValue() == mdp.Applied.String() {
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

// callsOf is how often the container runtime was called for a change.
func callsOf(families map[string]*dto.MetricFamily) float64 {
	return float64(histogramOf(families, "aware_agent_cri_duration_seconds").GetSampleCount())
}

// histogramOf is a histogram with one series.
func histogramOf(families map[string]*dto.MetricFamily, name string) *dto.Histogram {
	for _, m := range families[name].GetMetric() {
		return m.GetHistogram()
	}
	return nil
}

// meanOf is the mean of what a histogram has observed between two readings.
func meanOf(first, last map[string]*dto.MetricFamily, name string) float64 {
	a, b := histogramOf(first, name), histogramOf(last, name)
	n := b.GetSampleCount() - a.GetSampleCount()
	if n == 0 {
		return 0
	}
	return (b.GetSampleSum() - a.GetSampleSum()) / float64(n)
}
