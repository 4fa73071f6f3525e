package debian_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/test/debian"
	"golang.org/x/sys/unix"
)

var shell = debian.Requirement{What: "a shell", Why: "scripts need it", Package: "dash", Have: debian.Program("sh")}

func TestMissingSaysWhatWhyAndHow(t *testing.T) {
	unicorn := debian.Requirement{
		What:    "a unicorn",
		Why:     "stories need it",
		Package: "unicorn",
		Have:    debian.Program("sh", "no-such-program-here"),
	}
	got := debian.Missing([]debian.Requirement{shell, unicorn})
	want := "a unicorn is missing: stories need it; apt-get install unicorn"
	if len(got) != 1 || got[0] != want {
		t.Errorf("Missing = %q, want %q", got, want)
	}
}

func TestInstallOfNothingDoesNothing(t *testing.T) {
	if err := debian.Install(t.Context(), []debian.Requirement{shell}); err != nil {
		t.Error(err)
	}
}

func TestAnErrorOfAptSaysWhatAptSaid(t *testing.T) {
	if !debian.Program("apt-get")() {
		t.Skip("no apt-get on this system")
	}
	_, err := debian.Apt(t.Context(), ".", "apt-get", "no-such-command")
	if err == nil || !strings.Contains(err.Error(), "apt-get no-such-command") ||
		!strings.Contains(err.Error(), "Invalid operation") {
		t.Errorf("err = %v, want the command and apt's own words", err)
	}
}

// Two programs install packages at once, or the system does: the second one waits for the lock of apt's lists.
func TestAptWaitsForTheLockOfItsLists(t *testing.T) {
	if !debian.Program("apt-get")() {
		t.Skip("no apt-get on this system")
	}
	lists := t.TempDir()
	lock, err := os.Create(filepath.Join(lists, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	held := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(lock.Fd(), unix.F_SETLK, &held); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	release := time.AfterFunc(time.Second, func() { lock.Close() })
	defer release.Stop()
	if _, err := debian.Apt(t.Context(), lists, "apt-get", "-o", "Dir::State::lists="+lists, "-o", "Dir::Etc::sourcelist=/dev/null",
		"-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Dir::Cache="+lists, "update"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("apt had its lists after %v, and they were locked for a second", took)
	}
}
