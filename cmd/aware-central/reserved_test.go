package main

import (
	"math/rand/v2"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// other is a pod that is not managed, with a request in MiB.
func other(uid, node string, request int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	if request > 0 {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceMemory: *resource.NewQuantity(request<<20, resource.BinarySI),
		}
	}
	return p
}

// Whatever comes and goes, what is reserved is the sum of what is there.
func TestReservedIsTheSumOfThePods(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r, there := newReserved(), map[string]*corev1.Pod{}
	if _, ok := r.of("one"); ok {
		t.Error("before the API server has said anything, what is reserved is known")
	}
	if err := r.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	for step := range 3000 {
		uid, node := string(rune('a'+rng.IntN(20))), []string{"one", "two"}[rng.IntN(2)]
		p := other(uid, node, rng.Int64N(4)*64)
		var err error
		switch rng.IntN(10) {
		case 0, 1, 2:
			delete(there, uid)
			err = r.Delete(p)
		case 3:
			var all []any
			clear(there)
			for _, uid := range []string{"a", "x", "y"} {
				there[uid] = other(uid, node, 100)
				all = append(all, there[uid])
			}
			err = r.Replace(all, "")
		default:
			there[uid] = p
			err = r.Update(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range []string{"one", "two"} {
			var want mdp.Bytes
			for _, p := range there {
				if p.Spec.NodeName == node {
					want += mdp.Bytes(p.Spec.Containers[0].Resources.Requests.Memory().Value())
				}
			}
			if got, ok := r.of(node); !ok || got != want {
				t.Fatalf("step %d: %v reserved on node %s, want %v", step, got, node, want)
			}
		}
	}
	if err := r.Add(&corev1.Node{}); err == nil {
		t.Error("a node passes for a pod")
	}
}

// A node has for managed containers what others have not reserved. CPU is shared.
func TestTheRoomOfANodeIsWhatOthersHaveNotReserved(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("3500m"), corev1.ResourceMemory: resource.MustParse("7Gi"),
	}
	kept, err := onlyCapacity(n)
	if err != nil {
		t.Fatal(err)
	}
	p := &placement{reserved: newReserved()}
	if _, ok := p.Room("one"); ok {
		t.Error("without a cache a node's room is known")
	}
	p.from(fake.NewClientBuilder().WithObjects(kept.(*corev1.Node)).Build())
	if _, ok := p.Room("one"); ok {
		t.Error("without a list of pods a node's room is known")
	}
	for reserved, want := range map[int64]mdp.Size{
		0:     {CPU: 3500, Memory: 7 << 30},
		1024:  {CPU: 3500, Memory: 6 << 30},
		99999: {CPU: 3500},
	} {
		if err := p.reserved.Replace([]any{other("a", "one", reserved), other("b", "two", 512)}, ""); err != nil {
			t.Fatal(err)
		}
		if got, ok := p.Room("one"); !ok || got != want {
			t.Errorf("with %dMi reserved: %v, %v; want %v", reserved, got, ok, want)
		}
	}
	if _, ok := p.Room("nowhere"); ok {
		t.Error("a node that is not there has room")
	}
}
