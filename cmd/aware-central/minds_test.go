package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"awarescale.dev/aware/learner/algo/agent"
	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/plugins/apis/v1alpha1"
	"awarescale.dev/aware/plugins/autoscaling/recommender"
	"k8s.io/apimachinery/pkg/api/resource"
)

const learnedWorkload = "shop/Deployment/web"

// wishes is what the owner of the workload asks for.
func wishes() recommender.PolicyRequest {
	return recommender.PolicyRequest{
		Workload: learnedWorkload, Container: "app", First: true, Learner: &v1alpha1.Learner{Algorithm: "bcq"},
		Objective: mdp.Objective{SLO: objective, Alpha: 0.5, Reserved: true},
		Bounds: mdp.Bounds{
			Replicas: mdp.Range[int]{Min: 1, Max: 10}, CPU: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 2000},
			Memory:      mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 512 * mdp.MiB},
			Reservation: mdp.Range[mdp.MilliCPU]{Min: 50, Max: 1999},
		},
	}
}

// shop is a central's learner, and a workload of it.
type shop struct {
	*episodes
	t      *testing.T
	now    time.Time
	policy mdp.Policy
	state  mdp.State
	earns  mdp.Reward
	random *rand.Rand
	name   string // of the workload

	watching bool // nothing that is decided is carried out
}

func open(t *testing.T, path string, at time.Time) *shop {
	t.Helper()
	s := &shop{t: t, now: at, earns: 1.2, random: rand.New(rand.NewPCG(1, 2)), name: learnedWorkload}
	s.episodes = newEpisodes(10*time.Second, func() time.Time { return s.now }, new(atomic.Bool))
	s.minds.teaches = true
	s.minds.lessons.Updates, s.minds.lessons.Judge.Updates = 50, 20 // what is learned is not the question here
	s.ships(false)
	if path != "" {
		if err := s.episodes.open(t.Context(), storeIn(t, path)); err != nil {
			t.Fatal(err)
		}
	}
	s.deciding.Store(true)
	s.ask(wishes())
	return s
}

// ships says whether what ships is proven, within the workload's bounds.
func (s *shop) ships(proven bool) {
	start := *shippedStart()
	start.Proven, start.Within = proven, wishes().Bounds
	s.minds.lessons.Start = &start
}

// ask makes the policy of a wish.
func (s *shop) ask(r recommender.PolicyRequest) {
	s.t.Helper()
	p, version, err := s.minds.policies(r)
	if err != nil || version != "hpavpa/1" {
		s.t.Fatal(version, err)
	}
	s.policy = p
	s.state = s.see(4, 500)
}

func (s *shop) see(replicas int, reserved mdp.MilliCPU) mdp.State {
	return mdp.State{
		At: s.now, Observed: mdp.All &^ mdp.SetOf(mdp.OOMKills), Replicas: replicas, Reservation: reserved, Ceiling: 2000,
		Limit:   mdp.Size{CPU: 800, Memory: 256 * mdp.MiB},
		Usage:   mdp.Size{CPU: 200 + mdp.MilliCPU(s.random.IntN(100)), Memory: 100 * mdp.MiB},
		Latency: 20 * time.Millisecond, Throughput: 100, Arrivals: 100,
	}
}

// episodes lets a number of episodes pass.
func (s *shop) pass(episodes int) {
	s.t.Helper()
	s.steps(100 * episodes)
}

func (s *shop) steps(n int) {
	s.t.Helper()
	for range n {
		a, err := s.policy.Decide(s.state)
		if err != nil {
			s.t.Fatal(err)
		}
		replicas, reserved := s.state.Replicas, s.state.Reservation
		if v, ok := a.Knob(mdp.Replicas); ok {
			replicas = int(v)
		}
		if v, ok := a.Knob(mdp.CPUReservation); ok {
			reserved = mdp.MilliCPU(v)
		}
		before := s.state
		s.now = s.now.Add(10 * time.Second)
		s.state = s.see(replicas, reserved)
		s.Record(s.name, mdp.Transition{
			State: before, Action: a, Effect: mdp.Applied, Reward: s.earns, RewardKnown: true, Next: s.state,
		}, !s.watching)
	}
}

