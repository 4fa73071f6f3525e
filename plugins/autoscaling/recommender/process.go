package recommender

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/optin"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxReportAge is how old a node's report may be.
const maxReportAge = 3 * api.ReportEvery

// object is what a process belongs to.
type object = v1alpha1.MultidimPodAutoscaler

// process is the decision process of one object: one loop for each container
// that may be resized. One goroutine uses it at a time.
type process struct {
	config     *Config
	namespace  string
	target     v1alpha1.TargetRef
	workload   string    // namespace/kind/name
	generation int64     // of the object at the last step; -1 before the first
	madeFor    string    // the fingerprint that the loops were made for
	madeAt     time.Time // when the loops were made
	loops      []*loop
	indicators indicators
	reading    slo.Reading // of the last step
	peak       mdp.Peak    // of the throughput
	stepped    time.Time   // when the last step was made
	pressed    atomic.Bool // a container is throttled at its ceiling, and no step has been made since
	margin     margin
	canary     canary
	ooms       oomLoops // nil before the first step
	acting     bool     // the last step could resize pods
	uncounted  int64    // resizes through the API that the status does not count yet
	report     report
}

// loop is the decision loop of one container.
type loop struct {
	mdp.Loop
	sensor  Sensor
	relief  relief // the policy, and more memory in an OOM loop
	updater updater.Updater
	// template is the limits that the workload's template gives the container; 0 is none.
	template mdp.Size
	knobs    mdp.Set // of the container and the workload; a canary moves fewer
	version  string  // of the policy
	last     mdp.Decision
}

// fingerprint is what loops are made for: when it changes, new ones are made.
// The mode, a pause and the word on evictions are not in it, so that a policy's memory outlives them.
func fingerprint(spec v1alpha1.MultidimPodAutoscalerSpec, template corev1.PodTemplateSpec) string {
	spec.Mode = ""
	spec.Paused = false
	spec.OOMEvict = false
	spec.Recommender = nil
	text, err := json.Marshal(spec)
	if err != nil {
		return err.Error() // it does not happen with quantities and strings
	}
	fingerprint := string(text)
	for _, c := range template.Spec.Containers {
		fingerprint += fmt.Sprintf("|%s %v %v", c.Name, updater.Limits(c.Resources), c.Resources.Requests)
	}
	return fingerprint
}

// rebuild makes the loops when the spec or the template has changed. The memory
// of the policies before is dropped, because it is of other bounds.
func (p *process) rebuild(now time.Time, mpa *object, w *updater.Workload) error {
	made := fingerprint(mpa.Spec, w.Template)
	if p.madeFor == made {
		return nil
	}
	objective := Objective(mpa.Spec)
	if err := objective.SLO.Check(); err != nil {
		return fmt.Errorf("spec.slo: %w", err)
	}
	if err := p.margin.follow(now, p.config.Budgets, mpa.Spec, objective.SLO, mpa.Status.Margin); err != nil {
		return err
	}
	loops, err := p.config.newLoops(mpa.Spec, objective, w)
	if err != nil {
		return err
	}
	p.loops = loops
	if p.peak == (mdp.Peak{}) {
		p.peak = p.life().Peak
	}
	p.madeAt = now
	p.indicators = newIndicators(mpa, objective.SLO.Percentile, p.config.Servers)
	p.madeFor = made
	return nil
}

// newLoops makes a loop for each container that may be moved. The first one
// decides on replicas as well.
func (c *Config) newLoops(
	spec v1alpha1.MultidimPodAutoscalerSpec, objective mdp.Objective, w *updater.Workload,
) ([]*loop, error) {
	constraints := spec.Constraints
	var loops []*loop
	for i, container := range w.Template.Spec.Containers {
		bounds, knobs, err := Envelope(constraints, container, w.Replicas)
		if err != nil {
			return nil, err
		}
		if i == 0 && constraints.Replicas != nil {
			knobs |= mdp.SetOf(mdp.Replicas)
		}
		if knobs == 0 {
			continue
		}
		request := PolicyRequest{
			Workload:  w.Key(),
			Container: container.Name,
			Objective: objective,
			Bounds:    bounds,
			First:     len(loops) == 0,
			Learner:   spec.Learner,
		}
		if r := constraints.Replicas; r != nil && r.ScaleInWindow != nil {
			request.ScaleIn = r.ScaleInWindow.Duration
		}
		policy, version, err := c.Policies(request)
		if err != nil {
			return nil, fmt.Errorf("the policy of container %s: %w", container.Name, err)
		}
		l := &loop{version: version, knobs: knobs, template: updater.Limits(container.Resources)}
		l.sensor = Sensor{Fleet: c.Fleet, Container: container.Name, MaxAge: maxReportAge, SLO: objective.SLO}
		l.updater = updater.Updater{
			Client:    c.Client,
			Container: container.Name,
			Bounds:    bounds,
			Knobs:     knobs,
			Patience:  c.Patience,
		}
		l.relief = relief{policy: policy, bounds: bounds}
		l.Loop = mdp.Loop{Sensor: &l.sensor, Objective: objective, Policy: &l.relief, Actuator: &l.updater}
		loops = append(loops, l)
	}
	if len(loops) == 0 {
		return nil, fmt.Errorf("%s: no container has a CPU or memory limit, and no replicas are given: "+
			"there is nothing to move", w.Key())
	}
	return loops, nil
}

