package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"awarescale.dev/aware/test/apps/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The runs, in the order of the report.
const (
	static   = "static"
	hpaVPA   = "hpa-vpa"
	hpaVPA30 = "hpa-vpa-30s"
	cpuFast  = "k8s-cpu-fast"
	aware    = "aware"
	demand   = "aware-demand"
	learned  = "aware-learned"
	atMean   = "static-at-mean"

	atLearned = "static-at-learned"
)

var (
	allRuns  = []string{static, hpaVPA, hpaVPA30, cpuFast, aware, demand, learned, atMean, atLearned}
	demoRuns = []string{static, hpaVPA, hpaVPA30, aware, atMean}
)

// stabilization is how long the HPA of a run waits before it scales down.
func stabilization(run string) time.Duration {
	if run == hpaVPA30 {
		return 30 * time.Second
	}
	return 5 * time.Minute // Kubernetes' own default
}

// withVPA reports whether a run has the HPA and the VPA.
func withVPA(run string) bool { return run == hpaVPA || run == hpaVPA30 }

// withAWARE reports whether a run has AWARE.
func withAWARE(run string) bool { return run == aware || run == demand || run == learned }

// meanOf is the run at whose mean cores a static one is; empty for all others.
func meanOf(run string) string {
	switch run {
	case atMean:
		return aware
	case atLearned:
		return learned
	}
	return ""
}

// ruleOf is the rule by which AWARE's nodes decide in a run; empty is their own.
func (o options) ruleOf(run string) string {
	if run == demand {
		return "demand"
	}
	return o.rule
}

// peakMilli is the CPU limit of one of the two replicas of the static run.
const peakMilli = 600

const (
	appName        = "shop"
	requestTimeout = 5 * time.Second // the latency of a request without an answer
)

func namespaceOf(run string) string { return "demo-" + run }

//go:embed app.yaml
var appYAML string

var appTemplate = template.Must(template.New("app.yaml").Parse(appYAML))

// manifests are the objects of a run's application, with that CPU limit of each of its two
// replicas, in millicores. With AWARE its nodes decide by that rule; empty is their own.
func manifests(run string, slo time.Duration, milli int, rule string) ([]byte, error) {
	var b bytes.Buffer
	err := appTemplate.Execute(&b, map[string]any{
		"Run": run, "Namespace": namespaceOf(run), "App": appName, "SLO": slo, "HPAVPA": withVPA(run),
		"AWARE": withAWARE(run), "Learned": run == learned,
		"Stabilization": int(stabilization(run).Seconds()), "Limit": milli, "Request": milli * 2 / 3, "Rule": rule,
	})
	return b.Bytes(), err
}

// deploy makes the run's application and waits until its pods are ready. The manifest
// is kept with the results, so that a reader can check it.
func (s *stage) deploy(ctx context.Context, run string, milli int) error {
	text, err := manifests(run, s.fit.SLO, milli, s.options.ruleOf(run))
	if err != nil {
		return err
	}
	file := filepath.Join(s.options.out, "manifests", run+".yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	if _, err := s.cluster.Kubectl(ctx, "apply", "-f", file); err != nil {
		return fmt.Errorf("applying %s: %w", file, err)
	}
	if err := s.rollout(ctx, namespaceOf(run), "deployment/"+appName); err != nil {
		return fmt.Errorf("starting the application of %s: %w", file, err)
	}
	return nil
}

// rollout waits until all pods of a workload are ready.
func (s *stage) rollout(ctx context.Context, namespace, workload string) error {
	_, err := s.cluster.Kubectl(ctx, "rollout", "status", "--timeout=90s", "-n", namespace, workload)
	return err
}

// remove deletes the run's application, its pods included.
func (s *stage) remove(ctx context.Context, run string) error {
	if _, err := s.cluster.Kubectl(ctx, "delete", "namespace", namespaceOf(run),
		"--ignore-not-found", "--timeout=60s"); err != nil {
		return fmt.Errorf("removing the application of run %s: %w", run, err)
	}
	return nil
}

// target is the application's URL at its Service's address. It returns when the address
// answers, because kube-proxy handles a new Service some time after the API server.
func (s *stage) target(ctx context.Context, run string) (string, error) {
	service, err := s.clients.CoreV1().Services(namespaceOf(run)).Get(ctx, appName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	url := "http://" + service.Spec.ClusterIP + "/"
	c := client.New(client.Config{ConnMaxRequests: 1})
	defer c.CloseIdleConnections()
	answered := 0
	return url, until(ctx, 30*time.Second, 100*time.Millisecond, "an answer of "+url,
		func(ctx context.Context) error {
			for answered < 10 {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				err := get(ctx, c, url)
				cancel()
				if err != nil {
					answered = 0
					return err
				}
				answered++
			}
			return nil
		})
}

func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return nil
}

// until calls f until it returns nil. After the limit its error names the condition and
// the last error of f.
func until(ctx context.Context, limit, every time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting %v for %s: %w", limit, what, err)
		case <-time.After(every):
		}
	}
}
