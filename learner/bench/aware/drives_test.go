package aware

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim/workload"
)

// rewards is episodes of ten steps with a mean reward each; NaN is an episode of which nothing is known.
func rewards(means ...float64) (all []Episode) {
	for _, m := range means {
		f := Figures{Steps: 10}
		if !math.IsNaN(m) {
			f.Known, f.Reward = 10, 10*m
		}
		all = append(all, Episode{Figures: f})
	}
	return all
}

// The worst window is of the same episodes in both arms, and what is not known is no zero.
func TestTheWorstWindow(t *testing.T) {
	nan := math.NaN()
	for name, one := range map[string]struct {
		arm, other []Episode
		want       float64
		ok         bool
	}{
		"the last two":            {rewards(1, 1, 0.5, 0.5), rewards(1, 1, 1, 1), 0.5, true},
		"in the middle":           {rewards(1, 0.8, 0.6, 1), rewards(1, 1, 1, 1), 0.3, true},
		"better everywhere":       {rewards(1.5, 1.5, 1.5), rewards(1, 1, 1), -0.5, true},
		"the other one fell, too": {rewards(1, 0.5, 0.5), rewards(1, 0.5, 0.5), 0, true},
		"below zero":              {rewards(-2, -2), rewards(-1, -1), 1, true},
		"an unknown episode":      {rewards(nan, 1, 1), rewards(1, 1, 1), 0, true},
		"nothing is known":        {rewards(nan, nan), rewards(1, 1), 0, false},
		"too short":               {rewards(0), rewards(1), 0, false},
	} {
		got, ok := Worst(one.arm, one.other, 2)
		if ok != one.ok || ok && math.Abs(got-one.want) > 1e-12 {
			t.Errorf("%s: %v, known %v; want %v, %v", name, got, ok, one.want, one.ok)
		}
	}
}

// A ratio to no violations cannot be said, and is not held.
func TestAClaimOfNothingIsNotHeld(t *testing.T) {
	drive := func(arm Arm, repetition, violations int) Drive {
		return Drive{Repetition: repetition, Arm: arm, Episodes: []Episode{{Figures: Figures{Steps: 10, Violations: violations}}}}
	}
	all := []Drive{drive(AWARE, 0, 1), drive(NoBootstrap, 0, 20), drive(AWARE, 1, 2), drive(NoBootstrap, 1, 60)}
	// 80 against 3, and not the mean of 20 and 30. Without each of the repetitions it is 30 and 20: the pseudo-values are 70/3 and
	// 100/3, whose standard error is 5.
	got := compared(all, AWARE, NoBootstrap, fewer)
	if got == nil || math.Abs(got.Mean-80.0/3) > 1e-9 || got.Low == nil || math.Abs(*got.High-got.Mean-5*12.706) > 0.01 {
		t.Errorf("80 violations and 3 are %v", got)
	}
	all[2] = drive(AWARE, 1, 0)
	if got := compared(all, AWARE, NoBootstrap, fewer); got == nil || got.Mean != 80 || got.Low != nil {
		t.Errorf("80 violations and 1 are %v: without the first repetition there is no ratio", got)
	}
	all[0] = drive(AWARE, 0, 0)
	if c := claim("fewer", 1, true, compared(all, AWARE, NoBootstrap, fewer)); c.Found != nil || c.Held {
		t.Errorf("a ratio to nothing: %+v", c)
	}
	for _, c := range []struct {
		found float64
		least bool
		held  bool
	}{{2, true, true}, {0.5, true, false}, {2, false, false}, {0.5, false, true}, {1, true, true}, {1, false, true}} {
		if got := claim("", 1, c.least, &Interval{Mean: c.found}); got.Held != c.held {
			t.Errorf("%v against 1, at least %v: held %v", c.found, c.least, got.Held)
		}
	}
}

