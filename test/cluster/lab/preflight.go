package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"awarescale.dev/aware/test/debian"
)

// requirements is in reading order.
func requirements() []debian.Requirement {
	rs := []debian.Requirement{
		{What: "ip", Why: "it makes the lab's link", Package: "iproute2", Have: debian.Program("ip")},
		{What: "mount", Why: "the kubelet calls it", Package: "mount", Have: debian.Program("mount", "umount")},
		{What: "nsenter", Why: "it runs programs inside the lab", Package: "util-linux",
			Have: debian.Program("nsenter")},
		{What: "nft", Why: "kube-proxy calls it", Package: "nftables", Have: debian.Program("nft")},
		{What: "conntrack", Why: "kube-proxy forgets connections with it", Package: "conntrack",
			Have: debian.Program("conntrack")},
		{What: "the CNI plugins ptp, host-local and loopback in " + cniPlugins, Why: "they connect the pods",
			Package: "containernetworking-plugins", Have: func() bool {
				return exists(cniPlugins+"/ptp") && exists(cniPlugins+"/host-local") &&
					exists(cniPlugins+"/loopback")
			}},
	}
	// The needs of runc's C code matter only until runc is built.
	if cached, _ := filepath.Glob(filepath.Join(cacheBase(), "runc-*")); len(cached) == 0 {
		rs = append(rs, []debian.Requirement{
			{What: "gcc", Why: "runc is built with it", Package: "gcc", Have: debian.Program("gcc")},
			{What: "pkg-config", Why: "runc's build looks for libseccomp with it", Package: "pkg-config",
				Have: debian.Program("pkg-config")},
			{What: "the headers of libseccomp", Why: "runc is built with them", Package: "libseccomp-dev",
				Have: func() bool {
					return debian.Program("pkg-config")() &&
						exec.Command("pkg-config", "--exists", "libseccomp").Run() == nil
				}},
		}...)
	}
	return rs
}

// Missing lists what the host lacks for a lab: one sentence for each requirement, with
// the reason and the way to get it. It is empty when a lab can run here.
func Missing() []string {
	return append(debian.Missing(requirements()), forbidden()...)
}

// Preflight returns an error that names everything that a lab lacks on this host.
// With install, root on Debian gets the missing packages first.
func Preflight(ctx context.Context, install bool) error {
	if install {
		if err := debian.Install(ctx, requirements()); err != nil {
			return err
		}
	}
	lacks := Missing()
	if len(lacks) == 0 {
		return nil
	}
	return errors.New("a lab cannot run here:\n  " + strings.Join(lacks, "\n  "))
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
