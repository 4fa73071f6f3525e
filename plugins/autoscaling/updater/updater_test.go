package updater_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/heuristic/hpavpa"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func resources(requestCPU, limitCPU int64, requestMiB, limitMiB int64) corev1.ResourceRequirements {
	list := func(cpu, mib int64) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(mib<<20, resource.BinarySI)}
	}
	return corev1.ResourceRequirements{Requests: list(requestCPU, requestMiB), Limits: list(limitCPU, limitMiB)}
}

// For every template and every action: a request that was less than its limit stays
// less, one that was equal stays equal, and nothing is zero. So the QoS class cannot change.
// The CPU request is the reservation, and the CPU limit of a container that may burst is
// the ceiling. A memory limit is what was decided, but no less than the template's where the
// container may burst and the owner's maximum allows it. What is read back and set again changes nothing.
func TestAResizeNeverChangesTheQoSClass(t *testing.T) {
	law := func(request, extra uint16, mib, extraMiB uint8, cpu, above uint16, memory, most uint16) bool {
		template := resources(int64(request)+1, int64(request)+1+int64(extra), int64(mib)+1, int64(mib)+1+int64(extraMiB))
		reserve := mdp.MilliCPU(cpu) + 2
		limit := mdp.Bytes(memory)<<12 + 4*mdp.MiB
		ceiling := mdp.Size{CPU: reserve + mdp.MilliCPU(above), Memory: limit + mdp.Bytes(most)<<12}
		got := updater.Resize(template, template, ceiling, mdp.Action{}.WithReservation(reserve).WithMemory(limit))
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			before0, before1 := template.Requests[name], template.Limits[name]
			after0, after1 := got.Requests[name], got.Limits[name]
			if after0.Sign() <= 0 || before0.Cmp(before1) != after0.Cmp(after1) {
				t.Logf("%s: %s of %s became %s of %s", name, &before0, &before1, &after0, &after1)
				return false
			}
		}
		read := mdp.Action{}.WithReservation(updater.Reserved(got)).WithMemory(updater.Memory(template, got))
		again := updater.Resize(template, got, ceiling, read)
		if !updater.Equal(again, got) {
			t.Logf("%v and %v were read as %v, and come to %v instead of %v", reserve, limit, read, again, got)
			return false
		}
		if extra == 0 {
			ceiling.CPU = reserve
		}
		want := limit
		if extraMiB > 0 {
			want = max(limit, min(updater.Limits(template).Memory, ceiling.Memory))
		}
		step := mdp.MiB * (mdp.Bytes(mib) + 1 + mdp.Bytes(extraMiB)) / (mdp.Bytes(mib) + 1) // of a request, in memory
		is := updater.Limits(got)
		return is.CPU == ceiling.CPU && is.Memory == want &&
			read.Limit.Memory >= min(limit, want-step) && read.Limit.Memory <= limit+step &&
			(read.Reservation == reserve || read.Reservation == ceiling.CPU-1 && extra > 0)
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

func TestResizeKeepsWhatTheActionDoesNotSet(t *testing.T) {
	now := resources(150, 300, 50, 100)
	got := updater.Resize(resources(100, 200, 64, 128), now, mdp.Size{CPU: 900}, mdp.Action{}.WithReservation(250))
	if got.Limits.Cpu().MilliValue() != 900 || got.Requests.Cpu().MilliValue() != 250 ||
		got.Limits.Memory().Cmp(*now.Limits.Memory()) != 0 || got.Requests.Memory().Cmp(*now.Requests.Memory()) != 0 {
		t.Errorf("resources %v", got)
	}
	if now.Limits.Cpu().MilliValue() != 300 {
		t.Error("the pod's own resources were written to")
	}
}

// A shrink frees what is reserved, and leaves the ceiling: a burst finds it at once.
func TestAShrinkLeavesTheCeiling(t *testing.T) {
	b := mdp.Bounds{
		Replicas:    mdp.Range[int]{Min: 1, Max: 1},
		CPU:         mdp.Range[mdp.MilliCPU]{Min: 50, Max: 2000},
		Memory:      mdp.Range[mdp.Bytes]{Min: mdp.MiB, Max: 128 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 2000},
	}
	template := corev1.Container{Resources: resources(250, 1000, 64, 128)}
	now := template
	for _, reserve := range []mdp.MilliCPU{800, 400, 60, 1600, 1999} {
		now.Resources = updater.Wanted(template, now, b, mdp.Action{}.WithReservation(reserve))
		request, limit := updater.Reserved(now.Resources), updater.Limits(now.Resources).CPU
		if limit != 2000 || request != reserve {
			t.Errorf("the request is %v and the limit %v, want %v and the owner's 2000m", request, limit, reserve)
		}
	}
	b.CPU.Max, b.Reservation.Max = 500, 500 // the owner wants less
	got := updater.Wanted(template, now, b, mdp.Action{}.WithReservation(9000))
	if request, limit := updater.Reserved(got), updater.Limits(got).CPU; limit != 500 || request != 499 {
		t.Errorf("%v of %v, want the owner's new 500m and a request below it", request, limit)
	}
}

// What is requested of memory follows what is used. The limit stays at what the owner gave room for,
// however little is used: a burst is not killed for it.
func TestMemoryIsFreedInTheRequest(t *testing.T) {
	b := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 1},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 50, Max: 2000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 32 * mdp.MiB, Max: 512 * mdp.MiB},
	}
	template := corev1.Container{Resources: resources(250, 1000, 96, 192)}
	for _, c := range []struct {
		name                         string
		most                         mdp.Bytes // that the owner allows
		decided, request, limit, has mdp.Bytes // in MiB; has is what is read back
	}{
		{"little is used", 512, 64, 32, 192, 64},
		{"as much as the template says", 512, 192, 96, 192, 192},
		{"more than the template says", 512, 300, 150, 300, 300},
		{"the owner wants less than the template says", 128, 64, 32, 128, 64},
		{"and the container needs more", 128, 300, 64, 128, 128},
		{"a number that halves badly", 512, 65, 33, 192, 66},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Memory.Max = c.most * mdp.MiB
			for _, before := range []corev1.ResourceRequirements{
				template.Resources,
				resources(250, 2000, 32, 64), // as an older central left it
				resources(250, 2000, 200, 400),
			} {
				a := mdp.Action{}.WithMemory(c.decided * mdp.MiB)
				got := updater.Wanted(template, corev1.Container{Resources: before}, b, a)
				request, limit := mdp.Bytes(got.Requests.Memory().Value()), updater.Limits(got).Memory
				if request != c.request*mdp.MiB || limit != c.limit*mdp.MiB {
					t.Errorf("from %v: request %v and limit %v, want %d and %d MiB", before, request, limit, c.request, c.limit)
				}
				if has := updater.Memory(template.Resources, got); has != c.has*mdp.MiB {
					t.Errorf("from %v: %v is read back, want %d MiB", before, has, c.has)
				}
			}
		})
	}
}

