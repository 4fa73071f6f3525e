package corrections

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/env"
	"awarescale.dev/aware/learner/nn/kernel"
	"awarescale.dev/aware/learner/policy/learned"
	"gonum.org/v1/gonum/stat"
)

// Player is what is compared: a learned policy, a constant correction, or the demand policy alone.
type Player struct {
	Name  string
	File  *learned.File // of corrections, or of raw limits; nil is the demand policy
	Begin []int         // choices that are made first, where they are legal; the demand policy with a constant correction
}

// Lowered is the demand policy with the level a few steps lower, always. Whatever saves cores must save them in another way.
func Lowered(steps int) Player {
	lower := slices.Index(encode.Correct().Names(), "level -1")
	return Player{
		Name:  fmt.Sprintf("the level %g lower", float64(steps)*encode.Correct().Corrections.LevelStep),
		Begin: slices.Repeat([]int{lower}, steps),
	}
}

// World is what a player came to in one world.
type World struct {
	Seed     uint64  `json:"seed"`
	Cores    float64 `json:"cores"`        // of all services, with what resizes cost
	Memory   float64 `json:"memory_gib"`   // of the limits of all services
	Late     float64 `json:"late"`         // share of the requests that were lost or above the SLO's latency
	Windows  float64 `json:"windows_over"` // share of the windows of ten seconds above the SLO
	Violates bool    `json:"violates"`     // the percentile over the whole episode, lost requests or background work
	Reward   float64 `json:"reward"`       // of a step, of those that can be judged
	Judged   float64 `json:"judged"`       // share of the steps that can be
	Choices  []int   `json:"choices"`      // how often each was taken; empty for raw limits
}

// Figure is the mean of a figure over the worlds, and how it differs from the first player's in the same worlds. Cores and memory
// are compared in those worlds in which both keep the promises: a crash loop needs few.
type Figure struct {
	Mean  float64 `json:"mean"`
	More  float64 `json:"more"`           // than the first player's; of cores and memory the logarithm of the ratio
	Error float64 `json:"standard_error"` // of More
}

// Interval is where the true difference is, with a probability of about 95 %.
func (f Figure) Interval() (low, high float64) { return f.More - 2*f.Error, f.More + 2*f.Error }

func (f Figure) less() bool { return f.More+2*f.Error < 0 }
func (f Figure) more() bool { return f.More-2*f.Error > 0 }

// Row is a player with its worlds.
type Row struct {
	Name     string  `json:"name"`
	Verdict  Verdict `json:"verdict"`
	Cores    Figure  `json:"cores"`
	Memory   Figure  `json:"memory_gib"`
	Late     Figure  `json:"late"`
	Windows  Figure  `json:"windows_over"`
	Violated Figure  `json:"violated"` // share of the worlds
	Reward   Figure  `json:"reward"`
	Worlds   []World `json:"worlds"`
}

// Verdict says how a player compares with the first one.
type Verdict string

// The verdicts. What chance explains does not count: a difference within twice its standard error.
const (
	Better Verdict = "better"        // fewer cores, and nothing else is more
	Trade  Verdict = "a trade"       // of cores, memory, late requests, windows over, worlds violated some are fewer, some more
	Worse  Verdict = "worse"         // some are more, and none is fewer
	Equal  Verdict = "no difference" // in cores, and nothing is more
)

func (r Row) verdict() Verdict {
	all := []Figure{r.Cores, r.Memory, r.Late, r.Windows, r.Violated}
	fewer, more := slices.ContainsFunc(all, Figure.less), slices.ContainsFunc(all, Figure.more)
	switch {
	case fewer && more:
		return Trade
	case more:
		return Worse
	case r.Cores.less():
		return Better
	}
	return Equal
}

// Validate compares a learned policy with the demand policy alone in the worlds of validation. Where the verdict of its row, the
// second one, is not [Better], the policy is not to be used: no correction is.
func Validate(ctx context.Context, f learned.File, worlds int, done func(of int)) ([]Row, error) {
	players := []Player{{Name: "demand policy alone"}, {Name: f.Provenance["algorithm"], File: &f}}
	return Evaluate(ctx, f.Provenance["environment"], Validation, players, worlds, done)
}

