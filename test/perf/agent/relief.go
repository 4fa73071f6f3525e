package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/test/cluster/images"
	dto "github.com/prometheus/client_model/go"
)

const (
	// lowShare is the share of its ceiling that a container must be held below, so that
	// there is something to raise.
	lowShare = 0.6
	// burstEvery is the time between two bursts. A container's limit comes down again in a
	// few calls of the runtime, and a node makes five a second.
	burstEvery = 500 * time.Millisecond
	// burstWork is about 120 ms of CPU: more than any of the limits, which are below lowShare of
	// the ceiling, has in a period of 400 ms.
	burstWork = "float:60,float:60"
	// burstIn is how long a burst may wait for its relief.
	burstIn = 2 * time.Second
)

// hog is a program for hogs.yaml.
var hog = images.Image{Ref: "awarescale.dev/perf-hog:dev", Program: "./test/perf/agent/hog"}

// target is a container that gets bursts.
type target struct {
	group string
	url   string
}

// targets are all containers of the crowd.
func (st *stage) targets(ctx context.Context) ([]target, error) {
	crowd, err := st.crowd(ctx)
	if err != nil {
		return nil, err
	}
	var all []target
	for i, container := range []string{"front", "back"} {
		for _, p := range crowd {
			group, err := st.group(&p, container)
			if err != nil {
				return nil, err
			}
			all = append(all, target{
				group: group,
				url:   "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(8080+i)) + "/?segments=" + burstWork,
			})
		}
	}
	return all, nil
}

// low reports whether a container is held well below its ceiling.
func (st *stage) low(t target) (bool, error) {
	l, err := st.tree.CPULimit(t.group)
	if err != nil {
		return false, err
	}
	return l.CPU() > 0 && l.CPU() < mdp.MilliCPU(lowShare*ceiling), nil
}

func (st *stage) quiet(ctx context.Context, r *result) error { return st.relief(ctx, &r.Quiet) }

// hogs is relief while hogs use all CPU that they get.
func (st *stage) hogs(ctx context.Context, r *result) error {
	bin, err := os.MkdirTemp("", "aware-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := images.Build(ctx, bin, nil, hog.Program); err != nil {
		return err
	}
	if err := images.Load(ctx, st.cluster, bin, hog); err != nil {
		return err
	}
	file := filepath.Join("test", "perf", "agent", "hogs.yaml")
	if _, err := st.kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	if _, err := st.kubectl(ctx, "rollout", "status", "deployment/hogs", "--timeout=120s"); err != nil {
		return err
	}
	if err := st.relief(ctx, &r.Hogs); err != nil {
		return err
	}
	if r.Hogs.HostBusy >= 0 && r.Hogs.HostBusy < 0.9 {
		return fmt.Errorf("beside hogs the machine is busy for %.2f of the time: they are no hogs", r.Hogs.HostBusy)
	}
	_, err = st.kubectl(ctx, "delete", "-f", file, "--timeout=60s")
	return err
}

// relief gives bursts to one container after another, and measures how each is relieved.
func (st *stage) relief(ctx context.Context, r *relief) error {
	agent, err := st.agentPod(ctx)
	if err != nil {
		return err
	}
	all, err := st.targets(ctx)
	if err != nil {
		return err
	}
	first, err := st.scrape(ctx, agent)
	if err != nil {
		return err
	}
	stop, err := st.beside(ctx)
	if err != nil {
		return err
	}
	busy := newBusy()
	w, err := st.bursts(ctx, all, r)
	bare, failed := stop()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	r.HostBusy = busy.share()
	last, err := st.scrape(ctx, agent)
	if err != nil {
		return err
	}
	r.P50MS, r.P99MS, r.MaxMS = ms(percentile(w.took, 50)), ms(percentile(w.took, 99)), ms(percentile(w.took, 100))
	r.WaitedP50MS, r.WaitedP99MS = ms(percentile(w.waited, 50)), ms(percentile(w.waited, 99))
	r.GapP99MS = ms(percentile(w.gaps, 99))
	r.BareP50US, r.BareP99US = 1000*ms(percentile(bare, 50)), 1000*ms(percentile(bare, 99))
	const name = "aware_agent_relief_duration_seconds"
	r.ofHistogram(histogramOf(first, name), histogramOf(last, name))
	say("%d bursts, raised %.1f ms (p50) and %.1f ms (p99) after their begin", r.Bursts, r.WaitedP50MS, r.WaitedP99MS)
	say("%d throttled, %d relieved: p50 %.1f ms, p99 %.1f ms, most %.1f ms; L0 of %d: p50 %.0f us, p99 %.0f us; busy %.2f",
		r.Throttled, r.Raised, r.P50MS, r.P99MS, r.MaxMS, r.L0Samples, r.L0P50US, r.L0P99US, r.HostBusy)
	say("a bare write meanwhile: p50 %.0f us, p99 %.0f us (of %d)", r.BareP50US, r.BareP99US, len(bare))
	return nil
}