func (s *shop) lesson() {
	s.t.Helper()
	o := s.minds.due()
	if o == nil {
		s.t.Fatal("no lesson is due")
	}
	s.minds.lesson(s.t.Context(), o, s.store, agent.NewWorkspace())
}

// end ends central.
func (s *shop) end() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	if err := errors.Join(s.minds.teach(ctx, s.store), s.close()); !errors.Is(err, context.Canceled) {
		s.t.Fatal(err)
	}
}

func (s *shop) life() recommender.Life {
	s.t.Helper()
	l, ok := s.Life(s.name)
	if !ok {
		s.t.Fatal("nothing is known of the workload's agent")
	}
	return l
}

// handed lets a policy take over, whatever it is worth: what is judged here is what becomes of it.
func (s *shop) handed() {
	s.t.Helper()
	s.pass(6)
	s.lesson()
	o := s.minds.of(s.name)
	if o.policy == nil {
		s.t.Fatalf("no policy was learned: %+v", s.life())
	}
	if s.life().Stage != v1alpha1.StageOnline {
		again, err := learned.New(*o.policy, o.place)
		if err != nil {
			s.t.Fatal(err)
		}
		o.agent.Offer(again, o.agent.Generation()+1, lifecycle.Estimate{Known: true, Mean: 9, Low: 9, High: 9})
		o.generation = o.agent.Generation()
	}
	s.pass(1)
	if l := s.life(); l.Stage != v1alpha1.StageOnline && l.Stage != v1alpha1.StageServing || !l.Learned {
		s.t.Fatalf("it does not drive: %+v", l)
	}
}

// The metric of decisions says whose they are; what nobody carries out does not count.
func TestDecisionsAreCountedByWhoseTheyAre(t *testing.T) {
	for _, c := range []struct {
		choice lifecycle.Choice
		want   string
	}{
		{lifecycle.Choice{Driver: lifecycle.Fallback, Known: true}, "rule"},
		{lifecycle.Choice{Driver: lifecycle.Fallback, Known: true, Tried: true, Departs: true}, "tried"},
		{lifecycle.Choice{Driver: lifecycle.Learned, Known: true}, "as-rule"},
		{lifecycle.Choice{Driver: lifecycle.Learned, Known: true, Departs: true}, "departed"},
		{lifecycle.Choice{Driver: lifecycle.Learned}, "departed"}, // the rule knew nothing
	} {
		if got := by(c.choice); got != c.want {
			t.Errorf("%+v is counted as %s, want %s", c.choice, got, c.want)
		}
	}
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	n := 0
	s.minds.of(s.name).counted = func(lifecycle.Choice) { n++ }
	s.watching = true
	s.pass(1)
	watched := n
	s.watching = false
	s.pass(1)
	if watched > 1 || n < 98 {
		t.Errorf("%d decisions counted of an episode that nobody carried out, %d in all", watched, n)
	}
}

// A policy that was promoted before a restart, and earns less, is taken back after it.
func TestARestartOfCentralForgetsNoPromotion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := open(t, path, time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.handed()
	s.earns = 1.5
	s.pass(10)
	o := s.minds.of(s.name)
	first, worse, generation := o.policy, *o.policy, o.generation+1
	worse.Provenance = map[string]string{"it": "is worse"}
	policy, err := central.Learned(worse, o.place)
	if err != nil {
		t.Fatal(err)
	}
	if taken, why := o.agent.Offer(policy, generation, lifecycle.Estimate{Known: true, Mean: 9, Low: 9, High: 9}); !taken {
		t.Fatal(why)
	}
	o.policy, o.before, o.generation, o.changed = &worse, first, generation, true
	s.end()

	next := open(t, path, s.now)
	if o := next.minds.of(s.name); o.generation != generation || o.policy.Provenance["it"] != "is worse" {
		t.Fatalf("generation %d goes on, of %v", o.generation, o.policy.Provenance)
	}
	next.earns = 1.3
	next.pass(lifecycle.DefaultSettings.Episodes + 1)
	o = next.minds.of(s.name)
	if o.generation != generation+1 || !maps.Equal(o.policy.Provenance, first.Provenance) || !next.life().Learned {
		t.Errorf("generation %d drives (%+v), of %v", o.generation, next.life(), o.policy.Provenance)
	}
}

func TestARestartOfCentralLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := open(t, path, time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	if l := s.life(); l.Stage != v1alpha1.StageInitialized || l.Learned {
		t.Errorf("it begins as %+v", l)
	}
	s.pass(1)
	s.lesson()
	if l := s.life(); l.Stage != v1alpha1.StageOffline || !strings.Contains(l.Trouble, "too little experience") {
		t.Errorf("after an episode: %+v", l)
	}
	if s.minds.due() != nil {
		t.Error("the next lesson is due at once")
	}
	s.handed()
	before := s.life()
	s.minds.keepAll(false)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}

	next := open(t, path, s.now)
	if l := next.life(); l.Stage != before.Stage || l.Generation != before.Generation {
		t.Errorf("a restarted central says %+v, it was %+v", l, before)
	}
	next.pass(1)
	if !next.life().Learned {
		t.Errorf("the learned policy does not drive after the restart: %+v", next.life())
	}

	// A file that is of another objective is not gone on with.
	next.minds.keepAll(false)
	next.minds.all = map[string]*mind{}
	other := wishes()
	other.Objective.Alpha = 0.9
	next.ask(other)
	if l := next.life(); l.Stage != v1alpha1.StageInitialized {
		t.Errorf("with another objective it is %+v", l)
	}

	// Other bounds: the agent begins anew, with its weights.
	other = wishes()
	other.Bounds.Replicas.Max = 20
	next.ask(other)
	if l := next.life(); l.Stage != v1alpha1.StageInitialized {
		t.Errorf("with other bounds it is %+v", l)
	}
	if w, err := next.minds.weightsOf(next.minds.of(learnedWorkload)); w == nil || err != nil {
		t.Error("its weights are lost:", err)
	}
	next.pass(1)
	next.lesson() // of what was earned under the other bounds nothing is learned
	if l := next.life(); !strings.Contains(l.Trouble, "too little experience yet (100 ") {
		t.Errorf("with other bounds the next lesson says %+v", l)
	}
	// The owner wants no learning any more.
	other.Learner = nil
	next.ask(other)
	if _, ok := next.Life(learnedWorkload); ok {
		t.Error("it is still learned")
	}
	if err := next.close(); err != nil {
		t.Fatal(err)
	}
}

