// Command foreign runs programs that nobody here wrote on a real cluster, each under the
// same load twice: left alone with a static limit, and with AWARE in mode auto. A
// Prometheus server answers queries, an etcd takes writes, a CoreDNS answers for names.
//
//	go run ./test/perf/foreign                     # all three; about an hour
//	go run ./test/perf/foreign --programs coredns  # one of them
//
// For each program its capacity at the static limit is measured first, then its p99 in a
// minute at 90 % of that, after it was started anew. The SLO is twice that p99. Then comes
// the load: two minutes at 5 % of the capacity, 20 s at 90 %, three minutes at 5 %. The load
// is an open loop (package load).
//
// It writes result.json into the folder --out, and the same as the last line. Exit codes:
// 0 all bars hold; 1 otherwise, or something failed; 2 for a wrong command line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
)

// options are the flags.
type options struct {
	programs  []string
	out       string
	seed      uint64
	timeScale float64
}

// usageError is an error of the command line.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "bench-foreign:", err)
	if errors.As(err, new(usageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "foreign", Short: "Programs that nobody here wrote, left alone and with AWARE", SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			return run(c.Context(), o)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.StringSliceVar(&o.programs, "programs", names(), "which programs")
	f.StringVar(&o.out, "out", "out/foreign", "folder for the results")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals")
	f.Float64Var(&o.timeScale, "time-scale", 1, "how long the load is to be, as a factor; the bars are for 1")
	return c
}

func (o options) check() error {
	for _, name := range o.programs {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--programs %q: it takes some of %s", name, strings.Join(names(), ", "))
		}
	}
	if len(o.programs) == 0 {
		return fmt.Errorf("--programs is empty: it takes some of %s", strings.Join(names(), ", "))
	}
	if !(o.timeScale >= 0.05 && o.timeScale <= 10) {
		return fmt.Errorf("--time-scale %g: must be 0.05 to 10", o.timeScale)
	}
	return nil
}

// bench is what the runs of all programs share.
type bench struct {
	options options
	cluster *lab.Cluster
	clients kubernetes.Interface
	tree    *cgroup.Tree
	tools   string // folder of the tools that load
	ends    time.Time
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func run(ctx context.Context, o options) error {
	if err := lab.Preflight(ctx, true); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("making the folder of --out: %w", err)
	}
	bin, err := os.MkdirTemp("", "aware-foreign-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	b := &bench{options: o, tools: bin}
	if err := b.build(ctx, bin); err != nil {
		return err
	}
	if b.cluster, err = lab.Up(ctx, lab.Config{Name: "foreign", BindParent: true, Log: os.Stderr}); err != nil {
		return err
	}
	defer b.cluster.Down(context.WithoutCancel(ctx))
	if b.tree, err = cgroup.Open("/sys/fs/cgroup"); err != nil {
		return err
	}
	if b.clients, err = kubernetes.NewForConfig(b.cluster.REST()); err != nil {
		return err
	}
	if err := b.load(ctx, bin); err != nil {
		return err
	}
	all := Result{Seed: o.seed, TimeScale: o.timeScale, Programs: map[string]*Measured{}}
	b.ends = time.Now().Add(time.Duration(len(o.programs)) * b.estimate())
	for _, p := range programs() {
		if !slices.Contains(o.programs, p.name) {
			continue
		}
		m, err := b.measure(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		all.Programs[p.name] = m
		say("%s: %s", p.name, m)
		if err := all.write(filepath.Join(o.out, "result.json")); err != nil {
			return err
		}
	}
	line, err := json.Marshal(all)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return all.check()
}

// build compiles AWARE's programs, the Prometheus server and the tools.
func (b *bench) build(ctx context.Context, bin string) error {
	if err := images.Build(ctx, bin, say, images.Programs(images.Agent, images.Central)...); err != nil {
		return err
	}
	source, err := images.Source(ctx, images.Module)
	if err != nil {
		return err
	}
	say("building the Prometheus server and etcd's benchmark tool")
	folder, err := output(ctx, filepath.Join(source, "hack", "prometheus"), "./build")
	if err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(strings.TrimSpace(folder), "prometheus"), filepath.Join(bin, "prometheus")); err != nil {
		return err
	}
	_, err = output(ctx, filepath.Join(source, "test", "perf", "foreign", "tools"), "go", "build", "-buildvcs=false",
		"-o", bin+"/", "go.etcd.io/etcd/v3/tools/benchmark")
	return err
}

// load gives the lab the images, and installs AWARE.
func (b *bench) load(ctx context.Context, bin string) error {
	if err := images.Load(ctx, b.cluster, bin, images.Agent, images.Central); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "coredns"} {
		path, err := b.cluster.Binary(name)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	for _, name := range names() {
		path, err := filepath.EvalSymlinks(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		if err := b.cluster.LoadImage(ctx, imageOf(name), map[string]string{"/" + name: path}, []string{"/" + name}); err != nil {
			return err
		}
	}
	if out, err := b.cluster.Kubectl(ctx, "apply", "--server-side", "-k", "manifests/default"); err != nil {
		return fmt.Errorf("installing AWARE: %w: %s", err, out)
	}
	for _, what := range []string{"deployment/aware-scheduler", "deployment/aware-autoscaler", "daemonset/aware-agent"} {
		if out, err := b.cluster.Kubectl(ctx, "-n", "aware-system", "rollout", "status", what, "--timeout=120s"); err != nil {
			return fmt.Errorf("waiting for %s: %w: %s", what, err, out)
		}
	}
	return nil
}
