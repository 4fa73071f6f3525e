package trace

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []float64
	}{
		"one rate per line":           {"1\n2.5\n0\n", []float64{1, 2.5, 0}},
		"no newline at the end":       {"1\n2", []float64{1, 2}},
		"comments and blank lines":    {"# calm\n\n1\n  \n  # burst\n 9 \n", []float64{1, 9}},
		"lines as Windows ends them":  {"1\r\n2\r\n", []float64{1, 2}},
		"powers of ten":               {"1e3\n", []float64{1000}},
		"the highest rate":            {"1000000\n", []float64{1e6}},
		"a rate of nothing all along": {"0\n0\n", []float64{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read("test", strings.NewReader(c.text))
			if err != nil || !reflect.DeepEqual(got.Rates, c.want) || got.Step != time.Second {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestReadErrorsNameFileLineAndValue(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a word":          {"# header\n1\nmany\n", `trace t.txt, line 3: rate "many": it must be a number`},
		"two on one line": {"1 2\n", `line 1: rate "1 2": it must be a number`},
		"negative":        {"1\n-2\n", `line 2: rate "-2": it must not be negative`},
		"not a number":    {"NaN\n", `line 1: rate "NaN": it must be a number`},
		"infinite":        {"Inf\n", `line 1: rate "Inf": it must be a number`},
		"minus infinite":  {"-Inf\n", `line 1: rate "-Inf": it must be a number`},
		"overflow":        {"1e999\n", `line 1: rate "1e999": it must be a number`},
		"beyond reason":   {"1000001\n", `line 1: rate "1000001": it must be at most 1e+06`},
		"empty file":      {"", "trace t.txt: there are no rates"},
		"only comments":   {"# nothing\n\n", "trace t.txt: there are no rates"},
		"an endless line": {"1\n" + strings.Repeat("1", 1<<17), "trace t.txt, after line 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read("t.txt", strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestReadErrorsCanBeDistinguished(t *testing.T) {
	if _, err := Read("t", strings.NewReader("#\n")); !errors.Is(err, ErrNoRates) {
		t.Errorf("error %v, want ErrNoRates", err)
	}
	broken := errors.New("broken disk")
	if _, err := Read("t", iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's own", err)
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
}

func TestDurationRequestsMeanAndPeakOfATrace(t *testing.T) {
	tr := Trace{time.Second, []float64{10, 100, 100, 0}}
	if tr.Duration() != 4*time.Second || tr.Requests() != 210 || tr.Mean() != 52.5 || tr.Peak() != 100 {
		t.Errorf("duration %v, requests %v, mean %v, peak %v",
			tr.Duration(), tr.Requests(), tr.Mean(), tr.Peak())
	}
	for at, want := range map[time.Duration]float64{
		-1: 0, 0: 10, time.Second - 1: 10, time.Second: 100, 3 * time.Second: 0, 4 * time.Second: 0,
		time.Hour: 0,
	} {
		if got := tr.At(at); got != want {
			t.Errorf("rate at %v is %v, want %v", at, got, want)
		}
	}
	if zero := (Trace{}); zero.Duration() != 0 || zero.Requests() != 0 || zero.Mean() != 0 || zero.Peak() != 0 ||
		zero.At(0) != 0 {
		t.Errorf("an empty trace asks for something: %+v", zero)
	}
}

func TestScale(t *testing.T) {
	tr := Trace{time.Second, []float64{1, 3}}
	got, err := tr.Scale(0.5, 20)
	if want := (Trace{500 * time.Millisecond, []float64{20, 60}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got.Requests() != 40 || tr.Requests() != 4 {
		t.Errorf("scaled asks for %v requests, the original for %v", got.Requests(), tr.Requests())
	}
	for name, c := range map[string]struct {
		time float64 // factor of the length
		rate float64 // factor of the rates
		want string  // a part of the error
	}{
		"no time":            {0, 1, "in time by 0"},
		"time backwards":     {-1, 1, "in time by -1"},
		"time not a number":  {math.NaN(), 1, "in time by NaN"},
		"too short a step":   {1e-6, 1, "1ms to 24h"},
		"endless":            {math.Inf(1), 1, "in time by +Inf"},
		"negative rate":      {1, -1, "3 requests/s by -1"},
		"rate not a number":  {1, math.NaN(), "by NaN"},
		"rate beyond reason": {1, 1e6, "must give 0 to 1e+06"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tr.Scale(c.time, c.rate); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestSharpenKeepsTheMean(t *testing.T) {
	tr := Trace{time.Second, []float64{0, 1, 3, 0}}
	for power, want := range map[float64][]float64{0: {1, 1, 1, 1}, 1: {0, 1, 3, 0}, 2: {0, 0.4, 3.6, 0}} {
		got, err := tr.Sharpen(power)
		if err != nil || len(got.Rates) != len(want) || got.Step != tr.Step {
			t.Fatalf("by %v: %v, %v", power, got, err)
		}
		for i := range want {
			if math.Abs(got.Rates[i]-want[i]) > 1e-12 {
				t.Errorf("by %v: %v, want %v", power, got.Rates, want)
			}
		}
	}
	for _, power := range []float64{-1, 11, math.NaN(), math.Inf(1)} {
		if _, err := tr.Sharpen(power); err == nil || !strings.Contains(err.Error(), "must be 0 to 10") {
			t.Errorf("by %v: error %v", power, err)
		}
	}
	if _, err := (Trace{time.Second, []float64{0}}).Sharpen(2); err == nil {
		t.Error("nothing was sharpened")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("1\n2.5\n# no\n\n0")
	f.Add("NaN\n-1\n1e999")
	f.Add("0x1p4\r\n1_0")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := Read("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		if len(tr.Rates) == 0 || len(tr.Rates) > 1+strings.Count(text, "\n") {
			t.Errorf("%d rates from %q", len(tr.Rates), text)
		}
		for _, rate := range tr.Rates {
			if !(rate >= 0 && rate <= MaxRate) {
				t.Errorf("rate %v from %q", rate, text)
			}
		}
		if most := tr.Peak() * tr.Duration().Seconds(); tr.Requests() > most*(1+1e-9) {
			t.Errorf("%v requests, with the peak all along only %v", tr.Requests(), most)
		}
	})
}
