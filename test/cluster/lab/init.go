package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Why the lab ends.
var (
	errStopped    = errors.New("asked to stop")
	errParentGone = errors.New("the process this lab is bound to is gone")
)

// Init is the lab's first process, PID 1 of its namespaces. Up starts it, in
// the program that test/cluster builds. It sets up the namespaces like a
// machine, and keeps the components running. It returns after SIGTERM or
// SIGINT, when all other processes are gone.
//
// File descriptor 3 is a pipe from the process in Up. A byte says that the network is
// connected. With BindParent the other end stays open. When it closes, the process is
// gone, also after a crash.
func Init(dir string) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("this is process %d: the lab's init must be the first of its PID namespace",
			os.Getpid())
	}
	p, err := readPlan(dir)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	signals, asked := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
	go func() { <-signals; end(errStopped); close(asked) }()

	parent := os.NewFile(3, "parent")
	if _, err := parent.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the network to be connected: %w", errParentGone)
	}
	if p.BindParent {
		go func() { _, _ = parent.Read(make([]byte, 1)); end(errParentGone) }()
	} else {
		parent.Close()
	}

	if err := p.mount(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(p.Node.Name)); err != nil {
		return fmt.Errorf("setting the host name %s: %w", p.Node.Name, err)
	}
	if err := p.Net.setUp(ctx); err != nil {
		return err
	}
	s := newSupervisor(p)
	if s.trees, err = hierarchies(); err != nil {
		return err
	}
	go s.reapOrphans()
	if err = s.start(ctx); err == nil {
		s.log.Print("all components run")
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil {
		s.log.Printf("stopping: %v", cause)
		err = nil
	}
	s.stop()
	if errors.Is(context.Cause(ctx), errParentGone) {
		return errors.Join(err, p.leave(asked))
	}
	return err // the process that sent the signal removes the rest
}

// mount gives the lab its own /proc, /run, /var/lib and /var/log. Its mounts, and those
// of pods, are not visible outside.
func (p plan) mount() error {
	// From now on, mounts do not propagate to or from the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separating the lab's mounts from the host's: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	bind := func(from, to string) error {
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", from, to, err)
		}
		return nil
	}
	for from, to := range map[string]string{"var-lib": "/var/lib", "var-log": "/var/log"} {
		from = filepath.Join(p.Dir, from)
		if err := os.MkdirAll(from, 0o755); err != nil {
			return err
		}
		if err := bind(from, to); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/run/lock", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for knob, value := range knobs {
		file := filepath.Join(p.Dir, "knobs", strings.ReplaceAll(knob, "/", "."))
		sysctl := filepath.Join("/proc/sys", knob)
		if !exists(sysctl) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o444); err != nil {
			return err
		}
		if err := bind(file, sysctl); err != nil {
			return err
		}
	}
	// The kubelet and its pods pass mounts to each other.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts inside the lab: %w", err)
	}
	return nil
}

// knobs is the kernel settings that a kubelet requires. They are shared by the whole
// machine. The lab does not change them: it shows the kubelet files with the required
// values.
var knobs = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// leave removes what the lab has outside of its namespaces. It gives up when it
// is asked to stop: then another process holds the lock and removes it.
func (p plan) leave(asked <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() { <-asked; cancel() }()
	unlock, err := lockFile(ctx, p.Lock)
	if err != nil {
		return err
	}
	defer unlock()
	if err := detachBelow("/var/lib", "/var/log", p.Dir); err != nil {
		return err
	}
	return removeTraces(ctx, p.Name, p.Dir)
}

// detachBelow unmounts what is mounted at or below the folders, latest first.
func detachBelow(dirs ...string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for _, line := range slices.Backward(lines) {
		f := strings.Fields(line)
		if len(f) < 5 || !slices.ContainsFunc(dirs,
			func(dir string) bool { return strings.HasPrefix(f[4]+"/", dir+"/") }) {
			continue
		}
		if err := unix.Unmount(f[4], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", f[4], err)
		}
	}
	return nil
}
