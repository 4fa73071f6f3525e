package updater_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// crowd is the shop with five pods on a node that is full, and one on a node with room.
type crowd struct {
	shop
	now   time.Time
	waits int // pods that wait for room, at most at one time, since the first answers of the kubelets
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{shop: open(t, resources(100, 1000, 64, 128), interceptor.Funcs{}), now: noon}
	first := c.pod()
	for i := range 6 {
		p := first.DeepCopy()
		p.ResourceVersion = ""
		p.Name, p.UID = fmt.Sprintf("crowd-%d", i), types.UID(fmt.Sprint("uid-", i))
		p.Spec.NodeName = "full"
		if i == 5 {
			p.Spec.NodeName = "roomy"
		}
		if err := c.client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if err := c.client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	return c
}

// pods are all pods, by name.
func (c *crowd) pods() []corev1.Pod {
	c.t.Helper()
	var all corev1.PodList
	if err := c.client.List(c.t.Context(), &all, client.InNamespace("shop")); err != nil {
		c.t.Fatal(err)
	}
	return all.Items
}

// kubelets answer: on the full node what is more than allocated waits.
func (c *crowd) kubelets() (waiting int) {
	c.t.Helper()
	for _, p := range c.pods() {
		asked, has := p.Spec.Containers[0].Resources.Requests, p.Status.ContainerStatuses[0].AllocatedResources
		was := p.Status.Conditions
		p.Status.Conditions = nil
		switch {
		case p.Spec.NodeName == "full" && asked.Cpu().Cmp(*has.Cpu()) > 0:
			waiting++
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.NewTime(c.now),
			}}
			if len(was) > 0 {
				p.Status.Conditions = was
			}
		default:
			p.Status.ContainerStatuses[0].AllocatedResources = asked.DeepCopy()
		}
		if err := c.client.Status().Update(c.t.Context(), &p); err != nil {
			c.t.Fatal(err)
		}
	}
	return waiting
}

// act lets an updater act on the pods as they are now, and the kubelets answer. The next step is ten seconds later.
func (c *crowd) act(u *updater.Updater, a mdp.Action) (waiting int) {
	c.t.Helper()
	u.Workload = c.load()
	if _, _, err := u.Act(c.t.Context(), c.now, a); err != nil {
		c.t.Fatal(err)
	}
	waiting = c.kubelets()
	c.now = c.now.Add(10 * time.Second)
	return waiting
}

// On a node without room one pod waits, and the others have what they had. When its patience has
// ended nobody asks the node for five minutes. Limits need no room, and other nodes have it.
func TestOfTheNodesWithoutRoomOnlyOnePodIsAskedFor(t *testing.T) {
	c := newCrowd(t)
	u := c.updater()
	a := mdp.Action{}.WithReservation(150)
	var waited []int
	for range 45 { // steps of ten seconds
		waited = append(waited, c.act(u, a))
	}
	asks := 0
	for i, n := range waited {
		if i > 0 && n > 1 && waited[i-1] > 0 {
			t.Errorf("%d pods wait for the same room in step %d: %v", n, i, waited)
		}
		if n > 1 {
			asks++
		}
	}
	if waited[0] != 5 || asks != 2 || waited[20] != 0 {
		t.Errorf("pods that waited, by step of ten seconds: %v: "+
			"want all in the first, one for a minute, none for five minutes, and again", waited)
	}
	for _, p := range c.pods() {
		r := p.Spec.Containers[0].Resources
		want := int64(100)
		if p.Spec.NodeName == "roomy" {
			want = 150
		}
		if is := r.Requests.Cpu().MilliValue(); is != want && p.Status.Conditions == nil {
			t.Errorf("%s on %s requests %dm", p.Name, p.Spec.NodeName, is)
		}
	}
}

// While the node is full a ceiling rises, a request falls, and memory is asked for.
func TestAFullNodeTakesWhatNeedsNoCPURequest(t *testing.T) {
	c := newCrowd(t)
	u := c.updater()
	for range 10 {
		c.act(u, mdp.Action{}.WithReservation(150))
	}
	c.act(u, mdp.Action{}.WithReservation(150).WithMemory(256*mdp.MiB))
	for range 5 {
		c.act(u, mdp.Action{}.WithReservation(60).WithMemory(256*mdp.MiB))
	}
	for _, p := range c.pods() {
		r := p.Spec.Containers[0].Resources
		if r.Requests.Cpu().MilliValue() != 60 || r.Limits.Cpu().MilliValue() != 4000 || r.Limits.Memory().Value() != 256<<20 {
			t.Errorf("%s on %s has %+v", p.Name, p.Spec.NodeName, r)
		}
	}
}

