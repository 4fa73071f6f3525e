// Package recommender runs one decision process for each MultidimPodAutoscaler: every step it looks at the workload,
// lets the workload's policy decide, has the updater carry that out, tells the nodes' agents what they may do, and
// writes into the object's status what was seen, decided and done.
package recommender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Brief is what a policy is made for.
type PolicyRequest struct {
	Workload  string // namespace/kind/name
	Container string
	SLO       mdp.SLO
	Bounds    mdp.Bounds
}

// Policies makes a workload's policy, and names its version.
type Policies func(PolicyRequest) (policy mdp.Policy, version string, err error)

// Episodes is where experience goes, and where rewards come back from; the learner's.
type Episodes interface {
	Record(workload string, t mdp.Transition)
	// Rewards sums up the last episodes; ok is false when there is nothing yet.
	Rewards(workload string) (mean, std float64, episodes int, ok bool)
}

// Reconciler is the controller. All fields are needed, but for Episodes and Decided.
type Reconciler struct {
	Client   client.Client
	Fleet    *fleet.Fleet
	Policies Policies
	Episodes Episodes
	Events   events.EventRecorder
	Now      func() time.Time
	Decided  func(took time.Duration, effect mdp.Effect) // told of every decision, for metrics; may be nil
	// Step is the time between two decisions of a workload, 10 s as in AWARE.
	Step time.Duration
	// Patience is how long a resize may stay deferred before the workload is scaled out instead.
	Patience time.Duration

	mu        sync.Mutex
	processes map[client.ObjectKey]*process
	waiting   map[client.ObjectKey]bool // not looked at since the start; nil before the first listing
}

// fresh is how old a node's report may be.
const maxReportAge = 5 * time.Second

// canaryHold is how long a canary whose SLO suffered is left alone.
const canaryHold = 5 * time.Minute

// process is the decision process of one object: one loop for each container that may be resized.
type process struct {
	key        string // of the workload
	generation int64
	made       string // what the loops were made for; see fingerprint
	began      time.Time
	loops      []*loop
	meter      *slo.Meter
	prometheus *slo.Prometheus
	reading    slo.Reading
	stepped    time.Time
	heldUntil  time.Time // canary
	acting     bool
	untold     int64 // resizes through the API that the status does not count yet
}

type loop struct {
	mdp.Loop
	sensor  Sensor
	updater updater.Updater
	knobs   mdp.Set // of the container and the workload; a canary moves fewer
	version string
	last    mdp.Decision
}

// SetupWithManager registers the controller; name tells several in one program apart.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	skip := true
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: &skip}).
		For(&v1alpha1.MultidimPodAutoscaler{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, annotationsTold{}))).
		Complete(r)
}

// annotationsTold passes updates in which the opt-in controller changed its word on the annotations.
type annotationsTold struct{ predicate.Funcs }

func (annotationsTold) Update(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.MultidimPodAutoscaler)
	after, ok2 := e.ObjectNew.(*v1alpha1.MultidimPodAutoscaler)
	if !ok1 || !ok2 {
		return false
	}
	a := meta.FindStatusCondition(before.Status.Conditions, optin.AnnotationsValid)
	b := meta.FindStatusCondition(after.Status.Conditions, optin.AnnotationsValid)
	return (a == nil) != (b == nil) || a != nil && (a.Status != b.Status || a.Message != b.Message)
}

// Reconcile brings one object up to date, and decides when a step is due.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := r.Now()
	if err := r.begin(ctx); err != nil {
		return ctrl.Result{}, err
	}
	defer r.seen(request.NamespacedName)
	var mpa v1alpha1.MultidimPodAutoscaler
	if err := r.Client.Get(ctx, request.NamespacedName, &mpa); err != nil {
		if client.IgnoreNotFound(err) == nil {
			r.forget(ctx, request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("reading MultidimPodAutoscaler %s: %w", request, err)
	}
	if mpa.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	before := mpa.DeepCopy()
	r.reconcile(ctx, now, &mpa)
	p := r.process(request.NamespacedName)
	mpa.Status.Resizes.API += p.untold
	mpa.Status.ObservedGeneration = mpa.Generation
	// Conditions are a list to a merge patch: with the resource version another writer's are not lost.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, &mpa, patch); client.IgnoreNotFound(err) != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{}, fmt.Errorf("writing the status of MultidimPodAutoscaler %s: %w", request, err)
	}
	p.untold = 0
	return ctrl.Result{RequeueAfter: max(time.Second, p.stepped.Add(r.Step).Sub(now))}, nil
}

