package recommender

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A status is written when something material has changed, and otherwise now and
// then. All statuses together are written at most statusRate times a second: what
// is material, or too old, waits its turn, and the rest goes when nothing waits.
const (
	// statusRate is how often statuses are written, per second.
	statusRate = 8
	// statusShare is the part of statusRate that is for what is not material, at most.
	statusShare = 0.6
	// materialSize is the part by which a size must change to be material.
	materialSize = 0.05
)

// writes is the budget of status writes of all objects. It is safe for concurrent use.
type writes struct {
	every   time.Duration // between writes of one object that are not material, at least
	limiter *rate.Limiter

	mu      sync.Mutex
	objects int
}

func newWrites(every time.Duration) *writes {
	if every == 0 {
		every = time.Minute
	}
	return &writes{every: every, limiter: rate.NewLimiter(statusRate, 2)}
}

// count says how many objects there are.
func (w *writes) count(objects int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects = objects
}

// interval is how often one object's status is written when nothing is material.
// Many objects make it longer, so that all together stay within their share.
func (w *writes) interval() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(w.every, time.Duration(float64(w.objects)*float64(time.Second)/(statusRate*statusShare)))
}

// report is what one object's status says, and what of it was written. The API
// server's copy may be older.
type report struct {
	uid     types.UID // of the object
	status  *v1alpha1.MultidimPodAutoscalerStatus
	written *v1alpha1.MultidimPodAutoscalerStatus
	at      time.Time // when it was written, or first read
	turn    time.Time // when what is material may be written; zero when nothing waits
}

// into writes the newest status into an object that was just read. Conditions of
// other writers are the object's.
func (r *report) into(mpa *object) {
	if r.status == nil {
		r.written = mpa.Status.DeepCopy()
		return
	}
	read := mpa.Status.Conditions
	mpa.Status = *r.status.DeepCopy()
	mpa.Status.Conditions = append(ours(mpa.Status.Conditions),
		slices.DeleteFunc(slices.Clone(read), func(c metav1.Condition) bool { return isOurs(c.Type) })...)
}