// Each of the seven updates changes the workload that the ones before have left, and the order follows from the seed.
func TestSevenUpdatesEachChangeTheWorkload(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(4) {
		last, phases, err := Updatable(17, seed)
		if err != nil {
			t.Fatal(err)
		}
		seen, order := map[string]bool{}, ""
		for _, p := range phases {
			more, busier := p.Workload.App.Work() > last.App.Work(), p.Workload.Trace.Mean() > last.Trace.Mean()
			if more == busier || busier != (p.Update == "load") {
				t.Errorf("seed %d, update %s: more work %v, more requests %v", seed, p.Update, more, busier)
			}
			if _, err := Published.World(p.Workload); err != nil {
				t.Errorf("seed %d, update %s: %v", seed, p.Update, err)
			}
			seen[p.Update], last, order = true, p.Workload, order+" "+p.Update
		}
		if len(phases) != 7 || len(seen) != 7 {
			t.Errorf("seed %d: updates%s", seed, order)
		}
		orders[order] = true
	}
	if len(orders) < 2 {
		t.Error("the order is always the same")
	}
}

// brief is settings for tests. Nobody is evaluated in an untaught life, so that the lifecycle stays Offline.
var (
	brief    = Setting{Alpha: 0.5, Length: 20}
	soon     = Convergence{Every: 2, Episodes: 2, Most: 6}
	untaught = Life{Jitter: 0.2, Raise: 0.3, Try: 0.3, Noise: 0.02, Imitation: 15, Least: 1000, Every: 5, Keep: 4}
)

// trial is a workload with its fallback, in which the test's drivers drive.
type trial struct {
	*testing.T
	driven   *driven
	fallback *rule
	seeds    []uint64
}

// tuned is the workload of the trials. Tuning its fallback takes a while.
var tuned = sync.OnceValues(func() (trial, error) {
	w, err := Of(17)
	if err != nil {
		return trial{}, err
	}
	d, err := brief.driven(w)
	if err != nil {
		return trial{}, err
	}
	fallback, err := brief.tunedRule(context.Background(), d, 2, 5)
	return trial{driven: d, fallback: fallback}, err
})

func newTrial(t *testing.T, episodes int) trial {
	t.Helper()
	one, err := tuned()
	if err != nil {
		t.Fatal(err)
	}
	one.T, one.seeds = t, episodeSeeds(5, scoredSeeds, episodes)
	return one
}

