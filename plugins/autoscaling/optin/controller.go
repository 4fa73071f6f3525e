// Package optin makes MultidimPodAutoscalers from the annotations that
// application owners put on pod templates.
//
// A template with the label awarescale.dev/managed=true opts its Deployment,
// StatefulSet or ReplicaSet in. The annotations under awarescale.dev/ are the
// settings. The object that is made belongs to the workload: it follows the
// annotations, and is deleted with the label. A user who needs more settings
// writes the object instead; then this package leaves the workload alone.
//
// A bad annotation is reported in an event on the workload, and in the object's
// condition AnnotationsValid. The last good spec stays.
package optin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// AnnotationsValid is the condition that says whether a workload's annotations could be
// read.
const AnnotationsValid = "AnnotationsValid"

// Controller follows the workloads of one kind.
type Controller struct {
	Client client.Client
	Events events.EventRecorder
	Kind   string // Deployment, StatefulSet or ReplicaSet
}

// Kinds are the workloads that can opt in.
var Kinds = []string{"Deployment", "StatefulSet", "ReplicaSet"}

// SetupWithManager registers the controller.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	skip := true
	return ctrl.NewControllerManagedBy(mgr).Named("optin-" + strings.ToLower(c.Kind)).
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(c.object()).Owns(&v1alpha1.MultidimPodAutoscaler{}).Complete(c)
}

// object is an empty object of the controller's kind.
func (c *Controller) object() client.Object {
	switch c.Kind {
	case "Deployment":
		return &appsv1.Deployment{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}
	}
	panic("optin: kind " + c.Kind + ": it must be one of " + strings.Join(Kinds, ", "))
}

// template is a workload's pod template.
func template(o client.Object) corev1.PodTemplateSpec {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Template
	case *appsv1.StatefulSet:
		return w.Spec.Template
	case *appsv1.ReplicaSet:
		return w.Spec.Template
	}
	panic(fmt.Sprintf("optin: %T is not a workload", o))
}

// Reconcile makes, updates or deletes the object of one workload.
func (c *Controller) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	err := c.reconcile(ctx, request)
	if apierrors.IsConflict(err) { // another writer was faster: nothing is wrong
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{}, err
}

func (c *Controller) reconcile(ctx context.Context, request ctrl.Request) error {
	w := c.object()
	if err := c.Client.Get(ctx, request.NamespacedName, w); err != nil {
		return client.IgnoreNotFound(err) // what it owned is garbage collected
	}
	if owner := metav1.GetControllerOf(w); w.GetDeletionTimestamp() != nil ||
		owner != nil && owner.Kind == "Deployment" {
		return nil
	}
	pod := template(w)
	mine, others, err := c.existing(ctx, w)
	if err != nil {
		return err
	}
	if !OptedIn(pod) {
		if Mentions(pod) {
			c.Events.Eventf(w, nil, corev1.EventTypeWarning, "OptInIncomplete", "OptIn",
				"the pod template has annotations under %s, but not the label %s=true: nothing is done",
				v1alpha1.Prefix, v1alpha1.ManagedLabel)
		}
		if mine != nil {
			if err := c.Client.Delete(ctx, mine); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("opting %s %s out: %w", c.Kind, request, err)
			}
			c.Events.Eventf(w, nil, corev1.EventTypeNormal, "OptedOut", "OptIn",
				"the label %s is gone: sizes are restored", v1alpha1.ManagedLabel)
		}
		return nil
	}
	if others {
		return nil // a user wrote the object
	}
	spec, errs := Parse(pod)
	if len(errs) > 0 {
		return c.refuse(ctx, w, mine, errors.Join(errs...))
	}
	spec.TargetRef = v1alpha1.TargetRef{APIVersion: "apps/v1", Kind: c.Kind, Name: w.GetName()}
	return c.ensure(ctx, w, mine, spec)
}

// existing finds the object that was generated for the workload. others says
// whether there is one that was not generated.
func (c *Controller) existing(ctx context.Context,
	w client.Object) (mine *v1alpha1.MultidimPodAutoscaler, others bool, err error) {
	var all v1alpha1.MultidimPodAutoscalerList
	if err := c.Client.List(ctx, &all, client.InNamespace(w.GetNamespace())); err != nil {
		return nil, false, fmt.Errorf("listing MultidimPodAutoscalers: %w", err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		if one.Spec.TargetRef.Kind != c.Kind || one.Spec.TargetRef.Name != w.GetName() {
			continue
		}
		if one.Labels[v1alpha1.GeneratedLabel] == "true" && metav1.IsControlledBy(one, w) {
			mine = one
		} else {
			others = true
		}
	}
	return mine, others, nil
}

// name is the object's name: the workload's. Kinds other than Deployment are
// part of it, because two kinds can share a name.
func (c *Controller) name(w client.Object) string {
	if c.Kind == "Deployment" {
		return w.GetName()
	}
	return w.GetName() + "-" + strings.ToLower(c.Kind)
}

func (c *Controller) create(ctx context.Context, w client.Object,
	spec v1alpha1.MultidimPodAutoscalerSpec) (*v1alpha1.MultidimPodAutoscaler, error) {
	mpa := &v1alpha1.MultidimPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.GetNamespace(),
			Name:      c.name(w),
			Labels:    map[string]string{v1alpha1.GeneratedLabel: "true"},
		},
		Spec: spec,
	}
	if err := ctrl.SetControllerReference(w, mpa, c.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("owning MultidimPodAutoscaler %s: %w", mpa.Name, err)
	}
	if err := c.Client.Create(ctx, mpa); err != nil {
		return nil, fmt.Errorf("creating MultidimPodAutoscaler %s/%s: %w", mpa.Namespace, mpa.Name, err)
	}
	return mpa, nil
}

