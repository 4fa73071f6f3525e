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

// Sample is an observation of the application from outside: limits and usage from
// the host's control groups, requests and replicas from the API. A nil value was not
// observed, for example because a container had just ended. Means and plots leave it
// out.
type Sample struct {
	Seconds        float64  `json:"t"` // since the load began
	Replicas       *float64 `json:"replicas"`
	RequestedMilli *float64 `json:"requested_millicores"`
	RequestedMiB   *float64 `json:"requested_mib"`
	AllocatedMilli *float64 `json:"allocated_millicores"` // the sum of the limits in force
	UsedMilli      *float64 `json:"used_millicores"`      // over the time since the sample before
	MemoryMiB      *float64 `json:"memory_mib"`           // the sum of the limits in force
	MemoryUsedMiB  *float64 `json:"memory_used_mib"`
}

// Counts is what happened to the application's pods since it was created.
type Counts struct {
	ResizesL1 int // changes of the limits in force to values that no pod spec ever had
	ResizesL2 int // changes of the resources in the spec of a pod that exists
	Restarts  int // of containers, in all pods so far
	Evictions int // pods that were evicted or preempted
}

// sampler watches the pods of one run.
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
	specified  map[string][]limits // by container path: all limits that the spec ever had
	inForce    map[string]limits
	usage      map[string]time.Duration
	lastSample time.Time
}

// watchPods starts to watch the pods of a namespace. It returns after the first list.
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

// see handles a change of a pod. old is nil for a new pod.
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
		// The eviction API, a kubelet under pressure and a preempting scheduler
		// set this condition. Scaling down does not.
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			s.disrupted[pod.UID] = true
		}
	}
	for _, c := range containersOf(pod, s.parent) {
		specified := s.specified[c.path]
		if len(specified) == 0 || !same(specified[len(specified)-1].milli, c.spec.milli) ||
			!same(specified[len(specified)-1].memory, c.spec.memory) {
			s.specified[c.path] = append(specified, c.spec)
		}
	}
}

// resized reports whether the resources of a container were changed in the pod's spec.
func resized(old, pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		if i < len(old.Spec.Containers) &&
			!apiequality.Semantic.DeepEqual(old.Spec.Containers[i].Resources, pod.Spec.Containers[i].Resources) {
			return true
		}
	}
	return false
}

// container is a running container and the path of its control group.
type container struct {
	path    string
	spec    limits
	request float64 // millicores
	memory  float64 // MiB that are requested
	leaving bool    // its pod is being deleted, so the group may be gone already
}

// containersOf lists the running containers of a pod. The kubelet calls their
// groups, with the driver cgroupfs, <parent>/kubepods[/<qos>]/pod<uid>/<container
// id>.
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
			c.memory = mib(spec.Resources.Requests.Memory().Value())
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

// podsNow is the pods of the watch's cache.
func (s *sampler) podsNow() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, o := range s.pods.List() {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

// sample reads all running containers. One that is being deleted still has its
// limits, so it counts, but not as a replica. If a value of one container is unknown,
// the sum is unknown.
func (s *sampler) sample(now time.Time, pods []*corev1.Pod) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas, requested, requestedMiB := 0., 0., 0.
	allocated := known(0)
	used := known(0)
	memory := known(0)
	memoryUsed := known(0)
	complete := true // every container was read
	usage := map[string]time.Duration{}
	for _, pod := range pods {
		containers := containersOf(pod, s.parent)
		if len(containers) > 0 && pod.DeletionTimestamp == nil {
			replicas++
		}
		for _, c := range containers {
			r, err := s.host.read(c.path)
			if errors.Is(err, fs.ErrNotExist) && c.leaving {
				continue // it is gone
			}
			requested += c.request
			requestedMiB += c.memory
			if err != nil {
				allocated = nil
				used = nil
				memory = nil
				memoryUsed = nil
				complete = false
				continue
			}
			usage[c.path] = r.usage
			s.compare(c, r.limit)
			allocated = plus(allocated, r.limit.milli)
			memory = plus(memory, r.limit.memory)
			memoryUsed = plus(memoryUsed, &r.memory)
			// All CPU time of a container that is new since the last sample counts.
			used = plus(used, known(float64(r.usage-s.usage[c.path])))
		}
	}
	if complete && !s.lastSample.IsZero() {
		used = known(1000 * *used / float64(now.Sub(s.lastSample)))
	} else {
		used = nil
	}
	s.usage, s.lastSample = usage, now
	if !complete {
		s.lastSample = time.Time{} // the next sample cannot compute the usage since this one
	}
	return Sample{
		Replicas:       &replicas,
		RequestedMilli: &requested,
		RequestedMiB:   &requestedMiB,
		AllocatedMilli: allocated,
		UsedMilli:      used,
		MemoryMiB:      memory,
		MemoryUsedMiB:  memoryUsed,
	}
}

// compare counts a change of the limits in force as the node's when no pod spec ever
// had the new values, because the kubelet sets only those. The count is a lower bound:
// samples are a second apart, and a node may return to values of an older spec.
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

// same compares with a tolerance for the rounding of the kernel and the runtime.
func same(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return math.Abs(*a-*b) <= 0.005*max(*a, *b)
}

// plus is the sum; nil if one of the two is nil.
func plus(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(*a + *b)
}

// counts is the counts so far. Evictions are pods with the condition
// DisruptionTarget, or with an event about an eviction from the kubelet, the scheduler
// or the VPA. Each pod counts once.
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

// soFar is the values that the table shows during the run.
func (s *sampler) soFar() (resizesL1, resizesL2 int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resizesL1, s.resizesL2
}
