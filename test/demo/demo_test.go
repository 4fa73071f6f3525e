package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/cluster/images"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func TestTheCommandLineIsChecked(t *testing.T) {
	good := options{out: "o", runs: allRuns, seeds: []uint{1}, neighbour: bothNeighbours, timeScale: 1, peak: 0.7}
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(*options){
		"--runs":       func(o *options) { o.runs = []string{"dynamic"} },
		"twice":        func(o *options) { o.runs = []string{aware, aware} },
		"empty":        func(o *options) { o.runs = nil },
		"--time-scale": func(o *options) { o.timeScale = 0 },
		"--peak":       func(o *options) { o.peak = -1 },
		"--seeds":      func(o *options) { o.seeds = nil },
		"--neighbour":  func(o *options) { o.neighbour = "maybe" },
		"whose mean":   func(o *options) { o.runs = []string{static, atMean} },
		"--slo":        func(o *options) { o.slo = requestTimeout },
		"--rule":       func(o *options) { o.rule = "magic" },
		"--trace":      func(o *options) { o.trace = "flat" },
		"--learn":      func(o *options) { o.learn = -time.Second },
		"at-learned":   func(o *options) { o.runs = []string{aware, atLearned} },
		"no such file": func(o *options) { o.learned = "nowhere/learned.tar" },
		"which it is for": func(o *options) {
			o.runs, o.learned = []string{aware}, "demo_test.go"
		},
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("spoiling %s: got %v", what, err)
		}
	}
}

// Each round has each run once, and another one first; what needs AWARE's mean is last. With
// the neighbour it is the same again.
func TestTheOrderChangesFromRoundToRound(t *testing.T) {
	o := options{runs: allRuns, seeds: []uint{1, 2, 3, 4}, neighbour: bothNeighbours}
	all := o.slices()
	if len(all) != 4*2*len(allRuns) {
		t.Fatalf("%d slices", len(all))
	}
	first := map[string]int{}
	for i := 0; i < len(all); i += len(allRuns) {
		round := all[i : i+len(allRuns)]
		first[round[0].run]++
		seen := map[string]bool{}
		for _, s := range round {
			seen[s.run] = true
			if s.seed != round[0].seed || s.neighbour != round[0].neighbour || s.neighbour != (i/len(allRuns)%2 == 1) {
				t.Errorf("%+v in the round of %+v", s, round[0])
			}
		}
		for _, s := range round[:len(round)-2] {
			if meanOf(s.run) != "" {
				t.Errorf("%s is not at the end of the round: %+v", s.run, round)
			}
		}
		if len(seen) != len(allRuns) {
			t.Errorf("the round %+v", round)
		}
	}
	if len(first) != 4 {
		t.Errorf("first in a round: %v, want each of the four that can be", first)
	}
	o.neighbour = withoutNeighbour
	if n := len(o.slices()); n != 4*len(allRuns) {
		t.Errorf("%d slices without the neighbour", n)
	}
}

// In pulses a second in each twenty has 3 to 5 times the others' rate; their mean is 1 as well, and they are as long.
func TestAPulseComesEachTwentySeconds(t *testing.T) {
	usual, err := options{}.shape()
	if err != nil {
		t.Fatal(err)
	}
	trace, err := options{trace: pulses}.shape()
	if err != nil || math.Abs(trace.Mean()-1) > 1e-9 || trace.Duration() != usual.Duration() {
		t.Fatalf("%v long, mean %v, %v", trace.Duration(), trace.Mean(), err)
	}
	base, high := slices.Min(trace.Rates), 0
	for _, r := range trace.Rates {
		switch {
		case r == base:
		case r >= 3*base && r <= 5*base:
			high++
		default:
			t.Errorf("a rate of %v where the usual one is %v", r, base)
		}
	}
	if high != 9 {
		t.Errorf("%d pulses in three minutes, want 9", high)
	}
}

