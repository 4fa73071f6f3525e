package link

import (
	"time"

	"awarescale.dev/aware/nodeagent/api"
)

// fullEvery is how often all containers are reported, changed or not: what central
// does not have for whatever reason, it has then.
const fullEvery = time.Minute

// told is what central has been told on one stream.
type told struct {
	full time.Time // when all was told last
	last map[api.ContainerRef]api.Summary
}

// news is the part of a full report that central does not have, and from time to
// time all of it.
func (t *told) news(now time.Time, r api.Report) api.Report {
	r.Full = t.last == nil || now.Sub(t.full) >= fullEvery
	if r.Full {
		t.full = now
		t.last = make(map[api.ContainerRef]api.Summary, len(r.Containers))
		for _, s := range r.Containers {
			t.last[s.Container] = s
		}
		return r
	}
	there := make(map[api.ContainerRef]bool, len(r.Containers))
	var changed []api.Summary
	for _, s := range r.Containers {
		there[s.Container] = true
		if before, ok := t.last[s.Container]; !ok || !s.Near(before) {
			t.last[s.Container] = s
			changed = append(changed, s)
		}
	}
	r.Containers = changed
	for c := range t.last {
		if !there[c] {
			delete(t.last, c)
			r.Gone = append(r.Gone, c)
		}
	}
	return r
}