// begin lists all objects once, so that the fleet is opened only when each has been looked at.
func (r *Reconciler) begin(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processes != nil {
		return nil
	}
	var all v1alpha1.MultidimPodAutoscalerList
	if err := r.Client.List(ctx, &all); err != nil {
		return fmt.Errorf("listing MultidimPodAutoscalers: %w", err)
	}
	r.processes, r.waiting = map[client.ObjectKey]*process{}, map[client.ObjectKey]bool{}
	for i := range all.Items {
		r.waiting[client.ObjectKeyFromObject(&all.Items[i])] = true
	}
	return nil
}

func (r *Reconciler) seen(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, key)
	if len(r.waiting) == 0 {
		r.Fleet.Open()
	}
}

// OpenIfEmpty opens the fleet of a cluster in which nobody has opted in yet: nothing would be reconciled there.
func (r *Reconciler) OpenIfEmpty(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.Fleet.Open()
	}
	return nil
}

func (r *Reconciler) process(key client.ObjectKey) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.processes[key] == nil {
		r.processes[key] = &process{generation: -1}
	}
	return r.processes[key]
}

// forget ends a process whose object is gone: no grants, so that the nodes put their limits back, and the pods'
// sizes in the API as the template has them.
func (r *Reconciler) forget(ctx context.Context, key client.ObjectKey) {
	r.mu.Lock()
	p := r.processes[key]
	delete(r.processes, key)
	r.mu.Unlock()
	if p == nil {
		return
	}
	r.Fleet.Grant(p.key, nil)
	r.restore(ctx, p)
}

// putBack resizes what the process resized to the template's values. It is best effort: a workload that is gone
// has nothing to put back.
func (r *Reconciler) restore(ctx context.Context, p *process) {
	if !p.acting {
		return
	}
	parts := strings.SplitN(p.key, "/", 3)
	w, err := updater.Load(ctx, r.Client, parts[0], parts[1], parts[2])
	if err != nil {
		return
	}
	for _, l := range p.loops {
		l.updater.Workload, l.updater.Only = w, ""
		if err := l.updater.Restore(ctx); err != nil {
			logf.FromContext(ctx).Error(err, "Putting sizes back", "workload", p.key)
			return
		}
	}
	p.acting = false
}

// verdict is a condition that stops a process.
type verdict struct{ reason, message string }

func (v *verdict) Error() string { return v.message }

// reconcile does the work; everything it finds goes into the object's status.
func (r *Reconciler) reconcile(ctx context.Context, now time.Time, mpa *v1alpha1.MultidimPodAutoscaler) {
	p := r.process(client.ObjectKeyFromObject(mpa))
	status := &mpa.Status
	status.Target = mpa.Spec.TargetRef.Kind + "/" + mpa.Spec.TargetRef.Name
	if status.Stage == "" {
		status.Stage = v1alpha1.StageInitialized
	}
	if p.key == "" { // what an instance before this one did is ours to put back
		p.acting = meta.IsStatusConditionTrue(status.Conditions, v1alpha1.Active)
	}
	w, mode, err := r.prepare(ctx, mpa, p)
	var stop *verdict
	if err != nil {
		// The last good state stays: grants and sizes are left as they are, and expire by themselves.
		if !errors.As(err, &stop) {
			stop = &verdict{"Error", err.Error()}
		}
		if r.condition(mpa, v1alpha1.Ready, false, stop.reason, stop.message) {
			r.Events.Eventf(mpa, nil, corev1.EventTypeWarning, stop.reason, "Reconcile", "%s", stop.message)
		}
		r.condition(mpa, v1alpha1.Active, false, stop.reason, "not decided: see Ready")
		if p.stepped.IsZero() || now.Sub(p.stepped) >= r.Step {
			p.stepped = now
		}
		return
	}
	r.condition(mpa, v1alpha1.Ready, true, "Valid", "the spec is valid and the target is found")
	r.condition(mpa, v1alpha1.Paused, mpa.Spec.Paused, pick(mpa.Spec.Paused, "PausedBySpec", "Running"), pick(mpa.Spec.Paused, "spec.paused holds everything as it is", "not paused"))
	if now.Sub(p.stepped) >= r.Step-100*time.Millisecond || p.generation != mpa.Generation {
		r.read(ctx, now, mpa, p, w)
		r.step(ctx, now, mpa, p, w, mode)
		p.stepped, p.generation = now, mpa.Generation
	}
	r.grant(mpa, p, w, mode, now)
	status.Replicas.Current = int32(w.Ready())
	status.Effective = nil
	if len(p.loops) > 0 {
		if size, ok := effective(r.Fleet, w.Pods, p.loops[0].sensor.Container, now, maxReportAge); ok {
			status.Effective = apiSize(size)
		}
	}
}

