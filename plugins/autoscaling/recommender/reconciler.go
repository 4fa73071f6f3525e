// Package recommender runs one decision process for each MultidimPodAutoscaler.
// Every step it looks at the workload, lets the workload's policy decide, has the
// updater carry out the decision, grants the nodes' agents what they may do, and
// writes into the object's status what was observed, decided and done.
package recommender

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/decisions"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"awarescale.dev/aware/plugins/fleet"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// PolicyRequest is what a policy is made for.
type PolicyRequest struct {
	Workload  string // namespace/kind/name
	Container string
	Objective mdp.Objective
	Bounds    mdp.Bounds
	First     bool              // it is the container that represents the workload, and decides on replicas
	ScaleIn   time.Duration     // how far back a removal of replicas looks; 0: the owner does not say
	Learner   *v1alpha1.Learner // what the owner says of learning; nil: nothing
}

// Policies makes a workload's policy, and names its version.
type Policies func(PolicyRequest) (policy mdp.Policy, version string, err error)

// Episodes stores experience for the learner, and knows its rewards.
type Episodes interface {
	// Record stores one step of a workload. acted is false where nothing of what is decided is carried out, or not on all pods.
	Record(workload string, t mdp.Transition, acted bool)
	// Rewards sums up the last episodes; ok is false when there are none yet.
	Rewards(workload string) (mean, std float64, episodes int, ok bool)
	// Life is where the workload's agent is in its life; ok is false where none is learned.
	Life(workload string) (life Life, ok bool)
	// Forget ends what is kept of a workload that is not decided on any more.
	Forget(workload string)
}

// Life is where the agent of a workload is in its life (AWARE, Algorithm 1).
type Life struct {
	Stage      string // of v1alpha1's
	Why        string // of the stage
	Learned    bool   // the learned policy decided last
	Generation uint64 // of the learned policy; 0: there is none
	Trouble    string // what went wrong lately; empty: nothing
	// Departs says that the last decision leads to something else than what the rule wanted, which is Rule.
	Departs bool
	Rule    mdp.Action
	Tried   bool // the last decision was to see what another action leads to
	// Steps is in how many steps the policy has decided as it is, and Departed in how many of those it departed from the rule.
	Steps, Departed int
	// Peak is of the workload's throughput, also of before this object and this process.
	Peak mdp.Peak
}

// Config is what a Reconciler works with. All fields are needed, except for
// Servers, Budgets, Episodes, Log and Decided.
type Config struct {
	Client   client.Client
	Fleet    *fleet.Fleet
	Servers  *slo.Servers // that an SLO may be read from
	Policies Policies
	Budgets  Budgets // for the rule demand; nil: no workload may have it
	Episodes Episodes
	Log      *decisions.Log // of the decisions, for their readers
	Events   events.EventRecorder
	Now      func() time.Time
	// Decided is called after every decision, for metrics.
	Decided func(took time.Duration, effect mdp.Effect)
	// Step is the time between two decisions of a workload, 10 s as in AWARE.
	Step time.Duration
	// Pressing is the least time between two decisions of a workload while a container of
	// it is throttled at its ceiling; 0 is 2 s.
	Pressing time.Duration
	// StatusEvery is how often a status is written in which nothing material has
	// changed, at most. Zero is a minute.
	StatusEvery time.Duration
	// Patience is how long a resize may stay deferred before the workload is
	// scaled out instead.
	Patience time.Duration
}

// Reconciler is the controller of MultidimPodAutoscalers.
type Reconciler struct {
	config Config

	mu        sync.Mutex
	processes map[client.ObjectKey]*process
	owners    map[string]client.ObjectKey // of workloads: the object that decides
	waiting   map[client.ObjectKey]bool   // not looked at since the start; nil before the first listing
	listed    time.Time                   // when waiting was made
	opened    bool                        // the fleet was
	writes    *writes
	pressed   chan event.GenericEvent // objects whose workloads are throttled at their ceilings
}

// New makes a Reconciler.
func New(c Config) *Reconciler {
	if c.Pressing == 0 {
		c.Pressing = 2 * time.Second
	}
	r := &Reconciler{
		config:    c,
		processes: map[client.ObjectKey]*process{},
		owners:    map[string]client.ObjectKey{},
		writes:    newWrites(c.StatusEvery),
		pressed:   make(chan event.GenericEvent, 1024),
	}
	c.Fleet.Pressed = r.press
	return r
}

// press has a workload stepped before its time: it has all the CPU that its replicas may
// have, and it is not enough.
func (r *Reconciler) press(workload string) {
	r.mu.Lock()
	key, owned := r.owners[workload]
	p := r.processes[key]
	r.mu.Unlock()
	if !owned || p == nil || p.pressed.Swap(true) {
		return // nobody's, or it is known already
	}
	object := &v1alpha1.MultidimPodAutoscaler{}
	object.Namespace, object.Name = key.Namespace, key.Name
	select {
	case r.pressed <- event.GenericEvent{Object: object}:
	default: // too many at once: its next reconciliation finds it
	}
}

