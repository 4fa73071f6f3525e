package main

import (
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/apps/trace"
	"awarescale.dev/aware/test/perf/pace"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// warmUp is how long each slice has load before it is measured: connections are opened,
// caches are filled, and autoscalers see the load, bursts too.
const warmUp = time.Minute

// play is one slice: install the autoscaler, start the application, wait until the
// autoscaler is ready, warm up, measure under the load, and remove everything. With
// --keep the last slice's application stays.
func (s *stage) play(ctx context.Context, slice slice, until *Results, last bool) (_ *Record, err error) {
	run := slice.run
	row := s.screen.begin(slice.name())
	defer func() {
		switch {
		case err == nil:
			row.phase("done")
		case ctx.Err() != nil:
			row.phase("interrupted")
		default:
			row.phase("failed")
			s.diagnose(context.WithoutCancel(ctx), run)
		}
	}()

	row.phase("installing")
	if err := s.install(ctx, run); err != nil {
		return nil, err
	}
	watch, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	// Watching starts before the first pod is created, so that nothing is missed.
	sampler, err := watchPods(watch, s.clients, namespaceOf(run), s.cluster.CgroupParent())
	if err != nil {
		return nil, err
	}
	row.phase("starting the application")
	if slice.neighbour {
		if err := s.startNeighbour(ctx); err != nil {
			return nil, err
		}
		defer s.stopNeighbour(context.WithoutCancel(ctx))
	}
	milli := peakMilli
	if whose := meanOf(run); whose != "" {
		if milli, err = until.meanMilli(whose, slice.neighbour); err != nil {
			return nil, err
		}
	}
	if err := s.deploy(ctx, run, milli); err != nil {
		return nil, err
	}
	row.phase("waiting for the autoscaler")
	if err := s.await(ctx, run); err != nil {
		return nil, err
	}
	if run == cpuFast {
		defer s.startCPUFast(ctx, namespaceOf(run), sampler)()
	}
	url, err := s.target(ctx, run)
	if err != nil {
		return nil, err
	}
	row.phase("warming up")
	trace, err := s.options.shape()
	if err != nil {
		return nil, err
	}
	warm, err := trace.Scale(warmUp.Seconds()/trace.Duration().Seconds(), s.fit.RPS)
	if err != nil {
		return nil, err
	}
	if _, err := load.Run(ctx, s.load(url, warm, slice.seed+1000), nil); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	row.phase("measuring")
	record, err := s.measure(ctx, slice, milli, url, sampler, row)
	if err != nil {
		return nil, err
	}
	record.LimitMilli = milli
	if last && s.options.keep {
		return record, nil
	}
	row.phase("removing")
	if withAWARE(run) {
		s.keepDecisions(ctx, slice)
	}
	if err := s.uninstall(ctx, run, record, sampler); err != nil {
		return nil, err
	}
	stopWatch()
	return record, s.remove(ctx, run)
}

func (s *stage) install(ctx context.Context, run string) error {
	switch {
	case withVPA(run):
		return s.installVPA(ctx)
	case withAWARE(run):
		return s.installAWARE(ctx, run)
	}
	return nil
}

func (s *stage) await(ctx context.Context, run string) error {
	switch {
	case withVPA(run):
		return s.awaitHPAVPA(ctx, run)
	case withAWARE(run):
		return s.awaitAWARE(ctx, run)
	}
	return nil
}

// uninstall removes the autoscaler while the application runs. For AWARE this checks
// that it restores the limits.
func (s *stage) uninstall(ctx context.Context, run string, record *Record, sampler *sampler) error {
	switch {
	case withVPA(run):
		return s.uninstallVPA(ctx)
	case withAWARE(run):
		if err := s.uninstallAWARE(ctx, run); err != nil {
			return err
		}
		err := sampler.restored(ctx)
		yes := err == nil
		record.RestoredOnUninstall = &yes
		if !yes {
			s.screen.say("after AWARE was uninstalled: %v", err)
		}
	}
	return nil
}

// startNeighbour starts the pod that burns a core in bursts.
func (s *stage) startNeighbour(ctx context.Context) error {
	file := filepath.Join(s.options.out, "manifests", "neighbour.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, neighbourYAML, 0o644); err != nil {
		return err
	}
	if _, err := s.cluster.Kubectl(ctx, "apply", "-f", file); err != nil {
		return fmt.Errorf("applying %s: %w", file, err)
	}
	return s.rollout(ctx, "demo-neighbour", "deployment/neighbour")
}

// stopNeighbour removes it.
func (s *stage) stopNeighbour(ctx context.Context) {
	if _, err := s.cluster.Kubectl(ctx, "delete", "namespace", "demo-neighbour", "--timeout=60s"); err != nil {
		s.screen.say("removing the neighbour: %v", err)
	}
}

//go:embed neighbour.yaml
var neighbourYAML []byte

// load is the load of the application, the same in all runs of a round.
func (s *stage) load(url string, t trace.Trace, seed uint64) load.Config {
	return load.Config{
		Targets: []string{url},
		Trace:   t,
		Seed:    seed,
		SLO:     s.fit.SLO,
		Timeout: requestTimeout,
	}
}

// measure sends the load and takes samples as long as it lasts.
func (s *stage) measure(ctx context.Context, slice slice, milli int, url string, sampler *sampler, row *row) (*Record, error) {
	trace, err := s.options.shape()
	if err != nil {
		return nil, err
	}
	t, err := trace.Scale(s.options.timeScale, s.fit.RPS)
	if err != nil {
		return nil, err
	}
	record := &Record{Run: slice.run, Neighbour: slice.neighbour, Seed: slice.seed}
	busyBefore, err := machineBusy()
	if err != nil {
		return nil, err
	}
	agents := s.agentCounter(slice.run)
	sampling, stopSampling := context.WithCancel(ctx)
	var background sync.WaitGroup
	began := time.Now()
	row.start(began, t.Duration())
	background.Go(func() {
		sampler.run(sampling, func(now time.Time, sample Sample) {
			sample.Seconds = now.Sub(began).Seconds()
			record.Samples = append(record.Samples, sample)
			l1, l2 := sampler.soFar()
			if n, ok := agents.last(); ok {
				l1 = n
			}
			row.sampled(sample, l1, l2)
		})
	})
	background.Go(func() { agents.run(sampling) })
	paces := pace.Watch(ctx)
	defer paces()
	result, err := load.Run(ctx, s.load(url, t, slice.seed), func(second load.Second) {
		record.Seconds = append(record.Seconds, second)
		row.loaded(second)
	})
	stopSampling()
	background.Wait()
	if err != nil {
		return nil, err
	}
	counts, err := sampler.counts(ctx, s.clients, namespaceOf(slice.run))
	if err != nil {
		return nil, err
	}
	record.sum(result, counts)
	if record.Predicted, err = predict(ctx, slice, s.fit, t, milli); err != nil {
		return nil, err
	}
	if busy, err := machineBusy(); err == nil {
		record.MachineCoresBusy = known((busy - busyBefore).Seconds() / result.DurationS)
	}
	record.Paces = since(began, paces())
	record.Slowdown = slowdown(record.Paces, record.Seconds, s.fit.Pace)
	if record.Disturbed() {
		s.screen.say("run %s: the load generator itself was late, %.0f ms at its 99th percentile: "+
			"the machine had too much to do, and the latencies are more than the application's",
			slice.name(), record.SenderLagP99MS)
	}
	if withAWARE(slice.run) {
		s.countAgentResizes(ctx, record, agents)
		record.Policy = s.policy(ctx, slice.run)
	}
	return record, nil
}

// countAgentResizes prefers AWARE's own count of what its agents did to the
// sampled one, which misses what changes twice within a second. Both are kept.
func (s *stage) countAgentResizes(ctx context.Context, record *Record, agents *agentCounter) {
	if n, err := agents.read(ctx); err == nil {
		record.ResizesL1, record.ResizesL1Source = n, "aware_agent_resizes_total"
		return
	}
	if object, err := s.awareObject(ctx, record.Run); err == nil && object.Status.Resizes.Node > 0 {
		record.ResizesL1, record.ResizesL1Source = int(object.Status.Resizes.Node), "status.resizes.node"
	}
}

// An agentCounter reads what the agents of AWARE say they did. For the other runs
// it knows nothing.
type agentCounter struct {
	stage *stage
	on    bool

	mu    sync.Mutex
	value int
	known bool
}

func (s *stage) agentCounter(run string) *agentCounter {
	return &agentCounter{stage: s, on: withAWARE(run)}
}

// run reads every two seconds, for the table.
func (a *agentCounter) run(ctx context.Context) {
	if !a.on {
		return
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = a.read(ctx) // the next time, or at the end, where an error counts
		}
	}
}

