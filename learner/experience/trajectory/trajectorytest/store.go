// Package trajectorytest is what every [trajectory.Store] has to pass.
package trajectorytest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/mdp"
)

// Store runs the suite. Each call of open gives a store of its own, empty, that
// writes nothing in the background before a thousand transitions wait, and
// takes at least two thousand.
func Store(t *testing.T, open func(t *testing.T) trajectory.Store) {
	for _, one := range []struct {
		name string
		test func(t *testing.T, s trajectory.Store)
	}{
		{"what was appended is read to the last bit", exact},
		{"every signal travels", everySignal},
		{"what was not observed stays unknown", unknown},
		{"a transition that is written again replaces the old one, and forgets what that knew", rewritten},
		{"a transition's next state is its own", ownNext},
		{"what waits is not read before a flush", waits},
		{"an episode that is not there is not found", notFound},
		{"an episode's steps are in order, gaps stay", ordered},
		{"the best complete episodes come first, the newer of equals", top},
		{"rewards are those of the newest complete episodes, the oldest first", rewards},
		{"transitions come newest first, as many as are taken", newest},
		{"workloads are apart, whatever they are called", workloads},
		{"the last logical time there is", lastTime},
		{"what cannot be kept is refused by name", refused},
		{"many goroutines append", concurrent},
		{"a context that is over ends it", cancelled},
		{"a closed store says so", closed},
	} {
		t.Run(one.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			})
			one.test(t, s)
		})
	}
}

// Full is a transition with something in each of its fields, different in each.
// It is found by reflection, so that a field which is new in mdp is in it too.
func Full() mdp.Transition {
	var t mdp.Transition
	n := 0
	fill(reflect.ValueOf(&t).Elem(), &n)
	t.State.Observed, t.Next.Observed = mdp.All, mdp.All
	t.Action.Sets = mdp.Knobs
	t.Effect = mdp.Deferred
	return t
}

func fill(v reflect.Value, n *int) {
	if v.Type() == reflect.TypeFor[mdp.Effect]() {
		return // not any number is one
	}
	if v.Kind() != reflect.Bool {
		*n++
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(*n), int64(*n)).UTC()))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case v.CanInt():
		v.SetInt(int64(*n))
	case v.CanUint():
		v.SetUint(uint64(*n))
	case v.CanFloat():
		v.SetFloat(float64(*n) + 0.1)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	default:
		panic("mdp has a " + v.Kind().String() + ", which this suite cannot fill")
	}
}

// Kept is a transition as a store gives it back: times in UTC and without the
// monotonic clock.
func Stored(t mdp.Transition) mdp.Transition {
	t.State.At, t.Next.At = t.State.At.Round(0).UTC(), t.Next.At.Round(0).UTC()
	return t
}

// Same compares to the last bit; == takes -0 for 0.
func Same(a, b mdp.Transition) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }

const web = "shop/deployment/web"

// worth is a transition of a reward.
func worth(reward float64) mdp.Transition {
	return mdp.Transition{Reward: mdp.Reward(reward), State: mdp.State{Observed: mdp.SetOf(mdp.Replicas), Replicas: 1}}
}

func add(t *testing.T, s trajectory.Store, workload string, episode, step int, one mdp.Transition) {
	t.Helper()
	if err := s.Append(t.Context(), workload, episode, step, one); err != nil {
		t.Fatal(err)
	}
}

// addEpisode appends steps of these rewards, the last one truncated when the
// episode is complete.
func addEpisode(t *testing.T, s trajectory.Store, workload string, episode int, complete bool, rewards ...float64) {
	t.Helper()
	for step, r := range rewards {
		one := worth(r)
		one.Truncated = complete && step == len(rewards)-1
		add(t, s, workload, episode, step, one)
	}
}

