package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"awarescale.dev/aware/test/apps/load"
)

// Record is the result of one slice: the summary, which is its entry in result.json,
// and the series that the report draws. A nil value was never observed.
type Record struct {
	Run       string        `json:"-"`
	Neighbour bool          `json:"neighbour"` // a pod that burns a core in bursts ran beside it
	Seconds   []load.Second `json:"-"`
	Samples   []Sample      `json:"-"`
	Paces     []Pace        `json:"-"` // of the machine

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
	// How many times as much CPU time a piece of work took as when the load was fitted: what others of the machine's host do.
	Slowdown *float64 `json:"machine_slowdown"`
	Tries    int      `json:"tries"` // of the slice; the one in which the machine was fastest counts

	// From samples, taken once a second under the load.
	MeanCoresAllocated *float64 `json:"mean_cores_allocated"` // limits in force
	MeanCoresRequested *float64 `json:"mean_cores_requested"`
	MeanCoresUsed      *float64 `json:"mean_cores_used"`
	MeanMemoryMiB      *float64 `json:"mean_memory_mib"` // limits in force
	MeanMemoryUsedMiB  *float64 `json:"mean_memory_used_mib"`
	MeanMemoryRequest  *float64 `json:"mean_memory_requested_mib"`
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

	// AWARE's policy at the end of the slice, and the stage of its agent; empty without AWARE.
	Policy string `json:"policy,omitempty"`

	// What the simulated world says of the slice; nil where it does not simulate it.
	Predicted *Predicted `json:"predicted,omitempty"`

	// What was run.
	Trace      string  `json:"trace"`
	RPS        float64 `json:"mean_rps"`
	Seed       uint64  `json:"seed"`
	SLOMS      float64 `json:"slo_ms"`
	TookS      float64 `json:"duration_s"`
	LimitMilli int     `json:"template_limit_millicores"` // of one replica
}

// name is the run's name in the results.
func (r *Record) name() string { return slice{run: r.Run, neighbour: r.Neighbour}.name() }

