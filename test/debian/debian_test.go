package debian_test

import (
	"strings"
	"testing"

	"awarescale.dev/aware/test/debian"
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