// prepare checks what the object asks for, loads the workload, and makes the loops when the spec is new. mode is the one
// in force: a conflict degrades it.
func (r *Reconciler) prepare(ctx context.Context, mpa *v1alpha1.MultidimPodAutoscaler, p *process) (*updater.Workload, api.Mode, error) {
	if c := meta.FindStatusCondition(mpa.Status.Conditions, optin.AnnotationsValid); c != nil && c.Status == metav1.ConditionFalse {
		return nil, "", &verdict{"InvalidAnnotation", c.Message}
	}
	mode, err := api.ParseMode(mpa.Spec.Mode)
	if err != nil {
		return nil, "", &verdict{"InvalidSpec", "spec.mode: " + err.Error()}
	}
	w, err := updater.Load(ctx, r.Client, mpa.Namespace, mpa.Spec.TargetRef.Kind, mpa.Spec.TargetRef.Name)
	var none *updater.NoSelectorError
	switch {
	case errors.As(err, &none):
		return nil, "", &verdict{"TargetWithoutSelector", err.Error()}
	case client.IgnoreNotFound(err) == nil && err != nil:
		return nil, "", &verdict{"TargetNotFound", err.Error()}
	case err != nil:
		return nil, "", err
	}
	if !optin.OptedIn(w.Template) {
		r.forget(ctx, client.ObjectKeyFromObject(mpa))
		return nil, "", &verdict{"TargetNotLabelled", fmt.Sprintf("the pod template of %s is not labelled %s=true, by which agents find its pods", w.Key(), v1alpha1.ManagedLabel)}
	}
	if owner, taken := r.taken(client.ObjectKeyFromObject(mpa), w.Key()); taken {
		return nil, "", &verdict{"TargetTaken", fmt.Sprintf("MultidimPodAutoscaler %s already has %s", owner.Name, w.Key())}
	}
	if made := fingerprint(mpa.Spec, w); p.made != made {
		if err := r.newLoops(mpa, p, w); err != nil {
			return nil, "", &verdict{"InvalidSpec", err.Error()}
		}
		p.made = made
	}
	conflicts, err := Conflicts(ctx, r.Client, mpa.Namespace, w.Kind, w.Object.GetName())
	if err != nil {
		return nil, "", err
	}
	if len(conflicts) > 0 {
		message := joined(conflicts) + " moves the same workload: AWARE only recommends until one of the two is gone"
		if r.condition(mpa, v1alpha1.ConflictDetected, true, "OtherAutoscaler", message) {
			r.Events.Eventf(mpa, nil, corev1.EventTypeWarning, "ConflictDetected", "Reconcile", "%s", message)
		}
		if mode == api.Auto || mode == api.Canary {
			mode = api.Recommend
		}
	} else {
		r.condition(mpa, v1alpha1.ConflictDetected, false, "NoConflict", "nobody else moves this workload")
	}
	if rec := mpa.Spec.Recommender; rec != nil && rec.Name != "aware" && mode != api.Off {
		mode = api.Observe
	}
	return w, mode, nil
}

// taken finds another object that has the workload already; the older process keeps it.
func (r *Reconciler) taken(self client.ObjectKey, workload string) (client.ObjectKey, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.processes {
		if key != self && p.key == workload && key.Namespace == self.Namespace {
			return key, true
		}
	}
	return client.ObjectKey{}, false
}

