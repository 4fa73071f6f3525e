// Package api tests the controllers against the API server of a lab cluster. The
// controllers run in this process, with an administrator's rights. Pods are on a
// node that does not exist, and the test acts as their kubelet. So a test can choose
// the kubelet's answer (Deferred, Infeasible).
package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/fleet"
	"awarescale.dev/aware/test/cluster/lab"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// ghost is the node that does not exist.
const ghost = "ghost"

// Shared by all tests of the package.
var (
	cluster *lab.Cluster
	kube    client.Client            // of the cluster's API server
	agents  = fleet.New(time.Minute) // the controllers' view of the nodes
	decided = decisions.NewLog()     // by the controllers
	cached  client.Reader            // the controllers' cache
)

// step is the controllers' step. It is short, because tests wait for it.
const step = time.Second

func TestMain(m *testing.M) {
	os.Exit(lab.RunTests(m, "api", func(ctx context.Context, c *lab.Cluster) (func(int), error) {
		cluster = c
		return nil, start(ctx)
	}))
}

// established waits for the CRDs of a file. kubectl wait fails at once for one whose status has
// no conditions yet.
func established(ctx context.Context, file string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		out, err := cluster.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "-f", file)
		if err != nil {
			last = fmt.Errorf("%w: %s", err, out)
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", file, errors.Join(err, last))
	}
	return nil
}

// start installs the CRDs and runs the controllers.
func start(ctx context.Context) error {
	for _, file := range []string{"../../manifests/base/autoscaling.awarescale.dev_multidimpodautoscalers.yaml",
		"testdata/peers.yaml"} {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if out, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", path); err != nil {
			return fmt.Errorf("kubectl apply %s: %w: %s", file, err, out)
		}
		if err := established(ctx, path); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	clientgoscheme.AddToScheme(scheme)
	v1alpha1.AddToScheme(scheme)
	var err error
	if kube, err = client.New(cluster.REST(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	config := cluster.REST()
	config.QPS, config.Burst = 200, 400
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	decide := recommender.New(recommender.Config{
		Client:      mgr.GetClient(),
		Fleet:       agents,
		Log:         decided,
		Events:      mgr.GetEventRecorder("aware-autoscaler"),
		Now:         time.Now,
		Step:        step,
		Patience:    2 * time.Second,
		StatusEvery: step,
		Policies: func(b recommender.PolicyRequest) (mdp.Policy, string, error) {
			c := hpavpa.Default
			c.SLO, c.Largest = b.Objective.SLO, mdp.Size{CPU: b.Bounds.CPU.Max, Memory: b.Bounds.Memory.Max}
			c.Smoothing = 2 * step
			return hpavpa.New(c), "hpavpa/1", c.Check()
		},
	})
	if err := decide.SetupWithManager(mgr, "mpa"); err != nil {
		return err
	}
	for _, kind := range optin.Kinds {
		if err := (&optin.Controller{
			Client: mgr.GetClient(),
			Events: mgr.GetEventRecorder("aware-optin"),
			Kind:   kind,
		}).SetupWithManager(mgr); err != nil {
			return err
		}
	}
	cached = mgr.GetCache()
	go mgr.Start(ctx)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("the caches were not filled")
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ghost}}
	if err := kube.Create(ctx, node); err != nil {
		return err
	}
	if err := beat(ctx, node); err != nil {
		return err
	}
	go func() {
		for tick := time.NewTicker(10 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				beat(ctx, node) // a beat that is lost is followed by others
			}
		}
	}()
	return nil
}

// beat says that the ghost is well, as its kubelet would. Of a node that says nothing the
// controllers mark the pods as not ready, each as soon as they see it.
func beat(ctx context.Context, node *corev1.Node) error {
	before := node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
	}}
	return kube.Status().Patch(ctx, node, client.MergeFrom(before))
}

// shop is one workload in its own namespace.
type shop struct {
	t         *testing.T
	namespace string
	name      string
}

// open makes a namespace with a Deployment whose template has the annotations,
// given as key, value, key, value. The deployment is paused, so that only the test
// makes its pods.
func open(t *testing.T, annotations ...string) *shop {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := kube.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(ns) })
	s := &shop{t: t, namespace: ns.Name, name: "web"}
	one := int32(1)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: s.name},
		Spec: appsv1.DeploymentSpec{
			Paused:   true,
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: template(annotations...),
		},
	}
	if err := kube.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return s
}

// end deletes a namespace and its workloads. A namespace waits for its pods, which have no
// kubelet, and workloads that stay would share the budget of status writes.
func end(ns *corev1.Namespace) {
	ctx := context.Background()
	for _, all := range []client.Object{
		&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.ReplicaSet{}, &v1alpha1.MultidimPodAutoscaler{},
	} {
		kube.DeleteAllOf(ctx, all, client.InNamespace(ns.Name))
	}
	kube.Delete(ctx, ns)
}

func template(annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"app": "web", v1alpha1.ManagedLabel: "true"},
		Annotations: map[string]string{},
	}}
	for i := 0; i < len(annotations); i += 2 {
		t.Annotations[v1alpha1.Prefix+annotations[i]] = annotations[i+1]
	}
	t.Spec.Containers = []corev1.Container{{
		Name:            "web",
		Image:           "none",
		ImagePullPolicy: corev1.PullNever,
		Ports:           []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("200m"),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("400m"),
				corev1.ResourceMemory: resource.MustParse("128Mi"),
			},
		},
	}}
	return t
}

