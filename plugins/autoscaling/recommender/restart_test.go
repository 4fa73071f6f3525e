package recommender

import (
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// step reconciles the object of that name, whatever comes of it.
func (c *cluster) step(name string) {
	_, _ = c.r.Reconcile(c.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: name}})
}

// sent is what the node's agent was sent: nothing yet, or for each pod what is kept
// or granted.
func (c *cluster) sent() (said bool, pods map[string]string) {
	all, version, _ := c.fleet.Grants("node")
	pods = map[string]string{}
	for _, g := range all.All {
		pods[g.Container.Pod] = string(g.Mode)
		if g.Keep {
			pods[g.Container.Pod] = "keep"
		}
	}
	return version != 0, pods
}

// another makes another workload without pods, and its object.
func (c *cluster) another(name string) {
	c.t.Helper()
	var d appsv1.Deployment
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
		c.t.Fatal(err)
	}
	d.Name = name
	d.ResourceVersion = ""
	d.Spec.Selector.MatchLabels = map[string]string{"app": name}
	mpa := &v1alpha1.MultidimPodAutoscaler{Spec: v1alpha1.MultidimPodAutoscalerSpec{
		Mode: "auto", TargetRef: v1alpha1.TargetRef{Kind: "Deployment", Name: name}}}
	mpa.Namespace, mpa.Name = "shop", name
	for _, o := range []client.Object{&d, mpa} {
		if err := c.client.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// change changes an object of the API server.
func change[T client.Object](c *cluster, o T, name string, edit func(T)) {
	c.t.Helper()
	if err := c.client.Get(c.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o); err != nil {
		c.t.Fatal(err)
	}
	edit(o)
	if err := c.client.Update(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

func TestAfterARestartAnObjectWhoseWorkloadCannotBeReadIsWaitedFor(t *testing.T) {
	c := newCluster(t, api.Auto)
	c.another("other")
	c.fail = func(_ string, o any) bool { // of one workload only
		d, is := o.(*appsv1.Deployment)
		return is && d != nil && c.failing
	}
	c.failing = true
	c.step("web")
	c.failing = false
	c.step("other")
	if said, pods := c.sent(); said {
		t.Fatalf("the node was sent %v: it would restore a workload that was never looked at", pods)
	}
	c.step("web")
	if said, pods := c.sent(); !said || pods["web-1"] != "auto" || pods["web-2"] != "auto" {
		t.Errorf("the node was sent %v, %v; want web's grants", said, pods)
	}
}

// The nodes' grants of before end by then.
func TestAnObjectWhoseWorkloadCannotBeReadDoesNotHoldUpTheOthersForEver(t *testing.T) {
	c := newCluster(t, api.Auto)
	c.another("other")
	both := func() {
		c.failing = true
		c.step("other")
		c.failing = false
		c.step("web")
	}
	c.fail = func(_ string, o any) bool { _, is := o.(*appsv1.Deployment); return is && c.failing }
	both()
	c.now = c.now.Add(c.fleet.TTL)
	both()
	if said, _ := c.sent(); said {
		t.Error("the fleet was opened while nodes kept the grants of before")
	}
	c.now = c.now.Add(time.Second)
	both()
	if said, pods := c.sent(); !said || pods["web-1"] != "auto" {
		t.Errorf("the node was sent %v, %v; want web's grants", said, pods)
	}
}

func TestAfterARestartNodesKeepTheGrantsOfAWorkloadThatCannotBeDecidedOn(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*cluster) // before the restart
		fail  func(verb string, o any) bool
		want  string // for the pods
	}{
		"one API error": {
			fail: func(_ string, o any) bool { _, is := o.(*autoscalingv2.HorizontalPodAutoscalerList); return is },
			want: "keep",
		},
		"a minimum above the template's limit": {
			spoil: func(c *cluster) {
				change(c, new(v1alpha1.MultidimPodAutoscaler), "web", func(m *v1alpha1.MultidimPodAutoscaler) {
					m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{
						Name: "*", Min: &v1alpha1.Size{CPU: resource.NewQuantity(9, resource.DecimalSI)}}}
				})
			},
			want: "keep",
		},
		"annotations that cannot be read: the last good ones count": {
			spoil: func(c *cluster) {
				mpa := c.reconcile("web")
				condition{optin.AnnotationsValid, false, "InvalidAnnotation", "max-cpu: lots"}.set(mpa, c.now)
				if err := c.client.Status().Update(c.t.Context(), mpa); err != nil {
					c.t.Fatal(err)
				}
			},
			want: "auto",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, api.Auto)
			cl.reconcile("web")
			if c.spoil != nil {
				c.spoil(cl)
			}
			cl.start()
			cl.fail = c.fail
			cl.step("web")
			if said, pods := cl.sent(); !said || pods["web-1"] != c.want || pods["web-2"] != c.want {
				t.Errorf("the node was sent %v, %v; want %s for both pods", said, pods, c.want)
			}
			cl.fail = nil
			if got := cl.cpu("web-1"); got != "200m" {
				t.Errorf("CPU limit %s: the size was changed", got)
			}
			// It does not hold for ever: a workload that is opted out is ended.
			change(cl, new(appsv1.Deployment), "web", func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil })
			cl.step("web")
			if said, pods := cl.sent(); !said || len(pods) != 0 || cl.cpu("web-1") != "400m" {
				t.Errorf("the node was sent %v, %v, and the pod has %s; want an end", said, pods, cl.cpu("web-1"))
			}
		})
	}
}

