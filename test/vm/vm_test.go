package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/test/machine"
)

// source is this module.
const source = "awarescale.dev/aware/"

// suite is the tests of one package that run in the machine.
type suite struct {
	pkg  string
	only bool     // run only the tests in real
	real []string // the tests that must have passed on the machine's own control groups
}

// onThisHost is the subtest that [cgrouptest.Each] runs on real control groups.
const onThisHost = "/this_host"

// suites are all packages that touch control groups. A whole package runs where that takes
// seconds. Of the others only the tests of real groups do: a test on a folder of plain files
// shows the same on every kernel.
var suites = []suite{
	{pkg: "nodeagent/cgroup", real: []string{
		"TestWriteAndReadLimits" + onThisHost,
		"TestWriteLowersABurstAboveTheQuota" + onThisHost,
		"TestRoomIsThePodsLimitsWithoutThoseOfTheOthers" + onThisHost,
		"TestWriteCPUChangesTheQuotaAndNothingElse" + onThisHost,
		"TestARealGroupIsThrottledAndThenGone",
		"TestARealGroupCountsTheKillsForWantOfMemory",
		"TestARealGroupCountsWhatItWritesToADisk",
	}},
	{pkg: "nodeagent/pressure", real: []string{"TestReadReadsThePressureOfThisMachine"}},
	{pkg: "nodeagent/restore"},
	{pkg: "nodeagent/cri", real: []string{"TestUpdateChangesOnlyTheFieldsOfTheChange" + onThisHost}},
	{pkg: "nodeagent/agent", only: true, real: []string{
		"TestTheEndOfAGrantRestores/observe" + onThisHost,
		"TestTheEndOfAGrantRestores/an_agent_that_ends" + onThisHost,
		"TestTheEndOfAGrantRestores/an_agent_that_starts" + onThisHost,
		"TestTheNextAgentRestoresWhatAKilledOneTouched/in_the_middle_of_a_call" + onThisHost,
		"TestTheNextAgentRestoresWhatAKilledOneTouched/between_two_calls" + onThisHost,
		"TestAfterThreeForeignChangesAContainerIsLeftAlone" + onThisHost,
		"TestEndingKeepsWhatTheKubeletHasJustWritten" + onThisHost,
		"TestANewInstanceStartsFromTheAllocatedValues" + onThisHost,
		"TestWithoutARuntimeLimitsAreWrittenDirectlyAndTheRuntimeIsUpdatedLater" + onThisHost,
		"TestACallThatLandsLateIsOursAndIsRestored" + onThisHost,
		"TestARealBurstIsRelievedInTheSampleThatShowsIt",
		"TestThrottledPeriodsAreAnsweredByTheNextSample",
		"TestAWriteFillsTheQuotaUp",
		"TestFiftyRestarts" + onThisHost,
		"TestAContainerThatEndsDuringAnUpdateLeavesNothing/restarted,_before_the_call_lands" + onThisHost,
		"TestAContainerThatEndsDuringAnUpdateLeavesNothing/its_pod_is_deleted,_after_it_has_landed" + onThisHost,
		"TestMemoryThatIsTakenWhileTheLimitComesDown" + onThisHost,
		"TestWhatSomebodyElseWroteIsNotUndoneByALaterCall" + onThisHost,
		"TestTheEntryOfAContainerThatEndedOnAFullDiskIsDeletedLater" + onThisHost,
		"TestThreeHundredContainersComeAndGoInAMinute" + onThisHost,
		"TestRunInRealTime" + onThisHost,
		"TestSamplingThirtyContainersAllocatesNothing" + onThisHost,
		"TestAManagedContainerIsAWorld" + onThisHost,
	}},
	{pkg: "test/fault", only: true, real: []string{
		"TestAnOldJournalRestoresNothingAboveTheLiveLimits/with_a_sidecar" + onThisHost,
		"TestAnOldJournalRestoresNothingAboveTheLiveLimits/with_an_unlimited_sidecar" + onThisHost,
		"TestPuttingBackGoesOnWhenThePodGetsRoom" + onThisHost,
		"TestSomebodyElsesCPULimitDoesNotKeepOurMemoryLimit" + onThisHost,
		"TestAnAgentThatStartsWithoutTheAPIServerRestoresAtOnce" + onThisHost,
		"TestAPodThatWasOptedOutWhileNoAgentRanGetsItsLiveLimits" + onThisHost,
		"TestAPodThatWasOptedOutWhileARaiseWasPendingGetsTheSmallerLimits" + onThisHost,
		"TestAnOutageOfTheAPIServerEndsNothing" + onThisHost,
		"TestWithoutTheAPIServerAndCentralLimitsReturn" + onThisHost,
		"TestOnAFullDiskNothingIsInForceThatTheJournalDoesNotKnow" + onThisHost,
		"TestAnAgentStartsAndRestoresOnAFullDisk" + onThisHost,
	}},
}