// fingerprint is what loops are made for: when it changes, new ones are made. The mode and a pause are not in it, so that
// what a policy has seen outlives them.
func fingerprint(spec v1alpha1.MultidimPodAutoscalerSpec, w *updater.Workload) string {
	spec.Mode, spec.Paused, spec.Recommender = "", false, nil
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error() // quantities and strings: it does not happen
	}
	fingerprint := string(text)
	for _, c := range w.Template.Spec.Containers {
		fingerprint += fmt.Sprintf("|%s %v %v", c.Name, updater.Limits(c.Resources), c.Resources.Requests)
	}
	return fingerprint
}

// make builds the loops of a spec. What was learned by policies before is given up: the bounds they knew are gone.
func (r *Reconciler) newLoops(mpa *v1alpha1.MultidimPodAutoscaler, p *process, w *updater.Workload) error {
	objective := Objective(mpa.Spec)
	if err := objective.SLO.Check(); err != nil {
		return fmt.Errorf("spec.slo: %w", err)
	}
	var loops []*loop
	for i, c := range w.Template.Spec.Containers {
		bounds, knobs, err := Envelope(mpa.Spec.Constraints, c, w.Replicas)
		if err != nil {
			return err
		}
		if i == 0 && mpa.Spec.Constraints.Replicas != nil {
			knobs |= mdp.SetOf(mdp.Replicas) // one container decides on replicas
		}
		if knobs == 0 {
			continue
		}
		policy, version, err := r.Policies(PolicyRequest{Workload: w.Key(), Container: c.Name, SLO: objective.SLO, Bounds: bounds})
		if err != nil {
			return fmt.Errorf("the policy of container %s: %w", c.Name, err)
		}
		l := &loop{version: version, knobs: knobs}
		l.sensor = Sensor{Fleet: r.Fleet, Container: c.Name, MaxAge: maxReportAge}
		l.updater = updater.Updater{Client: r.Client, Container: c.Name, Bounds: bounds, Knobs: knobs, Patience: r.Patience}
		l.Loop = mdp.Loop{Sensor: &l.sensor, Objective: objective, Policy: policy, Actuator: &l.updater}
		loops = append(loops, l)
	}
	if len(loops) == 0 {
		return fmt.Errorf("%s: no container has a CPU or memory limit, and no replicas are given: there is nothing to move", w.Key())
	}
	p.key, p.loops, p.began = w.Key(), loops, r.Now()
	p.meter, p.prometheus = nil, nil
	if s := mpa.Spec.SLO; s != nil {
		percentile := objective.SLO.Percentile
		if percentile == 0 {
			percentile = 99
		}
		if s.Source.Type == "prometheus" {
			var err error
			if p.prometheus, err = slo.NewPrometheus(s.Source.Server, s.Source.Metric, mpa.Namespace, mpa.Spec.TargetRef.Name, percentile); err != nil {
				return fmt.Errorf("spec.slo.source: %w", err)
			}
		} else {
			p.meter = slo.NewMeter(percentile)
		}
	}
	return nil
}

// read measures the SLO's indicators, and says in the status what was found.
func (r *Reconciler) read(ctx context.Context, now time.Time, mpa *v1alpha1.MultidimPodAutoscaler, p *process, w *updater.Workload) {
	p.reading = slo.Reading{}
	status := &mpa.Status
	status.Latency = nil
	switch {
	case p.prometheus != nil:
		p.reading = p.prometheus.Read(ctx, now)
	case p.meter != nil:
		byPod, problem := histograms(r.Fleet, w, now, maxReportAge)
		p.reading = p.meter.Read(now, byPod)
		if len(byPod) == 0 && problem != "" {
			p.reading.Problem = problem
		}
	default:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.SLOObserved)
		return
	}
	if p.reading.Observed.Has(mdp.Latency) {
		status.Latency = &metav1.Duration{Duration: p.reading.Latency.Round(10 * time.Microsecond)}
	}
	if p.reading.Observed == 0 && len(w.Pods) == 0 || p.reading.Observed == 0 && now.Sub(p.began) < 3*r.Step && p.reading.Problem == slo.Unread {
		r.condition(mpa, v1alpha1.SLOObserved, false, "Waiting", "the nodes' first figures are awaited")
		return
	}
	if p.reading.Problem != "" && p.reading.Observed == 0 {
		if r.condition(mpa, v1alpha1.SLOObserved, false, "Unreachable", p.reading.Problem) {
			r.Events.Eventf(mpa, nil, corev1.EventTypeWarning, "SLOUnreachable", "Read", "%s", p.reading.Problem)
		}
		return
	}
	if p.reading.Observed != 0 {
		r.condition(mpa, v1alpha1.SLOObserved, true, "Read", "latency and throughput are read")
	}
}

