package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The binary's pages are half of the agent's memory, on every node. These packages bring types
// of all of Kubernetes, and templates, for which the linker keeps all methods of all types.
func TestTheBinaryHasNothingThatMakesItLarge(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	has := map[string]bool{}
	for pkg := range strings.FieldsSeq(string(out)) {
		has[pkg] = true
		for _, large := range []string{
			"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/client-go/applyconfigurations",
			"k8s.io/api/apps", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "sigs.k8s.io/controller-runtime",
			"golang.org/x/net/trace", "html/template", "github.com/google/cel-go",
		} {
			if pkg == large || strings.HasPrefix(pkg, large+"/") {
				t.Errorf("it has %s", pkg)
			}
		}
	}
	// What the agent is to use for real.
	for _, pkg := range []string{
		"k8s.io/api/core/v1", "k8s.io/client-go/tools/cache", "k8s.io/component-base/cli",
		"k8s.io/cri-api/pkg/apis/runtime/v1", "github.com/containerd/cgroups/v3/cgroup1",
		"github.com/containerd/cgroups/v3/cgroup2", "github.com/prometheus/procfs",
	} {
		if !has[pkg] {
			t.Errorf("it does not have %s", pkg)
		}
	}
}
