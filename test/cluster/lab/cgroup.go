package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted tree of control groups: one of several on cgroup v1, the
// only one on v2, and both kinds on a hybrid host.
type hierarchy struct {
	Dir string // where it is mounted
	V2  bool
}

// hierarchies lists those the machine has.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readHierarchies(f)
}

// readHierarchies finds the control group trees in a mountinfo. Format, proc(5):
//
//	36 35 98:0 /root /mount/point rw,noatime master:1 - cgroup cgroup rw,cpu
//	(1)(2)(3)   (4)   (5)          (6)        (7)    (8) (9)   (10)   (11)
//
// A tree whose root (4) is not / shows only a part and is ignored.
func readHierarchies(r io.Reader) ([]hierarchy, error) {
	var hs []hierarchy
	seen := map[string]bool{}
	for s := bufio.NewScanner(r); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		f, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(kind) < 1 || f[3] != "/" || seen[f[4]] {
			continue
		}
		if kind[0] == "cgroup" || kind[0] == "cgroup2" {
			seen[f[4]] = true
			hs = append(hs, hierarchy{Dir: f[4], V2: kind[0] == "cgroup2"})
		}
	}
	if len(hs) == 0 {
		return nil, errors.New("no control group tree is mounted at its root")
	}
	return hs, nil
}

// makeGroup creates the group and those above it, able to hold limited processes.
func (h hierarchy) makeGroup(group string) error {
	parent := h.Dir
	for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
		if h.V2 {
			h.delegate(parent)
		}
		dir := filepath.Join(parent, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the control group: %w", err)
		}
		// In v1 a cpuset without CPUs or memory takes no process.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if h.V2 {
				break
			}
			above, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil {
				break // no cpuset hierarchy
			}
			if err := os.WriteFile(filepath.Join(dir, file), above, 0o644); err != nil {
				return fmt.Errorf("giving the control group CPUs and memory: %w", err)
			}
		}
		parent = dir
	}
	return nil
}

// delegate enables, below dir, each controller that dir has. An error is ignored: the
// component that needs the controller reports it with a better message.
func (h hierarchy) delegate(dir string) {
	controllers, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for c := range strings.FieldsSeq(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

// add moves a process into the group.
func (h hierarchy) add(group string, pid int) error {
	file := filepath.Join(h.Dir, group, "cgroup.procs")
	if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("moving process %d: %w", pid, err)
	}
	return nil
}

// removeGroups removes the group and all below it from every hierarchy, trying again
// until ctx ends: a group stays busy for a moment after its last process is gone.
func removeGroups(ctx context.Context, hs []hierarchy, group string) error {
	var errs []error
	for _, h := range hs {
		err := poll(ctx, 20*time.Millisecond, func() error { return removeGroup(filepath.Join(h.Dir, group)) })
		if err != nil {
			errs = append(errs, fmt.Errorf("removing control group: %w", err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup removes the folder and the folders below it, deepest first. It uses rmdir
// alone: it removes a group with its files, and nothing that is not a group.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	thaw(dir)
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// thaw lets a frozen group's processes run, because a killed process ends only when it
// runs.
func thaw(dir string) {
	for file, value := range map[string]string{"freezer.state": "THAWED", "cgroup.freeze": "0"} {
		if f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0); err == nil {
			_, _ = f.WriteString(value)
			f.Close()
		}
	}
}