// The load asks for a known share of a core at its peak, whatever a request costs.
func TestTheLoadIsFittedToTheMachine(t *testing.T) {
	trace, err := options{}.shape()
	if err != nil {
		t.Fatal(err)
	}
	for cost, slo := range map[time.Duration]time.Duration{
		time.Millisecond:      100 * time.Millisecond,
		6 * time.Millisecond:  180 * time.Millisecond,
		20 * time.Millisecond: 600 * time.Millisecond,
	} {
		f, err := fitted(cost, options{peak: 0.7})
		peak := slices.Max(trace.Rates) / trace.Mean() * f.RPS * cost.Seconds()
		if err != nil || math.Abs(peak-0.7) > 0.001 || f.SLO != slo {
			t.Errorf("at %v a request: %.3f cores at the peak, SLO %v; want 0.7 and %v", cost, peak, f.SLO, slo)
		}
	}
	if f, err := fitted(time.Millisecond, options{peak: 1, slo: time.Second}); err != nil || f.SLO != time.Second {
		t.Errorf("SLO %v, %v; want the flag's", f.SLO, err)
	}
}

// deployment reads the Deployment of a run's manifests.
func deployment(t *testing.T, run string, rule ...string) appsv1.Deployment {
	t.Helper()
	text, err := manifests(run, 200*time.Millisecond, peakMilli, strings.Join(rule, ""))
	if err != nil {
		t.Fatal(err)
	}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var deployment appsv1.Deployment
		if err := d.Decode(&deployment); err != nil {
			t.Fatalf("run %s has no Deployment: %v", run, err)
		}
		if deployment.Kind == "Deployment" {
			return deployment
		}
	}
}

func TestAllRunsHaveTheSameTemplateExceptForTheOptIn(t *testing.T) {
	want := deployment(t, static)
	for _, run := range allRuns {
		got := deployment(t, run)
		if !reflect.DeepEqual(got.Spec.Template.Spec.Containers, want.Spec.Template.Spec.Containers) ||
			*got.Spec.Replicas != *want.Spec.Replicas {
			t.Errorf("run %s has another container or number of replicas than static", run)
		}
		if opted := optin.OptedIn(got.Spec.Template); opted != withAWARE(run) {
			t.Errorf("run %s is opted in: %v", run, opted)
		}
	}
	spec, errs := optin.Parse(deployment(t, learned).Spec.Template)
	if len(errs) > 0 || spec.Learner == nil || spec.Learner.Algorithm != v1alpha1.AlgorithmBCQ {
		t.Errorf("the learned run has the learner %+v, errors %v", spec.Learner, errs)
	}
	for run, rule := range map[string]string{aware: "captain", demand: "demand"} {
		if got := (options{rule: "captain"}).ruleOf(run); got != rule {
			t.Errorf("run %s has the rule %q, want %q", run, got, rule)
		}
	}
	for _, rule := range []string{"", "captain", "demand"} {
		spec, errs := optin.Parse(deployment(t, aware, rule).Spec.Template)
		if len(errs) > 0 || (spec.Learner == nil) != (rule == "") || rule != "" && spec.Learner.Rule != rule {
			t.Errorf("rule %q: AWARE reads %+v from the annotations, errors %v", rule, spec.Learner, errs)
		}
	}
}