// Where the owner reserves nothing, nothing is reserved by us.
func TestNothingIsReservedWhereTheTemplateReservesNothing(t *testing.T) {
	for name, r := range map[string]corev1.ResourceRequirements{
		"a request of zero":      resources(0, 200, 1, 2),
		"no limit, so no number": {Requests: resources(100, 0, 1, 2).Requests, Limits: resources(0, 0, 1, 2).Limits},
	} {
		if got := updater.Knobs(corev1.Container{Resources: r}); got != mdp.SetOf(mdp.MemoryLimit) {
			t.Errorf("%s: knobs %v, want memory alone", name, got)
		}
	}
	without := resources(0, 200, 1, 2)
	delete(without.Requests, corev1.ResourceCPU) // the API server sets it to the limit
	if got := updater.Reserved(without); got != 200 {
		t.Errorf("a request that is left out is %v, want the limit", got)
	}
}

func TestKnobsHaveALimitAndDoNotRestart(t *testing.T) {
	c := corev1.Container{Resources: resources(100, 200, 64, 128)}
	if updater.Knobs(c) != mdp.SetOf(mdp.CPUReservation, mdp.MemoryLimit) {
		t.Errorf("knobs %v", updater.Knobs(c))
	}
	c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	delete(c.Resources.Limits, corev1.ResourceCPU)
	if updater.Knobs(c) != 0 {
		t.Errorf("knobs %v: there is no CPU limit, and memory would restart it", updater.Knobs(c))
	}
}