// brief is the record in a few words.
func (r *Record) brief() string {
	return fmt.Sprintf("%.2f %% over the SLO, %s cores in force, %s requested", 100*r.SLOViolationRatio,
		figure(r.MeanCoresAllocated, 2), figure(r.MeanCoresRequested, 2))
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
	r.MeanMemoryRequest = r.mean(func(s Sample) *float64 { return s.RequestedMiB })
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

// predicted is a figure of the simulated world; nil where it does not simulate the slice.
func (r *Record) predicted(figure func(Predicted) float64) *float64 {
	if r.Predicted == nil {
		return nil
	}
	return known(figure(*r.Predicted))
}

func scaled(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	return known(*v * by)
}

// Results is the completed slices, in their order.
type Results struct {
	options options
	fit     fit
	trace   string
	records []*Record
}

func newResults(o options, f fit) *Results {
	return &Results{
		options: o,
		fit:     f,
		trace:   fmt.Sprintf("%s, time x %g, mean %.1f requests/s", o.shaped(), o.timeScale, f.RPS),
	}
}

func (r *Results) add(record *Record) {
	record.Trace = r.trace
	record.RPS = r.fit.RPS
	r.records = append(r.records, record)
}

// of returns a run's records of that name, one for each seed.
func (r *Results) of(name string) []*Record {
	var all []*Record
	for _, record := range r.records {
		if record.name() == name {
			all = append(all, record)
		}
	}
	return all
}

// names are the runs of which there are records, in the order of the report.
func (r *Results) names() []string {
	var names []string
	for _, neighbour := range []bool{false, true} {
		for _, run := range allRuns {
			if name := (slice{run: run, neighbour: neighbour}).name(); len(r.of(name)) > 0 {
				names = append(names, name)
			}
		}
	}
	return names
}

// meanMilli is the CPU limit with which two static replicas have what a run of AWARE had in force in
// the mean of its slices until now.
func (r *Results) meanMilli(run string, neighbour bool) (int, error) {
	sum, n := 0., 0
	for _, record := range r.of(slice{run: run, neighbour: neighbour}.name()) {
		if record.MeanCoresAllocated != nil {
			sum, n = sum+*record.MeanCoresAllocated, n+1
		}
	}
	if n == 0 {
		return 0, errors.New("AWARE's mean is not known yet: its limits were never read")
	}
	return int(math.Round(1000 * sum / float64(n) / 2)), nil
}

// writeAll writes all files of what there is until now.
func (r *Results) writeAll(dir string) error {
	if len(r.records) == 0 {
		return nil // the files of an earlier demo stay
	}
	return errors.Join(r.write(dir), writeReport(dir, r), writeSummary(dir, r))
}

// write writes result.json and series.json.
func (r *Results) write(dir string) error {
	runs, series := map[string][]*Record{}, map[string][]any{}
	for _, name := range r.names() {
		runs[name] = r.of(name)
		for _, record := range runs[name] {
			series[name] = append(series[name], map[string]any{
				"seed": record.Seed, "load": record.Seconds, "samples": record.Samples, "machine": record.Paces,
			})
		}
	}
	return errors.Join(
		writeJSON(filepath.Join(dir, "result.json"), map[string]any{"runs": runs, "fit": r.fit, "claims": r.claims()}),
		writeJSON(filepath.Join(dir, "series.json"), series))
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}

// column is a column of the final table and of the report's table.
type column struct {
	head   string
	value  func(*Record) *float64
	digits int
	unit   string
	spread bool // beside the mean over the seeds: the lowest and the highest value
}

var columns = []column{
	{"SLO VIOLATED", func(r *Record) *float64 { return known(100 * r.SLOViolationRatio) }, 2, " %", true},
	{"P50 ms", func(r *Record) *float64 { return &r.P50MS }, 1, "", false},
	{"P99 ms", func(r *Record) *float64 { return &r.P99MS }, 0, "", true},
	{"CORES ALLOCATED", func(r *Record) *float64 { return r.MeanCoresAllocated }, 2, "", true},
	{"REQUESTED", func(r *Record) *float64 { return r.MeanCoresRequested }, 2, "", true},
	{"PREDICTED", func(r *Record) *float64 {
		return r.predicted(func(p Predicted) float64 { return p.MeanCoresAllocated })
	}, 2, "", false},
	{"PREDICTED LATE", func(r *Record) *float64 {
		return r.predicted(func(p Predicted) float64 { return 100 * p.SLOViolationRatio })
	}, 2, " %", false},
	{"USED", func(r *Record) *float64 { return r.MeanCoresUsed }, 2, "", false},
	{"MEMORY MiB", func(r *Record) *float64 { return r.MeanMemoryMiB }, 0, "", false},
	{"REQUESTED", func(r *Record) *float64 { return r.MeanMemoryRequest }, 0, "", false},
	{"REPLICAS", func(r *Record) *float64 { return r.MeanReplicas }, 1, "", false},
	{"RESIZES AGENT", func(r *Record) *float64 { return known(float64(r.ResizesL1)) }, 0, "", false},
	{"API", func(r *Record) *float64 { return known(float64(r.ResizesL2)) }, 0, "", false},
	{"RESTARTS", func(r *Record) *float64 { return known(float64(r.Restarts)) }, 0, "", false},
	{"EVICTIONS", func(r *Record) *float64 { return known(float64(r.Evictions)) }, 0, "", false},
	{"REQUESTS", func(r *Record) *float64 { return known(float64(r.Requests)) }, 0, "", false},
	{"ERRORS", func(r *Record) *float64 { return known(float64(r.Errors)) }, 0, "", false},
	{"LAG ms", func(r *Record) *float64 { return &r.SenderLagP99MS }, 1, "", false},
	{"BUSY", func(r *Record) *float64 { return r.MachineCoresBusy }, 2, "", false},
	{"SLOWER", func(r *Record) *float64 { return r.Slowdown }, 2, "", true},
}

// over is a value's mean over records, and its range; nil where no record has it.
func over(all []*Record, value func(*Record) *float64) (mean, lowest, highest *float64) {
	sum, n := 0., 0
	for _, record := range all {
		v := value(record)
		if v == nil {
			continue
		}
		sum, n = sum+*v, n+1
		if lowest == nil || *v < *lowest {
			lowest = v
		}
		if highest == nil || *v > *highest {
			highest = v
		}
	}
	if n == 0 {
		return nil, nil, nil
	}
	return known(sum / float64(n)), lowest, highest
}

func (c column) cell(all []*Record) string {
	mean, lowest, highest := over(all, c.value)
	if mean == nil {
		return "-"
	}
	text := figure(mean, c.digits)
	if c.spread && len(all) > 1 {
		text += " (" + figure(lowest, c.digits) + "-" + figure(highest, c.digits) + ")"
	}
	return text + c.unit
}

// heads and cells are the table: a row for each run, over its seeds.
func heads() []string {
	all := []string{"RUN"}
	for _, c := range columns {
		all = append(all, c.head)
	}
	return all
}

func (r *Results) cells() [][]string {
	var rows [][]string
	for _, name := range r.names() {
		row := []string{name}
		for _, c := range columns {
			row = append(row, c.cell(r.of(name)))
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *Results) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range append([][]string{heads()}, r.cells()...) {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush() // to a string
	for _, c := range r.claims() {
		if !c.Holds {
			beside := ""
			if c.Neighbour {
				beside = ", with the neighbour"
			}
			fmt.Fprintf(&b, "NOT SO, seed %d%s: %s: %s\n", c.Seed, beside, c.Claim, c.Why)
		}
	}
	return b.String()
}

// Claim is what AWARE is to be better at, in one round.
type Claim struct {
	Seed      uint64 `json:"seed"`
	Neighbour bool   `json:"neighbour"`
	Claim     string `json:"claim"`
	Holds     bool   `json:"holds"`
	Why       string `json:"why"` // the two figures
}

// none is the share of requests over the SLO below which runs are equal.
const none = 0.001

// claims compares AWARE with the others, slice by slice: in the same round, with the same
// arrivals.
func (r *Results) claims() []Claim {
	claims := []Claim{}
	for _, own := range r.records {
		if !withAWARE(own.Run) {
			continue
		}
		who := ""
		if own.Run != aware {
			who = own.Run + " has "
		}
		if own.Run == learned { // or its figures are the rule's
			claims = append(claims, Claim{
				own.Seed, own.Neighbour, learned + " is decided by what was learned",
				strings.HasPrefix(own.Policy, "policy learned/"), own.Policy,
			})
		}
		for _, run := range []string{hpaVPA, hpaVPA30, cpuFast, atMean, atLearned} {
			if whose := meanOf(run); whose != "" && own.Run != whose {
				continue // it is not at that run's mean
			}
			other := r.slice(slice{run, own.Seed, own.Neighbour})
			if other == nil {
				continue
			}
			add := func(holds bool, what, format string, a, b any) {
				claim := who + what + " than " + run
				claims = append(claims, Claim{own.Seed, own.Neighbour, claim, holds, fmt.Sprintf(format, a, b)})
			}
			a, b := own.SLOViolationRatio, other.SLOViolationRatio
			add(a < b || a < none && b < none, "fewer requests over the SLO", "%.3f against %.3f", a, b)
			if meanOf(run) != "" {
				continue
			}
			compare := func(what string, a, b *float64, equal bool) {
				if a != nil && b != nil {
					add(*a < *b || equal && *a == *b, what, "%.3f against %.3f", *a, *b)
				}
			}
			compare("fewer cores in force", own.MeanCoresAllocated, other.MeanCoresAllocated, false)
			if own.Run == learned && run == hpaVPA {
				compare("a quarter fewer cores in force", own.MeanCoresAllocated, scaled(other.MeanCoresAllocated, 0.75), true)
			}
			compare("no more cores requested", own.MeanCoresRequested, other.MeanCoresRequested, true)
			compare("no more memory requested", own.MeanMemoryRequest, other.MeanMemoryRequest, true)
		}
	}
	return claims
}

// slice is the record of a slice, nil when there is none.
func (r *Results) slice(s slice) *Record {
	for _, record := range r.of(s.name()) {
		if record.Seed == s.seed {
			return record
		}
	}
	return nil
}

// check checks the demo's invariants: what AWARE must do to pods, and what it must
// not do. It does not evaluate AWARE's performance: see claims.
func (r *Results) check() error {
	var errs []error
	for _, slice := range r.options.slices() {
		record := r.slice(slice)
		no := func(bad bool, format string, args ...any) {
			if bad {
				errs = append(errs, fmt.Errorf("run %s, seed %d: %s", slice.name(), slice.seed, fmt.Sprintf(format, args...)))
			}
		}
		no(record == nil, "it did not end")
		if !withAWARE(slice.run) || record == nil {
			continue
		}
		no(record.ResizesL1 == 0, "AWARE's agents resized nothing: resizes_l1 is 0, and must be more")
		no(record.ResizesL2 == 0, "AWARE resized nothing through the API: resizes_l2 is 0, and must be more")
		no(record.Restarts != 0, "containers restarted under AWARE: restarts is %d, and must be 0", record.Restarts)
		no(record.Evictions != 0, "pods were evicted under AWARE: evictions is %d, and must be 0", record.Evictions)
	}
	return errors.Join(errs...)
}
