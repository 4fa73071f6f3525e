package aware

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/sim/workload"
)

// A pool has none of the workloads that are adapted to, and the same seed gives the same one. Its workloads are small and
// large, with few segments and with many.
func TestAPoolHasWorkloadsOfAllKinds(t *testing.T) {
	tasks, err := Published.Pool(60, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Published.Pool(60, 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	all := workload.Compositions()
	_, unseen := workload.Split(1)
	hidden := map[string]bool{}
	for _, i := range unseen {
		hidden[all[i].String()] = true
	}
	seen := map[string]bool{}
	for i := range all {
		if !slices.Contains(unseen, i) {
			seen[all[i].String()] = true
		}
	}
	updated := 0
	for i, one := range tasks {
		if one.Name != again[i].Name {
			t.Errorf("workload %d is %s, and %s", i, one.Name, again[i].Name)
		}
		app, _, _ := strings.Cut(one.Name, " at ")
		if hidden[app] && !seen[app] {
			t.Errorf("%s is adapted to", app)
		}
		if strings.Count(app, ",") > 2 {
			updated++
		}
	}
	if updated < 15 || updated > 45 {
		t.Errorf("%d of 60 are longer than any published application", updated)
	}
	for _, n := range []int{0, 801} {
		if _, err := Published.Pool(n, 1, 1); err == nil || !strings.Contains(err.Error(), "[1, 800]") {
			t.Errorf("a pool of %d: %v", n, err)
		}
	}
}

// What is pretrained is the mean of the policies of many rounds: of central's one alone was better or worse than the rule by
// chance (ADR 40), and of fig. 8's the mean adapts sooner than the last one (ADR 38). Where the policy reads embeddings its
// rounds are those in which the meta-learner is what it is in the result (ADR 33): fewer of them, by one meta-learner.
func TestAPretrainingEndsWithAMean(t *testing.T) {
	central := Published
	central.Central = true
	for _, one := range []struct {
		setting      Setting
		rounds       int // as they are documented
		policy, meta float64
		plays        int
	}{
		{central, 1200, 600, 600, 4},
		{Published, 400, 80, 120, 16},
	} {
		tasks, err := one.setting.Pool(4, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		c := one.setting.Pretraining(one.setting.Shape(meta.FormOf(tasks[0].Env)), one.rounds, 1)
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		rounds, settled := float64(c.Rounds), c.Settled*float64(c.Rounds)
		policy, learner := c.Averaged*rounds, c.Averaged*(rounds-settled)
		if settled > 0 {
			policy = c.Averaged * settled
		}
		if policy < one.policy || learner < one.meta {
			t.Errorf("the means of %v rounds of the policy and %v of the meta-learner, want %v and %v",
				policy, learner, one.policy, one.meta)
		}
		if settles := settled > 0; settles == one.setting.Central {
			t.Errorf("central %v: the meta-learner settles: %v", one.setting.Central, settles)
		}
		if c.Plays != one.plays {
			t.Errorf("%d workloads play in a round, want %d", c.Plays, one.plays)
		}
		if one.setting.Central {
			continue
		}
		if all := c.Rounds * c.Plays * one.setting.Length; c.Base.Noise.AnnealSteps != all {
			t.Errorf("exploration falls for %d steps, and %d are played", c.Base.Noise.AnnealSteps, all)
		}
	}
}

// What the guide does is on both sides of what HPA and VPA want, for some steps each time, and never beyond the bounds.
func TestAGuideTriesWhatIsAroundTheRule(t *testing.T) {
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	task, err := Published.pooled(w, 2)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	obs, action := make([]float64, task.Env.Observation().Dim()), make([]float64, 3)
	var cores []float64
	known := 0
	for episode := range 2 {
		if err := task.Env.Reset(uint64(episode), obs); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := task.Guide(action, r); err != nil {
				t.Fatal(err)
			}
			for _, v := range action {
				if !(v >= -1 && v <= 1) {
					t.Fatalf("action %v", action)
				}
			}
			cores = append(cores, action[1])
			out, err := task.Env.Step(slices.Clone(action), obs)
			if err != nil {
				t.Fatal(err)
			}
			if out.RewardKnown {
				known++
			}
		}
	}
	if known < 150 {
		t.Errorf("%d of 200 rewards are known", known)
	}
	still := 0
	for i, v := range cores[1:] {
		if math.Abs(v-cores[i]) < 0.2 {
			still++
		}
	}
	if spread := slices.Max(cores) - slices.Min(cores); spread < 0.3 || still < 120 {
		t.Errorf("CPU limits over %.2f of the box, %d of 199 steps near the one before", spread, still)
	}
}

// Half of a guide's episodes are as HPA and VPA come, and in the others their owner has set minima of everything.
func TestGuidesHaveMinimaHalfOfTheTimes(t *testing.T) {
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	world, err := Published.World(w)
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGuide(&watched{Simulation: world}, Published)
	if err != nil {
		t.Fatal(err)
	}
	most := world.Spaces().Bounds
	r := rand.New(rand.NewPCG(1, 1))
	none := 0
	for range 1000 {
		if err := g.begin(r); err != nil {
			t.Fatal(err)
		}
		least := mdp.Size{CPU: g.rule.least, Memory: g.rule.memory}
		if (least == mdp.Size{}) && g.rule.replicas == 0 {
			none++
			continue
		}
		if least.CPU < most.CPU.Max/17 || least.CPU > most.CPU.Max || least.Memory < most.Memory.Max/65 ||
			least.Memory > most.Memory.Max || g.rule.replicas < 1 || g.rule.replicas > most.Replicas.Max {
			t.Fatalf("minima of %v and %d replicas, bounds %v", least, g.rule.replicas, most)
		}
	}
	if none < 440 || none > 560 {
		t.Errorf("%d of 1000 episodes have no minima", none)
	}
	g.rule = rule{config: g.setting.untuned(world.Spaces()), memory: 300 * mdp.MiB}
	if err := g.rule.begin(); err != nil {
		t.Fatal(err)
	}
	s := mdp.State{
		Observed: mdp.LimitKnobs | mdp.SetOf(mdp.CPUUsage, mdp.MemoryUsage), Replicas: 1,
		Limit: mdp.Size{CPU: 1000, Memory: 1024 * mdp.MiB}, Usage: mdp.Size{CPU: 10, Memory: mdp.MiB},
	}
	if a, err := g.rule.Decide(s); err != nil || a.Limit.Memory != 300*mdp.MiB {
		t.Errorf("%v, %v: want the least memory", a, err)
	}
}

// What central's choices are pretrained in has no price of late requests, and guards that do not look back; what they are proven
// in has both.
func TestAPretrainingOfChoicesSeesWhatTheyLeadTo(t *testing.T) {
	w, err := Of(3)
	if err != nil {
		t.Fatal(err)
	}
	for _, taught := range []bool{false, true} {
		s := Setting{Alpha: 0.5, Length: 10, Central: true, taught: taught}
		world, err := s.World(w)
		if err != nil {
			t.Fatal(err)
		}
		of := world.Spaces()
		if of.Signals.Has(mdp.Missed) == taught || (of.Guards.MemoryPast == 0) != taught || (of.Guards.BurstShare == 0) != taught {
			t.Errorf("taught %v: %v, %v", taught, of.Signals, of.Guards)
		}
	}
	tasks, err := Setting{Alpha: 0.5, Length: 50, Central: true}.Pool(4, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := 2 * slices.Index(slices.Collect(central.Form().Signals.Signals()), mdp.Missed) // its value, and whether it is known
	for _, one := range tasks {
		obs := make([]float64, one.Env.Observation().Dim())
		if err := one.Env.Reset(1, obs); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if _, err := one.Env.Step([]float64{0}, obs); err != nil {
				t.Fatal(err)
			}
			if obs[at] != 0 || obs[at+1] != 0 {
				t.Fatalf("%s: it is seen which share was late: %v", one.Name, obs[at:at+2])
			}
		}
	}
	if Shown.Has(mdp.Missed) || !Shown.Has(mdp.OOMKills) {
		t.Errorf("it shows %v", Shown)
	}
}