// run brings the process and the object's status up to date. A step is made when
// it is due.
func (p *process) run(ctx context.Context, now time.Time, mpa *object, t subject) {
	p.sayReady(mpa)
	p.sayConflict(mpa, t.conflicts)
	p.say(mpa, paused(mpa.Spec.Paused))
	violated := false
	due := p.due(now) || p.generation != mpa.Generation
	if due {
		violated = p.measure(ctx, now, mpa, t)
	}
	p.chooseCanary(ctx, now, mpa, t, violated)
	if due {
		p.pressed.Store(false)
		p.step(ctx, now, mpa, t)
		p.stepped = now
		p.generation = mpa.Generation
	}
	p.grant(now, mpa, t)
	status := &mpa.Status
	status.Margin = p.margin.text()
	status.Replicas.Current = int32(t.workload.Ready())
	status.Effective = nil
	if len(p.loops) > 0 {
		container := p.loops[0].sensor.Container
		if size, ok := effective(p.config.Fleet, t.workload.Pods, container, now, maxReportAge); ok {
			status.Effective = apiSize(size)
		}
	}
}

// due reports whether a step is to be made. One comes before its time while a container
// is throttled at its ceiling: what helps it takes seconds to start.
func (p *process) due(now time.Time) bool {
	since := now.Sub(p.stepped)
	return since >= p.config.Step-100*time.Millisecond || p.pressed.Load() && since >= p.config.Pressing
}

// next is how long to wait for the next look.
func (p *process) next(now time.Time) time.Duration {
	at := p.stepped.Add(p.config.Step)
	if p.pressed.Load() {
		at = p.stepped.Add(p.config.Pressing)
	}
	return max(time.Second, at.Sub(now))
}

// measure reads latency and throughput, and writes into the status what was
// found. It reports whether a canary that is being moved violates the SLO.
func (p *process) measure(ctx context.Context, now time.Time, mpa *object, t subject) (violated bool) {
	mpa.Status.Latency = nil
	p.reading = p.indicators.read(ctx, now, p.config.Fleet, t.workload)
	if p.reading.Observed.Has(mdp.Throughput) {
		p.peak.See(now, p.reading.Throughput)
	}
	p.margin.observe(now, p.reading)
	if !p.indicators.has() {
		meta.RemoveStatusCondition(&mpa.Status.Conditions, v1alpha1.SLOObserved)
		return false
	}
	if p.reading.Observed.Has(mdp.Latency) {
		mpa.Status.Latency = &metav1.Duration{Duration: p.reading.Latency.Round(10 * time.Microsecond)}
	}
	waiting := now.Sub(p.madeAt) < 3*p.config.Step
	if c, ok := sloObserved(p.reading, len(t.workload.Pods), waiting); ok && p.say(mpa, c) &&
		c.reason == "Unreachable" {
		p.warn(mpa, "SLOUnreachable", "Read", c.message)
	}
	_, violated = violates(Objective(mpa.Spec).SLO, p.reading)
	return violated
}

// chooseCanary chooses the pod that may be moved in mode canary, and reverts a
// canary that violated the SLO.
func (p *process) chooseCanary(ctx context.Context, now time.Time, mpa *object, t subject, violated bool) {
	if t.mode != api.Canary {
		p.canary.pod = ""
		return
	}
	names := make([]string, len(t.workload.Pods))
	for i := range t.workload.Pods {
		names[i] = t.workload.Pods[i].Name
	}
	violated = violated && p.acting
	p.canary = p.canary.next(now, names, violated)
	if violated && len(names) > 0 {
		sp, _ := violates(Objective(mpa.Spec).SLO, p.reading)
		p.warn(
			mpa,
			"CanaryReverted",
			"Resize",
			fmt.Sprintf("the SLO is violated (preservation %.2f): the canary is restored, and there is none for %v",
				float64(sp), canaryHold),
		)
		p.restore(ctx, t.workload, "")
		p.acting = false
	}
}

// grant writes what the nodes may do with the workload's containers.
func (p *process) grant(now time.Time, mpa *object, t subject) {
	rule, level, _ := p.margin.rule(now)
	patience := p.margin.patience(now)
	all := make([]managed, len(p.loops))
	for i, l := range p.loops {
		all[i] = managed{
			container:   l.sensor.Container,
			bounds:      l.updater.Bounds,
			throttle:    throttleTarget(l.Objective.SLO, l.last.State),
			rule:        rule,
			margin:      level,
			patience:    patience,
			lateWindows: p.margin.lateWindows(),
		}
	}
	source := latencySource(mpa.Spec.SLO, t.workload.Template.Spec)
	p.config.Fleet.Grant(p.workload,
		grantsOf(t.workload.Pods, t.mode, mpa.Spec.Paused, p.canary.pod, all, source))
}

// say sets a condition of the object, and reports whether it changed.
func (p *process) say(mpa *object, c condition) (changed bool) {
	return c.set(mpa, p.config.Now())
}

// sayReady sets Ready. While annotations cannot be read, the process decides by the
// last good ones, which the spec has.
func (p *process) sayReady(mpa *object) {
	c := condition{v1alpha1.Ready, true, "Valid", "the spec is valid and the target is found"}
	a := meta.FindStatusCondition(mpa.Status.Conditions, optin.AnnotationsValid)
	if a != nil && a.Status == metav1.ConditionFalse {
		c = condition{v1alpha1.Ready, false, "InvalidAnnotation", a.Message}
	}
	if p.say(mpa, c) && !c.is {
		p.warn(mpa, c.reason, "Reconcile", c.message)
	}
}

// sayConflict sets ConflictDetected. A new conflict is an event as well.
func (p *process) sayConflict(mpa *object, others []string) {
	if c := conflict(others); p.say(mpa, c) && c.is {
		p.warn(mpa, "ConflictDetected", "Reconcile", c.message)
	}
}

// warn writes an event.
func (p *process) warn(mpa *object, reason, action, message string) {
	p.config.Events.Eventf(mpa, nil, corev1.EventTypeWarning, reason, action, "%s", message)
}
