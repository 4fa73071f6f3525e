package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"awarescale.dev/aware/test/perf/pace"
)

// The bars.
const (
	moreOver = 0.005   // requests over the SLO, above those of the program left alone
	mostMean = 1. / 3. // cores in force over the whole run, of the static limit
)

// Result is all of it.
type Result struct {
	Seed      uint64               `json:"seed"`
	TimeScale float64              `json:"time_scale"`
	Programs  map[string]*Measured `json:"programs"`
}

// Measured is one program.
type Measured struct {
	LimitMilli int      `json:"limit_millicores"` // static
	Capacity   float64  `json:"capacity_rps"`     // requests a second at that limit
	SLOMS      float64  `json:"slo_ms"`           // twice the p99 at 90 % of the capacity, left alone
	Alone      *Run     `json:"alone"`
	Auto       *Run     `json:"auto"`
	Holds      bool     `json:"holds"`
	Why        []string `json:"why,omitempty"` // it does not hold
}

// Run is one run of a program under the load.
type Run struct {
	Requests     int     `json:"requests"`
	OverSLO      float64 `json:"over_slo_ratio"` // share of the requests that were late or failed
	Failed       int     `json:"failed"`         // errors, timeouts and requests that were not sent
	P50MS        float64 `json:"p50_ms"`
	P99MS        float64 `json:"p99_ms"`
	SenderLagMS  float64 `json:"sender_lag_p99_ms"` // how late the load generator itself was
	MeanMilli    float64 `json:"mean_millicores"`   // in force
	UsedMilli    float64 `json:"mean_used_millicores"`
	InForceMilli []int   `json:"in_force_millicores"`
	Unread       int     `json:"unread"` // seconds in which the limit could not be read
	// The CPU time of a piece of work that is always the same, in the mean: with more of it the machine was slower (package pace).
	PaceMS     *float64 `json:"machine_pace_ms"` // nil: not known
	Restarts   int      `json:"restarts"`
	FirstError string   `json:"first_error,omitempty"`
	Seconds    Seconds  `json:"seconds"`
	Resizes    []Resize `json:"resizes,omitempty"`
}

// Resize is what the API asks for of the program from a moment on, for whoever asks why.
type Resize struct {
	Second       float64 `json:"second"` // of the load
	RequestMilli int64   `json:"request_millicores"`
	CeilingMilli int64   `json:"ceiling_millicores"`
	MemoryMiB    int64   `json:"memory_mib"`
}

// Seconds is a run second by second, for whoever asks why.
type Seconds struct {
	P99MS  []float64 `json:"p99_ms"` // of the requests that were to start in it
	Failed []int     `json:"failed"` // of the same
	// Without the seconds that could not be read.
	ThrottledMS []int `json:"throttled_ms"`            // of all its CPUs together
	UsedMilli   []int `json:"used_millicores"`         // by the program
	IdleMilli   []int `json:"machine_idle_millicores"` // that nobody wanted
	MemoryMiB   []int `json:"memory_mib"`              // its working set
	PaceUS      []int `json:"machine_pace_us"`         // see Run.PaceMS
}

func (r *Run) sum(sent load.Result) {
	r.Requests, r.OverSLO, r.FirstError = sent.Requests, sent.SLOViolationRatio, sent.FirstError
	r.Failed = sent.Errors + sent.Timeouts + sent.Dropped
	r.P50MS, r.P99MS, r.SenderLagMS = sent.P50MS, sent.P99MS, sent.SenderLagP99MS
	r.MeanMilli, r.UsedMilli = mean(r.InForceMilli), mean(r.Seconds.UsedMilli)
}

// mean is that of the values, and 0 of none.
func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(max(1, len(values)))
}

func (r *Run) paced(all []pace.Sample) {
	sum := time.Duration(0)
	for _, one := range all {
		r.Seconds.PaceUS = append(r.Seconds.PaceUS, int(one.Took.Microseconds()))
		sum += one.Took
	}
	if n := len(all); n > 0 {
		r.PaceMS = new(ms(sum / time.Duration(n)))
	}
}

// judge compares with the bars.
func (m *Measured) judge() {
	no := func(bad bool, format string, args ...any) {
		if bad {
			m.Why = append(m.Why, fmt.Sprintf(format, args...))
		}
	}
	no(m.Auto.OverSLO > m.Alone.OverSLO+moreOver, "%.2f %% over the SLO, %.2f %% left alone: at most 0.5 %% more",
		100*m.Auto.OverSLO, 100*m.Alone.OverSLO)
	no(len(m.Auto.InForceMilli) == 0, "its limit in force was never read")
	no(m.Auto.MeanMilli > mostMean*float64(m.LimitMilli),
		"%.0fm in force in the mean, of %dm: at most a third (it uses %.0fm in the mean, and %.0fm left alone)",
		m.Auto.MeanMilli, m.LimitMilli, m.Auto.UsedMilli, m.Alone.UsedMilli)
	no(m.Auto.Restarts > 0, "%d restarts", m.Auto.Restarts)
	m.Holds = len(m.Why) == 0
}

func (m *Measured) String() string {
	text := fmt.Sprintf("SLO %.1f ms; left alone %.2f %% over it, p99 %.1f ms", m.SLOMS, 100*m.Alone.OverSLO, m.Alone.P99MS)
	text += fmt.Sprintf("; with AWARE %.2f %%, p99 %.1f ms, %.0fm of %dm in the mean",
		100*m.Auto.OverSLO, m.Auto.P99MS, m.Auto.MeanMilli, m.LimitMilli)
	if m.Alone.PaceMS != nil && m.Auto.PaceMS != nil {
		text += fmt.Sprintf("; the machine's pace was %.2f ms, then %.2f ms", *m.Alone.PaceMS, *m.Auto.PaceMS)
	}
	for _, why := range m.Why {
		text += "\n  MISSED: " + why
	}
	return text
}

func (r Result) check() error {
	var errs []error
	for name, m := range r.Programs {
		for _, why := range m.Why {
			errs = append(errs, fmt.Errorf("%s: %s", name, why))
		}
	}
	return errors.Join(errs...)
}

func (r Result) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// client keeps a connection for each worker of the closed loop.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}

// get is one request over HTTP.
func get(ctx context.Context, target string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}
