package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/apps/trace"
	"awarescale.dev/aware/test/perf/pace"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	low     = 0.05             // of the capacity
	high    = 0.9              // of the capacity
	workers = 32               // of the closed loop that finds the capacity
	closed  = 10 * time.Second // how long it runs, after as long a time to warm up
	warm    = 10 * time.Second // at the low load, before the high one is tried
	sustain = time.Minute      // at the high load, until it is said to be sustained
	timeout = 10 * time.Second // of a request
)

// The parts of the load.
var parts = []struct {
	share float64 // of the capacity
	took  time.Duration
}{{low, 2 * time.Minute}, {high, 20 * time.Second}, {low, 3 * time.Minute}}

// loadOf is the load of a program with that capacity, in requests a second.
func loadOf(capacity, timeScale float64) trace.Trace {
	t := trace.Trace{Step: time.Duration(float64(time.Second) * timeScale)}
	for _, p := range parts {
		for range int(p.took / time.Second) {
			t.Rates = append(t.Rates, p.share*capacity)
		}
	}
	return t
}

// steady is one rate.
func steady(rate float64, took time.Duration) trace.Trace {
	return trace.Trace{Step: took, Rates: []float64{rate}}
}

// estimate is how long one program takes.
func (b *bench) estimate() time.Duration {
	tries := 5 * (warm + sustain + 15*time.Second) // as a rule
	return time.Minute + tries + 2*time.Duration(b.options.timeScale*float64(loadOf(1, 1).Duration())+float64(30*time.Second))
}

// measure measures one program.
func (b *bench) measure(ctx context.Context, p program) (*Measured, error) {
	m := &Measured{LimitMilli: p.limit}
	alone, err := b.start(ctx, p, "alone", 0)
	if err != nil {
		return nil, err
	}
	b.say(p, "finding its capacity")
	if m.Capacity, err = b.capacity(ctx, p, alone); err != nil {
		return nil, err
	}
	b.stop(ctx, alone)
	r, err := b.sustained(ctx, p, m)
	if err != nil {
		return nil, err
	}
	slo := sloOf(r)
	m.SLOMS = ms(slo)
	b.say(p, "p99 %.1f ms: the SLO is %v; the load, left alone", r.P99MS, slo)
	if alone, err = b.start(ctx, p, "alone", 0); err != nil {
		return nil, err
	}
	if m.Alone, err = b.under(ctx, p, alone, m.Capacity, slo); err != nil {
		return nil, err
	}
	b.stop(ctx, alone)
	b.say(p, "left alone: %.2f %% over the SLO; the load, with AWARE", 100*m.Alone.OverSLO)
	auto, err := b.start(ctx, p, "auto", slo)
	if err != nil {
		return nil, err
	}
	if m.Auto, err = b.under(ctx, p, auto, m.Capacity, slo); err != nil {
		return nil, err
	}
	b.keep(ctx, p, auto)
	b.stop(ctx, auto)
	m.judge()
	return m, nil
}

// sustained is the program at 90 % of its capacity: the second of two times in a row that agree.
// What a closed loop reaches, an open one may not: then the capacity is less, by a tenth each
// time. Two times may differ by the machine's mood: then it is tried again, and after three
// such times with less.
func (b *bench) sustained(ctx context.Context, p program, m *Measured) (load.Result, error) {
	const most, moods = 25, 3
	var before load.Result // at the same load; of no request: there is none
	differed := 0
	for range most {
		slo := mostP99
		if before.Requests > 0 {
			slo = sloOf(before)
		}
		b.say(p, "its p99 at 90 %% of %.0f requests/s, at %dm", m.Capacity, p.limit)
		r, err := b.high(ctx, p, m.Capacity, slo)
		if err != nil {
			return r, err
		}
		queued := r.P99MS >= ms(mostP99) || failed(r) >= 0.001
		switch {
		case !queued && before.Requests == 0:
			before = r
		case !queued && r.SLOViolationRatio <= moreOver:
			return r, nil
		default:
			b.say(p, "p99 %.1f ms, %.2f %% failed, %.2f %% over %v %s",
				r.P99MS, 100*failed(r), 100*r.SLOViolationRatio, slo, r.FirstError)
			before = r
			if differed++; queued || differed == moods {
				m.Capacity *= 0.9
				before, differed = load.Result{}, 0
			}
		}
	}
	return before, fmt.Errorf("no load is sustained: at %.0f requests/s, 90 %% of %.0f, no two times in a row were alike",
		high*m.Capacity, m.Capacity)
}