// waits are times of bursts.
type waits struct{ took, waited, gaps []time.Duration }

// bursts gives them, one at a time.
func (st *stage) bursts(ctx context.Context, all []target, r *relief) (w waits, err error) {
	var requests sync.WaitGroup
	defer requests.Wait()
	next := time.Now()
	// On a machine that is too busy limits come down slowly, because the runtime is spared. Then
	// fewer bursts are measured.
	end := next.Add(3 * time.Duration(st.settings.bursts) * burstEvery)
	for i := 0; r.Bursts < st.settings.bursts && time.Now().Before(end); i++ {
		t := all[i%len(all)]
		if low, err := st.low(t); err != nil {
			return w, err
		} else if !low {
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return w, err
			}
			continue
		}
		one, err := st.burst(ctx, t, &requests)
		if err != nil {
			return w, err
		}
		r.Bursts++
		w.gaps = append(w.gaps, one.Gap)
		if one.Raised {
			w.waited = append(w.waited, one.Waited)
		} else {
			w.waited = append(w.waited, burstIn)
		}
		switch {
		case one.Throttled && one.Raised:
			r.Throttled++
			r.Raised++
			w.took = append(w.took, one.Took)
		case one.Throttled: // it took longer than was waited
			r.Throttled++
			w.took = append(w.took, burstIn)
		}
		next = next.Add(burstEvery)
		if err := pause(ctx, time.Until(next)); err != nil {
			return w, err
		}
	}
	return w, nil
}

// burst gives a container work, and watches what becomes of its limit.
func (st *stage) burst(ctx context.Context, t target, requests *sync.WaitGroup) (cgrouptest.Relief, error) {
	ctx, cancel := context.WithTimeout(ctx, burstIn)
	defer cancel()
	return cgrouptest.Watch(ctx, st.tree, t.group, func() {
		requests.Go(func() {
			resp, err := client.Get(t.url)
			if err != nil {
				say("burst: %v", err) // without a burst nothing is throttled, and that is counted
				return
			}
			answer, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				say("burst: %s: %s", resp.Status, answer)
			}
		})
	})
}

var client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// aboveAll is what stands for a time above all bounds, in microseconds: JSON has no infinity.
const aboveAll = 1e9

// ofHistogram takes in what the agent has measured itself between two readings.
func (r *relief) ofHistogram(first, last *dto.Histogram) {
	n := last.GetSampleCount() - first.GetSampleCount()
	r.L0Samples = int(n)
	if n == 0 {
		return
	}
	quantile := func(share float64) float64 {
		for i, b := range last.GetBucket() {
			before := uint64(0)
			if i < len(first.GetBucket()) {
				before = first.GetBucket()[i].GetCumulativeCount()
			}
			if float64(b.GetCumulativeCount()-before) >= share*float64(n) && !math.IsInf(b.GetUpperBound(), 1) {
				return b.GetUpperBound() * 1e6
			}
		}
		return aboveAll
	}
	r.L0P50US, r.L0P99US = quantile(0.5), quantile(0.99)
}
