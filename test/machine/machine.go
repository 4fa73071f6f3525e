// Package machine makes and starts virtual machines for tests: a kernel with cgroup v2,
// whatever the host has.
//
// A machine is Debian's kernel for clouds in qemu. It needs no kernel that is installed,
// and it does not use KVM: a host that is virtual itself often has no KVM, or one that stops
// in the middle of a boot. So the processor is emulated everywhere, and computing is
// some twenty times slower. What runs there must not depend on speed.
//
//   - [Preflight] installs qemu and downloads the kernel's package, once, into
//     ~/.cache/aware-vm. The package is unpacked and not installed.
//   - [Machine.Make] makes a disk of a folder, and an initial file system with the modules.
//     The command test/machine/init is the first program there. It makes the disk the root
//     and continues as the disk's own [Init].
//   - [Machine.Args] is how qemu is called.
//
// Who runs machines: test/vm for test binaries, and test/cluster/lab for a node. Package
// guest has what their first processes share.
package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"awarescale.dev/aware/test/debian"
)

const (
	// Qemu is the emulator's program.
	Qemu = "qemu-system-x86_64"
	// Init is the first process of a machine, on its disk.
	Init = "/sbin/init"
	// ModuleOrder is a file of the initial file system: the kernel modules to load, by their file
	// names in the same folder, in this order.
	ModuleOrder = "/modules/order"
	// DiskDevice is the machine's disk.
	DiskDevice = "/dev/vda"
)

// kernelParameters are the kernel's command line. On a host so busy that the emulator gets no time, the
// kernel's check of its timer fails, and that is a panic: no_timer_check.
const kernelParameters = "console=ttyS0 quiet panic=-1 no_timer_check psi=1 cgroup_no_v1=all rdinit=/init"

// Machine is one virtual machine.
type Machine struct {
	Dir     string   // holds its files
	CPUs    int      // that are emulated, a thread of the host for each
	Memory  int      // MiB
	Free    int      // MiB that are free on its disk
	Modules []string // of the kernel, by their names, beside those of the disk
}

// file is the path of one of the machine's files.
func (m Machine) file(name string) string { return filepath.Join(m.Dir, name) }

// Console is the file that gets what the kernel and the first process write.
func (m Machine) Console() string { return m.file("console") }

// Make makes the machine's files. The folder root becomes its disk, and is removed.
func (m Machine) Make(ctx context.Context, root string) error {
	kernel, err := findKernel(cacheBase())
	if err != nil {
		return err
	}
	if err := m.makeInitramfs(ctx, kernel); err != nil {
		return err
	}
	return m.makeDisk(ctx, root)
}

// Args are qemu's arguments: a machine without a configuration of the host's, a screen, a
// network, or a monitor. A restart, which is what a panic becomes, ends it. The more arguments
// add devices. parameters are added to the kernel's command line.
func (m Machine) Args(parameters string, more ...string) ([]string, error) {
	kernel, err := findKernel(cacheBase())
	if err != nil {
		return nil, err
	}
	return append([]string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", "tcg",
		"-smp", strconv.Itoa(m.CPUs), "-m", strconv.Itoa(m.Memory),
		"-kernel", kernel.image, "-initrd", m.file("initramfs"),
		"-append", strings.TrimSpace(kernelParameters + " " + parameters),
		"-drive", "file=" + m.file("disk") + ",format=raw,if=virtio,cache=unsafe",
		"-chardev", "file,id=console,path=" + m.Console(), "-serial", "chardev:console",
	}, more...), nil
}

func requirements() []debian.Requirement {
	return []debian.Requirement{
		{What: Qemu, Why: "it is the virtual machine", Package: "qemu-system-x86", Have: debian.Program(Qemu)},
		{What: "mke2fs", Why: "it makes the machine's disk", Package: "e2fsprogs", Have: debian.Program("mke2fs")},
		{What: "xz", Why: "a kernel's modules may be compressed", Package: "xz-utils", Have: debian.Program("xz")},
	}
}

// Missing lists what the host lacks for a virtual machine: one sentence each, with the
// reason. It is empty when a machine can run here.
func Missing() []string {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return []string{fmt.Sprintf("the system is %s on %s: the virtual machine needs Linux on amd64",
			runtime.GOOS, runtime.GOARCH)}
	}
	lacks := debian.Missing(requirements())
	if _, err := findKernel(cacheBase()); err != nil {
		lacks = append(lacks, err.Error())
	}
	return lacks
}

// Preflight returns an error that names everything that the host lacks. With install,
// root on Debian gets the missing packages first, and everybody on Debian the kernel.
func Preflight(ctx context.Context, install bool) error {
	var failed error
	if install && len(Missing()) > 0 {
		failed = errors.Join(debian.Install(ctx, requirements()), getKernel(ctx, cacheBase()))
	}
	lacks := Missing()
	if len(lacks) == 0 {
		return nil
	}
	if failed != nil {
		lacks = append(lacks, failed.Error())
	}
	return errors.New("a virtual machine cannot run here:\n  " + strings.Join(lacks, "\n  "))
}