// SetupWithManager registers the controller. Several controllers in one program
// need different names.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, name string) error {
	if err := mgr.Add(manager.RunnableFunc(r.sweeps)); err != nil {
		return fmt.Errorf("adding the restorer: %w", err)
	}
	skip := true
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, annotationsChecked{})
	return ctrl.NewControllerManagedBy(mgr).Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, SkipNameValidation: &skip}).
		For(&v1alpha1.MultidimPodAutoscaler{}, builder.WithPredicates(changed)).
		WatchesRawSource(source.Channel(r.pressed, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(runsNow{})).
		Complete(r)
}

// ofPod is the object that decides on a pod's workload.
func (r *Reconciler) ofPod(ctx context.Context, pod client.Object) []ctrl.Request {
	kind, name, ok, err := updater.Owner(ctx, r.config.Client, pod.(*corev1.Pod))
	if err != nil {
		logf.FromContext(ctx).Error(err, "A new pod waits for its grants until the next step", "pod", client.ObjectKeyFromObject(pod))
	}
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key, owned := r.owners[updater.Key(pod.GetNamespace(), kind, name)]
	if !owned {
		return nil
	}
	return []ctrl.Request{{NamespacedName: key}}
}

// runsNow passes a pod that has begun to run: its containers need grants, and the next step may be far away.
type runsNow struct{ predicate.Funcs }

func (runsNow) Create(e event.CreateEvent) bool { return runs(e.Object) }

func (runsNow) Update(e event.UpdateEvent) bool { return runs(e.ObjectNew) && !runs(e.ObjectOld) }

func (runsNow) Delete(event.DeleteEvent) bool { return false }

func runs(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	return ok && updater.Running(pod)
}

// annotationsChecked passes updates in which the opt-in controller changed its
// condition AnnotationsValid.
type annotationsChecked struct{ predicate.Funcs }

func (annotationsChecked) Update(e event.UpdateEvent) bool {
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
	now := r.config.Now()
	if err := r.list(ctx, now); err != nil {
		return ctrl.Result{}, err
	}
	defer r.open(now)
	var mpa v1alpha1.MultidimPodAutoscaler
	err := r.config.Client.Get(ctx, request.NamespacedName, &mpa)
	switch {
	case apierrors.IsNotFound(err), err == nil && mpa.DeletionTimestamp != nil:
		r.forget(ctx, request.NamespacedName)
		r.looked(request.NamespacedName)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading MultidimPodAutoscaler %s: %w", request, err)
	}
	r.process(&mpa).report.into(&mpa)
	looked := r.reconcile(ctx, now, &mpa)
	p := r.process(&mpa)
	mpa.Status.Resizes.API += p.uncounted
	mpa.Status.ObservedGeneration = mpa.Generation
	p.uncounted = 0
	next := p.next(now)
	if looked {
		r.looked(request.NamespacedName)
	} else if !r.isOpen() {
		next = time.Second // the fleet waits for it
	}
	write, after := p.report.due(now, &mpa, r.writes)
	if after > 0 {
		next = min(next, after)
	}
	if !write {
		return ctrl.Result{RequeueAfter: next}, nil
	}
	if err := apply(ctx, r.config.Client, &mpa); err != nil {
		if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: time.Second}, nil // it is gone, or another one of the same name
		}
		return ctrl.Result{}, fmt.Errorf("writing the status of MultidimPodAutoscaler %s: %w", request, err)
	}
	p.report.wrote(now)
	return ctrl.Result{RequeueAfter: next}, nil
}

// reconcile runs the object's process. Everything it finds goes into the object's
// status. It reports whether it is known now what may be done with the workload's
// containers.
func (r *Reconciler) reconcile(ctx context.Context, now time.Time, mpa *object) (looked bool) {
	key := client.ObjectKeyFromObject(mpa)
	p := r.process(mpa)
	mpa.Status.Target = mpa.Spec.TargetRef.Kind + "/" + mpa.Spec.TargetRef.Name
	if mpa.Status.Stage == "" {
		mpa.Status.Stage = v1alpha1.StageInitialized
	}
	t, err := p.load(ctx, now, mpa, func(workload string) (string, bool) { return r.claim(key, workload) })
	if err == nil {
		p.run(ctx, now, mpa, t)
		return true
	}
	var why *blocked
	looked = errors.As(err, &why) || t.workload != nil
	if why == nil {
		why = &blocked{reason: "Error", message: err.Error()}
	}
	// The last good state stays: grants and sizes are left as they are.
	if p.generation < 0 {
		if t.workload != nil { // only the nodes know what their grants were
			r.config.Fleet.Grant(p.workload, heldGrants(t.workload))
		}
		r.release(key) // it never decided: another object may have the workload
	}
	if why.end {
		r.end(ctx, key, p)
	}
	if p.say(mpa, condition{v1alpha1.Ready, false, why.reason, why.message}) {
		p.warn(mpa, why.reason, "Reconcile", why.message)
	}
	p.say(mpa, condition{v1alpha1.Active, false, why.reason, "not decided: see Ready"})
	if p.stepped.IsZero() || now.Sub(p.stepped) >= r.config.Step {
		p.stepped = now
	}
	return looked
}

