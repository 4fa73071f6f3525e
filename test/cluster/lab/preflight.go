package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// requirement is a program or a feature of the host that the lab uses.
type requirement struct {
	what string // a name for messages
	why  string
	pkg  string // Debian's package
	have func() bool
}

func program(names ...string) func() bool {
	return func() bool {
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				return false
			}
		}
		return true
	}
}

// requirements is in reading order.
func requirements() []requirement {
	rs := []requirement{
		{"ip", "it makes the lab's link", "iproute2", program("ip")},
		{"mount", "the kubelet calls it", "mount", program("mount", "umount")},
		{"nsenter", "it runs programs inside the lab", "util-linux", program("nsenter")},
		{"nft", "kube-proxy calls it", "nftables", program("nft")},
		{"conntrack", "kube-proxy forgets connections with it", "conntrack", program("conntrack")},
		{"the CNI plugins ptp, host-local and loopback in " + cniPlugins, "they connect the pods",
			"containernetworking-plugins", func() bool {
				return exists(cniPlugins+"/ptp") && exists(cniPlugins+"/host-local") &&
					exists(cniPlugins+"/loopback")
			}},
	}
	// The needs of runc's C code matter only until runc is built.
	if cached, _ := filepath.Glob(filepath.Join(cacheBase(), "runc-*")); len(cached) == 0 {
		rs = append(rs,
			requirement{"gcc", "runc is built with it", "gcc", program("gcc")},
			requirement{"pkg-config", "runc's build looks for libseccomp with it", "pkg-config",
				program("pkg-config")},
			requirement{"the headers of libseccomp", "runc is built with them", "libseccomp-dev", func() bool {
				return program("pkg-config")() &&
					exec.Command("pkg-config", "--exists", "libseccomp").Run() == nil
			}})
	}
	return rs
}

// Missing lists what the host lacks for a lab: one sentence for each requirement, with
// the reason and the way to get it. It is empty when a lab can run here.
func Missing() []string {
	var lacks []string
	for _, r := range requirements() {
		if !r.have() {
			lacks = append(lacks, fmt.Sprintf("%s is missing: %s; apt-get install %s", r.what, r.why, r.pkg))
		}
	}
	return append(lacks, forbidden()...)
}

// Preflight returns an error that names everything that a lab lacks on this host.
// With install, root on Debian gets the missing packages first.
func Preflight(ctx context.Context, install bool) error {
	if install && os.Geteuid() == 0 {
		if err := installPackages(ctx); err != nil {
			return err
		}
	}
	lacks := Missing()
	if len(lacks) == 0 {
		return nil
	}
	return errors.New("a lab cannot run here:\n  " + strings.Join(lacks, "\n  "))
}

func installPackages(ctx context.Context) error {
	var packages []string
	for _, r := range requirements() {
		if !r.have() {
			packages = append(packages, r.pkg)
		}
	}
	if _, err := exec.LookPath("apt-get"); err != nil || len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	for _, args := range [][]string{{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, slices.Compact(packages)...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// forbidden lists what the kernel, or the container of this process, does not permit.
func forbidden() []string {
	if os.Geteuid() != 0 {
		return []string{
			fmt.Sprintf("user %d is not root: the lab makes namespaces, mounts and control groups; run it with sudo",
				os.Geteuid()),
		}
	}
	var no []string
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := probe.Run(); err != nil {
		no = append(
			no,
			fmt.Sprintf("no container can be started here: making namespaces: %v; in a container, run it privileged",
				err),
		)
	}
	trees, err := hierarchies()
	if err != nil {
		return append(no, fmt.Sprintf("no container can be started here: %v; mount /sys/fs/cgroup", err))
	}
	// The name has another prefix than a lab's, so that CheckClean of another
	// process does not list it.
	group := fmt.Sprintf("aware-preflight-%d", os.Getpid())
	for _, h := range trees {
		dir := filepath.Join(h.Dir, group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			no = append(no, fmt.Sprintf(
				"no container can be started here: making a control group: %v; "+
					"in a container, run it privileged with its cgroup tree writable",
				err,
			))
			continue
		}
		_ = removeGroup(dir)
	}
	return no
}