// What only frees has time: in each step one pod of each node is resized, the one with the largest request first. What
// gives more of anything is for all pods at once.
func TestWhatIsFreedIsFreedPodByPod(t *testing.T) {
	c := newCrowd(t)
	u := c.updater()
	requests := func() (of []int64) {
		for _, p := range c.pods() {
			of = append(of, p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue())
		}
		return of
	}
	act := func(a mdp.Action, want ...int64) {
		t.Helper()
		u.Workload = c.load()
		if _, effect, err := u.Act(t.Context(), c.now, a); err != nil || effect != mdp.Pending {
			t.Fatalf("%v, %v", effect, err)
		}
		c.now = c.now.Add(10 * time.Second)
		for _, p := range c.pods() {
			p.Status.ContainerStatuses[0].AllocatedResources = p.Spec.Containers[0].Resources.Requests.DeepCopy()
			if err := c.client.Status().Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
		if is := requests(); !slices.Equal(is, want) {
			t.Errorf("after %v the pods request %v, want %v", a, is, want)
		}
	}
	less, more := mdp.Action{}.WithReservation(50), mdp.Action{}.WithReservation(200)
	for _, p := range c.pods() { // the ceilings are in the pods before
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = *resource.NewQuantity(4, resource.DecimalSI)
		if p.Name == "crowd-3" {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(120, resource.DecimalSI)
		}
		if err := c.client.Update(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	act(less, 100, 100, 100, 50, 100, 50)
	act(less, 50, 100, 100, 50, 100, 50)
	act(less, 50, 50, 100, 50, 100, 50)
	act(more, 200, 200, 200, 200, 200, 200)
	mixed := less.WithMemory(256 * mdp.MiB)
	act(mixed, 50, 50, 50, 50, 50, 50)
}

// While the pods are resized in turns they have different sizes. A guard that holds the size, which is their mean, has each pod
// keep its own: nobody gets back what was freed. What the hold came after goes on later.
func TestAHoldLeavesPodsOfDifferentSizesAsTheyAre(t *testing.T) {
	c := newCrowd(t)
	u := c.updater()
	sizes := func() (of [][2]int64) {
		for _, p := range c.pods() {
			r := p.Spec.Containers[0].Resources.Requests
			of = append(of, [2]int64{r.Cpu().MilliValue(), r.Memory().Value() >> 20})
		}
		return of
	}
	given := func() mdp.Action {
		mean := c.load().Mean("web")
		return mdp.Action{}.WithReservation(mean.Reservation).WithMemory(mean.Memory)
	}
	c.act(u, given())
	for _, p := range c.pods() {
		if is := p.Spec.Containers[0].Resources.Limits.Cpu().MilliValue(); is != 4000 {
			t.Errorf("a hold, which frees nothing, and %s has a ceiling of %dm", p.Name, is)
		}
	}
	less := mdp.Action{}.WithReservation(50).WithMemory(64 * mdp.MiB)
	c.act(u, less)
	uneven := sizes()
	if slices.Equal(uneven[:1], uneven[1:2]) {
		t.Fatalf("the pods are of one size: %v", uneven)
	}
	for _, why := range []mdp.Clips{mdp.ClippedBurst, mdp.ClippedSLO | mdp.ClippedDwell} {
		hold := given()
		hold.Clipped = why
		if c.act(u, hold); !slices.Equal(sizes(), uneven) {
			t.Errorf("a hold for %v changed %v to %v", why, uneven, sizes())
		}
	}
	for range 4 { // a hold after a shrink, for some time, is not for those who have not shrunk
		hold := given()
		hold.Clipped = mdp.ClippedDwell
		c.act(u, hold)
	}
	if last := sizes(); slices.ContainsFunc(last, func(is [2]int64) bool { return is != [2]int64{50, 32} }) {
		t.Errorf("the pods end with %v", last)
	}
}

// A canary has its turn, although another pod of its node would free more.
func TestTheCanaryHasItsTurn(t *testing.T) {
	c := newCrowd(t)
	u := c.updater()
	c.act(u, mdp.Action{}.WithReservation(100)) // the ceilings of all
	u.Only = "crowd-3"
	c.act(u, mdp.Action{}.WithReservation(50))
	for _, p := range c.pods() {
		want := int64(100)
		if p.Name == u.Only {
			want = 50
		}
		if is := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); is != want {
			t.Errorf("%s requests %dm, want %dm", p.Name, is, want)
		}
	}
}

// What is carried on with is a shrink. A policy that is content with what there is gets no raise that was decided before, and
// that a node had no room for.
func TestARaiseThatWasGivenUpIsNotCarriedOnWith(t *testing.T) {
	s := open(t, resources(500, 4000, 128, 256), interceptor.Funcs{})
	u := s.updater()
	if s.act(u, mdp.Action{}.WithReservation(900)); s.size()[0] != 900 {
		t.Fatalf("it requests %dm", s.size()[0])
	}
	s.kubelet(infeasible)
	if s.act(u, mdp.Action{}.WithReservation(900)); s.size()[0] != 500 {
		t.Fatalf("it requests %dm after it was given up", s.size()[0])
	}
	s.kubelet(func(st *corev1.PodStatus) { st.Conditions = nil })
	content := mdp.Action{}.WithReservation(500)
	content.Clipped = mdp.ClippedDwell
	if s.act(u, content); s.size()[0] != 500 {
		t.Errorf("it requests %dm, and the policy was content with 500m", s.size()[0])
	}
}

// What was decided before nobody decided for some time, as in mode off, is not carried on with.
func TestWhatWasDecidedLongAgoIsForgotten(t *testing.T) {
	s := open(t, resources(500, 4000, 128, 256), interceptor.Funcs{})
	u := s.updater()
	if s.act(u, mdp.Action{}.WithReservation(300)); s.size()[0] != 300 {
		t.Fatalf("it requests %dm", s.size()[0])
	}
	p := s.pod()
	p.Spec.Containers[0].Resources = resources(500, 4000, 128, 256) // restored
	if err := s.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	hold := mdp.Action{}.WithReservation(500)
	hold.Clipped = mdp.ClippedDwell
	u.Workload = s.load()
	if _, _, err := u.Act(t.Context(), noon.Add(2*time.Minute), hold); err != nil || s.size()[0] != 500 {
		t.Errorf("%v, and it requests %dm after a hold at 500m", err, s.size()[0])
	}
}