// name is the package's last folder.
func (s suite) name() string { return filepath.Base(s.pkg) }

// args are the test binary's.
func (s suite) args() []string {
	args := []string{"-test.v", "-test.timeout=5m"}
	if !s.only {
		return args
	}
	var names []string
	for _, test := range s.real {
		name, _, _ := strings.Cut(test, "/")
		names = append(names, name)
	}
	return append(args, "-test.run=^("+strings.Join(slices.Compact(names), "|")+")$",
		"-test.skip=/^v[12]_fixture$|//^v[12]_fixture$")
}

func TestNodeTestsPassOnCgroupV2(t *testing.T) {
	needsMachine(t)
	dir := t.TempDir()
	build(t, dir)
	var programs []Program
	for _, s := range suites {
		p := Program{Name: s.name(), Path: filepath.Join(dir, s.name()+".test"), Args: s.args()}
		if testdata := filepath.Join("..", "..", s.pkg, "testdata"); isDir(testdata) {
			p.Testdata = testdata
		}
		programs = append(programs, p)
	}
	for _, name := range []string{"cgroup", "agent"} {
		programs = append(programs, Program{Name: name + "-benchmarks", Path: filepath.Join(dir, name+".test"),
			Args: []string{"-test.run=^$", "-test.bench=.", "-test.benchtime=200x", "-test.timeout=5m"}})
	}
	begun := time.Now()
	// The limit is for a machine that hangs: beside other work all of it has taken more than eight minutes.
	results, failed := Run(t.Context(), Config{Limit: 20 * time.Minute}, programs...)
	t.Logf("the machine ran for %v", time.Since(begun).Round(100*time.Millisecond))
	for i, s := range suites {
		t.Run(s.name(), func(t *testing.T) {
			if i >= len(results) {
				t.Fatal("the machine ended before it was done")
			}
			s.judge(t, results[i])
		})
	}
	t.Run("benchmarks", func(t *testing.T) {
		if len(results) < len(programs) {
			t.Fatal("the machine ended before they were done")
		}
		for _, r := range results[len(suites):] {
			passed(t, r)
			for _, line := range regexp.MustCompile(`(?m)^Benchmark.*ns/op.*$`).FindAllString(r.Output, -1) {
				t.Logf("emulated: %s", line)
			}
		}
	})
	if failed != nil {
		t.Error(failed)
	}
}

// judge fails when a test failed, or did not run on the machine's own control groups.
func (s suite) judge(t *testing.T, r Result) {
	passed(t, r)
	ended := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+) `).FindAllStringSubmatch(r.Output, -1) {
		ended[m[1]]++
		if m[1] == "PASS" {
			ended[m[2]]++
		}
		if m[1] == "SKIP" {
			t.Errorf("%s was skipped: the machine lacks nothing\n%s", m[2], r.Output)
		}
	}
	for _, test := range s.real {
		if ended[test] == 0 {
			t.Errorf("%s did not pass, and it must run in the machine", test)
		}
	}
	t.Logf("%d tests and subtests passed on cgroup v2 in %v", ended["PASS"], r.Took.Round(10*time.Millisecond))
}

// passed fails when a program failed or left something.
func passed(t *testing.T, r Result) {
	t.Helper()
	if r.Code != 0 {
		t.Errorf("%s ended with %d (%s) after %v:\n%s", r.Program, r.Code, r.Reason, r.Took, failures(r.Output))
	}
	if len(r.Left) > 0 {
		t.Errorf("%s left the control groups %v", r.Program, r.Left)
	}
}

// failures is the output of a test binary without the tests that passed. When it finds no
// test that failed it is everything.
func failures(output string) string {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`--- FAIL: (\S+)`).FindAllStringSubmatch(output, -1) {
		names[m[1]] = true
	}
	var failed []string
	for _, one := range regexp.MustCompile(`(?m)^=== RUN +`).Split(output, -1) {
		name, _, _ := strings.Cut(one, "\n")
		if names[name] || strings.Contains(one, "--- FAIL: ") || strings.Contains(one, "panic: ") {
			failed = append(failed, one)
		}
	}
	if failed == nil {
		return output
	}
	return strings.Join(failed, "")
}

// build compiles the suites' test binaries.
func build(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", dir + "/"}
	for _, s := range suites {
		args = append(args, source+s.pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// needsMachine skips where no machine can run, with the reason.
func needsMachine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a virtual machine: not with -short")
	}
	if err := preflight(); err != nil {
		t.Skip(err)
	}
}

// preflight gets what is missing, once: without a network that takes minutes.
var preflight = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	err := machine.Preflight(ctx, true)
	if err != nil {
		fmt.Println("the tests on cgroup v2 are skipped:", err) // also without -v
	}
	return err
})

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