// high is a minute at 90 % of a capacity, of a program that begins as those do that are compared: one that has had such a load
// before has its memory and its caches already. A queue that grows slowly, as an etcd's does that uses all of its limit, is not
// seen in the 20 s that the load has of it.
func (b *bench) high(ctx context.Context, p program, capacity float64, slo time.Duration) (load.Result, error) {
	s, err := b.start(ctx, p, "alone", 0)
	if err != nil {
		return load.Result{}, err
	}
	defer b.stop(ctx, s)
	if _, err := b.send(ctx, p, s, steady(low*capacity, warm), slo, nil); err != nil {
		return load.Result{}, err
	}
	return b.send(ctx, p, s, steady(high*capacity, sustain), slo, nil)
}

// sloOf is the SLO of a program with that result at 90 % of its capacity: twice its p99.
func sloOf(r load.Result) time.Duration {
	return max(time.Millisecond, time.Duration(2*r.P99MS*float64(time.Millisecond)).Round(time.Millisecond))
}

// failed is the share of requests that were not answered.
func failed(r load.Result) float64 {
	return float64(r.Errors+r.Timeouts+r.Dropped) / float64(max(1, r.Requests))
}

// mostP99 is the p99 at 90 % of the capacity from which the load is not sustained.
const mostP99 = 2 * time.Second

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *bench) say(p program, format string, args ...any) {
	say("%s: %s (about %v left)", p.name, fmt.Sprintf(format, args...), max(0, time.Until(b.ends)).Round(time.Minute))
}

// started is a program that runs.
type started struct {
	namespace string
	address   string // that takes requests
	group     string // its container's cgroup
}

// start starts a program. With an SLO it returns when AWARE acts on it.
func (b *bench) start(ctx context.Context, p program, how string, slo time.Duration) (started, error) {
	s := started{namespace: "foreign-" + p.name + "-" + how}
	text, err := p.manifest(s.namespace, slo)
	if err != nil {
		return s, err
	}
	file := filepath.Join(b.options.out, p.name+"-"+how+".yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return s, err
	}
	for _, args := range [][]string{
		{"apply", "-f", file},
		{"-n", s.namespace, "rollout", "status", "deployment/" + p.name, "--timeout=120s"},
	} {
		if out, err := b.cluster.Kubectl(ctx, args...); err != nil {
			return s, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	if slo > 0 {
		if err := b.active(ctx, s.namespace); err != nil {
			return s, err
		}
	}
	pod, err := b.pod(ctx, s.namespace)
	if err != nil {
		return s, err
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	class := strings.ToLower(string(pod.Status.QOSClass))
	s.group = path.Join(b.cluster.CgroupParent(), "kubepods", class, "pod"+string(pod.UID), id)
	s.address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(p.port))
	return s, nil
}

// active waits until AWARE acts on the workload.
func (b *bench) active(ctx context.Context, namespace string) error {
	for tries := 0; ; tries++ {
		out, err := b.cluster.Kubectl(ctx, "-n", namespace, "wait", "mpa", "--all", "--for=condition=Active", "--timeout=60s")
		if err == nil {
			return nil
		}
		if tries == 5 || ctx.Err() != nil {
			return fmt.Errorf("waiting for AWARE to act: %w: %s", err, out)
		}
		if err := pause(ctx, 2*time.Second); err != nil { // the object may not be there yet
			return err
		}
	}
}

// pod is the one pod of a namespace.
func (b *bench) pod(ctx context.Context, namespace string) (*corev1.Pod, error) {
	list, err := b.clients.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || len(list.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("%d pods in %s, want one with one container", len(list.Items), namespace)
	}
	return &list.Items[0], nil
}

// stop removes a program. What is left goes with the lab.
func (b *bench) stop(ctx context.Context, s started) {
	if out, err := b.cluster.Kubectl(ctx, "delete", "namespace", s.namespace, "--timeout=60s"); err != nil {
		say("removing %s: %v: %s", s.namespace, err, out)
	}
}

// keep keeps what AWARE says of a program, for whoever asks why.
func (b *bench) keep(ctx context.Context, p program, s started) {
	for file, args := range map[string][]string{
		p.name + "-mpa.yaml":  {"-n", s.namespace, "get", "mpa", "-o", "yaml"},
		p.name + "-agent.log": {"-n", "aware-system", "logs", "daemonset/aware-agent", "--tail=5000"},
	} {
		out, err := b.cluster.Kubectl(ctx, args...)
		if err != nil {
			out = append(out, err.Error()...)
		}
		_ = os.WriteFile(filepath.Join(b.options.out, file), out, 0o644) // one file less
	}
}

// capacity is how many requests a second the program answers at its static limit.
func (b *bench) capacity(ctx context.Context, p program, s started) (float64, error) {
	if p.capacity != nil {
		return p.capacity(ctx, b.tools, s.address)
	}
	do, target, end, err := p.requests(s.address)
	if err != nil {
		return 0, err
	}
	defer end()
	if do == nil {
		do = get
	}
	var answered atomic.Int64
	ctx, cancel := context.WithTimeout(ctx, 2*closed)
	defer cancel()
	var failed error
	var once sync.Once
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, target); err == nil {
					answered.Add(1)
				} else if ctx.Err() == nil {
					once.Do(func() { failed = err })
				}
			}
		})
	}
	if err := pause(ctx, closed); err != nil {
		return 0, err
	}
	before, begun := answered.Load(), time.Now()
	<-ctx.Done()
	n, took := answered.Load()-before, time.Since(begun)
	all.Wait()
	if failed != nil {
		say("%s: a request failed while its capacity was measured: %v", p.name, failed)
	}
	if n < 100 {
		return 0, errors.Join(fmt.Errorf("only %d requests were answered in %v", n, took), failed)
	}
	return float64(n) / took.Seconds(), nil
}

