package recommender

import (
	"fmt"
	"slices"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptDecisions is how many decisions a status remembers.
const keptDecisions = 10

// condition is what a condition of a MultidimPodAutoscaler says.
type condition struct {
	kind    string // such as Ready
	is      bool
	reason  string
	message string
}

// set writes the condition into an object's status. It reports whether the
// condition's status or reason is another than before.
func (c condition) set(mpa *object, now time.Time) (changed bool) {
	status := metav1.ConditionFalse
	if c.is {
		status = metav1.ConditionTrue
	}
	before := meta.FindStatusCondition(mpa.Status.Conditions, c.kind)
	changed = before == nil || before.Status != status || before.Reason != c.reason
	meta.SetStatusCondition(&mpa.Status.Conditions, metav1.Condition{
		Type:               c.kind,
		Status:             status,
		Reason:             c.reason,
		Message:            c.message,
		ObservedGeneration: mpa.Generation,
		LastTransitionTime: metav1.NewTime(now),
	})
	return changed
}

// paused is the condition Paused.
func paused(is bool) condition {
	if is {
		return condition{v1alpha1.Paused, true, "PausedBySpec", "spec.paused holds everything as it is"}
	}
	return condition{v1alpha1.Paused, false, "Running", "not paused"}
}

// conflict is the condition ConflictDetected, with the other autoscalers' names.
func conflict(others []string) condition {
	if len(others) == 0 {
		return condition{
			v1alpha1.ConflictDetected,
			false,
			"NoConflict",
			"no other autoscaler moves this workload",
		}
	}
	return condition{v1alpha1.ConflictDetected, true, "OtherAutoscaler",
		joined(others) + " moves the same workload: AWARE only recommends until one of the two is removed"}
}

// active is the condition Active.
func active(acting bool, mode api.Mode, paused bool) condition {
	switch {
	case mode == api.Off:
		return condition{v1alpha1.Active, false, "ModeOff", "mode is off"}
	case acting:
		return condition{v1alpha1.Active, true, "Acting", "sizes and replicas are moved"}
	case paused:
		return condition{v1alpha1.Active, false, "NotActing", "mode " + string(mode) + ", paused"}
	}
	return condition{v1alpha1.Active, false, "NotActing", "mode " + string(mode)}
}

// fallbackActive is the condition FallbackActive. why is what more there is to say of the nodes' rule.
func fallbackActive(version string, life Life, why string) condition {
	c := condition{
		v1alpha1.FallbackActive, true, "NoLearner", "no learned policy serves this workload: the rule " + version + " decides",
	}
	switch {
	case life.Learned:
		c.is, c.reason = false, life.Stage
		c.message = fmt.Sprintf("the learned policy of generation %d decides", life.Generation)
		if life.Steps > 0 {
			c.message += fmt.Sprintf(", and did something else than the rule %s in %d of %d steps", version, life.Departed, life.Steps)
		}
	case life.Stage != "":
		c.reason = life.Stage
		c.message = "the rule " + version + " decides"
	}
	for _, more := range []string{life.Why, life.Trouble, why} {
		if more != "" {
			c.message += "; " + more
		}
	}
	return c
}

// resizeDeferred is the condition ResizeDeferred: of the last container whose
// node has no room.
func resizeDeferred(all []outcome) condition {
	c := condition{v1alpha1.ResizeDeferred, false, "None", "no resize is deferred"}
	for _, o := range all {
		if o.decision.Effect != mdp.Deferred && o.decision.Effect != mdp.Infeasible {
			continue
		}
		c = condition{v1alpha1.ResizeDeferred, true, "NoRoom", o.reason}
		if o.reason == "" {
			c.message = "a node has no room for the resize of container " + o.container + " now"
		}
	}
	return c
}

// outcome is what came of one container's step.
type outcome struct {
	container string
	policy    string // version of the policy that decided
	rule      string // what the rule wanted, where something else was decided
	decision  mdp.Decision
	sets      mdp.Action // what the decision asks for, and what was decided before and holds, as they are written to pods
	template  mdp.Size   // the limits that the template gives the container; 0 is none
	reason    string     // of the effect, for people
	resizes   int64      // through the API, in this step
}

// decided is a step's decisions as the API and the stream have them.
func decided(at time.Time, all []outcome) []v1alpha1.DecisionStatus {
	out := make([]v1alpha1.DecisionStatus, 0, len(all))
	for _, o := range all {
		one := v1alpha1.DecisionStatus{
			Time:      metav1.NewTime(at),
			Signals:   Signals(o.decision.State),
			Sets:      Sets(o.decision.Action),
			Inputs:    Inputs(o.decision.State),
			Action:    o.decision.Action.String(),
			Effect:    o.decision.Effect.String(),
			Reason:    o.reason,
			ClippedBy: o.decision.Action.Clipped.Names(),
			Policy:    o.policy,
			Rule:      o.rule,
		}
		if len(all) > 1 {
			one.Container = o.container
		}
		out = append(out, one)
	}
	return out
}

// record puts a step's decisions before the older ones.
func record(status *v1alpha1.MultidimPodAutoscalerStatus, all []v1alpha1.DecisionStatus) {
	for _, one := range all {
		status.Decisions = slices.Insert(status.Decisions, 0, one)
	}
	status.Decisions = status.Decisions[:min(len(status.Decisions), keptDecisions)]
}

// standing is what a step sets, and what was decided for the container before and still holds: a learned policy moves one knob at
// a time, and a new pod is to start with all of them.
func standing(before []v1alpha1.ContainerSize, o outcome, bounds mdp.Bounds, knobs mdp.Set) mdp.Action {
	a := o.sets
	for _, one := range before {
		if one.Name != o.container || !SameLimits(one.Template, TemplateSize(o.template)) {
			continue
		}
		a = updater.Whole(bounds, Decided(one).Only(knobs)).With(a)
	}
	return a
}

// recommendation is the sizes that hold after a step.
func recommendation(all []outcome) []v1alpha1.ContainerSize {
	var sizes []v1alpha1.ContainerSize
	for _, o := range all {
		if o.sets.Sets.Without(mdp.SetOf(mdp.Replicas)) != 0 {
			sizes = append(sizes, containerSize(o))
		}
	}
	return sizes
}

// preservation is a State's SLO preservation as the status shows it.
func preservation(o mdp.SLO, s mdp.State) string {
	p, ok := o.Preservation(s)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%.2f", float64(p))
}

// apiSize is a size as the API writes it. Memory is rounded down to whole
// mebibytes.
func apiSize(s mdp.Size) *v1alpha1.Size {
	return &v1alpha1.Size{
		CPU:    resource.NewMilliQuantity(int64(s.CPU), resource.DecimalSI),
		Memory: resource.NewQuantity(int64(s.Memory/mdp.MiB*mdp.MiB), resource.BinarySI),
	}
}

// containerSize is what an outcome sets, as a recommendation.
func containerSize(o outcome) v1alpha1.ContainerSize {
	size := v1alpha1.ContainerSize{Name: o.container, Template: TemplateSize(o.template)}
	if o.sets.Sets.Has(mdp.CPUReservation) {
		size.Requests = &v1alpha1.Size{CPU: resource.NewMilliQuantity(int64(o.sets.Reservation), resource.DecimalSI)}
	}
	if o.sets.Sets.Has(mdp.MemoryLimit) {
		size.Limits.Memory = resource.NewQuantity(int64(o.sets.Limit.Memory), resource.BinarySI)
	}
	return size
}

// Decided is the inverse: the action that a recommendation was made from.
func Decided(size v1alpha1.ContainerSize) mdp.Action {
	var a mdp.Action
	if r := size.Requests; r != nil && r.CPU != nil {
		a = a.WithReservation(mdp.MilliCPU(r.CPU.MilliValue()))
	}
	if size.Limits.Memory != nil {
		a = a.WithMemory(mdp.Bytes(size.Limits.Memory.Value()))
	}
	return a
}

// TemplateSize is a template's limits as a recommendation has them. No limit is left out.
func TemplateSize(limits mdp.Size) *v1alpha1.Size {
	size := new(v1alpha1.Size)
	if limits.CPU > 0 {
		size.CPU = resource.NewMilliQuantity(int64(limits.CPU), resource.DecimalSI)
	}
	if limits.Memory > 0 {
		size.Memory = resource.NewQuantity(int64(limits.Memory), resource.BinarySI)
	}
	return size
}