func (a *agentCounter) last() (int, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value, a.known
}

// read sums the counter over all agents.
func (a *agentCounter) read(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := a.stage.clients.CoreV1().Pods(awareNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=aware-agent"})
	if err != nil {
		return 0, err
	}
	total, found := 0., false
	for _, pod := range pods.Items {
		url := fmt.Sprintf("https://%s:10261/metrics", pod.Status.PodIP)
		families, err := scrape(ctx, url, a.stage.token)
		if err != nil {
			return 0, err
		}
		if n, ok := resizesIn(families); ok {
			total, found = total+n, true
		}
	}
	if !found {
		return 0, fmt.Errorf("no agent of %d has aware_agent_resizes_total", len(pods.Items))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.value, a.known = int(total), true
	return a.value, nil
}

// scraper does not look at certificates: an agent signs its own.
var scraper = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

func scrape(ctx context.Context, url, token string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := scraper.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// resizesIn sums aware_agent_resizes_total over what was applied, and not what was
// refused or failed.
func resizesIn(families map[string]*dto.MetricFamily) (float64, bool) {
	family := families["aware_agent_resizes_total"]
	if family == nil {
		return 0, false
	}
	sum := 0.
	for _, m := range family.Metric {
		if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
			return l.GetName() == "effect" && l.GetValue() == "applied"
		}) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum, true
}

// keepDecisions keeps central's log of a slice, which has all its decisions.
func (s *stage) keepDecisions(ctx context.Context, slice slice) {
	file := filepath.Join(s.options.out, "logs", slice.name(), fmt.Sprintf("aware-autoscaler-seed-%d.log", slice.seed))
	log, err := s.cluster.Kubectl(ctx, "logs", "-n", awareNamespace, "deployment/aware-autoscaler")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, log, 0o644)
	}
	if err != nil {
		s.screen.say("keeping the decisions of %s: %v", slice.name(), err)
	}
}

