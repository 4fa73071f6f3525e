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

	"github.com/google/go-containerregistry/pkg/registry"
)

// pushed is the registry that AWARE was installed from; empty on a second node, whose images are
// loaded.
var pushed string

// learners is the kustomization of learners of their own.
var learners = "../../manifests/learners"

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
	learners = filepath.Join(source, "out", "install-learners")
	return filepath.Join(source, "out", "install"), nil
}
