package load

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// tallyOf is a tally with uniform arrivals, timeout 1 s, SLO 100 ms.
func tallyOf(rates ...float64) (*tally, []time.Duration) {
	c := Config{Trace: steps(rates...), Timeout: time.Second, SLO: 100 * ms}.withDefaults()
	arrivals := Schedule(c.Trace, Uniform, 0)
	return newTally(c, arrivals), arrivals
}

func TestASecondIsFinishedWhenItsRequestsHaveEndedAndItIsOver(t *testing.T) {
	tally, arrivals := tallyOf(2, 1, 0, 1)
	if got := tally.finish(10 * time.Second); len(got) != 0 {
		t.Fatalf("finished before any request ended: %v", got)
	}
	tally.add(ended{intended: arrivals[2], latency: 10 * ms}) // the only one of second 1
	if got := tally.finish(2 * time.Second); len(got) != 0 {
		t.Fatalf("second 1 finished before second 0: %v", got)
	}
	tally.add(ended{intended: arrivals[1], latency: 30 * ms})
	tally.add(ended{intended: arrivals[0], latency: 20 * ms})
	if got := tally.finish(999 * ms); len(got) != 0 {
		t.Fatalf("finished before it was over: %v", got)
	}
	if got := tally.finish(2500 * ms); len(got) != 2 || got[0].OK != 2 || got[0].MaxMS != 30 || got[1].OK != 1 ||
		got[1].P99MS != 10 {
		t.Fatalf("seconds 0 and 1: %+v", got)
	}
	if got := tally.finish(3500 * ms); len(got) != 1 ||
		got[0] != (Second{Second: 2, P99SoFarMS: got[0].P99SoFarMS}) {
		t.Fatalf("second 2, without a request: %+v", got)
	}
}

func TestEveryRequestIsCountedOnceAndTheFailedAsTheTimeout(t *testing.T) {
	tally, arrivals := tallyOf(6)
	broken := errors.New("connection refused")
	for i, o := range []outcome{ok, ok, failed, timedOut, dropped, abandoned} {
		e := ended{intended: arrivals[i], latency: 10 * ms, outcome: o}
		if o == failed {
			e.err = broken
		}
		tally.add(e)
	}
	seconds := tally.finish(time.Second)
	if len(seconds) != 1 {
		t.Fatalf("%d seconds finished, want 1", len(seconds))
	}
	want := Second{
		IntendedRPS: 6,
		Sent:        4,
		OK:          2,
		Errors:      1,
		Dropped:     1,
		Timeouts:    1,
		P50MS:       1000,
		P90MS:       1000,
		P99MS:       1000,
		MaxMS:       1000,
		P99SoFarMS:  1000,
	}
	if seconds[0] != want {
		t.Errorf("second %+v, want %+v", seconds[0], want)
	}
	r := tally.end(time.Second)
	if r.Requests != 5 || r.OK != 2 || r.Errors != 1 || r.Timeouts != 1 || r.Dropped != 1 || r.Abandoned != 1 {
		t.Errorf("counts %+v", r)
	}
	if r.SLOViolationRatio != 0.6 || r.AchievedRPS != 2 || r.MeanMS != (2*10+3*1000)/5.0 ||
		r.FirstError != "connection refused" {
		t.Errorf("result %+v", r)
	}
}

// A run of 25 s in which seconds 10 to 19 are slow, compared with a simple second
// implementation that keeps everything.
func TestEachWindowIsEvaluatedByItsOwnP99(t *testing.T) {
	tally, arrivals := tallyOf(slices.Repeat([]float64{50}, 25)...)
	r := rand.New(rand.NewPCG(5, 5))
	windows := make([]exact, 3)
	var all exact
	violations := 0
	for _, at := range arrivals {
		latency := time.Duration(r.IntN(90)) * ms
		if at >= 10*time.Second && at < 20*time.Second && r.IntN(20) == 0 {
			latency = 150 * ms
		}
		if latency > 100*ms {
			violations++
		}
		windows[at/window] = append(windows[at/window], latency)
		all = append(all, latency)
		tally.add(ended{intended: at, latency: latency})
	}
	for i, want := range []bool{false, true, false} {
		if got := windows[i].quantile(0.99) > 100*ms; got != want {
			t.Fatalf("window %d violates: %v, want %v", i, got, want)
		}
	}
	seconds := tally.finish(25 * time.Second)
	got := tally.end(25 * time.Second)
	if want := 1.0 / 3; got.SLOWindowsViolatedRatio != want {
		t.Errorf("share of windows violated %v, want %v", got.SLOWindowsViolatedRatio, want)
	}
	if want := float64(violations) / float64(len(all)); got.SLOViolationRatio != want {
		t.Errorf("share of requests over the SLO %v, want %v", got.SLOViolationRatio, want)
	}
	if want := milliseconds(all.quantile(0.99)); got.P99MS < want || got.P99MS > want*1.002 {
		t.Errorf("p99 %v, want %v within 0.2 %%", got.P99MS, want)
	}
	if last := seconds[len(seconds)-1]; len(seconds) != 25 || last.P99SoFarMS != got.P99MS {
		t.Errorf("%d seconds, the last says p99 so far %v, the result %v",
			len(seconds), last.P99SoFarMS, got.P99MS)
	}
}

// The order in which requests end must not matter, nor when seconds finish.
func TestTheResultDoesNotDependOnTheOrderOfAnswers(t *testing.T) {
	var want Result
	for seed := range uint64(10) {
		tally, arrivals := tallyOf(20, 0, 30, 5, 0, 0, 10, 1, 1, 1, 40, 0, 3)
		events := make([]ended, len(arrivals))
		for i, at := range arrivals {
			events[i] = ended{intended: at, latency: time.Duration(i) * ms, outcome: outcome(i % 4)}
		}
		r := rand.New(rand.NewPCG(seed, 1))
		r.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for i, e := range events {
			tally.add(e)
			if r.IntN(4) == 0 {
				tally.finish(time.Duration(i) * 100 * ms)
			}
		}
		got := tally.end(13 * time.Second)
		if seed == 0 {
			want = got
		}
		if got != want {
			t.Errorf("seed %d: %+v, want %+v", seed, got, want)
		}
	}
}

func TestARunWithoutRequestsHasAResult(t *testing.T) {
	tally, _ := tallyOf(0, 0)
	if seconds := tally.finish(2 * time.Second); len(seconds) != 2 {
		t.Errorf("%d seconds, want 2", len(seconds))
	}
	if got, want := tally.end(2*time.Second), (Result{DurationS: 2, SLOMS: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSecondsAsCSV(t *testing.T) {
	var b strings.Builder
	table, err := NewCSV(&b)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Write(Second{3, 10, 9, 6, 2, 1, 1, 1.5, 2.25, 1000, 1000, 7}); err != nil {
		t.Fatal(err)
	}
	want := "second,intended_rps,sent,ok,errors,dropped,timeouts,p50_ms,p90_ms,p99_ms,max_ms\n" +
		"3,10,9,6,2,1,1,1.500,2.250,1000.000,1000.000\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestResultAsJSONHasTheNamesPromised(t *testing.T) {
	text, err := json.Marshal(Result{})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]float64
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	want := strings.Fields(`abandoned achieved_rps dropped duration_s errors max_ms mean_ms ok p50_ms p90_ms p95_ms
		p999_ms p99_ms requests sender_lag_max_ms sender_lag_p99_ms slo_ms slo_violation_ratio
		slo_windows_violated_ratio timeouts`)
	if !reflect.DeepEqual(names, want) {
		t.Errorf("fields %v, want %v", names, want)
	}
}