// The first lesson of a workload begins with what ships with this release; the next one with what the first has learned, also
// after a restart.
func TestTheFirstLessonBeginsWithWhatShips(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := open(t, path, time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(6)
	o := s.minds.of(learnedWorkload)
	begins := func(m *minds) *weights.File {
		t.Helper()
		a, err := m.prepare(t.Context(), m.of(learnedWorkload), s.store)
		if err != nil {
			t.Fatal(err)
		}
		return a.lesson.From
	}
	first := begins(s.minds)
	a, err := s.minds.prepare(t.Context(), o, s.store)
	if err != nil {
		t.Fatal(err)
	}
	want, err := shippedStart().For(a.lesson.Episodes)
	if err != nil || first == nil || !slices.Equal(first.Tensors["values"].Data, want.Tensors["values"].Data) ||
		len(want.Tensors["values"].Data) == 0 {
		t.Fatalf("it does not begin with what ships: %v", err)
	}
	why := shippedStart().Provenance["made"]
	if !strings.Contains(why, "aware train meta ") || !strings.Contains(why, "--central=true") {
		t.Errorf("it was made by %q", why)
	}
	if m := s.minds.lessons.Margin; m != central.Margin {
		t.Errorf("a policy is judged with a margin of %v, and decides with one of %v", m, central.Margin)
	}
	s.lesson()
	if l := s.life(); l.Trouble != "" {
		t.Fatalf("%+v", l)
	}
	learned := s.minds.of(learnedWorkload).weights
	if next := begins(s.minds); next == nil || next != learned {
		t.Error("the second lesson does not go on from the first one")
	}
	s.minds.keepAll(false)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, s.now)
	from, err := again.minds.weightsOf(again.minds.of(learnedWorkload))
	if err != nil || from == nil || !slices.Equal(from.Tensors["values"].Data, learned.Tensors["values"].Data) {
		t.Errorf("after a restart it begins anew (%v)", err)
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
}

// What ships is judged in two episodes of the fallback where other workloads have proven it, and drives where it is not
// estimated to be much worse. What is not proven needs more, and so does what a lesson has changed. An owner who wants no trial
// gets none.
func TestWhatShipsIsTriedWhereItIsProven(t *testing.T) {
	for name, one := range map[string]struct {
		proven, careful, other bool // another shape is learned than that of what ships
		most                   int  // replicas
		need                   int
		drives                 bool
	}{
		"proven":                      {true, false, false, 10, 200, true},
		"proven in wider ones, too":   {true, false, false, 9, 200, true},
		"proven within narrower ones": {true, false, false, 11, 500, false},
		"proven, a careful owner":     {true, true, false, 10, 200, false},
		"proven, but it does not fit": {true, false, true, 10, 200, false},
		"not proven":                  {false, false, false, 10, 500, false},
	} {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
		s.ships(one.proven)
		if one.other {
			s.minds.lessons.Hidden = []int{8}
		}
		wish := wishes()
		wish.Learner = new(*wish.Learner)
		wish.Learner.KeepOfflineWhileRetraining = one.careful
		wish.Bounds.Replicas.Max = one.most
		s.ask(wish)
		s.pass(1)
		s.lesson()
		if l := s.life(); l.Generation != 0 || !strings.Contains(l.Trouble, fmt.Sprintf("%d are needed", one.need)) {
			t.Fatalf("%s, after one episode: %+v", name, l)
		}
		for i := range one.need / 100 { // the fallback's rewards vary, so that its estimate is uncertain
			s.earns = 1.2 + 0.02*mdp.Reward(i%2)
			s.pass(1)
		}
		s.now = s.now.Add(s.minds.every)
		s.lesson()
		s.pass(1)
		if l := s.life(); l.Generation != 1 || l.Learned != one.drives {
			t.Errorf("%s: %+v", name, l)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Late requests have a price, so one burst makes a step that is worth less than an episode: that is no harm yet.
func TestOneLateStepDoesNotHandBack(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(6)
	s.handed()
	s.steps(20)
	for late, want := range []string{"Online", "Offline"} {
		s.earns = -19
		s.steps(1 + 2*late)
		s.earns = 1.2
		s.steps(5)
		if l := s.life(); l.Stage != want {
			t.Errorf("%+v, want it %s", l, want)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// A workload that has changed while the fallback drives, or during a lesson, is learned of what it has done since.
func TestOfAWorkloadThatHasChangedNothingOlderIsLearned(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(8)
	before := s.minds.of(learnedWorkload).agent.Workload().Changes
	s.earns = 0.4
	s.pass(4)
	if w := s.minds.of(learnedWorkload).agent.Workload(); w.Changes != before+1 {
		t.Fatalf("%+v: it has changed once", w)
	}
	s.lesson()
	if l := s.life(); !strings.Contains(l.Trouble, "too little experience yet (400 ") || !strings.Contains(l.Why, "another one") {
		t.Errorf("of four episodes: %+v", l)
	}
	s.pass(4)
	o := s.minds.of(learnedWorkload)
	s.minds.lesson(t.Context(), o, meanwhile{s.store, func() { o.agent.Renew(s.now) }}, agent.NewWorkspace())
	if g := s.life().Generation; g != 0 || o.weights == nil {
		t.Errorf("a policy of the workload before was taken, generation %d", g)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// The store has what every workload has done. What was earned by another objective, such as that of a workload that is not
// learned, is not learned from.
func TestWhatWasEarnedByAnotherObjectiveIsNotLearned(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	none := wishes()
	none.Learner, none.Objective.Reserved = nil, false
	s.ask(none)
	s.pass(8)
	for _, alpha := range []mdp.Ratio{0.5, 0.9} {
		now := wishes()
		now.Objective.Alpha = alpha
		s.ask(now)
		if l := s.life(); l.Stage != v1alpha1.StageInitialized {
			t.Errorf("alpha %v: it is %+v", alpha, l)
		}
		s.lesson()
		if l := s.life(); !strings.Contains(l.Trouble, "too little experience yet (0 ") {
			t.Errorf("alpha %v: the first lesson says %+v", alpha, l)
		}
		s.pass(6)
		s.now = s.now.Add(s.minds.every)
		s.lesson()
		if l := s.life(); l.Trouble != "" {
			t.Errorf("alpha %v: after six episodes %+v", alpha, l)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// meanwhile is a store that lets something happen while it is read.
type meanwhile struct {
	trajectory.Store
	happens func()
}

func (m meanwhile) Flush(ctx context.Context) error {
	m.happens()
	return m.Store.Flush(ctx)
}

// Whatever is lost, the workload is decided on, and what is wrong is said.
func TestWhateverIsLostTheFallbackDecides(t *testing.T) {
	begin := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	t.Run("there is no store", func(t *testing.T) {
		s := open(t, "", begin)
		s.pass(1)
		if l := s.life(); l.Learned || !strings.Contains(l.Trouble, "--trajectory-store") {
			t.Errorf("%+v", l)
		}
	})
	t.Run("the store is closed", func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), begin)
		s.pass(6)
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s.lesson()
		if l := s.life(); !strings.Contains(l.Trouble, "closed") || l.Learned {
			t.Errorf("%+v", l)
		}
		s.pass(1)
	})
	t.Run("a lesson panics", func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), begin)
		s.pass(6)
		s.minds.lesson(t.Context(), s.minds.of(learnedWorkload), panics{}, agent.NewWorkspace())
		if l := s.life(); !strings.Contains(l.Trouble, "panicked") {
			t.Errorf("%+v", l)
		}
		s.pass(1)
	})
	t.Run("the policy's file is damaged", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "t.db")
		s := open(t, path, begin)
		s.handed()
		s.minds.keepAll(false)
		file := s.minds.path(learnedWorkload, ".policy")
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2]++
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		next := open(t, path, s.now)
		next.pass(1)
		if l := next.life(); l.Learned || l.Stage != v1alpha1.StageOffline || !strings.Contains(l.Trouble, "cannot be read") {
			t.Errorf("%+v", l)
		}
	})
	t.Run("the lease", func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), begin)
		s.handed()
		before, steps := s.store.Figures(), s.recorders[learnedWorkload]
		s.deciding.Store(false)
		s.pass(1)
		if l := s.life(); !l.Learned {
			t.Errorf("without the lease nobody asks the agent, and it is as it was: %+v", l)
		}
		if s.store.Figures() != before || s.recorders[learnedWorkload] != steps {
			t.Error("without the lease something was recorded: another instance records the same workload")
		}
	})
	t.Run("the learners", func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), begin)
		s.minds.teaches = false
		if l := s.life(); !strings.Contains(l.Trouble, "no learner elsewhere") {
			t.Errorf("nobody gives lessons: %+v", l)
		}
		s.minds.heard()
		if l := s.life(); l.Trouble != "" {
			t.Errorf("somebody does: %+v", l)
		}
		s.now = s.now.Add(s.minds.every)
		if l := s.life(); !strings.Contains(l.Trouble, "no learner elsewhere") {
			t.Errorf("nobody does any more: %+v", l)
		}
	})
	t.Run("the folder of agents", func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "t.db"), begin)
		s.handed()
		folder := s.minds.folder
		s.minds.folder = filepath.Join(folder, "no")
		s.minds.keepAll(false)
		if l := s.life(); !strings.Contains(l.Trouble, "would not outlive central") {
			t.Errorf("%+v", l)
		}
		s.minds.folder = folder // it is tried again
		s.minds.keepAll(false)
		if _, err := os.Stat(s.minds.path(learnedWorkload, ".json")); err != nil {
			t.Error(err)
		}
	})
}

