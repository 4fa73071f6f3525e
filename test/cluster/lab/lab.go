package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"awarescale.dev/aware/hack/images/static"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a running lab.
type Cluster struct {
	config Config
	plan   plan
	rest   *rest.Config
}

// Up starts the lab and returns when its node is Ready and pods can be made. What an
// earlier lab of the same name left is removed first, the lab itself too if it still
// runs. When Up fails it leaves nothing behind.
func Up(ctx context.Context, c Config) (*Cluster, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := Preflight(ctx, false); err != nil {
		return nil, err
	}
	if c.Nodes > 1 {
		if err := PreflightMachine(ctx, c, false); err != nil {
			return nil, err
		}
	}
	unlock, err := lockFile(ctx, c.lock())
	if err != nil {
		return nil, err
	}
	defer unlock()

	p := c.plan()
	if p.Binaries, p.Version, err = c.binaries(ctx); err != nil {
		return nil, err
	}
	if exists(filepath.Join(c.StateDir, "lab.json")) {
		fmt.Fprintf(c.Log, "removing the lab that is in %s\n", c.StateDir)
	}
	if err := remove(ctx, c); err != nil {
		return nil, err
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.Ready)
	defer cancel()
	cluster, err := start(ctx, c, p)
	if err != nil {
		return nil, errors.Join(err, remove(context.WithoutCancel(ctx), c))
	}
	fmt.Fprintf(c.Log, "Ready after %v: %s\n",
		time.Since(begun).Round(10*time.Millisecond), strings.Join(names(cluster.Nodes()), ", "))
	return cluster, nil
}

// plan is what is known of a lab before it starts.
func (c Config) plan() plan {
	return plan{
		Name:         c.Name,
		Dir:          c.StateDir,
		Lock:         c.lock(),
		Created:      time.Now(),
		FeatureGates: c.FeatureGates,
		MaxPods:      c.MaxPods,
		BindParent:   c.BindParent,
	}
}

// binaries returns the path of each program a lab runs, built if need be, and the
// version of Kubernetes.
func (c Config) binaries(ctx context.Context) (map[string]string, string, error) {
	paths := map[string]string{}
	for _, name := range needed {
		dir, err := buildGroup(ctx, c, name)
		if err != nil {
			return nil, "", err
		}
		for _, g := range groups {
			if g.name == name {
				for _, tool := range g.tools {
					paths[tool] = filepath.Join(dir, tool)
				}
			}
		}
	}
	source, err := sourceDir(ctx)
	if err != nil {
		return nil, "", err
	}
	goMod, err := os.ReadFile(filepath.Join(source, "bin", "go.mod"))
	return paths, kubernetesVersion(string(goMod)), err
}

