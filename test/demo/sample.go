package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A Sample is what was seen of the application at one moment, from outside: limits and
// usage from the host's control groups, requests and replicas from the API. A nil figure
// was not observed, for instance since a container had just gone: it is left out of the
// means and of the plots.
type Sample struct {
	Seconds        float64  `json:"t"` // since the load began
	Replicas       *float64 `json:"replicas"`
	RequestedMilli *float64 `json:"requested_millicores"`
	AllocatedMilli *float64 `json:"allocated_millicores"` // the sum of the limits in force
	UsedMilli      *float64 `json:"used_millicores"`      // over the time since the sample before
	MemoryMiB      *float64 `json:"memory_mib"`           // the sum of the limits in force
	MemoryUsedMiB  *float64 `json:"memory_used_mib"`
}

// Counts are what happened to the application's pods since it was made.
type Counts struct {
	ResizesL1 int // limits in force that changed to what no pod spec ever said
	ResizesL2 int // changes of the resources in the spec of a pod that exists
	Restarts  int // of containers, of all pods there were
	Evictions int // pods that were evicted or preempted
}

// A sampler watches the pods of one run.
type sampler struct {
	host    cgroupHost
	parent  string // the lab's control group
	factory informers.SharedInformerFactory
	pods    cache.Store

	mu         sync.Mutex
	resizesL2  int
	resizesL1  int
	restarts   map[types.UID]int
	disrupted  map[types.UID]bool
	specified  map[string][]limits // by container path: all that the API ever said
	inForce    map[string]limits
	usage      map[string]time.Duration
	lastSample time.Time
}

// watchPods starts to watch the pods of a namespace, and returns when it knows them.
func watchPods(ctx context.Context, clients kubernetes.Interface,
	namespace, cgroupParent string) (*sampler, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	host, err := findCgroups(mounts)
	if err != nil {
		return nil, fmt.Errorf("looking for control groups in /proc/self/mountinfo: %w", err)
	}
	s := newSampler(host, cgroupParent)
	s.factory = informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace))
	informer := s.factory.Core().V1().Pods().Informer()
	s.pods = informer.GetStore()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.see(nil, o.(*corev1.Pod)) },
		UpdateFunc: func(old, o any) { s.see(old.(*corev1.Pod), o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if pod, ok := o.(*corev1.Pod); ok {
				s.see(nil, pod)
			}
		},
	}); err != nil {
		return nil, err
	}
	s.factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("watching the pods of %s: %w", namespace, ctx.Err())
	}
	return s, nil
}

func newSampler(host cgroupHost, parent string) *sampler {
	return &sampler{
		host:      host,
		parent:    parent,
		restarts:  map[types.UID]int{},
		disrupted: map[types.UID]bool{},
		specified: map[string][]limits{},
		inForce:   map[string]limits{},
		usage:     map[string]time.Duration{},
	}
}

// see takes a pod's news. old is nil when the pod was not known.
func (s *sampler) see(old, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old != nil && old.UID == pod.UID && resized(old, pod) {
		s.resizesL2++
	}
	restarts := 0
	for _, status := range pod.Status.ContainerStatuses {
		restarts += int(status.RestartCount)
	}
	s.restarts[pod.UID] = max(s.restarts[pod.UID], restarts)
	for _, c := range pod.Status.Conditions {
		// Set by the eviction API, by a kubelet short of something, and by a preempting
		// scheduler; not by scaling down.
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			s.disrupted[pod.UID] = true
		}
	}
	for _, c := range containersOf(pod, s.parent) {
		said := s.specified[c.path]
		if len(said) == 0 || !same(said[len(said)-1].milli, c.spec.milli) ||
			!same(said[len(said)-1].memory, c.spec.memory) {
			s.specified[c.path] = append(said, c.spec)
		}
	}
}

// resized tells whether the resources of a container were changed in the pod's spec.
func resized(old, pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if i < len(old.Spec.Containers) &&
			!apiequality.Semantic.DeepEqual(old.Spec.Containers[i].Resources, pod.Spec.Containers[i].Resources) {
			return true
		}
	}
	return false
}

// A container that runs, and where its control group is.
type container struct {
	path    string
	spec    limits
	request float64 // millicores
	leaving bool    // its pod is being deleted, so the group may go before we hear of it
}

