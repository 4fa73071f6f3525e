package agent

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/envelope"
)

func TestOrderFollowsTheGrants(t *testing.T) {
	web := api.ContainerRef{Namespace: "shop", Pod: "web-0", Container: "app"}
	with := func(mode api.Mode, paused bool) grants {
		return newGrants(noon, api.Grants{TTL: time.Minute, All: []api.Grant{{Container: web, Mode: mode, Paused: paused}}})
	}
	for name, c := range map[string]struct {
		grants  grants
		now     time.Time
		mode    api.Mode
		act     bool
		paused  bool
		listed  bool
		problem string
	}{
		"nothing received":   {grants{}, noon, api.Observe, false, false, false, "waiting for central"},
		"auto":               {with(api.Auto, false), noon, api.Auto, true, false, true, ""},
		"auto, paused":       {with(api.Auto, true), noon, api.Auto, false, true, true, ""},
		"recommend":          {with(api.Recommend, false), noon, api.Recommend, false, false, true, ""},
		"off":                {with(api.Off, false), noon, api.Off, false, false, true, ""},
		"a grant at its TTL": {with(api.Auto, false), noon.Add(time.Minute), api.Auto, true, false, true, ""},
		"a grant after its TTL": {
			with(api.Auto, false), noon.Add(time.Minute + 1), api.Observe, false, false, false,
			"central has been silent",
		},
		"a pause after its TTL": {
			with(api.Auto, true), noon.Add(time.Hour), api.Observe, false, false, false,
			"central has been silent",
		},
		"another container only": {
			newGrants(noon, api.Grants{TTL: time.Minute, All: []api.Grant{{Mode: api.Auto}}}), noon,
			api.Observe, false, false, false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.grants.order(c.now, web)
			if o.mode != c.mode || o.act != c.act || o.paused != c.paused || o.listed != c.listed ||
				!strings.Contains(o.problem, c.problem) || (o.problem == "") != (c.problem == "") {
				t.Errorf("order %+v", o)
			}
		})
	}
}

// Central says that nothing has changed. That keeps what was granted, and makes
// nothing of an agent that was never granted anything.
func TestGrantsThatAreRenewedHoldOn(t *testing.T) {
	var web api.ContainerRef
	a := &Agent{access: access{sampler: new(Sampler)}}
	a.Renew(noon, api.Permit{})
	if o := a.grants.order(noon, web); !strings.Contains(o.problem, "waiting for central") {
		t.Errorf("renewed before it was granted: %+v", o)
	}
	a.Apply(noon, api.Grants{TTL: time.Minute, All: []api.Grant{{Container: web, Mode: api.Auto}}})
	a.Renew(noon.Add(50*time.Second), api.Permit{})
	if o := a.grants.order(noon.Add(100*time.Second), web); !o.act {
		t.Errorf("50 s after the renewal: %+v", o)
	}
	if o := a.grants.order(noon.Add(111*time.Second), web); o.act {
		t.Errorf("61 s after the renewal: %+v", o)
	}
}

// Central has started again, and cannot decide on a workload. Its containers keep
// what they have, and that is not more than they would have without the restart.
func TestAGrantIsKeptWhenCentralCannotDecide(t *testing.T) {
	web, other := api.ContainerRef{Pod: "web"}, api.ContainerRef{Pod: "other"}
	granted := api.Grants{TTL: time.Minute, All: []api.Grant{{Container: web, Mode: api.Auto, Throttle: 0.1}}}
	keep := api.Grants{TTL: time.Minute, All: []api.Grant{{Container: web, Keep: true}, {Container: other, Keep: true}}}
	a := &Agent{access: access{sampler: new(Sampler)}}
	a.Apply(noon, granted)
	a.Apply(noon.Add(50*time.Second), keep)
	a.Apply(noon.Add(100*time.Second), keep)
	if o := a.grants.order(noon.Add(150*time.Second), web); !o.act || o.grant.Throttle != 0.1 {
		t.Errorf("order %+v, want the grant of before", o)
	}
	if o := a.grants.order(noon.Add(150*time.Second), other); o.listed {
		t.Errorf("order %+v of a container that had no grant", o)
	}
	a.Apply(noon.Add(3*time.Minute), keep)
	if o := a.grants.order(noon.Add(3*time.Minute), web); o.act || o.listed {
		t.Errorf("order %+v: a grant that had ended came back", o)
	}
	a.Apply(noon.Add(4*time.Minute), granted)
	a.Apply(noon.Add(4*time.Minute), api.Grants{TTL: time.Minute})
	if o := a.grants.order(noon.Add(4*time.Minute), web); o.listed {
		t.Errorf("order %+v of a workload that was opted out", o)
	}
	restarted := &Agent{access: access{sampler: new(Sampler)}}
	restarted.Apply(noon, keep)
	if o := restarted.grants.order(noon, web); o.act {
		t.Errorf("order %+v: an agent that was never granted anything acts", o)
	}
}

func TestTaskOfAnOrder(t *testing.T) {
	act := order{act: true}
	for name, c := range map[string]struct {
		order    order
		left     envelope.Reason
		conflict bool
		want     task
		failed   task // when the policy fails
	}{
		"to act":                       {act, "", false, acting, restoring},
		"to act on what is left alone": {act, envelope.Deleting, false, restoring, restoring},
		"to act after conflicts":       {act, "", true, backingOff, backingOff},
		"to act on what is left alone after conflicts": {act, envelope.Deleting, true, backingOff, backingOff},
		"paused":                          {order{paused: true}, "", false, pausing, restoring},
		"paused after conflicts":          {order{paused: true}, "", true, pausing, restoring},
		"only to observe":                 {order{}, "", false, restoring, restoring},
		"only to observe after conflicts": {order{}, "", true, restoring, restoring},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.order.task(c.left, c.conflict)
			if got != c.want || got.afterPolicyFailure() != c.failed {
				t.Errorf("task %v, after a failure %v; want %v and %v", got, got.afterPolicyFailure(), c.want, c.failed)
			}
		})
	}
}
