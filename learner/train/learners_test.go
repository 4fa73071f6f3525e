package train_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"awarescale.dev/aware/learner/algo/ddpg"
	"awarescale.dev/aware/learner/algo/dqn"
	"awarescale.dev/aware/learner/algo/ppo"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/env/classic"
	"awarescale.dev/aware/learner/env/envtest"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/nn/nntest"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/train"
)

// testCase is a small learner and an environment in which it learns.
type testCase struct {
	name  string
	env   string
	least float64 // mean return of an agent that has learned the identity
	make  func(t testing.TB, seed uint64, width int) train.Learner
}

// envs makes the environments of a test case.
func (s testCase) envs() (env.Env, error) { return classic.Make(s.env) }

func testCases() []testCase { return slices.Concat(ddpgCases(), ppoCases(), dqnCases()) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spaces are the numbers of an observation and the actions of an environment.
func spaces(t testing.TB, name string) (observed int, action env.Space) {
	e, err := classic.Make(name)
	must(t, err)
	return e.Observation().Dim(), e.Action()
}

func ddpgCases() []testCase {
	return []testCase{
		{"ddpg", "IdentityContinuous-v0", -3, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityContinuous-v0")
			c := ddpg.Default(n, a.Low, a.High)
			c.Hidden = []int{width, width}
			c.Batch = 32
			c.Warmup = 100
			c.Seed = seed
			c.Gamma = 0.5
			l, err := ddpg.New(c)
			must(t, err)
			return l
		}},
		{"td3", "IdentityContinuous-v0", -3, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityContinuous-v0")
			c := ddpg.Default(n, a.Low, a.High)
			c.Hidden = []int{width, width}
			c.Batch = 32
			c.Warmup = 100
			c.Seed = seed
			c.Gamma = 0.5
			c.Twin = true
			c.TargetNoise = 0.2
			c.Delay = 2
			c.Noise = ddpg.Noise{Sigma: 0.3, Theta: 0.15, Step: 1}
			l, err := ddpg.New(c)
			must(t, err)
			return l
		}},
	}
}

func ppoCases() []testCase {
	return []testCase{
		{"ppo", "IdentityDiscrete-v0", 95, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityDiscrete-v0")
			c := ppo.Default(n, a.N, nil, nil)
			c.Hidden = []int{width}
			c.Horizon = 32
			c.Minibatch = 32
			c.LearningRate = 3e-3
			c.Seed = seed
			c.Gamma = 0.5
			l, err := ppo.New(c)
			must(t, err)
			return l
		}},
		{"ppo, continuous", "IdentityContinuous-v0", -10, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityContinuous-v0")
			c := ppo.Default(n, 0, a.Low, a.High)
			c.Hidden = []int{width}
			c.Envs = 4
			c.Horizon = 32
			c.Minibatch = 32
			c.LearningRate = 3e-3
			c.Seed = seed
			c.Gamma = 0.5
			l, err := ppo.New(c)
			must(t, err)
			return l
		}},
	}
}

func dqnCases() []testCase {
	return []testCase{
		{"dqn", "IdentityDiscrete-v0", 95, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityDiscrete-v0")
			c := dqn.Default(n, a.N)
			c.Hidden = []int{width}
			c.Batch = 32
			c.Warmup = 100
			c.EpsilonDecaySteps = 2000
			c.Seed = seed
			c.Gamma = 0.5
			l, err := dqn.New(c)
			must(t, err)
			return l
		}},
		{"dqn, prioritised, of three steps", "IdentityDiscrete-v0", 95, func(t testing.TB, seed uint64, width int) train.Learner {
			n, a := spaces(t, "IdentityDiscrete-v0")
			c := dqn.Default(n, a.N)
			c.Hidden = []int{width}
			c.Batch = 32
			c.Warmup = 100
			c.EpsilonDecaySteps = 2000
			c.Seed = seed
			c.Gamma = 0.5
			c.Prioritised, c.Steps = true, 3
			l, err := dqn.New(c)
			must(t, err)
			return l
		}},
	}
}

