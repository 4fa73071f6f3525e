package recommender

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// step lets every loop decide once, and writes into the status what came of it.
func (p *process) step(ctx context.Context, now time.Time, mpa *object, t subject) {
	if t.mode == api.Off {
		p.restore(ctx, t.workload, "")
		p.acting = false
		p.endOOM(mpa)
		p.say(mpa, active(false, t.mode, mpa.Spec.Paused))
		return
	}
	acting := !mpa.Spec.Paused && (t.mode == api.Auto || p.canary.pod != "")
	if t.mode != api.Auto && !mpa.Spec.Paused {
		p.restore(ctx, t.workload, p.canary.pod) // the mode may have been auto before, and is less now
	}
	idle := "" // why nothing is moved
	switch {
	case acting:
	case mpa.Spec.Paused:
		idle = "paused"
	default:
		idle = "mode " + string(t.mode)
	}
	p.acting = acting
	p.watchOOM(now, mpa, t.workload)
	outcomes := make([]outcome, 0, len(p.loops))
	for _, l := range p.loops {
		l.sensor.Workload = t.workload
		l.sensor.Reading = p.reading
		l.sensor.Peak = p.peak
		l.updater.Workload = t.workload
		l.updater.Only = p.canary.pod
		outcomes = append(outcomes, p.decide(ctx, now, l, idle))
	}
	p.publish(ctx, now, mpa, t, outcomes, acting)
	p.relieve(ctx, now, mpa, t)
}

// decide makes one step of one loop. Nothing is moved when idle says why not.
func (p *process) decide(ctx context.Context, now time.Time, l *loop, idle string) outcome {
	l.Loop.Actuator = &l.updater
	if idle != "" {
		l.Loop.Actuator = refuse{}
	}
	l.updater.Knobs = l.knobs
	if p.canary.pod != "" {
		l.updater.Knobs = l.knobs.Without(mdp.SetOf(mdp.Replicas))
	}
	resizes := l.updater.Resizes
	begin := p.config.Now()
	d, err := l.Loop.Step(ctx, now)
	if err != nil {
		d.Effect = d.Effect.Worse(mdp.Refused)
	}
	if p.config.Decided != nil {
		p.config.Decided(p.config.Now().Sub(begin), d.Effect)
	}
	l.last = d
	o := outcome{
		container: l.sensor.Container,
		policy:    p.version(l),
		decision:  d,
		sets:      updater.Whole(l.updater.Bounds, d.Action.Only(l.knobs)),
		template:  l.template,
		reason:    l.updater.Reason,
		resizes:   l.updater.Resizes - resizes,
	}
	if life := p.life(); l == p.loops[0] && life.Departs {
		o.rule = life.Rule.String()
		if life.Tried && o.reason == "" {
			o.reason = "another action was tried, to see what it leads to"
		}
	}
	if l.relief.gave && o.reason == "" {
		o.reason = "memory is held up after OOM kills: see the condition OOMLoop"
	}
	if idle != "" {
		o.reason = idle
	}
	if err != nil {
		o.reason = err.Error()
	}
	logf.FromContext(ctx).Info("Decision", "workload", p.workload, "container", o.container,
		"inputs", Inputs(d.State), "action", d.Action.String(), "clippedBy", d.Action.Clipped.String(),
		"effect", d.Effect.String(), "reason", o.reason, "policy", o.policy, "rule", o.rule)
	return o
}

// publish writes the outcomes of a step into the status.
func (p *process) publish(ctx context.Context, now time.Time, mpa *object, t subject, outcomes []outcome, acting bool) {
	status := &mpa.Status
	for i := range outcomes {
		o, l := &outcomes[i], p.loops[i]
		p.uncounted += o.resizes
		o.sets = standing(status.Recommendation, *o, l.updater.Bounds, l.knobs)
	}
	all := decided(now, outcomes)
	record(status, all)
	if p.config.Log != nil {
		if err := p.config.Log.Add(client.ObjectKeyFromObject(mpa), all...); err != nil {
			logf.FromContext(ctx).Error(err, "Keeping decisions for readers", "workload", p.workload)
		}
	}
	if !recommendsElsewhere(mpa.Spec.Recommender) {
		status.Recommendation = recommendation(outcomes)
	}
	if c := resizeDeferred(outcomes); p.say(mpa, c) && c.is {
		p.warn(mpa, "ResizeDeferred", "Resize", c.message)
	}
	status.Resizes.Node = p.nodeResizes(now, t)
	p.say(mpa, active(acting, t.mode, mpa.Spec.Paused))
	if len(outcomes) == 0 {
		return
	}
	// The first container decides on replicas, and represents the workload.
	first := p.loops[0]
	d := outcomes[0].decision
	status.SLOPreservation = preservation(first.Objective.SLO, d.State)
	status.Replicas.Desired = t.workload.Replicas
	if d.Action.Sets.Has(mdp.Replicas) && first.knobs.Has(mdp.Replicas) {
		status.Replicas.Desired = int32(d.Action.Replicas)
	}
	p.learn(status, d, acting && t.mode == api.Auto)
	rule, _, why := p.margin.rule(now)
	status.Policy = &v1alpha1.PolicyStatus{Version: p.version(first), Source: "rule", NodeRule: string(rule)}
	if rule == api.Captain {
		status.Policy.NodeRule = "captain"
	}
	life := p.life()
	if life.Learned {
		status.Policy.Source = "learned"
	}
	status.Stage = cmp.Or(life.Stage, v1alpha1.StageInitialized)
	p.say(mpa, fallbackActive(first.version, life, why))
}

// life is where the workload's agent is; the zero Life where none is learned.
func (p *process) life() Life {
	if p.config.Episodes == nil {
		return Life{}
	}
	life, _ := p.config.Episodes.Life(p.workload)
	return life
}

// version is that of the policy that decided last for a container: an agent decides for the first one.
func (p *process) version(l *loop) string {
	if life := p.life(); life.Learned && l == p.loops[0] {
		return fmt.Sprintf("learned/%d", life.Generation)
	}
	return l.version
}

// learn gives a decision's experience to the learner, and writes the rewards of
// the last episodes into the status.
func (p *process) learn(status *v1alpha1.MultidimPodAutoscalerStatus, d mdp.Decision, acted bool) {
	episodes := p.config.Episodes
	if episodes == nil {
		return
	}
	if d.Complete {
		episodes.Record(p.workload, d.Transition, acted)
	}
	if mean, std, n, ok := episodes.Rewards(p.workload); ok {
		status.Reward = &v1alpha1.RewardStatus{
			Mean:     fmt.Sprintf("%.1f", mean),
			Std:      fmt.Sprintf("%.1f", std),
			Episodes: int32(n),
		}
	}
}

// nodeResizes is how many resizes the nodes' agents report for the workload.
func (p *process) nodeResizes(now time.Time, t subject) int64 {
	var n int64
	for i := range t.workload.Pods {
		for _, l := range p.loops {
			pod := &t.workload.Pods[i]
			if s, ok := p.config.Fleet.Summary(pod.Spec.NodeName, string(pod.UID), l.sensor.Container, now, maxReportAge); ok {
				n += int64(s.Resizes)
			}
		}
	}
	return n
}

// refuse is the actuator of a process that may not act.
type refuse struct{}

func (refuse) Act(context.Context, time.Time, mdp.Action) (mdp.Action, mdp.Effect, error) {
	return mdp.Action{}, mdp.Refused, nil
}
