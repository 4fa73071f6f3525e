package recommender

import (
	"context"
	"fmt"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Evicting a pod out of an OOM loop gives the container a pod whose group has the limit
// that the API says. It starts with the template's size. So it helps where the size was
// made smaller than the template's; where the template's is too small, it helps a container
// that lives until the next step resizes it, and not one that takes its memory at once.
const (
	// oomPatience is how long a container may stay down after more memory was asked for,
	// when that has not helped: it was killed again, or the kubelet has not resized it.
	oomPatience = time.Minute
	// oomBackOff is how long it may stay down otherwise. A kubelet waits up to 5 minutes
	// before it starts a container again, which may be all that is missing.
	oomBackOff = 6 * time.Minute
	// oomEvery is the time between two evictions of a workload's pods, at least.
	oomEvery = 10 * time.Minute
	// oomHopeless is how long no pod is evicted again whose template has no more
	// memory than the last one that was evicted.
	oomHopeless = 24 * time.Hour
	// oomRetry is when a refused eviction is tried again; it doubles up to oomRetryMost.
	oomRetry     = 30 * time.Second
	oomRetryMost = 5 * time.Minute
)

// oomCase is what is known of one loop, besides its track, when it is decided whether
// its pod is evicted.
type oomCase struct {
	now        time.Time
	pod        *corev1.Pod
	wanted     mdp.Bytes // the memory limit that was decided; 0 is none
	most       mdp.Bytes // that its owner allows
	template   mdp.Bytes // of the template; 0 is none
	allowed    bool      // by the owner
	acting     bool      // in mode auto, and not paused
	controlled bool      // AWARE may move the container's memory
	last       *v1alpha1.OOMEviction
}

// verdict decides whether a pod in an OOM loop is evicted now, and says what is the
// matter, for the loop's owner.
func (t *oomTrack) verdict(c oomCase) (evict bool, why string) {
	switch {
	case !t.down:
		return false, "it runs again, and is watched until it has run for " + minutes(oomWindow)
	case !c.controlled || t.spec == 0:
		return false, "AWARE does not move this container's memory: raise what limits it"
	case c.wanted <= t.began || c.wanted > c.most:
		return false, fmt.Sprintf("its memory may not be above %s: allow more with max-memory, or raise the template's limit",
			mebibytes(c.most))
	case !c.acting:
		return false, fmt.Sprintf("AWARE would give it %s, and resizes it in mode auto only: raise the template's limit",
			mebibytes(c.wanted))
	}
	asked := mebibytes(c.wanted) + " is asked for"
	switch last := c.last; {
	case !c.allowed:
		return false, asked + "; a kubelet may not lift the limit of the pod's own group while the container is down: " +
			"if it stays down, delete the pod, or let AWARE evict it once with the annotation " + v1alpha1.OOMEvictAnnotation
	case metav1.GetControllerOf(c.pod) == nil:
		return false, asked + "; the pod is not evicted, because nothing would replace it"
	case last != nil && last.UID == c.pod.UID:
		return false, asked + "; the pod was evicted, and ends"
	case last != nil && c.now.Sub(last.Time.Time) < oomEvery:
		return false, fmt.Sprintf("%s; pod %s was evicted less than %s ago, and one pod is evicted in that time",
			asked, last.Pod, minutes(oomEvery))
	case last != nil && c.now.Sub(last.Time.Time) < oomHopeless && c.template <= mdp.Bytes(last.MemoryLimit.Value()):
		return false, fmt.Sprintf("%s; evicting pod %s did not help, because a new pod starts with the template's %s: raise that",
			asked, last.Pod, mebibytes(c.template))
	case c.now.Sub(t.asked) < t.patience():
		return false, fmt.Sprintf("%s; if the container is killed again, or does not start within %s, the pod is evicted", asked,
			minutes(oomBackOff))
	case c.now.Before(t.retry):
		return false, asked + "; " + t.refusal
	}
	return true, asked + "; the pod is evicted" + c.hint(t.began)
}

// patience is how long the container may stay down after more memory was asked for.
func (t *oomTrack) patience() time.Duration {
	if t.again || !t.settled {
		return oomPatience
	}
	return oomBackOff
}

// hint says what an eviction cannot solve, of a container that was too small with had.
func (c oomCase) hint(had mdp.Bytes) string {
	if c.template > had {
		return ""
	}
	return fmt.Sprintf(". A new pod starts with the template's %s, which was too small, and has to live until it is resized: "+
		"raise the template's limit", mebibytes(c.template))
}

// refused notes that an eviction was refused.
func (t *oomTrack) refused(now time.Time, err error) {
	wait := min(oomRetry<<min(t.tries, 10), oomRetryMost)
	t.tries++
	t.retry = now.Add(wait)
	by := "the eviction failed"
	if apierrors.IsTooManyRequests(err) {
		by = "a PodDisruptionBudget does not allow to evict the pod now"
	}
	t.refusal = fmt.Sprintf("%s (%v): it is tried again in %v", by, err, wait)
}

// watchOOM looks for OOM loops before a step, so that its decisions relieve them.
func (p *process) watchOOM(now time.Time, mpa *object, w *updater.Workload) {
	if p.ooms == nil {
		p.ooms = oomLoops{}
	}
	p.ooms.look(now, w)
	for _, l := range p.loops {
		name := l.sensor.Container
		l.sensor.killed = p.ooms.fresh(name)
		l.relief.least = p.ooms.least(name)
		last := mpa.Status.LastOOMEviction
		if last != nil && last.Container == name && now.Sub(last.Time.Time) < oomWindow {
			l.relief.least = max(l.relief.least, mdp.Bytes(last.Wanted.Value())) // for the pod that replaces it
		}
	}
}

// endOOM forgets the loops, and says nothing of them any more.
func (p *process) endOOM(mpa *object) {
	p.ooms = nil
	meta.RemoveStatusCondition(&mpa.Status.Conditions, v1alpha1.OOMLoop)
}

// relieve says which OOM loops there are after a step, and evicts a pod where its owner
// allows it and nothing else has helped.
func (p *process) relieve(ctx context.Context, now time.Time, mpa *object, t subject) {
	keys := p.ooms.all()
	if len(keys) == 0 {
		p.say(mpa, condition{v1alpha1.OOMLoop, false, "None", "no container is killed again and again for want of memory"})
		return
	}
	before := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.OOMLoop)
	inherited := p.generation < 0 && before != nil && before.Status == metav1.ConditionTrue // from an earlier central
	said, down := "", false
	for _, key := range keys {
		track := p.ooms[key]
		why := p.relieveOne(ctx, now, mpa, t, key, track)
		text := track.describe() + ": " + why
		if !track.said && !inherited {
			p.warn(mpa, "OOMLoop", "Observe", text)
		}
		track.said = true
		down = down || track.down
		if said == "" {
			said = text
		}
	}
	if more := len(keys) - 1; more > 0 {
		said += fmt.Sprintf(" (and %d more)", more)
	}
	reason := "Killed"
	if !down {
		reason = "RunsAgain"
	}
	p.say(mpa, condition{v1alpha1.OOMLoop, true, reason, said})
}

