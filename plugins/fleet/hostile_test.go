package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

const agents = "system:serviceaccount:aware-system:aware-agent"

// using is a container of a pod that uses so much CPU.
func using(podUID string, cpu mdp.MilliCPU) api.Summary {
	s := api.Summary{Container: api.ContainerRef{Namespace: "shop", Pod: "web", PodUID: podUID, Container: "web"}}
	s.State.Observed = mdp.SetOf(mdp.CPUUsage)
	s.State.Usage.CPU = cpu
	return s
}

// A node that reports a pod of another node changes nothing there: neither while it
// reports it, nor when it stops.
func TestAForgedPodChangesNothingOfAnotherNode(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Accept(time.Now(), api.Report{Node: "two", Full: true, Containers: []api.Summary{using("v", 300)}})
	check := func(when string) {
		t.Helper()
		got, ok := f.Summary("two", "v", "web", time.Now(), time.Minute)
		if !ok || got.State.Usage.CPU != 300 {
			t.Errorf("%s: node two's pod uses %v, %v; want 300m", when, got.State.Usage.CPU, ok)
		}
		if _, ok := f.Summary("one", "v", "web", time.Now(), time.Minute); ok {
			t.Errorf("%s: node one has node two's pod", when)
		}
	}
	s := start(t, "one")
	s.server.Central = f
	s.node.report.Containers = []api.Summary{using("u", 100), using("v", 3999)}
	s.run(t)
	seen := func(cpu mdp.MilliCPU) func() bool {
		return func() bool {
			got, ok := f.Summary("one", "u", "web", time.Now(), time.Minute)
			return ok && got.State.Usage.CPU == cpu
		}
	}
	eventually(t, "the report arrives", seen(100))
	check("forged")
	s.node.reports([]api.Summary{using("u", 200)})
	eventually(t, "the next report arrives", seen(200))
	check("no longer forged")
}

// What a container cannot have is left out, and says why. The node's other
// containers are taken.
func TestImpossibleValuesAreLeftOut(t *testing.T) {
	for want, change := range map[string]func(*api.Summary){
		"cpu-usage is -1":              func(s *api.Summary) { s.State.Usage.CPU = -1 },
		"cpu-usage is 8000":            func(s *api.Summary) { s.State.Usage.CPU = 8000 },
		"memory-usage is":              func(s *api.Summary) { mdp.MemoryUsage.Set(&s.State, 9<<30) },
		"throttled is NaN":             func(s *api.Summary) { mdp.Throttled.Set(&s.State, math.NaN()) },
		"throttled is 7":               func(s *api.Summary) { mdp.Throttled.Set(&s.State, 7) },
		"io-rate is +Inf":              func(s *api.Summary) { mdp.IORate.Set(&s.State, math.Inf(1)) },
		"latency: it is of a workload": func(s *api.Summary) { mdp.Latency.Set(&s.State, 1) },
		"bounds of cpu-limit from -5":  func(s *api.Summary) { s.Bounds.CPU.Min = -5 },
		"bounds of memory-limit from":  func(s *api.Summary) { s.Bounds.Memory.Max, s.Bounds.Memory.Min = 1, 2 },
		"resizes and 0 conflicts":      func(s *api.Summary) { s.Resizes = 1 << 63 },
		`mode "root"`:                  func(s *api.Summary) { s.Mode = "root" },
		"not on this node by the API":  func(s *api.Summary) { s.Container.PodUID = "v" },
		"at most 100":                  func(s *api.Summary) { s.Latency = buckets(101) },
		"first bound is not a number": func(s *api.Summary) {
			s.Latency = api.Histogram{Upper: []float64{math.NaN()}, Counts: []uint64{1}}
		},
		"wanted cpu-limit is -3: it mus": func(s *api.Summary) { s.Want = s.Want.WithCPU(-3) },
	} {
		t.Run(want, func(t *testing.T) {
			s := start(t, "one")
			said := make(chan error, 100)
			s.server.Log = func(err error, _ string, _ ...any) { said <- err }
			bad := using("u", 100)
			bad.Container.Container = "bad"
			change(&bad)
			s.node.report.Containers = []api.Summary{bad, using("u", 100)}
			s.run(t)
			eventually(t, "a report arrives", func() bool { return len(s.central.reports()) > 0 })
			all := s.central.reports()[0].Containers
			if len(all) != 1 || all[0].Container.Container != "web" {
				t.Errorf("%d containers were taken: %+v", len(all), all)
			}
			if err := <-said; !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want it to say %q", err, want)
			}
		})
	}
}

// strange is a cluster whose API server knows less of the nodes.
type strange struct {
	cluster
	node, room bool // is known
}

func (s strange) Capacity(node string) (mdp.Size, bool) {
	if !s.node {
		return mdp.Size{}, false
	}
	return s.cluster.Capacity(node)
}

func (s strange) Room(node string) (mdp.Size, bool) {
	if !s.room {
		return mdp.Size{}, false
	}
	return s.cluster.Room(node)
}

