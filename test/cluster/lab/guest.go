package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"awarescale.dev/aware/test/machine/guest"
	"golang.org/x/sys/unix"
)

// machineDir has the lab's files in a machine: the plan of its node, its programs in bin, and
// the folders that a lab has.
const machineDir = "/lab"

// RunNode runs the node of a virtual machine: its network, its components and its shell. It is
// the machine's first process, or a service of systemd, and does not return but with an error.
func RunNode() error {
	p, err := readPlan(machineDir)
	if err != nil {
		return err
	}
	first := os.Getpid() == 1
	if first { // otherwise systemd has done it
		if err := mountMachine(); err != nil {
			return err
		}
	}
	if err := unix.Sethostname([]byte(p.Node.Name)); err != nil {
		return fmt.Errorf("setting the host name %s: %w", p.Node.Name, err)
	}
	if err := os.Setenv("PATH", p.path()); err != nil {
		return err
	}
	ctx := context.Background()
	if err := p.Net.setUpSecond(ctx); err != nil {
		return err
	}
	s := newSupervisor(p)
	if s.trees, err = hierarchies(); err != nil {
		return err
	}
	if p.Node.System != "" {
		for _, h := range s.trees {
			if err := h.makeGroup(p.Node.System); err != nil {
				return err
			}
		}
	}
	if first {
		go s.reapOrphans()
	}
	for _, dir := range []string{
		filepath.Join(p.Dir, "log"), "/var/lib/kubelet", "/var/log/pods", "/var/log/containers",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serveShell() }() // first: it shows why the rest does not start
	if err := errors.Join(s.startRuntime(ctx), s.run(ctx, p.kubelet()), s.run(ctx, p.kubeProxy())); err != nil {
		s.log.Print(err) // the machine stays, so that it can be looked at
	} else {
		s.log.Print("all components run")
	}
	return <-ended
}

// mountMachine mounts what systemd mounts otherwise.
func mountMachine() error {
	if err := guest.MountSystem(); err != nil {
		return err
	}
	for _, m := range []struct{ source, target, kind string }{
		{"devpts", "/dev/pts", "devpts"},
		{"tmpfs", "/dev/shm", "tmpfs"},
		{"tmpfs", "/run", "tmpfs"},
		{"mqueue", "/dev/mqueue", "mqueue"},
	} {
		if err := guest.Mount(m.source, m.target, m.kind); err != nil {
			return err
		}
	}
	// The kubelet and its pods pass mounts to each other.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}

// serveShell serves the machine's shell, and returns only with an error.
func (s *supervisor) serveShell() error {
	shell, err := newShell(s.plan.pki())
	if err != nil {
		return err
	}
	shell.env, shell.begin, shell.wait = s.plan.environment(), s.begin, s.wait
	listener, err := net.Listen("tcp", netip.AddrPortFrom(s.plan.Node.Address, shellPort).String())
	if err != nil {
		return fmt.Errorf("listening for the shell: %w", err)
	}
	return shell.serve(listener)
}

// newSupervisor logs to standard error.
func newSupervisor(p plan) *supervisor {
	return &supervisor{
		plan:     p,
		log:      log.New(os.Stderr, "", log.LstdFlags|log.Lmicroseconds),
		children: map[int]bool{},
		jobs:     map[string]*job{},
	}
}