// relieveOne evicts the pod of one loop when that is to be, and says what is the matter.
func (p *process) relieveOne(
	ctx context.Context, now time.Time, mpa *object, t subject, key oomKey, track *oomTrack,
) string {
	c := oomCase{
		now:     now,
		pod:     podOf(t.workload, key),
		allowed: mpa.Spec.OOMEvict,
		acting:  p.acting && t.mode == api.Auto,
		last:    mpa.Status.LastOOMEviction,
	}
	c.template, _ = memoryLimit(&t.workload.Template.Spec, key.container)
	for _, l := range p.loops {
		if l.sensor.Container == key.container && l.knobs.Has(mdp.MemoryLimit) {
			c.controlled = true
			c.most = l.updater.Bounds.Memory.Max
			if l.last.Action.Sets.Has(mdp.MemoryLimit) {
				c.wanted = l.last.Action.Limit.Memory
			}
		}
	}
	if c.wanted > track.began && track.asked.IsZero() {
		track.asked = now
		track.again = false
	}
	evict, why := track.verdict(c)
	if !evict {
		return why
	}
	if err := p.evict(ctx, now, mpa, c, track); err != nil {
		track.refused(now, err)
		logf.FromContext(ctx).Info("Evicting a pod in an OOM loop", "workload", p.workload, "refused", err.Error())
		return mebibytes(c.wanted) + " is asked for; " + track.refusal
	}
	p.warn(mpa, "OOMEvicted", "Evict", track.describe()+": "+why)
	return why
}

// evict evicts a pod. That it does so is written into the object's status before: an
// instance of central that comes after this one must not evict again.
func (p *process) evict(ctx context.Context, now time.Time, mpa *object, c oomCase, track *oomTrack) error {
	before := mpa.Status.LastOOMEviction
	mpa.Status.LastOOMEviction = &v1alpha1.OOMEviction{
		Time:        metav1.NewTime(now),
		Pod:         c.pod.Name,
		UID:         c.pod.UID,
		Container:   track.container,
		MemoryLimit: *resource.NewQuantity(int64(track.began), resource.BinarySI),
		Wanted:      *resource.NewQuantity(int64(c.wanted), resource.BinarySI),
	}
	if err := apply(ctx, p.config.Client, mpa); err != nil {
		mpa.Status.LastOOMEviction = before
		return fmt.Errorf("writing that pod %s is evicted: %w", c.pod.Name, err)
	}
	p.report.written = mpa.Status.DeepCopy()
	if err := updater.Evict(ctx, p.config.Client, c.pod); err != nil {
		mpa.Status.LastOOMEviction = before
		return err
	}
	return nil
}

// podOf is the pod of a container that is tracked.
func podOf(w *updater.Workload, key oomKey) *corev1.Pod {
	for i := range w.Pods {
		if w.Pods[i].UID == key.pod {
			return &w.Pods[i]
		}
	}
	return nil // look forgets the containers of pods that are not there
}

// describe says what a loop is, for people.
func (t *oomTrack) describe() string {
	limit := "without a memory limit of its own"
	if t.limit > 0 {
		limit = "with a memory limit of " + mebibytes(t.limit)
	}
	times := fmt.Sprintf("%d times", len(t.kills))
	if len(t.kills) == 1 {
		times = "once"
	}
	return fmt.Sprintf("pod %s: container %s was killed for want of memory %s in %s, the last time %s",
		t.pod, t.container, times, minutes(oomWindow), limit)
}

func mebibytes(b mdp.Bytes) string { return fmt.Sprintf("%.0fMi", b.MiB()) }

func minutes(d time.Duration) string {
	if d == time.Minute {
		return "a minute"
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}
