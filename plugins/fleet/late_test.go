package fleet_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
)

// An agent may dial while central still reads its first objects. It gets its
// grants when central has them, and not never.
func TestGrantsArriveHoweverLateCentralOpens(t *testing.T) {
	for _, after := range []time.Duration{6 * time.Second, 40 * time.Second, 300 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, "one")
				f := fleet.New(time.Minute)
				f.Grant("shop", map[string][]api.Grant{"one": {{Mode: api.Auto}}})
				s.server.Central = f
				s.client.Every = time.Second
				s.run(t)
				time.Sleep(after)
				synctest.Wait()
				if s.node.granted() != 0 {
					t.Fatal("a fleet that is not open gave grants")
				}
				f.Open()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if s.node.granted() != 1 {
					t.Errorf("%v after the dial central opened, and 20 s later the agent has %d grants", after, s.node.granted())
				}
			})
		})
	}
}

// A central that takes the stream and says nothing, not even headers, is given up
// and dialled again.
func TestASilentCentralIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "one")
		var dials atomic.Int32
		s.web.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			dials.Add(1)
			<-r.Context().Done()
		})
		s.client.Every = time.Second
		s.run(t)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if n := dials.Load(); n < 3 {
			t.Errorf("%d dials in three minutes", n)
		}
	})
}