func (t trial) play(by driver, from, to int) []Episode {
	t.Helper()
	all, err := t.driven.play(context.Background(), by, t.seeds[from:to])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (t trial) rule() *rule { return t.fallback.again() }

// living is an agent that knows nothing yet.
func (t trial) living(l Life, seed uint64) *living {
	t.Helper()
	a, err := newPupil(t.driven, seed)
	if err != nil {
		t.Fatal(err)
	}
	life, err := newLiving(l, a, len(t.driven.executed), t.rule(), nil, seed)
	if err != nil {
		t.Fatal(err)
	}
	return life
}

// While the lifecycle is Offline nothing that the agent does reaches the workload: without jitter the episodes are the rule's,
// step by step, whatever the agent has learned. With jitter a knob is now and then higher, and never lower.
func TestOfflineNothingOfTheAgentDrives(t *testing.T) {
	one := newTrial(t, 8)
	alone := one.play(one.rule(), 0, 8)
	still := untaught
	still.Jitter = 0
	for seed := range uint64(2) {
		for i, e := range one.play(one.living(still, seed), 0, 8) {
			if e.Stages[lifecycle.Offline] != e.Steps || e.Figures != alone[i].Figures {
				t.Errorf("agent %d, episode %d: Offline %+v, the rule alone %+v", seed, i, e, alone[i])
			}
		}
	}
	life := one.living(untaught, 1)
	got := one.play(life, 0, 8)
	if total(got) == total(alone) {
		t.Error("with jitter the fallback does what it does alone")
	}
	if again := one.play(one.living(untaught, 1), 0, 8); !reflect.DeepEqual(again, got) {
		t.Error("the same seed gives another life")
	}
	higher := 0
	for i := range 200 {
		action := mdp.Action{}.WithReplicas(1 + i%10).WithCPU(mdp.MilliCPU(50 + 37*i)).WithMemory(mdp.Bytes(64+i) * mdp.MiB)
		got, err := life.raised(one.driven, action)
		if err != nil {
			t.Fatal(err)
		}
		for k := range mdp.LimitKnobs.Signals() {
			was, _ := action.Knob(k)
			if now, ok := got.Knob(k); !ok || now < was {
				t.Errorf("%v of %+v is %d", k, action, now)
			} else if now > was {
				higher++
			}
		}
	}
	if higher < 50 || higher > 200 {
		t.Errorf("of 200 actions %d knobs were raised, and one of each at most", higher)
	}
}

// What was learned is evaluated when there are Least episodes of the fallback, and then not before Every more.
func TestTheAgentIsEvaluatedWhenThereAreEpisodes(t *testing.T) {
	one := newTrial(t, 5)
	l := untaught
	l.Least, l.Every, l.Keep = 3, 3, 4
	life := one.living(l, 1)
	for i, generation := range []uint64{0, 0, 1, 1, 1} {
		one.play(life, i, i+1)
		if got := life.cycle.Generation(); got != generation {
			t.Errorf("after %d episodes there were %d evaluations, want %d", i+1, got, generation)
		}
	}
	if len(life.kept) != 4 || len(life.kept[3]) != brief.Length {
		t.Errorf("%d episodes are kept", len(life.kept))
	}
}

// An agent that is said to be good drives, and hands back within an episode when it is not: then it waits twice as long.
func TestAnAgentThatIsFarWorseHandsBack(t *testing.T) {
	one := newTrial(t, 40)
	life := one.living(untaught, 1)
	one.play(life, 0, 30)
	if life.now != lifecycle.Offline || len(life.kept) != untaught.Keep {
		t.Fatalf("it is %v with %d episodes of the fallback", life.now, len(life.kept))
	}
	tiny := mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return life.driven.encoder.FromBox([]float64{-1, -1, -1}) })
	if taken, why := life.cycle.Offer(tiny, 1, lifecycle.Estimate{Known: true, Mean: 2, Low: 2, High: 2}); !taken {
		t.Fatal(why)
	}
	all := one.play(life, 30, 31)
	if all[0].Stages[lifecycle.Online] == 0 || all[0].Stages[lifecycle.Offline] == 0 || life.now != lifecycle.Offline {
		t.Errorf("in the episode it was in the stages %v, and is %v: %+v", all[0].Stages, life.now, life.Changes)
	}
	if life.wait != 2*untaught.Every || len(life.kept) == 0 {
		t.Errorf("it waits %d episodes, and has %d of the fallback", life.wait, len(life.kept))
	}
	if n := len(life.Changes); n != 3 || life.Changes[1].Episode != 31 || life.Changes[2].Episode != 31 {
		t.Errorf("changes %+v", life.Changes)
	}
}

