package admission

import (
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
)

// Result is what came of one request. It is a label of a metric, so that there are few.
type Result string

// The results. All but BadRequest are answers that allow the pod, and all but Sized
// leave it as it is.
const (
	Sized      Result = "sized"       // it starts with another size than its template's
	SameSize   Result = "same-size"   // the decision is the size that it has
	NotManaged Result = "not-managed" // it is no pod of a workload that opted in
	NotActing  Result = "not-acting"  // central does not move the workload's pods
	Undecided  Result = "undecided"   // there is no decision yet
	Stale      Result = "stale"       // the last decision is old, or of other settings
	Problem    Result = "problem"     // the object or the last decision has a problem
	Different  Result = "different"   // its containers are not those of the template
	Unready    Result = "unready"     // this instance does not know the workloads yet
	Failed     Result = "error"       // something went wrong
	BadRequest Result = "bad-request" // it is no review of an API server
)

// Results is all of them.
var Results = []Result{
	Sized, SameSize, NotManaged, NotActing, Undecided, Stale, Problem, Different, Unready, Failed, BadRequest,
}

// Facts is what is known of a new pod's workload.
type Facts struct {
	Now      time.Time
	MaxAge   time.Duration // of a decision that counts
	Workload *updater.Workload
	Object   *v1alpha1.MultidimPodAutoscaler // that decides on the workload; nil for none
}

// Verdict is what is done with a new pod.
type Verdict struct {
	Result     Result
	Reason     string // for people
	Containers []Container
}

// Container is one container that gets another size.
type Container struct {
	Index  int // in the pod's containers
	Name   string
	Before corev1.ResourceRequirements
	After  corev1.ResourceRequirements
}

// keep is the verdict that leaves a pod as it is.
func keep(r Result, format string, args ...any) Verdict {
	return Verdict{Result: r, Reason: fmt.Sprintf(format, args...)}
}

// Judge decides on a new pod: whether it gets another size than it asks for, and which.
// The pod is not changed.
func Judge(pod *corev1.Pod, f Facts) Verdict {
	if v, ok := managed(pod, f); !ok {
		return v
	}
	if v, ok := acting(f.Object); !ok {
		return v
	}
	if v, ok := decided(f); !ok {
		return v
	}
	return sizes(pod, f)
}

// managed reports whether a pod is one of a workload that is opted in and has an object.
func managed(pod *corev1.Pod, f Facts) (Verdict, bool) {
	w := f.Workload
	switch {
	case w == nil:
		return keep(NotManaged, "no Deployment, StatefulSet or ReplicaSet that is known owns it"), false
	case !optin.OptedIn(w.Template):
		return keep(NotManaged, "the template of %s is not labelled %s=true", w.Key(), v1alpha1.ManagedLabel), false
	case !w.Selector.Matches(labels.Set(pod.Labels)):
		return keep(NotManaged, "%s does not select it", w.Key()), false
	case f.Object == nil:
		return keep(Undecided, "%s has no MultidimPodAutoscaler", w.Key()), false
	}
	return Verdict{}, true
}

// acting reports whether central moves all pods of an object's workload. In mode canary it
// chooses one of those that run, so that a new one is none.
func acting(o *v1alpha1.MultidimPodAutoscaler) (Verdict, bool) {
	conditions := o.Status.Conditions
	switch {
	case o.DeletionTimestamp != nil:
		return keep(NotActing, "the object is being deleted"), false
	case o.Spec.Mode != string(api.Auto):
		return keep(NotActing, "mode %s", o.Spec.Mode), false
	case o.Spec.Paused:
		return keep(NotActing, "paused"), false
	case len(o.Status.Decisions) == 0:
		return keep(Undecided, "nothing was decided yet"), false
	case o.Status.ObservedGeneration != o.Generation:
		return keep(Stale, "the settings have changed since the last decision"), false
	case !meta.IsStatusConditionTrue(conditions, v1alpha1.Ready):
		return keep(Problem, "%s is not true: %s", v1alpha1.Ready, says(o, v1alpha1.Ready)), false
	case !meta.IsStatusConditionTrue(conditions, v1alpha1.Active):
		return keep(NotActing, "%s is not true: %s", v1alpha1.Active, says(o, v1alpha1.Active)), false
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ResizeDeferred):
		return keep(Problem, "%s: %s", v1alpha1.ResizeDeferred, says(o, v1alpha1.ResizeDeferred)), false
	}
	return Verdict{}, true
}

