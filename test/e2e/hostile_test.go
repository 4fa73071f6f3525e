package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"connectrpc.com/connect"
	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxReport is the size of the largest report that central reads, in bytes.
const maxReport = 4 << 20

// fakeNode makes a node without a kubelet, and a pod of the agents' account on it.
// Only pods that tolerate everything are placed there, and they never run.
func fakeNode(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Taints = []corev1.Taint{{Key: "awarescale.dev/hostile", Effect: corev1.TaintEffectNoSchedule}}
	create(t, n)
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Fake", Message: "there is no kubelet",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	// Controllers write the new node, too.
	eventually(t, patience, "the node's status is written", func() (bool, string) {
		var now corev1.Node
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(n), &now); err != nil {
			return false, err.Error()
		}
		now.Status = n.Status
		err := kube.Status().Update(t.Context(), &now)
		return err == nil, fmt.Sprint(err)
	})
	p := idle("aware-system", name)
	p.Spec.NodeName, p.Spec.ServiceAccountName = name, "aware-agent"
	create(t, p)
	return p
}

// idle is a pod that tolerates every node, and has nothing to run.
func idle(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:    []corev1.Container{{Name: "none", Image: "none", ImagePullPolicy: corev1.PullNever}},
		},
	}
}

// create makes an object, which is deleted at the end of the test. It does not wait for
// a kubelet: there may be none.
func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := kube.Create(t.Context(), o); err != nil {
		t.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
	t.Cleanup(func() {
		err := kube.Delete(context.Background(), o, client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			t.Errorf("deleting %T %s: %v", o, o.GetName(), err)
		}
	})
}

// tokenOf is a token of the agents' account that is bound to the pod.
func tokenOf(t *testing.T, pod, uid string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "-n", "aware-system", "create", "token", "aware-agent", "--audience="+api.Audience,
		"--bound-object-kind=Pod", "--bound-object-name="+pod, "--bound-object-uid="+uid))
}

// central is the link's URL, and the certificates that sign it.
func central(t *testing.T) (url string, ca []byte) {
	t.Helper()
	address := must(t, "-n", "aware-system", "get", "service", "aware-central", "-o", "jsonpath={.spec.clusterIP}")
	return "https://" + address + ":9443", []byte(must(t, "-n", "aware-system", "get", "configmap", api.CAConfigMap,
		"-o", `jsonpath={.data.ca\.crt}`))
}

// hostile is an agent whose node is compromised: it has a good token and says what it wants.
type hostile struct {
	node    string
	token   string
	url     string
	ca      []byte
	reports []*linkv1.Report
	last    []*linkv1.Report // each ends a stream, the one after the other

	mu      sync.Mutex
	sent    int            // reports
	ended   map[string]int // streams, by what central said
	grants  []api.Grant    // of the newest full set
	granted int            // full sets
}

// The ends of a stream that the test waits for; others are the error's code.
const (
	refusedNode  = "of another node"
	refusedSize  = "too large"
	anotherAgent = "another agent of the node"
)

// attack dials and sends as fast as central reads, until the context ends.
func (h *hostile) attack(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		err := h.stream(ctx, h.last[i%len(h.last)])
		end := connect.CodeOf(err).String()
		switch text := err.Error(); {
		case ctx.Err() != nil:
			return
		case connect.CodeOf(err) == connect.CodePermissionDenied &&
			strings.Contains(text, fmt.Sprintf("but the token is bound to node %q", h.node)):
			end = refusedNode
		case connect.CodeOf(err) == connect.CodeResourceExhausted && strings.Contains(text, "larger than configured max"):
			end = refusedSize
		case connect.CodeOf(err) == connect.CodeAborted:
			end = anotherAgent
		}
		h.mu.Lock()
		h.ended[end]++
		h.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // each caller may have ten tokens a second reviewed
		}
	}
}

