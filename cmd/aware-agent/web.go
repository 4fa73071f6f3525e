package main

import (
	"context"
	"net"
	"time"

	"awarescale.dev/aware/cmd/web"
	"awarescale.dev/aware/nodeagent/agent"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// serve serves metrics and health until the context ends.
func serve(ctx context.Context, l net.Listener, a *agent.Agent, readers *web.Readers) {
	pages := web.Pages{
		Metrics: legacyregistry.Handler(),
		Live:    func() error { return a.Live(time.Now()) },
		Ready:   func() error { return a.Ready(time.Now()) },
		Readers: readers,
	}
	if err := web.Serve(ctx, l, pages.Handler()); ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Serving metrics and health")
	}
}
