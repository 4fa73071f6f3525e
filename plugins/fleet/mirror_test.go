package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/plugins/fleet"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"
)

// anyone takes every token for a scheduler's.
type anyone struct{}

func (anyone) Review(context.Context, string, string) (fleet.Identity, error) {
	return fleet.Identity{Node: "one"}, nil
}

// scheduler is a scheduler's process beside an autoscaler's: a mirror, and what it asks.
type scheduler struct {
	*setup
	mirror *fleet.Mirror
	fleet  atomic.Pointer[fleet.Fleet] // of the autoscaler that runs now
	serves atomic.Bool
	asked  atomic.Int32
	wrong  atomic.Pointer[http.HandlerFunc] // answers instead of the autoscaler

	mu   sync.Mutex
	said []string // what was logged
}

// schedule starts both. The mirror asks each second, as long as the test runs.
func schedule(t *testing.T) *scheduler {
	t.Helper()
	s := &scheduler{setup: start(t, "one")}
	s.fleet.Store(fleet.New(time.Minute))
	s.serves.Store(true)
	s.web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if h := s.wrong.Load(); h != nil {
			(*h)(w, r)
			return
		}
		one := &fleet.Server{Uppers: &fleet.UpperServer{
			Fleet: s.fleet.Load(), Reviewer: anyone{}, Now: time.Now, Serving: s.serves.Load,
		}}
		one.Handler().ServeHTTP(w, r)
	})
	s.mirror = &fleet.Mirror{
		Caller: &fleet.Caller{URL: s.client.URL, Name: name, Token: s.client.Token, CA: s.client.CA, Dial: s.client.Dial},
		Every:  time.Second, MaxAge: 30 * time.Second, Now: time.Now,
		Log: func(err error, message string, _ ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.said = append(s.said, fmt.Sprint(message, ": ", err))
		},
	}
	return s
}

func (s *scheduler) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.mirror.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

// answers makes the autoscaler answer so from now on.
func (s *scheduler) answers(h http.HandlerFunc) { s.wrong.Store(&h) }

// logged is how often something was logged, and the last of it.
func (s *scheduler) logged() (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.said) == 0 {
		return 0, ""
	}
	return len(s.said), s.said[len(s.said)-1]
}

// sees is what the scheduler knows of pod a on node one; -1 when it knows nothing.
func (s *scheduler) sees() mdp.MilliCPU {
	byPod, ok := s.mirror.Upper("one", time.Now(), 30*time.Second)
	if size, known := byPod["a"]; ok && known {
		return size.CPU
	}
	return -1
}

// allows is a node's report of its pod a.
func allows(node string, cpu mdp.MilliCPU) api.Report {
	r := report(node, "a")
	r.Containers[0].Bounds.CPU.Max, r.Containers[0].Bounds.Memory.Max = cpu, 1024*mdp.MiB
	return r
}

func TestASchedulerInAnotherProcessSeesWhatPodsCanUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		f := s.fleet.Load()
		f.Accept(time.Now(), allows("one", 500))
		s.run(t)
		time.Sleep(100 * time.Millisecond)
		if got := s.sees(); got != 500 {
			t.Fatalf("the scheduler sees %v, want the 500m that the agent reported", got)
		}
		for _, cpu := range []mdp.MilliCPU{700, 700, 600} {
			f.Accept(time.Now(), allows("one", cpu))
			time.Sleep(time.Second)
			if got := s.sees(); got != cpu {
				t.Errorf("after a second the scheduler sees %v, want %v", got, cpu)
			}
		}
		// The agent falls silent, and the autoscaler goes on to answer.
		time.Sleep(28 * time.Second)
		if got := s.sees(); got != 600 {
			t.Errorf("a report that is 29 s old: the scheduler sees %v, want 600m", got)
		}
		time.Sleep(3 * time.Second)
		if got := s.sees(); got != -1 {
			t.Errorf("a report that is 32 s old counts: %v", got)
		}
		if age, ok := s.mirror.Age(time.Now()); !ok || age > 2*time.Second {
			t.Errorf("the copy is %v old, %v", age, ok)
		}
		if n, last := s.logged(); n != 0 {
			t.Errorf("%d messages although every question was answered, the last: %s", n, last)
		}
	})
}

