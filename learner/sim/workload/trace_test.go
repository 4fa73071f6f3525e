package workload_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"awarescale.dev/aware/learner/sim/workload"
)

const azureHead = "HashOwner,HashApp,HashFunction,Trigger,1,2\n"

// says fails the test unless the error reads as wanted; an empty want is no
// error.
func says(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != want {
		t.Errorf("error\n\t%s\nwant\n\t%s", got, want)
	}
}

func TestReadRates(t *testing.T) {
	got, err := workload.ReadRates("t", strings.NewReader("# calm\n1\n\n 2.5\r\n0"))
	want := workload.Trace{Name: "t", Step: time.Second, Rates: []float64{1, 2.5, 0}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestReadRatesRejectsInvalidFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an empty file":     {"", `trace t.txt: there are no rates in it`},
		"only comments":     {"# 1\n\n", `trace t.txt: there are no rates in it`},
		"a negative rate":   {"1\n-2\n", `trace t.txt, line 2: rate "-2": it must not be negative`},
		"a word":            {"# rates\n1\nmany\n", `trace t.txt, line 3: rate "many": it must be a number`},
		"two on a line":     {"1 2\n", `trace t.txt, line 1: rate "1 2": it must be a number`},
		"not a number":      {"NaN\n", `trace t.txt, line 1: rate "NaN": it must be a number`},
		"an infinite rate":  {"Inf\n", `trace t.txt, line 1: rate "Inf": it must be a number`},
		"a rate too large":  {"1e300\n", `trace t.txt, line 1: rate "1e300": it must be at most 1e+06 requests per second`},
		"a rate overflowed": {"1e999\n", `trace t.txt, line 1: rate "1e999": it must be a number`},
		"an endless line":   {"1\n" + strings.Repeat("1", 1<<17), `trace t.txt, after line 1: bufio.Scanner: token too long`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := workload.ReadRates("t.txt", strings.NewReader(c.text))
			says(t, err, c.want)
		})
	}
}

func TestReadAzure(t *testing.T) {
	text := azureHead + "o,a,calm,timer,6,0\no,a,busy,http,6000,12000\n"
	all, err := workload.ReadAzure("t", strings.NewReader(text), nil)
	want := []workload.Trace{
		{Name: "calm", Step: time.Minute, Rates: []float64{0.1, 0}},
		{Name: "busy", Step: time.Minute, Rates: []float64{100, 200}},
	}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("got %v, %v, want %v", all, err, want)
	}
	var seen []workload.Function
	busy, err := workload.ReadAzure("t", strings.NewReader(text), func(f workload.Function) bool {
		seen = append(seen, f)
		return workload.Busy(f)
	})
	if err != nil || !reflect.DeepEqual(busy, want[1:]) {
		t.Errorf("the busy half is %v, %v, want %v", busy, err, want[1:])
	}
	// 3 and 9,000 invocations a minute in the mean, in the 1,440 minutes of a
	// day.
	if !reflect.DeepEqual(seen, []workload.Function{{"o", "a", "calm", "timer", 4320}, {"o", "a", "busy", "http", 9000 * 1440}}) {
		t.Errorf("the filter saw %v", seen)
	}
	sum, err := workload.Sum("both", all...)
	if err != nil || !slices.Equal(sum.Rates, []float64{100.1, 200}) {
		t.Errorf("the sum is %v, %v", sum, err)
	}
}

func TestReadAzureRejectsInvalidFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an empty file": {"", `trace t.csv: there are no rates in it`},
		"only a head":   {azureHead, `trace t.csv: no function is left: there are no rates in it`},
		"a missing column": {
			"HashOwner,HashApp,HashFunction,1,2\n",
			`trace t.csv, line 1: column 4 is missing: it must be Trigger`,
		},
		"a head cut off": {"HashOwner,HashApp\n", `trace t.csv, line 1: column 3 is missing: it must be HashFunction`},
		"no minutes": {
			"HashOwner,HashApp,HashFunction,Trigger\n",
			`trace t.csv, line 1: there are no columns of minutes after Trigger`,
		},
		"a minute with a name": {
			"HashOwner,HashApp,HashFunction,Trigger,1,noon\n",
			`trace t.csv, line 1: column 6 is "noon": it must be the number of a minute`,
		},
		"a row cut off": {azureHead + "o,a,f,http,1,2\no,a,f,ht", `trace t.csv, line 3: 4 columns: the first line has 6`},
		"a negative count": {
			azureHead + "o,a,f,http,1,-2\n",
			`trace t.csv, line 2, column 2: invocations "-2": it must not be negative`,
		},
		"a word for a count": {
			azureHead + "o,a,f,http,few,2\n",
			`trace t.csv, line 2, column 1: invocations "few": it must be a number`,
		},
		"a count too large": {
			azureHead + "o,a,f,http,1,6e7\n" + "o,a,f,http,1,6.1e7\n",
			`trace t.csv, line 3, column 2: invocations "6.1e7": it must be at most 1e+06 requests per second`,
		},
		"a quote that is open": {
			azureHead + "\"o,a,f,http,1,2\n",
			`trace t.csv: parse error on line 2, column 17: extraneous or missing " in quoted-field`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := workload.ReadAzure("t.csv", strings.NewReader(c.text), nil)
			says(t, err, c.want)
		})
	}
}

func TestReadErrorIsReported(t *testing.T) {
	broken := errors.New("broken disk")
	_, rates := workload.ReadRates("t", iotest.ErrReader(broken))
	_, azure := workload.ReadAzure("t", iotest.ErrReader(broken), nil)
	_, app := workload.Read("t", iotest.ErrReader(broken))
	_, compositions := workload.ReadCompositions("t", iotest.ErrReader(broken))
	for _, err := range []error{rates, azure, app, compositions} {
		if !errors.Is(err, broken) {
			t.Errorf("error %v, want the disk's", err)
		}
	}
}

func TestTraceRepeatsAfterItsEnd(t *testing.T) {
	tr := workload.Trace{Name: "t", Step: 2 * time.Second, Rates: []float64{1, 3}}
	for at, want := range map[time.Duration]float64{
		-1:                        0,
		0:                         1,
		1999 * time.Millisecond:   1,
		2 * time.Second:           3,
		4 * time.Second:           1,
		time.Hour:                 1,
		time.Hour + 3*time.Second: 3,
	} {
		if got := float64(tr.Rate(at)); got != want {
			t.Errorf("rate %v at %v, want %v", got, at, want)
		}
	}
	if tr.Length() != 4*time.Second || tr.Mean() != 2 || tr.Peak() != 3 || tr.Check() != nil {
		t.Errorf("length %v, mean %v, peak %v, %v", tr.Length(), tr.Mean(), tr.Peak(), tr.Check())
	}
	var none workload.Trace
	if none.Rate(0) != 0 || none.Mean() != 0 || none.Peak() != 0 || none.Check() == nil {
		t.Error("an empty trace asks for something")
	}
}

