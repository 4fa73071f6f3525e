package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/cmd/web"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/admission"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// services is what runs next to the scheduler, or without it. No service can end the process.
type services struct {
	settings *settings
	config   *rest.Config
	client   kubernetes.Interface
	fleet    *fleet.Fleet
	episodes *episodes
	student  *student // of a learner without the autoscaler; else nil
	decided  func(time.Duration, mdp.Effect)
	deciding atomic.Bool // this instance holds the autoscaler's lease
	linked   atomic.Bool // the link is served
	placed   placement
	cert     *fleet.Certificate // of the link and of the admission webhook
	admits   admission.Sources  // what the admission webhook knows, while the caches are filled
	log      *decisions.Log     // what was decided, for its readers
	sync.WaitGroup
}

// start starts the services of the roles, and sets where the scheduler's plugin gets
// its reports from. Only what waiting cannot repair is an error.
func start(ctx context.Context, s *settings, f *fleet.Fleet, reports *reports) (*services, error) {
	graph.Use(gemm.Choose().BLAS()) // of what lessons take, most is matrix products
	b := &services{settings: s, fleet: f, log: decisions.NewLog(), placed: placement{reserved: newReserved()}}
	b.episodes = newEpisodes(s.step, time.Now, &b.deciding)
	if !s.has(autoscaler) && s.central == "" {
		return b, nil
	}
	var err error
	if b.config, err = ctrl.GetConfig(); err != nil {
		return nil, fmt.Errorf("reading the configuration for the API server: %w", err)
	}
	b.config.UserAgent = "aware-central"
	b.config.QPS, b.config.Burst = 100, 200
	if b.client, err = kubernetes.NewForConfig(b.config); err != nil {
		return nil, fmt.Errorf("making a client for the API server: %w", err)
	}
	if s.central != "" && s.has(scheduler) {
		mirror := b.mirror(ctx)
		measureMirror(mirror)
		reports.Uppers = mirror
		b.Go(func() { mirror.Run(ctx) })
	}
	if s.has(autoscaler) || s.has(learner) {
		return b, b.work(ctx)
	}
	return b, nil
}

// work starts the services of the roles autoscaler and learner.
func (b *services) work(ctx context.Context) error {
	s := b.settings
	readers, err := web.NewReaders(b.config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.webAddress)
	if err != nil {
		return fmt.Errorf("flag --web-bind-address: %w", err)
	}
	b.supervise(ctx, "web", func(ctx context.Context) error { return web.Serve(ctx, listener, b.pages(readers)) })
	if !s.has(autoscaler) {
		b.student = &student{central: b.caller(), idle: 5 * time.Second, counted: measureLessons()}
		b.supervise(ctx, "learner", b.student.run)
		return nil
	}
	return b.decide(ctx)
}

// decide starts the services of the role autoscaler, and those of the role learner in the same process.
func (b *services) decide(ctx context.Context) error {
	s := b.settings
	if s.trajectories != "" {
		if err := b.episodes.open(ctx, s.store); err != nil {
			return err
		}
		b.episodes.minds.teaches = s.has(learner)
		measureStore(b.episodes.store)
		measureMinds(b.episodes.minds)
		b.supervise(ctx, "lessons", func(ctx context.Context) error { return b.episodes.minds.teach(ctx, b.episodes.store) })
	}
	b.decided = measure(b.fleet)
	b.cert = &fleet.Certificate{Client: b.client, Namespace: s.namespace, Name: s.linkName, Now: time.Now}
	b.supervise(ctx, "link", b.serveLink)
	if s.admitAddress != "" {
		handler := b.admissionHandler(ctx, measureAdmission())
		b.supervise(ctx, "admission", func(ctx context.Context) error { return b.serveAdmission(ctx, handler) })
	}
	b.supervise(ctx, "autoscaler", b.autoscale)
	return nil
}

// supervise runs a service until the context ends. When it fails it is started
// again, after pauses that grow.
func (b *services) supervise(ctx context.Context, name string, run func(context.Context) error) {
	log := klog.FromContext(ctx).WithName(name)
	b.Go(func() {
		pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
		for ctx.Err() == nil {
			err := run(klog.NewContext(ctx, log))
			if ctx.Err() != nil {
				return
			}
			d := pause.Step()
			log.Error(err, "Ended; starting it again", "after", d)
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		}
	})
}

// pages is metrics and health.
func (b *services) pages(readers *web.Readers) http.Handler {
	return web.Pages{
		Metrics: promhttp.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, ctrlmetrics.Registry},
			promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}),
		Live: func() error { return nil },
		Ready: func() error {
			switch {
			case b.settings.has(autoscaler) && !b.linked.Load():
				return errors.New("the link is not served yet")
			case b.student != nil && !b.student.heard.Load():
				return errors.New("central does not answer yet")
			}
			return nil
		},
		Readers: readers,
	}.Handler()
}

