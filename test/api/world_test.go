package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/mdp/mdptest"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// world is a workload in the API server as a pair of Sensor and Actuator. Like the
// reconciler, it loads the workload for each call.
type world struct {
	s       *shop
	sensor  recommender.Sensor
	updater updater.Updater
}

func (w *world) load(ctx context.Context) error {
	loaded, err := updater.Load(ctx, kube, w.s.namespace, "Deployment", "web")
	w.sensor.Workload, w.updater.Workload = loaded, loaded
	return err
}

func (w *world) Sense(ctx context.Context, now time.Time) (mdp.State, error) {
	if err := w.load(ctx); err != nil {
		return mdp.State{}, err
	}
	return w.sensor.Sense(ctx, now)
}

func (w *world) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	if err := w.load(ctx); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	return w.updater.Act(ctx, now, a)
}

// settle acts as the ReplicaSet's controller and the kubelet: it makes or deletes
// pods until their number is the desired one.
func (w *world) settle(t *testing.T) {
	t.Helper()
	var d appsv1.Deployment
	w.s.get(&d, "web")
	if err := w.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	have := w.sensor.Workload.Pods
	for i := len(have); i < int(*d.Spec.Replicas); i++ {
		w.s.pod(fmt.Sprintf("pod-%d", i))
	}
	for i := int(*d.Spec.Replicas); i < len(have); i++ {
		if err := kube.Delete(t.Context(), &have[i], client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheAPIServerIsAWorld(t *testing.T) {
	mdptest.World(t, func(t *testing.T) mdptest.Setup {
		s := open(t, "mode", "observe")
		bounds := mdp.Bounds{
			Replicas: mdp.Range[int]{Min: 1, Max: 1},
			CPU:      mdp.Range[mdp.MilliCPU]{Min: 100, Max: 700},
			Memory:   mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 256 * mdp.MiB},

			Reservation: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 690},
		}
		knobs := mdp.ReservedKnobs
		w := &world{
			s:      s,
			sensor: recommender.Sensor{Fleet: agents, Container: "web", MaxAge: time.Minute},
			updater: updater.Updater{
				Client:    kube,
				Container: "web",
				Bounds:    bounds,
				Knobs:     knobs,
				Patience:  time.Hour,
				Manager:   "test", // central restores what is its own, and this is not
			},
		}
		p := s.pod("pod-0")
		s.reports(100, nil, p)
		now := time.Now()
		return mdptest.Setup{
			Sensor:   w,
			Actuator: w,
			Bounds:   bounds,
			Knobs:    knobs,
			Now:      func() time.Time { return now },
			Advance: func(d time.Duration) {
				w.settle(t)
				s.reports(100, nil, p)
			},
		}
	})
}

// The same suite for a world whose only knob is the number of replicas.
func TestReplicasAreAWorld(t *testing.T) {
	mdptest.World(t, func(t *testing.T) mdptest.Setup {
		s := open(t, "mode", "observe")
		bounds := mdp.Bounds{
			Replicas: mdp.Range[int]{Min: 1, Max: 5},
			CPU:      mdp.Range[mdp.MilliCPU]{Min: 1, Max: 400},
			Memory:   mdp.Range[mdp.Bytes]{Min: 1, Max: 128 * mdp.MiB},
		}
		w := &world{
			s:      s,
			sensor: recommender.Sensor{Fleet: agents, Container: "web", MaxAge: time.Minute},
			updater: updater.Updater{
				Client:    kube,
				Container: "web",
				Bounds:    bounds,
				Knobs:     mdp.SetOf(mdp.Replicas),
				Patience:  time.Hour,
				Manager:   "test", // central restores what is its own, and this is not
			},
		}
		s.pod("pod-0")
		now := time.Now()
		return mdptest.Setup{
			Sensor:   w,
			Actuator: w,
			Bounds:   bounds,
			Knobs:    mdp.SetOf(mdp.Replicas),
			Now:      func() time.Time { return now },
			Advance:  func(time.Duration) { w.settle(t) },
		}
	})
}