// containersOf lists the running containers of a pod. The kubelet calls their groups, with
// the driver cgroupfs, <parent>/kubepods[/<qos>]/pod<uid>/<container id>.
func containersOf(pod *corev1.Pod, parent string) []container {
	var cs []container
	group := path.Join(parent, "kubepods")
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		group = path.Join(group, strings.ToLower(string(pod.Status.QOSClass)))
	}
	group = path.Join(group, "pod"+string(pod.UID))
	for _, status := range pod.Status.ContainerStatuses {
		_, id, ok := strings.Cut(status.ContainerID, "://")
		if status.State.Running == nil || !ok {
			continue
		}
		c := container{path: path.Join(group, id), leaving: pod.DeletionTimestamp != nil}
		for _, spec := range pod.Spec.Containers {
			if spec.Name != status.Name {
				continue
			}
			if q := spec.Resources.Limits.Cpu(); !q.IsZero() {
				c.spec.milli = known(float64(q.MilliValue()))
			}
			if q := spec.Resources.Limits.Memory(); !q.IsZero() {
				c.spec.memory = known(mib(q.Value()))
			}
			c.request = float64(spec.Resources.Requests.Cpu().MilliValue())
		}
		cs = append(cs, c)
	}
	return cs
}

// run samples every second until ctx ends.
func (s *sampler) run(ctx context.Context, each func(now time.Time, sample Sample)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := time.Now()
			each(now, s.sample(now, s.podsNow()))
		}
	}
}

// podsNow are the pods that there are, as far as we have heard.
func (s *sampler) podsNow() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range s.pods.List() {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// sample looks at all running containers. One that is leaving still holds what it was
// given, so it counts, but not as a replica. If one figure of one container is unknown, so
// is their sum.
func (s *sampler) sample(now time.Time, pods []*corev1.Pod) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas, requested := 0., 0.
	allocated, used, memory, memoryUsed := known(0), known(0), known(0), known(0)
	whole := true
	usage := map[string]time.Duration{}
	for _, pod := range pods {
		containers := containersOf(pod, s.parent)
		if len(containers) > 0 && pod.DeletionTimestamp == nil {
			replicas++
		}
		for _, c := range containers {
			r, err := s.host.read(c.path)
			if errors.Is(err, fs.ErrNotExist) && c.leaving {
				continue // it has left
			}
			requested += c.request
			if err != nil {
				allocated, used, memory, memoryUsed, whole = nil, nil, nil, nil, false
				continue
			}
			usage[c.path] = r.usage
			s.compare(c, r.limit)
			allocated, memory, memoryUsed = plus(allocated, r.limit.milli), plus(memory,
				r.limit.memory), plus(memoryUsed, &r.memory)
			// A container that is new since the last sample has used all that it ever has.
			used = plus(used, known(float64(r.usage-s.usage[c.path])))
		}
	}
	if whole && !s.lastSample.IsZero() {
		used = known(1000 * *used / float64(now.Sub(s.lastSample)))
	} else {
		used = nil
	}
	s.usage, s.lastSample = usage, now
	if !whole {
		s.lastSample = time.Time{} // the next sample cannot tell what was used since this one
	}
	return Sample{
		Replicas:       &replicas,
		RequestedMilli: &requested,
		AllocatedMilli: allocated,
		UsedMilli:      used,
		MemoryMiB:      memory,
		MemoryUsedMiB:  memoryUsed,
	}
}

// compare counts a change of the limits in force as the node's own when no pod spec ever
// said so: the kubelet sets nothing else. That is a lower bound, for we look once a second,
// and a node may come back to what a spec once said.
func (s *sampler) compare(c container, now limits) {
	before, seen := s.inForce[c.path]
	s.inForce[c.path] = now
	if !seen && len(s.specified[c.path]) == 0 {
		return
	}
	own := func(before, now *float64, field func(limits) *float64) bool {
		if now == nil || same(before, now) {
			return false
		}
		for _, spec := range s.specified[c.path] {
			if same(field(spec), now) {
				return false
			}
		}
		return true
	}
	if own(before.milli, now.milli, func(l limits) *float64 { return l.milli }) ||
		own(before.memory, now.memory, func(l limits) *float64 { return l.memory }) {
		s.resizesL1++
	}
}

// same allows for the kernel's and the runtime's rounding.
func same(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return math.Abs(*a-*b) <= 0.005*max(*a, *b)
}

// plus is unknown when one of the two is.
func plus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(*a + *b)
}

// counts are so far. Evictions are pods with the condition DisruptionTarget, or named in
// an event of the kubelet's, the scheduler's or the VPA's that says so; each pod once.
func (s *sampler) counts(ctx context.Context, clients kubernetes.Interface, namespace string) (Counts, error) {
	events, err := clients.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Counts{}, fmt.Errorf("listing the events of %s: %w", namespace, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events.Items {
		switch e.Reason {
		case "Evicted", "EvictedByVPA", "Preempted":
			if e.InvolvedObject.Kind == "Pod" {
				s.disrupted[e.InvolvedObject.UID] = true
			}
		}
	}
	c := Counts{ResizesL1: s.resizesL1, ResizesL2: s.resizesL2, Evictions: len(s.disrupted)}
	for _, n := range s.restarts {
		c.Restarts += n
	}
	return c, nil
}

// soFar is what the table shows while the run lasts.
func (s *sampler) soFar() (resizesL1, resizesL2 int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resizesL1, s.resizesL2
}
