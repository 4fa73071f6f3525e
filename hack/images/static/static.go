// Package static makes container images of static programs: one layer, no base, no shell.
package static

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image makes an image of one layer for Linux and an architecture as GOARCH names it. files is
// the path in the image to the file on this machine; each is executable. The same files
// make the same image, because nothing in it has a time.
func Image(files map[string]string, entrypoint []string, arch string) (v1.Image, error) {
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
	config.OS, config.Architecture = "linux", arch
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
