package e2e

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/test/cluster/groups"
	"awarescale.dev/aware/test/cluster/images"
	"awarescale.dev/aware/test/cluster/lab"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
)

var (
	onSecond = flag.Bool("second", false,
		"the workload runs on a second node: a virtual machine with cgroup v2, whose processor is emulated")
	faults = flag.Bool("faults", false, "the workload's node is also broken: its runtime, its kubelet, its agent")
	driver = flag.String("cgroup-driver", "systemd", "who makes the second node's control groups: cgroupfs or systemd")
)

// place is a node, and the reader of its control groups.
type place struct {
	lab.Node
	groups groups.Reader
}

// places are the lab's nodes by their names.
var places map[string]place

// where is the place of the workload.
func where() place {
	for _, p := range places {
		if p.IsMachine() == *onSecond {
			return p
		}
	}
	panic("the lab has no node for the workload")
}

// labConfig is the lab of these tests.
func labConfig() lab.Config {
	if *onSecond {
		return lab.Config{Name: "two", Nodes: 2, CgroupDriver: *driver}
	}
	if *faults {
		return lab.Config{Name: "fault"}
	}
	return lab.Config{Name: "e2e"}
}

// openPlaces starts to read the nodes' control groups.
func openPlaces(ctx context.Context) error {
	places = map[string]place{}
	for _, n := range cluster.Nodes() {
		reader, err := groups.On(ctx, n)
		if err != nil {
			return err
		}
		places[n.Name()] = place{n, reader}
	}
	return nil
}

// reserve keeps everything away from an emulated node but agents and the workload.
func reserve(ctx context.Context, n lab.Node) error {
	if out, err := kubectl(ctx, "taint", "node", n.Name(), "awarescale.dev/emulated=true:NoSchedule"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// loadImages gives each node the images that run there.
func loadImages(ctx context.Context) error {
	nodes, ctx := errgroup.WithContext(ctx)
	for _, n := range cluster.Nodes() {
		all := []images.Image{images.Service}
		switch {
		case n.IsMachine():
			all = []images.Image{images.Agent, images.Service}
		case *onSecond:
			all = []images.Image{images.Agent, images.Central, images.Service}
		}
		nodes.Go(func() error { return images.Load(ctx, n, bin, all...) })
	}
	return nodes.Wait()
}

// firstOnly skips a test that shows the same wherever the workload runs.
func firstOnly(t *testing.T) {
	t.Helper()
	if *onSecond {
		t.Skip("it is not about the node of the workload: it runs on the lab with one node")
	}
}

// placeOf is where a pod runs.
func placeOf(p *corev1.Pod) (place, error) {
	at, ok := places[p.Spec.NodeName]
	if !ok {
		return place{}, fmt.Errorf("pod %s is on no node of the lab: %q", p.Name, p.Spec.NodeName)
	}
	return at, nil
}

// read reads the control group of the pod's one container.
func read(p *corev1.Pod) (groups.Reading, error) {
	at, err := placeOf(p)
	if err != nil {
		return groups.Reading{}, err
	}
	if len(p.Status.ContainerStatuses) == 0 || !strings.Contains(p.Status.ContainerStatuses[0].ContainerID, "://") {
		return groups.Reading{}, fmt.Errorf("pod %s has no container yet", p.Name)
	}
	return at.groups.Read(at.ContainerGroup(p, p.Status.ContainerStatuses[0].ContainerID))
}

// inForce reads the limits of the pod's one container from its cgroup.
func inForce(p *corev1.Pod) (mdp.Size, error) {
	r, err := read(p)
	return r.Limits, err
}

// used is the CPU time of a control group of the place since it was created.
func (at place) used(group string) (time.Duration, error) {
	r, err := at.groups.Read(group)
	return r.Used, err
}

// process is a part's one pod, and its process ID on its node. It is read from the cgroup
// of the part's container, because other labs may run the same.
func process(t *testing.T, part string) (*corev1.Pod, int) {
	t.Helper()
	p, err := podOf(t.Context(), part)
	if err != nil {
		t.Fatal(err)
	}
	r, err := read(p)
	if err != nil || len(r.Processes) == 0 {
		t.Fatalf("looking for %s: processes %v, %v", part, r.Processes, err)
	}
	return p, r.Processes[0]
}

// kill ends a process that was found by [process].
func kill(t *testing.T, pid int) {
	t.Helper()
	cmd := exec.Command("kill", "-s", "KILL", strconv.Itoa(pid)) // this machine's, and not the lab's, number
	if *onSecond {
		cmd = where().Command(t.Context(), "kill", "-s", "KILL", strconv.Itoa(pid))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("killing process %d: %v\n%s", pid, err, out)
	}
}

// signalRuntime sends a signal to the container runtime of the workload's node. The lab's first node
// has processes of its own, too.
func signalRuntime(t *testing.T, name string) {
	t.Helper()
	const line = `kill -s "$0" $(pgrep -x containerd)`
	if out, err := where().Command(context.Background(), "sh", "-c", line, name).CombinedOutput(); err != nil {
		t.Fatalf("sending %s to the container runtime: %v\n%s", name, err, out)
	}
}

// isOf reports whether a part's pod is the one that the tests look at: of the agents it is the one of the
// workload's node.
func isOf(part string, p *corev1.Pod) bool {
	return part != "aware-agent" || p.Spec.NodeName == where().Name()
}

// emulated is a number for a machine whose processor is emulated, and another one for others.
func emulated[T any](there, elsewhere T) T {
	if *onSecond {
		return there
	}
	return elsewhere
}