func begin(t testing.TB, s testCase, seed uint64, steps int) *train.Run {
	t.Helper()
	r, err := train.New(train.Config{
		Env:      s.env,
		Steps:    steps,
		Seed:     seed,
		Evaluate: 500,
		Episodes: 2,
	}, s.envs, s.make(t, seed, 16))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func walk(t testing.TB, r *train.Run, until int) []byte {
	t.Helper()
	if err := r.Train(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	return nntest.Saved(t, r)
}

// Every learner learns the identity task: the smallest test of its whole loop.
func TestEveryLearnerLearnsTheIdentity(t *testing.T) {
	for _, s := range testCases() {
		t.Run(s.name, func(t *testing.T) {
			r := begin(t, s, 1, 8000)
			walk(t, r, 8000)
			returns, err := r.Final(10)
			if err != nil {
				t.Fatal(err)
			}
			mean := 0.0
			for _, v := range returns {
				mean += v / float64(len(returns))
			}
			if mean < s.least {
				t.Errorf("mean return %v: it must be at least %v; evaluations %v", mean, s.least, r.Evaluations)
			}
		})
	}
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	for _, s := range testCases() {
		one := walk(t, begin(t, s, 3, 1500), 1500)
		two := walk(t, begin(t, s, 3, 1500), 1500)
		other := walk(t, begin(t, s, 4, 1500), 1500)
		if !bytes.Equal(one, two) {
			t.Errorf("%s: two runs of a seed differ", s.name)
		}
		if bytes.Equal(one, other) {
			t.Errorf("%s: another seed does the same", s.name)
		}
	}
}

// A run that was written to a file and resumed by another process ends as the
// one that never stopped: also in the middle of an episode, a rollout, a round
// of evaluations.
func TestAResumedRunEqualsTheUninterruptedOne(t *testing.T) {
	for _, s := range testCases() {
		want := walk(t, begin(t, s, 5, 2000), 2000)
		raw := walk(t, begin(t, s, 5, 2000), 777)
		f, err := weights.Decode(raw)
		if err != nil {
			t.Fatal(err)
		}
		again := begin(t, s, 5, 2000)
		if err := again.Restore(f); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if got := walk(t, again, 2000); !bytes.Equal(got, want) {
			t.Errorf("%s: the resumed run ends differently", s.name)
		}
	}
}

func TestForeignWeightsAreRefusedAndChangeNothing(t *testing.T) {
	all := testCases()
	for i, s := range all {
		r := begin(t, s, 1, 1000)
		before := walk(t, r, 300)
		good, err := weights.Decode(before)
		if err != nil {
			t.Fatal(err)
		}
		spoil := func(change func(f *weights.File)) weights.File {
			f := weights.File{
				Meta:    maps.Clone(good.Meta),
				Tensors: maps.Clone(good.Tensors),
				Blobs:   maps.Clone(good.Blobs),
			}
			change(&f)
			return f
		}
		var tensor string
		for _, name := range slices.Sorted(maps.Keys(good.Tensors)) {
			if !strings.HasPrefix(name, "train.") && len(good.Tensors[name].Data) > 1 {
				tensor = name
				break
			}
		}
		other := all[(i+2)%len(all)]
		foreign, err := weights.Decode(walk(t, begin(t, other, 1, 1000), 300))
		if err != nil {
			t.Fatal(err)
		}
		wide := s.make(t, 1, 17)
		wider, err := wide.Save()
		if err != nil {
			t.Fatal(err)
		}
		for what, f := range map[string]weights.File{
			"another algorithm": spoil(func(f *weights.File) { f.Meta["algorithm"] = "magic" }),
			"another encoding":  spoil(func(f *weights.File) { f.Meta["encoding"] = "99" }),
			"a missing tensor":  spoil(func(f *weights.File) { delete(f.Tensors, tensor) }),
			"a tensor with NaN": spoil(func(f *weights.File) {
				x := slices.Clone(f.Tensors[tensor].Data)
				x[1] = math.NaN()
				f.Tensors[tensor] = weights.Tensor{Shape: f.Tensors[tensor].Shape, Data: x}
			}),
			"no random source": spoil(func(f *weights.File) { delete(f.Blobs, "random") }),
			"no environments":  spoil(func(f *weights.File) { delete(f.Blobs, "train.envs") }),
			"another run": spoil(func(f *weights.File) {
				f.Meta["train"] = strings.Replace(f.Meta["train"], `"Seed":1`, `"Seed":2`, 1)
			}),
			"another learner's":           foreign,
			"the learner's without a run": wider,
		} {
			if err := r.Restore(f); err == nil {
				t.Errorf("%s: %s was taken", s.name, what)
			}
		}
		if err := s.make(t, 1, 16).Restore(wider); err == nil {
			t.Errorf("%s: weights of wider layers were taken", s.name)
		}
		if after := walk(t, r, 300); !bytes.Equal(before, after) {
			t.Errorf("%s: a refused restore changed something", s.name)
		}
	}
}

// A reward that is not finite is refused; what was learned stays, and learning
// goes on.
func TestNaNIsRefused(t *testing.T) {
	for _, s := range testCases() {
		l := s.make(t, 1, 16)
		e, err := classic.Make(s.env)
		if err != nil {
			t.Fatal(err)
		}
		n := l.Envs()
		obs, actions := make([]float64, n*e.Observation().Dim()), make([]float64, n*e.Action().Dim())
		rewards, ends := make([]float64, n), make([]bool, n)
		if err := l.Explore(obs, nil, actions); err != nil {
			t.Fatal(err)
		}
		rewards[0] = math.NaN()
		if err := l.Learn(envtest.Rows(actions, rewards, obs, ends, ends)); err == nil || !strings.Contains(err.Error(), "NaN") {
			t.Errorf("%s: a reward of NaN: %v", s.name, err)
		}
		rewards[0] = 1
		if err := l.Learn(envtest.Rows(actions, rewards, obs, ends, ends)); err != nil {
			t.Errorf("%s: afterwards: %v", s.name, err)
		}
	}
}

// Learners train, each on a goroutine, while their actors are served to others:
// under the race detector this shows that serving never reads what training
// writes. Trained at the same time, they learn the same as alone.
func TestTrainingAndServingAtOnce(t *testing.T) {
	all := testCases()
	alone := make([][]byte, len(all))
	for i, s := range all {
		alone[i] = walk(t, begin(t, s, 9, 1200), 1200)
	}
	var wait sync.WaitGroup
	for i, s := range all {
		e, err := classic.Make(s.env)
		if err != nil {
			t.Fatal(err)
		}
		var server kernel.Server
		l := s.make(t, 9, 16)
		r, err := train.New(train.Config{
			Env:      s.env,
			Steps:    1200,
			Seed:     9,
			Evaluate: 500,
			Episodes: 2,
		}, s.envs, l)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		wait.Go(func() {
			defer close(done)
			for !r.Done() {
				if err := r.Train(t.Context(), r.Steps+100); err != nil {
					t.Error(err)
					return
				}
				if err := server.Publish(l.Snapshot()); err != nil {
					t.Error(err)
				}
			}
			if got := walk(t, r, 1200); !bytes.Equal(got, alone[i]) {
				t.Errorf("%s: trained at the same time as others, it learned something else", s.name)
			}
		})
		wait.Go(func() {
			var scratch kernel.Scratch
			obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
			for {
				select {
				case <-done:
					return
				default:
				}
				if out, _, ok := server.Decide(obs, 1, &scratch); ok {
					l.GreedyAction(out, nil, action)
				}
			}
		})
	}
	wait.Wait()
}

func TestInvalidRunsAreRefused(t *testing.T) {
	s := testCases()[0]
	for says, c := range map[string]train.Config{
		"steps 0":        {Env: s.env},
		`"Nowhere-v0"`:   {Env: "Nowhere-v0", Steps: 1},
		"evaluations ev": {Env: s.env, Steps: 1, Evaluate: 5},
	} {
		if _, err := train.New(c, func() (env.Env, error) { return classic.Make(c.Env) }, s.make(t, 1, 16)); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func ExampleRun() {
	e, _ := classic.Make("IdentityDiscrete-v0")
	l, _ := dqn.New(dqn.Default(e.Observation().Dim(), e.Action().N))
	r, _ := train.New(train.Config{
		Env:   e.Name(),
		Steps: 1000,
	}, func() (env.Env, error) { return classic.Make("IdentityDiscrete-v0") }, l)
	_, err := r.Final(3)
	fmt.Println(err)
	// Output: <nil>
}
