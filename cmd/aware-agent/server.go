package main

import (
	"context"
	"fmt"

	nodeapi "awarescale.dev/aware/nodeagent/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// server is the API server, as far as the agent reads it: pods and one ConfigMap. A whole
// clientset would bring the types of all groups, which more than double the binary and
// the memory that its pages take (ADR 20).
type server struct{ core rest.Interface }

// dial makes the client. Nothing is asked yet.
func dial(c *rest.Config) (server, error) {
	known := runtime.NewScheme()
	known.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.ConfigMap{})
	metav1.AddToGroupVersion(known, corev1.SchemeGroupVersion)
	own := rest.CopyConfig(c)
	own.APIPath, own.GroupVersion = "/api", &corev1.SchemeGroupVersion
	own.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	own.ContentType = runtime.ContentTypeProtobuf
	own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, err := rest.RESTClientFor(own)
	if err != nil {
		return server{}, fmt.Errorf("making a client for the API server: %w", err)
	}
	return server{core}, nil
}

// pod reads one pod.
func (s server) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	return p, s.core.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(p)
}

// pods lists and watches a node's pods that a selector selects.
func (s server) pods(node, selector string) cache.ListerWatcher {
	return cache.NewFilteredListWatchFromClient(s.core, "pods", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		o.LabelSelector = selector
	})
}

// authority reads the certificates that central's may be signed by, in PEM.
func (s server) authority(ctx context.Context, namespace string) ([]byte, error) {
	m := new(corev1.ConfigMap)
	if err := s.core.Get().Namespace(namespace).Resource("configmaps").Name(nodeapi.CAConfigMap).Do(ctx).Into(m); err != nil {
		return nil, err
	}
	return []byte(m.Data[nodeapi.CAKey]), nil
}
