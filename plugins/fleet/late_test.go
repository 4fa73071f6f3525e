package fleet_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
)

// unopened is an agent of a central that has a grant for it, and is not open yet.
func unopened(t *testing.T) (*setup, *fleet.Fleet) {
	t.Helper()
	s := start(t, "one")
	f := fleet.New(time.Minute)
	f.Grant("shop", map[string][]api.Grant{"one": {{Mode: api.Auto}}})
	s.server.Central = f
	s.client.Every = time.Second
	s.run(t)
	return s, f
}

// An agent may dial while central still reads its first objects. It gets its
// grants when central has them, and not never.
func TestGrantsArriveHoweverLateCentralOpens(t *testing.T) {
	for _, after := range []time.Duration{6 * time.Second, 40 * time.Second, 300 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := unopened(t)
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

// While nothing changes, central's signs of life keep the grants in force. One that has not
// opened yet renews nothing: the agent's grants may be of a central that is no more.
func TestSignsOfLifeKeepGrantsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := unopened(t)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := s.node.renewed.Load(); n != 0 {
			t.Errorf("a central that is not open renewed grants %d times", n)
		}
		f.Open()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n, sets := s.node.renewed.Load(), len(s.node.applied); n < 15 || sets != 1 {
			t.Errorf("in five minutes %d sets of grants, renewed %d times; want one set, renewed within each 20 s", sets, n)
		}
	})
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

// What may not wait is sent before its time, and no more often than once a second.
func TestAnUrgentReportDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "one")
		s.client.Every = time.Hour
		s.node.urgent = make(chan struct{}, 1)
		s.run(t)
		time.Sleep(20 * time.Second)
		before := len(s.central.reports())
		s.node.urgent <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if n := len(s.central.reports()) - before; n != 1 {
			t.Errorf("%d urgent reports, want one", n)
		}
		s.node.urgent <- struct{}{}
		time.Sleep(800 * time.Millisecond)
		synctest.Wait()
		if n := len(s.central.reports()) - before; n != 1 {
			t.Errorf("%d urgent reports within a second", n)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if n := len(s.central.reports()) - before; n != 2 {
			t.Errorf("%d urgent reports, want one a second", n)
		}
	})
}

// counted is a connection whose end is counted.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error { c.closed(); return c.Conn.Close() }

// A client that ends at the moment in which central's first answer comes leaves no stream and
// no connection behind: central must not take it for an agent that is there.
func TestAClientThatEndsWhileTheFirstAnswerComesLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "one")
		var open atomic.Int32
		dial := s.client.Dial
		s.client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &counted{c, sync.OnceFunc(func() { open.Add(-1) })}, nil
		}
		// Which of the two is seen first is by chance, so it is tried often.
		for try := range 500 {
			ctx, cancel := context.WithCancel(t.Context())
			s.client.Run(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { go cancel() }}))
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Fatalf("%d connections are open after try %d", n, try)
			}
		}
	})
}