// Scheduling goes on while the autoscaler is restarted. Its reports count until they
// are old, then the API's limits do, and this is said once. A new autoscaler's count at once.
func TestARestartOfTheAutoscalerDisturbsNoScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		s.fleet.Load().Accept(time.Now(), allows("one", 500))
		s.fleet.Load().Accept(time.Now(), allows("two", 500))
		s.run(t)
		time.Sleep(time.Second)
		s.serves.Store(false)
		time.Sleep(25 * time.Second)
		if n, last := s.logged(); s.sees() != 500 || n != 0 {
			t.Errorf("26 s after the last report the scheduler sees %v and has said %q; want 500m and nothing", s.sees(), last)
		}
		before := s.asked.Load()
		time.Sleep(10 * time.Minute)
		n, last := s.logged()
		if s.sees() != -1 || n != 1 || !strings.Contains(last, "stale") || !strings.Contains(last, "not the autoscaler now") {
			t.Errorf("ten minutes later it sees %v and has said %d times, last %q; want nothing, and once why", s.sees(), n, last)
		}
		if asked := s.asked.Load() - before; asked > 200 || asked < 80 {
			t.Errorf("it asked %d times in ten minutes, want about every 5 s", asked)
		}
		s.fleet.Store(fleet.New(time.Minute))
		s.fleet.Load().Accept(time.Now(), allows("one", 800))
		s.serves.Store(true)
		time.Sleep(10 * time.Second)
		if n, last := s.logged(); s.sees() != 800 || n != 2 || !strings.Contains(last, "up to date again") {
			t.Errorf("10 s after the start of the new one it sees %v and has said %d times, last %q", s.sees(), n, last)
		}
	})
}

// An autoscaler that was restarted quickly has not heard of every node yet.
func TestAQuickRestartForgetsNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		s.fleet.Load().Accept(time.Now(), allows("one", 500))
		s.run(t)
		time.Sleep(1500 * time.Millisecond)
		s.fleet.Store(fleet.New(time.Minute))
		s.fleet.Load().Accept(time.Now(), allows("two", 900))
		time.Sleep(2 * time.Second)
		if got := s.sees(); got != 500 {
			t.Errorf("the new autoscaler has not heard of node one: the scheduler sees %v, want the report of 4 s ago", got)
		}
		if byPod, ok := s.mirror.Upper("two", time.Now(), 30*time.Second); !ok || byPod["a"].CPU != 900 {
			t.Errorf("node two: %v, %v", byPod, ok)
		}
		time.Sleep(30 * time.Second)
		if got := s.sees(); got != -1 {
			t.Errorf("a report that is 33 s old counts: %v", got)
		}
	})
}

// Whoever schedules reads the last copy: it never waits for an autoscaler that hangs.
func TestAnAutoscalerThatHangsMakesNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		s.fleet.Load().Accept(time.Now(), allows("one", 500))
		s.run(t)
		time.Sleep(100 * time.Millisecond)
		var hung atomic.Int32
		s.answers(func(_ http.ResponseWriter, r *http.Request) {
			hung.Add(1)
			<-r.Context().Done()
		})
		for range 20 {
			before := time.Now()
			if got := s.sees(); got != 500 || time.Since(before) != 0 {
				t.Fatalf("it sees %v after %v", got, time.Since(before))
			}
			time.Sleep(time.Second)
		}
		if hung.Load() < 2 {
			t.Errorf("%d questions in 20 s: one without an answer must end", hung.Load())
		}
		s.wrong.Store(nil)
		s.fleet.Load().Accept(time.Now(), allows("one", 600))
		time.Sleep(15 * time.Second)
		if got := s.sees(); got != 600 {
			t.Errorf("after it answered again: %v", got)
		}
	})
}

