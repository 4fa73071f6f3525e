package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
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
// the host, each executable), and gives it to the lab's container runtime under
// ref. Pods that use it say imagePullPolicy: Never. When it returns, the
// kubelet can see the image.
func (c *Cluster) LoadImage(ctx context.Context, ref string, files map[string]string,
	entrypoint []string) error {
	image, err := static.Image(files, entrypoint, runtime.GOARCH)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		return fmt.Errorf("loading the image: %w", err)
	}
	ctr, err := c.Binary("ctr")
	if err != nil {
		return err
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(tarball.Write(tag, image, write)) }()
	defer read.Close()
	cmd := exec.CommandContext(ctx, ctr, "--address="+c.CRISocket(), "--namespace=k8s.io", "images", "import",
		"-")
	cmd.Stdin = read
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("loading the image %s: %w\n%s", ref, err, out)
	}

	// The runtime's CRI plugin sees new images some time later.
	conn, err := grpc.NewClient("unix://"+c.CRISocket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("asking the runtime for the image %s: %w", ref, err)
	}
	defer conn.Close()
	images := cri.NewImageServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
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