// An API server refuses most such workloads today, but it can have old ones.
func TestATargetWithoutASelectorIsRefused(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{"none": nil, "an empty one": {}} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(
				&appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
					Spec:       appsv1.DeploymentSpec{Selector: selector},
				},
				&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "somebody-elses"},
					Status:     corev1.PodStatus{Phase: corev1.PodRunning},
				}).Build()
			w, err := updater.Load(t.Context(), c, "shop", "Deployment", "web")
			var none *updater.NoSelectorError
			if !errors.As(err, &none) || w != nil || !strings.Contains(err.Error(), "shop/web") {
				t.Errorf("err %v; want a refusal that names the workload", err)
			}
		})
	}
}

// A workload's pods are those that run: what has ended, is being deleted, does not run yet or is a kubelet's own is none of
// them. Ready is who says so, and what the API gives is the mean of those whose limits are known.
func TestAWorkloadsPodsAreThoseThatRun(t *testing.T) {
	for _, target := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Replicas: new(int32(7)),
		}},
		&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Replicas: new(int32(7)),
		}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Replicas: new(int32(7)),
		}},
	} {
		all := []client.Object{target}
		pod := func(name string, r corev1.ResourceRequirements, change func(*corev1.Pod)) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Resources: r}}},
				Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
				}},
			}
			change(p)
			all = append(all, p)
		}
		pod("small", resources(100, 400, 64, 128), func(*corev1.Pod) {})
		pod("large", resources(300, 800, 64, 256), func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse })
		pod("unlimited", corev1.ResourceRequirements{}, func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] })
		other := resources(900, 900, 900, 900)
		pod("ended", other, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		pod("waits", other, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
		pod("static", other, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} })
		pod("of-another", other, func(p *corev1.Pod) { p.Labels["app"] = "db" })
		pod("elsewhere", other, func(p *corev1.Pod) { p.Namespace = "market" })
		pod("deleted", other, func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/waits"}
		})
		kind := strings.TrimPrefix(fmt.Sprintf("%T", target), "*v1.")
		c := fake.NewClientBuilder().WithObjects(all...).Build()
		w, err := updater.Load(t.Context(), c, "shop", kind, "web")
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, p := range w.Pods {
			names[p.Name] = true
		}
		if len(w.Pods) != 3 || !names["small"] || !names["large"] || !names["unlimited"] || w.Replicas != 7 || w.Ready() != 1 {
			t.Errorf("%s: pods %v, %d ready of %d", kind, names, w.Ready(), w.Replicas)
		}
		// The template says nothing of memory here: it is the limit.
		if got, want := w.Mean("web"), (updater.Given{Reservation: 200, Ceiling: 600, Memory: 192 * mdp.MiB}); got != want {
			t.Errorf("%s: the API gives %+v in the mean, want %+v", kind, got, want)
		}
		if got := w.Mean("proxy"); got != (updater.Given{}) {
			t.Errorf("%s: the API gives %+v to a container that is not there", kind, got)
		}
		if _, err := updater.Load(t.Context(), c, "market", kind, "web"); err == nil || !strings.Contains(err.Error(), kind) {
			t.Errorf("a %s that is not there: %v", kind, err)
		}
	}
}

func TestATargetOfAnUnknownKindIsRefused(t *testing.T) {
	if _, err := updater.Load(t.Context(), fake.NewClientBuilder().Build(), "shop", "DaemonSet", "web"); err == nil ||
		!strings.Contains(err.Error(), `"DaemonSet"`) {
		t.Errorf("err = %v", err)
	}
}

