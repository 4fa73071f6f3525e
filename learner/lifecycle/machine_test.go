package lifecycle_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/lifecycle"
)

var profile = func() lifecycle.Settings {
	s := lifecycle.DefaultSettings
	s.Thresholds = lifecycle.Thresholds{Online: 1.2, Serving: 1.5, Variance: 0.1}
	return s
}()

// rewards is a summary of enough episodes, all known.
func rewards(mean, deviation float64) lifecycle.Summary {
	return lifecycle.Summary{Mean: mean, Deviation: deviation, Episodes: profile.Episodes, Coverage: 1}
}

// Every edge of Algorithm 1, with the numbers of its lines, and every edge that we have added.
func TestEveryEdgeOfTheLifecycle(t *testing.T) {
	fallback := rewards(1.3, 0.05)
	good := lifecycle.Estimate{Known: true, Mean: 1.4, Low: 1.25, High: 1.5}
	plain := func(*lifecycle.Settings) {}
	for name, c := range map[string]struct {
		from   lifecycle.Stage
		change func(*lifecycle.Settings)
		e      lifecycle.Evidence
		want   lifecycle.Stage
	}{
		"lines 4-6: bootstrapping": {lifecycle.Initialized, plain, lifecycle.Evidence{}, lifecycle.Offline},
		"lines 7-8: none is wanted": {lifecycle.Initialized, bootstrap(false),
			lifecycle.Evidence{Policy: true}, lifecycle.Online},
		"none is wanted, and nothing can act": {lifecycle.Initialized, bootstrap(false),
			lifecycle.Evidence{}, lifecycle.Offline},

		"lines 10-12: as good as T_online": {lifecycle.Offline, plain,
			lifecycle.Evidence{Policy: true, Learned: good, Recent: fallback}, lifecycle.Online},
		"the interval begins below it": {lifecycle.Offline, plain,
			lifecycle.Evidence{Policy: true, Learned: lifecycle.Estimate{Known: true, Mean: 1.4, Low: 1.19, High: 1.6}},
			lifecycle.Offline},
		"good, and there is no policy": {lifecycle.Offline, plain, lifecycle.Evidence{Learned: good}, lifecycle.Offline},
		"the fallback's own rewards say nothing": {lifecycle.Offline, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(2, 0)}, lifecycle.Offline},

		"lines 14-17: good and steady": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.5, 0.1), Fallback: fallback}, lifecycle.Serving},
		"good and not steady": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.6, 0.11)}, lifecycle.Online},
		"steady and not good": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.4, 0)}, lifecycle.Online},
		"too few episodes": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: lifecycle.Summary{Mean: 1.6, Episodes: 4, Coverage: 1}}, lifecycle.Online},
		"too little is known": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: lifecycle.Summary{Mean: 1.6, Episodes: 9, Coverage: 0.4}}, lifecycle.Online},
		"worse than the fallback": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.2, 0), Fallback: fallback}, lifecycle.Offline},
		"a little worse": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.25, 0), Fallback: fallback}, lifecycle.Online},
		"the policy is lost": {lifecycle.Online, plain,
			lifecycle.Evidence{Recent: rewards(1.6, 0)}, lifecycle.Offline},

		"lines 18-20: no longer good": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.49, 0), Fallback: fallback}, lifecycle.Online},
		"lines 18-20: no longer steady": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.7, 0.11), Fallback: fallback}, lifecycle.Online},
		"as before": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.5, 0.1), Fallback: fallback}, lifecycle.Serving},
		"harm within an episode": {lifecycle.Online, plain,
			lifecycle.Evidence{Policy: true, Harm: "far worse"}, lifecycle.Offline},
		"harm while it serves": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Harm: "far worse", Drift: "another workload"}, lifecycle.Offline},
		"drift within an episode": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Drift: "another workload"}, lifecycle.Online},
		"drift where the stakes are high": {lifecycle.Serving, highStakes,
			lifecycle.Evidence{Policy: true, Drift: "another workload"}, lifecycle.Offline},
		"no longer good, high stakes": {lifecycle.Serving, highStakes,
			lifecycle.Evidence{Policy: true, Recent: rewards(1.4, 0), Fallback: fallback}, lifecycle.Offline},
		"a gap is no drift": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Recent: lifecycle.Summary{Episodes: 9}}, lifecycle.Serving},
		"serving, worse than the fallback": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true, Recent: rewards(1, 0), Fallback: fallback}, lifecycle.Offline},
		"serving, and the policy is lost": {lifecycle.Serving, plain,
			lifecycle.Evidence{Recent: rewards(1.6, 0)}, lifecycle.Offline},
		"nothing is known where it serves": {lifecycle.Serving, plain,
			lifecycle.Evidence{Policy: true}, lifecycle.Serving},
		"nothing is known of a new workload": {lifecycle.Offline, plain, lifecycle.Evidence{}, lifecycle.Offline},
	} {
		t.Run(name, func(t *testing.T) {
			s := profile
			c.change(&s)
			got := lifecycle.Machine{Stage: c.from}.Next(s, c.e)
			if got.Stage != c.want {
				t.Errorf("from %v to %v (%s), want %v", c.from, got.Stage, got.Why, c.want)
			}
			if (got.Stage != c.from) != (got.Why != "") {
				t.Errorf("from %v to %v because of %q", c.from, got.Stage, got.Why)
			}
			if again := got.Next(s, lifecycle.Evidence{Policy: c.e.Policy}); got.Stage != c.from && again.Stage == c.from {
				t.Errorf("with nothing more known it goes back to %v", c.from)
			}
		})
	}
}

