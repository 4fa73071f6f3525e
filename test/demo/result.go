package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"awarescale.dev/aware/test/apps/load"
)

// Record is the result of one run: the summary, which is its entry in result.json,
// and the series that the report draws. A nil value was never observed.
type Record struct {
	Run     string        `json:"-"`
	Seconds []load.Second `json:"-"`
	Samples []Sample      `json:"-"`

	// From the load generator, which counts from the intended start of each request.
	SLOViolationRatio float64 `json:"slo_violation_ratio"` // of the requests
	P50MS             float64 `json:"p50_ms"`
	P99MS             float64 `json:"p99_ms"`
	Requests          int     `json:"requests"`
	Errors            int     `json:"errors"` // errors, timeouts and requests dropped
	FirstError        string  `json:"first_error,omitempty"`
	SenderLagP99MS    float64 `json:"sender_lag_p99_ms"` // large: the machine was too small for the load

	// Of the whole machine: control plane, load generator, application, and the rest.
	MachineCoresBusy *float64 `json:"machine_cores_busy"`

	// From samples, taken once a second under the load.
	MeanCoresAllocated *float64 `json:"mean_cores_allocated"` // limits in force
	MeanCoresRequested *float64 `json:"mean_cores_requested"`
	MeanCoresUsed      *float64 `json:"mean_cores_used"`
	MeanMemoryMiB      *float64 `json:"mean_memory_mib"` // limits in force
	MeanMemoryUsedMiB  *float64 `json:"mean_memory_used_mib"`
	MeanReplicas       *float64 `json:"mean_replicas"`
	ReplicasMax        *float64 `json:"replicas_max"`

	// Since the application was created, see Counts.
	ResizesL1        int    `json:"resizes_l1"`
	ResizesL1Source  string `json:"resizes_l1_source"`
	ResizesL1Sampled int    `json:"resizes_l1_sampled"`
	ResizesL2        int    `json:"resizes_l2"`
	Restarts         int    `json:"restarts"`
	Evictions        int    `json:"evictions"`

	// Whether all limits in force were the API's after AWARE was uninstalled.
	RestoredOnUninstall *bool `json:"restored_on_uninstall,omitempty"`

	// What was run.
	Trace string  `json:"trace"`
	RPS   float64 `json:"mean_rps"`
	Seed  uint64  `json:"seed"`
	SLOMS float64 `json:"slo_ms"`
	TookS float64 `json:"duration_s"`
}

// sum fills the summary.
func (r *Record) sum(l load.Result, c Counts) {
	r.SLOViolationRatio = l.SLOViolationRatio
	r.P50MS = l.P50MS
	r.P99MS = l.P99MS
	r.Requests = l.Requests
	r.Errors = l.Errors + l.Timeouts + l.Dropped
	r.FirstError = l.FirstError
	r.SenderLagP99MS = l.SenderLagP99MS
	r.SLOMS = l.SLOMS
	r.TookS = l.DurationS

	cores := func(figure func(Sample) *float64) *float64 { return scaled(r.mean(figure), 0.001) }
	r.MeanCoresAllocated = cores(func(s Sample) *float64 { return s.AllocatedMilli })
	r.MeanCoresRequested = cores(func(s Sample) *float64 { return s.RequestedMilli })
	r.MeanCoresUsed = cores(func(s Sample) *float64 { return s.UsedMilli })
	r.MeanMemoryMiB = r.mean(func(s Sample) *float64 { return s.MemoryMiB })
	r.MeanMemoryUsedMiB = r.mean(func(s Sample) *float64 { return s.MemoryUsedMiB })
	r.MeanReplicas = r.mean(func(s Sample) *float64 { return s.Replicas })
	for _, s := range r.Samples {
		if s.Replicas != nil && (r.ReplicasMax == nil || *s.Replicas > *r.ReplicasMax) {
			r.ReplicasMax = s.Replicas
		}
	}
	r.ResizesL1 = c.ResizesL1
	r.ResizesL1Sampled = c.ResizesL1
	r.ResizesL1Source = "sampled"
	r.ResizesL2 = c.ResizesL2
	r.Restarts = c.Restarts
	r.Evictions = c.Evictions
}

// Disturbed reports whether the lag of the load generator is visible in the
// latencies: at its 99th percentile it is above a tenth of the SLO.
func (r *Record) Disturbed() bool { return r.SenderLagP99MS > r.SLOMS/10 }

// mean is the mean over the samples that have the value; nil if none has.
func (r *Record) mean(figure func(Sample) *float64) *float64 {
	sum, n := 0., 0
	for _, s := range r.Samples {
		if v := figure(s); v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return nil
	}
	return known(sum / float64(n))
}