func TestControlGroupsOfBothVersionsAreRead(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cpu/c/cpu.cfs_quota_us", "60000\n")
	write("cpu/c/cpu.cfs_period_us", "100000\n")
	write("cpuacct/c/cpuacct.usage", "1500000000\n")
	write("memory/c/memory.limit_in_bytes", "201326592\n")
	write("memory/c/memory.usage_in_bytes", "67108864\n")
	write("v2/c/cpu.max", "60000 100000\n")
	write("v2/c/cpu.stat", "usage_usec 1500000\nuser_usec 1\n")
	write("v2/c/memory.max", "201326592\n")
	write("v2/c/memory.current", "67108864\n")
	write("cpu/none/cpu.cfs_quota_us", "-1\n")
	write("cpu/none/cpu.cfs_period_us", "100000\n")
	write("cpuacct/none/cpuacct.usage", "0\n")
	write("memory/none/memory.limit_in_bytes", "9223372036854771712\n")
	write("memory/none/memory.usage_in_bytes", "0\n")
	write("v2/none/cpu.max", "max 100000\n")
	write("v2/none/cpu.stat", "usage_usec 0\n")
	write("v2/none/memory.max", "max\n")
	write("v2/none/memory.current", "0\n")

	mountinfo := fmt.Sprintf(
		"1 0 0:1 / %[1]s/cpu rw - cgroup cgroup rw,cpu\n"+
			"2 0 0:2 / %[1]s/cpuacct rw - cgroup cgroup rw,cpuacct\n"+
			"3 0 0:3 / %[1]s/memory rw - cgroup cgroup rw,memory\n"+
			"4 0 0:4 / %[1]s/v2 rw - cgroup2 cgroup2 rw\n",
		root)
	v1, err := findCgroups(strings.NewReader(mountinfo))
	if err != nil {
		t.Fatal(err)
	}
	for version, host := range map[string]cgroupHost{"v1": v1, "v2": {unified: root + "/v2"}} {
		r, err := host.read("c")
		if err != nil || *r.limit.milli != 600 || *r.limit.memory != 192 || r.usage != 1500*time.Millisecond ||
			r.memory != 64 {
			t.Errorf("%s: got %+v, %v", version, r, err)
		}
		r, err = host.read("none")
		if err != nil || r.limit.milli != nil || r.limit.memory != nil {
			t.Errorf("%s: no limit is %+v, %v", version, r.limit, err)
		}
		if _, err = host.read("gone"); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%s: reading a group that is not there: %v", version, err)
		}
	}
	if _, err := findCgroups(strings.NewReader("1 0 0:1 / / rw - ext4 /dev/vda rw\n")); err == nil {
		t.Error("a machine without control groups is no error")
	}
}

// machine is a directory of control groups, and the pods that belong to them.
type machine struct {
	t    *testing.T
	root string
	*sampler
}

func newMachine(t *testing.T) machine {
	root := t.TempDir()
	return machine{t, root, newSampler(cgroupHost{unified: root}, "/lab")}
}

func (m machine) kernel(uid string, milli, usage int) {
	m.t.Helper()
	dir := filepath.Join(m.root, "lab/kubepods/burstable/pod"+uid, "id-"+uid)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	for file, text := range map[string]string{
		"cpu.max": fmt.Sprintf("%d 100000", milli*100), "cpu.stat": fmt.Sprintf("usage_usec %d", usage),
		"memory.max": "104857600", "memory.current": "52428800",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			m.t.Fatal(err)
		}
	}
}

func pod(uid, cpu string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")},
				Limits: corev1.ResourceList{
					"cpu":    resource.MustParse(cpu),
					"memory": resource.MustParse("100Mi"),
				},
			},
		}}},
		Status: corev1.PodStatus{
			QOSClass: corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name:        "c",
				ContainerID: "containerd://id-" + uid,
				State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}