// says is the message of a condition.
func says(o *v1alpha1.MultidimPodAutoscaler, kind string) string {
	if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return "the condition is not there"
}

// decided reports whether the last step is young enough, and whether the workload's pods
// were given what it decided. What no node had room for, or the API server refused, is
// given to no new pod: it might be refused as well, or fit on no node.
func decided(f Facts) (Verdict, bool) {
	all := f.Object.Status.Decisions
	at := all[0].Time
	if age := f.Now.Sub(at.Time); age > f.MaxAge {
		return keep(Stale, "the last decision is %v old, and counts for %v", age.Round(time.Second), f.MaxAge), false
	}
	for _, d := range all {
		if !d.Time.Equal(&at) {
			break // of an earlier step
		}
		switch d.Effect {
		case mdp.Unchanged.String(), mdp.Applied.String(), mdp.Pending.String():
		case mdp.Refused.String(): // a write that lost against another one, or a scale-in: the sizes hold
		default:
			return keep(Problem, "the last decision was not carried out: %s %s", d.Effect, d.Reason), false
		}
	}
	return Verdict{}, true
}

// sizes sizes a pod's containers. Either all get what was decided for them, or none does.
func sizes(pod *corev1.Pod, f Facts) Verdict {
	if pod.Spec.Resources != nil {
		return keep(Different, "the pod has resources of its own, which those of its containers must fit into")
	}
	decisions := f.Object.Status.Recommendation
	if len(decisions) == 0 {
		return keep(Undecided, "no size was decided yet")
	}
	v := Verdict{Result: SameSize, Reason: "it has the size that was decided"}
	for _, one := range decisions {
		c, why := size(pod, f, one)
		if why != nil {
			return *why
		}
		if !updater.Equal(c.Before, c.After) {
			v.Containers = append(v.Containers, c)
		}
	}
	if len(v.Containers) > 0 {
		v.Result = Sized
		v.Reason = describe(v.Containers)
	}
	return v
}

// size sizes one container. why is not nil when the pod is to be left as it is.
func size(pod *corev1.Pod, f Facts, decision v1alpha1.ContainerSize) (c Container, why *Verdict) {
	refuse := func(r Result, format string, args ...any) (Container, *Verdict) {
		v := keep(r, "container "+decision.Name+": "+format, args...)
		return Container{}, &v
	}
	_, template, ok := find(f.Workload.Template.Spec, decision.Name)
	if !ok {
		return refuse(Stale, "the template has no such container any more")
	}
	limits := updater.Limits(template.Resources)
	if !recommender.SameLimits(decision.Template, recommender.TemplateSize(limits)) {
		return refuse(Stale, "the template's limits have changed since the last decision")
	}
	index, now, ok := find(pod.Spec, decision.Name)
	if !ok {
		return refuse(Different, "the pod has no such container")
	}
	bounds, knobs, err := recommender.Envelope(f.Object.Spec.Constraints, *template, f.Workload.Replicas)
	if err != nil {
		return refuse(Problem, "%v", err)
	}
	a := recommender.Decided(decision).Only(knobs)
	if recommender.NeedsMemory(f.Now, f.Object.Status) && a.Limit.Memory < limits.Memory {
		a = a.Without(mdp.SetOf(mdp.MemoryLimit)) // more memory is what it is to have, and the template has more
	}
	after := updater.Wanted(*template, *now, bounds, a)
	// A second call for the same pod finds what the first one has set.
	if !updater.Equal(now.Resources, after) && !updater.AsTemplate(*template, *now, a.Sets) {
		return refuse(Different, "its resources are not the template's: %s", resources(now.Resources))
	}
	return Container{Index: index, Name: now.Name, Before: now.Resources, After: after}, nil
}

// find finds a container by its name.
func find(spec corev1.PodSpec, name string) (int, *corev1.Container, bool) {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return i, &spec.Containers[i], true
		}
	}
	return 0, nil, false
}

// describe says what containers get, for people.
func describe(all []Container) string {
	var parts []string
	for _, c := range all {
		parts = append(parts, c.Name+" "+resources(c.After)+" instead of "+resources(c.Before))
	}
	return strings.Join(parts, "; ")
}

// resources prints requests and limits, such as "cpu 200m/400m memory 64Mi/128Mi".
func resources(r corev1.ResourceRequirements) string {
	return fmt.Sprintf("cpu %s/%s memory %s/%s", r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory())
}
