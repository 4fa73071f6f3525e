package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// supervisor keeps the components running.
type supervisor struct {
	plan  plan
	trees []hierarchy
	log   *log.Logger

	mu       sync.Mutex
	stopping bool
	children map[int]bool // processes that a goroutine waits for
	jobs     map[string]*job
}

// job is a component and its present process.
type job struct {
	Component
	process *os.Process
	ended   chan struct{} // closed when it has ended and is not started again
}

// start starts every component as soon as what it needs is ready.
func (s *supervisor) start(ctx context.Context) error {
	p := s.plan
	g, ctx := errgroup.WithContext(ctx)
	runtime := make(chan struct{})
	g.Go(func() error {
		if err := s.startRuntime(ctx); err != nil {
			return err
		}
		close(runtime)
		return nil
	})
	g.Go(func() error {
		if err := s.run(ctx, p.etcd()); err != nil {
			return err
		}
		if err := s.run(ctx, p.apiServer()); err != nil {
			return err
		}
		for _, c := range []component{p.controllerManager(), p.kubelet(), p.scheduler(), p.kubeProxy()} {
			if c.name == "kubelet" {
				select {
				case <-runtime:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if err := s.run(ctx, c); err != nil {
				return err
			}
		}
		if p.Second != nil {
			return s.startMachine(ctx)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	go s.startAddons() // Up does not wait for them
	return nil
}

// startRuntime starts containerd, and gives it the one image that it needs itself.
func (s *supervisor) startRuntime(ctx context.Context) error {
	if err := s.run(ctx, s.plan.containerd()); err != nil {
		return err
	}
	return s.do(ctx, "ctr", nil, "--namespace=k8s.io", "images", "import", filepath.Join(s.plan.Dir, "pause.tar"))
}

// startAddons creates the objects of metrics-server and CoreDNS, and starts both.
func (s *supervisor) startAddons() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	objects, err := s.plan.addons()
	if err == nil {
		err = poll(ctx, time.Second, func() error {
			return s.do(ctx, "kubectl", objects, "apply", "--server-side", "--filename=-")
		})
	}
	if err == nil {
		err = errors.Join(s.run(ctx, s.plan.coreDNS()), s.run(ctx, s.plan.metricsServer()))
	}
	if err != nil {
		s.log.Printf("metrics-server or CoreDNS is missing: %v", err)
	}
}

// run starts a component, waits until it is ready, and keeps it running from then on.
func (s *supervisor) run(ctx context.Context, c component) error {
	j := &job{Component: Component{Name: c.name, State: "starting"}, ended: make(chan struct{})}
	out, err := os.OpenFile(s.plan.log(c.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	begun := time.Now()
	cmd, err := s.launch(c, j, out)
	if err != nil {
		return err
	}
	go s.keep(c, j, cmd, out)
	if c.ready != nil {
		err := poll(ctx, 25*time.Millisecond, within(ctx, 2*time.Second, c.ready))
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", c.name, err)
		}
	}
	s.change(j, func() { j.State = "running" })
	s.log.Printf("%s is ready after %v", c.name, time.Since(begun).Round(time.Millisecond))
	return nil
}

// launch starts the component's process once.
func (s *supervisor) launch(c component, j *job, out *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(s.plan.Binaries[c.name], c.args...)
	cmd.Dir, cmd.Env = "/", s.plan.environment()
	cmd.Stdout, cmd.Stderr = out, out
	if err := s.begin(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	for _, h := range s.trees {
		if s.plan.Node.System == "" {
			break
		}
		// An error is only logged: a hierarchy without the process does not limit it.
		if err := h.add(s.plan.Node.System, cmd.Process.Pid); err != nil {
			s.log.Print(err)
		}
	}
	s.mu.Lock()
	s.jobs[c.name] = j
	j.process, j.Since = cmd.Process, time.Now()
	s.mu.Unlock()
	return cmd, nil
}

// keep waits for the process to end and starts it again, until the lab stops.
func (s *supervisor) keep(c component, j *job, cmd *exec.Cmd, out *os.File) {
	defer out.Close()
	defer close(j.ended)
	for {
		err := s.wait(cmd)
		s.mu.Lock()
		stopping := s.stopping
		s.mu.Unlock()
		if stopping {
			return
		}
		s.log.Printf("%s ended and is started again: %v", c.name, err)
		s.change(j, func() { j.State, j.Restarts = "restarting", j.Restarts+1 })
		for {
			time.Sleep(min(time.Duration(j.Restarts)*250*time.Millisecond, 5*time.Second))
			if cmd, err = s.launch(c, j, out); err == nil {
				break
			}
			s.log.Print(err)
		}
		s.change(j, func() { j.State = "running" })
	}
}

// change changes a job, and writes components.json for status.
func (s *supervisor) change(j *job, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	var all []Component
	for _, j := range s.jobs {
		all = append(all, j.Component)
	}
	slices.SortFunc(all, func(a, b Component) int { return a.Since.Compare(b.Since) })
	data, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = replaceFile(filepath.Join(s.plan.Dir, "components.json"), data)
	}
	if err != nil {
		s.log.Print(err)
	}
}

// do runs one of the binaries and waits for its end.
func (s *supervisor) do(ctx context.Context, binary string, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, s.plan.Binaries[binary], args...)
	cmd.Dir, cmd.Env = "/", s.plan.environment()
	var out bytes.Buffer
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := s.begin(cmd)
	if err == nil {
		err = s.wait(cmd)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", binary, strings.Join(args, " "), err, out.Bytes())
	}
	return nil
}

// begin starts the command as a child of which reapOrphans keeps off, because
// wait waits for it.
func (s *supervisor) begin(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopped
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.children[cmd.Process.Pid] = true
	return nil
}

func (s *supervisor) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, cmd.Process.Pid)
	return err
}

// access is the environment with which kubectl talks to the lab and keeps its cache in
// the lab's folder.
func (p plan) access() []string {
	return []string{"KUBECONFIG=" + p.kubeconfig(), "KUBECACHEDIR=" + filepath.Join(p.Dir, "kubectl-cache")}
}

// path is the folders of the binaries and the usual ones. Containerd looks
// there for its shim.
func (p plan) path() string {
	var dirs []string
	for _, file := range p.Binaries {
		dirs = append(dirs, filepath.Dir(file))
	}
	slices.Sort(dirs)
	return strings.Join(append(slices.Compact(dirs), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
		"/usr/bin", "/sbin", "/bin"), ":")
}

// environment is the components' whole environment.
func (p plan) environment() []string {
	return append(p.access(), "PATH="+p.path(), "HOME=/run", "TMPDIR=/run")
}

// reapOrphans waits once a second for ended processes whose parents are gone. This is
// the duty of PID 1.
func (s *supervisor) reapOrphans() {
	for range time.Tick(time.Second) {
		s.mu.Lock()
		for _, pid := range zombiesOf(1) {
			if !s.children[pid] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
		s.mu.Unlock()
	}
}

func zombiesOf(parent int) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if f := strings.Fields(rest); len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stop ends every process of the lab except this one: first the API server and its
// clients, because the API server drains for a while, then etcd, then the rest:
// containerd, its shims and the pods. After that the control groups are empty.
func (s *supervisor) stop() {
	s.mu.Lock()
	s.stopping = true
	var clients, store []*job
	for name, j := range s.jobs {
		switch name {
		case "etcd":
			store = append(store, j)
		case "containerd":
		default:
			clients = append(clients, j)
		}
	}
	s.mu.Unlock()
	terminate(clients, 3*time.Second)
	terminate(store, time.Second)
	_ = unix.Kill(-1, unix.SIGKILL)

	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	for { // until no child is left; Wait in keep may get some of them
		_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.ECHILD) || ctx.Err() != nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := removeGroups(ctx, s.trees, s.plan.cgroup()); err != nil {
		s.log.Print(err)
	}
}

// terminate asks all jobs to end, and waits for them at most for the given time.
func terminate(jobs []*job, patience time.Duration) {
	for _, j := range jobs {
		_ = j.process.Signal(unix.SIGTERM)
	}
	late := time.After(patience)
	for _, j := range jobs {
		select {
		case <-j.ended:
		case <-late:
			return
		}
	}
}

// tail returns the last lines of a log.
func tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 16<<10 {
		_, _ = f.Seek(-16<<10, io.SeekEnd)
	}
	data, _ := io.ReadAll(f)
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