// step lets every loop decide once.
func (r *Reconciler) step(ctx context.Context, now time.Time, mpa *v1alpha1.MultidimPodAutoscaler, p *process, w *updater.Workload, mode api.Mode) {
	log := logf.FromContext(ctx)
	status := &mpa.Status
	if mode == api.Off {
		r.restore(ctx, p)
		r.condition(mpa, v1alpha1.Active, false, "ModeOff", "mode is off")
		return
	}
	canary := ""
	if mode == api.Canary {
		canary = r.canary(ctx, now, mpa, p, w)
	}
	acting := (mode == api.Auto || mode == api.Canary && canary != "") && !mpa.Spec.Paused
	if !acting && p.acting && !mpa.Spec.Paused {
		r.restore(ctx, p) // from auto to less: sizes go back to the template's
	}
	status.Recommendation = nil
	deferred := ""
	for i, l := range p.loops {
		l.sensor.Workload, l.sensor.Reading = w, p.reading
		l.updater.Workload, l.updater.Only = w, canary
		var actuator mdp.Actuator = &l.updater
		if !acting {
			actuator = refuse{}
		}
		l.updater.Knobs = l.knobs
		if canary != "" {
			l.updater.Knobs = l.knobs.Without(mdp.SetOf(mdp.Replicas))
		}
		l.Loop.Actuator = actuator
		resized := l.updater.Resizes
		begun := r.Now()
		d, err := l.Loop.Step(ctx, now)
		if err != nil {
			d.Effect = d.Effect.Worse(mdp.Refused)
		}
		if r.Decided != nil {
			r.Decided(r.Now().Sub(begun), d.Effect)
		}
		p.acting = p.acting || acting // an instance before this one may have resized, too
		p.untold += l.updater.Resizes - resized
		l.last = d
		reason := l.updater.Reason
		if !acting {
			reason = pick(mpa.Spec.Paused, "paused", "mode "+string(mode))
		}
		if err != nil {
			reason = err.Error()
		}
		if d.Effect == mdp.Deferred || d.Effect == mdp.Infeasible {
			deferred = pick(reason == "", "a node has no room for the resize of container "+l.sensor.Container+" now", reason)
		}
		log.Info("Decision", "workload", p.key, "container", l.sensor.Container, "inputs", Inputs(d.State), "action", d.Action.String(),
			"clippedBy", d.Action.Clipped.String(), "effect", d.Effect.String(), "reason", reason, "policy", l.version)
		record(status, metav1.NewTime(now), l, d, reason, len(p.loops) > 1)
		if d.Action.Sets.Has(mdp.CPULimit) || d.Action.Sets.Has(mdp.MemoryLimit) {
			status.Recommendation = append(status.Recommendation, v1alpha1.ContainerSize{Name: l.sensor.Container, Limits: *apiSizeOf(d.Action)})
		}
		if i == 0 {
			r.judge(status, p, l, d)
			status.Replicas.Desired = w.Replicas
			if d.Action.Sets.Has(mdp.Replicas) && l.knobs.Has(mdp.Replicas) {
				status.Replicas.Desired = int32(d.Action.Replicas)
			}
		}
	}
	if r.condition(mpa, v1alpha1.ResizeDeferred, deferred != "", pick(deferred != "", "NoRoom", "None"), pick(deferred != "", deferred, "no resize is deferred")) && deferred != "" {
		r.Events.Eventf(mpa, nil, corev1.EventTypeWarning, "ResizeDeferred", "Resize", "%s", deferred)
	}
	status.Resizes.Node = 0
	for i := range w.Pods {
		for _, l := range p.loops {
			if s, ok := r.Fleet.Summary(string(w.Pods[i].UID), l.sensor.Container, now, maxReportAge); ok {
				status.Resizes.Node += int64(s.Resizes)
			}
		}
	}
	r.condition(mpa, v1alpha1.Active, acting, pick(acting, "Acting", "NotActing"), pick(acting, "sizes and replicas are moved", "mode "+string(mode)+pick(mpa.Spec.Paused, ", paused", "")))
	if len(p.loops) > 0 {
		status.Policy = &v1alpha1.PolicyStatus{Version: p.loops[0].version, Source: "rule"}
		r.condition(mpa, v1alpha1.FallbackActive, true, "NoLearner", "no learned policy serves this workload: the rule "+p.loops[0].version+" decides")
	}
}

