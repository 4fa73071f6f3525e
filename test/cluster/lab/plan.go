package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Config says which lab, and what is special about it. The zero value is a lab called
// "default".
type Config struct {
	// Name distinguishes labs on one machine: lower-case letters, digits and dashes, at
	// most 40. Default "default".
	Name string
	// StateDir holds all files that the lab writes, and is removed with it. It
	// must not be below /run, /var/lib or /var/log, because the lab has its own.
	// Default <temporary folder>/aware-cluster/<Name>; [CheckClean] looks only
	// there.
	StateDir string
	// CacheDir holds the binaries, by version. Default
	// $XDG_CACHE_HOME/aware-cluster, or ~/.cache/aware-cluster.
	CacheDir string
	// BindParent binds the lab to the calling process: when that is gone, even
	// after SIGKILL, the lab stops and removes what it made. Tests set it. A
	// command that returns while the lab keeps running does not.
	BindParent bool
	// Log receives a line per step. Default: none.
	Log io.Writer
	// NodeLabels are labels that the node registers with.
	NodeLabels map[string]string
	// Nodes is 1 or 2. The second is a virtual machine with cgroup v2, whose processor
	// is emulated: see [PreflightMachine] for what it needs. Default 1.
	Nodes int
	// CgroupDriver is who makes the control groups of the second node's pods: cgroupfs (the
	// kubelet and the runtime) or systemd. Default cgroupfs.
	CgroupDriver string
	// FeatureGates are Kubernetes' feature gates to turn on or off, in all components.
	FeatureGates map[string]bool
	// MaxPods is how many pods the node takes, from 1 to 250: it has a /24 of addresses.
	// Default 110, which is Kubernetes'.
	MaxPods int
	// Ready bounds the time from the first process to a Ready node; the time to
	// build binaries is not in it. Default 3 minutes for each node. It takes less than 10
	// seconds on an idle machine of two cores, and with a second node less than a minute.
	Ready time.Duration
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "default"
	}
	if c.StateDir == "" {
		c.StateDir = filepath.Join(stateBase(), c.Name)
	}
	if c.CacheDir == "" {
		c.CacheDir = cacheBase()
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.CgroupDriver == "" {
		c.CgroupDriver = cgroupfs
	}
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.Ready == 0 {
		c.Ready = time.Duration(c.Nodes) * 3 * time.Minute
	}
	return c
}

func (c Config) validate() error {
	if !validName.MatchString(c.Name) {
		return fmt.Errorf("the lab's name %q is not made of at most 40 lower-case letters, digits and inner dashes",
			c.Name)
	}
	if c.Nodes < 1 || c.Nodes > 2 {
		return fmt.Errorf("%d nodes: a lab has 1 or 2", c.Nodes)
	}
	if c.CgroupDriver != cgroupfs && c.CgroupDriver != systemd {
		return fmt.Errorf("the control group driver %q is neither %s nor %s", c.CgroupDriver, cgroupfs, systemd)
	}
	if c.MaxPods < 1 || c.MaxPods > 250 {
		return fmt.Errorf("MaxPods %d: it must be from 1 to 250, which is what the node has addresses for", c.MaxPods)
	}
	for _, dir := range []string{c.StateDir, c.CacheDir} {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("the folder %q is not an absolute path", dir)
		}
		for _, hidden := range private {
			if strings.HasPrefix(dir+"/", hidden+"/") {
				return fmt.Errorf("the folder %s is below %s, where the lab has its own folders: "+
					"set another (StateDir, CacheDir; TMPDIR, XDG_CACHE_HOME)", dir, hidden)
			}
		}
	}
	return nil
}

// private is the folders that a lab has its own of.
var private = []string{"/run", "/var/run", "/var/lib", "/var/log"}

func stateBase() string { return filepath.Join(os.TempDir(), "aware-cluster") }

func cacheBase() string {
	base, err := os.UserCacheDir()
	if err != nil {
		base = "/var/cache"
	}
	return filepath.Join(base, "aware-cluster")
}

// owner is the name of a lab's control groups and links.
func owner(name string) string { return "aware-lab-" + name }

// plan is the input of a lab's init, and the record of a running lab: the file lab.json
// in the state folder.
type plan struct {
	Name         string
	Dir          string            // the state folder
	Node         node              // the one whose components this init keeps running
	Second       *node             // the node that is a virtual machine of this lab; nil: none
	Emulator     []string          // the arguments of the program that starts it
	Net          network           //
	Binaries     map[string]string // paths
	Lock         string            // the lock file of changes to this lab
	FeatureGates map[string]bool
	MaxPods      int
	BindParent   bool
	Version      string // Kubernetes'
	Created      time.Time
	Init         process // once started
}

// process is a process ID and a start time, because IDs are reused.
type process struct {
	PID   int
	Start uint64 // in clock ticks since boot
}

func (p plan) cgroup() string              { return "/" + owner(p.Name) }
func (p plan) pki() string                 { return filepath.Join(p.Dir, "pki") }
func (p plan) log(component string) string { return filepath.Join(p.Dir, "log", component+".log") }
func (p plan) kubeconfig() string          { return filepath.Join(p.Dir, "kubeconfig") }
func (p plan) config(file string) string   { return filepath.Join(p.Dir, "config", file) }
func (p plan) kubeconfigOf(user string) string {
	return filepath.Join(p.Dir, "config", user+".kubeconfig")
}
func (p plan) server() string { return "https://" + p.Net.Lab.String() + ":6443" }

// gates is the value of a component's --feature-gates.
func (p plan) gates() string {
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(p.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, p.FeatureGates[name]))
	}
	return strings.Join(gates, ",")
}

func (p plan) save() error { return p.saveIn(p.Dir) }

func (p plan) saveIn(dir string) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, "lab.json"), data)
}

// readPlan reads what save wrote; fs.ErrNotExist when there is no such lab.
func readPlan(dir string) (plan, error) {
	file := filepath.Join(dir, "lab.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return plan{}, err
	}
	var p plan
	if err := json.Unmarshal(data, &p); err != nil {
		return p, fmt.Errorf("reading %s: %w", file, err)
	}
	return p, nil
}

// replaceFile replaces a file atomically.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// alive reports whether this process exists and is not a zombie.
func (p process) alive() bool {
	now, state, err := processAt("/proc", p.PID)
	return err == nil && p.PID > 0 && now.Start == p.Start && state != 'Z' && state != 'X'
}

// processAt reads a process's start and state below a proc file system. The line is
//
//	pid (comm) state ppid pgrp ... starttime(22) ...
//
// where comm may hold spaces and parentheses.
func processAt(proc string, pid int) (process, byte, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, 0, err
	}
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	f := strings.Fields(rest)
	if len(f) < 20 {
		return process{}, 0, fmt.Errorf("the stat of process %d has %d fields after its name: %q",
			pid, len(f), data)
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return process{pid, start}, f[0][0], err
}

// signal sends s to the process if it is still that process.
func (p process) signal(s unix.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := unix.Kill(p.PID, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("sending %v to process %d: %w", s, p.PID, err)
	}
	return nil
}

// gone waits until the process is gone.
func (p process) gone(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func() error {
		if p.alive() {
			return fmt.Errorf("process %d is still there", p.PID)
		}
		return nil
	})
}

// lockFile waits for the file's lock, and returns the function that unlocks it.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, 20*time.Millisecond,
		func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("waiting for the lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// poll calls f until it returns nil, or ctx ends; then the error has both reasons.
func poll(ctx context.Context, every time.Duration, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(every):
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
