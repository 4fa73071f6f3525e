package sim

// event is one event of the request level.
type event struct {
	at     float64 // time in seconds
	serial uint64  // orders events at the same time
	kind   eventKind
	who    int32  // index of the visit or the pod
	stamp  uint32 // the event is void when its visit or pod has another stamp
}

// eventKind says what happens.
type eventKind uint8

// The kinds of events.
const (
	arrives  eventKind = iota // a visit reaches its service
	ioDone                    // the I/O of a visit is done
	computed                  // a visit of a pod has computed, or the pod's quota is used up
)

// before reports whether e is earlier than o.
func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.serial < o.serial }

// eventQueue is a heap of events with four children per entry, the earliest
// event first. container/heap would allocate for each event: the request level
// has millions of them in a simulated minute.
type eventQueue struct {
	heap   []event
	serial uint64
}

// push schedules an event.
func (q *eventQueue) push(e event) {
	q.serial++
	e.serial = q.serial
	h := append(q.heap, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	q.heap = h
}

// pop removes the earliest event. The queue must not be empty.
func (q *eventQueue) pop() event {
	h := q.heap
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	q.heap = h
	if len(h) == 0 {
		return first
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return first
}