func TestChangedTraces(t *testing.T) {
	tr := workload.Trace{Name: "t", Step: time.Second, Rates: []float64{1, 3, 5}}
	rates := func(t workload.Trace, err error) ([]float64, error) { return t.Rates, err }
	for name, c := range map[string]struct {
		of   func() ([]float64, error)
		want []float64
	}{
		"twice":              {func() ([]float64, error) { return rates(tr.Times(2)) }, []float64{2, 6, 10}},
		"to a mean":          {func() ([]float64, error) { return rates(tr.Scaled(30)) }, []float64{10, 30, 50}},
		"a part":             {func() ([]float64, error) { return rates(tr.Cut(time.Second, 3*time.Second)) }, []float64{3, 5}},
		"the highest factor": {func() ([]float64, error) { return rates(tr.Times(2e5)) }, []float64{2e5, 6e5, 1e6}},
	} {
		if got, err := c.of(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if !slices.Equal(tr.Rates, []float64{1, 3, 5}) {
		t.Errorf("the trace itself became %v", tr.Rates)
	}
	still := workload.Trace{Name: "still", Step: time.Second, Rates: []float64{0}}
	minutes := workload.Trace{Name: "minutes", Step: time.Minute, Rates: []float64{1, 3, 5}}
	for _, c := range []struct {
		of   func() ([]float64, error)
		want string
	}{
		{func() ([]float64, error) { return rates(tr.Times(-1)) }, "trace t times -1: the factor must not be negative"},
		{func() ([]float64, error) { return rates(tr.Times(math.NaN())) }, "trace t times NaN: the factor must not be negative"},
		{
			func() ([]float64, error) { return rates(tr.Times(1e6)) },
			"trace t times 1e+06: its peak becomes 5e+06, and must be at most 1e+06",
		},
		{func() ([]float64, error) { return rates(tr.Scaled(-1)) }, "trace t scaled to a mean of -1: it must be in [0, 1e+06]"},
		{func() ([]float64, error) { return rates(still.Scaled(1)) }, "trace still scaled to a mean of 1: its own mean is 0"},
		{
			func() ([]float64, error) { return rates(tr.Cut(0, 4*time.Second)) },
			"trace t cut from 0s to 4s: it lasts from 0 to 3s, and something must be left",
		},
		{
			func() ([]float64, error) { return rates(tr.Cut(time.Second, time.Second)) },
			"trace t cut from 1s to 1s: it lasts from 0 to 3s, and something must be left",
		},
		{
			func() ([]float64, error) { return rates(minutes.Cut(0, time.Second)) },
			"trace minutes cut from 0s to 1s: both must be whole steps of 1m0s",
		},
		{func() ([]float64, error) { return rates(workload.Sum("sum")) }, "trace sum: the sum of no traces"},
		{
			func() ([]float64, error) { return rates(workload.Sum("sum", tr, minutes)) },
			"trace sum: the sum of t (3 steps of 1s) and minutes (3 steps of 1m0s): they must be of one length",
		},
		{func() ([]float64, error) {
			return nil, workload.Trace{Name: "t", Step: time.Second, Rates: []float64{1, math.NaN()}}.Check()
		}, "trace t: rate NaN in step 1: it must be in [0, 1e+06]"},
		{
			func() ([]float64, error) { return nil, workload.Trace{Name: "t", Rates: []float64{1}}.Check() },
			"trace t: step 0s: it must be at least 1s",
		},
	} {
		_, err := c.of()
		says(t, err, c.want)
	}
}

func TestCompiledInTracesAreValid(t *testing.T) {
	for name, want := range map[string]struct {
		mean, least, most float64
		length            time.Duration
	}{
		"diurnal":    {262.6, 177, 387, time.Hour}, // Autothrottle's, per second
		"diurnal-2":  {228.4, 90, 394, time.Hour},
		"noisy":      {157.5, 81, 245, time.Hour},
		"bursty":     {163.3, 81, 397, time.Hour},
		"azure":      {100.6, 45.3, 118.4, 8 * time.Hour},
		"azure-high": {94.9, 40.8, 113.3, 8 * time.Hour},
		"azure-low":  {5.7, 4.1, 20.9, 8 * time.Hour},
	} {
		tr, err := workload.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(tr.Mean()-want.mean) > 0.1 || math.Abs(tr.Peak()-want.most) > 0.1 ||
			math.Abs(slices.Min(tr.Rates)-want.least) > 0.1 || tr.Length() != want.length {
			t.Errorf("%s: mean %.1f, from %.1f to %.1f, for %v; want %+v", name, tr.Mean(), slices.Min(tr.Rates),
				tr.Peak(), tr.Length(), want)
		}
		if !slices.Contains(workload.Traces(), name) {
			t.Errorf("%s is not in the list %v", name, workload.Traces())
		}
	}
	if all, busy := workload.Azure(nil), workload.Azure(workload.Busy); len(all) != 20 || len(busy) != 9 {
		t.Errorf("%d functions of Azure, %d of them busy", len(all), len(busy))
	}
	if none := workload.Azure(func(workload.Function) bool { return false }); none != nil {
		t.Errorf("nothing was to be kept, and %d functions are left", len(none))
	}
	_, err := workload.Named("weekly")
	says(t, err, `trace "weekly": known are diurnal, diurnal-2, noisy, bursty, azure, azure-high, azure-low, `+
		`pulses, clusters, flash-crowd, on-off`)
}

func TestTracesFromFiles(t *testing.T) {
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if tr, err := workload.Open(write("rates.txt", "1\n2\n")); err != nil || !slices.Equal(tr.Rates, []float64{1, 2}) {
		t.Errorf("%v, %v", tr, err)
	}
	if tr, err := workload.Open(write("azure.csv", azureHead+"o,a,f,http,60,120\no,a,g,http,60,0\n")); err != nil ||
		!slices.Equal(tr.Rates, []float64{2, 2}) {
		t.Errorf("%v, %v", tr, err)
	}
	_, err := workload.Open("nowhere")
	says(t, err, `trace "nowhere": known are diurnal, diurnal-2, noisy, bursty, azure, azure-high, azure-low, `+
		`pulses, clusters, flash-crowd, on-off, or a file: open nowhere: no such file or directory`)
	if !errors.Is(err, os.ErrNotExist) {
		t.Error("it does not say that the file does not exist")
	}
}

func TestAutothrottlesExperiments(t *testing.T) {
	for _, c := range []struct {
		app, trace string
		mean       float64
	}{
		{"train-ticket", "diurnal", 262.6}, {"social-network", "noisy", 236.3},
		{"hotel-reservation", "bursty", 1633}, {"social-network", "diurnal-2", 342.6},
		{"train-ticket", "constant", 200}, {"social-network", "constant", 500}, {"hotel-reservation", "constant", 2000},
	} {
		tr, err := workload.Cell(c.app, c.trace)
		if err != nil || math.Abs(tr.Mean()-c.mean) > 1 || tr.Length() != time.Hour {
			t.Errorf("%s under %s: mean %v for %v, %v, want %v for an hour", c.app, c.trace, tr.Mean(), tr.Length(), err, c.mean)
		}
	}
	_, err := workload.Cell("shop", "noisy")
	says(t, err, `application "shop": known are hotel-reservation, social-network, train-ticket`)
	_, err = workload.Cell("train-ticket", "lunar")
	says(t, err, `trace "lunar": known are constant, `+strings.Join(workload.Traces(), ", "))
}

// The bench multiplies every trace by the factor of the application, not only
// Autothrottle's own.
func TestEveryTraceHasACellInWhichItIsMultiplied(t *testing.T) {
	for _, name := range workload.Traces() {
		as, err := workload.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		in, err := workload.Cell("social-network", name)
		if err != nil || math.Abs(in.Mean()-1.5*as.Mean()) > 1e-9*in.Mean() || in.Length() != as.Length() {
			t.Errorf("%s: mean %v for %v, %v, want 1.5 times %v for %v", name, in.Mean(), in.Length(), err, as.Mean(), as.Length())
		}
	}
}

// generators are one call of each.
var generators = map[string]func(seed uint64) (workload.Trace, error){
	"constant": func(uint64) (workload.Trace, error) { return workload.Constant(50, time.Hour) },
	"ramp":     func(uint64) (workload.Trace, error) { return workload.Ramp(0, 100, time.Hour) },
	"diurnal": func(s uint64) (workload.Trace, error) {
		return workload.Diurnal(50, 0.6, 0.1, time.Hour, time.Hour, s)
	},
	"poisson": func(s uint64) (workload.Trace, error) { return workload.Poisson(50, time.Hour, s) },
	"bursty": func(s uint64) (workload.Trace, error) {
		return workload.Bursty(30, 3, 90*time.Second, 45*time.Second, time.Hour, s)
	},
	"spikes": func(s uint64) (workload.Trace, error) {
		return workload.Spikes(30, 70, time.Minute, time.Hour, s)
	},
}

func TestGeneratedTraces(t *testing.T) {
	for name, generate := range generators {
		one, err := generate(1)
		if err != nil || one.Check() != nil || one.Length() != time.Hour || one.Name != name {
			t.Errorf("%s: %v, %v, length %v", name, err, one.Check(), one.Length())
		}
		if one.Mean() < 40 || one.Mean() > 65 {
			t.Errorf("%s: mean %.1f, want about 50", name, one.Mean())
		}
		again, _ := generate(1)
		if !reflect.DeepEqual(one, again) {
			t.Errorf("%s: two traces of one seed", name)
		}
		other, _ := generate(2)
		if same := reflect.DeepEqual(one, other); same != (name == "constant" || name == "ramp") {
			t.Errorf("%s: another seed makes the same trace: %v", name, same)
		}
	}
	poisson, _ := workload.Poisson(50, time.Hour, 1)
	variance := 0.0
	for _, r := range poisson.Rates {
		variance += (r - 50) * (r - 50) / float64(len(poisson.Rates))
	}
	if variance < 45 || variance > 55 {
		t.Errorf("the Poisson trace's variance is %.1f, want its mean, 50", variance)
	}
	if still, err := workload.Poisson(0, time.Minute, 1); err != nil || still.Peak() != 0 {
		t.Errorf("%v, %v", still, err)
	}
	ramp, _ := workload.Ramp(2, 1, 3*time.Second)
	if !slices.Equal(ramp.Rates, []float64{2, 1.5, 1}) {
		t.Errorf("the ramp is %v", ramp.Rates)
	}
}

func TestGeneratorsRejectInvalidParameters(t *testing.T) {
	for _, c := range []struct {
		of   func() (workload.Trace, error)
		want string
	}{
		{
			func() (workload.Trace, error) { return workload.Constant(-1, time.Hour) },
			"trace constant: rate -1: it must be in [0, 1e+06]",
		},
		{
			func() (workload.Trace, error) { return workload.Constant(math.NaN(), time.Hour) },
			"trace constant: rate NaN: it must be in [0, 1e+06]",
		},
		{
			func() (workload.Trace, error) { return workload.Constant(1, 0) },
			"trace constant: length 0s: it must be whole seconds, from 1s to 744h0m0s",
		},
		{
			func() (workload.Trace, error) { return workload.Constant(1, 1500*time.Millisecond) },
			"trace constant: length 1.5s: it must be whole seconds, from 1s to 744h0m0s",
		},
		{
			func() (workload.Trace, error) { return workload.Ramp(1, 2e6, time.Hour) },
			"trace ramp: to 2e+06: it must be in [0, 1e+06]",
		},
		{
			func() (workload.Trace, error) { return workload.Diurnal(1, 2, 0, time.Hour, time.Hour, 1) },
			"trace diurnal: swing 2: it must be in [0, 1]",
		},
		{
			func() (workload.Trace, error) { return workload.Diurnal(1, 1, -1, time.Hour, time.Hour, 1) },
			"trace diurnal: noise -1: it must be in [0, 1]",
		},
		{
			func() (workload.Trace, error) { return workload.Diurnal(1, 1, 0, 0, time.Hour, 1) },
			"trace diurnal: period in seconds 0: it must be in [2, 2.6784e+06]",
		},
		{
			func() (workload.Trace, error) { return workload.Poisson(math.Inf(1), time.Hour, 1) },
			"trace poisson: mean +Inf: it must be in [0, 1e+06]",
		},
		{func() (workload.Trace, error) {
			return workload.Bursty(1, 0.5, time.Minute, time.Minute, time.Hour, 1)
		}, "trace bursty: factor 0.5: it must be in [1, 1e+06]"},
		{
			func() (workload.Trace, error) { return workload.Bursty(1, 2, 0, time.Minute, time.Hour, 1) },
			"trace bursty: every in seconds 0: it must be in [1, 2.6784e+06]",
		},
		{
			func() (workload.Trace, error) { return workload.Spikes(1, -2, time.Minute, time.Hour, 1) },
			"trace spikes: height -2: it must be in [0, 1e+06]",
		},
	} {
		_, err := c.of()
		says(t, err, c.want)
	}
}

func FuzzReadRates(f *testing.F) {
	for _, text := range []string{"1\n2.5\n# x\n\n0", "-1", "NaN", "1e999", "1e6", "0x1p3", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := workload.ReadRates("fuzz", strings.NewReader(text))
		if err == nil && tr.Check() != nil {
			t.Errorf("%q was read as %v: %v", text, tr, tr.Check())
		}
	})
}

func FuzzReadAzure(f *testing.F) {
	for _, text := range []string{
		azureHead + "o,a,f,http,1,2\n", azureHead + "o,a,f,http,1\n", azureHead, "", "\"",
		"\ufeff" + azureHead + "o,a,f,http,1,NaN\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		traces, err := workload.ReadAzure("fuzz", strings.NewReader(text), nil)
		if err == nil && len(traces) == 0 {
			t.Errorf("%q was read as nothing", text)
		}
		for _, tr := range traces {
			if tr.Check() != nil {
				t.Errorf("%q was read as %v: %v", text, tr, tr.Check())
			}
		}
	})
}