// stream sends everything twice and then the last report, which ends it. It returns
// what central said.
func (h *hostile) stream(ctx context.Context, last *linkv1.Report) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.ca)
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: "aware-central.aware-system.svc", MinVersion: tls.VersionTLS13,
	}}
	defer transport.CloseIdleConnections()
	s := linkv1.NewLinkClient(&http.Client{Transport: transport}, h.url,
		connect.WithSendGzip(), connect.WithCompressMinBytes(4<<10)).Sync(ctx)
	s.RequestHeader().Set("Authorization", "Bearer "+h.token)
	said := make(chan error, 1)
	go func() {
		for {
			w, err := s.Receive()
			if err != nil {
				said <- err
				return
			}
			h.take(w)
		}
	}()
	for _, one := range slices.Concat(h.reports, h.reports, []*linkv1.Report{last}) {
		if err := s.Send(one); err != nil {
			if !errors.Is(err, io.EOF) { // then the receiving side says why
				cancel(err)
			}
			break
		}
		h.mu.Lock()
		h.sent++
		h.mu.Unlock()
	}
	var err error
	select {
	case err = <-said:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel(nil)
	s.CloseResponse()
	return err
}

// take keeps the newest grants.
func (h *hostile) take(w *linkv1.Grants) {
	m, err := api.GrantsFromWire(w)
	if err != nil || m.Unchanged {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants, h.granted = m.All, h.granted+1
}

// counts is what has happened so far.
func (h *hostile) counts() (sent int, ended map[string]int, granted int, grants []api.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent, maps.Clone(h.ended), h.granted, h.grants
}

// lies fills in the reports of a hostile agent: of the containers of its own node, and of
// those of another one.
func (h *hostile) lies(t *testing.T, own, others []api.ContainerRef, otherNode string) {
	t.Helper()
	add := func(w *linkv1.Report) { h.reports = append(h.reports, w) }
	say := func(full bool, all ...api.Summary) {
		add(api.ReportToWire(api.Report{Node: h.node, At: time.Now(), Full: full, Containers: all}))
	}
	// Pods of the other node, as if they were here: they need nothing, and may use nothing.
	var forged []api.Summary
	for _, c := range others {
		forged = append(forged, heldAtNothing(c))
	}
	say(true, forged...)
	add(api.ReportToWire(api.Report{Node: h.node, At: time.Now(), Gone: others}))
	for _, c := range own {
		for _, s := range impossible(c) {
			say(false, s)
		}
		add(malformed(h.node, c))
	}
	for range 50 { // everything is gone, and comes back
		say(true)
		add(api.ReportToWire(api.Report{Node: h.node, Gone: slices.Concat(own, others)}))
	}
	crowd := crowded(h.node)
	if size := proto.Size(crowd); size > maxReport || size < maxReport/2 {
		t.Fatalf("the report of 64k containers has %d bytes: it must be near the bound of %d", size, maxReport)
	}
	add(crowd)
	// The last word is a lie that a node may say of its own containers.
	for _, c := range own {
		say(false, heldAtNothing(c))
	}
	tooLarge := &linkv1.Report{Node: h.node, Agent: strings.Repeat("x", maxReport+1)}
	h.last = []*linkv1.Report{api.ReportToWire(api.Report{Node: otherNode, Full: true, Containers: forged}), tooLarge}
}

// heldAtNothing says of a container that it is held at next to nothing. Decisions do not
// depend on it, and the status says it.
func heldAtNothing(c api.ContainerRef) api.Summary {
	s := api.Summary{Container: c, Mode: api.Auto}
	s.State.At = time.Now()
	s.State.Observed = mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
	s.State.Limit = mdp.Size{CPU: 1, Memory: 1}
	return s
}

// impossible is what a container cannot have, one value each.
func impossible(c api.ContainerRef) []api.Summary {
	var all []api.Summary
	for _, change := range []func(*api.Summary){
		func(s *api.Summary) { mdp.CPUUsage.Set(&s.State, -1) },
		func(s *api.Summary) { mdp.CPUUsage.Set(&s.State, 1<<60) },
		func(s *api.Summary) { mdp.MemoryUsage.Set(&s.State, 1<<62) },
		func(s *api.Summary) { mdp.Throttled.Set(&s.State, math.NaN()) },
		func(s *api.Summary) { mdp.IORate.Set(&s.State, math.Inf(1)) },
		func(s *api.Summary) { mdp.CPUPressure.Set(&s.State, math.Inf(-1)) },
		func(s *api.Summary) { mdp.Latency.Set(&s.State, 1) },
		func(s *api.Summary) { s.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: -5, Max: math.MaxInt64} },
		func(s *api.Summary) { s.Bounds.Memory = mdp.Range[mdp.Bytes]{Min: 2, Max: math.MinInt64} },
		func(s *api.Summary) { s.Want = s.Want.WithCPU(math.MinInt64) },
		func(s *api.Summary) { s.Mode = "root" },
		func(s *api.Summary) { s.Effect = 250 },
		func(s *api.Summary) { s.Latency = buckets(1000) },
		func(s *api.Summary) {
			s.Latency = api.Histogram{Upper: []float64{math.NaN(), 1}, Counts: []uint64{math.MaxUint64, 1}}
		},
		func(s *api.Summary) { // readable, when it is cleaned and cut
			s.Problem = "\x1b[2J\x00\r\n\u202e" + strings.Repeat("\u00e4\x07", 1<<20)
		},
	} {
		s := heldAtNothing(c)
		change(&s)
		all = append(all, s)
	}
	return all
}