// send sends a load.
func (b *bench) send(
	ctx context.Context, p program, s started, t trace.Trace, slo time.Duration, each func(load.Second),
) (load.Result, error) {
	do, target, end, err := p.requests(s.address)
	if err != nil {
		return load.Result{}, err
	}
	defer end()
	return load.Run(ctx, load.Config{
		Targets: []string{target}, Do: do, Trace: t, Seed: b.options.seed, SLO: slo, Timeout: timeout, MaxInFlight: 4000,
	}, each)
}

// under runs a program under the load, and looks at it each second.
func (b *bench) under(ctx context.Context, p program, s started, capacity float64, slo time.Duration) (*Run, error) {
	r := &Run{}
	paces := pace.Watch(ctx)
	defer paces()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { b.watch(watching, s, r) })
	watch.Go(func() { b.resizes(watching, s, r) })
	sent, err := b.send(ctx, p, s, loadOf(capacity, b.options.timeScale), slo, func(second load.Second) {
		r.Seconds.P99MS = append(r.Seconds.P99MS, second.P99MS)
		r.Seconds.Failed = append(r.Seconds.Failed, second.Errors+second.Timeouts+second.Dropped)
	})
	stop()
	watch.Wait()
	if err != nil {
		return nil, err
	}
	pod, err := b.pod(ctx, s.namespace)
	if err != nil {
		return nil, err
	}
	r.Restarts = int(pod.Status.ContainerStatuses[0].RestartCount)
	r.sum(sent)
	r.paced(paces())
	return r, nil
}

// watch notes each second what is in force, and what the program and the machine did.
func (b *bench) watch(ctx context.Context, s started, r *Run) {
	group, err := b.tree.Group(s.group)
	if err != nil {
		say("the program's use cannot be read: %v", err)
		return
	}
	defer group.Close()
	before, _ := lookAt(group)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l, err := b.tree.CPULimit(s.group); err != nil {
			r.Unread++
		} else {
			r.InForceMilli = append(r.InForceMilli, int(l.CPU()))
		}
		now, err := lookAt(group)
		if err != nil {
			continue
		}
		took := now.at.Sub(before.at).Seconds()
		per := func(d time.Duration) int { return int(float64(d.Milliseconds()) / took) }
		r.Seconds.ThrottledMS = append(r.Seconds.ThrottledMS, int((now.ThrottledTime - before.ThrottledTime).Milliseconds()))
		r.Seconds.UsedMilli = append(r.Seconds.UsedMilli, per(now.Usage.CPU.Usage-before.Usage.CPU.Usage))
		r.Seconds.IdleMilli = append(r.Seconds.IdleMilli, per(now.idle-before.idle))
		r.Seconds.MemoryMiB = append(r.Seconds.MemoryMiB, int(now.WorkingSet>>20))
		before = now
	}
}

// look is a program and its machine at one moment.
type look struct {
	cgroup.Usage
	at   time.Time
	idle time.Duration // of all CPUs
}

func lookAt(group *cgroup.Group) (l look, err error) {
	l.at = time.Now()
	if err := group.Read(&l.Usage); err != nil {
		return l, err
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return l, err
	}
	machine, err := proc.Stat()
	if err != nil {
		return l, err
	}
	l.idle = time.Duration((machine.CPUTotal.Idle + machine.CPUTotal.Iowait) * float64(time.Second))
	return l, nil
}

// resizes notes what the API asks for, whenever that changes.
func (b *bench) resizes(ctx context.Context, s started, r *Run) {
	begin := time.Now()
	pods, err := b.clients.CoreV1().Pods(s.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		say("resizes cannot be seen: %v", err)
		return
	}
	defer pods.Stop()
	var last Resize
	for event := range pods.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		asked := pod.Spec.Containers[0].Resources
		now := Resize{
			RequestMilli: asked.Requests.Cpu().MilliValue(), CeilingMilli: asked.Limits.Cpu().MilliValue(),
			MemoryMiB: asked.Limits.Memory().Value() >> 20,
		}
		if now != last {
			last = now
			now.Second = time.Since(begin).Seconds()
			r.Resizes = append(r.Resizes, now)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
