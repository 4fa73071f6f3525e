package calibrate

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// folds is how many parts a data set is cut into; each is held out once.
const folds = 5

// Result is all that a validation found. Its JSON keys are part of the
// command's interface.
type Result struct {
	Cilantro     CilantroResult     `json:"cilantro"`
	Time         TimeResult         `json:"time"`
	Interference InterferenceResult `json:"interference"`
}

// Rank is how well an order and a size are predicted on held-out windows; nil
// is "not measured".
type Rank struct {
	Spearman  *float64 `json:"spearman"`
	MedianAPE *float64 `json:"median_ape"`
	Held      int      `json:"held_out"`
	// Mechanism is the same without the local correction.
	Mechanism *Rank           `json:"mechanism_alone,omitempty"`
	Groups    map[string]Rank `json:"by_group,omitempty"`
	points    []Point
}

// CilantroResult is about an application under allocations that policies chose.
type CilantroResult struct {
	Reason string `json:"reason,omitempty"` // why there is no figure
	// ByPolicy is the simulated world, fitted to all policies but the one that it
	// predicts.
	ByPolicy Judged `json:"by_policy"`
	// Beside are other predictors on the same windows.
	Beside      map[string]Judged `json:"beside,omitempty"`
	Application string            `json:"application,omitempty"` // that is simulated
	Compiled    bool              `json:"application_is_compiled_in"`
	WorldReason string            `json:"world_reason,omitempty"` // why the world has no figure
	Audit       map[string]Audit  `json:"audit,omitempty"`        // of the records of each policy
	Regression  RegressionResult  `json:"regression"`
	Dropped     int               `json:"dropped_rows"` // p99 of 0
	records     []Point           // of each window: standard deviation and p99
}

// RegressionResult is about a formula of the p99 that reads the completed rate
// of the window that it predicts. So it is no prediction of what an allocation
// does.
type RegressionResult struct {
	Random   Rank           `json:"random"`
	ByPolicy Rank           `json:"by_policy"`
	Refused  int            `json:"rows_below_their_mean"`
	Fit      *LoopConstants `json:"fitted_to_all,omitempty"`
}

// LoopConstants are the fitted constants of the closed loop, for the simulator.
type LoopConstants struct {
	OfferedPerSecond *float64            `json:"offered_per_s"`
	Clients          *float64            `json:"clients"`
	ThinkSeconds     *float64            `json:"think_s"`
	QuietMeanMillis  *float64            `json:"unsaturated_mean_ms"`
	QuietP99Millis   *float64            `json:"unsaturated_p99_ms"`
	Spread           *float64            `json:"saturated_p99_over_mean"`
	CeilingSeconds   *float64            `json:"ceiling_s"`
	DemandAtMost     map[string]*float64 `json:"demand_at_most_ms"`
}

// TimeResult is about how long runs take under other sizes.
type TimeResult struct {
	Reason      string              `json:"reason,omitempty"`
	MAPE        *float64            `json:"mape"`
	Held        int                 `json:"held_out"`
	Unpredicted int                 `json:"not_predicted"` // held-out runs of a family with no other run
	Dropped     int                 `json:"dropped_rows"`  // succeeded in 0 ms
	Sets        map[string]*float64 `json:"by_set,omitempty"`
	Absent      []string            `json:"absent,omitempty"`
	// ByCPU holds out whole CPU limits at a time, a harder question.
	ByCPU    *float64             `json:"mape_by_cpu"`
	Failures *FailureResult       `json:"failures,omitempty"`
	Families map[string]TimeShape `json:"fitted_to_all,omitempty"`
	points   []Point
}

// FailureResult is how well failures are predicted from memory alone.
type FailureResult struct {
	Accuracy *float64 `json:"accuracy"`
	Recall   *float64 `json:"recall"`
	Held     int      `json:"held_out"`
	Failed   int      `json:"failed"`
}