// While nothing is carried out (mode recommend, a pause, a canary) the agent advises: nothing is tried, no stage moves, and
// what the workload earns is nobody's merit.
func TestAnAgentThatOnlyAdvisesLearnsNothingOfItself(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.handed()
	before := s.minds.of(learnedWorkload).agent.State()
	s.watching = true
	s.pass(1) // the first step of it was decided before anybody knew
	s.earns = -5
	s.pass(3)
	after := s.minds.of(learnedWorkload).agent.State()
	if after.Stage != before.Stage || after.Recent.Count != before.Recent.Count || after.Recent.Running != before.Recent.Running {
		t.Errorf("%+v, and before nobody acted %+v", after, before)
	}
	s.watching = false
	s.pass(1)
	if l := s.life(); l.Stage != v1alpha1.StageOffline {
		t.Errorf("it acts again, does harm, and is %+v", l)
	}
}

// In a mode in which nothing is carried out the owner reads what the rule recommends, and no tries.
func TestRecommendationsAreNotVaried(t *testing.T) {
	s := open(t, "", time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	plain := wishes()
	plain.Learner = nil
	rule, _, err := rules().policies(plain)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		a, err := s.policy.Decide(s.state)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := rule.Decide(s.state); err != nil || a != want {
			t.Fatalf("it recommends %v, and the rule %v (%v)", a, want, err)
		}
		s.now = s.now.Add(10 * time.Second)
		before := s.state
		s.state = s.see(4, 500)
		s.Record(s.name, mdp.Transition{State: before, Effect: mdp.Refused, RewardKnown: true, Next: s.state}, false)
	}
}

