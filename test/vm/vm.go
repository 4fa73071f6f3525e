// Package vm runs test binaries on a kernel with cgroup v2, whatever the host has.
//
// Most clusters have cgroup v2 today. A machine that builds AWARE may have v1, and then
// the tests that need real control groups say nothing of v2. So this package starts a
// small virtual machine (package machine), whose processor is emulated. A test that passes there
// does not depend on speed. A time that is measured there means little.
//
// A run has these steps:
//
//  1. [machine.Preflight] installs what the host lacks.
//  2. [Run] makes a disk with the programs on it, and starts qemu.
//  3. The command test/vm/init is the first process of the disk. It mounts the control
//     groups, runs each program in turn in a group of its own, and reports on a serial port
//     (package wire).
//  4. The host shows the output as it comes. It believes only what was reported: a
//     machine that ends without having said so has failed.
//
// At the end nothing is left but the cache.
package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"awarescale.dev/aware/test/machine"
	"awarescale.dev/aware/test/vm/wire"
)

// Config is a virtual machine. Zero fields have the defaults.
type Config struct {
	CPUs   int           // default 2
	Memory int           // MiB; default 1024
	Disk   int           // MiB that are free on it; default 512
	Limit  time.Duration // from power on to power off; default 10 minutes
	Output io.Writer     // gets what the programs write, as it comes; default: nobody
}

func (c Config) withDefaults() Config {
	if c.CPUs == 0 {
		c.CPUs = 2
	}
	if c.Memory == 0 {
		c.Memory = 1024
	}
	if c.Disk == 0 {
		c.Disk = 512
	}
	if c.Limit == 0 {
		c.Limit = 10 * time.Minute
	}
	if c.Output == nil {
		c.Output = io.Discard
	}
	return c
}

// Program is a static program for the machine. It runs as root in an empty folder,
// in a control group of its own. It finds no other programs there.
type Program struct {
	Name     string // of this run, without a slash
	Path     string // of the file on the host
	Args     []string
	Testdata string // a folder of the host, copied to the folder testdata; empty is none
}

// Result is how a program ended.
type Result struct {
	Program string
	Code    int    // 0 is success; -1 when a signal ended it, or when it did not start
	Reason  string // why the code is not 0
	Output  string // what it wrote
	Took    time.Duration
	Left    []string // control groups below the root that it made and did not remove
}

// Run starts a machine and runs the programs in it, one after the other. The results are
// in their order. An error says that the machine failed, and has the end of the kernel's
// messages; the results are then of the programs that ended before. That a program failed
// is no error.
func Run(ctx context.Context, c Config, programs ...Program) ([]Result, error) {
	c = c.withDefaults()
	dir, err := os.MkdirTemp("", "aware-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := run{c, machine.Machine{Dir: dir, CPUs: c.CPUs, Memory: c.Memory, Free: c.Disk}}
	if err := m.makeFiles(ctx, programs); err != nil {
		return nil, fmt.Errorf("making a virtual machine: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, fmt.Errorf("it had %v", c.Limit))
	defer cancel()
	results, err := m.boot(ctx)
	if err == nil {
		return results, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	return results, fmt.Errorf("running a virtual machine: %w\nthe end of its console:\n%s", err, m.consoleEnd())
}

// run is one run of programs in a machine.
type run struct {
	Config
	machine.Machine
}

// command starts qemu with a second serial port, for the events.
func (m run) command(ctx context.Context) (*exec.Cmd, error) {
	args, err := m.Args("", "-chardev", "stdio,id=events,signal=off", "-serial", "chardev:events")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, machine.Qemu, args...)
	// When the test binary is killed, its machine ends, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second
	return cmd, nil
}

// boot runs qemu to its end, or kills it when ctx ends.
func (m run) boot(ctx context.Context) ([]Result, error) {
	// Pdeathsig is about the thread that starts the process. So this one must not end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, err := m.command(ctx)
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", machine.Qemu, err)
	}
	results, err := follow(events, m.Output)
	if err != nil {
		_ = cmd.Process.Kill() // there is nobody to read what it says
	}
	if waited := cmd.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("%s: %w", machine.Qemu, waited)
	}
	if err != nil {
		return results, fmt.Errorf("%w\n%s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return results, nil
}

// follow reads events until the last one.
func follow(events io.Reader, output io.Writer) ([]Result, error) {
	var results []Result
	texts := map[string]*strings.Builder{}
	done := false
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 && done {
			return results, nil
		}
		if err != nil {
			return results, fmt.Errorf("the machine ended before its programs: %w after %q", err, line)
		}
		var e wire.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return results, fmt.Errorf("an event of the machine: %w in %q", err, line)
		}
		if e.Problem != "" {
			return results, fmt.Errorf("in the machine: %s", e.Problem)
		}
		done = done || e.Done
		text := texts[e.Program]
		if text == nil {
			text = new(strings.Builder)
			texts[e.Program] = text
		}
		text.Write(e.Output)
		if _, err := output.Write(e.Output); err != nil {
			return results, fmt.Errorf("showing what %s writes: %w", e.Program, err)
		}
		if e.Exit != nil {
			results = append(results, Result{
				Program: e.Program,
				Code:    e.Exit.Code,
				Reason:  e.Exit.Reason,
				Output:  text.String(),
				Took:    time.Duration(e.Exit.Seconds * float64(time.Second)),
				Left:    e.Left,
			})
		}
	}
}

// consoleEnd is the last lines of the kernel's and init's messages.
func (m run) consoleEnd() string {
	text, err := os.ReadFile(m.Console())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
