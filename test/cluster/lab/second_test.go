package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

func TestGroupsOfPodsAreNamedAsTheDriverNamesThem(t *testing.T) {
	pod := func(class corev1.PodQOSClass) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1-2"}}
		p.Status.QOSClass = class
		return p
	}
	for _, c := range []struct {
		driver string
		root   string
		class  corev1.PodQOSClass
		want   string
	}{
		{cgroupfs, "/aware-lab-x", corev1.PodQOSBurstable, "/aware-lab-x/kubepods/burstable/pod1-2/c"},
		{cgroupfs, "/", corev1.PodQOSGuaranteed, "/kubepods/pod1-2/c"},
		{systemd, "/", corev1.PodQOSBurstable,
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c.scope"},
		{systemd, "/", corev1.PodQOSGuaranteed, "/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-c.scope"},
	} {
		n := Node{node: node{CgroupDriver: c.driver, CgroupRoot: c.root}}
		if got := n.ContainerGroup(pod(c.class), "containerd://c"); got != c.want {
			t.Errorf("%s, %s: got %s, want %s", c.driver, c.class, got, c.want)
		}
	}
}

func TestLibrariesAreTheFilesThatLddNames(t *testing.T) {
	const said = "\tlinux-vdso.so.1 (0x00007f2aeb8d5000)\n" +
		"\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2aeb6c2000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f2aeb8d7000)\n"
	var got []string
	for _, m := range library.FindAllStringSubmatch(said, -1) {
		got = append(got, m[1])
	}
	if strings.Join(got, " ") != "/lib/x86_64-linux-gnu/libc.so.6 /lib64/ld-linux-x86-64.so.2" {
		t.Errorf("got %q", got)
	}
}

func TestAnUnknownNodeIsNamed(t *testing.T) {
	c := &Cluster{plan: plan{Name: "x", Node: node{Name: "lab-x"}}}
	if _, err := c.NodeNamed("lab-y"); err == nil || !strings.Contains(err.Error(), `"lab-y"`) ||
		!strings.Contains(err.Error(), "lab-x") {
		t.Errorf("got %v", err)
	}
	if n, err := c.NodeNamed("lab-x"); err != nil || n.Name() != "lab-x" {
		t.Errorf("got %+v, %v", n, err)
	}
}

// needMachine skips a test where there can be no second node.
func needMachine(t *testing.T, c Config) {
	t.Helper()
	needLab(t)
	if err := PreflightMachine(t.Context(), c, true); err != nil {
		t.Skip(err)
	}
}

