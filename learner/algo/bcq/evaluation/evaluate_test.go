package evaluation

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/replay"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"gonum.org/v1/gonum/blas/blas64"
)

func TestMain(m *testing.M) {
	blas64.Use(gemm.Choose().BLAS())
	os.Exit(m.Run())
}

// The whole proof takes minutes: AWARE_PROVE=1 go test -run Whole -v -timeout
// 20m ./learner/algo/bcq/evaluation
func TestTheFullEvaluation(t *testing.T) {
	if os.Getenv("AWARE_PROVE") == "" {
		t.Skip("AWARE_PROVE=1 runs it")
	}
	for seed := uint64(1); seed <= 3; seed++ {
		begin := time.Now()
		p, err := Evaluate(seed, Full())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %+v, %v", seed, p, time.Since(begin).Round(time.Second))
		if p.BCQ < -200 || p.BCQ < p.Clone+200 || p.BCQ < p.DDPG+150 {
			t.Errorf("seed %d: bcq's mean return is %.0f, its clone's %.0f, ddpg's %.0f", seed, p.BCQ,
				p.Clone, p.DDPG)
		}
	}
}

// Smaller, and of data on which a difference shows after fewer updates: three
// of ten episodes are chance's alone. There is no action in it that DDPG would
// have to guess, so its mean return says nothing here.
func TestBCQBeatsCloning(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector, and nothing is concurrent here")
	}
	s := Full()
	s.Mix = Mix{Random: 0.3, Whole: true}
	s.Generative = []int{64, 64}
	s.Updates = 3500
	s.EvaluationEpisodes = 50
	p, err := Evaluate(1, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", p)
	if p.BCQ < p.Clone+200 {
		t.Errorf("bcq's mean return is %.0f, its clone's %.0f: it must be higher by far", p.BCQ, p.Clone)
	}
}

// The same seed proves the same, and another one something else.
func TestAnEvaluationIsDeterminedByItsSeed(t *testing.T) {
	s := Full()
	s.Episodes = 3
	s.Updates = 20
	s.EvaluationEpisodes = 1
	s.Generative = []int{16}
	var evaluations [3]Result
	for i, seed := range []uint64{1, 1, 2} {
		var err error
		if evaluations[i], err = Evaluate(seed, s); err != nil {
			t.Fatal(err)
		}
	}
	if evaluations[0] != evaluations[1] || evaluations[0] == evaluations[2] {
		t.Errorf("%+v", evaluations)
	}
}

// While the pendulum hangs, actions are as often random as the mix says; above
// the horizontal they are the expert's but for noise.
func TestRandomActionsAreBelowTheHorizontalOnly(t *testing.T) {
	s := Full()
	s.Episodes = 40
	saved, _, err := record(1, s)
	if err != nil {
		t.Fatal(err)
	}
	u, err := replay.NewUniform(s.room(1))
	if err == nil {
		err = u.UnmarshalBinary(saved)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := replay.NewBatch(s.room(1), 8000)
	if err == nil {
		err = u.Sample(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	var far, all [2]float64
	for i, a := range b.Action {
		obs, half := b.State[3*i:][:3], 0
		if obs[0] < 0 {
			half = 1
		}
		all[half]++
		if math.Abs(a-expert(obs)) > 0.5 { // five deviations
			far[half]++
		}
	}
	if all[0] < 1000 || all[1] < 1000 || far[0] > 0 || far[1]/all[1] < 0.4 || far[1]/all[1] > 0.8 {
		t.Errorf("above %v of %v actions are not the expert's, below %v of %v", far[0], all[0], far[1], all[1])
	}
	t.Logf("%.0f %% of all steps are below the horizontal", 100*all[1]/(all[0]+all[1]))
}

// The expert is one.
func TestTheExpertSwingsUp(t *testing.T) {
	mean, err := evaluate(func(obs, action []float64) error {
		action[0] = torque * expert(obs)
		return nil
	}, 100)
	if err != nil || mean < -175 {
		t.Errorf("its mean return is %v (%v)", mean, err)
	}
}

func TestBadSettingsAreRefused(t *testing.T) {
	for says, spoil := range map[string]func(s *Settings){
		"[0 ":      func(s *Settings) { s.Episodes = 0 },
		"random":   func(s *Settings) { s.Mix.Random = 1.1 },
		" 0]":      func(s *Settings) { s.EvaluationEpisodes = 0 },
		"batch":    func(s *Settings) { s.Batch = 0 },
		"hidden":   func(s *Settings) { s.Hidden = nil },
		"discount": func(s *Settings) { s.Discount = 2 },
	} {
		s := Full()
		s.Updates, s.Episodes = 1, 2
		spoil(&s)
		if _, err := Evaluate(1, s); err == nil || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