// judge writes SLO preservation and rewards.
func (r *Reconciler) judge(status *v1alpha1.MultidimPodAutoscalerStatus, p *process, l *loop, d mdp.Decision) {
	status.SLOPreservation = "unknown"
	if sp, ok := l.Objective.SLO.Preservation(d.State); ok {
		status.SLOPreservation = fmt.Sprintf("%.2f", float64(sp))
	}
	if r.Episodes == nil {
		return
	}
	if d.Complete {
		r.Episodes.Record(p.key, d.Transition)
	}
	if mean, std, n, ok := r.Episodes.Rewards(p.key); ok {
		status.Reward = &v1alpha1.RewardStatus{Mean: fmt.Sprintf("%.1f", mean), Std: fmt.Sprintf("%.1f", std), Episodes: int32(n)}
	}
}

// canary picks the one pod that may be moved: always the same, the first by name. When the SLO suffers it is put back
// and left alone for a while; then there is none.
func (r *Reconciler) canary(ctx context.Context, now time.Time, mpa *v1alpha1.MultidimPodAutoscaler, p *process, w *updater.Workload) string {
	if len(w.Pods) == 0 {
		return ""
	}
	state := mdp.State{Observed: p.reading.Observed, Latency: p.reading.Latency, Throughput: p.reading.Throughput}
	if sp, ok := Objective(mpa.Spec).SLO.Preservation(state); ok && sp < 1 && p.acting {
		p.heldUntil = now.Add(canaryHold)
		r.Events.Eventf(mpa, nil, corev1.EventTypeWarning, "CanaryReverted", "Resize", "the SLO is violated (preservation %.2f): the canary is put back for %v", float64(sp), canaryHold)
		r.restore(ctx, p)
	}
	if now.Before(p.heldUntil) {
		return ""
	}
	names := make([]string, len(w.Pods))
	for i := range w.Pods {
		names[i] = w.Pods[i].Name
	}
	return slices.Min(names)
}

// grant tells the nodes what they may do with the workload's containers.
func (r *Reconciler) grant(mpa *v1alpha1.MultidimPodAutoscaler, p *process, w *updater.Workload, mode api.Mode, now time.Time) {
	if mode == api.Off {
		r.Fleet.Grant(p.key, nil)
		return
	}
	source := api.Source{}
	if s := mpa.Spec.SLO; s != nil && s.Source.Type != "prometheus" {
		if port, err := optin.ResolvePort(s.Source.Port, w.Template.Spec); err == nil {
			source = api.Source{Port: port, Path: s.Source.Path, Metric: s.Source.Metric}
		}
	}
	canary := ""
	if mode == api.Canary && !now.Before(p.heldUntil) {
		for i := range w.Pods {
			if canary == "" || w.Pods[i].Name < canary {
				canary = w.Pods[i].Name
			}
		}
	}
	byNode := map[string][]api.Grant{}
	for i := range w.Pods {
		pod := &w.Pods[i]
		podMode := mode
		if mode == api.Canary {
			podMode = api.Mode(pick(pod.Name == canary, string(api.Auto), string(api.Recommend)))
		}
		for j, l := range p.loops {
			m := api.Grant{
				Container: api.ContainerRef{Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), Container: l.sensor.Container},
				Mode:      podMode, Paused: mpa.Spec.Paused, Bounds: l.updater.Bounds, Throttle: throttleTarget(l.Objective.SLO, l.last.State),
			}
			if j == 0 {
				m.Latency = source // one scrape for a pod
			}
			byNode[pod.Spec.NodeName] = append(byNode[pod.Spec.NodeName], m)
		}
	}
	r.Fleet.Grant(p.key, byNode)
}

