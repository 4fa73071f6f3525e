package pace

import (
	"context"
	"testing"
	"time"
)

// The work costs CPU time. A watch ends with its context, or when it is asked, and says the same as often as it is asked.
func TestThePaceIsCPUTime(t *testing.T) {
	if took, err := Now(); err != nil || took < 50*time.Microsecond {
		t.Fatalf("%v, %v: the work is not done", took, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if all := Watch(ended)(); len(all) != 0 {
		t.Errorf("%v after the end", all)
	}
	stop := Watch(t.Context())
	time.Sleep(every + every/4)
	first := stop()
	if again := stop(); len(first) > 2 || len(again) != len(first) {
		t.Errorf("%d samples in a second, then %d", len(first), len(again))
	}
	for _, one := range first {
		if one.Took <= 0 || one.At.IsZero() {
			t.Errorf("%+v", one)
		}
	}
}

func TestTheFastestPaceIsNotAChance(t *testing.T) {
	var all []Sample
	for i := range 40 {
		all = append(all, Sample{Took: time.Duration(100 - i)})
	}
	if got := Fastest(all); got != 63 {
		t.Errorf("%d, want 63: without the two fastest of forty", got)
	}
	if got := Fastest(nil); got != 0 {
		t.Errorf("%d without a measurement", got)
	}
}

func TestThePaceBetweenTwoTimes(t *testing.T) {
	began := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	all := []Sample{{at(0), 100}, {at(1), 200}, {at(2), 400}}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"the end is not in it": {Between(all, at(0), at(2)), 150},
		"all":                  {Between(all, at(0), at(9)), 233},
		"nothing is known":     {Between(all, at(3), at(9)), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}