// malformed says of a container what no agent writes: signals, bounds and actions without
// values, and a time that no calendar has.
func malformed(node string, c api.ContainerRef) *linkv1.Report {
	ref := &linkv1.ContainerRef{Namespace: c.Namespace, Pod: c.Pod, PodUid: c.PodUID, Container: c.Container}
	never := &timestamppb.Timestamp{Seconds: math.MaxInt64, Nanos: math.MinInt32}
	return &linkv1.Report{Node: node, At: never, Agent: "\x1b]0;hostile\x07", Containers: []*linkv1.Summary{
		{},
		{Container: ref, State: &linkv1.State{At: never, Observed: math.MaxUint32}},
		{Container: ref, Bounds: &linkv1.Bounds{Knobs: math.MaxUint32}},
		{Container: ref, Want: &linkv1.Action{Sets: math.MaxUint32, Clipped: math.MaxUint32}},
		{Container: ref, Latency: &linkv1.Histogram{UpperSeconds: []float64{1}, At: never}},
	}}
}

// buckets is a histogram of that many buckets.
func buckets(n int) (h api.Histogram) {
	for i := range n {
		h.Upper = append(h.Upper, float64(i+1))
		h.Counts = append(h.Counts, uint64(i))
	}
	return h
}

// crowded is a full report of 64k containers that nobody knows.
func crowded(node string) *linkv1.Report {
	w := &linkv1.Report{Node: node, Full: true}
	for i := range 64 << 10 {
		w.Containers = append(w.Containers, &linkv1.Summary{Container: &linkv1.ContainerRef{
			Namespace: "default", Pod: "shop-0123456789", PodUid: fmt.Sprintf("%020d", i), Container: "shop",
		}})
	}
	return w
}

// refs are the containers of pods.
func refs(pods ...corev1.Pod) (all []api.ContainerRef) {
	for i := range pods {
		for _, c := range pods[i].Spec.Containers {
			all = append(all, api.ContainerRef{Namespace: pods[i].Namespace, Pod: pods[i].Name, PodUID: string(pods[i].UID),
				Container: c.Name})
		}
	}
	return all
}

