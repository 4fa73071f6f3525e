package lab

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"awarescale.dev/aware/test/debian"
	"awarescale.dev/aware/test/machine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// machineModules are the kernel modules of a node: its network card and its randomness,
// the layers of images, the pods' links, and what kube-proxy's rules say.
var machineModules = []string{
	"virtio_net", "virtio_rng", "overlay", "veth",
	"nf_tables", "nf_conntrack", "nf_conntrack_netlink", "nft_chain_nat", "nft_ct",
	"nft_nat", "nft_masq", "nft_redir",
	"nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6", "nft_fib_inet", "nft_fib_ipv4", "nft_fib_ipv6",
	"nft_numgen", "nft_hash", "nft_limit", "nft_objref", "nft_log",
}

// machineBinaries are the lab's programs that a node runs.
var machineBinaries = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "kube-proxy"}

// machineTools are programs of this host that a node needs, or that show what goes on there.
var machineTools = []string{
	"ip", "nft", "conntrack", "mount", "umount", "sh", "cat", "chmod", "cp", "env", "grep", "head", "kill", "ls", "mkdir",
	"pgrep", "ps", "rm", "sleep", "tail",
}

// machineMemory is the node's memory, in MiB; machineFree is for images and pods.
const (
	machineMemory = 2048
	machineFree   = 2048
)

// machineRequirements are what this host needs for a second node, beside what a virtual machine
// needs.
func machineRequirements(driver string) []debian.Requirement {
	rs := []debian.Requirement{
		{What: "ps", Why: "it shows what runs in the machine", Package: "procps", Have: debian.Program("ps", "kill")},
		{What: "ldd", Why: "it lists the libraries of the machine's programs", Package: "libc-bin",
			Have: debian.Program("ldd")},
		{What: "nice", Why: "the lab's other programs come first", Package: "coreutils", Have: debian.Program("nice")},
	}
	if driver == systemd {
		rs = append(rs, debian.Requirement{What: "systemd", Why: "it is the machine's first process",
			Package: "systemd", Have: func() bool { return exists(systemdProgram) && debian.Program("systemctl")() }})
	}
	return rs
}

// PreflightMachine returns an error that names everything that this host lacks for a second node.
// With install, root on Debian gets the missing packages first.
func PreflightMachine(ctx context.Context, c Config, install bool) error {
	driver := c.withDefaults().CgroupDriver
	if install {
		if err := debian.Install(ctx, machineRequirements(driver)); err != nil {
			return err
		}
	}
	errs := []error{machine.Preflight(ctx, install)}
	for _, lack := range debian.Missing(machineRequirements(driver)) {
		errs = append(errs, errors.New(lack))
	}
	if !exists("/dev/net/tun") {
		errs = append(errs, errors.New("/dev/net/tun is missing: it is the cable to the machine; modprobe tun"))
	}
	return errors.Join(errs...)
}

// machine is the virtual machine of the second node.
func (p plan) machine() machine.Machine {
	return machine.Machine{
		Dir:     filepath.Join(p.Dir, "machine"),
		CPUs:    1, // two would take all of a small host
		Memory:  machineMemory,
		Free:    machineFree,
		Modules: machineModules,
	}
}

// makeMachine makes the second node's files: its disk, and what starts it.
func (p *plan) makeMachine(ctx context.Context) error {
	m := p.machine()
	root := filepath.Join(m.Dir, "root")
	if err := p.fillMachine(ctx, root); err != nil {
		return fmt.Errorf("making the disk of node %s: %w", p.Second.Name, err)
	}
	if err := m.Make(ctx, root); err != nil {
		return fmt.Errorf("making the machine of node %s: %w", p.Second.Name, err)
	}
	args, err := m.Args("net.ifnames=0",
		"-cpu", "max",
		"-netdev", "tap,id=cable,ifname="+tap+",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=cable,romfile=",
		"-device", "virtio-rng-pci",
	)
	if err != nil {
		return err
	}
	p.Emulator = append([]string{"-n", "5", machine.Qemu}, args...)
	p.Binaries["machine"], err = exec.LookPath("nice") // other work of this host comes first
	return err
}

// virtualMachine is the component that is the second node. When it ends it is started again,
// as after a power cut.
func (p plan) virtualMachine() component {
	return component{name: "machine", args: p.Emulator}
}

// inMachine is the plan as the machine sees it.
func (p plan) inMachine() plan {
	q := p
	q.Dir, q.Node, q.Second, q.Binaries = machineDir, *p.Second, nil, map[string]string{}
	for _, name := range machineBinaries {
		q.Binaries[name] = filepath.Join(machineDir, "bin", name)
	}
	return q
}

