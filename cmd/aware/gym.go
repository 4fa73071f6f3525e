package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/cmd/aware/live"
	envworkload "awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func gymCommand() *cobra.Command {
	var g gymnasium
	cmd := &cobra.Command{
		Use:   "gym",
		Short: "Serve a workload, simulated or real, as a Gymnasium-style environment",
		Long: `Serves init, reset and step over gRPC and HTTP with JSON on one port, for learners in any language
(learner/gym/example/autoscale.py drives it with Python's standard library). There is no authentication: everyone who reaches
the port may act.

Without --workload each client has its own simulated worlds. A session acts on one service, or with its option
all_services on every service of the application; with the option encoded, states are also vectors on the scales that
AWARE's own learners see.

With --workload, one client acts on one container of a real workload that has opted in, with the rights of the
kubeconfig's user. The workload's mode must be observe or recommend, so that central does not act as well. When
the client or this command ends, the workload is restored.`,
		Example: "  aware gym\n  aware gym --app social-network --trace bursty --rate 300 --seed 7\n" +
			"  aware gym --workload prod/deployment/shop",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 {
				return usage(fmt.Errorf("gym takes no arguments; %q was given", args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return g.serve(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&g.listen, "listen", "127.0.0.1:7780",
		"address to serve on; with --workload it must be of this machine only")
	f.StringVar(&g.app, "app", "hotel-reservation",
		"simulated application: a name ("+strings.Join(workload.Apps(), ", ")+") or a YAML file")
	f.StringVar(&g.trace, "trace", "diurnal",
		"its load: a name ("+strings.Join(workload.CellTraces(), ", ")+") or a file")
	f.Float64Var(&g.rate, "rate", 0,
		"mean requests per second to scale the trace to; with 0 a built-in application under a built-in trace is the\n"+
			"bench's cell of that name, with its rates and machines, and others are taken as they are")
	f.Uint64Var(&g.seed, "seed", 1, "of a session's first simulated episode")
	f.StringVar(&g.workload, "workload", "",
		"real workload to serve, as NAMESPACE/KIND/NAME, instead of simulated ones")
	f.DurationVar(&g.step, "step", 10*time.Second, "time between two actions")
	f.StringVar(&g.guards, "guards", "",
		"guards that actions pass: central, node, or published (bounds only); empty is published for simulated\n"+
			"workloads and central for real ones")
	f.DurationVar(&g.idle, "idle", 10*time.Minute, "after which a session that is not used ends")
	g.flags = genericclioptions.NewConfigFlags(true)
	g.flags.Namespace = nil // the workload names it
	g.flags.AddFlags(f)
	return cmd
}

// gymnasium is the command line of one gym server.
type gymnasium struct {
	listen   string        // address to serve on
	app      string        // simulated application: a name or a file
	trace    string        // its load: a name or a file
	rate     float64       // mean requests per second of the trace; 0 is that of the bench's cell, or unscaled
	seed     uint64        // of a session's first simulated episode
	workload string        // real workload, as NAMESPACE/KIND/NAME; empty for simulated ones
	guards   string        // a named set of guard.Settings; empty is the default
	step     time.Duration // between two actions
	idle     time.Duration // after which an unused session ends
	flags    *genericclioptions.ConfigFlags
}

// grace is how long restoring workloads may take at the end.
const grace = 30 * time.Second

func (g *gymnasium) serve(cmd *cobra.Command) error {
	ctx := cmd.Context()
	server, err := g.server(ctx)
	if err != nil {
		return err
	}
	server.Closed = func(_ string, err error) {
		fmt.Fprintln(cmd.ErrOrStderr(), "aware: ending a session:", err)
	}
	listener, err := net.Listen("tcp", g.listen)
	if err != nil {
		return fmt.Errorf("flag --listen: %w", err)
	}
	h := server.HTTP()
	calls, breakOff := context.WithCancel(context.WithoutCancel(ctx)) // a real step is not awaited at the end
	defer breakOff()
	h.BaseContext = func(net.Listener) context.Context { return calls }
	sessions, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { server.Run(sessions, grace); close(ended) }()
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(listener) }()
	fmt.Fprintf(cmd.OutOrStdout(),
		"Serving %s on http://%s\nTry: python3 learner/gym/example/autoscale.py http://%s\n",
		g.what(), listener.Addr(), listener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
		breakOff()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err = h.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
			err = h.Close()
		}
	}
	end()
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (g *gymnasium) what() string {
	if g.workload != "" {
		return "workload " + g.workload
	}
	return "simulated " + g.app + " under " + g.trace
}

func (g *gymnasium) server(ctx context.Context) (*gym.Server, error) {
	switch {
	case g.step < time.Second:
		return nil, usage(fmt.Errorf("flag --step %v: it must be at least 1s", g.step))
	case g.idle < time.Second:
		return nil, usage(fmt.Errorf("flag --idle %v: it must be at least 1s", g.idle))
	case g.rate < 0:
		return nil, usage(fmt.Errorf("flag --rate %v: it must not be negative", g.rate))
	}
	s := &gym.Server{Seed: g.seed, Now: time.Now, Idle: g.idle}
	if g.workload != "" {
		return s, g.real(ctx, s)
	}
	if _, err := g.one(ctx, gym.OpenRequest{}); err != nil {
		return nil, usage(err)
	}
	s.Workloads, s.Traces = workload.Apps(), g.traces(g.app)
	s.Open, s.OpenAll = g.one, g.all
	return s, nil
}

// real makes a server of one real workload, which takes one session at a time.
func (g *gymnasium) real(ctx context.Context, s *gym.Server) error {
	target, err := live.Parse(g.workload)
	if err != nil {
		return usage(fmt.Errorf("flag --workload: %w", err))
	}
	guards, err := guard.Named(either(g.guards, guard.Central.Name))
	if err != nil {
		return usage(fmt.Errorf("flag --guards: %w", err))
	}
	if err := local(g.listen); err != nil {
		return usage(err)
	}
	c, err := g.client()
	if err != nil {
		return err
	}
	s.Sessions, s.Workloads = 1, []string{target.String()}
	s.Open = func(ctx context.Context, b gym.OpenRequest) (envworkload.Environment, error) {
		if b.Workload != "" {
			if asked, err := live.Parse(b.Workload); err != nil || asked != target {
				return nil, &envworkload.NotFoundError{Key: "workload", Value: b.Workload, Known: s.Workloads}
			}
		}
		if b.Trace != "" {
			return nil, connect.NewError(connect.CodeInvalidArgument,
				fmt.Errorf("options.trace %q: a real workload has its own load", b.Trace))
		}
		t := target
		t.Container = b.Service
		env, err := live.Open(ctx, c, t, g.step, guards)
		var refused *live.RefusedError
		if errors.As(err, &refused) {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
		if err != nil {
			return nil, err
		}
		return env, nil
	}
	_, err = live.Open(ctx, c, target, g.step, guards) // so that an error is reported at the start
	return err
}

// local is nil for an address that only this machine reaches.
func local(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("flag --listen: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("flag --listen %s: with --workload it must be a loopback address: "+
			"everyone who reaches the port acts on a real workload with your rights", listen)
	}
	return nil
}

func (g *gymnasium) client() (client.Client, error) {
	config, err := g.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("making the scheme: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reaching the API server %s: %w", config.Host, err)
	}
	return c, nil
}

// worlds are the simulated worlds that a client asks for, and the options of an
// environment of them. Each episode starts at a random second of the trace.
// Clients may name built-in applications and traces, and those of the command
// line. They cannot open other files.
func (g *gymnasium) worlds(b gym.OpenRequest) (func(seed uint64) (sim.Config, error), envworkload.Options, error) {
	o := envworkload.Options{Service: b.Service, Alpha: equally, Step: g.step}
	fail := func(err error) (func(seed uint64) (sim.Config, error), envworkload.Options, error) {
		return nil, o, err
	}
	if b.Workload != "" && b.Workload != g.app && !slices.Contains(workload.Apps(), b.Workload) {
		return fail(&envworkload.NotFoundError{Key: "workload", Value: b.Workload, Known: workload.Apps()})
	}
	name, trace := either(b.Workload, g.app), either(b.Trace, g.trace)
	if known := g.traces(name); trace != g.trace && !slices.Contains(known, trace) {
		return fail(&envworkload.NotFoundError{Key: "trace", Value: b.Trace, Known: known})
	}
	app, err := openApp(name)
	if err != nil {
		return fail(err)
	}
	load, cluster, err := g.load(name, app, trace)
	if err != nil {
		return fail(err)
	}
	if o.Guards, err = guard.Named(either(g.guards, guard.Published.Name)); err != nil {
		return fail(fmt.Errorf("flag --guards: %w", err))
	}
	return func(seed uint64) (sim.Config, error) {
		return sim.Config{App: app, Cluster: cluster, Load: envworkload.Anywhere(load, seed), Seed: seed}, nil
	}, o, nil
}

// one makes an environment of one service in simulated worlds.
func (g *gymnasium) one(_ context.Context, b gym.OpenRequest) (envworkload.Environment, error) {
	worlds, o, err := g.worlds(b)
	if err != nil {
		return nil, err
	}
	return envworkload.OfWorld(worlds, o)
}

// all makes an environment of all services in simulated worlds.
func (g *gymnasium) all(_ context.Context, b gym.OpenRequest) (envworkload.Joint, error) {
	worlds, o, err := g.worlds(b)
	if err != nil {
		return nil, err
	}
	return envworkload.OfApplication(worlds, o)
}

// inCells reports whether the worlds of an application are those of the bench's
// cells, under the traces of the cells.
func (g *gymnasium) inCells(app string) bool {
	return g.rate == 0 && slices.Contains(workload.Apps(), app)
}

// traces are the names of built-in traces for an application.
func (g *gymnasium) traces(app string) []string {
	if g.inCells(app) {
		return workload.CellTraces()
	}
	return workload.Traces()
}

// load is the trace of a simulated world, with its rates, and the machines: those
// of the bench's cell where there is one.
func (g *gymnasium) load(name string, app sim.App, trace string) (workload.Trace, sim.Cluster, error) {
	if g.inCells(name) && slices.Contains(workload.CellTraces(), trace) {
		t, err := workload.Cell(name, trace)
		return t, workload.Machines, err
	}
	t, err := workload.Open(trace)
	if err == nil && g.rate > 0 {
		t, err = t.Scaled(g.rate)
	}
	return t, roomFor(app), err
}

// equally weighs the SLO and efficiency.
const equally = 0.5

func either(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// node is a machine of the simulated cluster.
var node = mdp.Size{CPU: 64_000, Memory: 256 << 30}

// roomFor is a cluster with room for the application at its initial sizes, and for
// any one service at its largest.
func roomFor(app sim.App) sim.Cluster {
	var all, most mdp.Size
	for _, s := range app.Services {
		n := mdp.MilliCPU(s.Replicas)
		all.CPU, all.Memory = all.CPU+n*s.Size.CPU, all.Memory+mdp.Bytes(n)*s.Size.Memory
		most.CPU = max(most.CPU, mdp.MilliCPU(s.Bounds.Replicas.Max)*s.Bounds.CPU.Max)
		most.Memory = max(most.Memory, mdp.Bytes(s.Bounds.Replicas.Max)*s.Bounds.Memory.Max)
	}
	nodes := max((all.CPU+most.CPU)/node.CPU, mdp.MilliCPU((all.Memory+most.Memory)/node.Memory)) + 2
	return sim.Uniform(int(nodes), node)
}
