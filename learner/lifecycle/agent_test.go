package lifecycle_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
)

var bounds = mdp.Bounds{
	Replicas: mdp.Range[int]{Min: 1, Max: 10}, CPU: mdp.Range[mdp.MilliCPU]{Min: 100, Max: 4000},
	Memory: mdp.Range[mdp.Bytes]{Min: 64 * mdp.MiB, Max: 4096 * mdp.MiB},
}

// present is a state in which all knobs are known.
var present = mdp.State{
	Observed: mdp.LimitKnobs, Replicas: 3, Limit: mdp.Size{CPU: 1000, Memory: 1024 * mdp.MiB},
}

// prompt is to answer within 100 ms.
var prompt = mdp.Objective{SLO: mdp.SLO{Percentile: 99, Latency: 100 * time.Millisecond}, Alpha: 0.5}

// rule decides on a CPU limit, and counts how often it was asked.
type rule struct {
	cpu   mdp.MilliCPU
	asked int
	err   error
	panic bool
}

func (r *rule) Decide(mdp.State) (mdp.Action, error) {
	r.asked++
	if r.panic {
		panic("a defect")
	}
	return mdp.Action{}.WithKnob(mdp.CPULimit, int64(r.cpu)), r.err
}

// living is an agent whose workload earns what the test says.
type living struct {
	*lifecycle.Agent
	t        *testing.T
	fallback *rule
	at       time.Time // of the next decision
}

func live(t *testing.T, change func(*lifecycle.AgentConfig)) *living {
	t.Helper()
	e, err := encode.New(encode.Discrete(mdp.LimitKnobs), encode.Place{Bounds: bounds})
	if err != nil {
		t.Fatal(err)
	}
	fallback := &rule{cpu: 1000}
	c := lifecycle.AgentConfig{Settings: lifecycle.DefaultSettings, Fallback: fallback, Encoder: e}
	c.Settings.Episodes = 2
	if change != nil {
		change(&c)
	}
	a, err := lifecycle.NewAgent(c)
	if err != nil {
		t.Fatal(err)
	}
	return &living{a, t, fallback, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// episodes lets a number of episodes pass in which each step earns a reward. It returns the CPU limits that were decided.
func (l *living) episodes(n int, reward mdp.Reward) (decided []int64) {
	l.t.Helper()
	return l.steps(100*n, reward)
}

func (l *living) steps(n int, reward mdp.Reward) (decided []int64) {
	l.t.Helper()
	for range n {
		action, err := l.Decide(present)
		if err != nil {
			l.t.Fatal(err)
		}
		if v, ok := action.Knob(mdp.CPULimit); ok {
			decided = append(decided, v)
		}
		l.Record(mdp.Transition{State: mdp.State{At: l.at}, Reward: reward, RewardKnown: true})
		l.at = l.at.Add(10 * time.Second)
		l.Tick()
	}
	return decided
}

func (l *living) in(want lifecycle.Stage) {
	l.t.Helper()
	if got := l.Stage(); got.Stage != want {
		l.t.Fatalf("stage %v (%s), want %v", got.Stage, got.Why, want)
	}
}

func worth(low float64) lifecycle.Estimate {
	return lifecycle.Estimate{Known: true, Low: low, Mean: low + 0.1, High: low + 0.2}
}

// Thresholds can be made of what the fallback earns in another way than the default's: here an agent must be worth more than it.
func TestThresholdsOfWhatTheFallbackEarns(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) {
		c.Thresholds = func(fallback lifecycle.Summary) lifecycle.Thresholds {
			return lifecycle.Thresholds{Online: fallback.Mean, Serving: fallback.Mean + 0.1, Variance: 0.1}
		}
	})
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.3))
	l.episodes(4, 1.35)
	l.in(lifecycle.Online) // as much as the fallback, and less than serving takes
	l.episodes(20, 1.45)
	l.in(lifecycle.Serving)
}

// A whole life: the fallback drives, a policy is offered that is not as good and then one that is, it drives and serves, the
// workload changes, and the fallback drives again.
func TestALifeOfAnAgent(t *testing.T) {
	l := live(t, nil)
	l.in(lifecycle.Initialized)
	l.episodes(3, 1.3)
	l.in(lifecycle.Offline)

	learned := &rule{cpu: 500}
	if taken, why := l.Offer(learned, 1, worth(1.2)); !taken {
		t.Fatal(why)
	}
	l.episodes(1, 1.3)
	l.in(lifecycle.Offline) // 1.2 is less than what the fallback earns
	if learned.asked != 0 {
		t.Error("a policy that is not as good was asked")
	}
	if taken, _ := l.Offer(learned, 1, worth(1.5)); taken {
		t.Error("a generation was taken twice")
	}
	l.Offer(learned, 2, worth(1.31))
	l.Tick()
	l.in(lifecycle.Online)
	asked := l.fallback.asked
	for _, v := range l.episodes(1, 1.4) {
		if v != 500 {
			t.Fatalf("%v was decided, and the learned policy says 500", v)
		}
	}
	if l.fallback.asked != asked+100 {
		t.Error("the fallback does not see what happens: it could not go on from here")
	}
	l.episodes(2, 1.4)
	l.in(lifecycle.Serving)
	if l.Training() != lifecycle.NoTraining {
		t.Error("a policy that serves is trained")
	}

	l.episodes(1, 1.4)
	l.in(lifecycle.Serving)
	for range 20 { // far from an episode
		l.Decide(present)
		l.Record(mdp.Transition{Reward: 1.31, RewardKnown: true})
		l.Tick()
	}
	l.in(lifecycle.Online)
	l.episodes(1, 1.3)
	l.in(lifecycle.Online)
	l.episodes(3, 1.2)
	l.in(lifecycle.Offline) // worse than the fallback was
	if d, _ := l.Drives(); d != lifecycle.Fallback {
		t.Error("the learned policy still drives")
	}
	l.episodes(4, 1.3)
	l.in(lifecycle.Offline) // and what it was worth before counts no more
}