// A limit in whole mebibytes is what people can read. It is never above what the owner
// allows, also where that is no whole number: 200M is 190.7 MiB.
func TestWholeMebibytesStayWithinTheOwnersBounds(t *testing.T) {
	law := func(lowest, extra, asked uint32) bool {
		b := mdp.Bounds{
			Replicas: mdp.Range[int]{Min: 1, Max: 1},
			CPU:      mdp.Range[mdp.MilliCPU]{Min: 1, Max: 1},
			Memory:   mdp.Range[mdp.Bytes]{Min: mdp.Bytes(lowest) + 1, Max: mdp.Bytes(lowest) + 1 + mdp.Bytes(extra)},
		}
		got := updater.Whole(b, mdp.Action{}.WithMemory(mdp.Bytes(asked))).Limit.Memory
		exact := b.Clip(mdp.Action{}.WithMemory(mdp.Bytes(asked))).Limit.Memory
		whole := got%mdp.MiB == 0 || got == exact && b.Memory.Max-b.Memory.Min < mdp.MiB
		return b.Memory.Min <= got && got <= b.Memory.Max && whole && max(got-exact, exact-got) < mdp.MiB
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
	narrow := func(mib uint8, asked uint32) bool { return law(uint32(mib)<<20, 1<<19, asked) }
	if err := quick.Check(narrow, &quick.Config{MaxCount: 5000}); err != nil {
		t.Error(err)
	}
}

// Where only an exact limit is within the bounds, a Guaranteed container stays one.
func TestAnExactLimitKeepsItsRequest(t *testing.T) {
	equal := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("100M")}
	c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: equal, Limits: equal}}
	b := mdp.Bounds{
		Replicas: mdp.Range[int]{Min: 1, Max: 1},
		CPU:      mdp.Range[mdp.MilliCPU]{Min: 1, Max: 1000},
		Memory:   mdp.Range[mdp.Bytes]{Min: 90_000_000, Max: 90_000_000},
	}
	got := updater.Wanted(c, c, b, mdp.Action{}.WithReservation(500).WithMemory(70*mdp.MiB))
	if got.Limits.Memory().Value() != 90_000_000 || got.Requests.Memory().Cmp(*got.Limits.Memory()) != 0 ||
		got.Requests.Cpu().Cmp(*got.Limits.Cpu()) != 0 {
		t.Errorf("resources %v, want a request as large as the limit of 90M", got)
	}
}

// What the bench of a node found: 110 idle pods, whose typical use is a mean that moves by a
// few millicores, were resized twelve times in ten seconds, for as long as one looked. Now
// they are left alone once they have settled. Where they work for a moment now and then, and so
// typically use ten millicores more, each is resized less than once in the hour.
func TestIdlePodsAreLeftAlone(t *testing.T) {
	const pods, hour, settled = 110, 6 * 60, 6 * 10 // steps of ten seconds
	template := resources(2, 100, 16, 32)
	b := mdp.Bounds{
		Replicas:    mdp.Range[int]{Min: 1, Max: 1},
		CPU:         mdp.Range[mdp.MilliCPU]{Min: 2, Max: 100},
		Memory:      mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 32 * mdp.MiB},
		Reservation: mdp.Range[mdp.MilliCPU]{Min: 2, Max: 99},
	}
	for _, c := range []struct {
		name  string
		works mdp.MilliCPU // of an idle pod, in one step of thirty
		most  int          // resizes of all pods
	}{
		{"nothing but its own timers", 0, 0},
		{"a collection of garbage now and then", 40, pods},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, 0))
			wished, resized := 0, 0
			for range pods {
				config := hpavpa.Default
				config.Finest = 1 // as in central
				config.Largest = mdp.Size{CPU: 100, Memory: 32 * mdp.MiB}
				policy := hpavpa.New(config)
				now := template
				for step := range hour {
					used := mdp.MilliCPU(1 + random.IntN(8))
					if random.IntN(30) == 0 {
						used += c.works
					}
					a, err := policy.Decide(mdp.State{
						At:          noon.Add(time.Duration(step) * 10 * time.Second),
						Observed:    mdp.SetOf(mdp.CPUReservation, mdp.CPUUsage),
						Reservation: updater.Reserved(now),
						Usage:       mdp.Size{CPU: used},
					})
					if err != nil {
						t.Fatal(err)
					}
					want := func(a mdp.Action) corev1.ResourceRequirements {
						return updater.Wanted(corev1.Container{Resources: template}, corev1.Container{Resources: now}, b, a)
					}
					next := want(updater.Worthwhile(template, now, b, a, 0))
					if step >= settled && !updater.Equal(want(a), now) {
						wished++
					}
					if step >= settled && !updater.Equal(next, now) {
						resized++
					}
					now = next
				}
			}
			if wished < 10*pods {
				t.Errorf("the policy wished another reservation %d times: this proves nothing", wished)
			}
			if resized > c.most {
				t.Errorf("settled idle pods were resized %d times in 50 minutes, want %d at most", resized, c.most)
			}
		})
	}
}