// pod makes a running, ready pod of the deployment on the ghost node.
func (s *shop) pod(name string) *corev1.Pod {
	s.t.Helper()
	var d appsv1.Deployment
	s.get(&d, s.name)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   s.namespace,
			Name:        name,
			Labels:      d.Spec.Template.Labels,
			Annotations: d.Spec.Template.Annotations,
		},
		Spec: d.Spec.Template.Spec,
	}
	p.Spec.NodeName = ghost
	if err := kube.Create(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	s.runs(p)
	return p
}

// runs says that a pod is running and ready, as the kubelet does.
func (s *shop) runs(p *corev1.Pod) {
	s.t.Helper()
	s.status(p, func(st *corev1.PodStatus) {
		st.Phase = corev1.PodRunning
		st.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		st.ContainerStatuses = []corev1.ContainerStatus{{
			Name:               "web",
			Ready:              true,
			Image:              "none",
			ImageID:            "none",
			ContainerID:        "containerd://" + p.Name,
			AllocatedResources: p.Spec.Containers[0].Resources.Requests,
			Resources:          p.Spec.Containers[0].Resources.DeepCopy(),
		}}
	})
}

// status changes a pod's status, as the kubelet does.
func (s *shop) status(p *corev1.Pod, change func(*corev1.PodStatus)) {
	s.t.Helper()
	s.get(p, p.Name)
	change(&p.Status)
	if err := kube.Status().Update(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) get(o client.Object, name string) {
	s.t.Helper()
	if err := kube.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, o); err != nil {
		s.t.Fatal(err)
	}
}

// annotate sets an annotation of the template; an empty value removes it.
func (s *shop) annotate(key, value string) {
	s.t.Helper()
	s.change(func(d *appsv1.Deployment) {
		if value == "" {
			delete(d.Spec.Template.Annotations, v1alpha1.Prefix+key)
			return
		}
		d.Spec.Template.Annotations[v1alpha1.Prefix+key] = value
	})
}

// change changes the deployment.
func (s *shop) change(edit func(*appsv1.Deployment)) {
	s.t.Helper()
	var d appsv1.Deployment
	s.get(&d, s.name)
	before := d.DeepCopy()
	edit(&d)
	if err := kube.Patch(s.t.Context(), &d, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// reports sends a report as the agent does: the pods use that much CPU. change, if
// not nil, changes the rest.
func (s *shop) reports(cpu mdp.MilliCPU, change func(*api.Summary), pods ...*corev1.Pod) {
	r := api.Report{Node: ghost, At: time.Now(), Full: true}
	for _, p := range pods {
		limit := mdp.Size{CPU: 400, Memory: 128 * mdp.MiB}
		sum := api.Summary{
			Container: api.ContainerRef{
				Namespace: p.Namespace,
				Pod:       p.Name,
				PodUID:    string(p.UID),
				Container: "web",
			},
			State: mdp.State{
				At:       time.Now(),
				Observed: mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit, mdp.CPUUsage, mdp.CPUPeak, mdp.MemoryUsage),
				Limit:    limit,
				Usage:    mdp.Size{CPU: cpu, Memory: 40 * mdp.MiB},
				CPUPeak:  cpu,
			},
		}
		if change != nil {
			change(&sum)
		}
		r.Containers = append(r.Containers, sum)
	}
	agents.Accept(time.Now(), r)
}

// grant is the pod's grant for the ghost's agent.
func (s *shop) grant(p *corev1.Pod) (api.Grant, bool) {
	m, _, _ := agents.Grants(ghost)
	for _, one := range m.All {
		if one.Container.PodUID == string(p.UID) {
			return one, true
		}
	}
	return api.Grant{}, false
}

func (s *shop) mpa() (*v1alpha1.MultidimPodAutoscaler, error) {
	var m v1alpha1.MultidimPodAutoscaler
	err := kube.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: s.name}, &m)
	return &m, err
}

// condition waits until a condition is as wanted and its message says what is wanted.
func (s *shop) condition(kind string, status metav1.ConditionStatus, says ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("condition %s=%s saying %q", kind, status, says), func() (bool, string) {
		m, err := s.mpa()
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(m.Status.Conditions, kind)
		if c == nil || c.Status != status {
			return false, fmt.Sprintf("conditions %+v", m.Status.Conditions)
		}
		return contains(c.Reason+": "+c.Message, says), c.Reason + ": " + c.Message
	})
}

// event waits for an event in the shop's namespace.
func (s *shop) event(reason string, says ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("event %s saying %q", reason, says), func() (bool, string) {
		var all eventsv1.EventList
		if err := kube.List(s.t.Context(), &all, client.InNamespace(s.namespace)); err != nil {
			return false, err.Error()
		}
		var seen []string
		for _, e := range all.Items {
			seen = append(seen, e.Reason+": "+e.Note)
			if e.Reason == reason && contains(e.Note, says) {
				return true, ""
			}
		}
		return false, strings.Join(seen, "\n")
	})
}

func contains(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func (s *shop) eventually(what string, is func() (bool, string)) {
	s.t.Helper()
	last := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ok, seen := is()
		if ok {
			return
		}
		last = seen
	}
	decisions := ""
	if m, err := s.mpa(); err == nil {
		for _, d := range m.Status.Decisions[:min(3, len(m.Status.Decisions))] {
			decisions += fmt.Sprintf("\n  saw %s, decided %s: %s %s", d.Inputs, d.Action, d.Effect, d.Reason)
		}
	}
	s.t.Fatalf("not within 30 s: %s; last seen: %s%s", what, last, decisions)
}

// never checks over a few steps that is does not report true.
func (s *shop) never(what string, is func() bool) {
	s.t.Helper()
	for range 3 * int(step/(100*time.Millisecond)) {
		if is() {
			s.t.Fatal(what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// kubectl runs kubectl and returns its output, also when it fails.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	bin, err := cluster.Binary("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bin,
		append([]string{"--kubeconfig", cluster.Kubeconfig()}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
