package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"awarescale.dev/aware/hack/images/static"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LoadImage makes an image of one layer, files (path in the image to file on
// the host, each executable), and gives it to the container runtime of every node under
// ref. Pods that use it say imagePullPolicy: Never. When it returns, the
// kubelets can see the image.
func (c *Cluster) LoadImage(ctx context.Context, ref string, files map[string]string,
	entrypoint []string) error {
	for _, n := range c.Nodes() {
		if err := n.LoadImage(ctx, ref, files, entrypoint); err != nil {
			return err
		}
	}
	return nil
}

// LoadImage is [Cluster.LoadImage] for one node.
func (n Node) LoadImage(ctx context.Context, ref string, files map[string]string, entrypoint []string) error {
	image, err := static.Image(files, entrypoint, runtime.GOARCH)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("loading the image: %w", err)
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(tarball.Write(tag, image, write)) }()
	defer read.Close()
	cmd := n.Command(ctx, "ctr", "--address="+criSocket, "--namespace=k8s.io", "images", "import", "-")
	cmd.Stdin = read
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("loading the image %s on node %s: %w\n%s", ref, n.Name(), err, out)
	}
	return n.waitForImage(ctx, ref)
}

// TrustRegistry lets the lab's own node pull images from a registry on this machine, at
// [Cluster.HostAddress] and a port, although it speaks plain HTTP.
func (c *Cluster) TrustRegistry(host string) error {
	dir := filepath.Join(c.plan.config("registries"), host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("trusting the registry %s: %w", host, err)
	}
	text := fmt.Sprintf("server = %[1]q\n\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+host)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("trusting the registry %s: %w", host, err)
	}
	return nil
}

// waitForImage waits until the runtime's CRI plugin sees a new image, which is some time after the
// import.
func (n Node) waitForImage(ctx context.Context, ref string) error {
	conn, hangUp, err := n.dialCRI(ctx)
	if err != nil {
		return fmt.Errorf("asking the runtime for the image %s: %w", ref, err)
	}
	defer hangUp()
	images := cri.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func() error {
		status, err := images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("asking the runtime for the image %s: %w", ref, err)
		}
		if status.Image == nil {
			return fmt.Errorf("the runtime does not know the image %s that was imported", ref)
		}
		return nil
	})
}

// dialCRI connects to the node's container runtime.
func (n Node) dialCRI(ctx context.Context) (conn *grpc.ClientConn, hangUp func(), err error) {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	if !n.Machine {
		if conn, err = grpc.NewClient("unix://"+n.cluster.CRISocket(), plain); err != nil {
			return nil, nil, err
		}
		return conn, func() { conn.Close() }, nil
	}
	client, err := n.shell(ctx)
	if err != nil {
		return nil, nil, err
	}
	conn, err = grpc.NewClient("passthrough:///"+criSocket, plain,
		grpc.WithContextDialer(func(_ context.Context, socket string) (net.Conn, error) {
			return client.Dial("unix", socket)
		}))
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); client.Close() }, nil
}

// writeImage writes the image as a file that containerd imports under ref.
func writeImage(file, ref string, image v1.Image) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, image)
}
