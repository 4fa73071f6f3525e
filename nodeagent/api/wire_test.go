package api_test

import (
	"fmt"
	"math"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/api/linkv1"
	"google.golang.org/protobuf/proto"
)

// Every signal of a report survives the wire. A field that is added to
// mdp.State without a row in the table fails here.
func TestNoSignalIsLostOnTheWire(t *testing.T) {
	law := func(seed int64) bool {
		summary := fill[api.Summary](rand.New(rand.NewSource(seed)))
		summary.State.At = time.Unix(seed%1e9, 5).UTC()
		summary.State.Observed = mdp.All
		summary.Want.Sets = mdp.SetOf(mdp.CPULimit, mdp.MemoryLimit)
		summary.Effect = mdp.Deferred
		summary.Want.Replicas = 0 // a node sets no replicas
		summary.Want.Reservation = 0
		summary.Latency = api.Histogram{Upper: []float64{0.1, 1, math.Inf(1)}, Counts: []uint64{1, 2, uint64(seed&0xffff) + 2}}
		summary.Course = api.Course{Until: seed, Use: []mdp.MilliCPU{1, mdp.MilliCPU(seed & 0xffff), 3}}
		got, err := api.ReportFromWire(api.ReportToWire(api.Report{
			Node: "one", Agent: "v2", At: time.Unix(9, 9).UTC(), Full: true, Containers: []api.Summary{summary},
		}))
		if err != nil {
			t.Log(err)
			return false
		}
		if !reflect.DeepEqual(got.Containers[0], summary) {
			t.Logf("got\n%+v\nwant\n%+v", got.Containers[0], summary)
			return false
		}
		return true
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}

// Every field of a grant survives the wire.
func TestNoGrantIsLostOnTheWire(t *testing.T) {
	law := func(seed int64) bool {
		grant := fill[api.Grant](rand.New(rand.NewSource(seed)))
		grant.Mode, grant.Throttle = api.Auto, 0.1
		if grant.Keep {
			grant = api.Grant{Container: grant.Container, Keep: true} // nothing else of it counts
		}
		want := api.Grants{TTL: time.Minute, All: []api.Grant{grant}}
		got, err := api.GrantsFromWire(api.GrantsToWire(want))
		return err == nil && reflect.DeepEqual(got, want)
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}

// FuzzReportFromWire: what a node sends is read, or refused by name; it never panics.
func FuzzReportFromWire(f *testing.F) {
	full := api.Report{Node: "one", Containers: []api.Summary{{State: mdp.State{Observed: mdp.All}, Effect: mdp.Failed}}}
	seed, err := proto.Marshal(api.ReportToWire(full))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var w linkv1.Report
		if proto.Unmarshal(b, &w) != nil {
			return
		}
		r, _ := api.ReportFromWire(&w)
		for _, s := range r.Containers {
			if len(s.Problem) > api.MaxProblem {
				t.Errorf("a problem of %d bytes", len(s.Problem))
			}
			_ = s.Check(mdp.Size{CPU: 1000, Memory: mdp.MiB}) // must not panic
		}
		again, err := api.ReportFromWire(api.ReportToWire(r))
		if err != nil || len(again.Containers) != len(r.Containers) {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// FuzzGrantsFromWire: what central sends is read, or refused by name; it never panics,
// and what was read is within the limits that agents rely on.
func FuzzGrantsFromWire(f *testing.F) {
	full := api.Grants{
		TTL: time.Minute,
		All: []api.Grant{{Mode: api.Auto, Throttle: 0.1, Rule: api.Demand, Margin: 0.5, Patience: 400 * time.Millisecond,
			LateWindows: 1, Latency: api.Source{Port: 80, Path: "/metrics"}}},
	}
	seed, err := proto.Marshal(api.GrantsToWire(full))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var w linkv1.Grants
		if proto.Unmarshal(b, &w) != nil {
			return
		}
		m, err := api.GrantsFromWire(&w)
		if err != nil {
			return
		}
		if m.TTL <= 0 || m.TTL > 24*time.Hour {
			t.Errorf("a time to live of %v", m.TTL)
		}
		for _, g := range m.All {
			if _, err := api.ParseMode(string(g.Mode)); !g.Keep && err != nil || !(g.Throttle >= 0 && g.Throttle < 1) ||
				!(g.Margin >= -api.MaxMargin && g.Margin <= api.MaxMargin) || g.Patience < 0 || g.Patience > api.MaxPatience {
				t.Errorf("grant %+v", g)
			}
		}
		again, err := api.GrantsFromWire(api.GrantsToWire(m))
		if err != nil || len(again.All) != len(m.All) {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

// An agent of a later version may observe signals that this one does not know:
// the ones that it knows are read.
func TestSignalsOfALaterVersionAreIgnored(t *testing.T) {
	r := api.Report{Containers: []api.Summary{{State: mdp.State{
		At: time.Unix(1, 0).UTC(), Observed: mdp.SetOf(mdp.CPUUsage, mdp.Throttled),
		Usage: mdp.Size{CPU: 7}, Throttled: 0.5,
	}}}}
	w := api.ReportToWire(r)
	later := w.Containers[0].State
	later.Observed |= 1<<31 | 1<<30
	later.Integers = append(later.Integers, 99)
	later.Numbers = append(later.Numbers, 0.99)
	got, err := api.ReportFromWire(w)
	if err != nil || !reflect.DeepEqual(got.Containers[0].State, r.Containers[0].State) {
		t.Errorf("%v, %+v", err, got)
	}
	later.Integers = nil
	if _, err := api.ReportFromWire(w); err == nil || !strings.Contains(err.Error(), "cpu-usage") {
		t.Errorf("a value is missing: %v", err)
	}
}

// fill gives every field of a struct a value, deeply; times and slices are left
// to the caller.
func fill[T any](rng *rand.Rand) T {
	var v T
	fillValue(reflect.ValueOf(&v).Elem(), rng)
	return v
}

func fillValue(v reflect.Value, rng *rand.Rand) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i), rng)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("s", rng.Int()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(rng.Float64())
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1 + rng.Int63n(1<<30))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(1 + rng.Intn(100)))
	}
}