// A policy that does harm hands back within minutes, and not after episodes.
func TestAPolicyThatDoesHarmHandsBackAtOnce(t *testing.T) {
	l := live(t, nil)
	for i := range 300 { // the fallback's rewards vary by a tenth
		l.Decide(present)
		l.Record(mdp.Transition{Reward: 1.3 + 0.1*mdp.Reward(i%3-1), RewardKnown: true})
		l.Tick()
	}
	l.Offer(&rule{cpu: 500}, 1, worth(1.4))
	l.Tick()
	l.in(lifecycle.Online)
	l.episodes(1, 1.25) // a little less is no harm
	l.in(lifecycle.Online)
	for range 8 {
		l.Decide(present)
		l.Record(mdp.Transition{Reward: 0.5, RewardKnown: true})
		l.Tick()
	}
	l.in(lifecycle.Offline)
}

// A state in which requests are late is rare in what was learned from, and a network can ask for anything in it. So nothing less
// than the fallback wants is done there, whatever is known of the policy; more is. What the fallback leaves, or cannot say,
// stays. Where the SLO is kept, or nobody knows, the policy decides.
func TestNothingLessThanTheFallbackWhereTheSLOIsNotKept(t *testing.T) {
	late := present
	late.Observed |= mdp.SetOf(mdp.Latency)
	late.Latency = 101 * time.Millisecond
	kept := late
	kept.Latency = 100 * time.Millisecond
	killed := present
	killed.Observed |= mdp.SetOf(mdp.OOMKills)
	killed.OOMKills = 1
	smaller := mdp.Action{}.WithCPU(500).WithMemory(512 * mdp.MiB).WithReplicas(2)
	larger := mdp.Action{}.WithCPU(1500).WithMemory(2048 * mdp.MiB).WithReplicas(4)
	wants := mdp.Action{}.WithCPU(1200).WithMemory(900 * mdp.MiB).WithReplicas(3)
	none := late // is ready: they were killed
	none.Replicas = 0
	for name, c := range map[string]struct {
		state         mdp.State
		learned, want mdp.Action
		fails         bool
	}{
		"late":                        {late, smaller, mdp.Action{}.WithCPU(1200).WithMemory(900 * mdp.MiB).WithReplicas(3), false},
		"late, and it leaves all":     {late, mdp.Action{}, mdp.Action{}.WithCPU(1200), false},
		"late, and it wants more":     {late, larger, larger, false},
		"late, and the rule has none": {late, smaller, mdp.Action{}.WithCPU(1000).WithMemory(1024 * mdp.MiB), true},
		"none is ready":               {none, larger, mdp.Action{}.WithCPU(1500).WithMemory(2048 * mdp.MiB), true},
		"killed":                      {killed, smaller, mdp.Action{}.WithCPU(1200).WithMemory(900 * mdp.MiB).WithReplicas(3), false},
		"kept":                        {kept, smaller, smaller, false},
		"unknown":                     {present, smaller, smaller, false},
	} {
		var fails error
		l := live(t, func(a *lifecycle.AgentConfig) {
			a.Objective = prompt
			a.Fallback = mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return wants, fails })
		})
		l.episodes(3, 1.3)
		l.Offer(mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return c.learned, nil }), 1, worth(1.4))
		l.steps(1, 1.3)
		l.in(lifecycle.Online)
		if c.fails {
			fails = errors.New("it knows too little")
		}
		got, err := l.Decide(c.state)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if choice := l.Choice(); choice.Driver != lifecycle.Learned {
			t.Errorf("%s: driven by %v", name, choice.Driver)
		}
	}
}

// What is tried where the SLO is not kept is no less than the fallback wants, either.
func TestNothingLessIsTriedWhereTheSLOIsNotKept(t *testing.T) {
	late := present
	late.Observed |= mdp.SetOf(mdp.Latency)
	late.Latency = time.Second
	l := live(t, func(a *lifecycle.AgentConfig) { a.Objective, a.Try = prompt, 0.9 })
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.4))
	l.steps(1, 1.3)
	l.in(lifecycle.Online)
	tried := 0
	for range 200 {
		a, err := l.Decide(late)
		if err != nil {
			t.Fatal(err)
		}
		if l.Choice().Tried {
			tried++
		}
		for k := range mdp.LimitKnobs.Signals() {
			if v, ok := a.Knob(k); ok && v < late.Knob(k) {
				t.Fatalf("%v: %d, and %d is in force", k, v, late.Knob(k))
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d of 200 steps were tries", tried)
	}
}

// Where late requests have a price, one burst makes a step that costs as much as an episode earns. A policy hands back for
// three of these, and not for one, also where the fallback was never late.
func TestOneStepAsBadAsAnyIsNoHarm(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Objective = prompt })
	worst := prompt.Worst() // -19.5
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.4))
	l.steps(2, 1.3) // the first one was decided by the fallback
	l.in(lifecycle.Online)
	l.steps(1, worst)
	l.steps(10, 1.5)
	l.in(lifecycle.Online)
	l.steps(2, worst)
	l.in(lifecycle.Offline)
}

// What the fallback earned before the workload changed is no measure of now: a policy that served drives on while it earns
// somewhat less, and hands back at once where it earns next to nothing.
func TestAWorkloadThatChangedIsNoHarmByItself(t *testing.T) {
	for reward, want := range map[mdp.Reward]lifecycle.Stage{1: lifecycle.Online, 0.1: lifecycle.Offline} {
		l := live(t, nil)
		l.episodes(3, 1.3)
		l.Offer(&rule{cpu: 500}, 1, worth(1.4))
		l.episodes(4, 1.4)
		l.in(lifecycle.Serving)
		l.steps(50, reward)
		l.in(want)
	}
}

