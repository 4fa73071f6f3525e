package recommender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// subject is a workload as one reconciliation finds it.
type subject struct {
	workload  *updater.Workload
	mode      api.Mode // in force
	conflicts []string // other autoscalers that move the workload
}

// blocked says why a process cannot decide. The reason is that of the condition
// Ready.
type blocked struct {
	reason  string
	message string
	end     bool // the process ends, and what it did is restored
}

func (b *blocked) Error() string { return b.message }

// claimer reserves a workload for an object. When another object has it, ok is
// false and owner is that object's name.
type claimer func(workload string) (owner string, ok bool)

// load loads the object's workload, checks what the object asks for, and makes the
// loops when they are out of date. With an error the subject has the workload when
// it could be read and is this object's.
func (p *process) load(ctx context.Context, now time.Time, mpa *object, claim claimer) (subject, error) {
	w, err := loadWorkload(ctx, p.config.Client, mpa)
	if err != nil {
		return subject{}, err
	}
	if owner, ok := claim(w.Key()); !ok {
		message := fmt.Sprintf("MultidimPodAutoscaler %s already has %s", owner, w.Key())
		return subject{}, &blocked{reason: "TargetTaken", message: message}
	}
	known := subject{workload: w}
	mode, err := api.ParseMode(mpa.Spec.Mode)
	if err != nil {
		return known, &blocked{reason: "InvalidSpec", message: "spec.mode: " + err.Error()}
	}
	// With mode off nothing is decided, so that nothing can keep it from ending.
	if err := p.rebuild(now, mpa, w); err != nil && mode != api.Off {
		return known, &blocked{reason: "InvalidSpec", message: err.Error()}
	}
	conflicts, err := Conflicts(ctx, p.config.Client, mpa.Namespace, w.Kind, w.Object.GetName())
	if err != nil && mode != api.Off {
		return known, err
	}
	mode = modeInForce(mode, mpa.Spec.Recommender, len(conflicts) > 0)
	return subject{workload: w, mode: mode, conflicts: conflicts}, nil
}

// loadWorkload reads an object's workload, which must be opted in.
func loadWorkload(ctx context.Context, c client.Client, mpa *object) (*updater.Workload, error) {
	w, err := updater.Load(ctx, c, mpa.Namespace, mpa.Spec.TargetRef.Kind, mpa.Spec.TargetRef.Name)
	var none *updater.NoSelectorError
	switch {
	case errors.As(err, &none):
		return nil, &blocked{reason: "TargetWithoutSelector", message: err.Error()}
	case client.IgnoreNotFound(err) == nil && err != nil:
		return nil, &blocked{reason: "TargetNotFound", message: err.Error(), end: true}
	case err != nil:
		return nil, err
	}
	if !optin.OptedIn(w.Template) {
		return nil, &blocked{
			reason: "TargetNotLabelled",
			end:    true,
			message: fmt.Sprintf("the pod template of %s is not labelled %s=true, by which agents find its pods",
				w.Key(), v1alpha1.ManagedLabel),
		}
	}
	return w, nil
}

// recommendsElsewhere reports whether another program recommends, and writes it
// into the status.
func recommendsElsewhere(r *v1alpha1.Recommender) bool { return r != nil && r.Name != "aware" }

// modeInForce is the mode after a conflict, which leaves recommendations only,
// and after another recommender, which leaves observation only.
func modeInForce(mode api.Mode, r *v1alpha1.Recommender, conflict bool) api.Mode {
	if recommendsElsewhere(r) && mode != api.Off {
		return api.Observe
	}
	if conflict && (mode == api.Auto || mode == api.Canary) {
		return api.Recommend
	}
	return mode
}
