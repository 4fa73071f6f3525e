package cgrouptest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"golang.org/x/sys/unix"
)

// A process of a real group is the test binary again, so that a test needs no other
// program. This variable says what it does.
const workEnv = "AWARE_CGROUPTEST_WORK"

// Work is what a process of a real group does.
type Work string

// The works. Each begins when its process is in its group.
const (
	Hold Work = "hold" // takes Held, and waits
	Burn Work = "burn" // takes Held, and uses all CPU that it gets
	Grow Work = "grow" // takes memory without end
	feed Work = "feed" // takes a MiB whenever it is told to
)

// Store writes Stored bytes to a new file, past the page cache: the kernel charges the
// group that writes.
func Store(file string) Work { return Work("store " + file) }

// What works take and write.
const (
	Held   = 16 * mdp.MiB
	Stored = mdp.MiB
)

func init() {
	work, file, _ := strings.Cut(os.Getenv(workEnv), " ")
	if work == "" {
		return
	}
	if err := do(Work(work), file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// held is the memory that this process has taken.
var held [][]byte

func do(work Work, file string) error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // it is in its group now
		return err
	}
	defer os.Stdout.Close()
	switch work {
	case Hold:
		take(Held)
		os.Stdout.Close()
		_, err := os.Stdin.Read(make([]byte, 1)) // until the test ends
		return err
	case Burn:
		take(Held)
		os.Stdout.Close()
		for {
			held[0][0]++
		}
	case Grow:
		os.Stdout.Close()
		for {
			take(mdp.MiB)
		}
	case feed:
		for {
			if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
				return err
			}
			take(mdp.MiB)
			if _, err := os.Stdout.Write([]byte{1}); err != nil {
				return err
			}
		}
	}
	return store(file)
}

// take takes memory and uses it: each page is written.
func take(n mdp.Bytes) {
	b := make([]byte, n)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	held = append(held, b)
}

func store(file string) error {
	fd, err := unix.Open(file, unix.O_CREAT|unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening %s past the page cache: %w", file, err)
	}
	defer unix.Close(fd)
	// The kernel wants whole pages, and a mapping begins with one.
	b, err := unix.Mmap(-1, 0, int(Stored), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	if _, err = unix.Write(fd, b); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// Start starts a process in a real group. It returns when the process has its memory, or
// is about to take it without end. The process ends with its group, or with the test.
func (h *Host) Start(tb testing.TB, path string, work Work) *exec.Cmd {
	tb.Helper()
	cmd, _, out := h.start(tb, path, work)
	_, _ = out.Read(make([]byte, 1)) // it closes its output when it is ready
	return cmd
}

// Fed starts a process in a real group, which takes another MiB at each call of what is returned.
// An error says that it has ended.
func (h *Host) Fed(tb testing.TB, path string) (another func() error) {
	tb.Helper()
	_, in, out := h.start(tb, path, feed)
	return func() error {
		if _, err := in.Write([]byte{1}); err != nil {
			return err
		}
		_, err := out.Read(make([]byte, 1))
		return err
	}
}

// start starts a process that begins its work in its group.
func (h *Host) start(tb testing.TB, path string, work Work) (*exec.Cmd, io.Writer, io.Reader) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workEnv+"="+string(work))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting a process for cgroup %s: %v", path, err)
	}
	h.processes[path] = append(h.processes[path], cmd)
	tb.Cleanup(func() { h.stop(path) })
	h.Enter(tb, path, cmd.Process.Pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		tb.Fatalf("process in cgroup %s: %v", path, err)
	}
	return cmd, in, out
}

// stop ends the processes of a group and of those below it.
func (h *Host) stop(path string) {
	for in, processes := range h.processes {
		if in != path && !strings.HasPrefix(in, path+"/") {
			continue
		}
		for _, cmd := range processes {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		delete(h.processes, in)
	}
}
