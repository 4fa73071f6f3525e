package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/train/lesson"
	"awarescale.dev/aware/plugins/fleet"
)

// school is a central without role learner, which lends the lessons of its workloads.
type school struct {
	*shop
	lender *lender
	server *httptest.Server
	token  string // a file

	mu     sync.Mutex
	served bool // it holds the autoscaler's lease
	at     time.Time
}

// oneAccount takes the tokens "learner" only.
type oneAccount struct{}

func (oneAccount) Review(_ context.Context, _, token string) (fleet.Identity, error) {
	if token != "learner" {
		return fleet.Identity{}, &fleet.RefusedError{Why: "the token is another account's"}
	}
	return fleet.Identity{}, nil
}

// lends starts a central with workloads of which there is enough experience.
func lends(t *testing.T, workloads ...string) *school {
	t.Helper()
	s := &school{shop: open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)), served: true}
	s.minds.teaches = false
	s.Forget(learnedWorkload)
	for _, name := range workloads {
		r := wishes()
		r.Workload, s.name = name, name
		s.ask(r)
		s.pass(6)
	}
	s.at = s.now
	s.minds.now = func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.at }
	s.lender = newLender(s.minds, s.store)
	serving := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.served }
	s.server = httptest.NewUnstartedServer(s.lender.handler(oneAccount{}, serving))
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(func() {
		s.server.Close()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	s.token = filepath.Join(t.TempDir(), "token")
	s.say("learner")
	return s
}

// say writes the learners' token.
func (s *school) say(token string) {
	s.t.Helper()
	if err := os.WriteFile(s.token, []byte(token), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// later lets time pass.
func (s *school) later(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
}

// student is a learner in another process, and what it has counted.
func (s *school) student() (*student, *results) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	r := &results{n: map[string]int{}}
	return &student{
		central: &fleet.Caller{
			URL: s.server.URL, Name: "example.com", Token: s.token, CA: func(context.Context) ([]byte, error) { return ca, nil },
		},
		idle: time.Millisecond, counted: r.count,
	}, r
}

type results struct {
	sync.Mutex
	n map[string]int
}

func (r *results) count(result string) { r.Lock(); defer r.Unlock(); r.n[result]++ }

func (r *results) of(result string) int { r.Lock(); defer r.Unlock(); return r.n[result] }

// trouble is what is wrong with a workload's learning.
func (s *school) trouble(workload string) string {
	s.t.Helper()
	l, ok := s.Life(workload)
	if !ok {
		s.t.Fatal("nothing is known of", workload)
	}
	return l.Trouble
}

// Two learners share the lessons of a central: each agent gets one, and its policy.
func TestLearnersElsewhereShareTheLessons(t *testing.T) {
	all := []string{"shop/Deployment/a", "shop/Deployment/b", "shop/Deployment/c"}
	s := lends(t, all...)
	if why := s.trouble(all[0]); !strings.Contains(why, "no learner elsewhere") {
		t.Errorf("before a learner asks: %q", why)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	counts := make([]*results, 2)
	for i := range counts {
		var one *student
		one, counts[i] = s.student()
		running.Go(func() {
			if err := one.run(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if counts[0].of(lessonLearned)+counts[1].of(lessonLearned) == len(all) {
			break
		}
	}
	stop()
	running.Wait()
	for _, name := range all {
		if l, _ := s.Life(name); l.Generation != 1 || l.Trouble != "" {
			t.Errorf("%s: %+v, want its first policy", name, l)
		}
		if o := s.minds.of(name); o.policy == nil || o.weights == nil {
			t.Errorf("%s has a policy %v, and weights %v", name, o.policy != nil, o.weights != nil)
		}
	}
	if n := counts[0].of(lessonLearned) + counts[1].of(lessonLearned); n != len(all) || len(s.lender.loans) != 0 {
		t.Errorf("%d lessons of %d workloads, %d are still lent", n, len(all), len(s.lender.loans))
	}
}

// A learner dies with a lesson. Another one gets it, once the first had its time, and what the dead one brings after all is not
// taken.
func TestALearnerThatDiesLosesItsLesson(t *testing.T) {
	s := lends(t, learnedWorkload)
	first, counted := s.student()
	name, raw, err := first.next(t.Context())
	if err != nil || name == "" {
		t.Fatalf("%q, %v: a lesson is due", name, err)
	}
	second, _ := s.student()
	if again, _, err := second.next(t.Context()); err != nil || again != "" {
		t.Fatalf("the lesson is another learner's, and was lent again as %q (%v)", again, err)
	}
	if s.minds.due() != nil {
		t.Error("it is lent, and due here")
	}
	s.later(lentFor - time.Second)
	if again, _, err := second.next(t.Context()); err != nil || again != "" {
		t.Fatalf("it was lent again too early, as %q (%v)", again, err)
	}
	s.later(2 * time.Second)
	again, once, err := second.next(t.Context())
	if err != nil || again == "" || again == name {
		t.Fatalf("after its time: %q, %v", again, err)
	}
	if err := first.study(t.Context(), name, raw, agent.NewWorkspace()); err != nil {
		t.Fatal(err)
	}
	if l, _ := s.Life(learnedWorkload); counted.of(lessonLate) != 1 || l.Generation != 0 {
		t.Errorf("what is late was taken: %+v, counted %v", l, counted.n)
	}
	if err := second.study(t.Context(), again, once, agent.NewWorkspace()); err != nil {
		t.Fatal(err)
	}
	if l, _ := s.Life(learnedWorkload); l.Generation != 1 {
		t.Errorf("what is in time was not taken: %+v", l)
	}
	// The next lesson is late, too, and nobody else has asked meanwhile: by now another one may.
	s.later(s.minds.every)
	if name, raw, err = first.next(t.Context()); err != nil || name == "" {
		t.Fatal(name, err)
	}
	s.later(lentFor)
	if err := first.study(t.Context(), name, raw, agent.NewWorkspace()); err != nil || counted.of(lessonLate) != 2 {
		t.Errorf("%v, counted %v: it was late", err, counted.n)
	}
}

// Between looking for a lesson and taking it another learner may take it.
func TestALessonIsTakenOnce(t *testing.T) {
	s := lends(t, learnedWorkload)
	o, now := s.minds.due(), s.minds.now()
	if !o.lend(now) || o.lend(now) {
		t.Error("it was lent to nobody, or twice")
	}
	if !o.lend(now.Add(lentFor)) {
		t.Error("it is lent for ever")
	}
}

// A learner hangs up while its lesson is made. It was not given: it is due as before.
func TestALessonThatNobodyWaitsForIsDue(t *testing.T) {
	s := lends(t, learnedWorkload)
	ctx, hangUp := context.WithCancel(t.Context())
	s.lender.store = meanwhile{s.store, hangUp}
	before, _ := s.Life(learnedWorkload)
	if name, _, err := s.lender.lend(ctx); name != "" || err == nil {
		t.Errorf("%q was lent to nobody (%v)", name, err)
	}
	if after, _ := s.Life(learnedWorkload); s.minds.due() == nil || after != before || len(s.lender.loans) != 0 {
		t.Errorf("it is not due: %+v, before %+v", after, before)
	}
}

// Whatever a learner brings, the status says what was wrong, no policy is taken, and the lesson has ended.
func TestWhatLearnersBringIsLookedAt(t *testing.T) {
	good := func(t *testing.T, raw []byte) lesson.Result {
		l, err := lesson.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Learn(t.Context(), agent.NewWorkspace())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	encoded := func(t *testing.T, r lesson.Result) []byte {
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	for want, brings := range map[string]func(t *testing.T, raw []byte) (path string, body []byte){
		"reading what was learned": func(*testing.T, []byte) (string, []byte) { return learnedPath, []byte("a policy, honestly") },
		"request body too large":   func(*testing.T, []byte) (string, []byte) { return learnedPath, make([]byte, largestResult+1) },
		"within its interval": func(t *testing.T, raw []byte) (string, []byte) {
			r := good(t, raw)
			r.Worth.Low = r.Worth.High + 1
			return learnedPath, encoded(t, r)
		},
		"steps of 1m0s": func(t *testing.T, raw []byte) (string, []byte) {
			r := good(t, raw)
			r.Policy.Step = time.Minute
			return learnedPath, encoded(t, r)
		},
		"it must be": func(t *testing.T, raw []byte) (string, []byte) { // another form
			r := good(t, raw)
			r.Policy.Form.Factors = append([]float64{0.3}, r.Policy.Form.Factors[1:]...)
			return learnedPath, encoded(t, r)
		},
		"kind": func(_ *testing.T, raw []byte) (string, []byte) { return learnedPath, raw },
		`a learner says: "no memory\x1b"`: func(*testing.T, []byte) (string, []byte) {
			return failedPath, []byte("no memory\x1b")
		},
	} {
		t.Run(want, func(t *testing.T) {
			s := lends(t, learnedWorkload)
			one, _ := s.student()
			name, raw, err := one.next(t.Context())
			if err != nil || name == "" {
				t.Fatal(name, err)
			}
			path, body := brings(t, raw)
			if late, err := one.bring(t.Context(), path+"?lesson="+name, body); late || err != nil {
				t.Fatal(late, err)
			}
			if l, _ := s.Life(learnedWorkload); l.Generation != 0 || !strings.Contains(l.Trouble, want) {
				t.Errorf("%+v, want %q", l, want)
			}
			if late, err := one.bring(t.Context(), learnedPath+"?lesson="+name, encoded(t, good(t, raw))); !late || err != nil {
				t.Errorf("a lesson was brought twice: late %v, %v", late, err)
			}
		})
	}
}

// A lesson that a learner cannot read, as one of another version of central, is said to have failed, and the learner rests.
func TestALessonThatCannotBeReadIsSaid(t *testing.T) {
	s := lends(t, learnedWorkload)
	one, counted := s.student()
	name, raw, err := one.next(t.Context())
	if err != nil || name == "" {
		t.Fatal(name, err)
	}
	if err := one.study(t.Context(), name, raw[:len(raw)-8], agent.NewWorkspace()); err == nil {
		t.Error("it goes on with the next one at once")
	}
	if why := s.trouble(learnedWorkload); counted.of(lessonFailed) != 1 || !strings.Contains(why, "reading a lesson") {
		t.Errorf("%q, counted %v", why, counted.n)
	}
}

// Only the learners' account gets lessons, and only of the instance that decides. What is wrong is said to who asks.
func TestLessonsAreForLearners(t *testing.T) {
	s := lends(t, learnedWorkload)
	one, _ := s.student()
	s.say("agent")
	refused := func(want int) {
		t.Helper()
		for _, ask := range []func() error{
			func() error { _, _, err := one.next(t.Context()); return err },
			func() error { _, err := one.bring(t.Context(), learnedPath+"?lesson=x", nil); return err },
			func() error {
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				return one.run(ctx)
			},
		} {
			var status *fleet.StatusError
			if err := ask(); !errors.As(err, &status) || status.Code != want {
				t.Errorf("%v, want status %d", err, want)
			}
		}
		if one.heard.Load() {
			t.Error("the learner says that it is ready")
		}
	}
	refused(http.StatusUnauthorized)
	s.say("learner")
	s.mu.Lock()
	s.served = false
	s.mu.Unlock()
	refused(http.StatusServiceUnavailable)
	if why := s.trouble(learnedWorkload); !strings.Contains(why, "no learner elsewhere") {
		t.Errorf("nobody was let in, and the status says %q", why)
	}
	if s.minds.due() == nil {
		t.Error("the lesson was lent to nobody")
	}
}

// An agent with too little experience has no lesson to lend, and is no reason to wait for the next one.
func TestTooLittleExperienceIsNotLent(t *testing.T) {
	s := lends(t, learnedWorkload)
	for i := range 3 {
		r := wishes()
		r.Workload, s.name = fmt.Sprintf("shop/Deployment/new-%d", i), fmt.Sprintf("shop/Deployment/new-%d", i)
		s.ask(r)
		s.pass(1)
	}
	one, _ := s.student()
	name, raw, err := one.next(t.Context())
	if err != nil || name == "" {
		t.Fatal(name, err)
	}
	if l, err := lesson.Decode(raw); err != nil || l.Workload != learnedWorkload {
		t.Errorf("the lesson of %q was lent (%v)", l.Workload, err)
	}
	if name, _, err := one.next(t.Context()); name != "" || err != nil {
		t.Fatal(name, err)
	}
	if why := s.trouble("shop/Deployment/new-0"); !strings.Contains(why, "too little experience") {
		t.Errorf("%q", why)
	}
}
