package restore

import (
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// In whatever order limits come into a span: it covers what is between the least and the most of each.
func TestASpanIsTheSameInWhateverOrder(t *testing.T) {
	a, b, c := limits(300, 64), limits(200, 128), limits(400, 100)
	want := Span{Low: limits(200, 64), High: limits(400, 128)}
	for _, order := range [][]cgroup.Limits{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		if got := (Span{}).With(order[0]).With(order[1]).With(order[2]); got != want {
			t.Errorf("with %+v: %+v", order, got)
		}
		if got := (Span{}).With(order[0]).And((Span{}).With(order[1]).With(order[2])); got != want {
			t.Errorf("%+v and the others: %+v", order[0], got)
		}
	}
}

func TestASpanCoversWhatTheAgentMayHaveWritten(t *testing.T) {
	span := Span{Low: limits(200, 64), High: limits(400, 128)}
	odd := cgroup.Limits{Quota: 20500, Period: 100000} // 205m, an API's limit
	uneven := cgroup.Limits{Memory: 64*mdp.MiB + 100}  // the kernel keeps whole pages
	for name, c := range map[string]struct {
		span    Span
		inForce cgroup.Limits
		want    bool
	}{
		"its low end":              {span, limits(200, 64), true},
		"its high end":             {span, limits(400, 128), true},
		"in between":               {span, limits(250, 100), true},
		"only CPU":                 {span, limits(250, 0), true},
		"only memory":              {span, limits(0, 100), true},
		"nothing":                  {span, cgroup.Limits{}, true},
		"too little CPU":           {span, limits(190, 100), false},
		"too much CPU":             {span, limits(410, 100), false},
		"too little memory":        {span, limits(250, 63), false},
		"too much memory":          {span, limits(250, 129), false},
		"CPU in no step":           {span, odd, false},
		"half a write":             {span, cgroup.Limits{Quota: 82000, Period: 400000}, true},
		"not a period of ours":     {span, cgroup.Limits{Quota: 82000, Period: 400001}, false},
		"less than a usual period": {span, cgroup.Limits{Quota: 10250, Period: 50000}, false},
		"an end in no step":        {Span{}.With(odd), odd, true},
		"and as systemd rounds it": {Span{}.With(odd), cgroup.Limits{Quota: 21000, Period: 100000}, true},
		"memory in no whole pages": {Span{}.With(uneven), cgroup.Limits{Memory: 64 * mdp.MiB}, true},
		"no span of CPU":           {Span{}.With(limits(0, 64)), limits(200, 64), false},
		"no span of memory":        {Span{}.With(limits(200, 0)), limits(200, 64), false},
	} {
		if got := c.span.Covers(c.inForce); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
