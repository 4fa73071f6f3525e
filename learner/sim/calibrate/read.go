package calibrate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// The measurements, and their folders and files.
const (
	cilantroFile  = "cilantro-hotelres/hotelres_measurements.csv"
	chunkfuncFile = "chunkfunc-memory-profiles/profiles.csv"
	lambdaFile    = "aws-lambda-memory/s3_writer_runtimes.csv"
	parsecFile    = "parsec-ibench-interference/parsec_interference.csv"
	threadsFile   = "parsec-ibench-interference/parsec_threads.csv"
)

// Window is one measured interval of an application under closed-loop load.
type Window struct {
	Policy string  // the policy that allocated
	Load   float64 // completed requests
	Length float64 // seconds
	Mean   float64 // mean latency in ms; used only in the fitted part
	P99    float64 // latency in ms
	// Deviation is the standard deviation of the latency in ms; 0 when it is not
	// known. It is not used for predictions.
	Deviation float64
	Alloc     []float64 // cores of each service, in the order of [Windows.Services]
}

// Rate is the number of completed requests per second. The load is counted over
// whole seconds, and the logger writes the row a few tenths of a second later:
// windows of 30.05 s and 30.55 s have the same load, with a difference of 0.01
// %. Therefore a length of a second or more is rounded down to whole seconds.
func (w Window) Rate() float64 {
	if w.Length >= 1 {
		return w.Load / math.Floor(w.Length)
	}
	return w.Load / w.Length
}

// Windows are the rows of a file in Cilantro's format.
type Windows struct {
	Services []string
	Rows     []Window
	Dropped  int // rows with a p99 of 0: no request was measured, and no relative error exists
}

// ReadCilantro reads columns policy, event_start_time and event_end_time (s),
// load (requests), avg_latency and p99 (ms), and alloc_<service> (cores) for
// any number of services. A column stddev_latency (ms) may be there.
func ReadCilantro(file string, in io.Reader) (Windows, error) {
	t, err := readTable(file, in, "policy", "event_start_time", "event_end_time", "load", "avg_latency", "p99")
	if err != nil {
		return Windows{}, err
	}
	columns := t.prefixed("alloc_")
	if len(columns) == 0 {
		return Windows{}, &BadData{
			File:   file,
			Line:   1,
			Column: "alloc_*",
			Reason: "there is no column of an allocation",
		}
	}
	rows, err := eachRow(t, func(r *row) Window { return window(r, columns) })
	if err != nil {
		return Windows{}, err
	}
	w := Windows{}
	for _, c := range columns {
		w.Services = append(w.Services, strings.TrimPrefix(c, "alloc_"))
	}
	for _, r := range rows {
		if r.P99 == 0 {
			w.Dropped++
			continue
		}
		w.Rows = append(w.Rows, r)
	}
	return w, nil
}

func window(r *row, columns []string) Window {
	start, end := r.number("event_start_time"), r.number("event_end_time")
	if r.err == nil && end <= start {
		r.fail("event_end_time", r.raw("event_end_time"), "is not after event_start_time "+r.raw("event_start_time"))
	}
	w := Window{Policy: r.text("policy"), Length: end - start, Load: r.number("load"),
		Mean: r.number("avg_latency"), P99: r.number("p99")}
	if v, err := strconv.ParseFloat(r.raw("stddev_latency"), 64); err == nil && v > 0 && v <= most {
		w.Deviation = v // Cilantro writes -1 when it did not find the figure
	}
	for _, c := range columns {
		w.Alloc = append(w.Alloc, r.number(c))
	}
	return w
}

// Run is one measured run of a function under a size.
type Run struct {
	Set    string  // data set
	Family string  // runs that share how they use CPUs: a function, on one architecture
	Series string  // runs of the same work in the family: an input size, warm or cold, a version
	Input  float64 // bytes; 0 when unknown
	Memory float64 // bytes
	CPU    float64 // cores
	Millis float64
	Failed bool
}

const mebi = 1 << 20

// ReadChunkfunc reads columns provider, function, memory_mib, milli_cpu,
// input_size_bytes, execution_time_ms and status_code (200 is a success;
// anything else has failed and its time is not that of a run).
func ReadChunkfunc(file string, in io.Reader) ([]Run, error) {
	t, err := readTable(file, in,
		"provider", "function", "memory_mib", "milli_cpu", "input_size_bytes", "execution_time_ms", "status_code")
	if err != nil {
		return nil, err
	}
	return eachRow(t, func(r *row) Run {
		run := Run{
			Set:    "chunkfunc",
			Family: r.text("provider") + " " + r.text("function"),
			Input:  r.number("input_size_bytes"),
			Memory: r.positive("memory_mib") * mebi,
			CPU:    r.positive("milli_cpu") / 1000,
			Millis: r.number("execution_time_ms"),
			Failed: r.number("status_code") != 200,
		}
		run.Series = fmt.Sprintf("%.0f bytes", run.Input)
		return run
	})
}

// ReadLambda reads columns snapshot, runtime, architecture, memory_mb,
// duration_ms and init_duration_ms (empty when the instance was warm). Lambda's
// CPU follows from its memory: [perfmodel.LambdaCores].
func ReadLambda(file string, in io.Reader) ([]Run, error) {
	t, err := readTable(file, in, "snapshot", "runtime", "architecture", "memory_mb", "duration_ms", "init_duration_ms")
	if err != nil {
		return nil, err
	}
	return eachRow(t, func(r *row) Run {
		memory, start := r.positive("memory_mb"), "warm"
		if r.raw("init_duration_ms") != "" {
			r.number("init_duration_ms")
			start = "cold"
		}
		return Run{Set: "lambda", Family: r.text("runtime") + " " + r.text("architecture"),
			Series: r.text("snapshot") + " " + start, Memory: memory * mebi, CPU: perfmodel.LambdaCores(memory),
			Millis: r.number("duration_ms")}
	})
}

// Contended is one run of a workload with a neighbour that puts pressure on one
// shared resource.
type Contended struct {
	Team     string
	Workload string
	Resource perfmodel.Shared // alone without a neighbour
	Seconds  float64
}

// alone is the value of the column interference for a run without a neighbour.
const alone perfmodel.Shared = "none"

// ReadParsec reads columns source (the team), workload, interference and
// real_s.
func ReadParsec(file string, in io.Reader) ([]Contended, error) {
	t, err := readTable(file, in, "source", "workload", "interference", "real_s")
	if err != nil {
		return nil, err
	}
	return eachRow(t, func(r *row) Contended {
		return Contended{r.text("source"), r.text("workload"), perfmodel.Shared(r.text("interference")), r.positive("real_s")}
	})
}

// Threaded is one run of a workload on a number of threads.
type Threaded struct {
	Team     string
	Workload string
	Threads  float64
	Seconds  float64
}

// ReadThreads reads columns source (the team), workload, threads and real_s.
func ReadThreads(file string, in io.Reader) ([]Threaded, error) {
	t, err := readTable(file, in, "source", "workload", "threads", "real_s")
	if err != nil {
		return nil, err
	}
	return eachRow(t, func(r *row) Threaded {
		return Threaded{r.text("source"), r.text("workload"), r.positive("threads"), r.positive("real_s")}
	})
}