// diagnose keeps what one would ask for when a run failed.
func (s *stage) diagnose(ctx context.Context, run string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir := filepath.Join(s.options.out, "logs", run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.screen.say("keeping the diagnostics: %v", err)
		return
	}
	keep := func(file string, args ...string) {
		out, err := s.cluster.Kubectl(ctx, args...)
		if err != nil {
			out = append(out, "\n"+err.Error()+"\n"...)
		}
		_ = os.WriteFile(filepath.Join(dir, file), out, 0o644) // one file less
	}
	keep("all.txt", "get", "all", "-A", "-o", "wide")
	keep("events.txt", "get", "events", "-A", "--sort-by=.lastTimestamp")
	for _, kind := range []string{"mpa", "vpa", "hpa"} {
		keep(kind+".yaml", "get", kind, "-A", "-o", "yaml")
	}
	for _, namespace := range []string{namespaceOf(run), awareNamespace, "kube-system"} {
		keep("describe-"+namespace+".txt", "describe", "pods", "-n", namespace)
		pods, err := s.clients.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, pod := range pods.Items {
			keep(pod.Name+".log", "logs", "-n", namespace, pod.Name, "--all-containers", "--tail=2000")
			for _, c := range pod.Status.ContainerStatuses {
				if c.RestartCount > 0 {
					keep(pod.Name+"-previous.log", "logs", "-n", namespace, pod.Name, "-c", c.Name,
						"--previous", "--tail=2000")
				}
			}
		}
	}
	logs, _ := filepath.Glob(filepath.Join(s.cluster.StateDir(), "log", "*.log"))
	for _, file := range logs {
		if out, err := exec.CommandContext(ctx, "tail", "-n", "2000", file).Output(); err == nil {
			_ = os.WriteFile(filepath.Join(dir, "lab-"+filepath.Base(file)), out, 0o644)
		}
	}
	s.screen.say("what there is to look at is in %s", dir)
}

// restored waits up to 20 s until all limits in force are what the API says,
// and returns what is still in the way.
func (s *sampler) restored(ctx context.Context) error {
	return until(ctx, 20*time.Second, 500*time.Millisecond, "the limits in force to be the API's again",
		func(context.Context) error {
			return s.asSpecified()
		})
}

// asSpecified returns an error that names the containers whose limits in force are not
// their pod's.
func (s *sampler) asSpecified() error {
	var others []string
	for _, pod := range s.podsNow() {
		for _, c := range containersOf(pod, s.parent) {
			if c.leaving {
				continue
			}
			r, err := s.host.read(c.path)
			if err != nil {
				others = append(others, fmt.Sprintf("%s: %v", pod.Name, err))
			} else if !same(r.limit.milli, c.spec.milli) || !same(r.limit.memory, c.spec.memory) {
				others = append(others,
					fmt.Sprintf("%s has %v in force and %v in its spec", pod.Name, r.limit, c.spec))
			}
		}
	}
	if len(others) > 0 {
		return errors.New(strings.Join(others, "; "))
	}
	return nil
}