// Evaluate lets each player play the same worlds, an hour of each. Differences are from the first player. A policy that was not
// made for the environment of that name is refused. done is called after each world, by one goroutine at a time; it may be nil.
func Evaluate(ctx context.Context, name string, in Worlds, players []Player, worlds int, done func(of int)) ([]Row, error) {
	if worlds < 2 || len(players) == 0 {
		return nil, fmt.Errorf("evaluating %d players in %d worlds: there must be one, and two worlds", len(players), worlds)
	}
	settings := make([]Settings, len(players))
	rows := make([]Row, len(players))
	for i, p := range players {
		var err error
		if settings[i], err = p.settings(name); err != nil {
			return nil, fmt.Errorf("evaluating %s: %w", p.Name, err)
		}
		settings[i].Worlds, settings[i].Length = in, int(time.Hour/settings[i].Step)
		rows[i] = Row{Name: p.Name, Worlds: make([]World, worlds)}
	}
	var mu sync.Mutex
	err := bench.InParallel(ctx, worlds*len(players), func(ctx context.Context, k int) error {
		i, seed := k%len(players), k/len(players)
		w, err := players[i].play(ctx, settings[i], uint64(seed))
		if err != nil {
			return fmt.Errorf("evaluating %s: %w", players[i].Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		rows[i].Worlds[seed] = w
		if done != nil {
			done(worlds * len(players))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].compare(rows[0].Worlds)
	}
	return rows, nil
}

// compare fills in the figures and the verdict.
func (r *Row) compare(with []World) {
	figure := func(of func(World) float64) (f Figure) {
		differences := make([]float64, len(r.Worlds))
		for i, w := range r.Worlds {
			f.Mean += of(w) / float64(len(r.Worlds))
			differences[i] = of(w) - of(with[i])
		}
		f.differ(differences)
		return f
	}
	size := func(of func(World) float64) Figure {
		var differences []float64
		for i, w := range r.Worlds {
			if !w.Violates && !with[i].Violates {
				differences = append(differences, math.Log(of(w)/of(with[i])))
			}
		}
		f := figure(of)
		f.differ(differences)
		return f
	}
	r.Cores = size(func(w World) float64 { return w.Cores })
	r.Memory = size(func(w World) float64 { return w.Memory })
	r.Late = figure(func(w World) float64 { return w.Late })
	r.Windows = figure(func(w World) float64 { return w.Windows })
	r.Reward = figure(func(w World) float64 { return w.Reward })
	r.Violated = figure(func(w World) float64 {
		if w.Violates {
			return 1
		}
		return 0
	})
	r.Verdict = r.verdict()
}

// differ fills in the mean of differences and its standard error. Of less than two nothing is known, and none counts.
func (f *Figure) differ(differences []float64) {
	f.More, f.Error = 0, 0
	if n := len(differences); n > 1 {
		more, deviation := stat.MeanStdDev(differences, nil)
		f.More, f.Error = more, stat.StdErr(deviation, float64(n))
	}
}

// settings are those of a player's environment.
func (p Player) settings(name string) (Settings, error) {
	s, err := Named(name, p.File != nil && p.File.Form.Corrections == nil)
	if err != nil {
		return s, err
	}
	if p.File == nil {
		return s, nil
	}
	if err := p.File.Check(); err != nil {
		return s, err
	}
	if err := s.Form.Same(p.File.Form); err != nil {
		return s, err
	}
	if p.File.Step != s.Step {
		return s, fmt.Errorf("a policy of a choice each %v: it must be each %v", p.File.Step, s.Step)
	}
	if of := p.File.Provenance["environment"]; of != name {
		return s, fmt.Errorf("a policy of %q: it must be of %q", of, name)
	}
	return s, nil
}

// play plays an episode without exploration.
func (p Player) play(ctx context.Context, s Settings, seed uint64) (World, error) {
	e, err := New(s)
	if err != nil {
		return World{}, err
	}
	var server kernel.Server
	var scratch kernel.Scratch
	if p.File != nil {
		if err := server.Publish(p.File.Snapshot); err != nil {
			return World{}, err
		}
	}
	obs, action := make([]float64, e.Observation().Dim()), make([]float64, e.Action().Dim())
	legal := make([]bool, e.Action().N)
	w := World{Seed: seed, Choices: make([]int, e.Action().N)}
	if err := e.Reset(seed, obs); err != nil {
		return w, err
	}
	masker, masked := e.(env.Masker)
	begin := p.Begin
	for over := false; !over; {
		if err := ctx.Err(); err != nil {
			return w, err
		}
		var mask []bool
		if masked {
			masker.Legal(legal)
			mask = legal
		}
		switch {
		case p.File != nil:
			out, _, ok := server.Decide(obs, 1, &scratch)
			if !ok {
				return w, fmt.Errorf("the actor decides nothing for %v", obs)
			}
			p.File.Snapshot.Head.Action(out, mask, action)
		case len(begin) > 0 && legal[begin[0]]:
			action[0], begin = float64(begin[0]), begin[1:]
		default:
			action[0] = 0
		}
		if len(legal) > 0 {
			w.Choices[int(action[0])]++
		}
		out, err := e.Step(action, obs)
		if err != nil {
			return w, err
		}
		over = out.Ended()
	}
	w.take(e.(interface{ Result() (bench.Score, Played) }).Result())
	return w, nil
}

// take fills in what was measured.
func (w *World) take(s bench.Score, p Played) {
	w.Cores, w.Windows, w.Violates = s.Cores, s.Ratio, s.Violates
	w.Late, w.Memory = p.Late, s.MemoryGiB
	w.Reward, w.Judged = p.Reward/float64(max(1, p.Known)), float64(p.Known)/float64(max(1, p.Steps))
}