// TimeShape is what the series of a family share.
type TimeShape struct {
	Parallel *float64 `json:"parallel"` // cores; null when there is no end to it
	Throttle float64  `json:"throttle"`
	Floor    *float64 `json:"floor_share"` // of the time on one core that no CPU shortens: median over the series
}

// Options say how much is validated.
type Options struct {
	Seed uint64 // of the splits and of the simulated world
	// Windows is how many windows of each policy are simulated, evenly over its
	// time; 0 leaves the simulated world out. 100 take some minutes.
	Windows int
}

// Validate fits on one part of the data and predicts another. progress is
// called with a short line for each part.
func Validate(d Data, o Options, progress func(string)) (*Result, error) {
	if o.Windows < 0 {
		return nil, fmt.Errorf("windows %d: it must not be negative", o.Windows)
	}
	in, err := load(d)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	progress(fmt.Sprintf("closed loop: %d windows, %d services", len(in.windows.Rows), len(in.windows.Services)))
	r.Cilantro = validateLoop(in, o, progress)
	progress(fmt.Sprintf("time: %d runs", len(in.runs)))
	r.Time = validateTime(in, o.Seed)
	progress(fmt.Sprintf("interference: %d runs, %d runs with threads", len(in.contended), len(in.threaded)))
	r.Interference = validateContention(in)
	return r, nil
}

// inputs are the data sets that were found.
type inputs struct {
	windows   Windows
	runs      []Run
	contended []Contended
	threaded  []Threaded
	absent    map[string]bool // by file
	from      Data
}

