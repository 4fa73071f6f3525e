package aware

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/meta"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/sim/workload"
	"awarescale.dev/aware/learner/train/lesson"
)

// A start is proven where it earns more in the mean, and for certain in more than half of the workloads. One workload that
// outweighs all others proves nothing, on either side, nor do few workloads, or few steps of which the reward is known.
func TestWhatIsProvenIsBetterInMostWorkloads(t *testing.T) {
	of := func(rewards ...float64) (all []Figures) {
		for _, r := range rewards {
			all = append(all, Figures{Steps: 100, Known: 100, Reward: 100 * r})
		}
		return all
	}
	rule := of(slices.Repeat([]float64{1}, 20)...)
	for name, one := range map[string]struct {
		mine []Figures
		want bool
	}{
		"better":            {of(slices.Repeat([]float64{1.1}, 20)...), true},
		"the same":          {rule, false},
		"worse":             {of(slices.Repeat([]float64{0.9}, 20)...), false},
		"better in half":    {of(slices.Repeat([]float64{1.2, 0.9}, 10)...), false},
		"one workload":      {of(append(slices.Repeat([]float64{0.9}, 19), 20)...), false},
		"one that is lost":  {of(append(slices.Repeat([]float64{1.1}, 19), -9)...), false},
		"in 15 of 20":       {of(slices.Repeat([]float64{1.1, 1.1, 1.1, 0.9}, 5)...), true},
		"in 12 of 20":       {of(slices.Repeat([]float64{1.1, 1.1, 1.1, 0.9, 0.9}, 4)...), false},
		"a few known steps": {append(of(slices.Repeat([]float64{0.99}, 19)...), Figures{Steps: 100, Known: 1, Reward: 5}), false},
	} {
		p := proofOf(one.mine, rule)
		if p.Holds() != one.want || p.Workloads != 20 || p.Rule.Steps != 2000 {
			t.Errorf("%s: proven %v: %v", name, p.Holds(), p)
		}
	}
	if p := proofOf(of(1.1), of(1)); p.Holds() {
		t.Errorf("one workload proves it: %v", p)
	}
}

// A proof holds between the lowest and the highest upper bound of its workloads, whatever their lower bounds are.
func TestAProofHoldsBetweenItsUpperBounds(t *testing.T) {
	of := func(cpu mdp.MilliCPU, memory mdp.Bytes, replicas int) mdp.Bounds {
		return mdp.Bounds{
			CPU: mdp.Range[mdp.MilliCPU]{Min: 1, Max: cpu}, Memory: mdp.Range[mdp.Bytes]{Min: 2, Max: memory},
			Replicas: mdp.Range[int]{Min: 3, Max: replicas},
		}
	}
	got := tops([]mdp.Bounds{of(500, 70, 9), of(900, 50, 8), of(700, 60, 7)})
	want := mdp.Bounds{
		CPU: mdp.Range[mdp.MilliCPU]{Min: 500, Max: 900}, Memory: mdp.Range[mdp.Bytes]{Min: 50, Max: 70},
		Replicas: mdp.Range[int]{Min: 7, Max: 9},
	}
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is proven is played in workloads that no pretraining has seen, as published and updated, in the episodes of the rule.
func TestAProofIsOfUnseenWorkloads(t *testing.T) {
	setting := Published
	setting.Central, setting.Length = true, 20
	form := central.Form()
	start := lesson.Start{Form: form, Seen: form.Signals, Base: lesson.Base(form)}
	start.Meta = setting.Shape(meta.Form{Observation: form.Dim(), Choices: form.NumActions()})
	start.Base.State = form.Dim() + start.Meta.Embedding
	r := rand.New(rand.NewPCG(1, 1))
	start.Theta = start.Meta.Initial(r)
	params := start.Base.Network().Params()
	start.Values, start.Behaviour = make([]float64, params), make([]float64, params)
	// To whom all choices are worth the same the rule is as good as any: it is followed, and earns the same.
	same, err := setting.Prove(t.Context(), start, 4, 1, 1, func(string) {})
	if err != nil || same.Start != same.Rule || same.Start.Reward == 0 {
		t.Errorf("%v (%v)", same, err)
	}
	start.Values[params-form.NumActions()] = 1 // it likes to keep everything
	var names []string
	p, err := setting.Prove(t.Context(), start, 4, 1, 1, func(what string) { names = append(names, what) })
	if err != nil {
		t.Fatal(err)
	}
	if p.Workloads != 4 || p.Start.Steps != 4*5*20 || p.Rule.Steps != p.Start.Steps || p.Rule.Reward == p.Start.Reward || p.Holds() {
		t.Errorf("%v", p)
	}
	w := p.Within
	if w.CPU.Min < 400 || w.CPU.Min == w.CPU.Max || w.CPU.Max > 16000 || w.Replicas.Min < 1 || w.Memory.Min < 256*mdp.MiB {
		t.Errorf("it holds within %v", w)
	}
	all, published := workload.Compositions(), 0
	_, unseen := workload.Split(1)
	for _, i := range unseen {
		for _, name := range names {
			if strings.HasPrefix(name, all[i].String()+" at ") {
				published++
			}
		}
	}
	if len(names) != 4 || published != 2 {
		t.Errorf("%d of 4 workloads are published ones that were not seen: %q", published, names)
	}
	again, err := setting.Prove(t.Context(), start, 4, 1, 1, func(string) {})
	if err != nil || again.Start != p.Start || again.Rule != p.Rule {
		t.Errorf("%v, and again %v (%v)", p, again, err)
	}
	for _, n := range []int{0, 201} {
		if _, err := setting.Prove(t.Context(), start, n, 1, 1, nil); err == nil || !strings.Contains(err.Error(), "[1, 200]") {
			t.Errorf("%d workloads: %v", n, err)
		}
	}
}
