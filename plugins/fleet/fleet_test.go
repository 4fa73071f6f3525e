package fleet_test

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func report(node string, pods ...string) api.Report {
	r := api.Report{Node: node, Full: true}
	for _, uid := range pods {
		s := api.Summary{Container: api.ContainerRef{PodUID: uid, Container: "web"}}
		s.Bounds.CPU.Max = 500
		r.Containers = append(r.Containers, s)
	}
	return r
}

func TestNoGrantsAreSentBeforeAllWorkloadsWereLookedAt(t *testing.T) {
	f := fleet.New(time.Minute)
	if m, version, _ := f.Grants("one"); version != 0 || len(m.All) != 0 {
		t.Fatal("a fleet that has looked at no workload sent grants: an agent would restore everything")
	}
	f.Grant("shop", map[string][]api.Grant{"one": {{Mode: api.Auto}}, "two": {{Mode: api.Observe}}})
	f.Open()
	m, first, changed := f.Grants("one")
	if first == 0 || len(m.All) != 1 || m.All[0].Mode != api.Auto || m.TTL != time.Minute {
		t.Errorf("grants = %+v, version %d; want node one's", m, first)
	}
	f.Grant("shop", map[string][]api.Grant{"one": {{Mode: api.Auto}}, "two": {{Mode: api.Off}}})
	if _, version, _ := f.Grants("one"); version != first {
		t.Error("grants of node one that are the same passed for a change")
	}
	f.Grant("shop", nil)
	select {
	case <-changed:
	default:
		t.Error("nobody was told that the grants changed")
	}
	if m, version, _ := f.Grants("one"); version == first || version == 0 || len(m.All) != 0 {
		t.Errorf("after the opt-out: %+v, version %d; want an empty set of grants", m, version)
	}
}

func TestAContainerThatIsNoLongerReportedIsForgotten(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Accept(noon, report("one", "a", "b"))
	f.Accept(noon, report("one", "b"))
	if _, ok := f.Summary("one", "a", "web", noon, time.Minute); ok {
		t.Error("a container that is gone is still known")
	}
	if _, ok := f.Summary("one", "b", "web", noon, time.Minute); !ok {
		t.Error("a container that is there is not known")
	}
	if _, ok := f.Summary("one", "b", "web", noon.Add(2*time.Minute), time.Minute); ok {
		t.Error("an old figure passes for a new one")
	}
}

// Most reports have only what has changed. What they do not name is as it was.
func TestAReportOfWhatHasChangedLeavesTheRestAsItWas(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Accept(noon, report("one", "a", "b", "c"))
	changed := report("one", "b")
	changed.Full = false
	changed.Containers[0].Bounds.CPU.Max = 700
	changed.Gone = []api.ContainerRef{report("one", "c").Containers[0].Container}
	f.Accept(noon.Add(time.Second), changed)
	if u, ok := f.Upper("one", noon, time.Minute); !ok || len(u) != 2 || u["a"].CPU != 500 || u["b"].CPU != 700 {
		t.Errorf("upper = %v, %v; want a as it was, b with its new bound, and no c", u, ok)
	}
	if _, ok := f.Summary("one", "a", "web", noon, time.Minute); !ok {
		t.Error("a container that has not changed is not known any more")
	}
}

func TestUpperBoundsAreUnknownWithoutAFreshReport(t *testing.T) {
	f := fleet.New(time.Minute)
	if _, ok := f.Upper("one", noon, time.Minute); ok {
		t.Error("an unknown node has a known bound")
	}
	f.Accept(noon, report("one", "a", "b"))
	if u, ok := f.Upper("one", noon, time.Minute); !ok || u["a"].CPU != 500 || len(u) != 2 {
		t.Errorf("upper = %v, %v", u, ok)
	}
	if _, ok := f.Upper("one", noon.Add(2*time.Minute), time.Minute); ok {
		t.Error("an old report passes for a new one")
	}
	f.Grants("two")
	if _, ok := f.Upper("two", noon, time.Minute); ok {
		t.Error("a node that has never reported has a known bound")
	}
}