// Of a node that the API server does not know nothing is taken. Of one whose room is not known the containers are, and not what
// it asks for: 0 would be an answer, and unknown is none.
func TestWhatTheAPIServerDoesNotKnowIsNotTakenFromANode(t *testing.T) {
	for name, c := range map[string]struct {
		known               strange
		containers, account bool
	}{
		"all is known":      {strange{node: true, room: true}, true, true},
		"the room is not":   {strange{node: true}, true, false},
		"the node is not":   {strange{room: true}, false, false},
		"nothing is at all": {strange{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "one")
			c.known.cluster = s.server.Cluster.(cluster)
			s.server.Cluster = c.known
			idle := using("u", 0) // fits a node of nothing
			s.node.report.Containers = []api.Summary{idle}
			s.node.asks(mdp.Size{Memory: 1}, mdp.Size{Memory: 2})
			said := make(chan error, 100)
			s.server.Log = func(err error, _ string, _ ...any) { said <- err }
			s.run(t)
			if !c.known.node {
				eventually(t, "the report is refused", func() bool { return len(said) > 0 })
				if err := <-said; !strings.Contains(err.Error(), "not known to the API server") {
					t.Error(err)
				}
			} else {
				eventually(t, "a report arrives", func() bool { return len(s.central.reports()) > 0 })
			}
			for _, r := range s.central.reports() {
				if (len(r.Containers) == 1) != c.containers || (r.Account != nil) != c.account {
					t.Errorf("taken: %d containers, account %v", len(r.Containers), r.Account)
				}
			}
		})
	}
}

func buckets(n int) (h api.Histogram) {
	for i := range n {
		h.Upper = append(h.Upper, float64(i+1))
		h.Counts = append(h.Counts, uint64(i))
	}
	return h
}

// What was known of a container is not known any more when its node says what cannot
// be: the value from before would pass for a new one.
func TestAContainerWithAnImpossibleValueIsUnknown(t *testing.T) {
	f := fleet.New(time.Minute)
	s := start(t, "one")
	s.server.Central = f
	s.node.report.Containers = []api.Summary{using("u", 100)}
	s.run(t)
	known := func() bool {
		_, ok := f.Summary("one", "u", "web", time.Now(), time.Minute)
		return ok
	}
	eventually(t, "the container is known", known)
	s.node.reports([]api.Summary{using("u", -1)})
	eventually(t, "the container is unknown", func() bool { return !known() })
	unreadable := using("u", 200)
	unreadable.Latency = buckets(101)
	s.node.reports([]api.Summary{using("u", 200)})
	eventually(t, "the container is known again", known)
	s.node.reports([]api.Summary{unreadable})
	eventually(t, "the container is unknown again", func() bool { return !known() })
}

// A bound that is above the node is the node: the scheduler adds them up.
func TestABoundIsAtMostTheNode(t *testing.T) {
	s := start(t, "one")
	one := using("u", 100)
	one.Bounds.CPU = mdp.Range[mdp.MilliCPU]{Min: 10, Max: 64000}
	s.node.report.Containers = []api.Summary{one}
	s.run(t)
	eventually(t, "a report arrives", func() bool { return len(s.central.reports()) > 0 })
	if got := s.central.reports()[0].Containers[0].Bounds.CPU; got.Min != 10 || got.Max != 4000 {
		t.Errorf("bounds %v, want 10m to the node's 4000m", got)
	}
}

// A pod's long answer is in its problem, and a problem is a line.
func TestAProblemIsShortAndClean(t *testing.T) {
	s := start(t, "one")
	one := using("u", 100)
	one.Problem = "status \x1b[31m200\n" + strings.Repeat("\u00e4", 1<<20)
	s.node.report.Containers = []api.Summary{one}
	s.run(t)
	eventually(t, "a report arrives", func() bool { return len(s.central.reports()) > 0 })
	got := s.central.reports()[0].Containers[0].Problem
	if len(got) > api.MaxProblem || strings.ContainsAny(got, "\x1b\n\ufffd") || !strings.HasPrefix(got, "status [31m200 \u00e4") {
		t.Errorf("%d bytes: %.80q", len(got), got)
	}
}

// reviews makes the API server answer token reviews.
func (s *setup) reviews(answer func(token string) (authenticationv1.TokenReviewStatus, error)) {
	s.cluster.PrependReactor("create", "tokenreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		review := a.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		var err error
		review.Status, err = answer(review.Spec.Token)
		return true, review, err
	})
}

// agentOf is the API server's word on a good token of a node's agent.
func agentOf(node string) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     []string{api.Audience},
		User: authenticationv1.UserInfo{
			Username: agents,
			Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {node}},
		},
	}
}

// goodUntil makes the API server take every token as that of node one's agent until
// the switch is set. From then on it takes none, or answers with the error.
func (s *setup) goodUntil(then error) *atomic.Bool {
	over := new(atomic.Bool)
	s.reviews(func(string) (authenticationv1.TokenReviewStatus, error) {
		if over.Load() {
			return authenticationv1.TokenReviewStatus{}, then
		}
		return agentOf("one"), nil
	})
	return over
}