// throttleTarget is the local policy's target: none while the SLO is violated, some while latency is far below it,
// little otherwise. (Autothrottle's Tower learns it; here it is a rule.)
func throttleTarget(o mdp.SLO, s mdp.State) mdp.Ratio {
	const little, some = 0.02, 0.1
	if o.Latency == 0 || !s.Knows(mdp.Latency) {
		return little
	}
	switch {
	case s.Latency > o.Latency:
		return 0
	case s.Latency < o.Latency/2:
		return some
	}
	return little
}

// refuse is the actuator of a process that may not act.
type refuse struct{}

func (refuse) Act(context.Context, time.Time, mdp.Action) (mdp.Action, mdp.Effect, error) {
	return mdp.Action{}, mdp.Refused, nil
}

// condition sets a condition, and tells whether its status changed.
func (r *Reconciler) condition(mpa *v1alpha1.MultidimPodAutoscaler, kind string, is bool, reason, message string) (changed bool) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	before := meta.FindStatusCondition(mpa.Status.Conditions, kind)
	changed = before == nil || before.Status != status || before.Reason != reason
	meta.SetStatusCondition(&mpa.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
		Message: message, ObservedGeneration: mpa.Generation, LastTransitionTime: metav1.NewTime(r.Now())})
	return changed
}

// Objective reads what a spec wants.
func Objective(spec v1alpha1.MultidimPodAutoscalerSpec) mdp.Objective {
	o := mdp.Objective{Alpha: 0.5}
	if spec.Objective != nil && !spec.Objective.Alpha.IsZero() {
		o.Alpha = mdp.Ratio(spec.Objective.Alpha.AsApproximateFloat64())
	}
	if s := spec.SLO; s != nil {
		if s.Latency != nil {
			o.SLO.Latency, o.SLO.Percentile = s.Latency.Threshold.Duration, float64(s.Latency.Percentile)
		}
		if s.Throughput != nil {
			o.SLO.Throughput = mdp.Rate(s.Throughput.AsApproximateFloat64())
		}
	}
	return o
}

// Least limits where nobody said anything: little enough to save, enough to start from.
const (
	leastCPU    mdp.MilliCPU = 50
	leastMemory              = 32 * mdp.MiB
)

// Envelope is what may be done with one container: the constraints of its name or of "*", the template's limit as
// the default upper end.
func Envelope(constraints v1alpha1.Constraints, c corev1.Container, replicas int32) (mdp.Bounds, mdp.Set, error) {
	var mine v1alpha1.ContainerConstraints
	for _, one := range constraints.Containers {
		if one.Name == c.Name || one.Name == "*" && mine.Name == "" {
			mine = one
		}
	}
	knobs := updater.Knobs(c)
	if len(mine.ControlledResources) > 0 {
		if !slices.Contains(mine.ControlledResources, corev1.ResourceCPU) {
			knobs = knobs.Without(mdp.SetOf(mdp.CPULimit))
		}
		if !slices.Contains(mine.ControlledResources, corev1.ResourceMemory) {
			knobs = knobs.Without(mdp.SetOf(mdp.MemoryLimit))
		}
	}
	limits := updater.Limits(c.Resources)
	b := mdp.Bounds{Replicas: mdp.Range[int]{Min: int(replicas), Max: int(replicas)}}
	if rc := constraints.Replicas; rc != nil {
		b.Replicas = mdp.Range[int]{Min: int(max(1, rc.Min)), Max: int(rc.Max)}
	}
	b.CPU = mdp.Range[mdp.MilliCPU]{Min: least(leastCPU, mdp.MilliCPU(c.Resources.Requests.Cpu().MilliValue())), Max: limits.CPU}
	b.Memory = mdp.Range[mdp.Bytes]{Min: least(leastMemory, mdp.Bytes(c.Resources.Requests.Memory().Value())), Max: limits.Memory}
	if s := mine.Min; s != nil {
		if s.CPU != nil {
			b.CPU.Min = mdp.MilliCPU(s.CPU.MilliValue())
		}
		if s.Memory != nil {
			b.Memory.Min = mdp.Bytes(s.Memory.Value())
		}
	}
	if s := mine.Max; s != nil {
		if s.CPU != nil {
			b.CPU.Max = mdp.MilliCPU(s.CPU.MilliValue())
		}
		if s.Memory != nil {
			b.Memory.Max = mdp.Bytes(s.Memory.Value())
		}
	}
	if !knobs.Has(mdp.CPULimit) { // never set: any range that passes
		b.CPU = mdp.Range[mdp.MilliCPU]{Min: 1, Max: max(1, limits.CPU)}
	}
	if !knobs.Has(mdp.MemoryLimit) {
		b.Memory = mdp.Range[mdp.Bytes]{Min: 1, Max: max(1, limits.Memory)}
	}
	if err := b.Check(); err != nil {
		return mdp.Bounds{}, 0, fmt.Errorf("constraints of container %s: %w", c.Name, err)
	}
	return b, knobs, nil
}