func TestAnnotationsThatCannotBeReadAreSaidWhileTheLastGoodOnesAreFollowed(t *testing.T) {
	c := newCluster(t, api.Auto)
	mpa := c.reconcile("web")
	condition{optin.AnnotationsValid, false, "InvalidAnnotation", "max-cpu: lots"}.set(mpa, c.now)
	if err := c.client.Status().Update(t.Context(), mpa); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(10 * time.Second)
	mpa = c.reconcile("web")
	ready := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.Ready)
	if ready.Reason != "InvalidAnnotation" || ready.Message != "max-cpu: lots" || len(mpa.Status.Decisions) != 2 ||
		!meta.IsStatusConditionTrue(mpa.Status.Conditions, v1alpha1.Active) {
		t.Errorf("status %+v; want it said, and a second decision", mpa.Status)
	}
}

func TestOptingOutIsRetriedUntilThePodsAreRestored(t *testing.T) {
	resizes := func(verb string, _ any) bool { return verb == "resize" }
	sweep := func(c *cluster) { _ = c.r.sweep(c.t.Context()) }
	for name, c := range map[string]struct {
		end   func(*cluster) // the owner's word
		again func(*cluster) // what central does from time to time
	}{
		"the object is deleted": {
			end: func(c *cluster) {
				if err := c.client.Delete(c.t.Context(), c.reconcile("web")); err != nil {
					c.t.Fatal(err)
				}
			},
			again: sweep,
		},
		"the label is removed": {
			end: func(c *cluster) {
				change(c, new(appsv1.Deployment), "web", func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil })
			},
			again: func(c *cluster) { c.step("web") },
		},
		"mode off": {
			end: func(c *cluster) {
				change(c, new(v1alpha1.MultidimPodAutoscaler), "web", func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Mode = "off" })
			},
			again: func(c *cluster) { c.step("web") },
		},
		"mode off, and constraints that make no sense": {
			end: func(c *cluster) {
				change(c, new(v1alpha1.MultidimPodAutoscaler), "web", func(m *v1alpha1.MultidimPodAutoscaler) {
					m.Spec.Mode = "off"
					m.Spec.Constraints.Containers = []v1alpha1.ContainerConstraints{{
						Name: "*", Min: &v1alpha1.Size{CPU: resource.NewQuantity(9, resource.DecimalSI)}}}
				})
			},
			again: func(c *cluster) { c.step("web") },
		},
		"less than auto": {
			end: func(c *cluster) {
				change(c, new(v1alpha1.MultidimPodAutoscaler), "web", func(m *v1alpha1.MultidimPodAutoscaler) { m.Spec.Mode = "recommend" })
			},
			again: func(c *cluster) { c.step("web") },
		},
	} {
		for _, restart := range []bool{false, true} {
			kind := map[bool]string{false: "", true: ", and central starts again"}[restart]
			t.Run(name+kind, func(t *testing.T) {
				cl := newCluster(t, api.Auto)
				cl.reconcile("web")
				cl.end(c.end)
				cl.fail = resizes
				cl.step("web")
				if got := cl.cpu("web-1"); got != "200m" {
					t.Fatalf("CPU limit %s while the API server refuses resizes", got)
				}
				if restart {
					cl.start()
				}
				for range 2 { // it still fails
					cl.now = cl.now.Add(10 * time.Second)
					c.again(cl)
				}
				cl.fail = nil
				cl.now = cl.now.Add(10 * time.Second)
				c.again(cl)
				if one, two := cl.cpu("web-1"), cl.cpu("web-2"); one != "400m" || two != "400m" {
					t.Errorf("CPU limits %s and %s: want the template's", one, two)
				}
			})
		}
	}
}

func (c *cluster) end(how func(*cluster)) { how(c) }

// The sweep restores nothing that has an object, and nothing that others resized.
func TestTheSweepLeavesTheOthersAlone(t *testing.T) {
	c := newCluster(t, api.Auto)
	c.reconcile("web")
	if err := c.r.sweep(t.Context()); err != nil || c.cpu("web-1") != "200m" {
		t.Errorf("CPU limit %s, %v: a workload with an object was restored", c.cpu("web-1"), err)
	}
	change(c, new(corev1.Pod), "web-1", func(p *corev1.Pod) { // by its owner
		p.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = resource.MustParse("300m")
	})
	if err := c.client.Delete(t.Context(), c.reconcile("web")); err != nil {
		t.Fatal(err)
	}
	if err := c.r.sweep(t.Context()); err != nil || c.cpu("web-1") != "300m" || c.cpu("web-2") != "400m" {
		t.Errorf("CPU limits %s and %s, %v; want the owner's and the template's", c.cpu("web-1"), c.cpu("web-2"), err)
	}
}