func flush(t *testing.T, s trajectory.Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func episode(t *testing.T, s trajectory.Store, workload string, n int) []mdp.Transition {
	t.Helper()
	e, err := s.Episode(t.Context(), workload, n)
	if err != nil {
		t.Fatal(err)
	}
	if e.Workload != workload || e.Episode != n {
		t.Errorf("episode %d of %q says that it is episode %d of %q", n, workload, e.Episode, e.Workload)
	}
	return e.Steps
}

func take(t *testing.T, from iter.Seq2[mdp.Transition, error]) []mdp.Transition {
	t.Helper()
	var all []mdp.Transition
	for one, err := range from {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// comesBack appends transitions as an episode, and wants them again.
func comesBack(t *testing.T, s trajectory.Store, all ...mdp.Transition) {
	t.Helper()
	for step, one := range all {
		add(t, s, web, 3, step, one)
	}
	flush(t, s)
	got := episode(t, s, web, 3)
	if len(got) != len(all) {
		t.Fatalf("%d transitions of %d", len(got), len(all))
	}
	for i := range got {
		if want := Stored(all[i]); !Same(got[i], want) {
			t.Errorf("step %d\n got %#v\nwant %#v", i, got[i], want)
		}
	}
}

func exact(t *testing.T, s trajectory.Store) {
	var all []mdp.Transition
	for _, v := range []float64{
		0, math.Copysign(0, -1), 0.1, 1.0 / 3, -math.Pi * 1e-200, 1e22, math.MaxFloat64,
		math.SmallestNonzeroFloat64, -1e-310,
	} {
		one := Full()
		one.Reward, one.State.Throttled, one.Next.IORate = mdp.Reward(v), mdp.Ratio(v), mdp.Rate(v)
		one.Terminated, one.Truncated = len(all)%2 == 0, len(all)%3 == 0
		all = append(all, one)
	}
	for _, v := range []int64{0, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1} {
		one := Full()
		one.State.Usage.Memory, one.Next.Latency, one.Next.OOMKills = mdp.Bytes(v), time.Duration(v), int(v)
		one.Action.Limit.CPU = mdp.MilliCPU(v)
		all = append(all, one)
	}
	for _, at := range []time.Time{
		{}, time.Now(), time.Unix(0, 0), time.Unix(-1, 999_999_999), time.Date(9999, 12, 31, 23, 59, 59, 1, time.UTC),
		time.Date(2024, 2, 29, 1, 2, 3, 4, time.FixedZone("Chatham", 45900)),
	} {
		one := Full()
		one.State.At, one.Next.At = at, at.Add(1)
		all = append(all, one)
	}
	comesBack(t, s, all...)
}

func everySignal(t *testing.T, s trajectory.Store) {
	full := Full()
	all := []mdp.Transition{full}
	for signal := mdp.Signal(0); mdp.All.Has(signal); signal++ { // alone, a signal cannot hide behind another
		one := Full()
		one.State = only(one.State, mdp.SetOf(signal))
		one.Next = only(one.Next, mdp.All.Without(mdp.SetOf(signal)))
		all = append(all, one)
	}
	comesBack(t, s, all...)
}

// only is a State of which the given signals are observed, and nothing else is
// left. It is the dumb twin of the table that stores use.
func only(s mdp.State, observed mdp.Set) mdp.State {
	kept := mdp.State{At: s.At, Observed: observed}
	for signal, set := range map[mdp.Signal]func(){
		mdp.Replicas:       func() { kept.Replicas = s.Replicas },
		mdp.CPULimit:       func() { kept.Limit.CPU = s.Limit.CPU },
		mdp.MemoryLimit:    func() { kept.Limit.Memory = s.Limit.Memory },
		mdp.CPUUsage:       func() { kept.Usage.CPU = s.Usage.CPU },
		mdp.MemoryUsage:    func() { kept.Usage.Memory = s.Usage.Memory },
		mdp.CPUPeak:        func() { kept.CPUPeak = s.CPUPeak },
		mdp.CPUDeviation:   func() { kept.CPUDeviation = s.CPUDeviation },
		mdp.Throttled:      func() { kept.Throttled = s.Throttled },
		mdp.CPUPressure:    func() { kept.CPUPressure = s.CPUPressure },
		mdp.MemoryPressure: func() { kept.MemoryPressure = s.MemoryPressure },
		mdp.IOPressure:     func() { kept.IOPressure = s.IOPressure },
		mdp.IORate:         func() { kept.IORate = s.IORate },
		mdp.Latency:        func() { kept.Latency = s.Latency },
		mdp.Throughput:     func() { kept.Throughput = s.Throughput },
		mdp.LoadChange:     func() { kept.LoadChange = s.LoadChange },
		mdp.OOMKills:       func() { kept.OOMKills = s.OOMKills },
	} {
		if observed.Has(signal) {
			set()
		}
	}
	return kept
}

func unknown(t *testing.T, s trajectory.Store) {
	one := Full() // a field whose signal is not observed means nothing, and is not to be kept
	one.State.Observed = mdp.SetOf(mdp.Latency)
	one.Next.Observed = 0
	one.Action.Sets = mdp.SetOf(mdp.CPULimit)
	add(t, s, web, 0, 0, one)
	zero := Full() // a zero that was observed is not the same as nothing
	zero.State = mdp.State{At: zero.State.At, Observed: mdp.All}
	add(t, s, web, 0, 1, zero)
	flush(t, s)
	got := episode(t, s, web, 0)
	want := one
	want.State, want.Next = only(one.State, mdp.SetOf(mdp.Latency)), mdp.State{At: one.Next.At}
	want.Action = mdp.Action{Clipped: one.Action.Clipped}.WithCPU(one.Action.Limit.CPU)
	if !Same(got[0], want) {
		t.Errorf("\n got %#v\nwant %#v", got[0], want)
	}
	if !Same(got[1], zero) {
		t.Errorf("\n got %#v\nwant %#v", got[1], zero)
	}
}

func rewritten(t *testing.T, s trajectory.Store) {
	for _, flushed := range []bool{false, true} {
		old := Full()
		add(t, s, web, 1, 0, old)
		if flushed {
			flush(t, s)
		}
		want := worth(-1)
		want.State.At, want.Next.At = old.State.At, old.Next.At
		add(t, s, web, 1, 0, want)
		flush(t, s)
		if got := episode(t, s, web, 1); len(got) != 1 || !Same(got[0], want) {
			t.Errorf("flushed between: %v\n got %#v\nwant %#v", flushed, got, want)
		}
		if got, err := s.Rewards(t.Context(), web, 5); err != nil || len(got) != 0 {
			t.Errorf("the old transition was truncated and the new one is not, yet there are totals: %v, %v", got, err)
		}
	}
}

func ownNext(t *testing.T, s trajectory.Store) {
	first, second := worth(1), worth(2)
	first.Next = mdp.State{At: time.Unix(7, 0).UTC(), Observed: mdp.SetOf(mdp.Latency), Latency: time.Second}
	second.State = mdp.State{At: time.Unix(8, 0).UTC(), Observed: mdp.SetOf(mdp.Latency), Latency: time.Minute}
	comesBack(t, s, first, second)
}

func waits(t *testing.T, s trajectory.Store) {
	addEpisode(t, s, web, 0, true, 1, 2)
	if f := s.Figures(); f != (trajectory.Figures{Waiting: 2}) {
		t.Errorf("%+v, want two waiting", f)
	}
	if _, err := s.Episode(t.Context(), web, 0); !errors.Is(err, trajectory.ErrNotFound) {
		t.Errorf("before a flush: %v", err)
	}
	flush(t, s)
	if f := s.Figures(); f != (trajectory.Figures{Written: 2}) {
		t.Errorf("%+v, want two written", f)
	}
	if got := episode(t, s, web, 0); len(got) != 2 {
		t.Errorf("%d steps after a flush", len(got))
	}
	flush(t, s) // of nothing
}

func notFound(t *testing.T, s trajectory.Store) {
	addEpisode(t, s, web, 5, true, 1)
	flush(t, s)
	for _, n := range []int{4, 6, -1, math.MaxInt} {
		_, err := s.Episode(t.Context(), web, n)
		if !errors.Is(err, trajectory.ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprint(n)) ||
			!strings.Contains(err.Error(), web) {
			t.Errorf("episode %d: %v", n, err)
		}
	}
	if _, err := s.Episode(t.Context(), "nobody", 5); !errors.Is(err, trajectory.ErrNotFound) {
		t.Error(err)
	}
	if all, err := s.Top(t.Context(), "nobody", 3); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if all, err := s.Rewards(t.Context(), "nobody", 3); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if all := take(t, s.Transitions(t.Context(), "nobody", 3)); len(all) != 0 {
		t.Error(all)
	}
	for _, m := range []int{0, -3} {
		_, err1 := s.Top(t.Context(), web, m)
		_, err2 := s.Rewards(t.Context(), web, m)
		var err3 error
		for _, err3 = range s.Transitions(t.Context(), web, m) {
		}
		for _, err := range []error{err1, err2, err3} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(m)) {
				t.Errorf("asked for %d: %v", m, err)
			}
		}
	}
}

func ordered(t *testing.T, s trajectory.Store) {
	const many = 1700 // more than a batch, and more than any page
	for i := range many {
		step := 2 * ((i * 701) % many) // every second step, in disorder
		add(t, s, web, 2, step, worth(float64(step)))
		if i%500 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
	got := episode(t, s, web, 2)
	if len(got) != many {
		t.Fatalf("%d steps of %d", len(got), many)
	}
	for i, one := range got {
		if one.Reward != mdp.Reward(2*i) {
			t.Fatalf("at %d is the step of reward %v", i, one.Reward)
		}
	}
}

func top(t *testing.T, s trajectory.Store) {
	addEpisode(t, s, web, 0, true, 1, 1)
	addEpisode(t, s, web, 1, true, 4, -0.5)
	addEpisode(t, s, web, 2, false, 100) // still running
	addEpisode(t, s, web, 3, true, 0.5, 1, 0.5)
	addEpisode(t, s, web, 4, true, -7)
	addEpisode(t, s, "other", 9, true, 50)
	ended := worth(3)
	ended.Terminated = true
	add(t, s, web, 5, 0, ended)
	flush(t, s)
	all, err := s.Top(t.Context(), web, 4)
	if err != nil {
		t.Fatal(err)
	}
	var order []int
	for _, one := range all {
		if one.Workload != web || len(one.Steps) == 0 {
			t.Errorf("%q with %d steps", one.Workload, len(one.Steps))
		}
		order = append(order, one.Episode)
	}
	if !slices.Equal(order, []int{1, 5, 3, 0}) {
		t.Errorf("episodes %v, want 1 (3.5), 5 (3), 3 and 0 (2 each)", order)
	}
	if all, err := s.Top(t.Context(), web, 100); err != nil || len(all) != 5 {
		t.Errorf("of five complete episodes %d, %v", len(all), err)
	}
}

func rewards(t *testing.T, s trajectory.Store) {
	for n := range 6 {
		addEpisode(t, s, web, n, n != 4, float64(n), 0.5)
	}
	addEpisode(t, s, "other", 9, true, 50)
	flush(t, s)
	got, err := s.Rewards(t.Context(), web, 3)
	if err != nil || !slices.Equal(got, []float64{2.5, 3.5, 5.5}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.Rewards(t.Context(), web, 100); err != nil || !slices.Equal(got, []float64{0.5, 1.5, 2.5, 3.5, 5.5}) {
		t.Errorf("%v, %v", got, err)
	}
}

func newest(t *testing.T, s trajectory.Store) {
	const episodes, steps = 3, 400
	for e := range episodes {
		for step := range steps {
			add(t, s, web, e, step, worth(float64(e*steps+step)))
		}
	}
	addEpisode(t, s, "other", 9, true, 50)
	flush(t, s)
	for _, limit := range []int{1, 499, 500, 501, 1000, 5000} {
		got := take(t, s.Transitions(t.Context(), web, limit))
		if len(got) != min(limit, episodes*steps) {
			t.Fatalf("limit %d: %d transitions", limit, len(got))
		}
		for i, one := range got {
			if want := mdp.Reward(episodes*steps - 1 - i); one.Reward != want {
				t.Fatalf("limit %d: at %d is reward %v, want %v", limit, i, one.Reward, want)
			}
		}
	}
	for one, err := range s.Transitions(t.Context(), web, 5) {
		if err != nil || one.Reward != episodes*steps-1 {
			t.Error(one.Reward, err)
		}
		if _, err := s.Rewards(t.Context(), web, 1); err != nil { // the store is of use meanwhile
			t.Error(err)
		}
		break
	}
}

func workloads(t *testing.T, s trajectory.Store) {
	names := []string{
		"a", "A", "a b", " a", "a,b=c", "a=b", `quote"and'it`, "it's", "' OR workload = 'a", "$a;--", "#",
		"日本/語/é", "%s%00", strings.Repeat("x", 1024),
	}
	slices.Sort(names)
	for i, name := range names {
		addEpisode(t, s, name, 0, true, float64(i))
	}
	flush(t, s)
	if got, err := s.Workloads(t.Context()); err != nil || !slices.Equal(got, names) {
		t.Errorf("%q, %v, want %q", got, err, names)
	}
	for i, name := range names {
		if got := episode(t, s, name, 0); len(got) != 1 || got[0].Reward != mdp.Reward(i) {
			t.Errorf("%q: %v", name, got)
		}
		if got, err := s.Rewards(t.Context(), name, 9); err != nil || !slices.Equal(got, []float64{float64(i)}) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

func lastTime(t *testing.T, s trajectory.Store) {
	one := worth(1)
	one.Truncated = true
	const last = math.MaxInt32
	add(t, s, web, last, last, one)
	add(t, s, web, last-1, 0, one)
	add(t, s, web, last-1, last, one)
	flush(t, s)
	if got := episode(t, s, web, last); len(got) != 1 {
		t.Errorf("the last episode has %d steps", len(got))
	}
	if got, err := s.Rewards(t.Context(), web, 5); err != nil || !slices.Equal(got, []float64{2, 1}) {
		t.Error(got, err)
	}
	if got := take(t, s.Transitions(t.Context(), web, 5)); len(got) != 3 {
		t.Error(len(got))
	}
}

func refused(t *testing.T, s trajectory.Store) {
	reward := func(v float64) mdp.Transition { return worth(v) }
	signal := worth(0)
	signal.Next.Observed, signal.Next.LoadChange = mdp.SetOf(mdp.LoadChange), mdp.Ratio(math.NaN())
	newer := worth(0)
	newer.State.Observed = 1 << 31
	knob := worth(0)
	knob.Action.Sets = mdp.SetOf(mdp.Latency)
	for _, bad := range []struct {
		workload      string
		episode, step int
		transition    mdp.Transition
		says          []string
	}{
		{web, 3, 4, reward(math.NaN()), []string{web, "episode 3", "step 4", "reward NaN"}},
		{web, 3, 4, reward(math.Inf(-1)), []string{web, "episode 3", "step 4", "reward -Inf"}},
		{web, -1, 4, worth(0), []string{web, "episode -1", "must be in"}},
		{web, 3, -2, worth(0), []string{web, "step -2", "must be in"}},
		{web, 1 << 31, 0, worth(0), []string{"episode 2147483648", "must be in"}},
		{web, 0, 1 << 31, worth(0), []string{"step 2147483648", "must be in"}},
		{web, 0, 0, signal, []string{"next state", "load-change is NaN"}},
		{web, 0, 0, newer, []string{"observes 0x80000000"}},
		{web, 0, 0, knob, []string{"latency", "not knobs"}},
		{"", 0, 0, worth(0), []string{"name is empty"}},
		{"a\nb", 0, 0, worth(0), []string{`"a\nb"`, "control character"}},
		{`a\`, 0, 0, worth(0), []string{"backslash"}},
		{"\xff", 0, 0, worth(0), []string{"UTF-8"}},
		{strings.Repeat("x", 1025), 0, 0, worth(0), []string{"1025 bytes"}},
	} {
		err := s.Append(t.Context(), bad.workload, bad.episode, bad.step, bad.transition)
		for _, what := range append(bad.says, "appending") {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%q %d %d: %v, want %q", bad.workload, bad.episode, bad.step, err, what)
			}
		}
	}
	unobserved := worth(0) // means nothing, so it may be anything
	unobserved.State.Throttled = mdp.Ratio(math.NaN())
	add(t, s, web, 0, 0, unobserved)
	if f := s.Figures(); f.Waiting != 1 || f.Dropped != 0 {
		t.Errorf("%+v: refused is what there was no room for", f)
	}
}

func concurrent(t *testing.T, s trajectory.Store) {
	const writers, steps = 8, 150
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for step := range steps {
				if err := s.Append(t.Context(), fmt.Sprint("w", w), 0, step, worth(float64(step))); err != nil {
					t.Error(err)
				}
				if step%50 == 0 {
					if err := s.Flush(t.Context()); err != nil {
						t.Error(err)
					}
					if _, err := s.Workloads(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	flush(t, s)
	for w := range writers {
		if got := episode(t, s, fmt.Sprint("w", w), 0); len(got) != steps {
			t.Errorf("writer %d: %d steps of %d", w, len(got), steps)
		}
	}
	if f := s.Figures(); f != (trajectory.Figures{Written: writers * steps}) {
		t.Errorf("%+v", f)
	}
}

func cancelled(t *testing.T, s trajectory.Store) {
	add(t, s, web, 0, 0, worth(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, e1 := s.Episode(ctx, web, 0)
	_, e2 := s.Top(ctx, web, 1)
	_, e3 := s.Rewards(ctx, web, 1)
	_, e4 := s.Workloads(ctx)
	var e5 error
	for _, e5 = range s.Transitions(ctx, web, 1) {
	}
	for i, err := range []error{s.Append(ctx, web, 0, 1, worth(1)), s.Flush(ctx), e1, e2, e3, e4, e5} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	flush(t, s)
	if got := episode(t, s, web, 0); len(got) != 1 {
		t.Errorf("%d steps", len(got))
	}
}

func closed(t *testing.T, s trajectory.Store) {
	add(t, s, web, 0, 0, worth(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if f := s.Figures(); f.Written != 1 || f.Waiting != 0 {
		t.Errorf("%+v: what waited was not written", f)
	}
	if err := s.Append(t.Context(), web, 0, 1, worth(1)); !errors.Is(err, trajectory.ErrClosed) {
		t.Error(err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, trajectory.ErrClosed) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("twice: %v", err)
	}
}