// What a workload has lived until its object is deleted, or central ends, is not lost, also where it is less than what is
// written now and then: the peak of its load, and its agent's steps.
func TestTheLastStepsOutliveTheirObjectAndCentral(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	s := open(t, path, time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(3)
	s.minds.keepAll(false)
	s.steps(40)
	is := func(when string, s *shop, steps int) {
		t.Helper()
		life := s.life()
		if highest, ok := life.Peak.Highest(s.now); !ok || highest != 100 {
			t.Errorf("%s the peak is %v (%v), want 100", when, highest, ok)
		}
		if state := s.minds.of(s.name).agent.State(); state.Fallback.Running.Steps != steps {
			t.Errorf("%s the fallback's episode has %d steps, want %d", when, state.Fallback.Running.Steps, steps)
		}
	}
	is("before anything ends", s, 40)
	s.Forget(s.name)
	s.ask(wishes())
	is("of the next object", s, 40)

	other := wishes() // it is the workload's, whatever its owner wants
	other.Objective.Alpha = 0.9
	s.ask(other)
	is("with another objective", s, 0)
	s.ask(wishes())

	s.steps(40)
	s.end()
	next := open(t, path, s.now)
	is("after a restart", next, 40)
	next.end()
	before := open(t, path, s.now.Add(-time.Hour))
	if (before.life().Peak != mdp.Peak{}) {
		t.Error("a peak of a clock that was an hour ahead is believed")
	}
	before.end()
}

// A lesson can outlast the agent that it was begun for: what it has learned must not be written over the next one's files.
func TestALessonOfAForgottenAgentIsNotKept(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(6)
	o := s.minds.due()
	s.Forget(learnedWorkload)
	s.minds.lesson(t.Context(), o, s.store, agent.NewWorkspace())
	s.minds.keepAll(true)
	for _, file := range []string{".weights", ".policy"} {
		if _, err := os.Stat(s.minds.path(learnedWorkload, file)); err == nil {
			t.Errorf("its file %s was written", file)
		}
	}
	if _, ok := s.Life(learnedWorkload); ok {
		t.Error("it lives")
	}
}

// The volume of the store is bounded, however many workloads there are.
func TestTheStoreIsPruned(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	s.pass(episodesOfOne + 3)
	if err := s.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.minds.prune(t.Context(), s.store.(prunable)); err != nil {
		t.Fatal(err)
	}
	rewards, err := s.store.Rewards(t.Context(), learnedWorkload, 1000)
	if err != nil || len(rewards) != episodesOfOne {
		t.Errorf("%d episodes are kept (%v), want %d", len(rewards), err, episodesOfOne)
	}
	file, err := os.Stat(filepath.Join(filepath.Dir(s.minds.folder), "t.db"))
	if err != nil {
		t.Fatal(err)
	}
	if each := file.Size() / (episodesOfOne + 3); each > 50<<10 {
		t.Errorf("an episode takes %d bytes: the store would grow beyond its volume", each)
	}
}

// A thousand workloads may take two gibibytes of central. What an agent that has learned keeps in memory is measured, of
// policies and weights of full size; experience is in the store, and the lessons share their buffers.
func TestAThousandAgentsFitIntoCentral(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "t.db"), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC))
	workspace := agent.NewWorkspace()
	learns := func(name string) {
		r := wishes()
		r.Workload, s.name = name, name
		s.ask(r)
		s.pass(6)
		s.minds.lesson(t.Context(), s.minds.of(name), s.store, workspace)
		s.pass(6)
		s.now = s.now.Add(time.Hour)
		s.minds.lesson(t.Context(), s.minds.of(name), s.store, workspace) // a second policy: it may go back to the first
		if o := s.minds.of(name); o.weights == nil {
			t.Fatalf("%s has learned nothing: %+v", name, s.life())
		}
		s.minds.keepAll(false)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what finalisers held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range 3 { // what all share exists then
		learns(fmt.Sprintf("shop/Deployment/shared-%d", i))
	}
	const agents = 12
	before := heap()
	for i := range agents {
		learns(fmt.Sprintf("shop/Deployment/web-%d", i))
	}
	each := (int64(heap()) - int64(before)) / agents
	t.Logf("an agent keeps %d KiB", each>>10)
	if each > 1<<19 { // two policies are some 300 KiB; the weights of a lesson would be a mebibyte
		t.Errorf("an agent keeps %d KiB: of a thousand that is more than half a gibibyte", each>>10)
	}
	runtime.KeepAlive(s)
}

func TestWishesThatMakeNoSenseAreNamed(t *testing.T) {
	q := resource.MustParse
	for want, change := range map[string]func(*recommender.PolicyRequest){
		"spec.learner.thresholds": func(r *recommender.PolicyRequest) {
			r.Learner.Thresholds = &v1alpha1.LearnerThresholds{Online: q("150"), Serving: q("130"), Variance: q("5")}
		},
		`algorithm "sarsa"`: func(r *recommender.PolicyRequest) { r.Learner.Algorithm = "sarsa" },
		"cpu-reservation":   func(r *recommender.PolicyRequest) { r.Bounds.Reservation = mdp.Range[mdp.MilliCPU]{} },
	} {
		r := wishes()
		change(&r)
		if _, _, err := rules().policies(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// panics is a store with a defect.
type panics struct{ trajectory.Store }

func (panics) Flush(context.Context) error { panic("a defect") }
