package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultSocket is containerd's.
const DefaultSocket = "unix:///run/containerd/containerd.sock"

// ErrNoContainer says that the runtime does not know the container: it ended.
var ErrNoContainer = errors.New("the runtime has no such container")

// Change is what to change of a container's limits; 0 is unchanged, as in CRI. It has
// no shares, because the scheduler counts them. It has no huge page limits, because
// the runtime appends them again on every call.
type Change struct {
	Quota  int64 // microseconds of CPU time in each period; it needs the period
	Period int64 // microseconds
	Memory mdp.Bytes
}

// Empty reports whether there is nothing to change.
func (c Change) Empty() bool { return c.Quota == 0 && c.Memory == 0 }

// Container is what we need to know of one container.
type Container struct {
	ID          string
	CgroupsPath string // as in its OCI spec; see cgroup.Tree.Path
	PID         int
	// Told is what the spec has: what the runtime was told last of all limits, and writes with each update.
	// A limit that is 0 is none. nil is not known.
	Told *Change
}

// Runtime is a container runtime: [Client], or a fake.
type Runtime interface {
	// Container finds a running container; ErrNoContainer when there is none.
	Container(ctx context.Context, id string) (Container, error)
	// Update changes a container's limits; ErrNoContainer when there is none.
	Update(ctx context.Context, id string, c Change) error
}

// Version is the name and version that the runtime reports.
type Version struct {
	Name    string // such as containerd
	Version string
	API     string // of CRI
}

func (v Version) String() string { return fmt.Sprintf("%s %s (CRI %s)", v.Name, v.Version, v.API) }

// Client is a connection to a runtime's socket. It connects again by itself when the
// runtime restarts.
type Client struct {
	conn    *grpc.ClientConn
	runtime runtime.RuntimeServiceClient
	version Version
}

// Dial connects and asks for the version, so that a socket of another server is found
// at once. The socket is a path, with or without unix:// before it.
func Dial(ctx context.Context, socket string) (*Client, error) {
	path := strings.TrimPrefix(socket, "unix://")
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("CRI socket %s: %w; set --cri-socket to the container runtime's socket", path,
			fmt.Errorf(format, args...))
	}
	if strings.Contains(path, "://") || path == "" {
		return nil, wrong("%q is not a unix socket", socket)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, wrong("%w", err)
	case info.Mode()&os.ModeSocket == 0:
		return nil, wrong("it is not a socket but %v", info.Mode().Type())
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
		// A verbose status carries the whole OCI spec.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, wrong("%w", err)
	}
	c := &Client{conn: conn, runtime: runtime.NewRuntimeServiceClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := c.runtime.Version(ctx, &runtime.VersionRequest{})
	if err != nil {
		conn.Close()
		return nil, wrong("it does not answer as a CRI v1 runtime: %w", err)
	}
	c.version = Version{v.RuntimeName, v.RuntimeVersion, v.RuntimeApiVersion}
	return c, nil
}

// Version is what the runtime reported to Dial, for the log.
func (c *Client) Version() Version { return c.version }

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Container asks for a container's verbose status. containerd and CRI-O both write the
// OCI spec into its info.
func (c *Client) Container(ctx context.Context, id string) (Container, error) {
	answer, err := c.runtime.ContainerStatus(ctx, &runtime.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return Container{}, fmt.Errorf("asking for the status of container %s: %w", id, known(err))
	}
	if s := answer.GetStatus().GetState(); s != runtime.ContainerState_CONTAINER_RUNNING {
		return Container{}, fmt.Errorf("container %s is %v: %w", id, s, ErrNoContainer)
	}
	found, err := parseInfo(answer.GetInfo()["info"])
	if err != nil {
		return Container{}, fmt.Errorf("status of container %s: %w", id, err)
	}
	found.ID = id
	return found, nil
}

// parseInfo reads the verbose info:
//
//	{"sandboxID": "...", "pid": 4711, "runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/burstable/pod1/abc",
//	 "resources": {"cpu": {"quota": 50000, "period": 100000, ...}, "memory": {"limit": 134217728, ...}, ...}, ...}, ...}, ...}
func parseInfo(info string) (Container, error) {
	var v struct {
		PID         int `json:"pid"`
		RuntimeSpec struct {
			Linux struct {
				CgroupsPath string                `json:"cgroupsPath"`
				Resources   *specs.LinuxResources `json:"resources"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if info == "" {
		return Container{}, errors.New("the runtime gave no verbose info")
	}
	if err := json.Unmarshal([]byte(info), &v); err != nil {
		return Container{}, fmt.Errorf("verbose info of %d bytes: %w", len(info), err)
	}
	if v.RuntimeSpec.Linux.CgroupsPath == "" {
		return Container{}, errors.New("verbose info has no runtimeSpec.linux.cgroupsPath")
	}
	return Container{CgroupsPath: v.RuntimeSpec.Linux.CgroupsPath, PID: v.PID, Told: told(v.RuntimeSpec.Linux.Resources)}, nil
}

// told is the limits of a spec.
func told(r *specs.LinuxResources) *Change {
	if r == nil {
		return nil
	}
	c := new(Change)
	if cpu := r.CPU; cpu != nil && cpu.Quota != nil && *cpu.Quota > 0 && cpu.Period != nil {
		c.Quota, c.Period = *cpu.Quota, int64(*cpu.Period)
	}
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		c.Memory = mdp.Bytes(*m.Limit)
	}
	return c
}

// Update changes the limits that the Change names. A memory limit without a swap limit
// sets both, as the kubelet does it.
func (c *Client) Update(ctx context.Context, id string, change Change) error {
	if change.Quota != 0 && change.Period <= 0 {
		return fmt.Errorf("updating container %s: quota %d without its period", id, change.Quota)
	}
	linux := &runtime.LinuxContainerResources{CpuQuota: change.Quota, MemoryLimitInBytes: int64(change.Memory)}
	if change.Quota != 0 {
		linux.CpuPeriod = change.Period
	}
	_, err := c.runtime.UpdateContainerResources(ctx,
		&runtime.UpdateContainerResourcesRequest{ContainerId: id, Linux: linux})
	if err != nil {
		return fmt.Errorf("updating container %s to %+v: %w", id, change, known(err))
	}
	return nil
}

// known wraps those errors of gRPC that have a Go error here.
func known(err error) error {
	switch status.Code(err) {
	case codes.NotFound:
		return fmt.Errorf("%w (%w)", ErrNoContainer, err)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	case codes.Canceled:
		return fmt.Errorf("%w (%w)", context.Canceled, err)
	case codes.Unavailable:
		return fmt.Errorf("%w (%w)", ErrUnavailable, err)
	}
	return err
}

// ErrUnavailable says that no runtime answered at the socket.
var ErrUnavailable = errors.New("the container runtime does not answer")