// Of sizes that are far below the fallback's an agent has learned nothing while it was Offline. So it may go a little below them
// at first. What was proven in other workloads goes as it wants.
func TestAnAgentGoesALittleBelowTheFallback(t *testing.T) {
	one := newTrial(t, 0)
	all := mdp.Action{}.WithReplicas(10).WithCPU(8000).WithMemory(8192 * mdp.MiB)
	for name, c := range map[string]struct {
		room  float64
		least mdp.Action // of an agent that wants less
	}{
		"at first":        {0.05, mdp.Action{}.WithReplicas(10).WithCPU(7600).WithMemory(8192 * mdp.MiB * 95 / 100)},
		"later":           {0.2, mdp.Action{}.WithReplicas(8).WithCPU(6400).WithMemory(8192 * mdp.MiB * 8 / 10)},
		"much later":      {1, mdp.Action{}},
		"there is no end": {float64(AdaptedLife.Room), mdp.Action{}},
	} {
		l := untaught
		l.Try = 0
		life := one.living(l, 1)
		life.driven, life.now, life.room = one.driven, lifecycle.Serving, c.room
		own, err := pilot{life}.Decide(mdp.State{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := pilot{life}.Beside(mdp.State{}, all)
		if err != nil {
			t.Fatal(err)
		}
		for k := range mdp.LimitKnobs.Signals() {
			wants, _ := own.Knob(k)
			least, _ := c.least.Knob(k)
			if v, _ := got.Knob(k); v < least || v > max(least, wants)+1 {
				t.Errorf("%s: %v is %d, the agent wants %d, and %d is the least", name, k, v, wants, least)
			}
			if least > 0 && wants >= least {
				t.Errorf("%s: an untaught agent wants %d of %v: too much for this test", name, wants, k)
			}
		}
		// What is above the fallback's, or what the fallback leaves, is the agent's.
		if got, _ := (pilot{life}).Beside(mdp.State{}, mdp.Action{}.WithReplicas(1)); got != own {
			t.Errorf("%s: %v beside a fallback that wants less, and %v alone", name, got, own)
		}
	}
}

// With each five episodes that are at most 5 % worse than the fallback's usual ones an agent may go further below it, and half as
// far after one that is worse. An episode of which no reward is known says nothing. Offline it is as at first.
func TestHowFarBelowTheFallbackAnAgentMayGo(t *testing.T) {
	one := newTrial(t, 10)
	l := untaught
	l.Room = 0.05
	life := one.living(l, 1)
	if life.room != 0.05 {
		t.Fatalf("at first it is %v", life.room)
	}
	one.play(life, 0, 10)
	usual := mdp.Reward(life.cycle.State().Fallback.Summary().Mean)
	drive := func(stage lifecycle.Stage, rewards ...mdp.Reward) {
		life.now = stage
		for _, r := range rewards {
			for i := range brief.Length {
				step := taken{last: i == brief.Length-1}
				step.Reward, step.RewardKnown = r, r != 0
				life.drove(one.driven, step)
			}
		}
	}
	good, bad := usual-0.04*usual, usual-0.06*usual
	for i, c := range []struct {
		stage   lifecycle.Stage
		rewards []mdp.Reward
		want    float64
	}{
		{lifecycle.Online, []mdp.Reward{good, good, good, good}, 0.05},
		{lifecycle.Online, []mdp.Reward{good}, 0.1},
		{lifecycle.Serving, []mdp.Reward{good, good, 0, good, good, good}, 0.15},
		{lifecycle.Online, []mdp.Reward{good, good, good, good, bad}, 0.075},
		{lifecycle.Online, []mdp.Reward{good}, 0.075},
		{lifecycle.Online, []mdp.Reward{bad}, 0.05},
		{lifecycle.Online, []mdp.Reward{good, good, good, good, good, good, good}, 0.1},
		{lifecycle.Offline, []mdp.Reward{good}, 0.05},
		{lifecycle.Online, []mdp.Reward{good, good, good}, 0.05},
	} {
		drive(c.stage, c.rewards...)
		if math.Abs(life.room-c.want) > 1e-12 {
			t.Fatalf("step %d: %v, want %v", i, life.room, c.want)
		}
	}
	life.room = 0.7
	if one.play(life, 9, 10); life.now != lifecycle.Offline || life.room != 0.05 {
		t.Errorf("after an episode in the stage %v it is %v", life.now, life.room)
	}
}

// T_online is what the fallback earns, and what is asked for above it.
func TestTOnlineIsAskedForAboveTheFallback(t *testing.T) {
	one := newTrial(t, 40)
	l := untaught
	l.Above = 0.5
	life := one.living(l, 1)
	one.play(life, 0, 30)
	offer := func(above float64) {
		low := life.cycle.State().Fallback.Summary().Mean + above
		life.cycle.Offer(pilot{life}, life.cycle.Generation()+1, lifecycle.Estimate{Known: true, Mean: low, Low: low, High: low})
	}
	offer(0.4)
	if e := one.play(life, 30, 31)[0]; e.Stages[lifecycle.Online] != 0 {
		t.Errorf("0.4 above the fallback drives: %v", e.Stages)
	}
	offer(0.6)
	if e := one.play(life, 31, 32)[0]; e.Stages[lifecycle.Online] == 0 {
		t.Errorf("0.6 above the fallback does not drive: %v", e.Stages)
	}
}

// A policy that serves a workload which is another one suddenly hands back, and what was known of the fallback is forgotten: it
// was of the workload before.
func TestAfterAnUpdateTheFallbackIsMeasuredAnew(t *testing.T) {
	one := newTrial(t, 40)
	life := one.living(untaught, 1)
	good := rewards(1.9, 1.9, 1.9, 1.9, 1.9)
	if err := life.serve(one.driven, good, good); err != nil {
		t.Fatal(err)
	}
	life.wait = 40
	one.play(life, 0, 40)
	if life.wait != 2*untaught.Every { // of this workload; it has handed back once
		t.Errorf("it waits %d episodes for the evaluation in another workload", life.wait)
	}
	if life.now != lifecycle.Offline || life.changes == 0 {
		t.Fatalf("it is %v: %+v", life.now, life.Changes)
	}
	for _, e := range life.cycle.State().Fallback.Over {
		if e.Sum/float64(e.Known) > 1.89 {
			t.Errorf("an episode from before is left: %+v", e)
		}
	}
}

// An agent with a meta-learner reads the embedding of its workload behind the state; other drivers of the same workload do not.
// What drives is remembered, whoever it is. In a workload that is another one the agent begins as it was pretrained, and
// remembers nothing of the one before.
func TestAnAdaptedAgentBeginsAnewInAnotherWorkload(t *testing.T) {
	one := newTrial(t, 26)
	p := pretrained(t)
	a, memory, err := newAdapted(one.driven, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	life, err := newLiving(untaught, a, len(one.driven.executed), one.rule(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	life.memory, life.adapts = memory, &p
	width := one.driven.width()
	one.play(life, 0, 3) // the fallback drives
	if n := len(memory.Episodes()); n != 2 || len(one.driven.obs) != width+4 || len(one.driven.before) != width+4 {
		t.Errorf("%d episodes are remembered, of two at most; %d numbers are behind a state, and the embedding has 4", n,
			len(one.driven.obs)-width)
	}
	known := slices.Clone(memory.Embedding())
	one.play(life, 3, 4)
	if !reflect.DeepEqual(one.driven.obs[width:], known) || slices.Equal(known, make([]float64, 4)) {
		t.Errorf("the episode has %v behind its states, and what was known is %v", one.driven.obs[width:], known)
	}
	one.play(one.rule(), 4, 5)
	if len(one.driven.obs) != width {
		t.Errorf("HPA and VPA read %d numbers more than a state", len(one.driven.obs)-width)
	}
	// What many workloads have taught is not changed by what a few episodes of this one would teach.
	own := func() []float64 { return slices.Clone(life.agent.Policy.Actor.Theta) }
	begin := own()
	one.play(life, 4, 10)
	if !slices.Equal(own(), begin) {
		t.Error("of a workload's first episodes something is learned")
	}
	clear(life.agent.Policy.Actor.Theta) // as if it had learned something
	life.cycle.Renew(time.Time{})
	if err := life.changed(); err != nil {
		t.Fatal(err)
	}
	if len(memory.Episodes()) != 0 || !slices.Equal(memory.Embedding(), make([]float64, 4)) {
		t.Errorf("%d episodes of the workload before are remembered", len(memory.Episodes()))
	}
	if !slices.Equal(own(), begin) {
		t.Error("it goes on with what it had learned of the workload before")
	}
	life.life.Least = 2
	one.play(life, 10, 18)
	if len(life.kept) == 0 || life.cycle.Generation() == 0 {
		t.Errorf("it was not offered after %d episodes of the fallback", len(life.kept))
	}
}

// A pretrained agent that has handed back is tried again, after twice as many episodes of the fallback each time, and with what
// these say of the workload: the workload may have changed a little at a time, which nobody sees. One late second does not make
// it hand back, and three of them do.
func TestAnAdaptedAgentThatHandedBackIsTriedAgainLater(t *testing.T) {
	one := newTrial(t, 26)
	p := pretrained(t)
	a, memory, err := newAdapted(one.driven, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	life, err := newLiving(untaught, a, len(one.driven.executed), one.rule(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	life.memory, life.adapts = memory, &p
	one.play(life, 0, 2) // the fallback drives
	pass := func(steps int, reward mdp.Reward) {
		t.Helper()
		for range steps {
			if _, err := life.cycle.Advise(mdp.State{}); err != nil {
				t.Fatal(err)
			}
			life.cycle.Record(mdp.Transition{Reward: reward, RewardKnown: true})
			if life.cycle.Tick() {
				if err := life.changed(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	pilot := mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}, nil })
	pass(300, 1.3)
	life.life.Least, life.wait = 2, 2
	for i, wait := range []int{4, 8} {
		life.cycle.Offer(pilot, life.cycle.Generation()+1, lifecycle.Estimate{Known: true, Proven: true, Mean: 1.3, High: 1.4})
		pass(50, 1.3)
		pass(1, -19.5)
		pass(5, 1.3)
		if s := life.cycle.Stage(); s.Stage != lifecycle.Online {
			t.Fatalf("after a late second: %+v", s)
		}
		pass(2, -19.5)
		if s := life.cycle.Stage(); s.Stage != lifecycle.Offline || life.wait != wait || len(memory.Episodes()) != 0 {
			t.Fatalf("after three: %+v, tried again after %d episodes, with %d of before", s, life.wait, len(memory.Episodes()))
		}
		tried, from := life.cycle.Generation(), 2+8*i
		one.play(life, from, from+wait-1)
		if life.cycle.Generation() != tried {
			t.Fatalf("it is tried again before %d episodes", wait)
		}
		one.play(life, from+wait-1, from+wait)
		if life.cycle.Generation() != tried+1 || !life.cycle.State().Proven {
			t.Fatalf("after %d episodes it is not offered again, as what other workloads have proven", wait)
		}
	}
}

// AWARE of fig. 9 serves with what was pretrained and adapted, knows the embedding of its workload, and begins so anew when the
// workload changes.
func TestAWAREOfFig9IsPretrained(t *testing.T) {
	one := newTrial(t, 1)
	p := pretrained(t)
	f := Fig9{Setting: brief, Convergence: soon, Life: untaught}
	life, err := f.serving(context.Background(), one.driven, p, one.rule(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if !life.cycle.State().Proven {
		t.Error("other workloads have proven what it begins with, and its life does not know that")
	}
	if life.now != lifecycle.Serving || life.adapts == nil || len(life.memory.Episodes()) != p.Meta.Bundle {
		t.Errorf("it is %v, pretrained %v, and remembers %d episodes", life.now, life.adapts != nil, len(life.memory.Episodes()))
	}
	e := one.play(life, 0, 1)[0]
	if e.Stages[lifecycle.Serving] == 0 || len(one.driven.obs) != one.driven.width()+p.Meta.Embedding {
		t.Errorf("stages %v, a state of %d numbers", e.Stages, len(one.driven.obs))
	}
}

// The mark of fig. 9 after an update is the better one of two trainings: from the policy before it, and from what was pretrained.
func TestTheMarkAfterAnUpdateIsTheBetterOfTwoTrainings(t *testing.T) {
	one := newTrial(t, 1)
	p := pretrained(t)
	f := Fig9{Setting: brief, Convergence: soon, Life: untaught}
	ctx := context.Background()
	both := map[bool]bool{}
	for seed := range uint64(6) {
		gone, err := one.driven.converged(ctx, f.Convergence, f.Life, one.rule(), nil, seed)
		if err != nil {
			t.Fatal(err)
		}
		adapted, err := one.driven.adapted(ctx, f.Convergence, f.Life, one.rule(), p, seed)
		if err != nil {
			t.Fatal(err)
		}
		by, last, err := f.after(ctx, one.driven, one.rule(), nil, p, seed)
		if err != nil {
			t.Fatal(err)
		}
		want := adapted.earned > gone.earned
		both[want] = true
		if got := by.memory != nil; got != want {
			t.Errorf("seed %d: pretrained %v; that one earned %v, and the other %v", seed, got, adapted.earned, gone.earned)
		}
		if !reflect.DeepEqual(last.Tensors, gone.best.Tensors) {
			t.Errorf("seed %d: the next one does not go on from the policy before it", seed)
		}
	}
	if len(both) != 2 {
		t.Errorf("of no two seeds each training was the better one: %v", both)
	}
}

// The workload changes while the fallback drives: of its episodes those of the new one stay, and what it waited for is over.
func TestAfterAnUpdateWhileTheFallbackDrivesTheWaitsAreOver(t *testing.T) {
	one := newTrial(t, 1)
	life := one.living(untaught, 1)
	if err := life.begin(); err != nil {
		t.Fatal(err)
	}
	life.wait, life.kept = 40, make([][]replay.Transition, 12)
	for step := range 1150 {
		if _, err := life.cycle.Advise(mdp.State{}); err != nil {
			t.Fatal(err)
		}
		reward := mdp.Reward(1.3)
		if step >= 800 {
			reward = 0.6
		}
		life.cycle.Record(mdp.Transition{Reward: reward, RewardKnown: true})
		if life.cycle.Tick() {
			if err := life.changed(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if life.changes != 1 || life.wait != untaught.Every || len(life.kept) != 3 {
		t.Errorf("%d changes, it waits %d episodes, and has %d of the fallback", life.changes, life.wait, len(life.kept))
	}
	if n := len(life.Changes); n != 2 || life.Changes[1].Stage != "Offline" {
		t.Errorf("%+v", life.Changes)
	}
}

// by is the only drive of an arm.
func by(t *testing.T, all []Drive, arm Arm) Drive {
	t.Helper()
	drives := of(all, arm)[0]
	if len(drives) != 1 {
		t.Fatalf("%d drives of %s", len(drives), arm)
	}
	return drives[0]
}

// same checks that the episodes of AWARE that are wholly Offline are the rule's. There must be some.
func same(t *testing.T, rule, own []Episode, least int) {
	t.Helper()
	offline := 0
	for i, e := range own {
		if e.Stages[lifecycle.Offline] < e.Steps {
			continue
		}
		offline++
		if e.Figures != rule[i].Figures {
			t.Errorf("episode %d: the rule %+v, AWARE %+v", i, rule[i], e)
		}
	}
	if offline < least || len(own) != len(rule) || rule[0].Figures == rule[1].Figures {
		t.Errorf("of %d episodes %d are Offline, and the rule's are %+v", len(own), offline, rule)
	}
}

// All arms of fig. 10 meet the same episodes: AWARE without jitter, of which nothing is evaluated, has the rule's figures in each
// of them. How AWARE lives changes no other arm.
func TestFig10IsPaired(t *testing.T) {
	f := Fig10{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 1, Episodes: 12, Seed: 3}
	run := func(jitter mdp.Ratio) []Drive {
		t.Helper()
		f.Life.Jitter = jitter
		all, err := f.Repetition(context.Background(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all, other := run(0), run(0.9)
	if len(all) != len(Fig10Arms) {
		t.Fatalf("%d drives", len(all))
	}
	same(t, by(t, all, Rule).Episodes, by(t, all, AWARE).Episodes, 12)
	for _, arm := range []Arm{Rule, NoBootstrap, AWARE} {
		same := reflect.DeepEqual(by(t, all, arm).Episodes, by(t, other, arm).Episodes)
		if same != (arm != AWARE) {
			t.Errorf("AWARE's jitter changes arm %s: %v", arm, !same)
		}
	}
	summaries := SummariseDrives(all, Fig10Arms)
	if len(summaries) != 4 || summaries[2].Offline.Mean != 12 || summaries[1].Online.Mean != 12 || summaries[3].Serving.Mean != 12 {
		t.Errorf("%+v", summaries)
	}
	if _, err := json.Marshal(f.Claims(all)); err != nil {
		t.Error(err)
	}
	f.Apps = 201
	if f.Check() == nil {
		t.Error("there are 200 unseen workloads, and 201 pass")
	}
}

// Each phase of fig. 9 is in the workload after its update, with episodes of its own: the rule's are those that it has when it is
// run there alone, and so are AWARE's while it is Offline.
func TestFig9RunsInTheUpdatedWorkload(t *testing.T) {
	f := Fig9{Setting: brief, Convergence: soon, Life: untaught, Repetitions: 1, Apps: 1, Episodes: 3, Seed: 3}
	f.Life.Jitter = 0
	all, err := f.Repetition(context.Background(), 0, pretrained(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	rule := by(t, all, Rule)
	same(t, rule.Episodes, by(t, all, AWARE).Episodes, 10)
	_, unseen := workload.Split(f.Seed)
	seed := runSeed(f.Seed, 0, 0)
	before, phases, err := Updatable(unseen[rand.New(rand.NewPCG(f.Seed, 0)).Perm(len(unseen))[0]], seed)
	if err != nil || before.Name() != rule.Workload {
		t.Fatalf("%s, want %s (%v)", rule.Workload, before.Name(), err)
	}
	first, err := brief.driven(before)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := brief.tunedRule(context.Background(), first, soon.Episodes, seed)
	if err != nil {
		t.Fatal(err)
	}
	seeds := episodeSeeds(seed, scoredSeeds, 21)
	for i, p := range phases {
		d, err := brief.driven(p.Workload)
		if err != nil {
			t.Fatal(err)
		}
		alone.config.SLO = d.slo
		want, err := d.play(context.Background(), alone, seeds[3*i:3*i+3])
		if err != nil {
			t.Fatal(err)
		}
		if rule.Phases[i] != p.Update || !reflect.DeepEqual(rule.Episodes[3*i:3*i+3], want) {
			t.Errorf("phase %d, %s: %+v, want %+v", i, p.Update, rule.Episodes[3*i:3*i+3], want)
		}
	}
	if _, err := json.Marshal(f.Claims(all)); err != nil {
		t.Error(err)
	}
	f.Episodes = 0
	if f.Check() == nil {
		t.Error("no episodes pass")
	}
}

// A load in bursts is far above what VPA has seen, and an owner sets the least size and number of replicas for it. A fallback
// without them is late in a sixth of the steps of this workload.
func TestTheRuleIsTunedForBursts(t *testing.T) {
	_, unseen := workload.Split(1)
	w, err := Of(unseen[rand.New(rand.NewPCG(1, 5)).Perm(len(unseen))[0]])
	if err != nil {
		t.Fatal(err)
	}
	d, err := Published.driven(w)
	if err != nil {
		t.Fatal(err)
	}
	const episodes = 4
	tuned, err := Published.tunedRule(t.Context(), d, episodes, 5)
	if err != nil {
		t.Fatal(err)
	}
	late := func(by *rule) int {
		played, err := d.play(t.Context(), by, episodeSeeds(5, scoredSeeds, 2*episodes))
		if err != nil {
			t.Fatal(err)
		}
		return total(played).Violations
	}
	with, without := late(tuned), late(&rule{config: tuned.config})
	if with*5 > without || tuned.least <= 0 || tuned.replicas < 2 {
		t.Errorf("%s: %d steps are late with at least %v and %d replicas, and %d without that",
			w.Name(), with, tuned.least, tuned.replicas, without)
	}
	if again := tuned.again(); again.least != tuned.least || again.replicas != tuned.replicas || again.config != tuned.config {
		t.Errorf("%+v became %+v", tuned, again)
	}
}
