// Command init is the first program of a test's virtual machine. The initial file system
// holds this program and the modules that the machine needs. It makes the disk the root, and
// continues as the disk's own init.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"awarescale.dev/aware/test/machine"
	"awarescale.dev/aware/test/machine/guest"
	"golang.org/x/sys/unix"
)

const newRoot = "/root"

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a test's virtual machine, and nothing else")
		os.Exit(2)
	}
	err := enterDisk()
	if err == nil {
		// The environment is the kernel's: HOME, TERM and what its command line names.
		err = unix.Exec(machine.Init, []string{machine.Init}, os.Environ())
	}
	fmt.Println("init:", err) // the kernel's console
	guest.End()
}

// enterDisk loads the modules, and makes the disk the root.
func enterDisk() error {
	if err := guest.Mount("devtmpfs", "/dev", "devtmpfs"); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := waitFor(machine.DiskDevice); err != nil {
		return err
	}
	if err := guest.Mount(machine.DiskDevice, newRoot, "ext4"); err != nil {
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
	order, err := os.ReadFile(machine.ModuleOrder)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open(filepath.Join(filepath.Dir(machine.ModuleOrder), name))
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
