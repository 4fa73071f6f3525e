package segment

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func TestSixteenSegmentsWithAllTheirFacts(t *testing.T) {
	all := All()
	if len(all) != 16 {
		t.Errorf("%d segments, the paper has 16", len(all))
	}
	seen := make(map[string]bool)
	for _, s := range all {
		if seen[s.Name] {
			t.Errorf("two segments are called %q", s.Name)
		}
		seen[s.Name] = true
		if s.Does == "" || s.Unit == "" || s.Size < 1 || s.Run == nil {
			t.Errorf("segment %q lacks a fact: %+v", s.Name, s)
		}
		if s.Stress != CPU && s.Stress != Memory && s.Stress != IO {
			t.Errorf("segment %q stresses %q", s.Name, s.Stress)
		}
	}
}

func TestEverySegmentRuns(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			for _, size := range []int{1, s.Size, 3*s.Size + 1} {
				if err := s.Run(t.Context(), source(7), size); err != nil {
					t.Errorf("size %d: %v", size, err)
				}
			}
		})
	}
}

func TestEverySegmentStopsWhenTheRequestIsGone(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			// A size that would take hours to do.
			if err := s.Run(gone, source(7), 1<<30); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
}

func TestAnUnknownSegmentListsTheKnownOnes(t *testing.T) {
	_, err := Find("jsno")
	if err == nil {
		t.Fatal("found a segment called jsno")
	}
	for _, want := range []string{`"jsno"`, "float, matmul", "json", "sleep"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                     {"", ""},
		"one, of default size":        {"json", "json:1"},
		"several, in order":           {"json:2,compress:1", "json:2,compress:1"},
		"fractions and spaces":        {" sleep:0.5 , text:1.25", "sleep:0.5,text:1.25"},
		"the same one twice (AWARE)":  {"read,jpeg,jpeg", "read:1,jpeg:1,jpeg:1"},
		"a number in another writing": {"json:1e1", "json:10"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(c.text)
			if err != nil || got.String() != c.want {
				t.Errorf("Parse(%q) = %q, %v, want %q", c.text, got, err, c.want)
			}
		})
	}
}

func TestParseErrorsNameTheValue(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown name":   {"json,cpu:2", `unknown segment "cpu": known are float,`},
		"no name":        {"json,,text", "a segment without a name"},
		"times is zero":  {"json:0", `segment "json": times "0"`},
		"negative":       {"json:-1", `times "-1"`},
		"not a number":   {"json:NaN", `times "NaN"`},
		"a word":         {"json:many", `times "many"`},
		"times left out": {"json:", `times ""`},
		"too much":       {"json:1000", "at most 100"},
		"too many":       {strings.Repeat("json,", 40) + "json", "41 segments: at most 32"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse(%q): error %v, want one with %q", c.text, err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("json:2,compress:1")
	f.Add("sleep:0.5,,")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(c.String())
		if err != nil || again.String() != c.String() {
			t.Errorf("%q reads as %q, which reads as %q, %v", text, c, again, err)
		}
		for _, s := range c {
			if s.Size() < 1 || s.Size() > maxTimes*s.Segment.Size {
				t.Errorf("%q: size %d of %s", text, s.Size(), s.Segment.Name)
			}
		}
	})
}

func TestACompositionStopsAtTheFirstErrorAndNamesTheStep(t *testing.T) {
	broken := errors.New("broken")
	var done []string
	step := func(name string, err error) Step {
		return Step{Segment{
			Name: name,
			Size: 10,
			Unit: "things",
			Run: func(context.Context, *rand.Rand, int) error {
				done = append(done, name)
				return err
			},
		}, 0.5}
	}
	err := Composition{step("first", nil), step("second", broken), step("third", nil)}.Run(t.Context(),
		source(1))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "segment second with 5 things") {
		t.Errorf("error %v", err)
	}
	if got := strings.Join(done, " "); got != "first second" {
		t.Errorf("ran %q", got)
	}
}

func TestSleepWaitsAtLeastItsSize(t *testing.T) {
	start := time.Now()
	if err := runSleep(t.Context(), nil, 20); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 20*time.Millisecond {
		t.Errorf("slept %v, want at least 20ms", took)
	}
}

// BenchmarkSegment measures one call at the default size. Look at cpu-ms/op:
// it leaves out waiting, for the disk or for a core that others use, and has
// the garbage collector's share. Compare two machines, or two commits, with
// benchstat:
//
//	go test -bench Segment -count 10 ./test/apps/segment > new.txt
//	benchstat old.txt new.txt
func BenchmarkSegment(b *testing.B) {
	b.Setenv("TMPDIR", b.TempDir())
	for _, s := range All() {
		b.Run(s.Name, func(b *testing.B) {
			r := source(7)
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if err := s.Run(b.Context(), r, s.Size); err != nil {
					b.Fatal(err)
				}
			}
			used := cpuTime(b) - before
			b.ReportMetric(float64(used)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is the CPU time of this process so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
