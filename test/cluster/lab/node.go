package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
)

// The drivers of control groups: who makes the groups of pods and containers.
const (
	cgroupfs = "cgroupfs" // the kubelet and the runtime
	systemd  = "systemd"  // systemd, which they ask
)

// node is a node of the lab, as its components see it.
type node struct {
	Name         string
	Address      netip.Addr   // of its kubelet
	Pods         netip.Prefix // of its pods
	CgroupDriver string       // cgroupfs or systemd
	CgroupRoot   string       // the group that holds kubepods
	System       string       // the group of its components; empty: where they are started
	Machine      bool         // it is a virtual machine, with a kernel of its own
	Labels       map[string]string
}

// makeNodes fills in the lab's nodes, whose addresses are known now.
func (p *plan) makeNodes(c Config) {
	p.Node = node{
		Name:         "lab-" + p.Name,
		Address:      p.Net.Lab,
		Pods:         p.Net.nodePods(),
		CgroupDriver: cgroupfs,
		CgroupRoot:   p.cgroup(),
		System:       p.cgroup() + "/system",
		Labels:       c.NodeLabels,
	}
	if c.Nodes < 2 {
		return
	}
	p.Second = &node{
		Name:         p.Node.Name + "-2",
		Address:      p.Net.second(),
		Pods:         p.Net.secondPods(),
		CgroupDriver: c.CgroupDriver,
		CgroupRoot:   "/",
		Machine:      true,
	}
	if c.CgroupDriver == cgroupfs {
		p.Second.System = "/system"
	}
}

// nodes are all of the lab's.
func (p plan) nodes() []node {
	if p.Second == nil {
		return []node{p.Node}
	}
	return []node{p.Node, *p.Second}
}

// Node is one node of a lab.
type Node struct {
	cluster *Cluster
	node
}

// Nodes are the lab's nodes, in their order.
func (c *Cluster) Nodes() []Node {
	var nodes []Node
	for _, n := range c.plan.nodes() {
		nodes = append(nodes, Node{c, n})
	}
	return nodes
}

// NodeNamed is one of the lab's nodes.
func (c *Cluster) NodeNamed(name string) (Node, error) {
	var names []string
	for _, n := range c.Nodes() {
		if n.Name() == name {
			return n, nil
		}
		names = append(names, n.Name())
	}
	return Node{}, fmt.Errorf("the lab %q has no node %q: it has %s", c.plan.Name, name, strings.Join(names, ", "))
}

// Name is the node's name in the API.
func (n Node) Name() string { return n.node.Name }

// Address is where its kubelet is reached, from this machine too.
func (n Node) Address() string { return n.node.Address.String() }

// IsMachine reports whether the node is a virtual machine, with a kernel and control groups of its own.
func (n Node) IsMachine() bool { return n.Machine }

// PodsGroup is the control group of all of the node's pods, below the root of the tree that
// the node's kernel has.
func (n Node) PodsGroup() string {
	if n.CgroupDriver == systemd {
		return path.Join(n.CgroupRoot, "kubepods.slice")
	}
	return path.Join(n.CgroupRoot, "kubepods")
}

// PodGroup is the control group of a pod of this node.
func (n Node) PodGroup(p *corev1.Pod) string {
	group, uid, name := n.PodsGroup(), string(p.UID), "kubepods"
	class := strings.ToLower(string(p.Status.QOSClass))
	if p.Status.QOSClass == corev1.PodQOSGuaranteed {
		class = "" // these have no group above them
	}
	if n.CgroupDriver == cgroupfs {
		return path.Join(group, class, "pod"+uid)
	}
	if class != "" {
		name += "-" + class
		group = path.Join(group, name+".slice")
	}
	return path.Join(group, name+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
}

// ContainerGroup is the control group of a container of a pod, by its ID in the pod's status. That has
// the runtime's name before it.
func (n Node) ContainerGroup(p *corev1.Pod, id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		id = bare
	}
	if n.CgroupDriver == systemd {
		id = "cri-containerd-" + id + ".scope"
	}
	return path.Join(n.PodGroup(p), id)
}

// shell connects to the machine's shell.
func (n Node) shell(ctx context.Context) (*ssh.Client, error) {
	return dialShell(ctx, netip.AddrPortFrom(n.node.Address, shellPort), n.cluster.plan.pki())
}

// Exec runs a program on the node with this process's files, in the place of this process: it
// returns only when the program could not be run.
func (n Node) Exec(ctx context.Context, name string, args ...string) error {
	if !n.Machine {
		return n.cluster.Exec(name, args...)
	}
	client, err := n.shell(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	code, err := runInShell(client, os.Stdin, os.Stdout, os.Stderr, append([]string{name}, args...)...)
	if err != nil {
		return fmt.Errorf("running %s on node %s: %w", name, n.Name(), err)
	}
	os.Exit(code)
	return nil
}

// Command prepares a program to run on the node: one of the lab's binaries, or anything
// on the node's path. When ctx ends, it is killed.
func (n Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := n.cluster
	if !n.Machine {
		return c.Command(ctx, name, args...)
	}
	// This program ends the session when it is killed, and then the node ends what runs there.
	return exec.CommandContext(ctx, c.plan.Binaries["init"], append([]string{"exec", "--name=" + c.plan.Name,
		"--state=" + c.plan.Dir, "--node=" + n.Name(), "--", name}, args...)...)
}

// Copy copies a program of this machine to the node.
func (n Node) Copy(ctx context.Context, to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := n.Command(ctx, "sh", "-c", `cat > "$0" && chmod 755 "$0"`, to)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s to %s on node %s: %w\n%s", from, to, n.Name(), err, out)
	}
	return nil
}
