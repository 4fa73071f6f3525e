package main

import (
	_ "connectrpc.com/connect"
	_ "github.com/HdrHistogram/hdrhistogram-go"
	_ "github.com/containerd/cgroups/v3/cgroup1"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/common/expfmt"
	_ "github.com/prometheus/procfs"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/net/http2/h2c"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/time/rate"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
	_ "k8s.io/cri-client/pkg"
	_ "k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	_ "k8s.io/metrics/pkg/client/clientset/versioned"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
)

func main() {}
