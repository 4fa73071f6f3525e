package machine

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"awarescale.dev/aware/test/debian"
)

// kernelPackage depends on the newest kernel of its kind. The kind for clouds is small,
// and has what a virtual machine needs.
const kernelPackage = "linux-image-cloud-amd64"

// diskModules are what a machine's disk needs, if they are not part of the kernel.
var diskModules = []string{"virtio_pci", "virtio_blk", "ext4"}

func cacheBase() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = "/var/cache"
	}
	return filepath.Join(base, "aware-vm")
}

// kernel is an unpacked package of a kernel.
type kernel struct {
	image string // the file to boot
	tree  string // the folder of its modules
}

// findKernel looks for a kernel in the cache, and takes the one whose name is the last.
func findKernel(cache string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(cache, "linux-image-*", "boot", "vmlinuz-*"))
	if err != nil {
		return kernel{}, err
	}
	for _, image := range slices.Backward(images) {
		version := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
		for _, lib := range []string{"lib", "usr/lib"} { // Debian 13 has the second
			tree := filepath.Join(filepath.Dir(image), "..", lib, "modules", version)
			if info, err := os.Stat(tree); err == nil && info.IsDir() {
				return kernel{image, tree}, nil
			}
		}
	}
	return kernel{}, fmt.Errorf("a kernel is missing in %s: the machine boots it; on Debian the tests download %s",
		cache, kernelPackage)
}

// getKernel downloads and unpacks Debian's kernel, unless there is one.
func getKernel(ctx context.Context, cache string) error {
	if _, err := findKernel(cache); err == nil {
		return nil
	}
	if !debian.Program("apt-get", "apt-cache", "dpkg-deb")() {
		return errors.New("this is not Debian: there is no apt-get, apt-cache or dpkg-deb")
	}
	if os.Geteuid() == 0 { // a list of last month names a kernel that the archive has no longer
		if err := debian.Update(ctx); err != nil {
			return err
		}
	}
	depends, err := debian.Apt(ctx, ".", "apt-cache", "depends", kernelPackage)
	if err != nil {
		return err
	}
	name, err := imageOf(depends)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "unpacking-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(ctx, dir, name); err != nil {
		return err
	}
	err = os.Rename(filepath.Join(dir, "unpacked"), filepath.Join(cache, name))
	if errors.Is(err, os.ErrExist) { // another test was faster
		return nil
	}
	return err
}

// imageOf finds the kernel's own package in what apt-cache says of kernelPackage:
//
//	linux-image-cloud-amd64
//	  Depends: linux-image-6.1.0-56-cloud-amd64
func imageOf(depends string) (string, error) {
	for line := range strings.Lines(depends) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + name, nil
		}
	}
	return "", fmt.Errorf("apt-cache depends %s names no kernel: %q", kernelPackage, depends)
}

// unpack downloads a package into a folder and unpacks it into the folder unpacked there.
func unpack(ctx context.Context, dir, name string) error {
	if _, err := debian.Apt(ctx, dir, "apt-get", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("apt-get download %s left %d files", name, len(files))
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], filepath.Join(dir, "unpacked"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking %s: %w\n%s", files[0], err, out)
	}
	return nil
}

// module is a kernel module that is not compressed.
type module struct {
	name string // of the file
	code []byte
}

// modules are the named ones and all that they need, in the order in which they can be
// loaded. A name that has no file is part of the kernel.
func (k kernel) modules(ctx context.Context, names ...string) ([]module, error) {
	files := map[string]string{}
	err := filepath.WalkDir(k.tree, func(path string, _ os.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
			files[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for kernel modules: %w", err)
	}
	var all []module
	var add func(name string) error
	add = func(name string) error {
		path, ok := files[moduleName(name)]
		if !ok {
			return nil
		}
		delete(files, moduleName(name)) // once is enough
		code, err := readModule(ctx, path)
		if err != nil {
			return err
		}
		needs, err := dependencies(code)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		for _, need := range needs {
			if err := add(need); err != nil {
				return err
			}
		}
		all = append(all, module{moduleName(name) + ".ko", code})
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// moduleName is a module's name with underscores; files may have dashes.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

func readModule(ctx context.Context, path string) ([]byte, error) {
	if filepath.Ext(path) != ".xz" {
		return os.ReadFile(path)
	}
	code, err := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", path).Output()
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", path, err)
	}
	return code, nil
}

// dependencies are the names of the modules that a module needs. They are in its section
// .modinfo, a list of strings that end with a zero byte:
//
//	depends=virtio,virtio_ring
func dependencies(code []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no section .modinfo: not a kernel module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(field, "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}