// list lists all objects once, so that the fleet is opened only after each was
// looked at.
func (r *Reconciler) list(ctx context.Context, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting != nil {
		return nil
	}
	var all v1alpha1.MultidimPodAutoscalerList
	if err := r.config.Client.List(ctx, &all); err != nil {
		return fmt.Errorf("listing MultidimPodAutoscalers: %w", err)
	}
	r.waiting = map[client.ObjectKey]bool{}
	r.listed = now
	for i := range all.Items {
		r.waiting[client.ObjectKeyFromObject(&all.Items[i])] = true
	}
	return nil
}

// looked notes that it is known what may be done with an object's workload.
func (r *Reconciler) looked(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, key)
}

// open opens the fleet after the last object was looked at. An object whose
// workload cannot be read is waited for as long as nodes keep the grants that an
// earlier instance of central gave them.
func (r *Reconciler) open(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting != nil && !r.opened && (len(r.waiting) == 0 || now.Sub(r.listed) > r.config.Fleet.TTL) {
		r.opened = true
		r.config.Fleet.Open()
	}
}

func (r *Reconciler) isOpen() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// OpenIfEmpty opens the fleet of a cluster in which nobody has opted in yet:
// nothing would be reconciled there.
func (r *Reconciler) OpenIfEmpty(ctx context.Context) error {
	now := r.config.Now()
	if err := r.list(ctx, now); err != nil {
		return err
	}
	r.open(now)
	return nil
}

// process is the object's process, which is made when there is none.
func (r *Reconciler) process(mpa *object) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(mpa)
	p := r.processes[key]
	if p != nil && p.report.uid != mpa.UID {
		p = nil // another object of the same name
	}
	if p == nil {
		p = &process{
			config:     &r.config,
			namespace:  mpa.Namespace,
			target:     mpa.Spec.TargetRef,
			workload:   updater.Key(mpa.Namespace, mpa.Spec.TargetRef.Kind, mpa.Spec.TargetRef.Name),
			generation: -1,
			report:     report{uid: mpa.UID},
		}
		r.processes[key] = p
		r.writes.count(len(r.processes))
	}
	return p
}

// claim reserves a workload for an object. When another object has it, ok is
// false and owner is that object's name.
func (r *Reconciler) claim(key client.ObjectKey, workload string) (owner string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if holder, taken := r.owners[workload]; taken && holder != key {
		return holder.Name, false
	}
	r.owners[workload] = key
	return key.Name, true
}

// release gives up an object's claim.
func (r *Reconciler) release(key client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for workload, holder := range r.owners {
		if holder == key {
			delete(r.owners, workload)
		}
	}
}

// forget ends the process of an object that is gone.
func (r *Reconciler) forget(ctx context.Context, key client.ObjectKey) {
	r.mu.Lock()
	p := r.processes[key]
	delete(r.processes, key)
	r.writes.count(len(r.processes))
	r.mu.Unlock()
	if r.config.Log != nil {
		r.config.Log.Forget(key)
	}
	if p != nil {
		r.end(ctx, key, p)
	}
}

// end ends a process: without grants the nodes restore their limits, and the pods'
// sizes in the API become the template's again. What cannot be restored now is
// restored by sweep. A workload that another object has by now is left to it.
func (r *Reconciler) end(ctx context.Context, key client.ObjectKey, p *process) {
	p.loops = nil
	p.ooms = nil
	p.madeFor = ""
	p.generation = -1
	r.mu.Lock()
	holder, taken := r.owners[p.workload]
	r.mu.Unlock()
	r.release(key)
	if taken && holder != key {
		return
	}
	r.config.Fleet.Grant(p.workload, nil)
	if r.config.Episodes != nil {
		r.config.Episodes.Forget(p.workload)
	}
	w, err := updater.Load(ctx, r.config.Client, p.namespace, p.target.Kind, p.target.Name)
	if err != nil {
		return // it is gone, or it cannot be read now
	}
	p.restore(ctx, w, "")
}
