package classic

import (
	_ "embed"
	"encoding/json"
	"math"
	"testing"

	"awarescale.dev/aware/learner/env"
)

// golden is computed by testdata/golden.py, with 50 digits and from the
// Lagrange equations. The same numbers came out of Gymnasium's own sources (at
// 3f0476a8, with float64 in place of numpy), to 2e-13 over all 75 steps.
//
//go:embed testdata/golden.json
var golden []byte

func TestTheEquationsAgreeWithGymnasium(t *testing.T) {
	var runs []struct {
		Env   string
		Story string
		State []float64
		Steps []struct {
			Action     float64
			State      []float64
			Obs        []float64
			Reward     float64
			Terminated bool
		}
	}
	if err := json.Unmarshal(golden, &runs); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, run := range runs {
		t.Run(run.Env+" "+run.Story, func(t *testing.T) {
			e := at(t, run.Env, run.State)
			obs := make([]float64, e.observation.Dim())
			for i, want := range run.Steps {
				out, err := e.Step([]float64{want.Action}, obs)
				if err != nil {
					t.Fatal(err)
				}
				right := near(e.state, want.State) && near(obs, want.Obs) && near([]float64{out.Reward}, []float64{want.Reward})
				if !right || out.Terminated != want.Terminated {
					t.Fatalf("step %d, action %v:\n got %v seen as %v, reward %v, terminated %v\nwant %v seen as %v, reward %v, terminated %v",
						i,
						want.Action, e.state, obs, out.Reward, out.Terminated, want.State, want.Obs, want.Reward, want.Terminated)
				}
				seen[run.Env]++
			}
		})
	}
	for _, name := range []string{"CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"} {
		if seen[name] < 5 {
			t.Errorf("%s: %d golden steps, want 5 or more", name, seen[name])
		}
	}
}

// near compares to 1e-12.
func near(got, want []float64) bool {
	for i := range want {
		if len(got) != len(want) || !(math.Abs(got[i]-want[i]) <= 1e-12) {
			return false
		}
	}
	return len(got) == len(want)
}

// at is an environment in a given state.
func at(t *testing.T, name string, state []float64) *episode {
	t.Helper()
	e, err := Make(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Reset(1, make([]float64, e.Observation().Dim())); err != nil {
		t.Fatal(err)
	}
	p := e.(*episode)
	if copy(p.state, state) != len(p.state) {
		t.Fatalf("%s: state %v has not %d numbers", name, state, len(p.state))
	}
	return p
}

// Friction is in none of these worlds: what the motors do not give or take stays.
func TestEnergyIsConserved(t *testing.T) {
	for _, c := range []struct {
		name   string
		story  string
		state  []float64
		rest   float64 // the action that does nothing
		energy func(s []float64) float64
		within float64 // of the energy's range in that motion
	}{
		{"Pendulum-v1", "swings below", []float64{2, 0}, 0, func(s []float64) float64 {
			return s[1]*s[1]/6 + 5*math.Cos(s[0]) // J: inertia 1/3 kg m², centre of mass at 1/2 m
		}, 0.6}, // of 10 J; the semi-implicit Euler's error swings with the motion and does not grow
		{"MountainCar-v0", "rolls in the valley", []float64{-0.9, 0}, 1, func(s []float64) float64 {
			return s[1]*s[1]/2 + 0.0025/3*math.Sin(3*s[0])
		}, 2.5e-5}, // of 5e-4; the same
		{"Acrobot-v1", "swings", []float64{0.6, -0.4, 0, 0}, 1, func(s []float64) float64 {
			cos := math.Cos(s[1])
			m11 := 3.5 + cos
			m12 := 1.25 + 0.5*cos
			m22 := 1.25
			return (m11*s[2]*s[2]+2*m12*s[2]*s[3]+m22*s[3]*s[3])/2 - 9.8*(1.5*math.Cos(s[0])+0.5*math.Cos(s[0]+s[1]))
		}, 0.4}, // of 2.7 J above rest, over 100 s: RK4 loses that much at 0.2 s; the equations of 1996 stray by 0.85 J
	} {
		t.Run(c.name+" "+c.story, func(t *testing.T) {
			e := at(t, c.name, c.state)
			obs := make([]float64, e.observation.Dim())
			first := c.energy(e.state)
			worst := 0.0
			for range e.limit {
				if _, err := e.Step([]float64{c.rest}, obs); err != nil {
					t.Fatal(err)
				}
				worst = max(worst, math.Abs(c.energy(e.state)-first))
			}
			t.Logf("energy %v, strays by %v in %d steps", first, worst, e.steps)
			if worst > c.within || e.steps != e.limit {
				t.Errorf("energy %v strays by %v in %d steps, want within %v", first, worst, e.steps, c.within)
			}
		})
	}
}

func TestAStepCanTerminateAndTruncate(t *testing.T) {
	e := at(t, "CartPole-v1", []float64{2.39, 2, 0, 0}) // the next step leaves the track
	e.steps = e.limit - 1                               // and is the last one
	out, err := e.Step([]float64{1}, make([]float64, 4))
	if out.Reward != 1 || !out.Terminated || !out.Truncated || err != nil {
		t.Errorf("%+v, %v: want a reward of 1 and both ends", out, err)
	}
}

func TestAnImpossibleStateIsNotRestored(t *testing.T) {
	for name, state := range map[string][]float64{
		"CartPole-v1":              {0, math.NaN(), 0, 0},
		"Pendulum-v1":              {0, 8.1},
		"MountainCar-v0":           {-1.3, 0},
		"MountainCarContinuous-v0": {0, 0.08},
		"Acrobot-v1":               {0, 0, 13, 0},
		"IdentityDiscrete-v0":      {4},
		"IdentityContinuous-v0":    {1},
		"Grid4x4-v0":               {2.5},
	} {
		bad, good := at(t, name, state), at(t, name, make([]float64, len(state)))
		data, err := bad.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := good.UnmarshalBinary(data); err == nil {
			t.Errorf("%s took the state %v", name, state)
		}
		if good.state[0] != 0 {
			t.Errorf("%s was changed: %v", name, good.state)
		}
	}
	late := at(t, "Grid4x4-v0", []float64{5})
	late.steps = late.limit
	data, _ := late.MarshalBinary()
	if err := at(t, "Grid4x4-v0", []float64{5}).UnmarshalBinary(data); err == nil {
		t.Error("a grid took an episode that runs beyond its limit")
	}
}

// What is wrong behind a right checksum must not panic either, so the checksum
// is computed again here.
func FuzzRestore(f *testing.F) {
	for _, k := range kinds() {
		e := newEpisode(k)
		if err := e.Reset(3, make([]float64, k.observation.Dim())); err != nil {
			f.Fatal(err)
		}
		data, err := e.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-4])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, k := range kinds() {
			e := newEpisode(k)
			before, _ := e.MarshalBinary()
			if err := e.UnmarshalBinary(env.Seal(append([]byte(nil), b...))); err != nil {
				if after, _ := e.MarshalBinary(); string(after) != string(before) {
					t.Fatalf("%s was changed by what it refused: %v", k.name, err)
				}
				continue
			}
			obs := make([]float64, k.observation.Dim())
			for range e.limit - e.steps {
				if !e.running {
					break
				}
				if _, err := e.Step(make([]float64, 1), obs); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
