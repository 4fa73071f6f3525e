package meta_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/meta"
)

var form = meta.Form{Observation: 2, Action: 1}

func small() meta.Config {
	return meta.Config{Form: form, Hidden: 6, Layers: 2, Dense: 5, Embedding: 4, Bundle: 3, Length: 8}
}

func learner(t *testing.T, c meta.Config) *meta.Learner {
	t.Helper()
	l, err := meta.New(c, c.Initial(rand.New(rand.NewPCG(1, 2))))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// episode is steps of a form, by a seed.
func episode(f meta.Form, seed uint64, steps int) meta.Episode {
	r := rand.New(rand.NewPCG(seed, 3))
	var e meta.Episode
	for range steps {
		obs := make([]float64, f.Observation)
		for i := range obs {
			obs[i] = r.NormFloat64()
		}
		e.Add(f, obs, []float64{r.NormFloat64()}, r.Float64(), true)
	}
	return e
}

func embed(l *meta.Learner, bundle ...meta.Episode) []float64 {
	e := make([]float64, l.Config.Embedding)
	l.Embed(bundle, e)
	return e
}

func TestTheOrderOfEpisodesDoesNotMatterAndTheOrderOfStepsDoes(t *testing.T) {
	l := learner(t, small())
	a, b, c := episode(form, 1, 8), episode(form, 2, 5), episode(form, 3, 8)
	want := embed(l, a, b, c)
	for i, v := range embed(l, c, a, b) {
		if math.Abs(v-want[i]) > 1e-14 {
			t.Fatalf("%v in another order: %v", want, embed(l, c, a, b))
		}
	}
	width := form.Width()
	back := meta.Episode{Sum: a.Sum, Known: a.Known}
	for i := len(a.Steps) - width; i >= 0; i -= width {
		back.Steps = append(back.Steps, a.Steps[i:i+width]...)
	}
	if slices.Equal(embed(l, back, b, c), want) {
		t.Error("an episode that runs backwards is the same to it: it does not read along time")
	}
}

// AWARE's bundles are not always full, and episodes not always long. What was read before must not be seen.
func TestNothingOfAnotherWorkloadIsLeft(t *testing.T) {
	c := small()
	short := []meta.Episode{episode(form, 4, 3)}
	fresh := embed(learner(t, c), short...)
	l := learner(t, c)
	embed(l, episode(form, 1, 8), episode(form, 2, 8), episode(form, 3, 8))
	if got := embed(l, short...); !slices.Equal(got, fresh) {
		t.Errorf("%v after another workload, %v without", got, fresh)
	}
	if got := embed(l); slices.ContainsFunc(got, func(v float64) bool { return v != 0 }) {
		t.Errorf("the embedding of nothing is %v", got)
	}
	long := episode(form, 5, 11)
	end := meta.Episode{Steps: long.Steps[3*form.Width():]}
	if !slices.Equal(embed(l, long), embed(l, end)) {
		t.Error("of an episode that is too long the last steps are read")
	}
}

// An action that is a choice is one number for each choice, and an unknown reward is not zero.
func TestAStepSaysWhichChoiceAndWhetherTheRewardIsKnown(t *testing.T) {
	f := meta.Form{Observation: 1, Choices: 3}
	var e meta.Episode
	e.Add(f, []float64{7}, []float64{2}, 0.5, true)
	e.Add(f, []float64{8}, []float64{0}, 99, false)
	if want := []float64{7, 0, 0, 1, 0.5, 1, 8, 1, 0, 0, 0, 0}; !slices.Equal(e.Steps, want) {
		t.Errorf("%v, want %v", e.Steps, want)
	}
	if mean, ok := e.Reward(); !ok || mean != 0.5 {
		t.Errorf("mean reward %v, %v: the unknown one must not count", mean, ok)
	}
}

// Of the episodes half are the best, and the others the last ones, whatever they earned: a workload is also what it is when it is
// hard.
func TestTheBestEpisodesAndTheLastAreKept(t *testing.T) {
	k := meta.Kept{Most: 4}
	of := func(mean float64, name float64) meta.Episode {
		return meta.Episode{Steps: []float64{name}, Sum: 2 * mean, Known: 2}
	}
	for i, mean := range []float64{3, 1, 4, 0, 1, 3, 0, -5} {
		if !k.Add(of(mean, float64(i))) {
			t.Errorf("episode %d of mean %v is not kept, and it is the last one", i, mean)
		}
	}
	if k.Add(meta.Episode{Steps: []float64{9}}) {
		t.Error("an episode of which no reward is known is kept")
	}
	var names []float64
	for _, e := range k.Episodes {
		names = append(names, e.Steps[0])
	}
	// The second one of the best is number 5: it earned as much as number 0, and is newer.
	if want := []float64{2, 5, 6, 7}; !slices.Equal(names, want) {
		t.Errorf("kept %v, want %v", names, want)
	}
	only := meta.Kept{Most: 1}
	if !only.Add(of(1, 0)) || only.Add(of(0, 1)) || !only.Add(of(2, 2)) || only.Episodes[0].Steps[0] != 2 {
		t.Errorf("of one episode the best is kept: %v", only.Episodes)
	}
}

// A memory of fewer episodes than the meta-learner reads has the best of them, and their embedding.
// An episode is as good as its mean step of which the reward is known, however many these are.
func TestAnEpisodeIsWorthItsMeanStep(t *testing.T) {
	var long, short, dark meta.Episode
	for step := range 6 {
		long.Add(form, []float64{0, 0}, []float64{0}, 1, true)
		short.Add(form, []float64{0, 0}, []float64{0}, 1.5, step < 2)
		dark.Add(form, []float64{0, 0}, []float64{0}, 9, false)
	}
	for _, one := range []struct {
		e     meta.Episode
		want  float64
		known bool
	}{{long, 1, true}, {short, 1.5, true}, {dark, 0, false}} {
		if got, known := one.e.Reward(); got != one.want || known != one.known {
			t.Errorf("%d known steps of %v: %v, %v", one.e.Known, one.e.Sum, got, known)
		}
	}
	k := meta.Kept{Most: 1}
	if !k.Add(long) || !k.Add(short) || k.Add(long) || k.Add(dark) || k.Episodes[0].Known != 2 {
		t.Errorf("the best episode is not the one with the best steps: %+v", k.Episodes)
	}
}

// What recurrent layers read of several bundles is each episode at its place, whole or its last steps, and zero elsewhere.
func TestEachEpisodeOfEachBundleIsAtItsPlace(t *testing.T) {
	c := small()
	lengths := [][]int{{5, 12}, {}, {8, 1, 3, 7}} // of a bundle 3 are read, of an episode 8 steps
	bundles := make([][]meta.Episode, len(lengths))
	for i, bundle := range lengths {
		for j, n := range bundle {
			bundles[i] = append(bundles[i], episode(form, uint64(10*i+j), n))
		}
	}
	all, width := len(bundles)*c.Bundle, form.Width()
	x, read := slices.Repeat([]float64{7}, c.Length*all*width), slices.Repeat([]int{7}, all)
	c.Fill(bundles, x, read)
	for i := range bundles {
		for j := range c.Bundle {
			var e meta.Episode
			if j < len(bundles[i]) {
				e = bundles[i][j]
			}
			steps := len(e.Steps) / width
			n := min(steps, c.Length)
			if read[i*c.Bundle+j] != n {
				t.Errorf("episode %d of bundle %d has %d steps, want %d", j, i, read[i*c.Bundle+j], n)
			}
			for step := range c.Length {
				want := make([]float64, width)
				if step < n {
					want = e.Steps[(steps-n+step)*width:][:width]
				}
				if got := x[(step*all+i*c.Bundle+j)*width:][:width]; !slices.Equal(got, want) {
					t.Errorf("step %d of episode %d of bundle %d is %v, want %v", step, j, i, got, want)
				}
			}
		}
	}
}

func TestAMemoryCanBeSmaller(t *testing.T) {
	l := learner(t, small())
	m := meta.NewMemory(l)
	best := episode(form, 1, 8)
	best.Sum += 100
	m.Add(best)
	m.Add(episode(form, 2, 8))
	if err := m.Keep(1); err != nil || len(m.Episodes()) != 1 || !slices.Equal(m.Embedding(), embed(l, best)) {
		t.Errorf("%d episodes, the embedding is that of the best one: %v (%v)", len(m.Episodes()),
			slices.Equal(m.Embedding(), embed(l, best)), err)
	}
	m.Add(episode(form, 3, 8))
	if len(m.Episodes()) != 1 {
		t.Errorf("%d episodes", len(m.Episodes()))
	}
	for _, n := range []int{0, l.Config.Bundle + 1} {
		if err := m.Keep(n); err == nil || !strings.Contains(err.Error(), "as many as the meta-learner reads") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestSimilarity(t *testing.T) {
	a := []float64{3, 4}
	for name, c := range map[string]struct {
		b    []float64
		want float64
	}{
		"equal":            {[]float64{3, 4}, 1},
		"opposite":         {[]float64{-3, -4}, -0.5},
		"twice as long":    {[]float64{6, 8}, (1 - 1.0/3 + 1) / 2},
		"at a right angle": {[]float64{4, -3}, (1 - math.Sqrt2/2) / 2},
	} {
		if got := meta.Similarity(a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if !math.IsNaN(meta.Similarity(a, []float64{0, 0})) {
		t.Error("nothing is known of one, and they are compared")
	}
}

// Forty workloads in two groups: one like them is at home, one far from both is not, and one of which nothing is known is
// neither.
func TestAWorkloadUnlikeAllOthersIsSaidToBe(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var names []string
	var all [][]float64
	for i := range 40 {
		e := []float64{1, 0, 0}
		if i%2 == 0 {
			e = []float64{0, 1, 0}
		}
		for j := range e {
			e[j] += 0.05 * r.NormFloat64()
		}
		names, all = append(names, string(rune('a'+i))), append(all, e)
	}
	f, err := meta.NewFamiliar(names, all)
	if err != nil {
		t.Fatal(err)
	}
	if j, ok := f.Judge([]float64{1, 0.02, 0}); !ok || j.Outside || j.Similarity < 0.9 {
		t.Errorf("one like the others: %v", j)
	}
	if j, ok := f.Judge([]float64{0, 0, -1}); !ok || !j.Outside || !strings.Contains(j.String(), "unlike") {
		t.Errorf("one unlike them: %v", j)
	}
	if _, ok := f.Judge([]float64{0, 0, 0}); ok {
		t.Error("a workload of which nothing is known is judged")
	}
	for what, bad := range map[string]struct {
		names      []string
		embeddings [][]float64
	}{
		"one is nothing to compare with":  {names[:1], all[:1]},
		"more names than embeddings":      {names[:3], all[:2]},
		"embeddings of different lengths": {names[:2], [][]float64{{1, 0}, {1}}},
	} {
		if _, err := meta.NewFamiliar(bad.names, bad.embeddings); err == nil {
			t.Errorf("taken: %s", what)
		}
	}
	if _, err := meta.NewFamiliar(names[:2], all[:2]); err != nil {
		t.Errorf("two are enough: %v", err)
	}
	_, err = meta.NewFamiliar([]string{"a", "nothing", "c"}, [][]float64{{1, 0}, {0, 0}, {1, 1}})
	if err == nil || !strings.Contains(err.Error(), "workload nothing") {
		t.Errorf("an embedding of nothing is that of another workload: %v", err)
	}
}

// The embedding of an episode is that of the episodes before it, and does not change within it. A hidden one is not shown, of
// whatever is known, until all is forgotten.
func TestAnEnvironmentShowsTheEmbedding(t *testing.T) {
	world := &envtest.World{Limit: 4, Pay: func(step int, a float64) (float64, bool) { return a, step != 2 }}
	f := meta.FormOf(world)
	c := small()
	c.Form = f
	l := learner(t, c)
	m := meta.NewMemory(l)
	e, err := meta.Condition(envtest.Guarded{World: world}, m, true)
	if err != nil {
		t.Fatal(err)
	}
	n := f.Observation
	obs := make([]float64, e.Observation().Dim())
	play := func() (seen [][]float64) {
		if err := e.Reset(1, obs); err != nil {
			t.Fatal(err)
		}
		for {
			seen = append(seen, slices.Clone(obs[n:]))
			out, err := e.Step([]float64{0.5}, obs)
			if err != nil {
				t.Fatal(err)
			}
			if out.Ended() {
				return append(seen, slices.Clone(obs[n:]))
			}
		}
	}
	for _, shown := range play() {
		if slices.ContainsFunc(shown, func(v float64) bool { return v != 0 }) {
			t.Fatalf("nothing is known in the first episode, and the embedding is %v", shown)
		}
	}
	if len(m.Episodes()) != 1 || m.Episodes()[0].Known != 3 {
		t.Fatalf("the memory has %+v", m.Episodes())
	}
	want := embed(l, m.Episodes()...)
	for _, shown := range play() {
		if !slices.Equal(shown, want) {
			t.Fatalf("the second episode shows %v, and that of the first is %v", shown, want)
		}
	}

	m.Hide()
	for _, shown := range play() {
		if slices.ContainsFunc(shown, func(v float64) bool { return v != 0 }) {
			t.Fatalf("a hidden embedding is shown: %v", shown)
		}
	}
	kept := embed(l, m.Episodes()...)

	saved, err := e.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	again := meta.NewMemory(l)
	restored, err := meta.Condition(envtest.Guarded{World: &envtest.World{Limit: 4, Pay: world.Pay}}, again, true)
	if err == nil {
		err = restored.UnmarshalBinary(saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(embed(l, again.Episodes()...), kept) || len(again.Episodes()) != 3 {
		t.Error("a restored memory is another one")
	}
	if again.Add(again.Episodes()[0]); slices.ContainsFunc(again.Embedding(), func(v float64) bool { return v != 0 }) {
		t.Error("a restored memory does not hide its embedding any more")
	}
	episode := again.Episodes()[0]
	again.Forget()
	if again.Add(episode); !slices.Equal(again.Embedding(), embed(l, episode)) {
		t.Error("after it has forgotten all it still hides what is known")
	}
	saved[len(saved)/2]++
	if err := restored.UnmarshalBinary(saved); err == nil {
		t.Error("a damaged file is taken")
	}
}

// What a workload is like shows in what took force, and not in what was wanted. Where episodes are not kept nothing of them
// is, and the state of such an environment is not that of one that keeps them.
func TestWhatTookForceIsRemembered(t *testing.T) {
	const limit, wanted, force = 3, 1.0, 0.25
	open := func(keep, guarded bool) (env.Env, *meta.Memory) {
		t.Helper()
		world := &envtest.World{Limit: limit, Pay: envtest.Constant(1), Execute: func(int, float64) float64 { return force }}
		var inner env.Env = world
		if guarded {
			inner = envtest.Guarded{World: world}
		}
		c := small()
		c.Form = meta.FormOf(inner)
		m := meta.NewMemory(learner(t, c))
		e, err := meta.Condition(inner, m, keep)
		if err != nil {
			t.Fatal(err)
		}
		obs := make([]float64, e.Observation().Dim())
		if err := e.Reset(1, obs); err != nil {
			t.Fatal(err)
		}
		for range limit {
			if _, err := e.Step([]float64{wanted}, obs); err != nil {
				t.Fatal(err)
			}
		}
		return e, m
	}
	for guarded, want := range map[bool]float64{true: force, false: wanted} { // who is not asked says nothing of a guard
		_, m := open(true, guarded)
		if len(m.Episodes()) != 1 {
			t.Fatalf("%d episodes are kept", len(m.Episodes()))
		}
		f := meta.FormOf(&envtest.World{})
		for i := range limit {
			if got := m.Episodes()[0].Steps[i*f.Width()+f.Observation]; got != want {
				t.Errorf("guarded %v, step %d: the action is %v, want %v", guarded, i, got, want)
			}
		}
	}
	e, m := open(false, true)
	short := make([]float64, e.Observation().Dim()-1)
	if e.Reset(1, short) == nil || e.Observe(short) == nil {
		t.Error("an observation without room for the embedding was taken")
	}
	saved, err := e.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Episodes()) != 0 {
		t.Errorf("%d episodes of an environment that keeps none are kept", len(m.Episodes()))
	}
	keeps, _ := open(true, true)
	if err := keeps.UnmarshalBinary(saved); err == nil || !strings.Contains(err.Error(), "keeps its episodes") {
		t.Errorf("the state of one that keeps none: %v", err)
	}
}

func TestAnEnvironmentOfAnotherFormIsRefused(t *testing.T) {
	m := meta.NewMemory(learner(t, small()))
	_, err := meta.Condition(&envtest.World{Limit: 1, Pay: envtest.Constant(1)}, m, false)
	if err == nil || !strings.Contains(err.Error(), "form") {
		t.Errorf("%v", err)
	}
	// Masks stay masks.
	f := meta.Form{Observation: 1, Choices: 2}
	c := small()
	c.Form = f
	e, err := meta.Condition(envtest.Masked{World: &envtest.World{
		Choices: 2, Limit: 1, Pay: envtest.Constant(1), Allow: func(_, choice int) bool { return choice == 1 },
	}}, meta.NewMemory(learner(t, c)), false)
	if err != nil {
		t.Fatal(err)
	}
	legal := make([]bool, 2)
	e.(env.Masker).Legal(legal)
	if legal[0] || !legal[1] {
		t.Errorf("legal are %v", legal)
	}
}

func TestShapesThatMakeNoSenseAreNamed(t *testing.T) {
	for want, change := range map[string]func(*meta.Config){
		"hidden 0":  func(c *meta.Config) { c.Hidden = 0 },
		"bundle -1": func(c *meta.Config) { c.Bundle = -1 },
		"form":      func(c *meta.Config) { c.Form.Choices = 3 },
	} {
		c := small()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	c := small()
	if _, err := meta.New(c, make([]float64, 3)); err == nil {
		t.Error("three parameters are taken for a network")
	}
	theta := make([]float64, c.Params())
	theta[5] = math.NaN()
	if _, err := meta.New(c, theta); err == nil {
		t.Error("a parameter that is NaN is taken")
	}
}
