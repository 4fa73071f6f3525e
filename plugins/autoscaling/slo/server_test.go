package slo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const latencyMetric = "http_request_duration_seconds"

// replica is a pod that tells a Prometheus server of its requests, in a time of its
// own: a second passes at each scrape, so that what is measured does not depend on
// how fast anything is here.
type replica struct {
	name string
	each map[time.Duration]int // requests in a second of its time, by how long they take

	mu       sync.Mutex
	now      time.Time
	requests prometheus.Histogram
}

func newReplica(name string, begin time.Time, each map[time.Duration]int) *replica {
	return &replica{name: name, each: each, now: begin, requests: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: latencyMetric, Help: "How long requests took.", Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5},
	})}
}

// Describe implements [prometheus.Collector].
func (r *replica) Describe(to chan<- *prometheus.Desc) { r.requests.Describe(to) }

// Collect implements [prometheus.Collector].
func (r *replica) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(time.Second)
	for took, n := range r.each {
		for range n {
			r.requests.Observe(took.Seconds())
		}
	}
	to <- prometheus.NewMetricWithTimestamp(r.now, r.requests)
}

// oldest is the time up to which all pods have been scraped.
func oldest(pods []*replica) time.Time {
	var oldest time.Time
	for i, one := range pods {
		one.mu.Lock()
		if i == 0 || one.now.Before(oldest) {
			oldest = one.now
		}
		one.mu.Unlock()
	}
	return oldest
}

// scraped starts a Prometheus server that scrapes pods of the namespace shop.
func scraped(t *testing.T, pods ...*replica) (url string) {
	t.Helper()
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	mux := http.NewServeMux()
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	var targets []target
	for i, one := range pods {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(one)
		path := fmt.Sprint("/", i)
		mux.Handle(path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		targets = append(targets, target{[]string{site.Listener.Addr().String()},
			map[string]string{"namespace": "shop", "pod": one.name, "__metrics_path__": path}})
	}
	config, err := json.Marshal(map[string]any{"scrape_configs": []any{map[string]any{
		"job_name": "pods", "scrape_interval": "100ms", "scrape_timeout": "100ms", "static_configs": targets,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return startPrometheus(t, config)
}

// startPrometheus starts a real Prometheus server of the test's own, on a loopback port.
func startPrometheus(t *testing.T, config []byte) (url string) {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("no prometheus on the PATH: hack/prometheus/build, which make unit runs, says why")
	case err != nil:
		t.Skip("no prometheus on the PATH; hack/prometheus/build builds one")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil { // JSON is YAML
		t.Fatal(err)
	}
	address := freePort(t)
	var out bytes.Buffer
	server := exec.Command(binary, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	server.Stdout, server.Stderr = &out, &out
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that times out runs no cleanup
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		server.Wait()
	}()
	t.Cleanup(func() {
		server.Process.Kill()
		<-gone
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", out.String())
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-gone:
			t.Fatal("Prometheus has ended")
		default:
		}
		response, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return "http://" + address
		}
	}
	t.Fatal("Prometheus is not ready within a minute")
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A real Prometheus server has the histograms of several workloads. A reading is of the
// named pods only, whatever their names are, and says what their buckets tell.
func TestARealPrometheusIsAskedForExactlyThesePods(t *testing.T) {
	begin := time.Now().Add(-50 * time.Minute).Truncate(time.Second) // the server takes in the last hour
	all := []*replica{
		newReplica("web-1", begin, map[time.Duration]int{20 * time.Millisecond: 97, 200 * time.Millisecond: 3}),
		newReplica("web-2", begin, map[time.Duration]int{20 * time.Millisecond: 49, 200 * time.Millisecond: 1}),
		newReplica("web-api-1", begin, map[time.Duration]int{2 * time.Second: 1000}),
		newReplica("", begin, map[time.Duration]int{time.Millisecond: 5}), // scraped without the label pod
		newReplica("fast-1", begin, map[time.Duration]int{7 * time.Millisecond: 200}),
	}
	hostile := []string{"web-.*", "web.1", "web-1|web-2", `web-1"} or {pod=~".*`, `web-1\`, "web-1}[5m])) #\n"}
	for i, name := range hostile {
		all = append(all, newReplica(name, begin, map[time.Duration]int{300 * time.Millisecond: 10 + i}))
	}
	url := scraped(t, all...)
	servers, err := slo.NewServers([]string{url})
	if err != nil {
		t.Fatal(err)
	}
	// read waits until the reading of pods is the wanted one.
	read := func(what string, threshold time.Duration, is func(slo.Reading) bool, pods ...string) {
		t.Helper()
		p, err := servers.New(url, latencyMetric, "shop", 99, threshold)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, what, func() slo.Reading { return p.Read(t.Context(), oldest(all), pods) }, is)
	}
	// of is a reading of that many requests a second, whose latency is known.
	of := func(throughput mdp.Rate, latency time.Duration) func(slo.Reading) bool {
		return func(r slo.Reading) bool {
			return r.Observed.Has(mdp.Latency, mdp.Throughput) && !r.Unresolved &&
				math.Abs(float64(r.Throughput-throughput)) < 0.001 && (r.Latency-latency).Abs() < time.Millisecond
		}
	}
	// The other workload is there before the first one's readings are judged.
	read("the other workload", 0, of(1000, 2485*time.Millisecond), "web-api-1")
	// Of 150 requests four are in the bucket from 100 to 250 ms: the p99 is after 2.5 of them.
	both := of(150, 193750*time.Microsecond)
	read("the p99 of both pods, and of no other", 500*time.Millisecond, both, "web-1", "web-2")
	read("the SLO is violated for sure", 50*time.Millisecond, both, "web-1", "web-2")

	read("the first bucket ends above the SLO", 50*time.Millisecond, func(r slo.Reading) bool {
		return r.Unresolved && !r.Observed.Has(mdp.Latency) && math.Abs(float64(r.Throughput-200)) < 0.001 &&
			strings.Contains(r.Problem, "100ms, 250ms, 500ms, 1s, 2.5s")
	}, "fast-1")
	read("the first bucket ends at the SLO", 100*time.Millisecond, of(200, 100*time.Millisecond), "fast-1")

	for i, name := range hostile {
		read(fmt.Sprintf("what the pod %q has", name), 0, of(mdp.Rate(10+i), 497500*time.Microsecond), name)
	}
	for _, name := range []string{".*", "web-[0-9]", "web-1|", `web-1"}`, "WEB-1", "(?i)WEB-1"} {
		read(fmt.Sprintf("nothing: no pod is called %q", name), 0, func(r slo.Reading) bool {
			return r.Observed == 0 && strings.Contains(r.Problem, "no value")
		}, name)
	}
	read("nothing: the workload has no pods", 0, func(r slo.Reading) bool {
		return r.Observed == 0 && strings.Contains(r.Problem, "no pods")
	})
}
