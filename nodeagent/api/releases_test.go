package api_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// recorded is what the release before permits wrote. testdata's README says how it was made.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "before-permits", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What an agent of the release before permits has sent is read as that release meant it. It
// has no account, which is not one of zeros.
func TestAReportOfAnEarlierReleaseIsRead(t *testing.T) {
	var w linkv1.Report
	if err := proto.Unmarshal(recorded(t, "report.binpb"), &w); err != nil {
		t.Fatal(err)
	}
	got, err := api.ReportFromWire(&w)
	if err != nil {
		t.Fatal(err)
	}
	var want api.Report
	d := json.NewDecoder(bytes.NewReader(recorded(t, "report.json")))
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if len(got.Containers) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwritten\n%+v", got, want)
	}
	if got.Account != nil {
		t.Errorf("account %+v", got.Account)
	}
	for _, s := range got.Containers {
		if err := s.Check(mdp.Size{CPU: 4000, Memory: 8 << 30}); err != nil {
			t.Errorf("%v: %v", s.Container, err)
		}
	}
}

// What a central of the release before permits has sent is read. It gives no permit.
func TestGrantsOfAnEarlierReleaseAreRead(t *testing.T) {
	read := func(name string) api.Grants {
		var w linkv1.Grants
		if err := proto.Unmarshal(recorded(t, name), &w); err != nil {
			t.Fatal(err)
		}
		m, err := api.GrantsFromWire(&w)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := read("grants.binpb")
	if m.TTL != 10*time.Minute || m.Unchanged || m.Permit.Known() || len(m.All) != 2 {
		t.Fatalf("grants %+v", m)
	}
	want := api.Grant{
		Container: api.ContainerRef{Namespace: "shop", Pod: "web-1", PodUID: "u1", Container: "app"},
		Mode:      api.Auto, Throttle: 0.02, Latency: api.Source{Port: 80, Path: "/metrics", Metric: "seconds"},
		Bounds: mdp.Bounds{
			CPU:    mdp.Range[mdp.MilliCPU]{Min: 50, Max: 900},
			Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 200 * mdp.MiB},
		},
	}
	if !reflect.DeepEqual(m.All[1], want) {
		t.Errorf("grant\n%+v\nwant\n%+v", m.All[1], want)
	}
	if m := read("unchanged.binpb"); m.TTL != 10*time.Minute || !m.Unchanged || m.Permit.Known() {
		t.Errorf("a sign of life: %+v", m)
	}
}

// earlier is a message type as the release before permits knows it.
func earlier(t *testing.T, name protoreflect.Name) protoreflect.MessageDescriptor {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(recorded(t, "link.descriptor.binpb"), &file); err != nil {
		t.Fatal(err)
	}
	f, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	return f.Messages().ByName(name)
}

// through writes a message, has the earlier release read it, and reads what that one knows of
// it. unknown are the numbers of the fields that it does not know.
func through[M proto.Message](t *testing.T, message, into M) (unknown []protowire.Number) {
	t.Helper()
	b, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	old := dynamicpb.NewMessage(earlier(t, message.ProtoReflect().Descriptor().Name()))
	if err := proto.Unmarshal(b, old); err != nil {
		t.Fatalf("the earlier release cannot read it: %v", err)
	}
	for rest := []byte(old.GetUnknown()); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		unknown, rest = append(unknown, number), rest[n:]
	}
	old.SetUnknown(nil)
	if b, err = proto.Marshal(old); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return unknown
}

// The release before permits reads what we send as if there were no permits: the one field
// is unknown to it, and nothing else is different.
func TestAnEarlierReleaseReadsWhatWeSend(t *testing.T) {
	var w linkv1.Report
	if err := proto.Unmarshal(recorded(t, "report.binpb"), &w); err != nil {
		t.Fatal(err)
	}
	report, err := api.ReportFromWire(&w)
	if err != nil {
		t.Fatal(err)
	}
	permit := api.Permit{ID: api.PermitID{Epoch: 1<<64 - 1, Number: 7}, Amount: mdp.Size{CPU: 1500, Memory: 2 << 30}}
	report.Account = &api.Account{InForce: permit.Amount, Asked: permit.Amount, Holds: permit.ID}
	var gotReport linkv1.Report
	if unknown := through(t, api.ReportToWire(report), &gotReport); !reflect.DeepEqual(unknown, []protowire.Number{8}) {
		t.Errorf("of a report it does not know fields %v", unknown)
	}
	without := report
	without.Account = nil
	if !proto.Equal(&gotReport, api.ReportToWire(without)) {
		t.Errorf("it reads\n%v\nwant\n%v", &gotReport, api.ReportToWire(without))
	}
	for _, m := range []api.Grants{
		{TTL: time.Minute, Unchanged: true},
		{TTL: time.Minute, All: []api.Grant{{Mode: api.Auto, Throttle: 0.1}, {Keep: true}}},
	} {
		want := api.GrantsToWire(m)
		m.Permit = permit
		var got linkv1.Grants
		if unknown := through(t, api.GrantsToWire(m), &got); !reflect.DeepEqual(unknown, []protowire.Number{5}) {
			t.Errorf("of grants it does not know fields %v", unknown)
		}
		if !proto.Equal(&got, want) {
			t.Errorf("it reads\n%v\nwant\n%v", &got, want)
		}
	}
}

// A later release may have rules that this one does not know. They are read as they are, and the agent says what
// it does instead: the set is not refused, since the other containers would then be without their grants.
func TestARuleOfALaterReleaseIsRead(t *testing.T) {
	w := api.GrantsToWire(api.Grants{TTL: time.Minute, All: []api.Grant{
		{Mode: api.Auto, Rule: "clairvoyant", Margin: 1}, {Mode: api.Auto},
		{Mode: api.Auto, Rule: api.Demand, Margin: -0.5, Patience: 300 * time.Millisecond, LateWindows: 7},
	}})
	m, err := api.GrantsFromWire(w)
	if err != nil {
		t.Fatal(err)
	}
	for i, known := range []bool{false, true, true} {
		if m.All[i].Rule.Known() != known {
			t.Errorf("rule %q is known: %v", m.All[i].Rule, !known)
		}
	}
	captain, demand := m.All[1], m.All[2]
	if demand.Margin != -0.5 || demand.Patience != 300*time.Millisecond || demand.LateWindows != 7 ||
		captain.Rule != api.Captain || captain.Patience != 0 || captain.LateWindows != 0 {
		t.Errorf("grants %+v", m.All)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), -10.5} {
		w.All[2].Margin = bad
		if _, err := api.GrantsFromWire(w); err == nil {
			t.Errorf("a margin of %v was read", bad)
		}
	}
	w.All[2].Margin = 0
	for _, bad := range []int64{-1, 60_001, math.MaxInt64} {
		w.All[2].PatienceMs = bad
		if _, err := api.GrantsFromWire(w); err == nil || !strings.Contains(err.Error(), "patience") {
			t.Errorf("a patience of %d ms: %v", bad, err)
		}
	}
}
