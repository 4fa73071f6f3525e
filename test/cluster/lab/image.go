package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
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
	image, err := staticImage(files, entrypoint)
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

// staticImage makes an image of one layer.
func staticImage(files map[string]string, entrypoint []string) (v1.Image, error) {
	var layer bytes.Buffer
	t := tar.NewWriter(&layer)
	made := map[string]bool{"/": true}
	for _, to := range slices.Sorted(maps.Keys(files)) {
		if !path.IsAbs(to) {
			return nil, fmt.Errorf("the path %q in the image is not absolute", to)
		}
		if err := addDirs(t, path.Dir(path.Clean(to)), made); err != nil {
			return nil, err
		}
		if err := addFile(t, path.Clean(to), files[to]); err != nil {
			return nil, fmt.Errorf("putting %s into the image as %s: %w", files[to], to, err)
		}
	}
	if err := addDirs(t, "/tmp", made); err != nil { // programs expect it
		return nil, err
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = entrypoint
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"}
	return mutate.ConfigFile(image, config)
}

func addDirs(t *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := addDirs(t, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	mode := int64(0o755)
	if dir == "/tmp" {
		mode = 0o1777
	}
	return t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir,
		Name:     strings.TrimPrefix(dir, "/") + "/",
		Mode:     mode,
	})
}

func addFile(t *tar.Writer, to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file but %v", info.Mode())
	}
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(to, "/"),
		Mode:     0o755,
		Size:     info.Size(),
	}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
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