// A reservation follows what is another typical use, in both directions and from any size.
func TestAReservationMovesWhenItIsWorthAResize(t *testing.T) {
	for _, c := range []struct {
		name             string
		has, wants, gets mdp.MilliCPU
	}{
		{"a tenth more", 500, 550, 550},
		{"less than a tenth more", 500, 549, 500},
		{"a tenth less", 500, 450, 450},
		{"less than a tenth less", 500, 451, 500},
		{"much of little, and still little", 2, 11, 2},
		{"ten millicores more", 20, 30, 30},
		{"ten millicores less", 20, 10, 10},
		{"a start from the template", 1000, 25, 25},
	} {
		now := resources(int64(c.has), 2000, 64, 128)
		got := updater.Worthwhile(now, now, mdp.Bounds{}, mdp.Action{}.WithReservation(c.wants), 0)
		if got.Reservation != c.gets {
			t.Errorf("%s: %v wants %v and gets %v instead of %v", c.name, c.has, c.wants, got.Reservation, c.gets)
		}
	}
	none := resources(0, 200, 64, 128)
	if a := (mdp.Action{}).WithReservation(5); updater.Worthwhile(none, none, mdp.Bounds{}, a, 0) != a {
		t.Error("a reservation of zero is not kept")
	}
}

// So does memory, where its limit is large enough. A container that needs a larger limit gets it.
func TestAMemoryRequestMovesWhenItIsWorthAResize(t *testing.T) {
	template := resources(400, 600, 128, 192)
	for _, c := range []struct {
		name             string
		request, limit   int64 // that it has, in MiB
		wants            mdp.Bytes
		least, most      mdp.Bytes // its owner's bounds
		request1, limit1 int64
	}{
		{"a mebibyte more", 43, 192, 66, 64, 256, 43, 192},
		{"a mebibyte less", 44, 192, 64, 64, 256, 44, 192},
		{"a tenth less", 44, 192, 59, 32, 256, 40, 192},
		{"a tenth more", 44, 192, 73, 64, 256, 49, 192},
		{"its owner gives no more", 44, 192, 64, 32, 64, 43, 64},
		{"its owner gives no less", 44, 192, 68, 68, 256, 46, 192},
		{"a limit above the template's is too small", 134, 201, 204, 64, 256, 136, 204},
		{"and one that is hardly too large", 134, 201, 198, 64, 256, 134, 201},
		{"and one that is much too large", 134, 201, 120, 64, 256, 80, 192},
	} {
		now := resources(400, 900, c.request, c.limit)
		b := mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: 100, Max: 900},
			Memory: mdp.Range[mdp.Bytes]{Min: c.least * mdp.MiB, Max: c.most * mdp.MiB},
		}
		a := updater.Worthwhile(template, now, b, mdp.Action{}.WithMemory(c.wants*mdp.MiB), 0)
		got := updater.Wanted(corev1.Container{Resources: template}, corev1.Container{Resources: now}, b, a)
		if want := resources(400, 900, c.request1, c.limit1); !updater.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}

// A working set that stays about the same costs no resizes: each one gives the container all of its ceiling for a second.
func TestAWorkingSetThatHardlyMovesCostsNoResize(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0))
	template := resources(400, 600, 128, 192)
	now := template
	b := mdp.Bounds{
		CPU:    mdp.Range[mdp.MilliCPU]{Min: 100, Max: 900},
		Memory: mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 256 * mdp.MiB},
	}
	resized := 0
	for range 360 {
		a := mdp.Action{}.WithMemory(80*mdp.MiB + mdp.Bytes(random.IntN(4<<20)))
		a = updater.Worthwhile(template, now, b, a, 0)
		next := updater.Wanted(corev1.Container{Resources: template}, corev1.Container{Resources: now}, b, a)
		if !updater.Equal(next, now) {
			resized++
		}
		now = next
	}
	if resized != 1 || now.Requests.Memory().Value() < 80<<20*2/3 {
		t.Errorf("%d resizes in an hour, and it has %v", resized, now)
	}
}

// What is hardly another reservation is not kept where its owner's bounds say so.
func TestAReservationOutsideTheBoundsIsMoved(t *testing.T) {
	s := open(t, resources(105, 4000, 64, 128), interceptor.Funcs{})
	u := s.updater()
	if effect := s.act(u, mdp.Action{}.WithReservation(100)); effect != mdp.Unchanged || s.size()[0] != 105 {
		t.Fatalf("%v, and it requests %dm", effect, s.size()[0])
	}
	u.Bounds.Reservation.Max = 100
	if effect := s.act(u, mdp.Action{}.WithReservation(100)); effect != mdp.Pending || s.size()[0] != 100 {
		t.Errorf("%v, and it requests %dm", effect, s.size()[0])
	}
}