func TestAWorkloadThatMovesLeavesNoGrantBehind(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Open()
	granted := func(node string) int {
		m, _, _ := f.Grants(node)
		return len(m.All)
	}
	f.Grant("shop", map[string][]api.Grant{"one": {{}, {}}, "two": {{}}})
	f.Grant("web", map[string][]api.Grant{"one": {{}}})
	if granted("one") != 3 || granted("two") != 1 {
		t.Errorf("%d and %d grants, want 3 and 1", granted("one"), granted("two"))
	}
	f.Grant("shop", map[string][]api.Grant{"two": {{}}})
	if granted("one") != 1 || granted("two") != 1 {
		t.Errorf("after shop left node one: %d and %d grants, want 1 and 1", granted("one"), granted("two"))
	}
}

func TestNodesThatAreGoneAreForgotten(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Accept(noon, report("one", "a"))
	later := noon.Add(2 * time.Hour)
	f.Accept(later, report("two", "b"))
	if _, ok := f.Summary("one", "a", "web", noon, 24*time.Hour); ok {
		t.Error("a pod of a node that is gone for two hours is still known")
	}
	if n := f.Nodes(later, time.Minute); n != 1 {
		t.Errorf("%d nodes, want 1", n)
	}
}

// A node is forgotten as well when it once had a workload that has ended. One whose workload goes on is not: it may come back.
func TestANodeIsForgottenWhenItsWorkloadsHaveEnded(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Open()
	f.Accept(noon, report("one", "a"))
	f.Accept(noon, report("two", "b"))
	f.Grant("shop", map[string][]api.Grant{"one": {{}}, "two": {{}}})
	f.Grant("shop", map[string][]api.Grant{"two": {{}}})
	f.Accept(noon.Add(2*time.Hour), report("three", "c"))
	if _, ok := f.Summary("one", "a", "web", noon, 24*time.Hour); ok {
		t.Error("a node is kept for a workload that has left it")
	}
	if _, ok := f.Summary("two", "b", "web", noon, 24*time.Hour); !ok {
		t.Error("a node is forgotten that has grants")
	}
}

// A workload whose container has met its ceiling is named, as often as it is reported.
func TestAWorkloadAtItsCeilingIsNamed(t *testing.T) {
	f := fleet.New(time.Minute)
	var pressed []string
	f.Pressed = func(workload string) { pressed = append(pressed, workload) }
	one := api.Summary{Container: api.ContainerRef{Namespace: "shop", Pod: "web-1", PodUID: "u", Container: "web"}}
	one.Bounds.CPU.Max = 900
	one.State = mdp.State{Observed: mdp.SetOf(mdp.CPULimit, mdp.Throttled), Limit: mdp.Size{CPU: 900}, Throttled: 0.5}
	report := func(change func(*api.Summary)) []string {
		pressed = nil
		s := one
		change(&s)
		f.Accept(noon, api.Report{Node: "node", Full: true, Containers: []api.Summary{s}})
		return pressed
	}
	if got := report(func(*api.Summary) {}); got != nil {
		t.Errorf("%v is pressed, and nobody has a grant", got)
	}
	f.Grant("shop/Deployment/web", map[string][]api.Grant{"node": {{Container: one.Container, Mode: api.Auto}}})
	for range 2 {
		if got := report(func(*api.Summary) {}); len(got) != 1 || got[0] != "shop/Deployment/web" {
			t.Errorf("pressed %v", got)
		}
	}
	named := f.Pressed
	f.Pressed = nil
	report(func(*api.Summary) {}) // nobody wants to know
	f.Pressed = named
	for name, change := range map[string]func(*api.Summary){
		"beneath its ceiling":     func(s *api.Summary) { s.State.Limit.CPU = 890 },
		"not throttled":           func(s *api.Summary) { s.State.Throttled = 0.09 },
		"throttling is not known": func(s *api.Summary) { s.State.Observed = mdp.SetOf(mdp.CPULimit) },
		"the limit is not known":  func(s *api.Summary) { s.State.Observed = mdp.SetOf(mdp.Throttled) },
		"it has no ceiling":       func(s *api.Summary) { s.Bounds.CPU.Max = 0 },
		"another container":       func(s *api.Summary) { s.Container.Container = "proxy" },
	} {
		if got := report(change); got != nil {
			t.Errorf("%s: pressed %v", name, got)
		}
	}
}

// A stream is open before its first report comes, and before its node has a grant. What central
// has for the node later is told to that stream.
func TestANodeThatHasNotReportedYetIsNotForgotten(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Open()
	_, _, changed := f.Grants("one")
	f.Accept(noon, report("two", "b"))
	f.Grant("shop", map[string][]api.Grant{"one": {{Mode: api.Auto}}})
	select {
	case <-changed:
	default:
		t.Error("the stream was not told of a grant")
	}
}
