package load

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// Second is the result of the requests that were intended to start within one
// second. Latencies are in milliseconds, from the intended start.
type Second struct {
	Second      int // since the start: 0 is the first
	IntendedRPS int // requests that the schedule has for this second
	Sent        int // IntendedRPS less the dropped (and the abandoned)
	OK          int
	Errors      int
	Dropped     int
	Timeouts    int
	P50MS       float64
	P90MS       float64
	P99MS       float64
	MaxMS       float64
	P99SoFarMS  float64 // over this second and all before it
}

// Result is the result of a run. Latencies are in milliseconds, from
// the intended start.
type Result struct {
	Requests  int     `json:"requests"` // the sum of the next four
	OK        int     `json:"ok"`
	Errors    int     `json:"errors"`
	Timeouts  int     `json:"timeouts"`
	Dropped   int     `json:"dropped"`
	Abandoned int     `json:"abandoned"`  // intended, but the run was canceled before
	DurationS float64 `json:"duration_s"` // of the trace, or until the run was canceled

	P50MS  float64 `json:"p50_ms"`
	P90MS  float64 `json:"p90_ms"`
	P95MS  float64 `json:"p95_ms"`
	P99MS  float64 `json:"p99_ms"`
	P999MS float64 `json:"p999_ms"`
	MaxMS  float64 `json:"max_ms"`
	MeanMS float64 `json:"mean_ms"`

	AchievedRPS float64 `json:"achieved_rps"` // requests answered well, by the duration

	SLOMS             float64 `json:"slo_ms"`
	SLOViolationRatio float64 `json:"slo_violation_ratio"` // of the requests
	// of the 10 s windows with a request, by their p99
	SLOWindowsViolatedRatio float64 `json:"slo_windows_violated_ratio"`

	// How late the generator itself got to a request. It is part of the
	// latencies above, so with a large lag they show the generator's machine
	// and not the service.
	SenderLagP99MS float64 `json:"sender_lag_p99_ms"`
	SenderLagMaxMS float64 `json:"sender_lag_max_ms"`

	FirstError string `json:"first_error,omitempty"` // of the requests counted as errors
}

// CSV writes seconds as lines of a table.
type CSV struct{ w *csv.Writer }

// NewCSV writes the table's head to w.
func NewCSV(w io.Writer) (*CSV, error) {
	c := &CSV{csv.NewWriter(w)}
	return c, c.line("second", "intended_rps", "sent", "ok", "errors", "dropped", "timeouts", "p50_ms", "p90_ms",
		"p99_ms", "max_ms")
}

// Write writes a second, at once, so that a reader can follow.
func (c *CSV) Write(s Second) error {
	ms := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	return c.line(strconv.Itoa(s.Second), strconv.Itoa(s.IntendedRPS), strconv.Itoa(s.Sent), strconv.Itoa(s.OK),
		strconv.Itoa(s.Errors), strconv.Itoa(s.Dropped), strconv.Itoa(s.Timeouts),
		ms(s.P50MS), ms(s.P90MS), ms(s.P99MS), ms(s.MaxMS))
}

func (c *CSV) line(fields ...string) error {
	if err := c.w.Write(fields); err != nil {
		return fmt.Errorf("writing a line of seconds: %w", err)
	}
	c.w.Flush()
	if err := c.w.Error(); err != nil {
		return fmt.Errorf("writing a line of seconds: %w", err)
	}
	return nil
}
