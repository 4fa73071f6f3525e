package encode_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
)

func corrector(t testing.TB) *encode.Corrector {
	t.Helper()
	c, err := encode.NewCorrector(encode.Correct(), place)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// standing is a random place of the corrections within their bounds, at a State.
func standing(r *rand.Rand, s mdp.State) encode.Standing {
	c := encode.Correct().Corrections
	within := func(most int) int { return r.IntN(2*most+1) - most }
	at := encode.Standing{
		Correction: encode.Correction{
			Margin: within(c.MarginMost), Level: within(c.LevelMost), Replicas: within(c.ReplicasMost),
		},
		Level:      r.NormFloat64(),
		LevelKnown: r.IntN(2) == 0,
		Removed:    s.At.Add(-time.Duration(r.IntN(120)) * time.Second),
	}
	at.Base = s.Replicas - at.Replicas + r.IntN(2) // now and then a replica is on its way
	return at
}

// Each legal choice is one step, within the bounds of the corrections and of the place; an illegal one is refused
// and changes nothing. Keeping is always legal, and changes nothing.
func TestLegalCorrectionsAreStepsWithinTheBounds(t *testing.T) {
	c := corrector(t)
	most, names := c.Form().Corrections, c.Form().Names()
	legal := make([]bool, c.Form().NumActions())
	taken := map[string]int{}
	law := func(seed uint64) bool {
		r := rand.New(rand.NewPCG(seed, 3))
		s := random(r)
		s.At = time.Unix(1000, 0)
		at := standing(r, s)
		c.Legal(s, at, legal)
		if to, err := c.Correct(s, at, 0); !legal[0] || err != nil || to != at.Correction {
			t.Logf("keeping is legal %v, and leads from %+v to %+v, %v", legal[0], at.Correction, to, err)
			return false
		}
		for i, ok := range legal {
			to, err := c.Correct(s, at, i)
			if (err == nil) != ok || err != nil && (to != at.Correction || !strings.Contains(err.Error(), names[i])) {
				t.Logf("%s: legal %v, %+v, %v", names[i], ok, to, err)
				return false
			}
			if !ok || i == 0 {
				continue
			}
			taken[names[i]]++
			steps := distance(to.Margin, at.Margin) + distance(to.Level, at.Correction.Level) + distance(to.Replicas, at.Replicas)
			if steps != 1 || distance(to.Margin, 0) > most.MarginMost || distance(to.Level, 0) > most.LevelMost ||
				distance(to.Replicas, 0) > most.ReplicasMost {
				t.Logf("%s leads from %+v to %+v", names[i], at.Correction, to)
				return false
			}
			if to.Replicas != at.Replicas && (!place.Bounds.Replicas.Has(at.Base+to.Replicas) || !s.Knows(mdp.Replicas)) {
				t.Logf("%s leads to %d replicas of %v", names[i], at.Base+to.Replicas, place.Bounds.Replicas)
				return false
			}
		}
		return true
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
	if len(taken) != len(names)-1 {
		t.Errorf("legal choices were %v: the test must see each of %v", taken, names)
	}
}

func distance(a, b int) int { return max(a-b, b-a) }

func TestWhatMustNotShrinkIsMasked(t *testing.T) {
	c := corrector(t)
	noon := time.Unix(1000, 0)
	calm := mdp.State{At: noon, Observed: mdp.All, Replicas: 3, Latency: 20 * time.Millisecond, Throughput: 100, Arrivals: 100}
	for _, x := range []struct {
		name    string
		change  func(*mdp.State, *encode.Standing)
		illegal []string
	}{
		{"a calm interval", func(*mdp.State, *encode.Standing) {}, nil},
		{"the SLO is violated", func(s *mdp.State, _ *encode.Standing) { s.Latency = time.Second },
			[]string{"margin -1", "level -1", "replicas -1"}},
		{"a replica is on its way", func(s *mdp.State, _ *encode.Standing) { s.Replicas = 2 },
			[]string{"replicas +1", "replicas -1"}},
		{"how many there are is unknown", func(s *mdp.State, _ *encode.Standing) {
			s.Observed = s.Observed.Without(mdp.SetOf(mdp.Replicas))
		}, []string{"replicas +1", "replicas -1"}},
		{"a replica was removed just now", func(_ *mdp.State, at *encode.Standing) { at.Removed = noon.Add(-59 * time.Second) },
			[]string{"replicas -1"}},
		{"a replica was removed a minute ago", func(_ *mdp.State, at *encode.Standing) { at.Removed = noon.Add(-time.Minute) },
			nil},
		{"the least replicas", func(s *mdp.State, at *encode.Standing) { s.Replicas, at.Base = 1, 1 }, []string{"replicas -1"}},
		{"the most replicas", func(s *mdp.State, at *encode.Standing) { s.Replicas, at.Base = 8, 8 }, []string{"replicas +1"}},
		{"the largest corrections", func(s *mdp.State, at *encode.Standing) {
			at.Correction = encode.Correction{Margin: 5, Level: 5, Replicas: 2}
			s.Replicas = 5
		}, []string{"margin +1", "level +1", "replicas +1"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, at := calm, encode.Standing{Base: 3}
			x.change(&s, &at)
			legal := make([]bool, c.Form().NumActions())
			c.Legal(s, at, legal)
			var illegal []string
			for i, ok := range legal {
				if !ok {
					illegal = append(illegal, c.Form().Names()[i])
				}
			}
			slices.Sort(illegal)
			slices.Sort(x.illegal)
			if !slices.Equal(illegal, x.illegal) {
				t.Errorf("illegal are %q, want %q", illegal, x.illegal)
			}
		})
	}
}

// Whatever was observed, the vector is finite. What was not observed is unlike an observed zero, whatever garbage
// stands in its place.
func TestTheVectorOfCorrectionsIsFiniteAndUnknownIsNotZero(t *testing.T) {
	c := corrector(t)
	observe := func(s mdp.State, at encode.Standing) []float64 {
		t.Helper()
		obs := make([]float64, c.Form().Dim())
		if err := c.Observe(s, at, obs); err != nil {
			t.Fatal(err)
		}
		return obs
	}
	law := func(seed uint64) bool {
		r := rand.New(rand.NewPCG(seed, 4))
		s := random(r)
		for _, v := range observe(s, standing(r, s)) {
			if math.IsNaN(v) || math.Abs(v) > 20 {
				t.Logf("%v in the vector of %+v", v, s)
				return false
			}
		}
		return true
	}
	if err := quick.Check(law, nil); err != nil {
		t.Error(err)
	}
	for one := range c.Form().Signals.Signals() {
		zero := mdp.State{Observed: mdp.All, Limit: mdp.Size{CPU: 100}}
		if one == mdp.CPULimit {
			zero.Limit.CPU = 0
		}
		unknown := zero
		unknown.Observed = unknown.Observed.Without(mdp.SetOf(one))
		garbage := unknown
		one.Set(&garbage, 7)
		garbage.Observed = unknown.Observed
		if slices.Equal(observe(zero, encode.Standing{}), observe(unknown, encode.Standing{})) {
			t.Errorf("%v: a zero looks as if it were unknown", one)
		}
		if !slices.Equal(observe(unknown, encode.Standing{}), observe(garbage, encode.Standing{})) {
			t.Errorf("%v: what is unknown has a value", one)
		}
	}
	if slices.Equal(observe(mdp.State{}, encode.Standing{LevelKnown: true}), observe(mdp.State{}, encode.Standing{})) {
		t.Error("a level of zero looks as if it were unknown")
	}
	if !slices.Equal(observe(mdp.State{}, encode.Standing{Level: 2}), observe(mdp.State{}, encode.Standing{})) {
		t.Error("a level that is unknown has a value")
	}
	obs := slices.Repeat([]float64{5}, c.Form().Dim())
	if err := c.Observe(mdp.State{}, encode.Standing{Level: math.NaN(), LevelKnown: true}, obs); err == nil || obs[0] != 5 {
		t.Errorf("a level of NaN: %v, the vector is %v", err, obs)
	}
}

// Where the corrections stand can be read from the vector: no two of them look the same.
func TestEachCorrectionHasAVectorOfItsOwn(t *testing.T) {
	c := corrector(t)
	most := c.Form().Corrections
	seen := map[string]encode.Correction{}
	for m := -most.MarginMost; m <= most.MarginMost; m++ {
		for l := -most.LevelMost; l <= most.LevelMost; l++ {
			for r := -most.ReplicasMost; r <= most.ReplicasMost; r++ {
				at := encode.Standing{Correction: encode.Correction{Margin: m, Level: l, Replicas: r}}
				obs := make([]float64, c.Form().Dim())
				if err := c.Observe(mdp.State{}, at, obs); err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(obs)
				if other, known := seen[string(text)]; known {
					t.Fatalf("%+v and %+v look the same", at.Correction, other)
				}
				seen[string(text)] = at.Correction
			}
		}
	}
}

func TestAFormOfCorrectionsSurvivesJSONAndAnotherIsNamed(t *testing.T) {
	text, err := json.Marshal(encode.Correct())
	if err != nil {
		t.Fatal(err)
	}
	var got encode.Form
	if err := json.Unmarshal(text, &got); err != nil || encode.Correct().Same(got) != nil {
		t.Errorf("%s: %v, %v", text, err, encode.Correct().Same(got))
	}
	got.Corrections.LevelStep = 0.1
	if encode.Correct().Same(got) == nil {
		t.Error("steps of another size are the same form")
	}
	if _, err := encode.New(encode.Correct(), place); err == nil {
		t.Error("an Encoder took corrections as if they set knobs")
	}
	for want, change := range map[string]func(*encode.Form){
		"no corrections":  func(f *encode.Form) { f.Corrections = nil },
		"margin 0":        func(f *encode.Form) { f.Corrections.MarginStep = 0 },
		"level NaN":       func(f *encode.Form) { f.Corrections.LevelStep = math.NaN() },
		"-1 replicas":     func(f *encode.Form) { f.Corrections.ReplicasMost = -1 },
		"21 steps":        func(f *encode.Form) { f.Corrections.MarginMost = 21 },
		"dwell -1s":       func(f *encode.Form) { f.Corrections.Dwell = -time.Second },
		"of their own":    func(f *encode.Form) { f.Factors = []float64{2} },
		"encoding vers":   func(f *encode.Form) { f.Version = 7 },
		"signals 0x0":     func(f *encode.Form) { f.Signals = 0 },
		"among the signa": func(f *encode.Form) { f.Signals = mdp.SetOf(mdp.Latency) },
	} {
		f := encode.Correct()
		change(&f)
		if _, err := encode.NewCorrector(f, place); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestCorrectingDoesNotAllocate(t *testing.T) {
	c := corrector(t)
	s := random(rand.New(rand.NewPCG(1, 1)))
	s.Observed = mdp.All
	obs, legal := make([]float64, c.Form().Dim()), make([]bool, c.Form().NumActions())
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Observe(s, encode.Standing{LevelKnown: true}, obs); err != nil {
			t.Fatal(err)
		}
		c.Legal(s, encode.Standing{}, legal)
		if _, err := c.Correct(s, encode.Standing{}, 1); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
