package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

// UpperPath is where the autoscaler's process says what the pods of each node can
// use. A scheduler in another process asks there, with its cursor as parameter after.
const UpperPath = "/aware.fleet.v1/upper"

// maxPods is about how many pods one answer has; the next one has more. An answer of
// that many pods has 1.2 MB.
const maxPods = 20_000

// upperAnswer is one answer, as JSON. It names every node that has reported in the
// last hour, and the pods of those that have changed since the cursor of the question.
type upperAnswer struct {
	Cursor string      `json:"cursor"`          // for the next question
	Reset  bool        `json:"reset,omitempty"` // the cursor was not this fleet's, which has just started
	More   bool        `json:"more,omitempty"`  // ask again at once
	Nodes  []upperNode `json:"nodes"`
}

// upperNode is one node of an answer.
type upperNode struct {
	Name  string              `json:"name"`
	AgeMS int64               `json:"ageMS"` // of its last report, in milliseconds
	Pods  map[string]upperPod `json:"pods"`  // by UID; null when they have not changed
	// Promised is what all of them together come to; nothing is promised where it is missing.
	Promised *upperPromise `json:"promised,omitempty"`
}

// upperPromise is the most that the limits in force of a node's reported containers come
// to.
type upperPromise struct {
	upperPod
	ForMS int64 `json:"forMS"` // how much longer that holds, in milliseconds
}

// upperPod is the most that the reported containers of a pod can use.
type upperPod struct {
	CPU    mdp.MilliCPU `json:"cpu"`    // in thousandths of a core
	Memory mdp.Bytes    `json:"memory"` // in bytes
}

// publish sets what the pods of a node can use. While the lock is free, every version
// that the counter has reached is stored in its node.
func (f *Fleet) publish(n *node, now time.Time, byPod map[string]mdp.Size) {
	next := &upper{at: now, byPod: byPod, promise: n.ledger.promise(f.TTL)}
	if before := n.upper.Load(); before != nil && maps.Equal(before.byPod, byPod) {
		next.version, next.byPod = before.version, before.byPod
		n.upper.Store(next)
		return
	}
	f.publishing.Lock()
	defer f.publishing.Unlock()
	next.version = f.changes.Add(1)
	n.upper.Store(next)
}

// uppers answers a question with that cursor.
func (f *Fleet) uppers(now time.Time, cursor string) upperAnswer {
	id, text, _ := strings.Cut(cursor, "-")
	since, err := strconv.ParseUint(text, 10, 64)
	a := upperAnswer{Reset: id != f.id || err != nil}
	if a.Reset {
		since = 0
	}
	f.publishing.Lock()
	until := f.changes.Load() // what changes while the nodes are read is said again the next time
	f.publishing.Unlock()
	var changed []version
	f.mu.RLock()
	a.Nodes = make([]upperNode, 0, len(f.nodes))
	for name, n := range f.nodes {
		u := n.upper.Load()
		if u == nil {
			continue
		}
		if u.version > since {
			changed = append(changed, version{u, len(a.Nodes)})
		}
		one := upperNode{Name: name, AgeMS: max(0, now.Sub(u.at).Milliseconds())}
		if u.promise.holds(now) {
			one.Promised = &upperPromise{upperPod(u.promise.sum), u.promise.until.Sub(now).Milliseconds()}
		}
		a.Nodes = append(a.Nodes, one)
	}
	f.mu.RUnlock()
	said := a.say(changed)
	a.More = said < len(changed)
	if a.More {
		until = min(until, changed[said-1].version)
	}
	a.Cursor = fmt.Sprintf("%s-%d", f.id, until)
	return a
}

// version is the upper bounds of the node with that index in an answer.
type version struct {
	*upper
	node int
}

// say adds the pods of nodes that have changed, the oldest change first, until there
// are enough. It returns how many nodes were added.
func (a *upperAnswer) say(changed []version) int {
	slices.SortFunc(changed, func(x, y version) int { return cmp.Compare(x.version, y.version) })
	count := 0
	for i, v := range changed {
		if count >= maxPods {
			return i
		}
		pods := make(map[string]upperPod, len(v.byPod))
		for uid, s := range v.byPod {
			pods[uid] = upperPod(s)
		}
		a.Nodes[v.node].Pods = pods
		count += len(pods)
	}
	return len(changed)
}

// UpperServer answers schedulers that run in other processes.
type UpperServer struct {
	Fleet    *Fleet
	Reviewer Reviewer // of the schedulers' tokens
	Now      func() time.Time
	Serving  func() bool // whether this instance decides; if not, it knows nothing
}

// ServeHTTP implements [http.Handler].
func (s *UpperServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "the upper bounds can only be read: use GET", http.StatusMethodNotAllowed)
		return
	}
	if !Allow(w, r, s.Reviewer, s.Serving) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// An error says that the scheduler is gone.
	_ = json.NewEncoder(w).Encode(s.Fleet.uppers(s.Now(), r.URL.Query().Get("after")))
}

// Allow is true for a request of an account, while this instance decides. Otherwise it has answered.
func Allow(w http.ResponseWriter, r *http.Request, account Reviewer, serving func() bool) bool {
	err := review(r, account)
	var busy *busyError
	code := http.StatusServiceUnavailable
	switch {
	case Refused(err):
		code = http.StatusUnauthorized
	case errors.As(err, &busy):
		code = http.StatusTooManyRequests
	case err == nil && !serving():
		err = errors.New("this instance of central is not the autoscaler now: ask again")
	}
	if err != nil {
		http.Error(w, err.Error(), code)
	}
	return err == nil
}

// review is an error when the request is not one of the account.
func review(r *http.Request, account Reviewer) error {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		return &RefusedError{"requests need a service-account token as bearer"}
	}
	_, err := account.Review(r.Context(), r.RemoteAddr, token)
	return err
}