// An API server that does not know audiences calls a token valid that was made
// for somebody else.
func TestATokenForAnotherAudienceIsRefused(t *testing.T) {
	for _, audiences := range [][]string{nil, {"https://kubernetes.default.svc"}} {
		s := start(t, "one")
		s.reviews(func(string) (authenticationv1.TokenReviewStatus, error) {
			status := agentOf("one")
			status.Audiences = audiences
			return status, nil
		})
		_, err := s.server.Reviewer.Review(t.Context(), "10.0.0.1:1", "good")
		if !fleet.Refused(err) || !strings.Contains(err.Error(), "not valid for audience") {
			t.Errorf("audiences %v: %v, want a refusal", audiences, err)
		}
	}
}

// An API server that is away has not refused anybody: who is connected stays so until
// the token ends, and who is not shall dial again.
func TestAnOutageOfTheAPIServerIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "one")
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).SignedString([]byte("the API server's"))
		if err != nil {
			t.Fatal(err)
		}
		s.token(t, token)
		away := s.goodUntil(errors.New("the API server is away"))
		s.client.Every = time.Second
		s.run(t)
		time.Sleep(time.Minute)
		away.Store(true)
		time.Sleep(58 * time.Minute)
		synctest.Wait()
		before := len(s.central.reports())
		select {
		case err := <-s.problem:
			t.Fatalf("the stream ended: %v", err)
		default:
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if err := <-s.problem; err == nil || !strings.Contains(err.Error(), "the token has expired") {
			t.Errorf("after an hour the stream ended with %v, want that its token has expired", err)
		}
		err = <-s.problem
		if err == nil || !strings.Contains(err.Error(), "the API server is away") || refused(err) {
			t.Errorf("the next dial: %v, want that the API server is away, and no refusal", err)
		}
		if before < 3000 {
			t.Errorf("%d reports in the first 59 minutes", before)
		}
	})
}

// A token that the API server no longer takes ends its stream within minutes.
func TestAStreamEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, "one")
		deleted := s.goodUntil(nil)
		s.client.Every = time.Second
		s.run(t)
		time.Sleep(time.Minute)
		deleted.Store(true)
		time.Sleep(10 * time.Minute)
		if err := <-s.problem; !refused(err) {
			t.Errorf("err = %v, want a refusal", err)
		}
	})
}

// Many dials with one token are one review. A caller with many tokens is slowed down,
// and nobody else is.
func TestReviewsAreBounded(t *testing.T) {
	s := start(t, "one")
	var asked atomic.Int32
	s.reviews(func(token string) (authenticationv1.TokenReviewStatus, error) {
		asked.Add(1)
		if token != "good" {
			return authenticationv1.TokenReviewStatus{}, nil
		}
		return agentOf("one"), nil
	})
	review := func(peer, token string) error {
		_, err := s.server.Reviewer.Review(t.Context(), peer, token)
		return err
	}
	for i := range 40 {
		if err := review(fmt.Sprintf("10.0.0.1:%d", i), "good"); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("40 dials with one token were %d reviews", n)
	}
	for i := range 2000 {
		err := review("10.0.0.66:1", fmt.Sprint("guess ", i))
		if err == nil {
			t.Fatal("a guess was right")
		}
	}
	if n := asked.Load(); n > 1000 {
		t.Errorf("2000 guesses of one caller were %d reviews", n)
	}
	if err := review("10.0.0.2:1", "good"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// A node has one agent. When its network comes back, the stream from before is not
// waited for.
func TestANodesNewStreamEndsItsOldOne(t *testing.T) {
	s := start(t, "one")
	s.run(t)
	eventually(t, "the first stream", func() bool { return len(s.central.reports()) > 0 })
	second := *s.client
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go second.Run(ctx)
	if err := <-s.problem; err == nil || !strings.Contains(err.Error(), "node one has opened another stream") {
		t.Errorf("err = %v, want that there is another stream", err)
	}
}

// A node that says much that is wrong, on many streams, gets one short line of the log in
// a minute.
func TestAHostileNodeDoesNotFillTheLog(t *testing.T) {
	s := start(t, "one")
	said := make(chan error, 1000)
	s.server.Log = func(err error, _ string, _ ...any) { said <- err }
	for i := range 5000 {
		one := using(fmt.Sprint("forged ", i), 100)
		one.Container.Pod = strings.Repeat("x\n", 100)
		s.node.report.Containers = append(s.node.report.Containers, one)
	}
	for streams := range 3 {
		before := len(s.central.reports())
		again := *s.client
		ctx, cancel := context.WithCancel(t.Context())
		go again.Run(ctx)
		eventually(t, fmt.Sprintf("a report of stream %d", streams), func() bool { return len(s.central.reports()) > before })
		cancel()
	}
	if len(said) != 1 {
		t.Errorf("three streams of a node were %d lines", len(said))
	}
	err := <-said
	if n := len(err.Error()); n > 1<<10 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "4997 more") {
		t.Errorf("a line of %d bytes: %.2000q", n, err)
	}
}