// attackers are hostile agents of the lab's node, which runs the workload, and of a
// node of their own. They attack until the test ends, or stop is called.
func attackers(t *testing.T) (ofLab, ofFake *hostile, stop func()) {
	t.Helper()
	pods, err := shop(t.Context())
	if err != nil || len(pods) == 0 {
		t.Fatalf("%d pods of the workload, %v", len(pods), err)
	}
	agent, _ := process(t, "aware-agent")
	second := fakeNode(t, "hostile-2")
	url, ca := central(t)
	ofLab = &hostile{node: cluster.Node(), token: tokenOf(t, agent.Name, string(agent.UID)), url: url, ca: ca,
		ended: map[string]int{}}
	ofFake = &hostile{node: second.Name, token: tokenOf(t, second.Name, string(second.UID)), url: url, ca: ca,
		ended: map[string]int{}}
	ofLab.lies(t, refs(pods...), refs(*second), ofFake.node)
	ofFake.lies(t, refs(*second), refs(pods...), ofLab.node)
	ctx, cancel := context.WithCancel(t.Context())
	var both sync.WaitGroup
	for _, h := range []*hostile{ofLab, ofFake} {
		both.Go(func() { h.attack(ctx) })
	}
	stop = func() {
		cancel()
		both.Wait()
	}
	t.Cleanup(stop)
	return ofLab, ofFake, stop
}

// refused reports whether central has refused each agent what it must: reports of another
// node, and those that are too large; what was seen is for people.
func refused(all ...*hostile) (is bool, seen string) {
	is = true
	for _, h := range all {
		sent, ended, granted, _ := h.counts()
		is = is && ended[refusedNode] > 0 && ended[refusedSize] > 0
		seen += fmt.Sprintf("node %s: %d reports, %d sets of grants, streams ended %v; ", h.node, sent, granted, ended)
	}
	return is, seen
}

// checkShopStays checks that the workload's object says what it said, and that its sizes
// are within its owner's bounds.
func checkShopStays(t *testing.T) {
	t.Helper()
	m, err := object(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{v1alpha1.Ready, v1alpha1.Active} {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, c) {
			t.Fatalf("%s is no longer true: %+v", c, m.Status.Conditions)
		}
	}
	if n := m.Status.Replicas.Desired; n < 1 || n > 2 || m.Spec.Mode != string(api.Auto) {
		t.Fatalf("%d replicas, mode %s: want one or two, and auto", n, m.Spec.Mode)
	}
	pods, err := shop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if l := limits(&pods[i]); l.CPU < 50 || l.CPU > 700 || l.Memory > 256*mdp.MiB {
			t.Fatalf("pod %s has limits %v: its owner allows 50m to 700m and 256 MiB", pods[i].Name, l)
		}
	}
}

// grantsStay reports whether the agents were granted last what they had: the workload's
// containers on the lab's node, within their owner's bounds, and nothing on the other.
func grantsStay(t *testing.T, ofLab, ofFake *hostile) (is bool, seen string) {
	t.Helper()
	if _, _, _, grants := ofFake.counts(); len(grants) > 0 {
		t.Fatalf("node %s has grants: %+v", ofFake.node, grants)
	}
	pods, err := shop(t.Context())
	if err != nil {
		return false, err.Error()
	}
	_, _, granted, grants := ofLab.counts()
	for _, c := range refs(pods...) {
		i := slices.IndexFunc(grants, func(g api.Grant) bool { return g.Container == c })
		if i < 0 {
			return false, fmt.Sprintf("the last of %d sets of grants has none of %v: %+v", granted, c, grants)
		}
		if g := grants[i]; g.Mode != api.Auto || g.Paused || g.Keep || g.Bounds.CPU.Max > 700 || g.Bounds.CPU.Max <= 0 ||
			g.Bounds.Memory.Max > 256*mdp.MiB || g.Bounds.Memory.Max <= 0 {
			t.Fatalf("the grant of %v is %+v: want mode auto, and its owner's bounds", c, g)
		}
	}
	return len(pods) > 0, "no pods"
}

// resident is the memory of a process, in bytes.
func resident(t *testing.T, pid int) uint64 {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatalf("process %d has ended: %v", pid, err)
	}
	status, err := p.NewStatus()
	if err != nil {
		t.Fatalf("process %d has ended: %v", pid, err)
	}
	return status.VmRSS
}