// What many workloads have proven is tried unless it is certain to be handed back again, and not where the stakes are high.
func TestWhatManyWorkloadsHaveProvenIsTried(t *testing.T) {
	for name, c := range map[string]struct {
		high   float64
		change func(*lifecycle.Settings)
		want   lifecycle.Stage
	}{
		"perhaps nearly as good":                     {high: 1.25, want: lifecycle.Online},
		"certainly so much worse that it hands back": {high: 1.2, want: lifecycle.Offline},
		"the stakes are high": {
			high: 1.25, want: lifecycle.Offline, change: func(s *lifecycle.Settings) { s.HighStakes = true },
		},
		"the owner says what it takes": {high: 1.25, want: lifecycle.Offline, change: func(s *lifecycle.Settings) {
			s.Thresholds = lifecycle.Thresholds{Online: 1.26, Serving: 1.3, Variance: 0.1}
		}},
	} {
		l := live(t, func(a *lifecycle.AgentConfig) {
			if c.change != nil {
				c.change(&a.Settings)
			}
		})
		l.episodes(3, 1.3)
		l.Offer(&rule{cpu: 500}, 1, lifecycle.Estimate{Known: true, Proven: true, Mean: c.high - 1, Low: c.high - 2, High: c.high})
		l.Tick()
		if got := l.Stage().Stage; got != c.want {
			t.Errorf("%s: stage %v, want %v", name, got, c.want)
		}
	}
}

// What took over after two episodes of the fallback is judged by these: it serves, hands back when it does harm, and when it
// earns less.
func TestWhatTookOverSoonIsJudged(t *testing.T) {
	for reward, want := range map[mdp.Reward]lifecycle.Stage{
		1.4: lifecycle.Serving, 1.2: lifecycle.Offline, 0.1: lifecycle.Offline,
	} {
		l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Episodes = 5 })
		l.episodes(2, 1.3)
		l.Offer(&rule{cpu: 500}, 1, lifecycle.Estimate{Known: true, Mean: 1.3})
		l.episodes(1, 1.3)
		l.in(lifecycle.Offline) // nobody has proven it
		l = live(t, func(c *lifecycle.AgentConfig) { c.Settings.Episodes = 5 })
		l.episodes(2, 1.3)
		l.Offer(&rule{cpu: 500}, 1, lifecycle.Estimate{Known: true, Proven: true, Mean: 1.3, High: 1.4})
		l.steps(2, 1.3)
		l.in(lifecycle.Online)
		if reward < 1 {
			l.steps(20, reward)
		} else {
			l.episodes(6, reward)
		}
		l.in(want)
	}
}

// A policy that has driven in a workload is worth there what it earned, whatever it was estimated to be worth: handed back, it
// drives again when the fallback earns less than that.
func TestWhatItEarnedIsWhatItIsWorth(t *testing.T) {
	l := live(t, nil)
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.5))
	l.episodes(4, 1.22)
	l.in(lifecycle.Offline) // by more than a twentieth less than the fallback
	l.episodes(5, 1.21)     // with those before it earns 1.25 in the mean
	l.in(lifecycle.Offline)
	l.episodes(15, 1.21)
	l.in(lifecycle.Online)

	// Within an episode, too: of the 25 steps that it drove.
	l = live(t, nil)
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.5))
	l.steps(20, 1.3)
	l.steps(5, 0.1)
	l.in(lifecycle.Offline)
	for range 300 {
		if l.steps(1, 0.6); l.Stage().Stage == lifecycle.Online {
			return
		}
	}
	t.Error("the fallback earns half of what the policy did, and drives")
}

// What a policy earned in a workload that is another one now is no estimate.
func TestWhatItEarnedElsewhereIsNoEstimate(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.HighStakes = true })
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.4))
	l.episodes(4, 1.4)
	l.in(lifecycle.Serving)
	l.steps(50, 1.3)
	l.in(lifecycle.Offline)
	l.episodes(4, 1.2)
	l.in(lifecycle.Offline)
}

// Where hours differ, an hour like one that there was is no drift; what is far from all of them is seen within an episode.
func TestAnHourLikeOthersIsNoDrift(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) {
		c.Thresholds = func(lifecycle.Summary) lifecycle.Thresholds {
			return lifecycle.Thresholds{Online: 1.3, Serving: 1.3, Variance: 0.1}
		}
	})
	l.episodes(3, 1.3)
	l.Offer(&rule{cpu: 500}, 1, worth(1.4))
	for _, hour := range []mdp.Reward{1.4, 1.4, 1.45, 1.5, 1.45, 1.4, 1.35, 1.45, 1.5} {
		l.episodes(1, hour)
	}
	l.in(lifecycle.Serving)
	l.steps(90, 1.36)
	l.in(lifecycle.Serving)
	l.steps(90, 0.4)
	if s := l.Stage().Stage; s == lifecycle.Serving {
		t.Error("it does not see that the workload is another one")
	}
}

// A rule teaches nothing beyond itself, so other actions are tried: only higher ones, and none where the stakes are high.
func TestWhileTheFallbackDrivesOnlyRaisesAreTried(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Try = 0.5 })
	l.episodes(1, 1)
	higher, other := 0, 0
	for range 1000 {
		action, err := l.Decide(present)
		if err != nil {
			t.Fatal(err)
		}
		for k := range action.Sets.Signals() {
			v, _ := action.Knob(k)
			switch {
			case k == mdp.CPULimit && v < 1000, k != mdp.CPULimit && v <= present.Knob(k):
				t.Fatalf("%v: it lowers %v", action, k)
			case k == mdp.CPULimit && v > 1000:
				higher++
			case k != mdp.CPULimit:
				other++
			}
		}
	}
	if higher < 50 || other < 50 {
		t.Errorf("%d raises of the CPU limit, %d of others: nothing is tried", higher, other)
	}
	l.fallback.cpu = 3500 // three and a half times of what is in force: no choice raises that much
	for _, v := range l.episodes(2, 1) {
		if v != 3500 {
			t.Fatalf("%v was tried where the fallback raises to 3500", v)
		}
	}
	l = live(t, func(c *lifecycle.AgentConfig) { c.Try, c.Settings.HighStakes = 0.5, true })
	for _, v := range l.episodes(2, 1) {
		if v != 1000 {
			t.Fatalf("%v was tried on a high-stakes workload", v)
		}
	}
}

