package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/policy/guard"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Target is the workload to control.
type Target struct {
	Namespace string
	Kind      string // Deployment, StatefulSet or ReplicaSet
	Name      string
	Container string // whose limits are moved; empty is the first one that can be resized
}

func (t Target) String() string { return t.Namespace + "/" + t.Kind + "/" + t.Name }

// manager is the field manager of what is written here: what central resized is not
// restored here, and central does not restore what is resized here.
const manager = "aware-gym"

// kinds maps the names of kinds that users write to the kinds.
var kinds = map[string]string{"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet",
	"replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "rs": "ReplicaSet"}

// Parse reads a workload as NAMESPACE/KIND/NAME.
func Parse(s string) (Target, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return Target{}, fmt.Errorf(
			"workload %q: it must be NAMESPACE/KIND/NAME, such as prod/deployment/shop", s)
	}
	kind, known := kinds[strings.ToLower(parts[1])]
	if !known {
		return Target{}, fmt.Errorf("workload %q: kind %q: it must be deployment, statefulset or replicaset",
			s, parts[1])
	}
	return Target{Namespace: parts[0], Kind: kind, Name: parts[2]}, nil
}

// RefusedError says why a workload may not be moved.
type RefusedError struct {
	Workload string
	Why      string
}

func (e *RefusedError) Error() string { return "workload " + e.Workload + ": " + e.Why }

// patience is how long a resize may stay deferred before the workload is scaled
// out instead; central's default.
const patience = 2 * time.Minute

// recent is how old central's decision may be at the first Sense. Central decides
// every 10 s.
const recent = time.Minute

// Open makes an environment of the target. The client's user needs to read
// MultidimPodAutoscalers, the workload, its pods, PodDisruptionBudgets and other
// autoscalers, and to patch pods/resize and /scale.
func Open(ctx context.Context, c client.Client, t Target, step time.Duration,
	guards guard.Settings) (*workload.Running, error) {
	w := &world{client: c, target: t}
	mpa, loaded, err := w.load(ctx)
	if err != nil {
		return nil, err
	}
	why, err := w.forbidden(ctx, mpa)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return nil, &RefusedError{t.String(), why}
	}
	container, bounds, knobs, err := envelope(mpa, loaded, t.Container)
	if err != nil {
		return nil, err
	}
	w.target.Container, w.replicas = container, loaded.Replicas
	w.sensor = recommender.Sensor{Fleet: fleet.New(time.Minute), Container: container}
	w.updater = updater.Updater{
		Client:    c,
		Container: container,
		Bounds:    bounds,
		Knobs:     knobs,
		Patience:  patience,
		Manager:   manager,
	}
	objective := recommender.Objective(mpa.Spec)
	if err := objective.SLO.Check(); err != nil {
		return nil, &RefusedError{t.String(), "spec.slo: " + err.Error()}
	}
	return workload.Live(workload.Pair{Sensor: w, Actuator: w}, workload.Spaces{
		Workload: t.String(),
		Service:  container,
		Knobs:    knobs,
		Bounds:   bounds,
		Signals:  mdp.All,
		Step:     step,
		SLO:      objective.SLO,
		Guards:   guards,
	}, objective, w.restore)
}

// envelope is the container to control and how far, as central has it.
func envelope(mpa *v1alpha1.MultidimPodAutoscaler, w *updater.Workload,
	container string) (string, mdp.Bounds, mdp.Set, error) {
	var names []string
	for i, c := range w.Template.Spec.Containers {
		names = append(names, c.Name)
		if container != "" && container != c.Name {
			continue
		}
		bounds, knobs, err := recommender.Envelope(mpa.Spec.Constraints, c, w.Replicas)
		if err != nil {
			return "", bounds, 0, &RefusedError{w.Key(), err.Error()}
		}
		if mpa.Spec.Constraints.Replicas != nil && (i == 0 || container != "") {
			knobs |= mdp.SetOf(mdp.Replicas)
		}
		if knobs != 0 {
			return c.Name, bounds, knobs, nil
		}
	}
	if container != "" && !slices.Contains(names, container) {
		return "", mdp.Bounds{}, 0, &workload.NotFoundError{Key: "container", Value: container, Known: names}
	}
	return "", mdp.Bounds{}, 0, &RefusedError{w.Key(),
		"no container has a CPU or memory limit, and no replicas are given: there is nothing to move"}
}

// world is the workload as a Sensor and an Actuator. Both load it each time.
type world struct {
	client   client.Client
	target   Target
	sensor   recommender.Sensor
	updater  updater.Updater
	replicas int32 // when the environment was opened

	looked  bool      // Sense was called
	decided time.Time // central's decision that was read last
	why     string    // the reason of the last Act's effect
}

func (w *world) load(ctx context.Context) (*v1alpha1.MultidimPodAutoscaler, *updater.Workload, error) {
	var all v1alpha1.MultidimPodAutoscalerList
	if err := w.client.List(ctx, &all, client.InNamespace(w.target.Namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return nil, nil, &RefusedError{w.target.String(),
				"the cluster has no MultidimPodAutoscaler: AWARE is not installed there"}
		}
		return nil, nil, fmt.Errorf("listing the MultidimPodAutoscalers of namespace %s: %w",
			w.target.Namespace, err)
	}
	i := slices.IndexFunc(all.Items, func(m v1alpha1.MultidimPodAutoscaler) bool {
		return m.Spec.TargetRef.Kind == w.target.Kind && m.Spec.TargetRef.Name == w.target.Name
	})
	if i < 0 {
		return nil, nil, &RefusedError{w.target.String(),
			fmt.Sprintf("it has no MultidimPodAutoscaler: is its pod template labelled %s=true?",
				v1alpha1.ManagedLabel)}
	}
	loaded, err := updater.Load(ctx, w.client, w.target.Namespace, w.target.Kind, w.target.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil, &RefusedError{w.target.String(), err.Error()}
	}
	return &all.Items[i], loaded, err
}

