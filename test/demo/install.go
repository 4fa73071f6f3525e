package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
)

// stage is shared by the runs: the cluster with the images, and the screen.
type stage struct {
	options options
	screen  *screen
	source  string // the module's folder
	cluster *lab.Cluster
	clients *kubernetes.Clientset
	fit     fit
	token   string // of a user who may read the agents' metrics
	began   time.Time
}

// raise starts the cluster and loads the images. When a later step fails it returns the
// stage too, so that strike can remove the cluster.
func raise(ctx context.Context, o options, screen *screen) (*stage, error) {
	s := &stage{options: o, screen: screen, began: time.Now()}
	var err error
	if s.source, err = images.Source(ctx, images.Module); err != nil {
		return nil, err
	}
	// Compile first, so that an error of the compiler does not wait for a cluster.
	wanted := []images.Image{images.Service, images.Neighbour}
	if slices.ContainsFunc(o.runs, withAWARE) {
		wanted = append(wanted, images.Agent, images.Central)
	}
	bin := filepath.Join(s.source, "out", "bin")
	if err := images.Build(ctx, bin, s.screen.say, images.Programs(wanted...)...); err != nil {
		return nil, err
	}
	// A bound lab ends with this process, also after a crash.
	s.cluster, err = lab.Up(ctx, lab.Config{Name: o.name, BindParent: !o.keep, Log: screen})
	if err != nil {
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	if s.clients, err = kubernetes.NewForConfig(s.cluster.REST()); err != nil {
		return s, err
	}
	return s, images.Load(ctx, s.cluster, bin, wanted...)
}

// strike removes the cluster, or prints how to use it.
func (s *stage) strike(ctx context.Context) error {
	s.screen.stop()
	if s.options.keep {
		s.screen.say(
			"the cluster stays (--keep):\n  export KUBECONFIG=%s\n  kubectl get pods,mpa -A\n  go run ./test/cluster --name %s down",
			s.cluster.Kubeconfig(),
			s.options.name,
		)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.cluster.Down(ctx); err != nil {
		return fmt.Errorf("removing the cluster: %w", err)
	}
	s.screen.say("the cluster is removed; all of it took %v", time.Since(s.began).Round(time.Second))
	return nil
}

// awareNamespace is AWARE's namespace in manifests/default.
const awareNamespace = "aware-system"

// installAWARE installs AWARE as README describes it, for a run. What central learns in a learned one outlives it.
func (s *stage) installAWARE(ctx context.Context, run string) error {
	dir := filepath.Join(s.source, "manifests", "default")
	if run == learned {
		var err error
		if dir, err = s.keeping(ctx, dir); err != nil {
			return err
		}
	}
	if _, err := s.cluster.Kubectl(ctx, "apply", "--server-side", "-k", dir); err != nil {
		return fmt.Errorf("applying %s: %w", dir, err)
	}
	return errors.Join(
		s.rollout(ctx, awareNamespace, "deployment/aware-scheduler"),
		s.rollout(ctx, awareNamespace, "deployment/aware-autoscaler"),
		s.rollout(ctx, awareNamespace, "daemonset/aware-agent"),
		s.mayReadMetrics(ctx))
}

// reader is the account that reads the agents' metrics, as a Prometheus server does.
const reader = "demo-reader"

// mayReadMetrics makes an account that may read metrics, and a token of it.
func (s *stage) mayReadMetrics(ctx context.Context) error {
	account := "--serviceaccount=" + awareNamespace + ":" + reader
	for _, args := range [][]string{
		{"create", "serviceaccount", reader, "-n", awareNamespace},
		{"create", "clusterrolebinding", reader, "--clusterrole=aware-metrics-reader", account},
	} {
		if out, err := s.cluster.Kubectl(ctx, args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	out, err := s.cluster.Kubectl(ctx, "create", "token", reader, "-n", awareNamespace, "--duration=4h")
	if err != nil {
		return fmt.Errorf("making a token of %s: %w: %s", reader, err, out)
	}
	s.token = strings.TrimSpace(string(out))
	return nil
}

// uninstallAWARE removes AWARE. The agents restore all containers before they end.
// Their log of it is kept.
func (s *stage) uninstallAWARE(ctx context.Context, run string) error {
	var following sync.WaitGroup
	defer following.Wait() // ends with the agent
	following.Go(func() {
		// what there is
		log, _ := s.cluster.Kubectl(ctx, "logs", "-n", awareNamespace, "daemonset/aware-agent", "--follow")
		file := filepath.Join(s.options.out, "logs", run, "aware-agent-until-its-end.log")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			_ = os.WriteFile(file, log, 0o644) // without it, one file is missing
		}
	})
	dir := filepath.Join(s.source, "manifests", "default")
	if _, err := s.cluster.Kubectl(ctx, "delete", "-k", dir, "--ignore-not-found", "--timeout=90s"); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	if _, err := s.cluster.Kubectl(ctx, "delete", "clusterrolebinding", reader, "--ignore-not-found"); err != nil {
		return fmt.Errorf("removing the reader of metrics: %w", err)
	}
	return nil
}

// awareObject is the object that AWARE made from the application's annotations.
func (s *stage) awareObject(ctx context.Context, run string) (*v1alpha1.MultidimPodAutoscaler, error) {
	out, err := s.cluster.Kubectl(ctx, "get", "mpa", "-n", namespaceOf(run), "-o", "json")
	if err != nil {
		return nil, err
	}
	var list v1alpha1.MultidimPodAutoscalerList
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("reading the MultidimPodAutoscalers: %w", err)
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d MultidimPodAutoscalers in %s, want 1",
			len(list.Items), namespaceOf(run))
	}
	return &list.Items[0], nil
}

// awaitAWARE returns when AWARE reports that it acts on the application.
func (s *stage) awaitAWARE(ctx context.Context, run string) error {
	return until(ctx, 90*time.Second, time.Second, "condition Active of the MultidimPodAutoscaler",
		func(ctx context.Context) error {
			object, err := s.awareObject(ctx, run)
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.Active)
			if c == nil {
				return errors.New("it has no condition Active yet")
			}
			if c.Status != "True" {
				return fmt.Errorf("it is %s: %s: %s", c.Status, c.Reason, c.Message)
			}
			return nil
		})
}
