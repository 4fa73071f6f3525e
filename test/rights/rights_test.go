package rights

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the table into README.md and docs/security.md")

// table is each single thing that the table allows the parts of a folder of manifests.
func table(folder string) map[One]bool {
	all, apart := map[One]bool{}, map[string]bool{}
	for _, part := range Apart {
		apart[part] = true
	}
	adds := Apart[filepath.Base(folder)]
	for _, r := range Table {
		if r.Who != adds && (adds != "" || apart[r.Who]) {
			continue
		}
		for _, one := range r.All() {
			all[one] = true
		}
	}
	return all
}

// Whoever adds a right to the manifests adds a line with its reason here.
func TestTheManifestsAllowWhatTheTableSaysAndNothingElse(t *testing.T) {
	folders, err := filepath.Glob("../../manifests/*/kustomization.yaml")
	if err != nil || len(folders) < 5 {
		t.Fatalf("kustomizations %v, %v", folders, err)
	}
	for _, file := range folders {
		folder := filepath.Dir(file)
		m, err := Read(folder)
		if err != nil {
			t.Fatal(err)
		}
		allowed, err := m.All()
		if err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		missing := table(folder)
		for _, one := range allowed {
			if !table(folder)[one] {
				t.Errorf("%s: %s, which is not in the table", folder, one)
			}
			delete(missing, one)
		}
		if len(allowed) == 0 {
			continue // it installs no roles
		}
		for one := range missing {
			t.Errorf("%s: %s by the table, and not by the manifests", folder, one)
		}
	}
}

// The check above is worth something only if it sees what it is for.
func TestARightTooMuchIsSeen(t *testing.T) {
	rule := func(verb, group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{verb},
		}
	}
	for what, c := range map[string]struct {
		rule rbacv1.PolicyRule
		says string // of the error; empty when the right is seen as one that the table has not
	}{
		"all verbs":          {rule("*", "", "pods"), "wildcard"},
		"all resources":      {rule("get", "", "*"), "wildcard"},
		"all groups":         {rule("get", "*", "pods"), "wildcard"},
		"all subresources":   {rule("get", "", "pods/*"), "wildcard"},
		"all URLs":           {rbacv1.PolicyRule{NonResourceURLs: []string{"/debug/*"}, Verbs: []string{"get"}}, "wildcard"},
		"one more verb":      {rule("delete", "", "pods"), ""},
		"any secret":         {rule("get", "", "secrets"), ""},
		"a URL":              {rbacv1.PolicyRule{NonResourceURLs: []string{"/debug/pprof"}, Verbs: []string{"get"}}, ""},
		"another config map": {rule("get", "", "configmaps", "x"), ""},
	} {
		m, err := Read("../../manifests/default")
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.ClusterRoles {
			if m.ClusterRoles[i].Name == Agent {
				m.ClusterRoles[i].Rules = append(m.ClusterRoles[i].Rules, c.rule)
			}
		}
		all, err := m.All()
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: err = %v, want %q", what, err, c.says)
			}
			continue
		}
		unknown := 0
		for _, one := range all {
			if !table("default")[one] {
				unknown++
			}
		}
		if err != nil || unknown != 1 {
			t.Errorf("%s: %d rights that the table has not, %v; want 1", what, unknown, err)
		}
	}
}

// What users read is the table.
func TestTheDocumentsHaveTheTable(t *testing.T) {
	const begin, end = "<!-- rights: written by go test ./test/rights -rewrite -->\n", "<!-- end of rights -->\n"
	for _, file := range []string{"../../README.md", "../../docs/security.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(text), begin)
		has, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for the table: %q and %q", file, begin, end)
		}
		if *rewrite {
			if err := os.WriteFile(file, []byte(before+begin+Markdown()+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if has != Markdown() {
			t.Errorf("%s: the table is not the one of test/rights: go test ./test/rights -rewrite", file)
		}
	}
}
