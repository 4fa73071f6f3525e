package lab

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// testLab is the lab of the tests that start one. TestMain's helper starts it too.
func testLab() Config { return Config{Name: "labtest", BindParent: true, Log: os.Stderr} }

// TestMain is also the program of the process that the killed-parent tests kill: it
// starts the lab, prints a line and waits.
func TestMain(m *testing.M) {
	if os.Getenv("LAB_TEST_HELPER") != "" {
		if _, err := Up(context.Background(), testLab()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("up")
		select {}
	}
	os.Exit(m.Run())
}

func TestACertificateIsValidForItsHostsOnly(t *testing.T) {
	ca, err := newAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.issue("system:node:n", []string{"system:nodes"}, "n", "10.88.0.2")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own, err := ca.pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(issued.write(dir+"/leaf"), own.write(dir+"/ca")); err != nil {
		t.Fatal(err)
	}
	again, err := readAuthority(dir + "/ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := readAuthority(dir + "/leaf") // a certificate and its key, like an authority
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(again.cert)
	for host, good := range map[string]bool{"n": true, "10.88.0.2": true, "m": false, "10.88.0.3": false} {
		_, err := leaf.cert.Verify(x509.VerifyOptions{DNSName: host, Roots: roots})
		if (err == nil) != good {
			t.Errorf("for host %s: %v, want good=%v", host, err, good)
		}
	}
	if u := leaf.cert.Subject; u.CommonName != "system:node:n" ||
		!slices.Equal(u.Organization, []string{"system:nodes"}) {
		t.Errorf("the user is %v", u)
	}
}

func TestAKubeconfigLoads(t *testing.T) {
	ca, err := newAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	data, err := ca.kubeconfig("https://10.88.0.2:6443", "admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://10.88.0.2:6443" || len(config.CertData) == 0 || len(config.KeyData) == 0 ||
		len(config.CAData) == 0 {
		t.Errorf("got %v", config)
	}
}

func TestTheCacheKeyChangesWithEachInputOfABinary(t *testing.T) {
	module := func(goMod, goSum string) map[string]string {
		return map[string]string{"go.mod": goMod, "go.sum": goSum}
	}
	base := cacheKey{files: module("m", "s"), goVersion: "go1", ldflags: "-s"}
	seen := map[string]string{base.String(): "the base"}
	for what, change := range map[string]func(*cacheKey){
		"go.mod":                  func(k *cacheKey) { k.files = module("M", "s") },
		"go.sum":                  func(k *cacheKey) { k.files = module("m", "S") },
		"a further file":          func(k *cacheKey) { k.files = module("m", "s"); k.files["main.go"] = "" },
		"the version":             func(k *cacheKey) { k.goVersion = "go2" },
		"the flags":               func(k *cacheKey) { k.ldflags = "-w" },
		"the tags":                func(k *cacheKey) { k.tags = "seccomp" },
		"which file has the byte": func(k *cacheKey) { k.files = module("ms", "") },
	} {
		k := base
		change(&k)
		if other, same := seen[k.String()]; same {
			t.Errorf("changing %s gives the same key as %s", what, other)
		}
		seen[k.String()] = what
	}
	base.module = "/elsewhere" // the same module in another place is the same
	if seen[base.String()] != "the base" {
		t.Error("the key depends on where the module is")
	}
}

func TestKubernetesVersionComesFromItsGoMod(t *testing.T) {
	for goMod, want := range map[string]string{
		"require k8s.io/kubernetes v1.37.1\n":                                                  "v1.37.1",
		"require (\n\tk8s.io/api v0.37.1\n\tk8s.io/kubernetes v1.38.0-rc.1 // indirect\n)":     "v1.38.0-rc.1",
		"module x/k8s.io/kubernetes\ntool k8s.io/kubernetes/cmd/kubelet\n":                     "",
		"// k8s.io/kubernetes v9\nreplace k8s.io/kubernetes/staging v1 => k8s.io/other v0.0.1": "",
	} {
		if got := kubernetesVersion(goMod); got != want {
			t.Errorf("%q: got %q, want %q", goMod, got, want)
		}
	}
	if flags := versionFlags("v1.37.1"); !strings.Contains(flags, "component-base/version.gitVersion=v1.37.1") ||
		!strings.Contains(flags, "gitMinor=37 ") {
		t.Errorf("got %s", flags)
	}
}

// A package is compiled once for AWARE and for the lab only where all that it needs has one version.
func TestTheLabsKubernetesHasTheVersionsThatAWAREHas(t *testing.T) {
	ours, labs := versions(t, filepath.Join("..", "..", "..")), versions(t, filepath.Join("..", "bin"))
	both := 0
	for module, version := range labs {
		if has, ok := ours[module]; ok {
			both++
			if has != version {
				t.Errorf("%s is %s in test/cluster/bin/go.mod, and %s in AWARE's", module, version, has)
			}
		}
	}
	if both < 50 || labs["k8s.io/client-go"] == "" {
		t.Errorf("%d modules are in both: nothing was compared", both)
	}
}

// versions are those of all modules that a go.mod names, after its replacements.
func versions(t *testing.T, folder string) map[string]string {
	t.Helper()
	type module struct{ Path, Version string }
	var file struct {
		Require []module
		Replace []struct{ Old, New module }
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = folder
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading go.mod in %s: %v", folder, err)
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range file.Require {
		all[m.Path] = m.Version
	}
	for _, r := range file.Replace {
		if has, ok := all[r.Old.Path]; ok && (r.Old.Version == "" || r.Old.Version == has) {
			all[r.Old.Path] = r.New.Version
		}
	}
	return all
}

func TestHierarchiesOfBothVersionsAreFound(t *testing.T) {
	const hybrid = `30 1 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:29 /docker/abc /sys/fs/cgroup/part rw - cgroup cgroup rw,memory
33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	got, err := readHierarchies(strings.NewReader(hybrid))
	want := []hierarchy{{"/sys/fs/cgroup/cpu,cpuacct", false}, {"/sys/fs/cgroup/unified", true}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := readHierarchies(strings.NewReader("30 1 0:27 / / rw - ext4 /dev/vda rw\n")); err == nil {
		t.Error("a machine without control groups is no error")
	}
}

func TestAGroupIsMadeReadyForProcesses(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	write(t, v1+"/cpuset.cpus", "0-1")
	write(t, v1+"/cpuset.mems", "0")
	write(t, v2+"/cgroup.controllers", "cpu")
	for _, h := range []hierarchy{{v1, false}, {v2, true}} {
		if err := h.makeGroup("/aware-lab-x/system"); err != nil {
			t.Fatal(err)
		}
		if err := h.makeGroup("/aware-lab-x/system"); err != nil {
			t.Errorf("the second time: %v", err)
		}
	}
	if got, _ := os.ReadFile(v1 + "/aware-lab-x/system/cpuset.cpus"); string(got) != "0-1" {
		t.Errorf("cpuset.cpus is %q", got)
	}
	if got, _ := os.ReadFile(v2 + "/cgroup.subtree_control"); string(got) != "+cpu" {
		t.Errorf("cgroup.subtree_control is %q", got)
	}
}

func TestGroupsAreRemovedDeepestFirstAndNothingElseIs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"aware-lab-x/kubepods/burstable/pod1/c1", "aware-lab-x/system",
		"aware-lab-xy/system", "other"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	trees := []hierarchy{{Dir: root}, {Dir: filepath.Join(root, "other")}}
	if err := removeGroups(ctx, trees, "/aware-lab-x"); err != nil {
		t.Fatal(err)
	}
	if exists(root+"/aware-lab-x") || !exists(root+"/aware-lab-xy/system") || !exists(root+"/other") {
		t.Error("not the group alone is gone")
	}
	// In a real tree rmdir removes a group with its files. Here it refuses, so
	// the group stays.
	write(t, root+"/aware-lab-xy/system/precious", "")
	if err := removeGroups(ctx, trees, "/aware-lab-xy"); err == nil ||
		!strings.Contains(err.Error(), "/aware-lab-xy/system") {
		t.Errorf("got %v, want an error that names the group", err)
	}
	if !exists(root + "/aware-lab-xy/system/precious") {
		t.Error("a file was removed")
	}
}

func TestAProcessIsIdentifiedByItsStart(t *testing.T) {
	me, _, err := processAt("/proc", os.Getpid())
	if err != nil || !me.alive() {
		t.Fatalf("I am not alive: %v, %v", me, err)
	}
	if (process{me.PID, me.Start + 1}).alive() {
		t.Error("another process with my id is taken for me")
	}
	if (process{}).alive() {
		t.Error("no process is alive")
	}
	proc := t.TempDir()
	write(t, proc+"/7/stat", "7 (a) Z b) c) Z 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 0\n")
	if p, state, err := processAt(proc, 7); err != nil || p != (process{7, 4242}) || state != 'Z' {
		t.Errorf("got %v, %c, %v", p, state, err)
	}
}

func TestCheckCleanListsWhatALabLeft(t *testing.T) {
	base := t.TempDir()
	if left, err := leftFolders(base + "/none"); err != nil || left != nil {
		t.Errorf("without a folder: %v, %v", left, err)
	}
	me, _, err := processAt("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, init := range map[string]process{"running": me, "killed": {me.PID, me.Start + 1}} {
		if err := os.Mkdir(filepath.Join(base, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := (plan{Name: name, Dir: filepath.Join(base, name), Init: init}).save(); err != nil {
			t.Fatal(err)
		}
	}
	write(t, base+"/half/log/init.log", "")
	left, err := leftFolders(base)
	if err != nil || len(left) != 3 {
		t.Fatalf("got %q, %v", left, err)
	}
	for i, want := range []trace{
		{"half", "aware-lab-half, which never started"},
		{"killed", "aware-lab-killed, whose init, process"},
		{"running", "running lab aware-lab-running"},
	} {
		if left[i].lab != want.lab || !strings.Contains(left[i].what, want.what) {
			t.Errorf("got %+v, want %+v", left[i], want)
		}
	}
	write(t, base+"/proc/9/cgroup", "4:memory:/aware-lab-x/kubepods/pod1\n")
	write(t, base+"/proc/9/stat", "9 (web) S 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4242 0\n")
	write(t, base+"/proc/8/cgroup", "4:memory:/user.slice\n")
	if left, err := leftProcesses(base + "/proc"); err != nil || len(left) != 1 || left[0].lab != "x" ||
		!strings.Contains(left[0].what, "process 9") || !strings.Contains(left[0].what, "aware-lab-x/kubepods/pod1") {
		t.Errorf("got %+v, %v", left, err)
	}
}

// What another lab has, or a killed one left, is not a fault of the labs that are asked for.
func TestCheckCleanLeavesOtherLabsOut(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	write(t, stateBase()+"/killed/log/init.log", "")
	for _, c := range []struct {
		labs []string
		want int
	}{{nil, 1}, {[]string{"killed"}, 1}, {[]string{"api", "e2e"}, 0}} {
		left, err := CheckClean(c.labs...)
		if err != nil {
			t.Fatal(err)
		}
		left = slices.DeleteFunc(left, func(line string) bool { return !strings.Contains(line, stateBase()) })
		if len(left) != c.want {
			t.Errorf("of %q: %q, want %d", c.labs, left, c.want)
		}
	}
}

func TestOnlyALabsFolderIsRemoved(t *testing.T) {
	base := t.TempDir()
	write(t, base+"/home/precious", "")
	write(t, base+"/lab/lab.json", "{}")
	if err := removeState(base + "/home"); err == nil || !exists(base+"/home/precious") {
		t.Errorf("got %v", err)
	}
	for _, dir := range []string{"/lab", "/none"} {
		if err := removeState(base + dir); err != nil || exists(base+dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestLabsDoNotShareAddresses(t *testing.T) {
	for i := range slots {
		n := slot(i)
		if !n.Pods.Contains(n.secondPods().Addr()) || n.nodePods().Overlaps(n.secondPods()) ||
			!n.secondLink().Contains(n.second()) || n.secondLink().Overlaps(n.link()) {
			t.Errorf("the second node of slot %d: %v, %v", i, n.secondPods(), n.secondLink())
		}
		if !n.Pods.Contains(n.gateway()) || !n.nodePods().Contains(n.gateway()) ||
			!n.Services.Contains(n.apiService()) || !n.link().Contains(n.Lab) {
			t.Errorf("slot %d: %+v", i, n)
		}
		for j := range i {
			if m := slot(j); n.clashes([]netip.Prefix{m.link(), m.secondLink(), m.Pods, m.Services}) {
				t.Errorf("slots %d and %d clash", i, j)
			}
		}
	}
	routes, err := parseRoutes([]byte(`[{"dst":"default"},{"dst":"192.0.2.0/24"},{"dst":"10.89.3.4"}]`))
	if err != nil {
		t.Fatal(err)
	}
	if !slot(0).clashes([]netip.Prefix{netip.PrefixFrom(slot(0).second(), 32)}) {
		t.Error("a route to the second node's address does not clash")
	}
	if !slot(0).clashes(routes) || slot(1).clashes(routes) {
		t.Errorf("10.89.3.4 is a pod of slot 0 and of no other; got %v", routes)
	}
}

func TestInvalidConfigsAreRefused(t *testing.T) {
	for what, c := range map[string]Config{
		"a name with a slash":         {Name: "a/b"},
		"a name that is too long":     {Name: strings.Repeat("a", 41)},
		"a relative state folder":     {StateDir: "x"},
		"a state folder that we hide": {StateDir: "/var/lib/x"},
		"a cache that we hide":        {CacheDir: "/run/x"},
		"three nodes":                 {Nodes: 3},
		"less than one node":          {Nodes: -1},
		"a driver that is not one":    {CgroupDriver: "docker"},
		"more pods than addresses":    {MaxPods: 251},
		"fewer pods than none":        {MaxPods: -1},
	} {
		if err := c.withDefaults().validate(); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if err := (Config{StateDir: "/runner/x"}).withDefaults().validate(); err != nil {
		t.Error(err)
	}
}

func TestTheKubeletTakesAsManyPodsAsTheConfigSays(t *testing.T) {
	for config, want := range map[int]int{0: 110, 130: 130} {
		c := Config{MaxPods: config}.withDefaults()
		if err := c.validate(); err != nil {
			t.Fatal(err)
		}
		p := c.plan()
		p.Net = slot(0)
		if got := p.kubeletConfig()["maxPods"]; got != want {
			t.Errorf("MaxPods %d: the kubelet takes %v pods, want %d", config, got, want)
		}
	}
}

// needLab skips a test where a lab cannot run, or only after ten minutes of building.
func needLab(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster: not with -short")
	}
	if err := Preflight(t.Context(), false); err != nil {
		t.Skip(err)
	}
	for _, name := range needed {
		i := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
		if dir, _, err := cacheDir(t.Context(), testLab().withDefaults(), groups[i]); err != nil || !isDir(dir) {
			t.Skipf("the binaries of %s are not built yet: go run ./test/cluster build", name)
		}
	}
}

// mustBeClean fails the test when something of its lab is left.
func mustBeClean(t *testing.T) {
	t.Helper()
	if left := left(t); len(left) > 0 {
		t.Errorf("left on the machine:\n%s", strings.Join(left, "\n"))
	}
}

func left(t *testing.T) []string {
	t.Helper()
	all, err := CheckClean(testLab().Name)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPodRunsAndIsResizedInPlace(t *testing.T) {
	needLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := Up(ctx, testLab())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Down(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		mustBeClean(t)
	}()
	if again, err := Attach(ctx, testLab()); err != nil || again.Node() != c.Node() {
		t.Errorf("attaching: %v", err)
	}
	const ref = "awarescale.dev/test/sleep:1"
	if err := c.LoadImage(ctx, ref, map[string]string{"/sleep": c.plan.Binaries["pause"]},
		[]string{"/sleep"}); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	pods := clients.CoreV1().Pods("default")
	pod := runSleep(ctx, t, clients, ref)
	container := strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "containerd://")
	if got := millicores(t, c, container); got != 200 {
		t.Errorf("the container may use %d millicores, want 200", got)
	}
	pod.Spec.Containers[0].Resources = cpu("150m", "500m")
	if _, err := pods.UpdateResize(ctx, pod.Name, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, 50*time.Millisecond, func() error {
		if got := millicores(t, c, container); got != 500 {
			return fmt.Errorf("the container may use %d millicores, want 500", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if pod, err = pods.Get(ctx, "sleep", metav1.GetOptions{}); err != nil ||
		pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the container was started again: %+v, %v", pod.Status, err)
	}

	checkAccess(ctx, t, c, ref)
	checkAddons(ctx, t, c)
	checkJoin(ctx, t, c)
	if resp, err := http.Get("http://" + pod.Status.PodIP + ":1"); err == nil {
		resp.Body.Close()
	} else if !errors.Is(err, unix.ECONNREFUSED) { // refused by the pod itself, so it is reached
		t.Errorf("the host does not reach the pod: %v", err)
	}
}

// cpu is a request and a limit of CPU.
func cpu(request, limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse(request)},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse(limit)},
	}
}

// runSleep creates a pod of the image with 200m CPU, and waits until it runs.
func runSleep(ctx context.Context, t *testing.T, clients kubernetes.Interface, image string) *corev1.Pod {
	t.Helper()
	pods := clients.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sleep"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:            "sleep",
			Image:           image,
			ImagePullPolicy: corev1.PullNever,
			Resources:       cpu("100m", "200m"),
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := poll(ctx, 100*time.Millisecond, func() error {
		if pod, err = pods.Get(ctx, "sleep", metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %s", pod.Status.Phase)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return pod
}

// checkAccess checks the ways into the lab.
func checkAccess(ctx context.Context, t *testing.T, c *Cluster, ref string) {
	t.Helper()
	if out, err := c.Command(ctx, "hostname").Output(); err != nil ||
		strings.TrimSpace(string(out)) != c.Node() {
		t.Errorf("the host name inside is %q, %v", out, err)
	}
	if out, err := c.Command(ctx, "ctr", "--namespace=k8s.io", "images", "ls", "--quiet").Output(); err != nil ||
		!strings.Contains(string(out), ref) {
		t.Errorf("ctr inside sees %q, %v", out, err)
	}
	if out, err := c.Kubectl(ctx, "get", "pods", "--output=name"); err != nil || string(out) != "pod/sleep\n" {
		t.Errorf("kubectl says %q, %v", out, err)
	}
	if s, err := c.Status(ctx); err != nil || !s.Ready || len(s.Pods) != 1 || len(s.Components) < 7 {
		t.Errorf("the status is %+v, %v", s, err)
	}
	if left := left(t); len(left) < 10 {
		t.Errorf("CheckClean does not see a running lab: %q", left)
	}
}

// checkAddons waits for CoreDNS and metrics-server, which Up does not wait for.
func checkAddons(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	names := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(c.plan.Net.dns().String(), "53"))
		},
	}
	if err := poll(ctx, 100*time.Millisecond, within(ctx, 2*time.Second, func(ctx context.Context) error {
		got, err := names.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
		if want := c.plan.Net.apiService().String(); err == nil && !slices.Equal(got, []string{want}) {
			return fmt.Errorf("got %v, want %s", got, want)
		}
		return err
	})); err != nil {
		t.Errorf("the API server's name: %v", err)
	}
	if err := poll(ctx, time.Second,
		func() error { _, err := c.Kubectl(ctx, "top", "nodes"); return err }); err != nil {
		t.Errorf("the node's figures: %v", err)
	}
}

// checkJoin checks that the credentials of a further node are those of that node.
func checkJoin(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	if joined, err := c.Join("other", "10.0.2.15"); err != nil {
		t.Error(err)
	} else if config, err := clientcmd.RESTConfigFromKubeConfig(joined.Kubeconfig); err != nil {
		t.Error(err)
	} else if other, err := kubernetes.NewForConfig(config); err != nil {
		t.Error(err)
	} else if review, err := other.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil ||
		review.Status.UserInfo.Username != "system:node:other" {
		t.Errorf("another node is taken for %v, %v", review, err)
	}
}

// millicores reads the container's CPU quota from its control group, v1 or v2.
func millicores(t *testing.T, c *Cluster, container string) int {
	t.Helper()
	trees, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range trees {
		var quota, period int
		_ = filepath.WalkDir(filepath.Join(h.Dir, c.CgroupParent()),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.Name() != container {
					return nil
				}
				if data, err := os.ReadFile(path + "/cpu.max"); err == nil {
					_, _ = fmt.Sscan(string(data), &quota, &period)
					return fs.SkipAll
				}
				q, _ := os.ReadFile(path + "/cpu.cfs_quota_us")
				p, _ := os.ReadFile(path + "/cpu.cfs_period_us")
				quota, _ = strconv.Atoi(strings.TrimSpace(string(q)))
				period, _ = strconv.Atoi(strings.TrimSpace(string(p)))
				return fs.SkipAll
			})
		if period > 0 {
			return quota * 1000 / period
		}
	}
	return -1
}

// helper starts a process that starts the lab and waits, see TestMain, and returns when
// the lab is up.
func helper(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "LAB_TEST_HELPER=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 4096)
	n, _ := out.Read(line)
	if !bytes.Equal(line[:n], []byte("up\n")) {
		t.Fatalf("the helper printed %q", line[:n])
	}
	return cmd
}

func TestABoundLabEndsWithItsParentAndLeavesNothing(t *testing.T) {
	needLab(t)
	parent := helper(t)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	if err := poll(ctx, 200*time.Millisecond, func() error {
		if left := left(t); len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	}); err != nil {
		t.Errorf("left by itself: %v", err)
	}
}

func TestUpRemovesTheRemainsOfAKilledLab(t *testing.T) {
	needLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, victim := range []string{"the parent, whose lab is still leaving",
		"parent and init, so that nobody can"} {
		t.Run(victim, func(t *testing.T) {
			parent := helper(t)
			p, err := readPlan(testLab().withDefaults().StateDir)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(victim, "init") {
				if err := p.Init.signal(unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			if err := parent.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait()
			if len(left(t)) == 0 {
				t.Fatal("the killed lab left nothing; then this shows nothing")
			}
			c, err := Up(ctx, testLab())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Down(ctx); err != nil {
				t.Fatal(err)
			}
			mustBeClean(t)
		})
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A link ends by itself some time after the network namespace of its other end, so that it
// may be gone between being found and being removed.
func TestALinkThatIsGoneIsNoError(t *testing.T) {
	if err := ip(t.Context(), "link", "delete", "aware-none"); !noDevice(err) {
		t.Errorf("a link that never was: %v", err)
	}
	if err := errors.New("ip link delete awl0: exit status 2: RTNETLINK answers: No such device"); !noDevice(err) {
		t.Errorf("a link that ended in between: %v", err)
	}
	if err := ip(t.Context(), "link", "delete", "lo"); err == nil || noDevice(err) {
		t.Errorf("a link that is there and refuses: %v", err)
	}
}