// More than one answer has room for arrives in several.
func TestALargeClusterComesInSeveralAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		const nodes, pods = 7, 9000
		for i := range nodes {
			var uids []string
			for k := range pods {
				uids = append(uids, fmt.Sprint(i, "-", k))
			}
			s.fleet.Load().Accept(time.Now(), report(fmt.Sprint("node-", i), uids...))
		}
		s.run(t)
		time.Sleep(900 * time.Millisecond) // before the second question of its own accord
		for i := range nodes {
			byPod, ok := s.mirror.Upper(fmt.Sprint("node-", i), time.Now(), time.Minute)
			if !ok || len(byPod) != pods {
				t.Errorf("node %d: %d pods, %v; want %d", i, len(byPod), ok, pods)
			}
		}
		if n := s.asked.Load(); n < 2 || n > 5 {
			t.Errorf("%d answers for %d pods", n, nodes*pods)
		}
	})
}

// answer is what an autoscaler answers.
type answer struct {
	Cursor string
	Reset  bool
	Nodes  []struct {
		Name  string
		AgeMS int64
		Pods  map[string]struct{ CPU mdp.MilliCPU }
	}
}

// ask asks a second after noon.
func ask(t *testing.T, f *fleet.Fleet, cursor string) (a answer) {
	t.Helper()
	h := &fleet.UpperServer{
		Fleet: f, Reviewer: anyone{}, Now: func() time.Time { return noon.Add(time.Second) },
		Serving: func() bool { return true },
	}
	r := httptest.NewRequest(http.MethodGet, fleet.UpperPath+"?after="+cursor, nil)
	r.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &a); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return a
}

// What has not changed is not sent again.
func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	f := fleet.New(time.Minute)
	f.Accept(noon, allows("one", 500))
	first := ask(t, f, "")
	if !first.Reset || len(first.Nodes) != 1 || len(first.Nodes[0].Pods) != 1 || first.Nodes[0].AgeMS != 1000 {
		t.Fatalf("the first answer: %+v", first)
	}
	f.Accept(noon, allows("one", 500))
	f.Accept(noon, allows("two", 500))
	second := ask(t, f, first.Cursor)
	for _, n := range second.Nodes {
		if sent := n.Pods != nil; sent != (n.Name == "two") {
			t.Errorf("the second answer has pods of node %s: %v", n.Name, sent)
		}
	}
	if second.Reset || len(second.Nodes) != 2 {
		t.Errorf("the second answer: %+v", second)
	}
	for _, other := range []string{"x-1", "-", first.Cursor + "x", "18446744073709551615"} {
		if a := ask(t, f, other); !a.Reset || len(a.Nodes) != 2 || a.Nodes[0].Pods == nil || a.Nodes[1].Pods == nil {
			t.Errorf("cursor %q: %+v; want everything", other, a)
		}
	}
}

// However reports and questions meet, what an answer leaves out is in the next one.
func TestNoChangeIsLost(t *testing.T) {
	const nodes, rounds = 100, 400
	f := fleet.New(time.Minute)
	said := make([]mdp.MilliCPU, nodes)
	cursor := ""
	hear := func() {
		a := ask(t, f, cursor)
		cursor = a.Cursor
		for _, n := range a.Nodes {
			var i int
			if _, err := fmt.Sscanf(n.Name, "node-%d", &i); err != nil {
				t.Fatal(err)
			}
			if n.Pods != nil {
				said[i] = n.Pods["a"].CPU
			}
		}
	}
	for round := range mdp.MilliCPU(rounds) {
		var reports sync.WaitGroup
		reports.Go(func() {
			for i := range nodes {
				f.Accept(noon, allows(fmt.Sprint("node-", i), round+1))
			}
		})
		hear() // in the midst of the reports
		reports.Wait()
		hear()
		for i := range nodes {
			if said[i] != round+1 {
				t.Fatalf("round %d: node %d said %v, and the scheduler has heard %v", round, i, round+1, said[i])
			}
		}
	}
}