// serveLink keeps the certificate up to date, and serves the agents.
func (b *services) serveLink(ctx context.Context) error {
	s := b.settings
	if err := b.cert.Ensure(ctx); err != nil {
		return err
	}
	log := klog.FromContext(ctx)
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := b.cert.Ensure(ctx); err != nil {
			log.Error(err, "Renewing the link's certificate")
		}
	}, 6*time.Hour)
	account := func(name string) fleet.Reviewer {
		return fleet.NewTokenReviews(b.client, "system:serviceaccount:"+s.namespace+":"+name)
	}
	server := &fleet.Server{
		Central:  b.fleet,
		Now:      time.Now,
		Serving:  b.deciding.Load,
		Cluster:  &b.placed,
		Reviewer: account(s.account),
		Uppers: &fleet.UpperServer{
			Fleet: b.fleet, Reviewer: account(s.schedulers), Now: time.Now, Serving: b.deciding.Load,
		},
		Log: func(err error, message string, kv ...any) { log.Error(err, message, kv...) },
	}
	listener, err := net.Listen("tcp", s.linkAddress)
	if err != nil {
		return fmt.Errorf("flag --link-bind-address: %w", err)
	}
	routes := http.NewServeMux()
	routes.Handle("/", server.Handler())
	if b.episodes.store != nil {
		lends := newLender(b.episodes.minds, b.episodes.store)
		routes.Handle(lessonsPath, lends.handler(account(s.learners), b.deciding.Load))
	}
	routes.Handle(decisions.Pattern, decisions.NewServer(b.log, decisions.Reviews{Client: b.client}, b.deciding.Load))
	http2 := &http.Server{
		Handler:           routes,
		TLSConfig:         b.cert.Config(),
		ReadHeaderTimeout: 10 * time.Second,
		// An agent's machine may vanish: without a sign of life its connection ends.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 4, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		},
	}
	stop := context.AfterFunc(ctx, func() { http2.Close() })
	defer stop()
	b.linked.Store(true)
	defer b.linked.Store(false)
	return http2.ServeTLS(listener, "", "")
}

// autoscale runs the controllers while this instance holds their lease.
// controller-runtime expects the process to end when the lease is lost. A new
// manager is enough, and the scheduler goes on.
func (b *services) autoscale(ctx context.Context) error {
	defer b.deciding.Store(false)
	defer b.fleet.Close()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("making the scheme: %w", err)
		}
	}
	managed := labels.SelectorFromSet(labels.Set{v1alpha1.ManagedLabel: "true"})
	mgr, err := ctrl.NewManager(b.config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                true,
		LeaderElectionID:              "aware-autoscaler",
		LeaderElectionNamespace:       b.settings.namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		Client:                        client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:  {Label: managed, Transform: updater.KeepManager},
				&corev1.Node{}: {Transform: onlyCapacity},
			}},
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	decide := recommender.New(recommender.Config{
		Client:      mgr.GetClient(),
		Fleet:       b.fleet,
		Servers:     b.settings.servers,
		Policies:    b.episodes.minds.policies,
		Budgets:     budgets,
		Episodes:    b.episodes,
		Log:         b.log,
		Events:      mgr.GetEventRecorder("aware-autoscaler"),
		Now:         time.Now,
		Step:        b.settings.step,
		Patience:    b.settings.patience,
		StatusEvery: b.settings.statusEvery,
		Decided:     b.decided,
	})
	if err := decide.SetupWithManager(mgr, "mpa"); err != nil {
		return fmt.Errorf("setting up the recommender: %w", err)
	}
	for _, kind := range optin.Kinds {
		optIn := &optin.Controller{
			Client: mgr.GetClient(),
			Events: mgr.GetEventRecorder("aware-optin"),
			Kind:   kind,
		}
		if err := optIn.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("setting up the opt-in of %ss: %w", kind, err)
		}
	}
	if b.settings.admitAddress != "" {
		if err := mgr.Add(knows{b, mgr}); err != nil {
			return fmt.Errorf("adding the facts of the admission webhook: %w", err)
		}
	}
	// Runnables that are added start once the lease is held and the caches are filled.
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		// The nodes are read once here, so that their cache is filled before the first report.
		if err := mgr.GetClient().List(ctx, new(corev1.NodeList)); err != nil {
			return fmt.Errorf("reading the nodes: %w", err)
		}
		b.placed.from(mgr.GetClient())
		go b.placed.reserved.watch(ctx, b.client)
		if err := decide.OpenIfEmpty(ctx); err != nil {
			return err
		}
		b.deciding.Store(true)
		<-ctx.Done()
		return nil
	})); err != nil {
		return fmt.Errorf("adding the link's gate: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}