// load reads whatever is there, and fails on the first file that is not well
// formed, or when nothing is there.
func load(d Data) (*inputs, error) {
	in := &inputs{absent: map[string]bool{}, from: d}
	var chunkfunc, lambda []Run
	err := firstError(
		into(in, d, cilantroFile, ReadCilantro, &in.windows),
		into(in, d, chunkfuncFile, ReadChunkfunc, &chunkfunc),
		into(in, d, lambdaFile, ReadLambda, &lambda),
		into(in, d, parsecFile, ReadParsec, &in.contended),
		into(in, d, threadsFile, ReadThreads, &in.threaded))
	if err != nil {
		return nil, err
	}
	in.runs = slices.Concat(chunkfunc, lambda)
	if len(in.absent) == 5 {
		return nil, fmt.Errorf("data: nothing to validate with in %s: none of %s, %s, %s, %s is there",
			d, cilantroFile, chunkfuncFile, lambdaFile, parsecFile)
	}
	return in, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (in *inputs) why(files ...string) string {
	for _, f := range files {
		if !in.absent[f] {
			return ""
		}
	}
	if in.from.dir == "" {
		return "not shipped with AWARE (its licences do not let it); give it with --data"
	}
	return fmt.Sprintf("absent: %v in %s", files, in.from)
}

// deal gives each of n things a fold at random, as even as can be.
func deal(n int, seed uint64) []int {
	out := make([]int, n)
	for i, j := range rand.New(rand.NewPCG(seed, 0x5eed)).Perm(n) {
		out[j] = i % folds
	}
	return out
}

func validateLoop(in *inputs, o Options, progress func(string)) CilantroResult {
	r := CilantroResult{Reason: in.why(cilantroFile), Dropped: in.windows.Dropped}
	rows := in.windows.Rows
	if r.Reason == "" && len(rows) < 2 {
		r.Reason = fmt.Sprintf("%d rows with a p99 are too few to hold some out", len(rows))
	}
	if r.Reason != "" {
		return r
	}
	r.Audit = map[string]Audit{}
	for policy, of := range choose(rows, len(rows)) {
		r.Audit[policy] = audit(of)
	}
	for _, w := range rows {
		if w.Deviation > 0 {
			r.records = append(r.records, Point{w.Policy, w.Deviation, w.P99})
		}
	}
	dealt := deal(len(rows), o.Seed)
	g := &r.Regression
	g.Random = crossLoop(rows, func(i int) string { return fmt.Sprint(dealt[i]) })
	g.ByPolicy = crossLoop(rows, func(i int) string { return rows[i].Policy })
	all := fitLoop(rows)
	g.Refused, g.Fit = all.refused, constants(all.client, rows, in.windows.Services)
	switch {
	case g.ByPolicy.Held == 0:
		r.Reason = "by_policy: there is one policy only, so none can be left out"
		r.WorldReason = r.Reason
	case o.Windows == 0:
		r.WorldReason = "no windows were to be simulated"
	default:
		if err := judgeWorld(&r, rows, in.windows.Services, o, progress); err != nil {
			r.WorldReason = err.Error() // data of another kind: the other figures stand
		}
	}
	return r
}

func constants(c perfmodel.Loop, rows []Window, services []string) *LoopConstants {
	return &LoopConstants{
		OfferedPerSecond: figure(c.Offered()),
		Clients:          figure(c.Clients),
		ThinkSeconds:     figure(c.Think),
		QuietMeanMillis:  figure(1000 * c.Alone),
		QuietP99Millis:   figure(1000 * c.Quiet),
		Spread:           figure(c.Spread),
		CeilingSeconds:   figure(c.Ceiling),
		DemandAtMost:     demands(rows, services, c),
	}
}

// crossLoop holds out each part in turn and pools what is predicted for it by a
// model of the others.
func crossLoop(rows []Window, part func(int) string) Rank {
	parts := map[string][]int{}
	for i := range rows {
		parts[part(i)] = append(parts[part(i)], i)
	}
	var full, bare []Point
	for _, p := range names(parts) {
		fitting := others(rows, part, p)
		if len(fitting) == 0 {
			continue
		}
		m := fitLoop(fitting)
		for _, i := range parts[p] {
			w := rows[i]
			full = append(full, Point{w.Policy, w.P99, m.p99(w)})
			bare = append(bare, Point{w.Policy, w.P99, m.mechanism(w)})
		}
	}
	r, alone := ranked(full), ranked(bare)
	r.Mechanism, r.Groups = &alone, map[string]Rank{}
	for g, points := range grouped(full) {
		r.Groups[g] = ranked(points)
	}
	r.points = full
	return r
}

func others(rows []Window, part func(int) string, held string) []Window {
	var out []Window
	for i, w := range rows {
		if part(i) != held {
			out = append(out, w)
		}
	}
	return out
}

func ranked(points []Point) Rank {
	return Rank{Spearman: spearman(points), MedianAPE: medianAPE(points), Held: len(points)}
}

func grouped(points []Point) map[string][]Point {
	out := map[string][]Point{}
	for _, p := range points {
		out[p.Group] = append(out[p.Group], p)
	}
	return out
}

// family names the runs that are fitted together.
func (r Run) family() string { return r.Set + " " + r.Family }

type size struct{ cpu, memory float64 }

func validateTime(in *inputs, seed uint64) TimeResult {
	r := TimeResult{Reason: in.why(chunkfuncFile, lambdaFile)}
	for _, f := range []string{chunkfuncFile, lambdaFile} {
		if in.absent[f] {
			r.Absent = append(r.Absent, f)
		}
	}
	if r.Reason != "" {
		return r
	}
	families := map[string][]Run{}
	for _, run := range in.runs {
		if !run.Failed && run.Millis == 0 {
			r.Dropped++
			continue
		}
		families[run.family()] = append(families[run.family()], run)
	}
	var held, byCPU []Point
	var fails failures
	r.Families = map[string]TimeShape{}
	for _, name := range names(families) {
		runs := families[name]
		bySize := sizeFolds(runs, seed)
		points, lost := crossTime(runs, bySize)
		held, r.Unpredicted = append(held, points...), r.Unpredicted+lost
		points, _ = crossTime(runs, cpuFolds(runs))
		byCPU = append(byCPU, points...)
		fails.cross(runs, bySize)
		if f := fitFamily(successes(runs)); f != nil {
			r.Families[name] = TimeShape{figure(f.parallel), f.throttle, f.floorShare()}
		}
	}
	r.MAPE, r.ByCPU, r.Held, r.points, r.Failures = mape(held), mape(byCPU), len(held), held, fails.result()
	r.Sets = map[string]*float64{}
	for set, points := range grouped(held) {
		r.Sets[set] = mape(points)
	}
	if r.MAPE == nil {
		r.Reason = "no function has successful runs under two sizes or more, so none can be left out"
	}
	return r
}

// sizeFolds deals the sizes of a family to the folds: from small to large, each
// run of five sizes in an order of its own drawn from the seed. So each size is
// held out once, with every run under it, the smallest and the largest too.
func sizeFolds(runs []Run, seed uint64) func(Run) int {
	sizes := map[size]bool{}
	for _, r := range runs {
		sizes[size{r.CPU, r.Memory}] = true
	}
	var order []size
	for s := range sizes {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b size) int {
		if c := compare(a.cpu, b.cpu); c != 0 {
			return c
		}
		return compare(a.memory, b.memory)
	})
	random := rand.New(rand.NewPCG(seed, 0x512e))
	fold := map[size]int{}
	for block := range slices.Chunk(order, folds) {
		for i, k := range random.Perm(folds)[:len(block)] {
			fold[block[i]] = k
		}
	}
	return func(r Run) int { return fold[size{r.CPU, r.Memory}] }
}

