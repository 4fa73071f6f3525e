package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// breach is a file that breaks one rule.
type breach struct {
	rule string // what the message must contain
	path string // of the new file
	text string // of it, after the package clause
}

const module = "awarescale.dev/aware/"

// imports is a breach by an import.
func imports(dir, pkg string) breach {
	return breach{
		rule: strings.TrimPrefix(pkg, module),
		path: dir + "/breach.go",
		text: fmt.Sprintf("import _ %q\n", pkg),
	}
}

// breaches are one for each arrow that ARCHITECTURE.md forbids.
var breaches = []breach{
	imports("learner/mdp", "golang.org/x/sync/errgroup"),
	imports("learner/sim", module+"plugins/fleet"),
	imports("learner/bench", module+"nodeagent/cgroup"),
	imports("learner/gym", module+"cmd/draw"),
	imports("learner/bench", "gonum.org/v1/plot"),
	imports("learner/experience/trajectory", "k8s.io/apimachinery/pkg/types"),
	imports("learner/algo/dqn", module+"learner/sim"),
	imports("learner/algo/ppo", module+"learner/train"),
	imports("learner/algo/ddpg", module+"learner/env/classic"),
	imports("learner/algo/dqn", module+"learner/policy/guard"),
	imports("learner/encode", module+"learner/sim"),
	imports("learner/policy/guard", module+"learner/experience/replay"),
	imports("learner/policy/learned", module+"learner/nn/graph"),
	imports("learner/sim", "sync"),
	imports("learner/sim", "os"),
	imports("learner/sim/perfmodel", "net/http"),
	imports("learner/algo/ppo", "gorgonia.org/gorgonia"),
	imports("plugins/fleet", "k8s.io/kubernetes/pkg/features"),
	imports("plugins/autoscaling/updater", module+"nodeagent/agent"),
	imports("plugins/autoscaling/slo", module+"learner/policy/guard"),
	imports("plugins/fleet", module+"cmd/draw"),
	imports("plugins/scheduling/headroom", module+"plugins/autoscaling/admission"),
	imports("nodeagent/agent", module+"plugins/fleet"),
	imports("nodeagent/cgroup", module+"cmd/draw"),
	imports("nodeagent/agent", module+"learner/train"),
	imports("nodeagent/agent", module+"learner/nn/graph"),
	imports("nodeagent/link", "k8s.io/apimachinery/pkg/util/wait"),
	imports("nodeagent/api", module+"nodeagent/cgroup"),
}

// impure are breaches that check itself must find.
var impure = []breach{
	{"goroutine", "learner/sim/breach.go", "func breach() { go breach() }\n"},
	{"time.Now", "learner/sim/breach.go", "import \"time\"\n\nvar _ = time.Now()\n"},
	{"time.Sleep", "learner/policy/guard/breach.go", "import \"time\"\n\nfunc breach() { time.Sleep(1) }\n"},
	{"rand.IntN", "learner/mdp/breach.go", "import \"math/rand/v2\"\n\nvar _ = rand.IntN(3)\n"},
	{"SoftUpdate", "learner/nn/breach.go", "func Follow() {}\n"},
	{"TargetUpdateEvery", "learner/algo/dqn/breach_test.go", "type Config struct{ Copy int }\n"},
}

// breakRules puts each breach into the tree, one after the other, and reports
// those that nothing refused. The tree must be clean before, and is clean
// after.
func breakRules() ([]string, error) {
	var problems []string
	for _, b := range impure {
		err := with(b, func() error {
			found, err := check(".", "hack/lint/renamed.txt")
			if err == nil && !strings.Contains(strings.Join(found, "\n"), b.rule) {
				problems = append(problems, fmt.Sprintf("%s: %q was not refused", b.path, b.text))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, b := range breaches {
		dir := filepath.Dir(b.path)
		err := with(b, func() error {
			// The run fails: that is the point. Imports that make a cycle are
			// refused by depguard all the same.
			out, _ := exec.Command("go", "tool", "-modfile=hack/tools/go.mod", "golangci-lint", "run",
				"--enable-only=depguard", "./"+dir).CombinedOutput()
			refused := strings.Contains(string(out), "breach.go") && strings.Contains(string(out), "depguard")
			fmt.Printf("%-45s %-45s %s\n", dir, b.rule,
				map[bool]string{true: "refused", false: "NOT REFUSED"}[refused])
			if !refused {
				problems = append(problems,
					fmt.Sprintf("%s imports %s, and golangci-lint says\n%s", dir, b.rule, out))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return problems, nil
}

// with puts a breach into the tree while f runs.
func with(b breach, f func() error) error {
	if _, err := os.Stat(b.path); err == nil {
		return fmt.Errorf("%s is there already", b.path)
	}
	name := filepath.Base(filepath.Dir(b.path))
	if err := os.WriteFile(b.path, []byte("package "+name+"\n\n"+b.text), 0o600); err != nil {
		return err
	}
	defer os.Remove(b.path)
	return f()
}
