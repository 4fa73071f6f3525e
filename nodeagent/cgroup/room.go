package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"awarescale.dev/aware/learner/mdp"
	"golang.org/x/sys/unix"
)

// Limits reads the limits of one group, which need not be a container's.
func (t *Tree) Limits(path string) (Limits, error) {
	g, err := t.only(path, fileQuota, filePeriod, fileMemoryLimit)
	if err != nil {
		return Limits{}, err
	}
	defer g.Close()
	return g.Limits()
}

// CPULimit is the CPU part of Limits.
func (t *Tree) CPULimit(path string) (Limits, error) {
	g, err := t.only(path, fileQuota, filePeriod)
	if err != nil {
		return Limits{}, err
	}
	defer g.Close()
	return g.CPULimit()
}

// Pod opens what is needed of a pod's group: its CPU time, and its CPU limit.
func (t *Tree) Pod(path string) (*Group, error) {
	return t.only(path, t.version.usageFile(), fileQuota, filePeriod)
}

// only opens some files of a group.
func (t *Tree) only(path string, which ...int) (*Group, error) {
	g := &Group{path: path, version: t.version, buffer: new([]byte)}
	for i := range g.files {
		g.files[i].fd = -1
	}
	names := t.names(path)
	for _, one := range which {
		name := names[one]
		if name == "" {
			continue
		}
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			g.files[one] = file{fd: fd, path: name}
			continue
		}
		g.Close()
		if !t.Exists(path) {
			return nil, fmt.Errorf("reading the limits of cgroup %s: %w", path, ErrGone)
		}
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	return g, nil
}

// Children are the groups directly below one, by their paths below the root.
func (t *Tree) Children(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(t.cpu, path))
	if err != nil {
		return nil, fmt.Errorf("listing cgroup %s: %w", path, err)
	}
	var children []string
	for _, e := range entries {
		if e.IsDir() {
			children = append(children, filepath.Join(path, e.Name()))
		}
	}
	return children, nil
}

// Room is what the limits of a container's pod leave to the container, when it is not
// known what the API gives to the pod's containers: the pod's limits without those
// that its other containers have. 0 is none: the pod has no such limit. atLeast, which
// may be nil, says of another container what it has to get back.
func (t *Tree) Room(path string, atLeast func(path string) Limits) (mdp.Size, error) {
	pod := filepath.Dir(path)
	l, err := t.Limits(pod)
	if err != nil {
		return mdp.Size{}, err
	}
	room := l.Size()
	others, err := t.Children(pod)
	if err != nil {
		return mdp.Size{}, err
	}
	for _, other := range others {
		if other == path {
			continue
		}
		has, err := t.Limits(other)
		if errors.Is(err, ErrGone) || errors.Is(err, unix.ENOENT) {
			continue // it has just ended
		}
		if err != nil {
			return mdp.Size{}, err
		}
		var least mdp.Size
		if atLeast != nil {
			least = atLeast(other).Size()
		}
		room = without(room, mdp.Size{CPU: max(has.CPU(), least.CPU), Memory: max(has.Memory, least.Memory)})
	}
	return room, nil
}

// without is a room without what another takes. It is at least 1, because 0 is none.
func without(room, other mdp.Size) mdp.Size {
	if room.CPU > 0 {
		room.CPU = max(1, room.CPU-other.CPU)
	}
	if room.Memory > 0 {
		room.Memory = max(1, room.Memory-other.Memory)
	}
	return room
}
