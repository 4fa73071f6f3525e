package e2e

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"awarescale.dev/aware/test/cluster/images"
	"github.com/google/go-containerregistry/pkg/registry"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pushed is the registry that AWARE was installed from; empty on a second node, whose images are
// loaded.
var pushed string

// push pushes AWARE's images to a registry of this process, as its users do with make images. It returns
// the kustomization that installs them, which the node pulls.
func push(ctx context.Context) (overlay string, err error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(cluster.HostAddress(), "0"))
	if err != nil {
		return "", fmt.Errorf("serving a registry: %w", err)
	}
	go http.Serve(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0)))) // as long as the process
	pushed = listener.Addr().String()
	if err := cluster.TrustRegistry(pushed); err != nil {
		return "", err
	}
	built := filepath.Join(bin, "images")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return "", err
	}
	if err := os.Symlink(bin, filepath.Join(built, runtime.GOARCH)); err != nil {
		return "", err
	}
	const source = "../.."
	cmd := exec.CommandContext(ctx, "go", "run", "./hack/images", "--registry="+pushed+"/aware", "--insecure",
		"--platforms=linux/"+runtime.GOARCH, "--built="+built)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pushing AWARE's images: %w\n%s", err, out)
	}
	return filepath.Join(source, "out", "install"), nil
}

// A node gets AWARE's programs from the registry that they were pushed to, by their digests.
func Test00TheImagesOfARegistryRun(t *testing.T) {
	firstOnly(t)
	var pods corev1.PodList
	if err := kube.List(t.Context(), &pods, client.InNamespace("aware-system")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range pods.Items {
		for _, s := range p.Status.ContainerStatuses {
			for _, image := range []images.Image{images.Agent, images.Central} {
				name := filepath.Base(image.Program)
				if strings.HasPrefix(s.ImageID, pushed+"/aware/"+name+"@sha256:") && s.Ready {
					seen[name] = true
				}
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("pulled and ready are %v of aware-agent and aware-central", seen)
	}
}