// start makes the lab's files, group, link and init, and waits until it is Ready.
func start(ctx context.Context, c Config, p plan) (_ *Cluster, err error) {
	for _, dir := range []string{filepath.Join(p.Dir, "log"), p.pki(), p.config("cni")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := p.save(); err != nil { // the first file: it names the lab that owns the folder
		return nil, err
	}
	if err := p.buildOwn(ctx, c); err != nil {
		return nil, err
	}
	if p.Net, err = claim(ctx, owner(p.Name)); err != nil {
		return nil, err
	}
	p.makeNodes(c)
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, h := range trees {
		if err := h.makeGroup(p.Node.System); err != nil {
			return nil, err
		}
	}
	if err := p.writePKI(); err != nil {
		return nil, err
	}
	if err := p.writeConfigs(); err != nil {
		return nil, err
	}
	image, err := static.Image(map[string]string{"/pause": p.Binaries["pause"]}, []string{"/pause"}, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	if err := writeImage(filepath.Join(p.Dir, "pause.tar"), pauseImage, image); err != nil {
		return nil, err
	}
	if p.Second != nil {
		if err := p.makeMachine(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.save(); err != nil {
		return nil, err
	}
	initEnded, err := p.startInit(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c.Log, "init is process %d, API server %s, logs in %s\n",
		p.Init.PID, p.server(), filepath.Join(p.Dir, "log"))
	cluster, err := newCluster(c, p)
	if err != nil {
		return nil, err
	}
	g, waiting := errgroup.WithContext(ctx)
	waiting, ready := context.WithCancel(waiting)
	g.Go(func() error { defer ready(); return cluster.waitReady(waiting) })
	g.Go(func() error {
		select {
		case <-initEnded:
			return fmt.Errorf("the lab's init ended:\n%s", tail(p.log("init"), 20))
		case <-waiting.Done():
			return nil
		}
	})
	return cluster, g.Wait()
}

// bound holds the pipes of bound labs. A pipe that closes shows the lab that
// this process is gone. They are kept here so that the garbage collector does
// not close them.
var bound sync.Map

// startInit starts the lab's init in new namespaces, connects its network, and lets it
// continue. The channel is closed when init has ended.
func (p *plan) startInit(ctx context.Context) (<-chan struct{}, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	log, err := os.Create(p.log("init"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.Binaries["init"], "init", p.Dir)
	cmd.Dir, cmd.Env = "/", p.environment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{read}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, // outlive the terminal
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("starting the lab's init in new namespaces: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if p.Init, _, err = processAt("/proc", cmd.Process.Pid); err == nil {
		err = p.save()
	}
	if err == nil {
		err = p.Net.connect(ctx, p.Init.PID)
	}
	if err == nil {
		_, err = write.Write([]byte{1})
	}
	if err != nil {
		write.Close() // then init ends, because its network was not connected
		return nil, err
	}
	if p.BindParent {
		bound.Store(write, p.Init)
	} else {
		write.Close()
	}
	return ended, nil
}

// waitReady waits for Ready nodes and for the default service account, without which a
// pod is refused.
func (c *Cluster) waitReady(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	step := "the API server"
	err = poll(ctx, 50*time.Millisecond, within(ctx, 3*time.Second, func(ctx context.Context) error {
		if err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		step = "the default service account"
		if _, err := clients.CoreV1().ServiceAccounts("default").Get(ctx, "default",
			metav1.GetOptions{}); err != nil {
			return err
		}
		for _, n := range c.plan.nodes() {
			step = "node " + n.Name
			now, err := clients.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := usable(now, n.Pods.String()); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		err = fmt.Errorf("waiting for %s: %w\ninit says:\n%s", step, err, tail(c.plan.log("init"), 20))
	}
	if err != nil && c.plan.Second != nil {
		err = fmt.Errorf("%w\nthe console of %s says:\n%s", err, c.plan.Second.Name, tail(c.plan.machine().Console(), 20))
	}
	return err
}

// usable is an error until the node is Ready, takes pods, and has these addresses for them.
func usable(node *corev1.Node, pods string) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			if condition.Status == corev1.ConditionTrue {
				if node.Spec.PodCIDR != pods {
					return fmt.Errorf("its pods get the addresses %q, and not %s", node.Spec.PodCIDR, pods)
				}
				return untainted(node)
			}
			return fmt.Errorf("not Ready: %s", condition.Message)
		}
	}
	return errors.New("it has no condition Ready yet")
}

func names(nodes []Node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.Name())
	}
	return all
}

// untainted is an error while the node has the taint that keeps pods away until it is
// Ready.
func untainted(node *corev1.Node) error {
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady {
			return fmt.Errorf("it still has the taint %s", t.Key)
		}
	}
	return nil
}

// Attach returns the running lab of that name.
func Attach(_ context.Context, c Config) (*Cluster, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	p, err := readPlan(c.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no lab %q is up: %w", c.Name, err)
	}
	if err != nil {
		return nil, err
	}
	if !p.Init.alive() {
		return nil, fmt.Errorf("the lab %q in %s is not up any more: its init, process %d, is gone",
			c.Name, c.StateDir, p.Init.PID)
	}
	return newCluster(c, p)
}

func newCluster(c Config, p plan) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", p.kubeconfig(), err)
	}
	config.QPS, config.Burst = 200, 400 // a test sends many requests
	return &Cluster{c, p, config}, nil
}

// clientset is the administrator's client.
func (p plan) clientset() (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig())
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Down stops the lab and removes everything that it made.
func (c *Cluster) Down(ctx context.Context) error { return Down(ctx, c.config) }

// Down stops the lab of that name, or removes what is left of one that is not running.
func Down(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, c.lock())
	if err != nil {
		return err
	}
	defer unlock()
	return remove(ctx, c)
}

// lock is the lock file of starting and removing the lab. It is in the cache,
// and is not removed.
func (c Config) lock() string { return filepath.Join(c.CacheDir, "lab-"+c.Name+".lock") }

// remove ends the lab's init, first with SIGTERM, and removes what is left. It has
// its own time limits, in addition to ctx.
func remove(ctx context.Context, c Config) error {
	p, err := readPlan(c.StateDir)
	if err == nil && p.Name != c.Name {
		return fmt.Errorf("the folder %s belongs to lab %q and not to %q", c.StateDir, p.Name, c.Name)
	}
	if err == nil && p.Init.alive() {
		kindly, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := p.Init.signal(unix.SIGTERM); err != nil {
			return err
		}
		if p.Init.gone(kindly) != nil {
			// The PID namespace's processes end with its first process.
			if err := p.Init.signal(unix.SIGKILL); err != nil {
				return err
			}
			killed, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			if err := p.Init.gone(killed); err != nil {
				return fmt.Errorf("killing the init of lab %q: %w", c.Name, err)
			}
		}
	}
	bound.Range(func(pipe, of any) bool {
		if of == p.Init {
			bound.Delete(pipe)
			_ = pipe.(*os.File).Close()
		}
		return true
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return removeTraces(ctx, c.Name, c.StateDir)
}

// removeTraces removes what a lab has outside of its namespaces. Its processes
// are gone.
func removeTraces(ctx context.Context, name, dir string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	err = errors.Join(removeGroups(ctx, trees, "/"+owner(name)), removeLinks(ctx, owner(name)), removeState(dir))
	_ = os.Remove(stateBase()) // if it is empty now
	return err
}

// removeState removes a state folder. It refuses a folder that was never a
// lab's, so that a mistyped --state does no damage.
func removeState(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 && filepath.Dir(dir) != stateBase() && !exists(filepath.Join(dir, "lab.json")) {
		return fmt.Errorf("the folder %s is not a lab's, for it has no lab.json: not removing it", dir)
	}
	return os.RemoveAll(dir)
}