func TestASampleSumsKnownValuesOnly(t *testing.T) {
	m := newMachine(t)
	a, b := pod("a", "600m"), pod("b", "600m")
	m.kernel("a", 600, 1_000_000)
	m.kernel("b", 300, 2_000_000)
	start := time.Unix(1000, 0)
	first := m.sample(start, []*corev1.Pod{a, b})
	if *first.AllocatedMilli != 900 || *first.MemoryMiB != 200 || *first.MemoryUsedMiB != 100 ||
		*first.Replicas != 2 || *first.RequestedMilli != 200 {
		t.Errorf("got %s", text(first))
	}
	if first.UsedMilli != nil {
		t.Errorf("the first sample knows that %g was used since none", *first.UsedMilli)
	}
	m.kernel("a", 600, 1_250_000)
	if s := m.sample(start.Add(time.Second), []*corev1.Pod{a, b}); *s.UsedMilli != 250 {
		t.Errorf("used is %g, want 250", *s.UsedMilli)
	}

	gone := pod("gone", "600m")
	s := m.sample(start.Add(2*time.Second), []*corev1.Pod{a, b, gone})
	if s.AllocatedMilli != nil || s.UsedMilli != nil || s.MemoryMiB != nil {
		t.Errorf("a container that cannot be read makes the sum unknown, got %s", text(s))
	}
	if s := m.sample(start.Add(3*time.Second), []*corev1.Pod{a, b}); s.AllocatedMilli == nil ||
		s.UsedMilli != nil {
		t.Errorf("what was used since a sample that failed is not known, got %s", text(s))
	}
	gone.DeletionTimestamp = &metav1.Time{Time: start}
	if s := m.sample(start.Add(4*time.Second), []*corev1.Pod{a, gone}); s.AllocatedMilli == nil ||
		*s.AllocatedMilli != 600 || *s.Replicas != 1 {
		t.Errorf("a pod that has left is not missed, got %s", text(s))
	}
}

func text(v any) string {
	data, err := json.Marshal(v)
	return fmt.Sprint(string(data), err)
}

// A limit is what was used, by 0.6, within the bounds that AWARE has too; the highest of 20 s.
func TestK8sCPUFastFollowsWhatIsUsed(t *testing.T) {
	m := newMachine(t)
	p := pod("a", "600m")
	clients := fake.NewClientset(p)
	m.pods = cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := m.pods.Add(p); err != nil {
		t.Fatal(err)
	}
	var resized []string
	clients.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		patch := a.(ktesting.PatchAction)
		resized = append(resized, patch.GetSubresource()+" "+string(patch.GetPatch()))
		return true, p, nil
	})
	f := &fast{clients: clients, namespace: p.Namespace}
	used, now := 0, time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		milli int // used in the second
		want  string
	}{
		{"nothing is known yet", 0, ""},
		{"300m of 600m", 300, `"limits":{"cpu":"500m"},"requests":{"cpu":"333m"}`},
		{"all of it: more, up to what AWARE may give", 720, `"limits":{"cpu":"1200m"},"requests":{"cpu":"800m"}`},
		{"little: the highest of 20 s stays", 10, `"limits":{"cpu":"1200m"}`},
	} {
		resized = nil
		used += 1000 * c.milli
		m.kernel("a", 600, used)
		now = now.Add(time.Second)
		if err := f.step(t.Context(), now, m.sampler); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(resized, "\n"); !strings.Contains(got, c.want) || c.want == "" && got != "" ||
			got != "" && !strings.HasPrefix(got, "resize ") {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
	for range 25 {
		resized = nil
		now = now.Add(time.Second)
		if err := f.step(t.Context(), now, m.sampler); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(resized, "\n"); !strings.Contains(got, `"limits":{"cpu":"100m"}`) {
		t.Errorf("after 25 idle seconds: %q, want the least that AWARE may give", got)
	}
}

func TestResizesAreCountedByTheirOrigin(t *testing.T) {
	m := newMachine(t)
	at := time.Unix(1000, 0)
	look := func(p *corev1.Pod) { at = at.Add(time.Second); m.sample(at, []*corev1.Pod{p}) }

	before := pod("a", "600m")
	m.see(nil, before)
	m.kernel("a", 600, 0)
	look(before)

	bigger := pod("a", "900m") // through the API: spec first, then the kubelet
	m.see(before, bigger)
	look(bigger)
	m.kernel("a", 900, 0)
	look(bigger)
	if l1, l2 := m.soFar(); l1 != 0 || l2 != 1 {
		t.Errorf("after a resize through the API: L1 %d L2 %d, want 0 and 1", l1, l2)
	}
	m.kernel("a", 450, 0) // by the node
	look(bigger)
	look(bigger)
	if l1, l2 := m.soFar(); l1 != 1 || l2 != 1 {
		t.Errorf("after a resize by the node: L1 %d L2 %d, want 1 and 1", l1, l2)
	}
	annotated := bigger.DeepCopy()
	annotated.Annotations = map[string]string{"a": "b"}
	m.see(bigger, annotated)
	if _, l2 := m.soFar(); l2 != 1 {
		t.Errorf("a change that is no resize counts as one")
	}
}

func TestRestartsAndEvictionsOfDeletedPodsCount(t *testing.T) {
	m := newMachine(t)
	p := pod("a", "600m")
	p.Status.ContainerStatuses[0].RestartCount = 2
	m.see(nil, p)
	q := pod("b", "600m")
	q.Status.ContainerStatuses[0].RestartCount = 1
	q.Status.Conditions = []corev1.PodCondition{{
		Type:   corev1.DisruptionTarget,
		Status: corev1.ConditionTrue,
		Reason: "EvictionByEvictionAPI",
	}}
	m.see(nil, q)
	m.see(nil, q)
	clients := fake.NewClientset(
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "1", Namespace: "n"},
			Reason:         "EvictedByVPA",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "b"},
		},
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "2", Namespace: "n"},
			Reason:         "EvictedPod",
			InvolvedObject: corev1.ObjectReference{Kind: "VerticalPodAutoscaler", UID: "v"},
		},
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "3", Namespace: "n"},
			Reason:         "Evicted",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "c"},
		},
		&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "4", Namespace: "n"},
			Reason:         "Killing",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "d"},
		})
	c, err := m.counts(t.Context(), clients, "n")
	if err != nil || c.Restarts != 3 || c.Evictions != 2 {
		t.Errorf("got %+v, %v, want 3 restarts and 2 evictions", c, err)
	}
}

