package api_test

import (
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
	"google.golang.org/protobuf/types/known/durationpb"
)

// Every field of an account and of a permit survives the wire, and so does that there is
// none.
func TestNoAccountAndNoPermitIsLostOnTheWire(t *testing.T) {
	law := func(seed int64) bool {
		rng := rand.New(rand.NewSource(seed))
		account, permit := fill[api.Account](rng), fill[api.Permit](rng)
		for _, cpu := range []*mdp.MilliCPU{&account.InForce.CPU, &account.Asked.CPU, &permit.Amount.CPU} {
			*cpu /= 2 // no node has more than a million cores
		}
		for _, report := range []api.Report{{Account: &account}, {Account: new(api.Account)}, {}} {
			got, err := api.ReportFromWire(api.ReportToWire(report))
			if err != nil || !reflect.DeepEqual(got.Account, report.Account) {
				t.Logf("account %+v, %v; want %+v", got.Account, err, report.Account)
				return false
			}
		}
		for _, grants := range []api.Grants{{TTL: 1, Permit: permit}, {TTL: 1, Permit: permit, Unchanged: true}, {TTL: 1}} {
			got, err := api.GrantsFromWire(api.GrantsToWire(grants))
			if err != nil || got.Permit != grants.Permit || got.Unchanged != grants.Unchanged {
				t.Logf("grants %+v, %v; want %+v", got, err, grants)
				return false
			}
		}
		return true
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}

// An account that no node can have is left out, and says why. The rest of the report is
// taken.
func TestAnImpossibleAccountIsLeftOut(t *testing.T) {
	for want, change := range map[string]func(*linkv1.Account){
		"limits in force: -1m":                  func(a *linkv1.Account) { a.InForce.MilliCpu = -1 },
		"limits in force: 9223372036854775807m": func(a *linkv1.Account) { a.InForce.MilliCpu = math.MaxInt64 },
		"limits that are asked for: 0":          func(a *linkv1.Account) { a.Asked.MemoryBytes = math.MinInt64 },
		"must be from 0 to 1000000000m":         func(a *linkv1.Account) { a.Asked.MemoryBytes = 1<<50 + 1 },
		"permit 7 of epoch 0: both must":        func(a *linkv1.Account) { a.Holds = &linkv1.PermitId{Number: 7} },
		"permit 0 of epoch 7: both must":        func(a *linkv1.Account) { a.Holds = &linkv1.PermitId{Epoch: 7} },
	} {
		w := api.ReportToWire(api.Report{Account: new(api.Account), Containers: []api.Summary{{}}})
		change(w.Account)
		r, err := api.ReportFromWire(w)
		if err == nil || !strings.Contains(err.Error(), want) || r.Account != nil || len(r.Containers) != 1 {
			t.Errorf("%v, account %+v of %d containers; want an error with %q", err, r.Account, len(r.Containers), want)
		}
	}
}

// A permit that cannot be one is refused, with the whole message: an agent must not
// work by a part of it.
func TestAnImpossiblePermitIsRefused(t *testing.T) {
	id := &linkv1.PermitId{Epoch: 1, Number: 1}
	for want, p := range map[string]*linkv1.Permit{
		"permit 1 of epoch 0":        {Id: &linkv1.PermitId{Number: 1}},
		"permitted: -5m":             {Id: id, Amount: &linkv1.Size{MilliCpu: -5}},
		"permitted: 0":               {Id: id, Amount: &linkv1.Size{MemoryBytes: math.MaxInt64}},
		"it has no number":           {Amount: &linkv1.Size{MilliCpu: 5}},
		"of epoch 1: both must be a": {Id: &linkv1.PermitId{Epoch: 1}},
	} {
		_, err := api.GrantsFromWire(&linkv1.Grants{Ttl: durationpb.New(time.Minute), Permit: p})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

func TestTheNewestPermitHolds(t *testing.T) {
	p := func(epoch, number uint64) api.Permit {
		return api.Permit{ID: api.PermitID{Epoch: epoch, Number: number}, Amount: mdp.Size{Memory: mdp.Bytes(number)}}
	}
	none := api.Permit{}
	for name, c := range map[string]struct{ has, next, want api.Permit }{
		"the first":                {none, p(1, 1), p(1, 1)},
		"a newer one":              {p(1, 1), p(1, 2), p(1, 2)},
		"an older one":             {p(1, 2), p(1, 1), p(1, 2)},
		"of another central":       {p(9, 9), p(1, 1), p(1, 1)},
		"a message without one":    {p(1, 2), none, p(1, 2)},
		"none after there was one": {none, none, none},
	} {
		if got := c.has.Then(c.next); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