func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	return known(*v * by)
}

// Results is the completed runs, in their order.
type Results struct {
	options options
	trace   string
	records []*Record
}

func newResults(o options) *Results {
	return &Results{
		options: o,
		trace:   fmt.Sprintf("bursty-3min, time x %g, mean %g requests/s", o.timeScale, o.rps),
	}
}

func (r *Results) add(record *Record) {
	record.Trace = r.trace
	record.RPS = r.options.rps
	record.Seed = r.options.seed
	r.records = append(r.records, record)
}

// of returns a run's record, nil when there is none.
func (r *Results) of(run string) *Record {
	for _, record := range r.records {
		if record.Run == run {
			return record
		}
	}
	return nil
}

// write writes result.json and series.json. If no run ended, it keeps the files of an
// earlier demo.
func (r *Results) write(dir string) error {
	if len(r.records) == 0 {
		return nil
	}
	runs, series := map[string]*Record{}, map[string]any{}
	for _, record := range r.records {
		runs[record.Run] = record
		series[record.Run] = map[string]any{"load": record.Seconds, "samples": record.Samples}
	}
	return errors.Join(
		writeJSON(filepath.Join(dir, "result.json"), map[string]any{"runs": runs}),
		writeJSON(filepath.Join(dir, "series.json"), series))
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// columns are the columns of the final table and of the report's table.
var columns = []struct {
	head string
	cell func(*Record) string
}{
	{"RUN", func(r *Record) string { return r.Run }},
	{"SLO VIOLATED", func(r *Record) string { return fmt.Sprintf("%.2f %%", 100*r.SLOViolationRatio) }},
	{"P50 ms", func(r *Record) string { return figure(&r.P50MS, 1) }},
	{"P99 ms", func(r *Record) string { return figure(&r.P99MS, 1) }},
	{"CORES ALLOCATED", func(r *Record) string { return figure(r.MeanCoresAllocated, 2) }},
	{"REQUESTED", func(r *Record) string { return figure(r.MeanCoresRequested, 2) }},
	{"USED", func(r *Record) string { return figure(r.MeanCoresUsed, 2) }},
	{"MEMORY MiB", func(r *Record) string { return figure(r.MeanMemoryMiB, 0) }},
	{"REPLICAS MAX", func(r *Record) string { return figure(r.ReplicasMax, 0) }},
	{"RESIZES L1", func(r *Record) string { return fmt.Sprint(r.ResizesL1) }},
	{"L2", func(r *Record) string { return fmt.Sprint(r.ResizesL2) }},
	{"RESTARTS", func(r *Record) string { return fmt.Sprint(r.Restarts) }},
	{"EVICTIONS", func(r *Record) string { return fmt.Sprint(r.Evictions) }},
	{"REQUESTS", func(r *Record) string { return fmt.Sprint(r.Requests) }},
	{"LAG ms", func(r *Record) string { return figure(&r.SenderLagP99MS, 1) }},
	{"BUSY", func(r *Record) string { return figure(r.MachineCoresBusy, 2) }},
	{"ERRORS", func(r *Record) string { return fmt.Sprint(r.Errors) }},
}

func (r *Results) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i := -1; i < len(r.records); i++ {
		for _, c := range columns {
			if i < 0 {
				fmt.Fprint(w, c.head, "\t")
			} else {
				fmt.Fprint(w, c.cell(r.records[i]), "\t")
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // to a string
	return b.String()
}

// check checks the demo's invariants: what AWARE must do to pods, and what it must
// not do. It does not evaluate AWARE's performance.
func (r *Results) check() error {
	var errs []error
	for _, run := range r.options.runs {
		record := r.of(run)
		if record == nil {
			errs = append(errs, fmt.Errorf("run %s did not end", run))
			continue
		}
		if run != aware {
			continue
		}
		if record.ResizesL1 == 0 {
			errs = append(errs, errors.New("AWARE's agents resized nothing: resizes_l1 is 0, and must be more"))
		}
		if record.ResizesL2 == 0 {
			errs = append(errs,
				errors.New("AWARE resized nothing through the API: resizes_l2 is 0, and must be more"))
		}
		if record.Restarts != 0 {
			errs = append(errs,
				fmt.Errorf("containers restarted under AWARE: restarts is %d, and must be 0", record.Restarts))
		}
		if record.Evictions != 0 {
			errs = append(errs,
				fmt.Errorf("pods were evicted under AWARE: evictions is %d, and must be 0", record.Evictions))
		}
	}
	return errors.Join(errs...)
}