// fillMachine puts what is on the disk into a folder.
func (p plan) fillMachine(ctx context.Context, root string) error {
	// As Debian has them, so that the paths of its programs and libraries are valid.
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "run", "etc",
		"root", "var/lib", "var/log", "lab/pki", "lab/config", "lab/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib",
		"lib64": "usr/lib64", "var/run": "/run"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":      "root:x:0:\n",
		"etc/hosts":      "127.0.0.1 localhost\n",
		"etc/hostname":   p.Second.Name + "\n",
		"etc/os-release": "ID=lab\nNAME=lab\nPRETTY_NAME=\"A machine of AWARE's lab\"\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := p.fillPrograms(ctx, root); err != nil {
		return err
	}
	return p.fillNode(filepath.Join(root, machineDir))
}

// fillPrograms adds the programs: the lab's, the host's with their libraries, and the first process.
func (p plan) fillPrograms(ctx context.Context, root string) error {
	bin := filepath.Join(root, machineDir, "bin")
	copied := map[string]string{} // by their files: some are links to one program
	for _, name := range append([]string{"init"}, machineBinaries...) {
		file, err := filepath.EvalSymlinks(p.Binaries[name])
		if err != nil {
			return err
		}
		if same, ok := copied[file]; ok {
			err = os.Symlink(same, filepath.Join(bin, name))
		} else {
			err = machine.CopyFile(filepath.Join(bin, name), file)
		}
		if err != nil {
			return err
		}
		copied[file] = name
	}
	all := []string{p.Binaries["runc"], cniPlugins + "/ptp", cniPlugins + "/host-local", cniPlugins + "/loopback"}
	for _, name := range machineTools {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		all = append(all, path)
	}
	if p.Second.CgroupDriver == systemd {
		all = append(all, systemdTools()...)
	}
	for _, path := range all {
		if err := copyWithLibraries(ctx, root, path); err != nil {
			return fmt.Errorf("copying %s: %w", path, err)
		}
	}
	if p.Second.CgroupDriver == systemd {
		return fillSystemd(root)
	}
	return os.Symlink(filepath.Join(machineDir, "bin", "init"), filepath.Join(root, machine.Init))
}

// fillNode adds the node's own files: its plan, keys and configuration.
func (p plan) fillNode(dir string) error {
	q := p.inMachine()
	there := func(path ...string) string { return filepath.Join(append([]string{dir}, path...)...) }
	joined, err := p.join(q.Node.Name, q.Node.Address.String())
	if err != nil {
		return err
	}
	proxy, err := os.ReadFile(p.kubeconfigOf("kube-proxy"))
	if err != nil {
		return err
	}
	pause, err := os.ReadFile(filepath.Join(p.Dir, "pause.tar"))
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"pki/ca.crt":                   joined.CA,
		"pki/kubelet.crt":              joined.ServingCert,
		"pki/kubelet.key":              joined.ServingKey,
		"config/kubelet.kubeconfig":    joined.Kubeconfig,
		"config/kube-proxy.kubeconfig": proxy,
		"pause.tar":                    pause,
	} {
		if err := os.WriteFile(there(name), content, 0o600); err != nil {
			return err
		}
	}
	if err := writeShellKeys(p.pki(), there("pki")); err != nil {
		return err
	}
	if err := q.writeNodeConfigs(there("config"), "overlayfs"); err != nil {
		return err
	}
	return q.saveIn(dir)
}

// library is a line of ldd(1) that names a file:
//
//	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2aeb6c2000)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f2aeb8d7000)
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// copyWithLibraries copies a program of this host to the same place below root, and the
// libraries that it is linked with. What is there already stays.
func copyWithLibraries(ctx context.Context, root, path string) error {
	files := []string{path}
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(s *elf.Prog) bool { return s.Type == elf.PT_INTERP }) {
		out, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return fmt.Errorf("listing its libraries: %w", err)
		}
		for _, m := range library.FindAllStringSubmatch(string(out), -1) {
			files = append(files, m[1])
		}
	}
	for _, file := range files {
		if to := filepath.Join(root, file); !exists(to) {
			if err := machine.CopyFile(to, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// startMachine starts the second node when the first has its range of addresses, and asks for the next one by making
// the node's object itself: on a busy machine a node that its kubelet registers was now and then given the one after.
func (s *supervisor) startMachine(ctx context.Context) error {
	clients, err := s.plan.clientset()
	if err != nil {
		return err
	}
	err = poll(ctx, 50*time.Millisecond, within(ctx, 2*time.Second, func(ctx context.Context) error {
		first, err := clients.CoreV1().Nodes().Get(ctx, s.plan.Node.Name, metav1.GetOptions{})
		if err == nil && first.Spec.PodCIDR == "" {
			err = fmt.Errorf("node %s has no addresses for pods yet", s.plan.Node.Name)
		}
		return err
	}))
	if err != nil {
		return err
	}
	second := &corev1.Node{}
	second.Name, second.Spec.PodCIDR = s.plan.Second.Name, s.plan.Second.Pods.String()
	second.Spec.PodCIDRs = []string{second.Spec.PodCIDR}
	_, err = clients.CoreV1().Nodes().Create(ctx, second, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making the node %s: %w", second.Name, err)
	}
	if err := s.plan.Net.plugIn(ctx); err != nil {
		return err
	}
	return s.run(ctx, s.plan.virtualMachine())
}
