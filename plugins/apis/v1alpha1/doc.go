// Package v1alpha1 is AWARE's Kubernetes API, group autoscaling.awarescale.dev:
// the MultidimPodAutoscaler object, and the annotations and the label with
// which an application owner opts in on a pod template.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.awarescale.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "autoscaling.awarescale.dev", Version: "v1alpha1"}

// AddToScheme makes the types of this package known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MultidimPodAutoscaler{}, &MultidimPodAutoscalerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
