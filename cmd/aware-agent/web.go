package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"awarescale.dev/aware/nodeagent/agent"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// webTimeout is how long a request to the agent's own pages may take.
const webTimeout = 10 * time.Second

// serve serves metrics and health until the context ends.
func serve(ctx context.Context, l net.Listener, a *agent.Agent) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", legacyregistry.Handler())
	check := func(is func(time.Time) error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := is(time.Now()); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("/livez", check(a.Live))
	mux.HandleFunc("/healthz", check(a.Live))
	mux.HandleFunc("/readyz", check(a.Ready))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: webTimeout}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Serving metrics and health")
	}
}
