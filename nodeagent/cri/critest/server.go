// Package critest is a small container runtime for tests: a CRI v1 server on a unix
// socket. It changes the limits of its containers' cgroups as containerd and runc do.
// Its containers have no processes.
package critest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Server is the runtime. It keeps a spec of each container's resources, and every
// update writes the whole spec. So an update of one field reverts a direct write to
// another, as in containerd.
type Server struct {
	runtime.UnimplementedRuntimeServiceServer
	tree   *cgroup.Tree
	socket string
	stop   func()

	mu         sync.Mutex
	containers map[string]*container
	calls      []Call
	delay      time.Duration
	fail       error
	flight     int
	most       int
}

type container struct {
	path string // cgroupsPath
	pid  int
	spec cgroup.Limits
}

// Call is one UpdateContainerResources that succeeded.
type Call struct {
	ID string
	*runtime.LinuxContainerResources
}

// Start serves on a new socket until the test ends.
func Start(tb testing.TB, tree *cgroup.Tree) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cri") // a socket's path has 107 bytes at most, and a test's name may be long
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	s, err := Serve(tree, filepath.Join(dir, "cri.sock"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Serve serves on a socket until Stop.
func Serve(tree *cgroup.Tree, socket string) (*Server, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	s := &Server{tree: tree, socket: socket, containers: make(map[string]*container)}
	g := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(g, s)
	s.stop = g.Stop
	go g.Serve(l)
	return s, nil
}

// Socket is where it serves.
func (s *Server) Socket() string { return "unix://" + s.socket }

// Stop ends the server. The containers' groups stay.
func (s *Server) Stop() { s.stop() }

// Add adds a container with the limits that it started with. The caller makes its
// group.
func (s *Server) Add(id, cgroupsPath string, l cgroup.Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[id] = &container{path: cgroupsPath, pid: 1000 + len(s.containers), spec: l}
}

// Remove ends a container.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
}

// Slow makes every update take that long.
func (s *Server) Slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// Fail makes every update fail; nil ends that.
func (s *Server) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// Calls are the updates so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// MostAtOnce is the largest number of updates that were running at the same time.
func (s *Server) MostAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// Version is the name and version of this runtime.
func (s *Server) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       "critest",
		RuntimeVersion:    "v1.0.0",
		RuntimeApiVersion: "v1",
	}, nil
}

// ContainerStatus gives the verbose info that containerd and CRI-O give.
func (s *Server) ContainerStatus(_ context.Context,
	r *runtime.ContainerStatusRequest) (*runtime.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.containers[r.ContainerId]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "container %q: not found", r.ContainerId)
	}
	answer := &runtime.ContainerStatusResponse{
		Status: &runtime.ContainerStatus{Id: r.ContainerId, State: runtime.ContainerState_CONTAINER_RUNNING},
	}
	if r.Verbose {
		info, err := json.Marshal(map[string]any{
			"sandboxID": "s",
			"pid":       c.pid,
			"runtimeSpec": map[string]any{"linux": map[string]any{"cgroupsPath": c.path, "resources": map[string]any{
				"cpu":    map[string]any{"quota": c.spec.Quota, "period": c.spec.Period},
				"memory": map[string]any{"limit": c.spec.Memory},
			}}},
		})
		if err != nil {
			return nil, err
		}
		answer.Info = map[string]string{"info": string(info)}
	}
	return answer, nil
}

// UpdateContainerResources changes the spec and then the cgroup, memory first,
// as runc does.
func (s *Server) UpdateContainerResources(ctx context.Context,
	r *runtime.UpdateContainerResourcesRequest) (*runtime.UpdateContainerResourcesResponse, error) {
	s.mu.Lock()
	s.flight++
	s.most = max(s.most, s.flight)
	delay := s.delay
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.flight--
		s.mu.Unlock()
	}()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	c, ok := s.containers[r.ContainerId]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "container %q: not found", r.ContainerId)
	}
	l := r.GetLinux()
	if len(l.GetHugepageLimits()) > 0 || l.GetCpuShares() != 0 || l.GetOomScoreAdj() != 0 ||
		l.GetMemorySwapLimitInBytes() != 0 {
		return nil, status.Errorf(codes.InvalidArgument, "an update that must never be sent: %v", l)
	}
	want := c.spec
	if l.GetCpuQuota() != 0 {
		want.Quota = l.GetCpuQuota()
	}
	if l.GetCpuPeriod() != 0 {
		want.Period = l.GetCpuPeriod()
	}
	if l.GetMemoryLimitInBytes() != 0 {
		want.Memory = mdp.Bytes(l.GetMemoryLimitInBytes())
	}
	path, err := s.tree.Path(c.path)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	for _, part := range []cgroup.Limits{{Memory: want.Memory}, {Quota: want.Quota, Period: want.Period}} {
		if err := s.tree.Write(path, part); err != nil {
			return nil, status.Error(codes.Unknown, fmt.Sprintf("runc update: %v", err))
		}
	}
	c.spec = want
	s.calls = append(s.calls, Call{r.ContainerId, l})
	return &runtime.UpdateContainerResourcesResponse{}, nil
}
