package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Version is which of the kernel's two interfaces a Tree has.
type Version int

// The two versions. A hybrid host, with v1 controllers and an empty v2
// hierarchy, is V1.
const (
	V1 Version = 1
	V2 Version = 2
)

func (v Version) String() string { return fmt.Sprintf("v%d", int(v)) }

// ErrGone says that a group was removed: its container ended.
var ErrGone = errors.New("cgroup is gone")

// Tree is a mounted cgroup hierarchy, or on v1 the four hierarchies that we read.
type Tree struct {
	root    string
	version Version
	cpu     string // directory; on v2 the root
	cpuacct string // directory; on v2 the root
	memory  string // directory; on v2 the root
	blkio   string // directory; on v2 the root; empty when there is none
}

// Open finds out what is mounted at root. An error names the path and what is
// missing there.
func Open(root string) (*Tree, error) {
	info, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("cgroup root %s: %w", root, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("cgroup root %s: not a directory", root)
	}
	if exists(filepath.Join(root, "cgroup.controllers")) {
		return &Tree{root: root, version: V2, cpu: root, cpuacct: root, memory: root, blkio: root}, nil
	}
	t := &Tree{root: root, version: V1}
	var missing []string
	// Distributions mount cpu and cpuacct together and link the single names;
	// the link may be absent in a container.
	for _, h := range []struct {
		dir   *string
		needs bool
		names []string
	}{
		{&t.cpu, true, []string{"cpu", "cpu,cpuacct", "cpuacct,cpu"}},
		{&t.cpuacct, true, []string{"cpuacct", "cpu,cpuacct", "cpuacct,cpu"}},
		{&t.memory, true, []string{"memory"}},
		{&t.blkio, false, []string{"blkio"}},
	} {
		for _, name := range h.names {
			if dir := filepath.Join(root, name); exists(dir) {
				*h.dir = dir
				break
			}
		}
		if *h.dir == "" && h.needs {
			missing = append(missing, h.names[0])
		}
	}
	if missing != nil {
		return nil, fmt.Errorf(
			"cgroup root %s is not one: no cgroup.controllers (v2), and no %s (v1) below it; set --cgroup-root",
			root,
			strings.Join(missing, ", "),
		)
	}
	return t, nil
}

// Version is V1 or V2.
func (t *Tree) Version() Version { return t.version }

// Root is the directory that the Tree was opened with.
func (t *Tree) Root() string { return t.root }

// Path is where a container's group is below the root, from the cgroupsPath in
// its OCI runtime spec. That has two forms, by the node's cgroup driver:
//
//	/kubepods/burstable/pod<uid>/<id>                              cgroupfs: the path itself
//	kubepods-burstable-pod<uid>.slice:cri-containerd:<id>          systemd: slice:prefix:name
//
// A systemd slice a-b-c.slice lies in a.slice/a-b.slice, and the container's
// scope is prefix-name.scope in it.
func (t *Tree) Path(cgroupsPath string) (string, error) {
	if cgroupsPath == "" {
		return "", errors.New("cgroupsPath is empty: the runtime put the container into no group of its own")
	}
	slice, rest, systemd := strings.Cut(cgroupsPath, ":")
	if !systemd {
		return contained(cgroupsPath)
	}
	prefix, name, ok := strings.Cut(rest, ":")
	if !ok || name == "" || strings.ContainsAny(rest, "/\x00") {
		return "", fmt.Errorf("cgroupsPath %q: want slice:prefix:name", cgroupsPath)
	}
	dir, err := expandSlice(slice)
	if err != nil {
		return "", fmt.Errorf("cgroupsPath %q: %w", cgroupsPath, err)
	}
	unit := name
	if !strings.HasSuffix(name, ".slice") { // as runc: a name that is a slice itself stays one
		unit = name + ".scope"
		if prefix != "" {
			unit = prefix + "-" + unit
		}
	}
	return contained(filepath.Join(dir, unit))
}

// contained cleans a path, and refuses one that leads out of the root: the path came
// over a socket.
func contained(path string) (string, error) {
	clean := strings.TrimPrefix(filepath.Clean("/"+path), "/")
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return "", fmt.Errorf("cgroup path %q leads out of the root", path)
		}
	}
	if clean == "" || strings.ContainsRune(clean, 0) {
		return "", fmt.Errorf("cgroup path %q is no container's", path)
	}
	return clean, nil
}

// expandSlice turns a-b-c.slice into a.slice/a-b.slice/a-b-c.slice, as systemd
// nests slices. The root slice is called -.slice; no slice at all is
// system.slice, runc's default.
func expandSlice(slice string) (string, error) {
	if slice == "" {
		slice = "system.slice"
	}
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" || strings.Contains(slice, "/") {
		return "", fmt.Errorf("%q is not a slice", slice)
	}
	if name == "-" {
		return "", nil
	}
	var path, prefix string
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", fmt.Errorf("%q is not a slice", slice)
		}
		prefix += part
		path = filepath.Join(path, prefix+".slice")
		prefix += "-"
	}
	return path, nil
}

// Exists reports whether there is a group at the path.
func (t *Tree) Exists(path string) bool { return exists(filepath.Join(t.cpu, path)) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist) && err == nil
}