// An autoscaler that has just started and names a node without its pods knows nothing of
// them yet: what the scheduler knew of them does not pass for new.
func TestANewAutoscalerMakesNoOldReportYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		s.fleet.Load().Accept(time.Now(), allows("one", 500))
		s.run(t)
		time.Sleep(100 * time.Millisecond)
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"cursor":"y-0","reset":true,"nodes":[{"name":"one","ageMS":0,"pods":null}]}`)
		})
		time.Sleep(25 * time.Second)
		if got := s.sees(); got != 500 {
			t.Errorf("a report that is 25 s old: the scheduler sees %v, want 500m", got)
		}
		time.Sleep(10 * time.Second)
		if got := s.sees(); got != -1 {
			t.Errorf("a report that is 35 s old counts: %v", got)
		}
	})
}

// The upper bounds are said to schedulers only.
func TestWhoIsNotASchedulerIsRefused(t *testing.T) {
	s := start(t, "one")
	account := ""
	s.cluster.PrependReactor("create", "tokenreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		review := a.(ktesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token == "outage" {
			return true, nil, fmt.Errorf("the API server is away")
		}
		review.Status.Authenticated, review.Status.Audiences = true, review.Spec.Audiences
		review.Status.User.Username = account
		review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"one"}}
		return true, review, nil
	})
	h := &fleet.UpperServer{
		Fleet: fleet.New(time.Minute), Now: time.Now, Serving: func() bool { return true },
		Reviewer: fleet.NewTokenReviews(s.cluster, "system:serviceaccount:aware-system:aware-scheduler"),
	}
	for what, c := range map[string]struct {
		method, account, token string
		status                 int
		says                   string
	}{
		"a scheduler": {"GET", "system:serviceaccount:aware-system:aware-scheduler", "good", 200, `"cursor"`},
		"an agent":    {"GET", agents, "agents", 401, "aware-agent's, not"},
		"a tenant's scheduler of the same name": {"GET", "system:serviceaccount:shop:aware-scheduler", "tenants", 401,
			"shop:aware-scheduler's, not"},
		"who has no token":            {"GET", "", "", 401, "need a service-account token"},
		"who writes":                  {"POST", "", "good", 405, "use GET"},
		"who asks during an outage":   {"GET", "", "outage", 503, "API server is away"},
		"who has another valid token": {"GET", "jane", "janes", 401, "jane's, not"},
	} {
		account = c.account
		r := httptest.NewRequest(c.method, fleet.UpperPath, nil)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if body, _ := io.ReadAll(w.Body); w.Code != c.status || !strings.Contains(string(body), c.says) {
			t.Errorf("%s: %d %s; want %d saying %q", what, w.Code, body, c.status, c.says)
		}
	}
}

// An answer that no autoscaler of ours gives changes nothing, whatever is wrong in it.
func TestAnImpossibleAnswerIsLeftOut(t *testing.T) {
	pods := func(pod string) string {
		return `{"cursor":"x-1","nodes":[{"name":"one","ageMS":0,"pods":{"a":{"cpu":700,"memory":1}}},` + pod + `]}`
	}
	many := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(all, ",")
	}
	for what, text := range map[string]string{
		"not JSON":            "<html>",
		"a negative CPU":      pods(`{"name":"two","pods":{"a":{"cpu":-1,"memory":1}}}`),
		"a negative memory":   pods(`{"name":"two","pods":{"a":{"cpu":1,"memory":-1}}}`),
		"a huge memory":       pods(`{"name":"two","pods":{"a":{"cpu":1,"memory":9223372036854775807}}}`),
		"a negative promise":  pods(`{"name":"two","pods":{},"promised":{"cpu":-1,"memory":1,"forMS":1}}`),
		"a huge promise":      pods(`{"name":"two","pods":{},"promised":{"cpu":1,"memory":9223372036854775807,"forMS":1}}`),
		"a promise that ends": pods(`{"name":"two","pods":{},"promised":{"cpu":1,"memory":1,"forMS":-1}}`),
		"a promise for ever":  pods(`{"name":"two","pods":{},"promised":{"cpu":1,"memory":1,"forMS":9223372036854775807}}`),
		"a number beyond all": pods(`{"name":"two","pods":{"a":{"cpu":1e300,"memory":1}}}`),
		"a fraction":          pods(`{"name":"two","pods":{"a":{"cpu":0.5,"memory":1}}}`),
		"a report to come":    pods(`{"name":"two","ageMS":-1,"pods":{}}`),
		"an age beyond all":   pods(`{"name":"two","ageMS":9223372036854775807,"pods":{}}`),
		"a node without name": pods(`{"name":"","pods":{}}`),
		"a long name":         pods(`{"name":"` + strings.Repeat("n", 300) + `","pods":{}}`),
		"a long UID":          pods(`{"name":"two","pods":{"` + strings.Repeat("u", 300) + `":{"cpu":1,"memory":1}}}`),
		"a long cursor":       `{"cursor":"` + strings.Repeat("c", 300) + `","nodes":[]}`,
		"too many nodes":      pods(many(20_001, `{"name":"n%d","pods":{}}`)),
		"more than is read":   pods(`{"name":"two","pods":{}}`) + strings.Repeat(" ", 17<<20),
		"an answer elsewhere": "",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := schedule(t)
				s.fleet.Load().Accept(time.Now(), allows("one", 500))
				s.run(t)
				time.Sleep(100 * time.Millisecond)
				wrong := atomic.Int32{}
				s.answers(func(w http.ResponseWriter, r *http.Request) {
					wrong.Add(1)
					switch {
					case text != "":
						io.WriteString(w, text)
					case r.URL.Path == fleet.UpperPath:
						http.Redirect(w, r, "/elsewhere", http.StatusFound)
					default:
						io.WriteString(w, pods(`{"name":"two","pods":{}}`))
					}
				})
				time.Sleep(10 * time.Second)
				if got := s.sees(); got != 500 || wrong.Load() < 2 {
					t.Errorf("after %d such answers the scheduler sees %v, want 500m as before", wrong.Load(), got)
				}
				time.Sleep(40 * time.Second)
				if n, last := s.logged(); n != 1 || !strings.Contains(last, "stale") {
					t.Errorf("%d messages, the last: %s", n, last)
				}
			})
		})
	}
}

// What is promised of a node is known to a scheduler in another process, until it ends.
func TestASchedulerInAnotherProcessSeesWhatIsPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := schedule(t)
		f := s.fleet.Load()
		f.TTL = 20 * time.Second
		f.Open()
		s.run(t)
		var holds api.PermitID
		report := func() {
			r := allows("one", 500)
			r.Account = &api.Account{InForce: mdp.Size{CPU: 100}, Asked: mdp.Size{CPU: 300, Memory: mdp.MiB}, Holds: holds}
			f.Accept(time.Now(), r)
		}
		wants := func(when string, want mdp.Size) {
			t.Helper()
			sum, ok := s.mirror.Promised("one", time.Now(), freshness)
			if sum != want || ok != (want != mdp.Size{}) {
				t.Errorf("%s: the scheduler sees %v promised, %v; want %v", when, sum, ok, want)
			}
		}
		report()
		time.Sleep(2 * time.Second)
		wants("no permit", mdp.Size{})
		holds = f.Permit(time.Now(), "one").ID
		report()
		time.Sleep(2 * time.Second)
		wants("a permit", mdp.Size{CPU: 300, Memory: mdp.MiB})
		f.Lost("one")
		time.Sleep(2 * time.Second)
		wants("the stream has ended", mdp.Size{})
		holds = f.Permit(time.Now(), "one").ID
		report()
		time.Sleep(2 * time.Second)
		wants("a permit again", mdp.Size{CPU: 300, Memory: mdp.MiB})
		s.serves.Store(false)
		time.Sleep(17 * time.Second)
		wants("central is gone", mdp.Size{CPU: 300, Memory: mdp.MiB})
		time.Sleep(2 * time.Second)
		wants("and the permit may have ended", mdp.Size{})
		if s.sees() != 500 {
			t.Errorf("the report of before counts: the scheduler sees %v", s.sees())
		}
		s.serves.Store(true)
		report()
		f.Permit(time.Now(), "one")
		time.Sleep(10 * time.Second)
		wants("a permit that was not taken in", mdp.Size{})
		if age, ok := s.mirror.Age(time.Now()); !ok || age > 2*time.Second {
			t.Errorf("the copy is %v old, %v: an answer was refused", age, ok)
		}
	})
}
