package calibrate

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

const (
	goodCilantro = "policy,event_start_time,event_end_time,load,avg_latency,p99,alloc_a\n"
	goodChunk    = "provider,function,memory_mib,milli_cpu,input_size_bytes,execution_time_ms,status_code\n"
	goodLambda   = "snapshot,runtime,architecture,memory_mb,duration_ms,init_duration_ms\n"
	goodParsec   = "source,workload,interference,real_s\n"
)

func TestErrorNamesTheBadData(t *testing.T) {
	cilantro := func(s string) error { _, err := ReadCilantro("f.csv", strings.NewReader(s)); return err }
	chunk := func(s string) error { _, err := ReadChunkfunc("f.csv", strings.NewReader(s)); return err }
	lambda := func(s string) error { _, err := ReadLambda("f.csv", strings.NewReader(s)); return err }
	parsec := func(s string) error { _, err := ReadParsec("f.csv", strings.NewReader(s)); return err }
	threads := func(s string) error { _, err := ReadThreads("f.csv", strings.NewReader(s)); return err }
	for _, c := range []struct {
		name, text string
		read       func(string) error
		want       string
	}{
		{"empty file", "", cilantro, `f.csv: the file is empty; its first row should name the columns`},
		{"no rows", goodLambda, lambda, `f.csv:1: there is a header and no row below it`},
		{
			"missing column", "source,workload,real_s\na,b,1\n", parsec,
			`f.csv:1: column "interference": the column is missing; there are source, workload, real_s`,
		},
		{
			"no allocation", "policy,event_start_time,event_end_time,load,avg_latency,p99\np,1,2,3,4,5\n",
			cilantro, `f.csv:1: column "alloc_*": there is no column of an allocation`,
		},
		{
			"not a number", goodCilantro + "p,1,31,5,6,7,1\np,31,61,five,6,7,1\n", cilantro,
			`f.csv:3: column "load": "five": is not a number`,
		},
		{"not finite", goodCilantro + "p,1,31,5,6,NaN,1\n", cilantro, `f.csv:2: column "p99": "NaN": is not a number`},
		{"out of range", goodCilantro + "p,1,31,1e300,6,7,1\n", cilantro, `f.csv:2: column "load": "1e300": is out of range`},
		{"negative", goodCilantro + "p,1,31,5,6,7,-1\n", cilantro, `f.csv:2: column "alloc_a": "-1": is negative`},
		{
			"ends before it starts", goodCilantro + "p,31,1,5,6,7,1\n", cilantro,
			`f.csv:2: column "event_end_time": "1": is not after event_start_time 31`,
		},
		{
			"truncated row", goodChunk + "a,b,128,1000,1\n", chunk,
			`f.csv:2: column "input_size_bytes": "1": the row ends after 5 fields, the header names 7`,
		},
		{"no CPU", goodChunk + "a,b,128,0,1,1,200\n", chunk, `f.csv:2: column "milli_cpu": "0": is not above 0`},
		{"empty name", goodLambda + ",r,a,128,1,\n", lambda, `f.csv:2: column "snapshot": is empty`},
		{"column twice", "source,source\n", parsec, `f.csv:1: column "source": the column is there twice`},
		{"no threads", "source,workload,threads,real_s\na,b,0,1\n", threads, `f.csv:2: column "threads": "0": is not above 0`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.read(c.text)
			var bad *BadData
			if !errors.As(err, &bad) || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func fuzz[T any](f *testing.F, header string, rows []string, read func(string, io.Reader) (T, error), check func(*testing.T, T)) {
	f.Add("")
	f.Add(header)
	f.Add(strings.Replace(header, ",", "\n", 1))
	for _, r := range rows {
		f.Add(header + r)
		f.Add(header + r + "\n" + r)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := read("fuzz.csv", strings.NewReader(text))
		if err == nil {
			check(t, v)
			return
		}
		if !strings.HasPrefix(err.Error(), "fuzz.csv") {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}

func sane(t *testing.T, what string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		t.Errorf("%s is %v", what, v)
	}
}

func FuzzCilantro(f *testing.F) {
	fuzz(f, goodCilantro, []string{
		"p,1,31,5,6,7,1", "p,1,1.5,0,0,0,0", "\"p\n\",1,31,5,6,1e300,1",
	}, ReadCilantro, func(t *testing.T, w Windows) {
		for _, r := range w.Rows {
			sane(t, "load", r.Load)
			sane(t, "p99", r.P99)
			if r.Length <= 0 || len(r.Alloc) != len(w.Services) {
				t.Errorf("%+v", r)
			}
		}
	})
}

func fuzzRuns(t *testing.T, runs []Run) {
	for _, r := range runs {
		sane(t, "time", r.Millis)
		if r.CPU <= 0 || r.Memory <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

func FuzzChunkfunc(f *testing.F) {
	fuzz(f, goodChunk, []string{"a,b,128,1000,1,5,200", "a,b,128,83,1,5,504"}, ReadChunkfunc, fuzzRuns)
}

func FuzzLambda(f *testing.F) {
	fuzz(f, goodLambda, []string{"s,r,a,128,5,", "s,r,a,128,5,1.5"}, ReadLambda, fuzzRuns)
}

func FuzzParsec(f *testing.F) {
	fuzz(f, goodParsec, []string{"a,b,none,1", "a,b,llc,1.5"}, ReadParsec, func(t *testing.T, runs []Contended) {
		for _, r := range runs {
			sane(t, "time", r.Seconds)
		}
	})
}