// Whatever the learned policy does, something that is safe is decided, and why is said.
func TestWhenTheLearnedPolicyCannotDecideTheFallbackDoes(t *testing.T) {
	for name, wrong := range map[string]*rule{
		"panics": {panic: true}, "fails": {err: errors.New("nothing")}, "gives an illegal action": {cpu: -1},
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Bootstrap = false })
			l.Offer(wrong, 1, worth(1))
			l.Tick()
			l.in(lifecycle.Online)
			action, err := l.Decide(present)
			if v, _ := action.Knob(mdp.CPULimit); err != nil || v != 1000 {
				t.Errorf("%v was decided (%v)", action, err)
			}
			if d, why := l.Drives(); d != lifecycle.Fallback || why == nil {
				t.Errorf("driver %v, because %v", d, why)
			}
		})
	}
}

// follower is a rule that sets one millicore more than the fallback would, where it is told what that is.
type follower struct{ rule }

func (f *follower) Beside(_ mdp.State, fallback mdp.Action) (mdp.Action, error) {
	if f.panic {
		panic("a defect")
	}
	v, _ := fallback.Knob(mdp.CPULimit)
	return mdp.Action{}.WithKnob(mdp.CPULimit, v+1), f.err
}

// A learned policy that decides beside the fallback is told what that one would do, in each step; where the fallback does not
// know it decides alone.
func TestALearnedPolicyIsToldWhatTheFallbackWouldDo(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Bootstrap = false })
	learned := &follower{rule{cpu: 500}}
	l.Offer(learned, 1, worth(1))
	l.Tick()
	l.in(lifecycle.Online)
	decides := func(want int64, by lifecycle.Driver) {
		t.Helper()
		action, err := l.Decide(present)
		v, _ := action.Knob(mdp.CPULimit)
		if d, _ := l.Drives(); v != want || err != nil || d != by {
			t.Errorf("%v decided %v (%v), want %v of %v", d, action, err, want, by)
		}
	}
	decides(1001, lifecycle.Learned)
	l.fallback.cpu = 700
	decides(701, lifecycle.Learned)
	l.fallback.err = errors.New("nothing is known")
	decides(500, lifecycle.Learned)
	l.fallback.err = nil
	learned.err = errors.New("nothing")
	decides(700, lifecycle.Fallback)
	learned.err, learned.panic = nil, true
	decides(700, lifecycle.Fallback)
}

// A person can see where a learned policy did something else than the fallback would have done, and how often. What leads to the
// same is the same, however it is said, and what the fallback did not know nobody departed from.
func TestDeparturesFromTheFallbackAreSaid(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Bootstrap = false })
	if _, err := l.Decide(present); err != nil {
		t.Fatal(err)
	}
	if c := l.Choice(); c.Driver != lifecycle.Fallback || c.Departs || l.Departures().Steps != 0 {
		t.Errorf("the fallback drives: %+v, %+v", c, l.Departures())
	}
	learned := &rule{cpu: 1000}
	l.Offer(learned, 1, worth(1))
	l.Tick()
	l.in(lifecycle.Online)
	decides := func(departs, known bool) {
		t.Helper()
		if _, err := l.Decide(present); err != nil {
			t.Fatal(err)
		}
		c := l.Choice()
		v, _ := c.Fallback.Knob(mdp.CPULimit)
		if c.Departs != departs || c.Known != known || known && mdp.MilliCPU(v) != l.fallback.cpu || c.Tried ||
			c.Driver != lifecycle.Learned {
			t.Errorf("%+v, want departs %v", c, departs)
		}
	}
	decides(false, true)
	learned.cpu = 900
	decides(true, true)
	l.fallback.cpu = 900
	decides(false, true)
	l.fallback.err = errors.New("nothing is known")
	decides(false, false)
	l.fallback.err = nil
	learned.err = errors.New("nothing")
	if _, err := l.Decide(present); err != nil || l.Choice().Driver != lifecycle.Fallback {
		t.Errorf("%+v (%v), want the fallback's", l.Choice(), err)
	}
	if d := l.Departures(); d != (lifecycle.Departures{Steps: 4, Departed: 1}) {
		t.Errorf("%+v, want 1 of the 4 steps in which it decided", d)
	}
	learned.err = nil
	if _, err := l.Advise(present); err != nil || l.Departures().Steps != 4 {
		t.Errorf("what nobody carries out counts: %+v", l.Departures())
	}
	l.steps(400, 1)
	if taken, why := l.Offer(&rule{cpu: 800}, 2, worth(3)); !taken || l.Departures().Steps != 0 {
		t.Errorf("another policy drives (%v, %s), and of the one before there are %+v", taken, why, l.Departures())
	}
}

// Where another action is tried that is said, too, whoever drives.
func TestATrialIsSaid(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) { c.Try = 0.5 })
	l.episodes(1, 1)
	tried := 0
	for range 100 {
		action, err := l.Decide(present)
		v, cpu := action.Knob(mdp.CPULimit)
		other := action.Sets != mdp.SetOf(mdp.CPULimit) || !cpu || v != 1000
		if c := l.Choice(); err != nil || c.Tried != other || c.Departs && !c.Tried {
			t.Fatalf("%v was decided (%v), and said is %+v", action, err, c)
		}
		if l.Choice().Departs {
			tried++
		}
	}
	if tried < 20 {
		t.Errorf("%d trials in 100 steps", tried)
	}
}