// least is the default lower end: the request where that is less.
func least[T ~int64](otherwise, request T) T {
	if request > 0 && request < otherwise {
		return request
	}
	return otherwise
}

// keptDecisions is how many decisions a status remembers.
const keptDecisions = 10

func record(status *v1alpha1.MultidimPodAutoscalerStatus, at metav1.Time, l *loop, d mdp.Decision, reason string, several bool) {
	inputs := Inputs(d.State)
	if several {
		inputs = "container " + l.sensor.Container + ": " + inputs
	}
	one := v1alpha1.DecisionStatus{Time: at, Inputs: inputs, Action: d.Action.String(), Effect: d.Effect.String(),
		Reason: reason, ClippedBy: d.Action.Clipped.Names(), Policy: l.version}
	status.Decisions = slices.Insert(status.Decisions, 0, one)
	if len(status.Decisions) > keptDecisions {
		status.Decisions = status.Decisions[:keptDecisions]
	}
}

// Inputs tells in words what a decision was made from; what was not observed is left out.
func Inputs(s mdp.State) string {
	var parts []string
	say := func(signal mdp.Signal, text string) {
		if s.Knows(signal) {
			parts = append(parts, text)
		}
	}
	say(mdp.Replicas, fmt.Sprintf("replicas=%d", s.Replicas))
	say(mdp.CPULimit, fmt.Sprintf("cpu-limit=%v", s.Limit.CPU))
	say(mdp.CPUUsage, fmt.Sprintf("cpu=%v", s.Usage.CPU))
	say(mdp.CPUPeak, fmt.Sprintf("cpu-peak=%v", s.CPUPeak))
	say(mdp.Throttled, fmt.Sprintf("throttled=%.2f", float64(s.Throttled)))
	say(mdp.MemoryLimit, fmt.Sprintf("memory-limit=%.0fMi", s.Limit.Memory.MiB()))
	say(mdp.MemoryUsage, fmt.Sprintf("memory=%.0fMi", s.Usage.Memory.MiB()))
	say(mdp.Latency, fmt.Sprintf("latency=%v", s.Latency.Round(100*time.Microsecond)))
	say(mdp.Throughput, fmt.Sprintf("throughput=%.1f/s", float64(s.Throughput)))
	if len(parts) == 0 {
		return "nothing observed"
	}
	return strings.Join(parts, " ")
}

func apiSize(s mdp.Size) *v1alpha1.Size {
	return &v1alpha1.Size{
		CPU:    resource.NewMilliQuantity(int64(s.CPU), resource.DecimalSI),
		Memory: resource.NewQuantity(int64(s.Memory/mdp.MiB*mdp.MiB), resource.BinarySI),
	}
}

func apiSizeOf(a mdp.Action) *v1alpha1.Size {
	size := apiSize(a.Limit)
	if !a.Sets.Has(mdp.CPULimit) {
		size.CPU = nil
	}
	if !a.Sets.Has(mdp.MemoryLimit) {
		size.Memory = nil
	}
	return size
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