// Two pods on each node: one that works, and one that asks the other node's by the name of
// its service.
func TestTwoNodesReachEachOther(t *testing.T) {
	config := testLab()
	config.Nodes, config.CgroupDriver = 2, systemd
	needMachine(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	c, err := Up(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			showWhy(t, c)
		}
		if err := c.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		mustBeClean(t)
	}()
	first, second := c.Nodes()[0], c.Nodes()[1]
	const ref = "awarescale.dev/test/service:1"
	service := filepath.Join(t.TempDir(), "service")
	build := exec.CommandContext(ctx, "go", "build", "-o", service, "awarescale.dev/aware/test/apps/service")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := c.LoadImage(ctx, ref, map[string]string{"/service": service}, []string{"/service"}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		name string
		on   Node
		asks string // a service
	}{
		{"one", first, ""}, {"two", second, ""},
		{"asks-two", first, "two"}, {"asks-one", second, "one"},
	} {
		serveOn(ctx, t, clients, w.on, ref, w.name, w.asks)
	}
	for _, name := range []string{"two", "asks-two", "asks-one"} {
		pod := running(ctx, t, clients, name)
		// The host asks the pod, by its address.
		url := "http://" + pod.Status.PodIP + ":8080/"
		if err := poll(ctx, 200*time.Millisecond, func() error { return get(url) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	two := running(ctx, t, clients, "two")
	if two.Status.HostIP != second.Address() {
		t.Errorf("the pod runs at %s, and the second node is at %s", two.Status.HostIP, second.Address())
	}
	kubectl := func(args ...string) ([]byte, error) { // it waits for a kubelet that does not answer
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		return c.Kubectl(ctx, args...)
	}
	if out, err := kubectl("logs", "two"); err != nil || !strings.Contains(string(out), "serving") {
		t.Errorf("logs: %q, %v", out, err)
	}
	out, err := kubectl("exec", "two", "--", "/service", "--help")
	if err != nil || !strings.Contains(string(out), "--segments") {
		t.Errorf("exec: %q, %v", out, err)
	}
	if err := poll(ctx, time.Second, func() error {
		_, err := kubectl("top", "node", second.Name())
		return err
	}); err != nil {
		t.Errorf("the second node's figures: %v", err)
	}
	checkResizeOf(ctx, t, clients, second, two)
	checkKilled(t, c)
}

// showWhy shows what the lab says after a failure.
func showWhy(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{{"get", "pods", "-A", "-o", "wide"}, {"get", "events"}, {"describe", "nodes"}} {
		out, err := c.Kubectl(ctx, args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, name := range []string{"kubelet", "containerd"} {
		out, err := c.Nodes()[1].Command(ctx, "tail", "-n", "15", machineDir+"/log/"+name+".log").CombinedOutput()
		t.Logf("%s of the machine: %v\n%s", name, err, out)
	}
	t.Logf("its console:\n%s", tail(c.plan.machine().Console(), 15))
}

// serveOn makes a pod of the test service on a node, and its service.
func serveOn(ctx context.Context, t *testing.T, clients kubernetes.Interface, on Node, image, name, asks string) {
	t.Helper()
	of := metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}
	container := corev1.Container{
		Name: "service", Image: image, ImagePullPolicy: corev1.PullNever, Resources: cpu("100m", "500m"),
		Args: []string{"--segments=text:1"},
	}
	if asks != "" {
		container.Args = append(container.Args, "--calls=http://"+asks+".default.svc.cluster.local/")
	}
	pod := &corev1.Pod{ObjectMeta: of, Spec: corev1.PodSpec{
		NodeName: on.Name(), Containers: []corev1.Container{container},
	}}
	service := &corev1.Service{ObjectMeta: of, Spec: corev1.ServiceSpec{Selector: of.Labels,
		Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	_, err := clients.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	_, err2 := clients.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
}

// running waits until a pod runs.
func running(ctx context.Context, t *testing.T, clients kubernetes.Interface, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	if err := poll(ctx, 200*time.Millisecond, func() (err error) {
		pod, err = clients.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return pod
}

func get(url string) error {
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
	}
	return nil
}

// checkResizeOf resizes a pod, and looks at the limit in the kernel of its node.
func checkResizeOf(ctx context.Context, t *testing.T, clients kubernetes.Interface, on Node, pod *corev1.Pod) {
	t.Helper()
	const patch = `{"spec":{"containers":[{"name":"service","resources":{"limits":{"cpu":"700m"}}}]}}`
	if _, err := clients.CoreV1().Pods("default").Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{}, "resize"); err != nil {
		t.Fatal(err)
	}
	file := "/sys/fs/cgroup" + on.ContainerGroup(pod, pod.Status.ContainerStatuses[0].ContainerID) + "/cpu.max"
	if err := poll(ctx, time.Second, func() error {
		out, err := on.Command(ctx, "cat", file).CombinedOutput()
		if err != nil {
			return fmt.Errorf("reading %s: %w: %s", file, err, out)
		}
		if string(out) != "70000 100000\n" {
			return fmt.Errorf("%s has %q", file, out)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// checkKilled kills the lab's init, as nobody should. Its virtual machine ends with it.
func checkKilled(t *testing.T, c *Cluster) {
	t.Helper()
	emulators := func() (found []string) {
		for _, line := range left(t) {
			if strings.Contains(line, "(qemu-") {
				found = append(found, line)
			}
		}
		return found
	}
	if len(emulators()) != 1 {
		t.Errorf("the emulators that are seen: %q", emulators())
	}
	if err := c.plan.Init.signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := poll(ctx, 50*time.Millisecond, func() error {
		if left := emulators(); len(left) > 0 {
			return fmt.Errorf("still there: %q", left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
