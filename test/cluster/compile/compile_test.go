package compile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func module(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "main.go": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAProgramIsBuiltAndItsEndsAreSaid(t *testing.T) {
	dir := module(t, "package main\n\nfunc main() {}\n")
	var said []string
	b := Build{What: "m", Dir: dir, Env: []string{"CGO_ENABLED=0"}, Output: filepath.Join(dir, "m"), Packages: []string{"."}}
	if err := b.Run(t.Context(), func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.Output); err != nil {
		t.Error(err)
	}
	if len(said) < 2 || said[0] != "building m ..." || !strings.HasPrefix(said[len(said)-1], "building m took ") {
		t.Errorf("said %q", said)
	}
	if n := b.packages(t.Context()); n < 10 { // the runtime's at least
		t.Errorf("%d packages", n)
	}
}

func TestAnErrorHasWhatTheCompilerSaid(t *testing.T) {
	dir := module(t, "package main\n\nfunc main() { nothing() }\n")
	b := Build{What: "m", Dir: dir, Output: filepath.Join(dir, "m"), Packages: []string{"."}}
	err := b.Run(t.Context(), func(string, ...any) {})
	if err == nil || !strings.Contains(err.Error(), "main.go:3:15: undefined: nothing") ||
		!strings.Contains(err.Error(), "building . in "+dir) {
		t.Errorf("got %v", err)
	}
}

func TestHowFarABuildIs(t *testing.T) {
	for _, c := range []struct {
		compiled, all int
		want          string
	}{
		{0, 1000, "1m40s"},
		{250, 1000, "1m40s, 250 of at most 1000 packages compiled, 5m0s left at most, and linking"},
		{1000, 1000, "1m40s, 1000 of at most 1000 packages compiled, 0s left at most, and linking"},
		{49, 1000, "1m40s"}, // most of them are in the cache, it seems
		{10, 0, "1m40s"},    // the list of packages failed
	} {
		if got := far(100*time.Second, c.compiled, c.all); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestNamesOfPackagesAreTakenFromMessages(t *testing.T) {
	var c counter
	fmt.Fprint(&c, "internal/cpu\nk8s.io/api/core/v1\n# k8s.io/api/core/v1\n./a.go:3:4: undefined: x\ncommand-line-argum")
	if n := c.count(); n != 3 { // the last one is being written
		t.Errorf("%d packages", n)
	}
	if got, want := c.text(), "# k8s.io/api/core/v1\n./a.go:3:4: undefined: x\n"; got != want {
		t.Errorf("got %q", got)
	}
}
