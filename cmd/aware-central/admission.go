package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"awarescale.dev/aware/plugins/autoscaling/admission"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// reviewIn is how long a review may take to arrive, and its answer to leave. The API
	// server waits 2 s for an answer (manifests/base/autoscaler-admission.yaml).
	reviewIn = 2 * time.Second
	// reviewIdle is how long the API server may keep a connection that it does not use.
	reviewIdle = 90 * time.Second
	// registerEvery is how often the API server's configuration is looked at: who installs
	// AWARE anew, or renews the certificate, has the webhook back after that time.
	registerEvery = time.Minute
)

// admissionHandler is the admission webhook as HTTP.
func (b *services) admissionHandler(ctx context.Context, counted func(admission.Result)) http.Handler {
	log := klog.FromContext(ctx).WithName("admission")
	handler := admission.NewHandler(b.admits.Get, time.Now, counted, func(err error, message string, kv ...any) {
		if err != nil {
			log.Error(err, message, kv...)
			return
		}
		log.Info(message, kv...)
	})
	routes := http.NewServeMux()
	routes.Handle(admission.Path, handler)
	return routes
}

// serveAdmission serves the admission webhook with the link's certificate, and keeps its
// authority in the API server's configuration. Every instance does, whether it holds the
// lease or not: the Service leads to any of them.
func (b *services) serveAdmission(ctx context.Context, handler http.Handler) error {
	if err := b.cert.Ensure(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", b.settings.admitAddress)
	if err != nil {
		return fmt.Errorf("flag --admission-bind-address: %w", err)
	}
	go b.register(ctx)
	server := &http.Server{
		Handler:        handler,
		TLSConfig:      b.cert.Config(),
		ReadTimeout:    reviewIn,
		WriteTimeout:   2 * reviewIn,
		IdleTimeout:    reviewIdle,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	return server.ServeTLS(listener, "", "")
}

// register keeps the authority of the certificate in the API server's configuration until
// the context ends. The certificate is read anew each time: another instance may have
// renewed it.
func (b *services) register(ctx context.Context) {
	log := klog.FromContext(ctx)
	registration := admission.Registration{Client: b.client}
	known, first := false, true
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := b.cert.Ensure(ctx)
		registered := false
		if err == nil {
			registered, err = registration.Ensure(ctx, b.cert.CA())
		}
		if err != nil {
			log.Error(err, "Registering the admission webhook; it is tried again", "after", registerEvery)
			return
		}
		if first || registered != known {
			log.Info("The API server asks for the sizes of new pods", "configuration", admission.ConfigurationName,
				"asks", registered)
		}
		known, first = registered, false
	}, registerEvery)
}

// knows lets the admission webhook read the manager's cache while the manager runs, on
// every instance: only deciding needs the lease.
type knows struct {
	b   *services
	mgr manager.Manager
}

var _ manager.LeaderElectionRunnable = knows{}

// NeedLeaderElection implements [manager.LeaderElectionRunnable].
func (knows) NeedLeaderElection() bool { return false }

// Start implements [manager.Runnable].
func (k knows) Start(ctx context.Context) error {
	for _, one := range admission.Objects {
		if _, err := k.mgr.GetCache().GetInformer(ctx, one, cache.BlockUntilSynced(true)); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("filling the cache of the admission webhook with %T: %w", one, err)
		}
	}
	k.b.admits.Set(&admission.Source{
		Reader: k.mgr.GetCache(), Now: time.Now, StatusEvery: k.b.settings.statusEvery,
	})
	defer k.b.admits.Set(nil)
	<-ctx.Done()
	return nil
}
