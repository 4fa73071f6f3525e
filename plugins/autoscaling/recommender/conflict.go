package recommender

import (
	"context"
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// peers are the kinds of other autoscalers. They need not be installed.
var peers = []struct {
	kind      schema.GroupVersionKind
	targetRef []string                             // where the object names its target
	acts      func(unstructured.Unstructured) bool // it moves its target, and does not only recommend
}{
	{
		schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"},
		[]string{"spec", "targetRef"},
		func(u unstructured.Unstructured) bool { // one that only recommends moves nothing
			mode, _, _ := unstructured.NestedString(u.Object, "spec", "updatePolicy", "updateMode")
			return mode != "Off"
		},
	},
	{
		schema.GroupVersionKind{Group: "keda.sh", Version: "v1alpha1", Kind: "ScaledObject"},
		[]string{"spec", "scaleTargetRef"},
		func(u unstructured.Unstructured) bool {
			paused := u.GetAnnotations()["autoscaling.keda.sh/paused"]
			return paused != "true"
		},
	},
}

// Conflicts names the objects of other autoscalers that move the same workload's knobs.
func Conflicts(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]string, error) {
	var found []string
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	if err := reader.List(ctx, &hpas, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing HorizontalPodAutoscalers: %w", err)
	}
	keda := map[string]bool{}
	for _, peer := range peers {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(peer.kind.GroupVersion().WithKind(peer.kind.Kind + "List"))
		if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			if meta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil {
				continue // not installed
			}
			return nil, fmt.Errorf("listing %ss: %w", peer.kind.Kind, err)
		}
		for _, item := range list.Items {
			target, _, _ := unstructured.NestedStringMap(item.Object, peer.targetRef...)
			targetKind := target["kind"]
			if targetKind == "" {
				targetKind = "Deployment" // KEDA's default
			}
			if targetKind == kind && target["name"] == name && peer.acts(item) {
				found = append(found, peer.kind.Kind+" "+item.GetName())
				keda["keda-hpa-"+item.GetName()] = true
			}
		}
	}
	for _, h := range hpas.Items {
		if h.Spec.ScaleTargetRef.Kind == kind && h.Spec.ScaleTargetRef.Name == name && !keda[h.Name] {
			found = append(found, "HorizontalPodAutoscaler "+h.Name)
		}
	}
	return found, nil
}

// joined lists names for people.
func joined(names []string) string { return strings.Join(names, ", ") }
