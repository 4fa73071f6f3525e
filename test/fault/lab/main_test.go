// Package lab has the tests of faults that need a real kubelet and kernel. AWARE is not
// installed there: they show what it has to cope with. Each writes what it saw as one line,
// which our documents quote.
package lab

import (
	"context"
	"os"
	"testing"

	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared by the tests.
var (
	cluster *lab.Cluster
	kube    client.Client
	tree    *cgroup.Tree
)

func TestMain(m *testing.M) {
	os.Exit(lab.RunTests(m, "fault", func(ctx context.Context, c *lab.Cluster) (func(int), error) {
		cluster = c
		return nil, prepare(ctx)
	}))
}

// prepare opens what the tests look at, and loads the image of their pods.
func prepare(ctx context.Context) error {
	bin, err := os.MkdirTemp("", "aware-fault-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	if err := images.Build(ctx, bin, nil, images.Programs(images.Service)...); err != nil {
		return err
	}
	if err := images.Load(ctx, cluster, bin, images.Service); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if kube, err = client.New(cluster.REST(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	tree, err = cgroup.Open("/sys/fs/cgroup")
	return err
}
