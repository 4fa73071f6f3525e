package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/restore"
	"golang.org/x/sys/unix"
)

const tracedEnv = "AWARE_AGENT_TEST_TRACED" // cgroup root and state directory, separated by a newline

// The process that is killed. It is an agent in virtual time, with all that it does to the
// journal and to limits: a first shrink, relief, a new ceiling, a restore, and a restart.
func TestTracedAgent(t *testing.T) {
	where := os.Getenv(tracedEnv)
	if where == "" {
		t.Skip("it is run by TestAKillAtAnyWriteIsRestored")
	}
	root, dir, _ := strings.Cut(where, "\n")
	tree, err := cgroup.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	g := newStage(t, &cgrouptest.Host{Tree: tree, Parent: "kubepods"}, dir)
	g.server.Add("c0", "/"+g.pathOf(0, "c0"), limitsOf(web)) // whose group is there
	g.enter(0)
	g.boot()
	g.grant(api.Auto)
	g.run(5 * time.Second)
	g.demand[0] = 5000 // the lane raises
	g.run(2 * time.Second)
	g.demand[0] = 100
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU = 900 })
	g.run(2 * time.Second)
	g.stage.change(0, func(_ *Pod, c *Container) { c.Limits.CPU = web.CPU })
	g.run(2 * time.Second)
	g.grant(api.Observe)
	g.run(time.Second)
	g.grant(api.Auto)
	g.run(3 * time.Second)
	g.boot()
	g.run(time.Second)
}

// The agent gets SIGKILL at each of its writes in turn: of the journal before it is made, and
// of a limit, by itself or by the runtime, after it was made. Whatever limit is in force then,
// the journal knows it, and has been synced; and the next agent gives back what the API says.
func TestAKillAtAnyWriteIsRestored(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	for _, version := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(version.String(), func(t *testing.T) {
			t.Parallel()
			moved, writes := 0, 0
			for at := 1; ; at += step {
				host := cgrouptest.Fixture(t, version)
				dir := host.Tree.Root() + "-state" // as fast as the groups
				t.Cleanup(func() { os.RemoveAll(dir) })
				host.Add(t, host.Parent+"/burstable/podu0/c0", limitsOf(web))
				writes = killedAt(t, host, dir, at)
				if writes < at {
					break
				}
				if afterAKill(t, host, dir, at) {
					moved++
				}
			}
			if writes < 40 || moved < 20/step {
				t.Errorf("%d writes, %d of them left something to restore: too little was tested", writes, moved)
			}
			t.Logf("killed at each of %d writes; %d times there was something to restore", writes, moved)
		})
	}
}

// afterAKill checks what a killed agent has left, and what the next one makes of it. It
// reports whether there was something to restore.
func afterAKill(t *testing.T, host *cgrouptest.Host, dir string, at int) (moved bool) {
	t.Helper()
	g := newStage(t, host, dir)
	inForce := host.Limits(t, g.pathOf(0, "c0"))
	moved = inForce.Size() != web
	if left := known(t, dir, "c0", inForce, web); left != (cgroup.Limits{}) {
		t.Fatalf("killed at write %d: %+v is in force, and the journal does not know it", at, left)
	}
	g.enter(0)
	g.server.Add("c0", "/"+g.pathOf(0, "c0"), inForce)
	g.boot()
	if l := g.limit(0); l != web {
		t.Fatalf("killed at write %d, with %v in force: the next agent left %v", at, inForce.Size(), l)
	}
	g.now = g.now.Add(lateMost) // no call of the killed one can land any more
	g.run(3 * time.Second)
	g.isRestored(fmt.Sprint("killed at write ", at))
	return moved
}