func bootstrap(b bool) func(*lifecycle.Settings) {
	return func(s *lifecycle.Settings) { s.Bootstrap = b }
}
func highStakes(s *lifecycle.Settings) { s.HighStakes = true }

// What each stage means for the workload. Only an agent that is Online changes, and only where the stakes are not high is
// anything tried on the workload.
func TestWhatFollowsFromAStage(t *testing.T) {
	for stage, want := range map[lifecycle.Stage]lifecycle.Plan{
		lifecycle.Initialized: {Driver: lifecycle.Fallback, Training: lifecycle.FromStore, Jitter: true},
		lifecycle.Offline:     {Driver: lifecycle.Fallback, Training: lifecycle.FromStore, Jitter: true},
		lifecycle.Online:      {Driver: lifecycle.Learned, Training: lifecycle.FromItsSteps, Explore: true},
		lifecycle.Serving:     {Driver: lifecycle.Learned},
	} {
		if got := (lifecycle.Machine{Stage: stage}).Plan(profile); got != want {
			t.Errorf("%v: %+v, want %+v", stage, got, want)
		}
	}
	s := profile
	s.HighStakes = true
	for _, stage := range []lifecycle.Stage{lifecycle.Initialized, lifecycle.Offline, lifecycle.Online, lifecycle.Serving} {
		if p := (lifecycle.Machine{Stage: stage}).Plan(s); p.Jitter || p.Explore {
			t.Errorf("%v: a high-stakes workload is tried on", stage)
		}
	}
}

func TestThresholdsThatNobodyGaveAreTheFallbacks(t *testing.T) {
	got := lifecycle.Default(rewards(1.3, 0.05))
	if err := got.Check(); err != nil || got.Online != 1.3 || got.Serving != 1.3 || got.Variance != 0.1 {
		t.Errorf("%+v (%v)", got, err)
	}
	for _, mean := range []float64{-2, 0, 1} {
		if err := lifecycle.Default(rewards(mean, 0)).Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestSettingsThatMakeNoSenseAreNamed(t *testing.T) {
	for want, change := range map[string]func(*lifecycle.Settings){
		"online 2":   func(s *lifecycle.Settings) { s.Thresholds.Online = 2 },
		"numbers":    func(s *lifecycle.Settings) { s.Thresholds.Serving = math.NaN() },
		"variance 0": func(s *lifecycle.Settings) { s.Thresholds.Variance = 0 },
		"episodes 0": func(s *lifecycle.Settings) { s.Episodes = 0 },
		"coverage 2": func(s *lifecycle.Settings) { s.Coverage = 2 },
		"worse -1":   func(s *lifecycle.Settings) { s.Worse = -1 },
	} {
		s := profile
		change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	if err := profile.Check(); err != nil {
		t.Error(err)
	}
}

// A drop is seen within an episode of 100 steps, and noise is not taken for one in a week.
func TestADropIsSeenWithinAnEpisode(t *testing.T) {
	late := 0
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		d := lifecycle.NewDetector(1.5, 0.1)
		for range 1000 {
			if drift := d.Add(1.5 + 0.1*rng.NormFloat64()); drift != "" {
				t.Fatalf("seed %d: %s", seed, drift)
			}
			d.Add(math.NaN()) // a gap
		}
		n := 0
		for d.Add(1.3+0.1*rng.NormFloat64()) == "" {
			n++
		}
		if n > 20 {
			late++
		}
	}
	if late > 0 {
		t.Errorf("in %d of 50 runs a drop by two deviations was seen after more than 20 steps", late)
	}
	d := lifecycle.NewDetector(1.5, 0)
	if d.Add(1.5) != "" || d.Add(0) == "" {
		t.Error("a reward that never varied, and then does")
	}
}
