// Package decisions keeps the last decisions on each workload in memory, and
// streams them to whoever may get the workload's object. The object's status has
// only the newest few, and is written about once a minute.
package decisions

import (
	"encoding/json"
	"fmt"
	"sync"

	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// perObject is how many decisions on one object are kept, at most: 100 minutes of
	// a workload with one container.
	perObject = 600
	// perLog is how many decisions on all objects are kept, at most. One has about a
	// kilobyte.
	perLog = 50_000
	// least is how many decisions on one object are kept however many objects there are.
	least = 10
)

// Log is the last decisions on all objects. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]*decided
}

// decided is the last decisions on one object, oldest first, each a line of JSON.
type decided struct {
	lines   [][]byte
	count   uint64        // of all decisions so far; the last line has this number
	changed chan struct{} // closed when there are more, or the object is forgotten
}

// NewLog makes an empty log.
func NewLog() *Log { return &Log{objects: map[types.NamespacedName]*decided{}} }

// Add takes in an object's next decisions, in the order in which they were made.
func (l *Log) Add(object types.NamespacedName, all ...v1alpha1.DecisionStatus) error {
	lines := make([][]byte, 0, len(all))
	for _, one := range all {
		line, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("writing a decision on %s: %w", object, err)
		}
		lines = append(lines, append(line, '\n'))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.objects[object]
	if d == nil {
		d = &decided{changed: make(chan struct{})}
		l.objects[object] = d
	}
	d.lines = append(d.lines, lines...)
	d.count += uint64(len(lines))
	if over := len(d.lines) - l.kept(); over > 0 {
		d.lines = append([][]byte(nil), d.lines[over:]...) // the old ones are freed
	}
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// kept is how many decisions on each object are kept. The lock is held.
func (l *Log) kept() int { return min(perObject, max(least, perLog/len(l.objects))) }

// Forget drops the decisions on an object that is gone, and ends their streams.
func (l *Log) Forget(object types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.objects[object]; d != nil {
		delete(l.objects, object)
		close(d.changed)
	}
}

// after is the decisions on an object after the first n of all, oldest first, and
// their number so far. changed is closed when that grows or the object is
// forgotten. ok is false when nothing is known of the object.
func (l *Log) after(
	object types.NamespacedName, n uint64,
) (lines [][]byte, count uint64, changed <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.objects[object]
	if d == nil {
		return nil, 0, nil, false
	}
	fresh := len(d.lines)
	if n <= d.count {
		fresh = int(min(uint64(fresh), d.count-n))
	}
	return append(lines, d.lines[len(d.lines)-fresh:]...), d.count, d.changed, true
}
