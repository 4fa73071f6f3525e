package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"awarescale.dev/aware/test/vm/wire"
	"golang.org/x/sys/unix"
)

const (
	cgroupRoot    = "/sys/fs/cgroup"
	programsGroup = cgroupRoot + "/programs"
	disk          = "/dev/vda"
	newRoot       = "/root"
)

// enterDisk loads the modules of the disk, and makes the disk the root.
func enterDisk() error {
	if err := mount("devtmpfs", "/dev", "devtmpfs", ""); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := waitFor(disk); err != nil {
		return err
	}
	if err := mount(disk, newRoot, "ext4", ""); err != nil {
		return err
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving %s to /: %w", newRoot, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("changing the root to %s: %w", newRoot, err)
	}
	return os.Chdir("/")
}

func loadModules() error {
	order, err := os.ReadFile(wire.Modules)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open(filepath.Join(filepath.Dir(wire.Modules), name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading the module %s: %w", name, err)
		}
	}
	return nil
}

// waitFor waits for a device: the kernel looks for disks on its own time.
func waitFor(device string) error {
	for range 600 {
		if _, err := os.Stat(device); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s: the disk does not appear within a minute", device)
}

func mountAll() error {
	for _, m := range []struct{ source, target, kind, options string }{
		{"devtmpfs", "/dev", "devtmpfs", ""},
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"cgroup2", cgroupRoot, "cgroup2", ""},
	} {
		if err := mount(m.source, m.target, m.kind, m.options); err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, 0, options); err != nil {
		return fmt.Errorf("mounting %s (%s) at %s: %w", source, kind, target, err)
	}
	return nil
}

// loopbackUp starts the machine's only network: tests listen on 127.0.0.1.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("starting the network interface lo: %w", err)
	}
	return nil
}