// What the fallback earns while the learned policy cannot decide is not the policy's merit.
func TestAPolicyThatCannotDecideIsNotJudgedByTheFallback(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) {
		c.Settings.Bootstrap = false
		c.Settings.Thresholds = lifecycle.Thresholds{Online: 1, Serving: 1, Variance: 0.2}
	})
	l.Offer(&rule{err: errors.New("nothing")}, 1, worth(1))
	l.episodes(5, 1.9)
	l.in(lifecycle.Online)
	if s := l.State(); s.Recent.Count != 0 || s.Fallback.Count < 4 {
		t.Errorf("%d episodes count for the policy, %d for the fallback", s.Recent.Count, s.Fallback.Count)
	}
}

// While a policy drives, another one takes its place only where it beats it, and gives it back where it does not in fact.
func TestAPromotionMustBeatWhatDrives(t *testing.T) {
	l := live(t, func(c *lifecycle.AgentConfig) {
		c.Settings.Bootstrap = false
		c.Settings.Thresholds = lifecycle.Thresholds{Online: 1, Serving: 1, Variance: 0.2}
	})
	first, second := &rule{cpu: 500}, &rule{cpu: 400}
	l.Offer(first, 1, worth(1))
	if taken, why := l.Offer(second, 2, worth(1.9)); !taken {
		t.Fatal("nothing drives yet: ", why)
	}
	l.Offer(first, 3, worth(1))
	l.Tick()
	if taken, _ := l.Offer(second, 4, worth(1.9)); taken {
		t.Error("what drives has not been judged yet")
	}
	l.episodes(3, 1.4)
	l.in(lifecycle.Serving)
	l.episodes(1, 1.4)
	if taken, _ := l.Offer(second, 4, worth(1.35)); taken {
		t.Error("a policy that is not better was promoted")
	}
	if taken, _ := l.Offer(second, 4, lifecycle.Estimate{}); taken {
		t.Error("a policy of which nothing is known was promoted")
	}
	if taken, why := l.Offer(second, 4, worth(1.5)); !taken {
		t.Fatal(why)
	}
	if got := l.episodes(1, 1.3); got[0] != 400 {
		t.Errorf("%v was decided after the promotion", got[0])
	}
	l.episodes(1, 1.3) // it was said to be worth 1.5, and what was there before earned 1.4
	if got := l.episodes(1, 1.4); got[99] != 500 || l.Generation() != 5 {
		t.Errorf("%v was decided, generation %d: the promotion was not taken back", got[99], l.Generation())
	}
}

// saved is the agent's state as its file has it.
func (l *living) saved() (s lifecycle.AgentState) {
	l.t.Helper()
	text, err := json.Marshal(l.State())
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// A restart does not end the trial of a promotion: what was replaced comes back, unless it is lost.
func TestARestartForgetsNoPromotion(t *testing.T) {
	first, second := &rule{cpu: 500}, &rule{cpu: 400}
	for name, c := range map[string]struct {
		replaced mdp.Policy
		earns    mdp.Reward
		want     int64
	}{
		"it earns less":                        {first, 1.3, 500},
		"it earns as much":                     {first, 1.4, 400},
		"it earns less, and the other is lost": {nil, 1.3, 400},
	} {
		l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Bootstrap = false })
		l.episodes(3, 1.3)
		l.Offer(first, 1, worth(1.4))
		l.episodes(4, 1.4)
		l.in(lifecycle.Serving)
		if taken, why := l.Offer(second, 2, worth(1.5)); !taken {
			t.Fatal(why)
		}
		l.steps(50, c.earns)
		s := l.saved()
		again := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Bootstrap = false })
		if err := again.Restore(s, second, c.replaced); err != nil {
			t.Fatal(err)
		}
		again.at = l.at
		if got := again.steps(140, c.earns); got[139] != 400 {
			t.Errorf("%s: it was not judged yet, and %v was decided", name, got[139])
		}
		if got := again.steps(20, c.earns); got[19] != c.want {
			t.Errorf("%s: %v was decided, want %v", name, got[19], c.want)
		}
	}
}

// A promotion stays where what it earns is worse by no more than is allowed, whatever the rewards' sign. It is judged once it
// has driven for as many episodes as a judgement takes.
func TestAPromotionThatIsHardlyWorseStays(t *testing.T) {
	for _, c := range []struct {
		before, after mdp.Reward
		stays         bool
	}{{1.4, 1.34, true}, {1.4, 1.32, false}, {1.4, 1.5, true}, {-2, -2.09, true}, {-2, -2.11, false}} {
		l := live(t, func(c *lifecycle.AgentConfig) {
			c.Settings.Bootstrap = false
			c.Settings.Thresholds = lifecycle.Thresholds{Online: -9, Serving: -9, Variance: 9}
		})
		l.Offer(&rule{cpu: 500}, 1, worth(1))
		l.episodes(4, c.before)
		l.in(lifecycle.Serving)
		if taken, why := l.Offer(&rule{cpu: 400}, 2, worth(9)); !taken {
			t.Fatal(why)
		}
		for _, v := range l.steps(199, c.after) {
			if v != 400 {
				t.Fatalf("after %v a step %v: it was not judged yet, and %v was decided", c.before, c.after, v)
			}
		}
		l.steps(1, c.after)
		want := int64(500)
		if c.stays {
			want = 400
		}
		if got := l.steps(1, c.after); got[0] != want {
			t.Errorf("after %v a step %v: %v was decided, want %v", c.before, c.after, got[0], want)
		}
	}
}

