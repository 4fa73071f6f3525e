package bench_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/learned"
	"awarescale.dev/aware/learner/sim"
)

// lead is the service that is corrected in a cell: the one that clients call.
func lead(c bench.Cell) string { return c.App.Services[0].Name }

// always is a policy file that wants one correction, whatever it sees.
func always(choice string) learned.File {
	f := encode.Correct()
	mlp := kernel.NewMLP(kernel.ReLU, kernel.Linear, f.Dim(), f.NumActions())
	theta := make([]float64, mlp.Params())
	theta[len(theta)-f.NumActions()+slices.Index(f.Names(), choice)] = 1
	return learned.File{
		Form: f, Step: 30 * time.Second,
		Snapshot: kernel.Snapshot{Version: 1, MLP: mlp, Theta: theta, Head: kernel.Head{Kind: kernel.Argmax}},
	}
}

// A corrected demand policy that is never corrected takes each decision of the demand policy: over a whole trace all figures
// of all windows are the same, to the last bit. A policy file that keeps always does so too.
func TestWithoutACorrectionAWholeTraceIsTheSame(t *testing.T) {
	spiky, err := bench.Spiky()
	if err != nil {
		t.Fatal(err)
	}
	all := cells(t)
	// Bursty, noisy, diurnal, each in another application; and pulses.
	for _, c := range []bench.Cell{all[3], all[6], all[8], spiky[1]} {
		t.Run(c.Application+" under "+c.Trace.Name, func(t *testing.T) {
			t.Parallel()
			run := func(choice bench.Choice) (bench.Score, []bench.Point) {
				t.Helper()
				var points []bench.Point
				s, err := bench.Run(t.Context(), c, choice, bench.Options{
					Seed: 1, Length: 20 * time.Minute, Lead: 5 * time.Minute, Fidelity: sim.Fluid,
					Watch: func(p bench.Point) { points = append(points, p) },
				})
				if err != nil {
					t.Fatal(err)
				}
				return s, points
			}
			law := bench.Law(c.Application)
			plain, windows := run(law)
			corrected, same := run(law.Corrected(lead(c), encode.Correct()))
			if plain != corrected || !slices.Equal(windows, same) || plain.Resizes == 0 {
				t.Errorf("%+v\n%+v", plain, corrected)
			}
			if kept, _ := run(law.CorrectedBy(lead(c), always("keep"))); kept != plain {
				t.Errorf("%+v\n%+v", plain, kept)
			}
			// Its service has more cores (TestTheLevelIsTheApplications); others may have fewer.
			if more, _ := run(law.CorrectedBy(lead(c), always("margin +1"))); more.Cores == plain.Cores {
				t.Errorf("with a larger margin %v cores, as with none", more.Cores)
			}
		})
	}
}

// Whatever is chosen of what is legal, limits and replicas stay within the owner's bounds, and limits below the API's ceiling.
func TestCorrectionsStayWithinTheBounds(t *testing.T) {
	c := cells(t)[7]
	form := encode.Correct()
	s, err := bench.Open(t.Context(), c, bench.Law(c.Application).Corrected(lead(c), form), bench.Options{
		Seed: 1, Length: 30 * time.Minute, Lead: 5 * time.Minute, Fidelity: sim.Fluid,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 9))
	legal, taken, replicas := make([]bool, form.NumActions()), map[int]int{}, map[int]bool{}
	h, err := s.World().Service(lead(c))
	if err != nil {
		t.Fatal(err)
	}
	sensor, bounds := h.Sensor(), h.Bounds()
	for second := 1; !s.Over(); second++ {
		if err := s.Second(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := sensor.Sense(t.Context(), s.World().Now())
		if err != nil {
			t.Fatal(err)
		}
		replicas[now.Replicas] = true
		if !bounds.CPU.Has(now.Limit.CPU) || !bounds.Replicas.Has(now.Replicas) ||
			now.Knows(mdp.CPUCeiling) && now.Limit.CPU > now.Ceiling {
			t.Fatalf("second %d: %v of %d replicas, the ceiling is %v, the bounds are %+v",
				second, now.Limit.CPU, now.Replicas, now.Ceiling, bounds)
		}
		if second%30 != 0 {
			continue
		}
		p := s.Corrected()
		p.End()
		p.Legal(legal)
		k := r.IntN(len(legal))
		if err := p.Choose(k); (err == nil) != legal[k] {
			t.Fatalf("second %d: %s is legal %v, and was answered %v", second, form.Names()[k], legal[k], err)
		}
		if legal[k] {
			taken[k]++
		}
	}
	if len(taken) != len(legal) || len(replicas) < 2 {
		t.Errorf("choices were taken %v times, and there were %v replicas: the test must see all", taken, replicas)
	}
}

// A correction of the level is one of the whole application: a service that is not the lead has more cores too. One of the
// margin is the lead's alone.
func TestTheLevelIsTheApplications(t *testing.T) {
	c := cells(t)[5]
	form := encode.Correct()
	cores := func(choice string) (lead0, others float64) {
		t.Helper()
		s, err := bench.Open(t.Context(), c, bench.Law(c.Application).Corrected(lead(c), form), bench.Options{
			Seed: 1, Length: 5 * time.Minute, Lead: 10 * time.Minute, Fidelity: sim.Fluid,
		})
		if err != nil {
			t.Fatal(err)
		}
		var sensors []mdp.Sensor
		for _, h := range s.World().Services() {
			sensors = append(sensors, h.Sensor())
		}
		for second := 1; !s.Over(); second++ {
			if err := s.Second(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := s.Corrected(); choice != "" && second%30 == 0 && second <= 150 {
				p.End()
				if err := p.Choose(slices.Index(form.Names(), choice)); err != nil {
					t.Fatal(err)
				}
			}
			for i, sensor := range sensors {
				now, err := sensor.Sense(t.Context(), s.World().Now())
				if err != nil {
					t.Fatal(err)
				}
				of := float64(now.Limit.CPU) * float64(now.Replicas) / 1000
				switch {
				case s.Leading():
				case i == 0:
					lead0 += of
				default:
					others += of
				}
			}
		}
		return lead0, others
	}
	lead0, others := cores("")
	if l, o := cores("level +1"); l < 1.01*lead0 || o < 1.01*others {
		t.Errorf("with a higher level the lead has %.4f of its cores, and the others %.4f", l/lead0, o/others)
	}
	if l, o := cores("margin +1"); l < 1.01*lead0 || o > 1.01*others {
		t.Errorf("with a larger margin the lead has %.4f of its cores, and the others %.4f", l/lead0, o/others)
	}
}

func TestWhatCannotBeCorrectedIsNamed(t *testing.T) {
	c := cells(t)[8]
	captain, err := bench.Named("captain")
	if err != nil {
		t.Fatal(err)
	}
	for want, choice := range map[string]bench.Choice{
		`service "nobody"`:     bench.Law(c.Application).Corrected("nobody", encode.Correct()),
		"of the demand policy": captain.Corrected(lead(c), encode.Correct()),
		"no corrections":       bench.Law(c.Application).Corrected(lead(c), encode.Box(mdp.LimitKnobs)),
	} {
		if _, err := bench.Open(t.Context(), c, choice, bench.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