func TestTheAgentsCountIsTheNumberOfAppliedResizes(t *testing.T) {
	const page = `# TYPE aware_agent_resizes_total counter
aware_agent_resizes_total{effect="applied"} 41
aware_agent_resizes_total{effect="refused"} 7
aware_agent_resizes_total{effect="failed"} 1
`
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := resizesIn(families); n != 41 || !ok {
		t.Errorf("got %g, %v, want 41", n, ok)
	}
	if _, ok := resizesIn(nil); ok {
		t.Error("no counter is a count")
	}
}

// twoRounds are results as a demo has them: of two seeds, without the neighbour.
func twoRounds() *Results {
	o := options{runs: demoRuns, seeds: []uint{7, 8}, neighbour: withoutNeighbour, timeScale: 1, peak: 0.7}
	r := newResults(o, fit{Cost: 6 * time.Millisecond, Peak: 0.7, RPS: 45, SLO: 200 * time.Millisecond})
	for _, slice := range o.slices() {
		i := slices.Index(demoRuns, slice.run)
		record := &Record{Run: slice.run, Seed: slice.seed, LimitMilli: 600}
		for s := range 20 {
			record.Seconds = append(record.Seconds, load.Second{Second: s, OK: 40 + s, P99MS: float64(10*i + s)})
			sample := Sample{
				Seconds:        float64(s),
				Replicas:       known(float64(1 + s%2)),
				AllocatedMilli: known(float64(400 * (i + 1))),
				MemoryMiB:      known(256),
				RequestedMilli: known(300),
				RequestedMiB:   known(128),
			}
			if s == 7 {
				sample.AllocatedMilli = nil
			}
			record.Samples = append(record.Samples, sample)
		}
		record.sum(load.Result{
			Requests:          900,
			P50MS:             9,
			P99MS:             90,
			SLOViolationRatio: 0.01 * float64(i),
			SLOMS:             200,
		}, Counts{ResizesL1: 9 * i, ResizesL2: i})
		r.add(record)
	}
	return r
}

func TestMeansLeaveOutUnknownValues(t *testing.T) {
	record := twoRounds().of(static)[0]
	if *record.MeanCoresAllocated != 0.4 || *record.ReplicasMax != 2 || *record.MeanReplicas != 1.5 {
		t.Errorf("got %s", text(record))
	}
	if record.MeanCoresUsed != nil {
		t.Errorf("the usage is unknown, but its mean is %g", *record.MeanCoresUsed)
	}
}