// A restarted central goes on where it was. Without the policy the fallback drives.
func TestAnAgentOutlivesItsProcess(t *testing.T) {
	l := live(t, nil)
	l.episodes(3, 1.3)
	learned := &rule{cpu: 500}
	l.Offer(learned, 7, worth(1.4))
	l.episodes(4, 1.4)
	l.in(lifecycle.Serving)
	s := l.saved()
	next := live(t, nil)
	if err := next.Restore(s, learned, nil); err != nil {
		t.Fatal(err)
	}
	next.in(lifecycle.Serving)
	if got := next.episodes(1, 1.4); got[0] != 500 || next.Generation() != 7 {
		t.Errorf("%v was decided, generation %d", got[0], next.Generation())
	}
	without := live(t, nil)
	if err := without.Restore(s, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := without.episodes(1, 1.3); got[0] != 1000 {
		t.Errorf("%v was decided without a policy", got[0])
	}
	without.in(lifecycle.Offline)
	if w := without.Workload(); w.Changes != 0 {
		t.Errorf("a policy that is lost makes it another workload: %+v", w)
	}
	for name, damage := range map[string]func(*lifecycle.AgentState){
		"stage":   func(s *lifecycle.AgentState) { s.Stage = lifecycle.Serving + 1 },
		"rewards": func(s *lifecycle.AgentState) { s.Fallback = nil },
		"drift":   func(s *lifecycle.AgentState) { s.Drift = &lifecycle.Detector{Mean: 1, Alarm: 8} },
		"harm":    func(s *lifecycle.AgentState) { s.Harm = &lifecycle.Detector{Mean: math.NaN(), Deviation: 1, Alarm: 8} },
	} {
		bad := s
		damage(&bad)
		if err := live(t, nil).Restore(bad, nil, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A state of an earlier release has no detectors. They are made of what is known then.
func TestAStateWithoutDetectorsHasThemMade(t *testing.T) {
	for stage, rewards := range map[lifecycle.Stage]map[mdp.Reward]lifecycle.Stage{
		lifecycle.Online:  {1.29: lifecycle.Online, -5: lifecycle.Offline},
		lifecycle.Serving: {1.2: lifecycle.Online, -5: lifecycle.Offline},
	} {
		l := live(t, nil)
		l.episodes(3, 1.3)
		l.Offer(&rule{cpu: 500}, 1, worth(1.4))
		l.steps(1, 1.4)
		if stage == lifecycle.Serving {
			l.episodes(6, 1.4)
		}
		l.in(stage)
		for reward, want := range rewards {
			s := l.State()
			s.Drift, s.Harm = nil, nil
			again := live(t, nil)
			if err := again.Restore(s, &rule{cpu: 500}, nil); err != nil {
				t.Fatal(err)
			}
			again.steps(30, reward)
			again.in(want)
		}
	}
}

// Whether its process was restarted does not show in what an agent does next: neither while it is Online, where harm alone
// makes it hand back within an episode, nor while it serves, where drift ends that, too.
func TestARestartDoesNotShow(t *testing.T) {
	for stage, rewards := range map[lifecycle.Stage]map[mdp.Reward]lifecycle.Stage{ // and where it is after 30 steps of them
		lifecycle.Online:  {1.4: lifecycle.Online, 1.2: lifecycle.Online, 0.9: lifecycle.Offline},
		lifecycle.Serving: {1.4: lifecycle.Serving, 1.2: lifecycle.Online, 0.9: lifecycle.Online},
	} {
		for reward, want := range rewards {
			learned := &rule{cpu: 500}
			l := live(t, nil)
			for i := range 300 { // the fallback's rewards vary by a tenth
				l.steps(1, 1.3+0.1*mdp.Reward(i%3-1))
			}
			l.Offer(learned, 1, worth(1.4))
			for i := 0; l.Stage().Stage != stage; i++ {
				l.steps(1, 1.4+0.1*mdp.Reward(i%3-1))
			}
			l.steps(2, reward) // what these have cost counts on
			again := live(t, nil)
			if err := again.Restore(l.State(), learned, nil); err != nil {
				t.Fatal(err)
			}
			again.at = l.at
			for _, a := range []*living{l, again} { // of the first decision after a restart nobody knows what came before it
				if _, err := a.Decide(present); err != nil {
					t.Fatal(err)
				}
			}
			for step := range 30 {
				one, other := l.steps(1, reward), again.steps(1, reward)
				if l.Stage().Stage != again.Stage().Stage || one[0] != other[0] {
					t.Fatalf("%v, %d steps of %v: %v (%s) decides on %v; restarted %v (%s) on %v", stage, step+1, reward,
						l.Stage().Stage, l.Stage().Why, one, again.Stage().Stage, again.Stage().Why, other)
				}
			}
			if got := l.Stage(); got.Stage != want {
				t.Errorf("%v, and then 30 steps of %v: %v (%s), want %v", stage, reward, got.Stage, got.Why, want)
			}
		}
	}
}

// Where nothing can be raised, or nothing is known, there is nothing to try.
func TestWhereThereIsNothingToTryNothingIsTried(t *testing.T) {
	full, unknown := present, present
	full.Replicas, full.Limit = bounds.Replicas.Max, mdp.Size{CPU: bounds.CPU.Max, Memory: bounds.Memory.Max}
	unknown.Observed = 0
	for name, s := range map[string]mdp.State{"all is at its maximum": full, "nothing is known": unknown} {
		l := live(t, func(c *lifecycle.AgentConfig) { c.Try = 0.9 })
		l.episodes(1, 1)
		for range 50 {
			action, err := l.Decide(s)
			if v, ok := action.Knob(mdp.CPULimit); err != nil || action.Sets != mdp.SetOf(mdp.CPULimit) || !ok || v != 1000 {
				t.Fatalf("%s: %v, %v; want what the fallback wants", name, action, err)
			}
		}
		l.episodes(2, 1)
		l.Offer(&rule{cpu: 500}, 1, worth(9))
		l.episodes(1, 1)
		l.in(lifecycle.Online)
		for range 50 {
			if _, err := l.Decide(unknown); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Without thresholds of the owner the fallback's own rewards are needed first.
func TestNothingIsHandedOverBeforeTheFallbackIsKnown(t *testing.T) {
	l := live(t, nil)
	l.Offer(&rule{cpu: 500}, 1, worth(100))
	l.episodes(1, 1)
	l.in(lifecycle.Offline)
	l.episodes(1, 1)
	l.in(lifecycle.Online)
	// Two episodes are enough for who is proven elsewhere alone.
	for _, proven := range []bool{false, true} {
		l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Episodes = 4 })
		w := worth(100)
		w.Proven = proven
		l.Offer(&rule{cpu: 500}, 1, w)
		l.episodes(3, 1)
		if got := l.Stage().Stage; (got == lifecycle.Online) != proven {
			t.Errorf("proven elsewhere %v: stage %v after three of four episodes", proven, got)
		}
	}
}

// How often something is tried is a share, and not of all steps.
func TestAnAgentThatTriesAllTheTimeIsRefused(t *testing.T) {
	e, err := encode.New(encode.Discrete(mdp.LimitKnobs), encode.Place{Bounds: bounds})
	if err != nil {
		t.Fatal(err)
	}
	for try, fine := range map[mdp.Ratio]bool{0: true, 0.99: true, 1: false, -0.1: false, mdp.Ratio(math.Inf(1)): false} {
		_, err := lifecycle.NewAgent(lifecycle.AgentConfig{
			Settings: lifecycle.DefaultSettings, Fallback: &rule{}, Encoder: e, Try: try,
		})
		if (err == nil) != fine || err != nil && !strings.Contains(err.Error(), "try") {
			t.Errorf("a share of %v: %v", try, err)
		}
	}
	_, err = lifecycle.NewAgent(lifecycle.AgentConfig{
		Settings: lifecycle.DefaultSettings, Fallback: &rule{}, Encoder: e, Try: mdp.Ratio(math.NaN()),
	})
	if err == nil {
		t.Error("a share that is NaN was taken")
	}
}

// A workload can change while the fallback drives, and be easier or harder then: both show in what the fallback earns. What was
// learned of the one before does not drive by what it was worth there, and must be as good as the fallback is now.
func TestAWorkloadThatChangesWhileTheFallbackDrivesIsAnotherOne(t *testing.T) {
	for _, after := range []mdp.Reward{0.7, 1.9} {
		l := live(t, nil)
		learned := &rule{cpu: 500}
		l.Offer(learned, 1, worth(1.25))
		l.episodes(8, 1.3)
		begin := l.at
		l.episodes(2, after)
		l.in(lifecycle.Offline) // two odd episodes: nobody can tell, and nothing is handed over
		if learned.asked != 0 {
			t.Errorf("%v: it was handed over in between", after)
		}
		if w := l.Workload(); w != (lifecycle.Workload{}) {
			t.Errorf("%v: after two odd episodes it is another workload: %+v", after, w)
		}
		again := live(t, nil) // a restart in between is no judgement
		if err := again.Restore(l.State(), nil, nil); err != nil {
			t.Fatal(err)
		}
		again.at = l.at
		again.Offer(learned, 2, worth(1.25))
		if again.steps(50, after); learned.asked != 0 {
			t.Errorf("%v: it was handed over after a restart", after)
		}
		l.episodes(2, after)
		l.in(lifecycle.Offline)
		if w := l.Workload(); w.Changes != 1 || !w.Since.Equal(begin) || !strings.Contains(l.Stage().Why, "another one") {
			t.Errorf("%v: %+v (%s), want one change at %v", after, w, l.Stage().Why, begin)
		}
		l.Offer(learned, 2, worth(float64(after)-0.02))
		l.episodes(3, after)
		l.in(lifecycle.Offline)
		l.Offer(learned, 3, worth(float64(after)+0.01))
		l.Tick()
		l.in(lifecycle.Online)
		if w := l.Workload(); w.Changes != 1 {
			t.Errorf("%v: it changed %d times", after, w.Changes)
		}
	}
}

// When a policy that served hands back, the workload is another one: of the fallback nothing is known there, also where a process
// ends in between.
func TestWhatAWorkloadWasDoesNotJudgeWhatItIs(t *testing.T) {
	l := live(t, nil)
	l.episodes(3, 1.3)
	learned := &rule{cpu: 500}
	l.Offer(learned, 1, worth(1.4))
	l.episodes(4, 1.4)
	l.in(lifecycle.Serving)
	begin := l.at
	for l.Stage().Stage == lifecycle.Serving {
		l.steps(1, 1.31)
	}
	l.in(lifecycle.Online)
	if w := l.Workload(); w.Changes != 1 || w.Since.Before(begin) {
		t.Errorf("%+v, want one change after %v", w, begin)
	}
	again := live(t, nil)
	if err := again.Restore(l.State(), learned, nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*living{l, again} {
		l.at = begin.Add(time.Hour)
		l.episodes(2, 0.8)
		l.episodes(4, 0.9) // the first one does not count
		l.in(lifecycle.Offline)
		s := l.State()
		if got := s.Fallback.Summary().Mean; got > 0.91 {
			t.Errorf("the fallback is held to be worth %v, which it was before", got)
		}
		l.Offer(learned, 2, worth(0.91)) // far from what it was
		l.Tick()
		l.in(lifecycle.Online)
		if w := l.Workload(); w.Changes != 1 {
			t.Errorf("%+v, want one change", w)
		}
	}
}

// varied is an agent in Serving, whose steps earned 1.3 in the mean, and vary so that no few of them are a drift.
func varied(t *testing.T, proven bool) *living {
	t.Helper()
	l := live(t, func(c *lifecycle.AgentConfig) {
		c.Settings.Thresholds = lifecycle.Thresholds{Online: 1.295, Serving: 1.295, Variance: 1}
	})
	l.episodes(3, 1.3)
	estimate := worth(1.4)
	estimate.Proven = proven
	l.Offer(&rule{cpu: 500}, 1, estimate)
	l.steps(2, 1.3)
	l.in(lifecycle.Online)
	for range 100 * 3 / 2 {
		l.steps(1, 1.8)
		l.steps(1, 0.8)
	}
	l.in(lifecycle.Serving)
	return l
}

// A policy that is as good as serving takes leaves Serving now and then by chance. That makes no other workload, and what it has
// just lost counts on. If it hands back after that it was another one. One that other workloads have proven is not worth less by
// chance: then it is another workload at once, of which what the fallback earned before is a mild measure; over a restart, too.
func TestLeavingServingByChanceForgetsNothing(t *testing.T) {
	tried := varied(t, true)
	restarted := live(t, nil)
	if err := restarted.Restore(tried.State(), &rule{cpu: 500}, nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*living{tried, restarted} {
		for l.Stage().Stage == lifecycle.Serving {
			l.steps(98, 1.3)
			l.steps(2, 0.1)
		}
		l.steps(1, 0.1)
		l.in(lifecycle.Online)
		if w := l.Workload(); w.Changes != 1 {
			t.Errorf("%+v (%s): it was proven", w, l.Stage().Why)
		}
	}
	l := varied(t, false)
	for l.Stage().Stage == lifecycle.Serving { // two steps at the end of each episode are worth less: by 2.4, and harm is 2.6
		l.steps(98, 1.3)
		l.steps(2, 0.1)
	}
	l.in(lifecycle.Online)
	if w := l.Workload(); w.Changes != 0 {
		t.Errorf("it is another workload: %s", l.Stage().Why)
	}
	l.steps(1, 0.1)
	l.in(lifecycle.Offline)
	if w := l.Workload(); w.Changes != 1 {
		t.Errorf("%+v (%s): what has served is not that much worse by itself", w, l.Stage().Why)
	}
}

// One that has served, and is worth so much less that it hands back, is in another workload, also where nobody saw a drift.
func TestWhatServedIsNotWorseByItself(t *testing.T) {
	l := varied(t, false)
	for l.Stage().Stage == lifecycle.Serving {
		l.steps(1, 1.7)
		l.steps(1, 0.7)
	}
	l.in(lifecycle.Offline)
	drift := "1.3, which was usual, by more than its deviation of 0.5"
	if w := l.Workload(); w.Changes != 1 || strings.Contains(l.Stage().Why, drift) {
		t.Errorf("%+v (%s), want one change without a drift", w, l.Stage().Why)
	}
}

// Of episodes of which little is known nobody can tell whether they are of another workload, or what was usual.
func TestOfWhatIsNotKnownNobodyCanTell(t *testing.T) {
	for name, known := range map[string][2]int{"before": {4, 10}, "after": {10, 4}} {
		l := live(t, nil)
		for step := range 1200 {
			reward, of := mdp.Reward(1.3), known[0]
			if step >= 800 {
				reward, of = 0.7, known[1]
			}
			l.Decide(present)
			l.Record(mdp.Transition{Reward: reward, RewardKnown: step%10 < of})
			l.Tick()
		}
		if w := l.Workload(); w.Changes != 0 {
			t.Errorf("%s a change four in ten rewards were known: %+v", name, w)
		}
	}
}

// What the fallback earns is what it leads to itself: no episode has steps of before a policy drove, and the first one after that
// counts for nothing, since queues and kills are in it that the policy has left. Otherwise the policy that did harm is the better
// one from then on. It is so, too, where a process ends in between.
func TestTheFallbackIsNotJudgedByWhatItIsLeftWith(t *testing.T) {
	l := live(t, nil)
	l.steps(350, 1.3)
	learned := &rule{cpu: 500}
	l.Offer(learned, 1, worth(1.4))
	l.steps(5, 1.4)
	l.in(lifecycle.Online)
	for l.Stage().Stage == lifecycle.Online {
		l.steps(1, -1)
	}
	back := l.at
	l.steps(40, -19)
	again := live(t, nil)
	if err := again.Restore(l.State(), learned, nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*living{l, again} {
		l.at = back.Add(40 * 10 * time.Second)
		l.steps(61, -19)
		if n := len(l.State().Fallback.Over); n != 3 {
			t.Errorf("%d episodes of the fallback: the fourth is not over, and the one before it is left out", n)
		}
		l.episodes(1, 1.2)
		over := l.State().Fallback.Over
		if len(over) != 4 {
			t.Fatalf("%d episodes of the fallback", len(over))
		}
		if next := over[3]; next.Begin.Before(back.Add(99*10*time.Second)) || next.Steps != 100 || next.Sum < 119 {
			t.Errorf("an episode of %d steps earned %v and began at %v; the fallback drives again since %v",
				next.Steps, next.Sum, next.Begin, back)
		}
	}
}

// What is no change: chance, a slow wave of the load, an odd hour, and hours of which nothing is known.
func TestHoursOfOneWorkloadDiffer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	reward := map[string]func(step int) (float64, bool){
		"steps vary": func(int) (float64, bool) { return 1.2 + 0.2*r.NormFloat64(), true },
		"now and then a miss": func(int) (float64, bool) {
			if r.IntN(200) == 0 {
				return -19, true
			}
			return 1.2, true
		},
		"a day's wave": func(step int) (float64, bool) {
			return 1.2 + 0.3*math.Sin(2*math.Pi*float64(step)/8640) + 0.1*r.NormFloat64(), true
		},
		"an odd hour a day": func(step int) (float64, bool) {
			if step%8640 < 100 {
				return 0, true
			}
			return 1.2 + 0.1*r.NormFloat64(), true
		},
		"odd hours on both sides": func(step int) (float64, bool) {
			if hour := step / 100 % 20; hour >= 17 {
				return 1.2 + 0.5*float64(1-2*(hour%2)), true
			}
			return 1.2, true
		},
		"hours of which little is known": func(step int) (float64, bool) {
			if step%1000 >= 800 {
				return 0, step%10 == 0
			}
			return 1.2, true
		},
	}
	for name, of := range reward {
		l := live(t, func(c *lifecycle.AgentConfig) { c.Settings.Episodes = 5 })
		for step := range 100 * 400 {
			l.Decide(present)
			v, known := of(step)
			l.Record(mdp.Transition{Reward: mdp.Reward(v), RewardKnown: known})
			l.Tick()
		}
		if w := l.Workload(); w.Changes > 0 {
			t.Errorf("%s: in 400 episodes the workload was another one %d times", name, w.Changes)
		}
	}
}