// known is what of the limits in force is neither the API's nor in the journal that a killed
// agent has left.
func known(t *testing.T, dir, id string, inForce cgroup.Limits, given mdp.Size) cgroup.Limits {
	t.Helper()
	if inForce.CPU() == given.CPU {
		inForce.Quota, inForce.Period = 0, 0
	}
	if inForce.Memory == given.Memory {
		inForce.Memory = 0
	}
	b, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.WriteFile(filepath.Join(copied, "journal"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := restore.Open(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	e, _ := j.Get(id)
	if e.Wrote.Covers(cgroup.Limits{Quota: inForce.Quota, Period: inForce.Period}) {
		inForce.Quota, inForce.Period = 0, 0
	}
	if e.Wrote.Covers(cgroup.Limits{Memory: inForce.Memory}) {
		inForce.Memory = 0
	}
	return inForce
}

// killedAt runs the agent and kills it at a write, counted from 1. It returns how many writes
// there were.
func killedAt(t *testing.T, host *cgrouptest.Host, dir string, at int) int {
	t.Helper()
	// Tracing and waiting are for the thread that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTracedAgent$", "-test.timeout=5m")
	tmp, err := os.MkdirTemp("", "cri") // a killed process removes nothing; a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	cmd.Env = append(os.Environ(), tracedEnv+"="+host.Tree.Root()+"\n"+dir, "GOMAXPROCS=1", "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Skipf("processes cannot be traced here: %v", err)
	}
	defer func() { _ = cmd.Process.Release() }() // the tracer waits for it
	x := tracer{pid: cmd.Process.Pid, at: at, limits: host.Tree.Root(), journal: dir}
	code, err := x.run()
	if err != nil {
		_ = unix.Kill(x.pid, unix.SIGKILL)
		t.Fatalf("tracing the agent: %v", err)
	}
	if x.tooSoon != "" {
		t.Fatalf("%s was written before the journal was synced", x.tooSoon)
	}
	if code != 0 && !x.killed {
		t.Fatalf("the agent ended with %d after %d writes, and nobody killed it", code, x.writes)
	}
	return x.writes
}

// tracer stops a process at each of its system calls.
type tracer struct {
	pid     int
	at      int    // the write at which the process is killed
	limits  string // the folder with the limits
	journal string // the folder with the journal
	writes  int    // so far
	killed  bool
	inWrite map[int]bool // threads that are in a write of a limit
	dirty   bool         // the journal was written, and not synced since
	tooSoon string       // a limit that was written meanwhile
}

// call is what the kernel says of a system call: struct ptrace_syscall_info.
type call struct {
	op   uint8
	_    [3]uint8
	arch uint32
	ip   uint64
	sp   uint64
	nr   uint64 // when op is entered
	args [6]uint64
	_    uint64
}

const entered = 1

// run lets the process go on until it ends.
func (x *tracer) run() (code int, err error) {
	x.inWrite = map[int]bool{}
	begun := false
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, fmt.Errorf("wait: %w", err)
		case tid == x.pid && status.Exited():
			return status.ExitStatus(), nil
		case tid == x.pid && status.Signaled():
			return -1, nil
		case !status.Stopped():
			continue // a thread
		}
		if !begun {
			begun = true
			err := unix.PtraceSetOptions(x.pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL)
			if err != nil {
				return 0, err
			}
		}
		deliver := 0
		switch signal := status.StopSignal(); signal {
		case unix.SIGTRAP | 0x80:
			x.stopped(tid)
		case unix.SIGTRAP, unix.SIGSTOP: // a new thread
		default:
			deliver = int(signal)
		}
		if err := unix.PtraceSyscall(tid, deliver); err != nil && err != unix.ESRCH { // it was killed
			return 0, err
		}
	}
}

// stopped looks at a system call that begins or ends.
func (x *tracer) stopped(tid int) {
	var c call
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(c),
		uintptr(unsafe.Pointer(&c)), 0, 0)
	if errno != 0 {
		return // the thread is gone
	}
	if c.op != entered {
		if x.inWrite[tid] {
			x.inWrite[tid] = false
			x.write()
		}
		return
	}
	switch file := x.file(tid, c); {
	case file == "":
	case strings.HasPrefix(file, x.journal+"/"):
		if filepath.Base(file) != "lock" {
			x.dirty = c.nr == unix.SYS_WRITE || x.dirty && c.nr != unix.SYS_FSYNC
		}
		x.write()
	case strings.HasPrefix(file, x.limits+"/") && c.nr != unix.SYS_FTRUNCATE: // which does nothing to a control file
		switch filepath.Base(file) {
		case "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "cpu.max", "memory.max":
			x.inWrite[tid] = true
			if x.dirty {
				x.tooSoon = file
			}
		}
	}
}

// file is the file that a system call changes.
func (x *tracer) file(tid int, c call) string {
	switch c.nr {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FSYNC, unix.SYS_FTRUNCATE:
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, c.args[0]))
		return file
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT:
		return x.text(tid, uintptr(c.args[1]))
	}
	return ""
}

// text is a string in the process's memory.
func (x *tracer) text(tid int, at uintptr) string {
	b := make([]byte, 256)
	n, _ := unix.PtracePeekData(tid, at, b)
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}

// write counts a write, and kills the process at the one that was asked for.
func (x *tracer) write() {
	if x.writes++; x.writes == x.at {
		x.killed = true
		_ = unix.Kill(x.pid, unix.SIGKILL)
	}
}
