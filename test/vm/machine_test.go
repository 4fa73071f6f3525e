package vm

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/test/vm/wire"
)

// TestMain is also the main of the programs that this package's tests run in a machine:
// the test binary again, with one of these words as its argument.
func TestMain(m *testing.M) {
	if os.Getppid() != 1 || !exists(wire.PlanFile) {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "fail":
		os.Stdout.WriteString("on standard output\n")
		os.Stderr.WriteString("on standard error\x00\xff\n")
		os.Exit(3)
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "leave":
		if err := os.Mkdir("/sys/fs/cgroup/left", 0o755); err != nil {
			os.Exit(1)
		}
	case "look":
		text, err := os.ReadFile("testdata/greeting")
		if err != nil || string(text) != "hello" {
			os.Exit(1)
		}
	case "sleep":
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// itself is a program of the machine that does what the word says.
func itself(t *testing.T, word string) Program {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Skipf("this test binary needs %v: build it with CGO_ENABLED=0", libraries)
	}
	return Program{Name: word, Path: path, Args: []string{word}}
}

func TestAMachineSaysHowItsProgramsEnded(t *testing.T) {
	needsMachine(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "greeting"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	look := itself(t, "look")
	look.Testdata = data
	missing := Program{Name: "text", Path: filepath.Join(data, "greeting")}
	var shown bytes.Buffer
	results, err := Run(t.Context(), Config{Output: &shown, Limit: 5 * time.Minute},
		itself(t, "fail"), itself(t, "die"), itself(t, "leave"), missing, look)
	if err != nil {
		t.Fatal(err)
	}
	const said = "on standard output\non standard error\x00\xff\n"
	for i, want := range []Result{
		{Program: "fail", Code: 3, Reason: "exit status 3", Output: said},
		{Program: "die", Code: -1, Reason: "signal: killed"},
		{Program: "leave", Left: []string{"left"}},
		{Program: "text", Code: -1, Reason: "fork/exec /programs/text: exec format error"},
		{Program: "look"},
	} {
		got := results[i]
		if got.Program != want.Program || got.Code != want.Code || got.Reason != want.Reason ||
			got.Output != want.Output || strings.Join(got.Left, " ") != strings.Join(want.Left, " ") {
			t.Errorf("result %d: %+v, want %+v", i, got, want)
		}
	}
	if shown.String() != said {
		t.Errorf("shown: %q", shown.String())
	}
	mustBeEmpty(t, temporary)
}

func TestAMachineThatDoesNotEndIsKilled(t *testing.T) {
	needsMachine(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	results, err := Run(t.Context(), Config{Limit: 8 * time.Second}, itself(t, "sleep"))
	if err == nil || !strings.Contains(err.Error(), "it had 8s") || len(results) != 0 {
		t.Errorf("results %v, err = %v; want the limit as the reason", results, err)
	}
	mustBeEmpty(t, temporary)
}

func mustBeEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("%d entries are left in %s: %v, %v", len(entries), dir, entries, err)
	}
}

func TestFollowBelievesOnlyWhatWasReported(t *testing.T) {
	exit := `{"Program":"a","Exit":{"Code":0,"Reason":"","Seconds":1.5}}` + "\n"
	for name, c := range map[string]struct{ events, says string }{
		"all done":                  {exit + `{"Done":true}` + "\n", ""},
		"it ended early":            {exit, "ended before its programs"},
		"a torn line":               {exit + `{"Done":`, "ended before its programs"},
		"something else":            {exit + "Kernel panic\n", `"Kernel panic\n"`},
		"a problem of its own init": {exit + `{"Problem":"mounting proc"}` + "\n", "in the machine: mounting proc"},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := follow(strings.NewReader(c.events), &bytes.Buffer{})
			if len(results) != 1 || results[0].Program != "a" || results[0].Took != 1500*time.Millisecond {
				t.Errorf("results %+v", results)
			}
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v, want %q", err, c.says)
			}
		})
	}
}

func TestOutputOfFailedTestsIsWhatIsShown(t *testing.T) {
	const output = "=== RUN   TestA\n    a_test.go:1: fine\n--- PASS: TestA (0s)\n" +
		"=== RUN   TestB\n=== RUN   TestB/one\n    b_test.go:1: oh\n=== RUN   TestB/two\n    b_test.go:2: well\n" +
		"--- FAIL: TestB (0s)\n    --- FAIL: TestB/one (0s)\n    --- PASS: TestB/two (0s)\n"
	if got := failures(output); strings.Contains(got, "TestA") || !strings.Contains(got, "b_test.go:1: oh") {
		t.Errorf("failures = %q", got)
	}
	if got := failures("exec format error"); got != "exec format error" {
		t.Errorf("failures = %q", got)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
