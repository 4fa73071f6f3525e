package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"awarescale.dev/aware/nodeagent/agent"
	nodeapi "awarescale.dev/aware/nodeagent/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// changed reports whether a change was said, and takes it.
func (w *watched) said() bool {
	select {
	case <-w.Changed():
		return true
	default:
		return false
	}
}

func running() *corev1.Pod {
	p := pod()
	p.Status.Phase = corev1.PodRunning
	return p
}

func TestPodsAreThoseThatRunAndOnlyWhatMattersIsNews(t *testing.T) {
	w := newWatched(server{})
	if w.Synced() || len(w.Snapshot()) != 0 {
		t.Error("pods are known before the API server has said anything")
	}
	pending := running()
	pending.UID, pending.Status.Phase = "p", corev1.PodPending
	if err := w.Replace([]any{running(), pending}, "1"); err != nil {
		t.Fatal(err)
	}
	if all := w.Snapshot(); !w.Synced() || !w.said() || len(all) != 1 || all[0].UID != "u" {
		t.Errorf("synced %v, pods %+v", w.Synced(), all)
	}
	probed := running()
	probed.ResourceVersion = "2"
	probed.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for name, step := range map[string]struct {
		do   func(any) error
		pod  *corev1.Pod
		said bool
		left int
	}{
		"news of a probe":                   {w.Update, probed, false, 1},
		"a pod that does not run yet":       {w.Add, pending, false, 1},
		"the end of a pod that did not run": {w.Delete, pending, false, 1},
	} {
		if err := step.do(step.pod); err != nil {
			t.Fatal(err)
		}
		if said := w.said(); said != step.said || len(w.Snapshot()) != step.left {
			t.Errorf("%s: said %v, %d pods", name, said, len(w.Snapshot()))
		}
	}
	resized := running()
	resized.Generation = 9 // which the kubelet has not seen yet
	if err := w.Update(resized); err != nil {
		t.Fatal(err)
	}
	if all := w.Snapshot(); !w.said() || len(all) != 1 || !all[0].Containers[0].ResizePending {
		t.Errorf("a resize is not news: %+v", all)
	}
	ended := running()
	ended.Status.Phase = corev1.PodSucceeded
	for _, gone := range []func() error{
		func() error { return w.Update(ended) },
		func() error { return w.Delete(running()) },
		func() error { return w.Replace(nil, "3") },
	} {
		if err := w.Add(running()); err != nil || !w.said() {
			t.Fatal(err)
		}
		if err := gone(); err != nil || !w.said() || len(w.Snapshot()) != 0 {
			t.Errorf("%v: a pod is gone, and there are %+v", err, w.Snapshot())
		}
	}
	if err := w.Add(&corev1.Node{}); err == nil {
		t.Error("a node was taken for a pod")
	}
}

// apiServer answers with objects by path, and with not found.
func apiServer(t *testing.T, objects map[string]any) server {
	t.Helper()
	encoder := scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var o any = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
		if found, ok := objects[r.URL.Path]; ok {
			o = found
		} else {
			w.WriteHeader(http.StatusNotFound)
		}
		switch o := o.(type) {
		case *corev1.Pod:
			_ = encoder.Encode(o, w)
		case *corev1.ConfigMap:
			_ = encoder.Encode(o, w)
		case *metav1.Status:
			_ = encoder.Encode(o, w)
		}
	}))
	t.Cleanup(s.Close)
	api, err := dial(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func TestFindReadsThePodOfThatUID(t *testing.T) {
	w := newWatched(apiServer(t, map[string]any{"/api/v1/namespaces/shop/pods/web": running()}))
	ref := nodeapi.ContainerRef{Namespace: "shop", Pod: "web", PodUID: "u"}
	if p, err := w.Find(t.Context(), ref); err != nil || p.UID != "u" || p.Containers[0].Limits.CPU != 300 {
		t.Errorf("%+v, %v", p, err)
	}
	ref.PodUID = "another"
	if _, err := w.Find(t.Context(), ref); !errors.Is(err, agent.ErrNoPod) {
		t.Errorf("a pod of the same name: %v", err)
	}
	ref.Pod = "gone"
	if _, err := w.Find(t.Context(), ref); !errors.Is(err, agent.ErrNoPod) {
		t.Errorf("a pod that is gone: %v", err)
	}
	away, err := dial(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	w.server = away
	if _, err := w.Find(t.Context(), ref); err == nil || errors.Is(err, agent.ErrNoPod) {
		t.Errorf("an API server that is away says that the pod is gone: %v", err)
	}
}

func TestTheAuthorityIsInItsConfigMap(t *testing.T) {
	m := &corev1.ConfigMap{Data: map[string]string{nodeapi.CAKey: "a certificate"}}
	api := apiServer(t, map[string]any{"/api/v1/namespaces/aware-system/configmaps/" + nodeapi.CAConfigMap: m})
	if pem, err := api.authority(t.Context(), "aware-system"); err != nil || string(pem) != "a certificate" {
		t.Errorf("%q, %v", pem, err)
	}
	if _, err := api.authority(t.Context(), "elsewhere"); err == nil {
		t.Error("there is none, and one was read")
	}
}
