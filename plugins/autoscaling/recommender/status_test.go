package recommender

import (
	"fmt"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/slo"
	"k8s.io/apimachinery/pkg/api/meta"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestConditionReportsAChangeOfStatusOrReason(t *testing.T) {
	mpa := &v1alpha1.MultidimPodAutoscaler{}
	mpa.Generation = 7
	for i, c := range []struct {
		condition condition
		changed   bool
	}{
		{condition{v1alpha1.Ready, false, "TargetNotFound", "no web"}, true},
		{condition{v1alpha1.Ready, false, "TargetNotFound", "still no web"}, false},
		{condition{v1alpha1.Ready, false, "InvalidSpec", "bad"}, true},
		{condition{v1alpha1.Ready, true, "InvalidSpec", "bad"}, true},
	} {
		if changed := c.condition.set(mpa, noon); changed != c.changed {
			t.Errorf("condition %d: changed %v, want %v", i, changed, c.changed)
		}
		got := meta.FindStatusCondition(mpa.Status.Conditions, v1alpha1.Ready)
		if got.Message != c.condition.message || got.ObservedGeneration != 7 {
			t.Errorf("condition %d: %+v, want message %q of generation 7", i, got, c.condition.message)
		}
	}
}

func TestActiveSaysWhyNothingIsMoved(t *testing.T) {
	for name, c := range map[string]struct {
		acting bool
		mode   api.Mode
		paused bool
		want   condition
	}{
		"acting":  {true, api.Auto, false, condition{v1alpha1.Active, true, "Acting", "sizes and replicas are moved"}},
		"off":     {false, api.Off, true, condition{v1alpha1.Active, false, "ModeOff", "mode is off"}},
		"observe": {false, api.Observe, false, condition{v1alpha1.Active, false, "NotActing", "mode observe"}},
		"paused":  {false, api.Auto, true, condition{v1alpha1.Active, false, "NotActing", "mode auto, paused"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := active(c.acting, c.mode, c.paused); got != c.want {
				t.Errorf("condition %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSLOObservedTellsWaitingFromUnreachable(t *testing.T) {
	known := slo.Reading{Observed: mdp.SetOf(mdp.Latency), Problem: "one of two pods"}
	for name, c := range map[string]struct {
		reading slo.Reading
		pods    int
		waiting bool
		reason  string // empty: no condition
	}{
		"what is known counts":                {known, 2, false, "Read"},
		"without pods":                        {slo.Reading{Problem: "refused"}, 0, false, "Waiting"},
		"no histogram at first":               {slo.Reading{Problem: slo.Unread}, 1, true, "Waiting"},
		"no histogram for long":               {slo.Reading{Problem: slo.Unread}, 1, false, "Unreachable"},
		"another problem is shown at once":    {slo.Reading{Problem: "refused"}, 1, true, "Unreachable"},
		"too few requests leave it as it was": {slo.Reading{}, 1, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := sloObserved(c.reading, c.pods, c.waiting)
			if got.reason != c.reason || ok != (c.reason != "") || got.is != (c.reason == "Read") {
				t.Errorf("condition %+v, %v; want reason %q", got, ok, c.reason)
			}
		})
	}
}

func TestResizeDeferredNamesTheLastContainerWithoutRoom(t *testing.T) {
	with := func(container string, effect mdp.Effect, reason string) outcome {
		return outcome{container: container, decision: mdp.Decision{Effect: effect}, reason: reason}
	}
	for name, c := range map[string]struct {
		outcomes []outcome
		is       bool
		message  string
	}{
		"none": {
			[]outcome{with("web", mdp.Applied, ""), with("proxy", mdp.Refused, "mode observe")}, false,
			"no resize is deferred",
		},
		"deferred": {
			[]outcome{with("web", mdp.Deferred, ""), with("proxy", mdp.Applied, "")}, true,
			"a node has no room for the resize of container web now",
		},
		"infeasible": {[]outcome{with("web", mdp.Deferred, ""), with("proxy", mdp.Infeasible, "too large")}, true, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := resizeDeferred(c.outcomes); got.is != c.is || got.message != c.message {
				t.Errorf("condition %+v, want %v: %s", got, c.is, c.message)
			}
		})
	}
}

func TestDecisionsAreKeptNewestFirst(t *testing.T) {
	var status v1alpha1.MultidimPodAutoscalerStatus
	for i := range keptDecisions + 3 {
		d := mdp.Decision{Action: mdp.Action{Clipped: mdp.ClippedMax}.WithReplicas(i), Effect: mdp.Pending}
		record(&status, decided(noon.Add(time.Duration(i)*time.Second), []outcome{{
			container: "web",
			policy:    "rule/1",
			decision:  d,
			reason:    "why",
		}}))
	}
	newest := status.Decisions[0]
	if len(status.Decisions) != keptDecisions || newest.Action != fmt.Sprintf("replicas=%d", keptDecisions+2) ||
		newest.Effect != "pending" || newest.Reason != "why" || newest.Policy != "rule/1" || newest.ClippedBy[0] != "max" ||
		!newest.Time.Time.Equal(noon.Add((keptDecisions+2)*time.Second)) {
		t.Errorf("%d decisions, the newest is %+v", len(status.Decisions), newest)
	}
}

func TestWhatStandsIsOfTheSameContainer(t *testing.T) {
	wide := mdp.Bounds{
		CPU: mdp.Range[mdp.MilliCPU]{Min: 1, Max: 1000}, Memory: mdp.Range[mdp.Bytes]{Min: 1, Max: mdp.Bytes(1) << 40},
	}
	wide.Reservation = wide.CPU
	before := []v1alpha1.ContainerSize{
		containerSize(outcome{container: "web", sets: mdp.Action{}.WithReservation(250)}),
		containerSize(outcome{container: "proxy", sets: mdp.Action{}.WithReservation(50)}),
	}
	memory := mdp.Action{}.WithMemory(100 * mdp.MiB)
	got := standing(before, outcome{container: "proxy", sets: memory}, wide, mdp.ReservedKnobs)
	if want := memory.WithReservation(50); got != want {
		t.Errorf("%v stands for the proxy, want %v", got, want)
	}
}

func TestRecommendationHasOnlyWhatWasDecided(t *testing.T) {
	got := recommendation([]outcome{
		{container: "web", sets: mdp.Action{}.WithReservation(250).WithMemory(100 * mdp.MiB),
			template: mdp.Size{CPU: 400, Memory: 128 * mdp.MiB}},
		{container: "proxy", sets: mdp.Action{}.WithReservation(50), template: mdp.Size{CPU: 100}},
		{container: "idle", sets: mdp.Action{}.WithReplicas(3)},
	})
	if len(got) != 2 || got[0].Name != "web" || got[0].Requests.CPU.String() != "250m" || got[0].Limits.Memory.String() != "100Mi" {
		t.Fatalf("recommendation %+v: want web's whole size first", got)
	}
	if got[1].Name != "proxy" || got[1].Requests.CPU.String() != "50m" || got[1].Limits.Memory != nil {
		t.Errorf("recommendation %+v: want proxy's CPU alone", got[1])
	}
	if of := got[0].Template; of == nil || of.CPU.String() != "400m" || of.Memory.String() != "128Mi" {
		t.Errorf("web's template %+v, want 400m and 128Mi", of)
	}
	if of := got[1].Template; of == nil || of.CPU.String() != "100m" || of.Memory != nil {
		t.Errorf("proxy's template %+v, want 100m and no memory", of)
	}
}

func TestModeInForce(t *testing.T) {
	other := &v1alpha1.Recommender{Name: "other"}
	for name, c := range map[string]struct {
		mode        api.Mode
		recommender *v1alpha1.Recommender
		conflict    bool
		want        api.Mode
	}{
		"as it is":                           {api.Auto, &v1alpha1.Recommender{Name: "aware"}, false, api.Auto},
		"a conflict leaves recommendations":  {api.Auto, nil, true, api.Recommend},
		"a conflict ends a canary":           {api.Canary, nil, true, api.Recommend},
		"a conflict does not raise observe":  {api.Observe, nil, true, api.Observe},
		"another recommender: only observe":  {api.Auto, other, false, api.Observe},
		"both: only observe":                 {api.Auto, other, true, api.Observe},
		"off stays off":                      {api.Off, other, true, api.Off},
		"recommend with another recommender": {api.Recommend, other, false, api.Observe},
	} {
		t.Run(name, func(t *testing.T) {
			if got := modeInForce(c.mode, c.recommender, c.conflict); got != c.want {
				t.Errorf("mode %s, want %s", got, c.want)
			}
		})
	}
}
