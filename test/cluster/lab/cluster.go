package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
)

// Kubeconfig is the path of the administrator's kubeconfig, good on the host
// and inside.
func (c *Cluster) Kubeconfig() string { return c.plan.kubeconfig() }

// REST is a client's configuration for the administrator; change it freely.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.rest) }

// Node is the name of the first node.
func (c *Cluster) Node() string { return c.plan.Node.Name }

// CgroupParent is the group, in each hierarchy of this machine, that holds all that the lab runs:
// kubepods with the pods, system with the rest.
func (c *Cluster) CgroupParent() string { return c.plan.cgroup() }

// CRISocket is the container runtime's socket, at a path good on the host.
func (c *Cluster) CRISocket() string {
	return filepath.Join("/proc", strconv.Itoa(c.plan.Init.PID), "root", criSocket)
}

// Address is the address of the node and of the API server, which the host reaches.
func (c *Cluster) Address() string { return c.plan.Net.Lab.String() }

// HostAddress is this machine's address inside the lab.
func (c *Cluster) HostAddress() string { return c.plan.Net.Host.String() }

// NodeCredentials are the files with which a kubelet joins. All but the
// kubeconfig are in PEM.
type NodeCredentials struct {
	Kubeconfig  []byte
	CA          []byte // the authority of the kubelet's clients
	ServingCert []byte
	ServingKey  []byte
}

// Join makes the credentials of a further node that the lab does not start, such as a
// virtual machine. The API server calls its kubelet at one of the addresses.
func (c *Cluster) Join(node string, addresses ...string) (NodeCredentials, error) {
	return c.plan.join(node, addresses...)
}

func (p plan) join(node string, addresses ...string) (NodeCredentials, error) {
	ca, err := readAuthority(filepath.Join(p.pki(), "ca"))
	if err != nil {
		return NodeCredentials{}, fmt.Errorf("making credentials of node %q: %w", node, err)
	}
	user, group := "system:node:"+node, "system:nodes"
	kubeconfig, err := ca.kubeconfig(p.server(), user, group)
	if err != nil {
		return NodeCredentials{}, err
	}
	serving, err := ca.issue(user, []string{group}, append(addresses, node)...)
	if err != nil {
		return NodeCredentials{}, err
	}
	own, err := ca.pair()
	return NodeCredentials{kubeconfig, own.cert, serving.cert, serving.key}, err
}

// StateDir holds the lab's files: log/COMPONENT.log, pki, config.
func (c *Cluster) StateDir() string { return c.plan.Dir }

// Binary returns the path of a program the lab's modules have, such as kubectl or
// vpa-recommender, building it if need be.
func (c *Cluster) Binary(name string) (string, error) {
	g, ok := groupOf(name)
	if !ok {
		return "", fmt.Errorf("none of the lab's modules has a program %q", name)
	}
	dir, err := buildGroup(context.Background(), c.config, g.name)
	return filepath.Join(dir, name), err
}

// Command prepares a program to run inside the lab's namespaces: name is one of the
// lab's binaries, or anything on the host's path. When ctx ends, it is killed with all
// that it started in its process group.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", c.nsenter(name, args...)...)
	cmd.Env = c.Environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Environ is this process's environment with KUBECONFIG for the lab, and with the lab's
// binaries on the path.
func (c *Cluster) Environ() []string {
	return append(append(os.Environ(), c.plan.access()...), "PATH="+c.plan.path()+":"+os.Getenv("PATH"))
}

// nsenter is how nsenter(1) is called to run the program inside.
func (c *Cluster) nsenter(name string, args ...string) []string {
	if _, ours := groupOf(name); ours {
		if path, err := c.Binary(name); err == nil {
			name = path
		}
	}
	enter := []string{"--target", strconv.Itoa(c.plan.Init.PID), "--mount", "--uts", "--ipc", "--net", "--pid"}
	if dir, err := os.Getwd(); err == nil {
		enter = append(enter, "--wdns="+dir)
	}
	return append(append(enter, "--", name), args...)
}

// Exec replaces this process by a program inside the lab's namespaces, see
// [Cluster.Command].
func (c *Cluster) Exec(name string, args ...string) error {
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{"nsenter"}, c.nsenter(name, args...)...), c.Environ())
}

// Kubectl runs kubectl as the administrator, on the host, and returns what it wrote.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	kubectl, err := c.Binary("kubectl")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, kubectl, args...)
	cmd.Env = c.Environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("kubectl %s: %w: %s",
			strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
