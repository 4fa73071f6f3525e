package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/test/apps/load"
)

const shortTrace = "../traces/bursty-20s.txt"

// A comma may be part of a query, such as Prometheus'.
func TestATargetMayHaveACommaAndBeGivenSeveralTimes(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Query().Get("query")]++
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"--target", server.URL + "/?query=rate(x{a=\"1\",b=\"2\"}[1m])", "--target", server.URL + "/?query=up",
		"--trace", shortTrace, "--time-scale", "0.02", "--rate-scale", "10", "--arrivals", "uniform",
	}, &stdout, &stderr)
	mu.Lock()
	defer mu.Unlock()
	if code != 0 || seen[`rate(x{a="1",b="2"}[1m])`] == 0 || seen["up"] == 0 || len(seen) != 2 {
		t.Errorf("code %d, queries %v, %s", code, seen, &stderr)
	}
}

func TestARunWritesSecondsAndASummaryThatAgree(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	dir := t.TempDir()
	table, summary := filepath.Join(dir, "seconds.csv"), filepath.Join(dir, "summary.json")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"--target", server.URL, "--trace", shortTrace, "--time-scale", "0.1", "--rate-scale", "100",
		"--arrivals", "uniform", "--seconds", table, "--summary", summary,
	}, &stdout, &stderr)
	if code != 0 || stdout.Len() > 0 || stderr.Len() > 0 {
		t.Fatalf("code %d, stdout %q, stderr %q", code, &stdout, &stderr)
	}

	text, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	var result load.Result
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	if result.Requests < 198 || result.Requests > 201 || result.DurationS != 2 || result.SLOMS != 200 {
		t.Errorf("result %+v, want about 200 requests in 2 s", result)
	}

	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, line := range lines[1:] {
		n, err := strconv.Atoi(line[2])
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	if len(lines) != 3 || sent+result.Dropped != result.Requests {
		t.Errorf("%d lines with %d sent, the summary has %d requests", len(lines), sent, result.Requests)
	}
}

func TestAnInterruptedRunStillPrintsItsSummary(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"--target", server.URL, "--trace", shortTrace, "--rate-scale", "20"}, &stdout,
		&stderr)
	if code != 1 || !strings.Contains(stderr.String(), "into 20s: ") {
		t.Errorf("code %d, stderr %q", code, &stderr)
	}
	var result load.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil || result.Abandoned == 0 {
		t.Errorf("summary %q: %v", &stdout, err)
	}
}

func TestAWrongCommandLineNamesTheFlagAndExitsWith2(t *testing.T) {
	words := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(words, []byte("1\nmany\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := "--target http://127.0.0.1:1 --trace " + shortTrace
	for name, c := range map[string]struct{ args, want string }{
		"nothing":           {"", "--target is missing"},
		"no trace":          {"--target http://127.0.0.1:1", "--trace is missing"},
		"a trace not there": {"--target http://127.0.0.1:1 --trace none.txt", "--trace: reading trace: open none.txt"},
		"a trace that is no number": {"--target http://127.0.0.1:1 --trace " + words,
			`words.txt, line 2: rate "many"`},
		"an unknown flag":          {good + " --rps 5", "unknown flag: --rps"},
		"a flag that is no number": {good + " --seed many", `invalid argument "many" for "--seed" flag`},
		"an argument":              {good + " more", `argument "more"`},
		"no time":                  {good + " --time-scale 0", "--time-scale 0, --rate-scale 1: "},
		"arrivals of no kind":      {good + " --arrivals pareto", `arrivals "pareto"`},
		"no timeout":               {good + " --timeout 0s", "--timeout 0s"},
		"SLO over timeout":         {good + " --slo 6s", "timeout 5s: must be longer than the SLO, 6s"},
		"a target of no kind":      {"--target front --trace " + shortTrace, `target "front"`},
		"no place for output":      {good + " --seconds /none/at/all.csv", "--seconds: open /none/at/all.csv"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
			if code != 2 || !strings.Contains(stderr.String(), c.want) ||
				strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("code %d, stderr %q, want 2 and one line with %q", code, &stderr, c.want)
			}
		})
	}
}
