// Package guest is what the first processes of virtual machines have in common: mounts, and
// the end of the machine.
package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CgroupRoot is where the control groups are.
const CgroupRoot = "/sys/fs/cgroup"

// Mount mounts a file system, and makes its folder.
func Mount(source, target, kind string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, 0, ""); err != nil {
		return fmt.Errorf("mounting %s (%s) at %s: %w", source, kind, target, err)
	}
	return nil
}

// MountSystem mounts what the kernel shows as files: devices, processes, itself, and the control groups.
func MountSystem() error {
	for _, m := range []struct{ source, target, kind string }{
		{"devtmpfs", "/dev", "devtmpfs"},
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"cgroup2", CgroupRoot, "cgroup2"},
	} {
		if err := Mount(m.source, m.target, m.kind); err != nil {
			return err
		}
	}
	return nil
}

// End switches the machine off, and returns only when that fails. The emulator ends at
// a restart; switching off would need more of the machine.
func End() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		fmt.Println("restarting:", err)
	}
}