// due takes in an object's newest status, and decides whether it is written now.
// after, when it is not zero, is when to ask again.
func (r *report) due(now time.Time, mpa *object, w *writes) (write bool, after time.Duration) {
	r.status = mpa.Status.DeepCopy()
	if r.at.IsZero() {
		r.at = now
	}
	every := w.interval()
	overdue := turns(mpa, now, every) - turns(mpa, r.at, every) // by how many intervals
	if !material(r.written, r.status) && overdue < 2 {
		r.turn = time.Time{}
		return overdue == 1 && w.limiter.AllowN(now, 1), 0
	}
	if r.turn.IsZero() {
		r.turn = now.Add(w.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	if now.Before(r.turn) {
		return false, r.turn.Sub(now)
	}
	r.turn = time.Time{}
	return true, 0
}

// wrote notes that the newest status was written.
func (r *report) wrote(now time.Time) {
	r.written = r.status
	r.at = now
}

// turns counts an object's intervals until now. Each object's begin at another
// time, so that not all objects are written together.
func turns(mpa *object, now time.Time, every time.Duration) int64 {
	h := fnv.New64a()
	h.Write([]byte(mpa.Namespace + "/" + mpa.Name))
	phase := time.Duration(h.Sum64() % uint64(every))
	return (now.UnixNano() + int64(phase)) / int64(every)
}

// material reports whether a status says something else than before that its reader
// must know soon: conditions, stage, policy, replicas, an eviction, what came of the last
// decisions, and recommended sizes by more than a few percent. Times, measures,
// rewards and numbers within texts are not.
func material(before, after *v1alpha1.MultidimPodAutoscalerStatus) bool {
	return before == nil ||
		before.ObservedGeneration != after.ObservedGeneration ||
		before.Target != after.Target ||
		before.Stage != after.Stage ||
		before.Replicas != after.Replicas ||
		evicted(before.LastOOMEviction) != evicted(after.LastOOMEviction) ||
		(before.Policy == nil) != (after.Policy == nil) ||
		before.Policy != nil && *before.Policy != *after.Policy ||
		(len(before.Decisions) == 0) != (len(after.Decisions) == 0) ||
		len(after.Decisions) > 0 && !sameOutcome(before.Decisions[0], after.Decisions[0]) ||
		!sameConditions(ours(before.Conditions), ours(after.Conditions)) ||
		!slices.EqualFunc(before.Recommendation, after.Recommendation, sameSize)
}

// evicted is the pod of an eviction; empty without one.
func evicted(e *v1alpha1.OOMEviction) types.UID {
	if e == nil {
		return ""
	}
	return e.UID
}

func sameOutcome(a, b v1alpha1.DecisionStatus) bool {
	return a.Effect == b.Effect && withoutNumbers(a.Reason) == withoutNumbers(b.Reason)
}

func sameConditions(a, b []metav1.Condition) bool {
	for _, one := range a {
		other := meta.FindStatusCondition(b, one.Type)
		if other == nil || other.Status != one.Status || other.Reason != one.Reason ||
			withoutNumbers(other.Message) != withoutNumbers(one.Message) ||
			one.Type == v1alpha1.Ready && other.Message != one.Message { // it quotes what its owner wrote
			return false
		}
	}
	return len(a) == len(b)
}

func sameSize(a, b v1alpha1.ContainerSize) bool {
	x, y := Decided(a), Decided(b)
	return a.Name == b.Name && x.Sets == y.Sets && near(int64(x.Reservation), int64(y.Reservation)) &&
		near(int64(x.Limit.Memory), int64(y.Limit.Memory)) && SameLimits(a.Template, b.Template)
}

// SameLimits reports whether two sizes are the same. One that is not known is not the
// same as another.
func SameLimits(a, b *v1alpha1.Size) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(a, b *resource.Quantity) bool { return (a == nil) == (b == nil) && (a == nil || a.Cmp(*b) == 0) }
	return same(a.CPU, b.CPU) && same(a.Memory, b.Memory)
}

// near reports whether two amounts differ by a few percent at most.
func near(a, b int64) bool { return math.Abs(float64(a-b)) <= materialSize*float64(max(a, b)) }

// MaxStatusAge is how old the newest decision of a status may be when all is well: twice
// the interval in which statuses are written when nothing material changes, and a half
// more. every is the Config's StatusEvery.
func MaxStatusAge(every time.Duration, objects int) time.Duration {
	w := newWrites(every)
	w.count(objects)
	return w.interval() * 5 / 2
}

// numbers are what changes in a text while it says the same: times and measures.
var numbers = regexp.MustCompile(`[0-9][0-9.hmsµn]*`)

// withoutNumbers is a text without its numbers and times.
func withoutNumbers(text string) string { return numbers.ReplaceAllLiteralString(text, "0") }

// isOurs reports whether a condition is the recommender's. Others belong to other
// writers.
func isOurs(kind string) bool {
	switch kind {
	case v1alpha1.Ready, v1alpha1.Active, v1alpha1.FallbackActive, v1alpha1.Paused, v1alpha1.ConflictDetected,
		v1alpha1.ResizeDeferred, v1alpha1.SLOObserved, v1alpha1.OOMLoop:
		return true
	}
	return false
}

// ours is the recommender's conditions.
func ours(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool { return !isOurs(c.Type) })
}

// apply writes an object's status by server-side apply. What other writers have
// there, such as their conditions, stays.
func apply(ctx context.Context, c client.Client, mpa *object) error {
	status := mpa.Status.DeepCopy()
	status.Conditions = ours(status.Conditions)
	if recommendsElsewhere(mpa.Spec.Recommender) {
		status.Recommendation = nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("converting the status: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MultidimPodAutoscaler"))
	u.SetNamespace(mpa.Namespace)
	u.SetName(mpa.Name)
	u.SetUID(mpa.UID) // not another object of the same name
	return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u),
		client.FieldOwner(updater.Manager), client.ForceOwnership)
}