// ensure makes or updates the object, so that it has the spec of the annotations.
func (c *Controller) ensure(ctx context.Context, w client.Object, mine *v1alpha1.MultidimPodAutoscaler,
	spec v1alpha1.MultidimPodAutoscalerSpec) error {
	if mine == nil {
		mpa, err := c.create(ctx, w, spec)
		if err != nil {
			if apierrors.IsInvalid(err) {
				c.Events.Eventf(w, nil, corev1.EventTypeWarning, "InvalidAnnotation", "OptIn", "%v", err)
				return nil
			}
			return err
		}
		c.Events.Eventf(w, nil, corev1.EventTypeNormal, "OptedIn", "OptIn", "MultidimPodAutoscaler %s, mode %s",
			mpa.Name, spec.Mode)
		return c.setCondition(ctx, mpa, metav1.ConditionTrue, "Read",
			"the annotations of "+spec.TargetRef.Kind+" "+w.GetName()+" are read")
	}
	if want := merged(mine.Spec, spec); !apiequality.Semantic.DeepEqual(mine.Spec, want) {
		before := mine.DeepCopy()
		mine.Spec = want
		if err := c.Client.Patch(ctx, mine, client.MergeFrom(before)); err != nil {
			if apierrors.IsInvalid(err) {
				mine.Spec = before.Spec
				return c.refuse(ctx, w, mine, err)
			}
			return fmt.Errorf("updating MultidimPodAutoscaler %s/%s: %w", mine.Namespace, mine.Name, err)
		}
	}
	return c.setCondition(ctx, mine, metav1.ConditionTrue, "Read",
		"the annotations of "+spec.TargetRef.Kind+" "+w.GetName()+" are read")
}

// merged is the spec of the annotations. What annotations cannot set stays as it is.
func merged(now, want v1alpha1.MultidimPodAutoscalerSpec) v1alpha1.MultidimPodAutoscalerSpec {
	if now.Learner != nil {
		mine := *now.Learner
		mine.Rule, mine.Budget, mine.Windows = "", "", "" // of annotations
		if want.Learner != nil {
			mine.Rule, mine.Budget, mine.Windows = want.Learner.Rule, want.Learner.Budget, want.Learner.Windows
		}
		want.Learner = &mine
		if mine == (v1alpha1.Learner{}) {
			want.Learner = nil
		}
	}
	want.Recommender = now.Recommender
	want.Objective = now.Objective
	return want
}

// refuse reports annotations that cannot be read: on the workload, and on the object. A
// workload that has no object yet gets one with mode off, which has the condition.
func (c *Controller) refuse(ctx context.Context, w client.Object, mine *v1alpha1.MultidimPodAutoscaler,
	problem error) error {
	message := strings.ReplaceAll(problem.Error(), "\n", "; ")
	if mine == nil {
		var err error
		mine, err = c.create(ctx, w, v1alpha1.MultidimPodAutoscalerSpec{Mode: string(api.Off),
			TargetRef: v1alpha1.TargetRef{APIVersion: "apps/v1", Kind: c.Kind, Name: w.GetName()}})
		if err != nil {
			return err
		}
	}
	if was := meta.FindStatusCondition(mine.Status.Conditions, AnnotationsValid); was == nil ||
		was.Message != message {
		c.Events.Eventf(w, nil, corev1.EventTypeWarning, "InvalidAnnotation", "OptIn", "%s", message)
	}
	return c.setCondition(ctx, mine, metav1.ConditionFalse, "InvalidAnnotation", message)
}

// Manager is the field manager of the condition AnnotationsValid.
const Manager = "aware-optin"

// setCondition writes the condition AnnotationsValid, and nothing else of the
// status: conditions of other writers stay.
func (c *Controller) setCondition(ctx context.Context, mpa *v1alpha1.MultidimPodAutoscaler,
	status metav1.ConditionStatus, reason, message string) error {
	if !meta.SetStatusCondition(&mpa.Status.Conditions, metav1.Condition{Type: AnnotationsValid, Status: status,
		Reason: reason, Message: message, ObservedGeneration: mpa.Generation}) {
		return nil
	}
	condition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(
		meta.FindStatusCondition(mpa.Status.Conditions, AnnotationsValid))
	if err != nil {
		return fmt.Errorf("converting the condition %s: %w", AnnotationsValid, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{condition}}}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MultidimPodAutoscaler"))
	u.SetNamespace(mpa.Namespace)
	u.SetName(mpa.Name)
	u.SetUID(mpa.UID) // not another object of the same name
	if err := c.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(Manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing the status of MultidimPodAutoscaler %s/%s: %w", mpa.Namespace, mpa.Name, err)
	}
	return nil
}