// cpuFolds holds out each CPU limit in turn.
func cpuFolds(runs []Run) func(Run) int {
	var cpus []float64
	for _, r := range runs {
		cpus = append(cpus, r.CPU)
	}
	cpus = distinct(cpus)
	return func(r Run) int { i, _ := slices.BinarySearch(cpus, r.CPU); return i }
}

func successes(runs []Run) []Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Failed })
}

// crossTime predicts the successful runs of each fold from those of the others;
// the second result counts those that could not be predicted.
func crossTime(runs []Run, fold func(Run) int) (points []Point, lost int) {
	ok := successes(runs)
	for _, k := range foldsOf(ok, fold) {
		f := fitFamily(slices.DeleteFunc(slices.Clone(ok), func(r Run) bool { return fold(r) == k }))
		for _, r := range ok {
			if fold(r) != k {
				continue
			}
			if t, found := f.millis(r); found {
				points = append(points, Point{r.Set, r.Millis, t})
			} else {
				lost++
			}
		}
	}
	return points, lost
}

func foldsOf(runs []Run, fold func(Run) int) []int {
	var ks []int
	for _, r := range runs {
		ks = append(ks, fold(r))
	}
	slices.Sort(ks)
	return slices.Compact(ks)
}

// failures counts predictions of failure on held-out sizes.
type failures struct{ held, right, failed, found int }

func (f *failures) cross(runs []Run, fold func(Run) int) {
	series := map[string][]Run{}
	for _, r := range runs {
		series[r.Series] = append(series[r.Series], r)
	}
	for _, name := range names(series) {
		for _, k := range foldsOf(series[name], fold) {
			limit := cliff(slices.DeleteFunc(slices.Clone(series[name]), func(r Run) bool { return fold(r) == k }))
			for _, r := range series[name] {
				if fold(r) == k {
					f.count(r.Failed, r.Memory < limit)
				}
			}
		}
	}
}

func (f *failures) count(failed, predicted bool) {
	f.held++
	if failed == predicted {
		f.right++
	}
	if failed {
		f.failed++
		if predicted {
			f.found++
		}
	}
}

func (f *failures) result() *FailureResult {
	return &FailureResult{
		Accuracy: figure(float64(f.right) / float64(f.held)),
		Recall:   figure(float64(f.found) / float64(f.failed)),
		Held:     f.held,
		Failed:   f.failed,
	}
}