// forbidden is why the workload may not be moved from here; empty when it may.
func (w *world) forbidden(ctx context.Context, mpa *v1alpha1.MultidimPodAutoscaler) (string, error) {
	mode, err := api.ParseMode(mpa.Spec.Mode)
	switch {
	case err != nil:
		return "spec.mode: " + err.Error(), nil
	case mode == api.Off:
		return "its mode is off, so central does not observe it: it must be observe or recommend", nil
	case mode != api.Observe && mode != api.Recommend:
		return fmt.Sprintf("its mode is %s, so central moves it: the mode must be observe or recommend", mode),
			nil
	case mpa.Spec.Paused:
		return "it is paused by its owner", nil
	}
	others, err := recommender.Conflicts(ctx, w.client, w.target.Namespace, w.target.Kind, w.target.Name)
	if err != nil {
		return "", err
	}
	if len(others) > 0 {
		return strings.Join(others, ", ") + " moves it already", nil
	}
	return "", nil
}

// Sense looks at the pods, and at central's decision since the last Sense.
func (w *world) Sense(ctx context.Context, now time.Time) (mdp.State, error) {
	mpa, loaded, err := w.load(ctx)
	if err != nil {
		return mdp.State{}, err
	}
	var figures mdp.State
	if d, ok := newest(mpa.Status.Decisions, w.target.Container); ok {
		at := d.Time.Time
		if w.looked && !at.Equal(w.decided) || !w.looked && now.Sub(at) < recent {
			figures = recommender.StateOf(d.Signals)
		}
		w.decided = at
	}
	w.looked = true
	w.sensor.Workload = loaded
	pods, err := w.sensor.Sense(ctx, now)
	if err != nil {
		return pods, err
	}
	// The API has the newest knobs; the rest is central's.
	figures.At = now
	for one := range mdp.SetOf(mdp.Replicas, mdp.MemoryLimit, mdp.CPUReservation, mdp.CPUCeiling).Signals() {
		figures.Observed = figures.Observed.Without(mdp.SetOf(one)) | pods.Observed&mdp.SetOf(one)
		one.SetInt(&figures, one.Int(&pods))
	}
	return figures, nil
}

// newest is central's last decision on a container. A decision names the
// container where the workload has several.
func newest(all []v1alpha1.DecisionStatus, container string) (v1alpha1.DecisionStatus, bool) {
	for _, d := range all {
		if d.Container == "" || d.Container == container {
			return d, true
		}
	}
	return v1alpha1.DecisionStatus{}, false
}

// Act moves the workload as central would, unless it may not.
func (w *world) Act(ctx context.Context, now time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	w.why = ""
	mpa, loaded, err := w.load(ctx)
	if err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	if w.why, err = w.forbidden(ctx, mpa); err != nil {
		return mdp.Action{}, mdp.Failed, err
	}
	if w.why != "" {
		return mdp.Action{}, mdp.Refused, nil
	}
	w.updater.Workload = loaded
	executed, effect, err := w.updater.Act(ctx, now, a)
	w.why = w.updater.Reason
	return executed, effect, err
}

// Why is the reason of the last Act.
func (w *world) Why() string { return w.why }

// restore gives the pods the template's sizes, and the workload its replicas. A
// workload that central or another autoscaler moves by now is left to it.
func (w *world) restore(ctx context.Context) error {
	mpa, loaded, err := w.load(ctx)
	var gone *RefusedError
	if errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	why, err := w.forbidden(ctx, mpa)
	switch mode := api.Mode(mpa.Spec.Mode); {
	case err != nil:
		return err
	case mode == api.Auto || mode == api.Canary:
		return nil
	case mpa.Spec.Paused:
		return &RefusedError{w.target.String(), "it was not restored: " + why}
	}
	if _, err := updater.Restore(ctx, w.client, loaded, manager, ""); err != nil {
		return fmt.Errorf("restoring the sizes of %s: %w", w.target, err)
	}
	if !w.updater.Knobs.Has(mdp.Replicas) || why != "" && mpa.Spec.Mode != string(api.Off) {
		return nil
	}
	scale := updater.Updater{
		Client:    w.client,
		Container: w.target.Container,
		Knobs:     mdp.SetOf(mdp.Replicas),
		Patience:  patience,
		Manager:   manager,
		Workload:  loaded,
		Bounds:    mdp.Bounds{Replicas: mdp.Range[int]{Min: int(w.replicas), Max: int(w.replicas)}},
	}
	_, effect, err := scale.Act(ctx, time.Now(), mdp.Action{}.WithReplicas(int(w.replicas)))
	if err == nil && effect == mdp.Refused {
		err = errors.New(scale.Reason)
	}
	if err != nil {
		return fmt.Errorf("restoring %s to %d replicas: %w", w.target, w.replicas, err)
	}
	return nil
}
