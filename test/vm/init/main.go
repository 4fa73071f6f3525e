// Command init is the first process of a test's virtual machine. It gets the machine
// ready, runs the programs of the plan, says how they ended, and switches the machine off.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/test/machine/guest"
	"awarescale.dev/aware/test/vm/wire"
	"golang.org/x/sys/unix"
)

const programsGroup = guest.CgroupRoot + "/programs"

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a test's virtual machine, and nothing else")
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Println("init:", err) // the kernel's console
		if port, openErr := openPort(); openErr == nil {
			port.send(wire.Event{Problem: err.Error()})
			port.close()
		}
	}
	guest.End()
}

func run() error {
	if err := guest.MountSystem(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := delegate(guest.CgroupRoot); err != nil {
		return err
	}
	if err := makeDelegated(programsGroup); err != nil {
		return err
	}
	text, err := os.ReadFile(wire.PlanFile)
	if err != nil {
		return err
	}
	var plan wire.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return fmt.Errorf("parsing %s: %w", wire.PlanFile, err)
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	defer port.close()
	for _, p := range plan.Programs {
		port.send(runProgram(p, port))
	}
	port.send(wire.Event{Done: true})
	return nil
}

// runProgram runs one program in a control group of its own.
func runProgram(p wire.Program, port *port) wire.Event {
	before := groups()
	begun := time.Now()
	code, err := execute(p, port)
	e := wire.Event{Program: p.Name, Exit: &wire.Exit{Code: code, Seconds: time.Since(begun).Seconds()}}
	if err != nil {
		e.Exit.Reason = err.Error()
	}
	reap()
	for _, g := range groups() {
		if !slices.Contains(before, g) {
			e.Left = append(e.Left, g)
		}
	}
	return e
}

func execute(p wire.Program, port *port) (code int, err error) {
	group := filepath.Join(programsGroup, p.Name)
	if err := os.Mkdir(group, 0o755); err != nil {
		return -1, err
	}
	fd, err := unix.Open(group, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening %s: %w", group, err)
	}
	defer unix.Close(fd)
	cmd := exec.Command(filepath.Join(wire.ProgramDir, p.Name), p.Args...)
	cmd.Dir = filepath.Join(wire.WorkDir, p.Name)
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "USER=root"}
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	out := output{port, p.Name}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second // a child of it may keep its output open
	err = cmd.Run()
	// Children that it left are no business of the next program.
	_ = os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0o644)
	if cmd.ProcessState == nil {
		return -1, err
	}
	return cmd.ProcessState.ExitCode(), err
}

// reap takes the exit codes of processes whose parents are gone.
func reap() {
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

// port is the serial port of the events.
type port struct{ *os.File }

// openPort opens the port without a terminal's translations.
func openPort() (*port, error) {
	f, err := os.OpenFile(wire.Port, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("reading the settings of %s: %w", wire.Port, err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("changing the settings of %s: %w", wire.Port, err)
	}
	return &port{f}, nil
}

// send writes an event. Nobody can be told of an error: the host misses the event.
func (p *port) send(e wire.Event) {
	line, err := json.Marshal(e)
	if err != nil {
		fmt.Println("init: an event:", err)
		return
	}
	if _, err := p.Write(append(line, '\n')); err != nil {
		fmt.Println("init: writing an event:", err)
	}
}

// close waits until everything is sent.
func (p *port) close() {
	const drain = 1 // tcdrain(3) is TCSBRK with an argument that is not 0
	if err := unix.IoctlSetInt(int(p.Fd()), unix.TCSBRK, drain); err != nil {
		fmt.Println("init: waiting for the port:", err)
	}
	p.Close()
}

// output sends what a program writes. Both its outputs are one writer, so os/exec calls
// it from one goroutine.
type output struct {
	port    *port
	program string
}

func (o output) Write(b []byte) (int, error) {
	o.port.send(wire.Event{Program: o.program, Output: b})
	return len(b), nil
}

// groups are the control groups right below the root.
func groups() []string {
	entries, err := os.ReadDir(guest.CgroupRoot)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// controllers are those that a node of Kubernetes delegates.
var controllers = []string{"cpu", "memory", "io", "pids", "cpuset"}

// delegate lets the groups right below one use the controllers.
func delegate(group string) error {
	file := filepath.Join(group, "cgroup.subtree_control")
	if err := os.WriteFile(file, []byte("+"+strings.Join(controllers, " +")), 0o644); err != nil {
		return fmt.Errorf("enabling the controllers %v: %w", controllers, err)
	}
	return nil
}

func makeDelegated(group string) error {
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	return delegate(group)
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
