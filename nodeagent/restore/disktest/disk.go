// Package disktest makes small disks for tests, which a test fills: a journal has to cope
// with one that is full.
package disktest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Page is the unit in which the kernel gives out space of a disk.
const Page = 4096

// Disk is a file system in memory. It is mounted nowhere: nothing is left of it when the
// test ends, however it ends.
type Disk struct {
	Dir string // of this process only
	tb  testing.TB
}

// New makes an empty disk. Where that is not possible the test is skipped, with the reason.
func New(tb testing.TB, pages int) *Disk {
	tb.Helper()
	root, err := mount(pages)
	if err != nil {
		tb.Skipf("a disk of %d pages: %v", pages, err)
	}
	tb.Cleanup(func() { unix.Close(root) })
	return &Disk{Dir: fmt.Sprintf("/proc/self/fd/%d", root), tb: tb}
}

// mount makes a file system, and returns its root.
func mount(pages int) (root int, err error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "size", fmt.Sprint(pages*Page)); err != nil {
		return -1, fmt.Errorf("fsconfig size: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("fsconfig create: %w", err)
	}
	root, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, fmt.Errorf("fsmount: %w", err)
	}
	return root, nil
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill takes all space but that many pages.
func (d *Disk) Fill(leave int) {
	d.tb.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.tb.Fatal(err)
	}
	defer f.Close()
	for page := bytes.Repeat([]byte{1}, Page); ; {
		if _, err = f.Write(page); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		d.tb.Fatalf("filling a disk: %v", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(max(0, info.Size()-int64(leave*Page)))
	}
	if err != nil {
		d.tb.Fatal(err)
	}
}

// Free gives back what Fill took.
func (d *Disk) Free() {
	d.tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.tb.Fatal(err)
	}
}