func TestResultJSONHasTheKeysOfItsContract(t *testing.T) {
	dir := t.TempDir()
	if err := twoRounds().write(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Runs   map[string][]map[string]any `json:"runs"`
		Fit    map[string]any              `json:"fit"`
		Claims []Claim                     `json:"claims"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != len(demoRuns) || len(got.Fit) != 5 || len(got.Claims) != 2*9 {
		t.Errorf("got %s", data)
	}
	for _, run := range demoRuns {
		if len(got.Runs[run]) != 2 || got.Runs[run][0]["seed"] != 7. || got.Runs[run][1]["seed"] != 8. {
			t.Fatalf("run %s has %v, want an entry for each seed", run, got.Runs[run])
		}
		for _, key := range []string{"slo_violation_ratio", "p50_ms", "p99_ms", "mean_cores_allocated",
			"mean_memory_mib", "replicas_max", "mean_memory_requested_mib",
			"resizes_l1", "resizes_l2", "restarts", "evictions", "trace", "seed", "slo_ms", "requests", "errors",
			"mean_cores_requested", "mean_cores_used", "neighbour"} {
			if _, ok := got.Runs[run][0][key]; !ok {
				t.Errorf("run %s has no %s", run, key)
			}
		}
	}
}

// AWARE is compared with the slices of the same round.
func TestTheClaimsAreOfTheSameRound(t *testing.T) {
	r := twoRounds()
	holds := func(what string, seed uint64) bool {
		t.Helper()
		for _, c := range r.claims() {
			if c.Claim == what && c.Seed == seed {
				return c.Holds
			}
		}
		t.Fatalf("no claim %q of seed %d: %+v", what, seed, r.claims())
		return false
	}
	const fewer, cores = "fewer requests over the SLO than hpa-vpa", "fewer cores in force than hpa-vpa"
	if holds(fewer, 7) || holds(cores, 7) {
		t.Error("AWARE has more of both, and the claims hold")
	}
	r.slice(slice{aware, 7, false}).SLOViolationRatio = 0.001
	r.slice(slice{aware, 7, false}).MeanCoresAllocated = known(0.1)
	if !holds(fewer, 7) || !holds(cores, 7) || holds(fewer, 8) || holds(cores, 8) {
		t.Errorf("only seed 7 is better: %+v", r.claims())
	}
	r.slice(slice{aware, 8, false}).SLOViolationRatio = 0.0009
	r.slice(slice{hpaVPA, 8, false}).SLOViolationRatio = 0
	if !holds(fewer, 8) {
		t.Error("both are below 0.1 %, which is equal")
	}
	r.slice(slice{hpaVPA, 8, false}).MeanCoresAllocated = nil
	for _, c := range r.claims() {
		if c.Claim == cores && c.Seed == 8 {
			t.Errorf("what is not known is compared: %+v", c)
		}
	}
	r.slice(slice{aware, 8, false}).SLOViolationRatio = 0.05
	if !strings.Contains(r.table(), "NOT SO, seed 8: fewer requests over the SLO than static-at-mean") {
		t.Errorf("the table does not say what does not hold:\n%s", r.table())
	}
}

// The learned run has claims of its own: a quarter fewer cores, and of the static run at its own mean, not at AWARE's.
func TestTheLearnedRunIsComparedWithItsOwnMean(t *testing.T) {
	r := twoRounds()
	for _, run := range []string{learned, atLearned} {
		record := *r.slice(slice{aware, 7, false})
		record.Run, record.MeanCoresAllocated = run, known(0.75)
		r.add(&record)
	}
	r.slice(slice{hpaVPA, 7, false}).MeanCoresAllocated = known(1)
	claims := map[string]bool{}
	for _, c := range r.claims() {
		claims[c.Claim] = c.Holds
	}
	for claim, want := range map[string]bool{
		"aware-learned has fewer cores in force than hpa-vpa":                  true,
		"aware-learned has a quarter fewer cores in force than hpa-vpa":        true,
		"aware-learned has fewer requests over the SLO than static-at-learned": false, // as many
		"fewer requests over the SLO than static-at-mean":                      true,
	} {
		if got, is := claims[claim]; got != want || !is {
			t.Errorf("%s: %v, want %v (%v)", claim, got, want, claims)
		}
	}
	for _, none := range []string{"a quarter fewer cores in force than hpa-vpa",
		"aware-learned has fewer requests over the SLO than static-at-mean",
		"fewer requests over the SLO than static-at-learned"} {
		if _, is := claims[none]; is {
			t.Errorf("a claim that nobody makes: %s", none)
		}
	}
	if milli, err := r.meanMilli(learned, false); err != nil || milli != 375 {
		t.Errorf("%dm, %v; want half of 0.75 cores", milli, err)
	}
}

// A slice of the learned run in which the rule decided says nothing of what was learned.
func TestTheLearnedRunIsNotTheRules(t *testing.T) {
	for policy, want := range map[string]bool{
		"policy learned/12, stage Serving": true, "policy hpavpa/1, stage Online": false, "not known: no object": false, "": false,
	} {
		r := twoRounds()
		record := *r.slice(slice{aware, 7, false})
		record.Run, record.Policy = learned, policy
		r.add(&record)
		said := slices.DeleteFunc(r.claims(), func(c Claim) bool { return c.Claim != "aware-learned is decided by what was learned" })
		if len(said) != 1 || said[0].Holds != want || said[0].Why != policy || said[0].Seed != 7 {
			t.Errorf("%q: %+v, want one that holds: %v", policy, said, want)
		}
	}
}

func TestTheStaticRunAtTheMeanHasAWAREsCores(t *testing.T) {
	r := twoRounds()
	if _, err := r.meanMilli(aware, true); err == nil {
		t.Error("a mean of no slice")
	}
	r.of(aware)[0].MeanCoresAllocated = known(0.8)
	r.of(aware)[1].MeanCoresAllocated = known(1.0)
	if milli, err := r.meanMilli(aware, false); err != nil || milli != 450 {
		t.Errorf("%dm, %v; want half of 0.9 cores for each of two replicas", milli, err)
	}
	d := deployment(t, atMean)
	got := d.Spec.Template.Spec.Containers[0].Resources
	if got.Limits.Cpu().MilliValue() != 600 || got.Requests.Cpu().MilliValue() != 400 {
		t.Errorf("resources %v", got)
	}
}

func TestTheDemoChecksItsInvariants(t *testing.T) {
	if err := twoRounds().check(); err != nil {
		t.Errorf("good results: %v", err)
	}
	for want, spoil := range map[string]func(*Results){
		"resizes_l1":     func(r *Results) { r.of(aware)[1].ResizesL1 = 0 },
		"resizes_l2":     func(r *Results) { r.of(aware)[0].ResizesL2 = 0 },
		"restarts is 1":  func(r *Results) { r.of(aware)[1].Restarts = 1 },
		"evictions is 2": func(r *Results) { r.of(aware)[0].Evictions = 2 },
		"run hpa-vpa, seed 7: it did not end": func(r *Results) {
			r.records = slices.DeleteFunc(r.records, func(one *Record) bool { return one.Run == hpaVPA })
		},
		"run aware, seed 8: it did not end": func(r *Results) { r.records = r.records[:5] },
	} {
		r := twoRounds()
		spoil(r)
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	others := twoRounds()
	others.of(hpaVPA)[0].Evictions, others.of(static)[0].Restarts = 5, 5
	if err := others.check(); err != nil {
		t.Errorf("the invariants hold for AWARE only: %v", err)
	}
}

func TestTheReportAndThePictureHaveAllRuns(t *testing.T) {
	dir, r := t.TempDir(), twoRounds()
	if err := writeReport(dir, r); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append([]string{"p99, ms", "replicas", "memory, MiB", "SLO",
		"kind: HorizontalPodAutoscaler"}, demoRuns...) {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	if n := strings.Count(string(page), "<svg"); n != 2 {
		t.Errorf("the report has %d drawings, want 2", n)
	}
	for _, other := range []string{"<script", "src=", "<link", "@import"} {
		if strings.Contains(string(page), other) {
			t.Errorf("the report needs something else: %s", other)
		}
	}
	if err := writeSummary(dir, r); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "summary.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.DecodeConfig(f); err != nil {
		t.Errorf("the picture: %v", err)
	}
}

func TestAReportOfOneRunWithoutSamplesCanBeDrawn(t *testing.T) {
	r := newResults(options{runs: []string{static}, seeds: []uint{1}}, fit{SLO: time.Second})
	record := &Record{Run: static, LimitMilli: 600}
	record.sum(load.Result{}, Counts{})
	r.add(record)
	dir := t.TempDir()
	if err := writeReport(dir, r); err != nil {
		t.Error(err)
	}
	if err := writeSummary(dir, r); err != nil {
		t.Error(err)
	}
}

func TestTheTable(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, terminal: true, ended: make(chan struct{})}
	r := s.begin(aware)
	r.start(time.Now().Add(-90*time.Second), 3*time.Minute)
	r.phase("measuring")
	r.loaded(load.Second{OK: 51, P99SoFarMS: 87.4})
	r.sampled(Sample{Replicas: known(2), AllocatedMilli: known(640)}, 12, 3)
	out.Reset()
	s.refresh()
	got := out.String()
	for _, want := range []string{"\x1b[2A\x1b[J", tableHead, "aware", "50 %",
		"1m30s", "51", "87", "640m", "12"} {
		if !strings.Contains(got, want) {
			t.Errorf("the table has no %q:\n%s", want, got)
		}
	}
	out.Reset()
	s.say("hello")
	if got := out.String(); strings.Index(got, "hello") > strings.Index(got, tableHead) ||
		!strings.HasPrefix(got, "\x1b[2A\x1b[J") {
		t.Errorf("the message is not above the table:\n%q", got)
	}

	out.Reset()
	s.width = func() int { return 40 }
	s.refresh()
	for line := range strings.Lines(strings.TrimPrefix(out.String(), "\x1b[2A\x1b[J")) {
		if len(strings.TrimRight(line, "\n")) > 40 {
			t.Errorf("a line is longer than the terminal is wide: %q", line)
		}
	}

	head, row := tableHead, r.now().String()
	if len(head) != len(row) {
		t.Errorf("the columns are not in line:\n%s\n%s", head, row)
	}
	if got := (line{run: static, phase: "installing"}).String(); strings.Contains(got, " 0 ") ||
		!strings.Contains(got, "-") {
		t.Errorf("what is not known is not a dash: %s", got)
	}
}

func TestWithoutATerminalThePresentRunHasALine(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, ended: make(chan struct{})}
	s.begin(static).phase("done")
	s.begin(aware).phase("warming up")
	s.refresh()
	fmt.Fprint(s, "a line of ")
	fmt.Fprint(s, "the lab\nand")
	if got, want := out.String(), "aware: warming up\na line of the lab\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheVPAsManifestsAreThoseOfItsModule(t *testing.T) {
	dir, err := images.Source(t.Context(), vpaModule)
	if err != nil {
		t.Fatal(err)
	}
	for program := range vpaFlags {
		names, err := fs.Glob(os.DirFS(dir), "deploy/"+strings.TrimPrefix(program, "vpa-")+"-deployment.yaml")
		if err != nil || len(names) != 1 {
			t.Fatalf("the manifest of %s: %v, %v", program, names, err)
		}
		data, err := fs.ReadFile(os.DirFS(dir), names[0])
		if err != nil {
			t.Fatal(err)
		}
		// The image is loaded under the manifest's own name.
		if want := "/" + program + ":" + vpaVersion; !strings.Contains(string(data), want) {
			t.Errorf("%s does not use the image %s", names[0], want)
		}
	}
}
