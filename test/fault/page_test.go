package fault

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Our pages say for each line which test shows it.
func TestThePagesNameTestsThatExist(t *testing.T) {
	const root = "../.."
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"security.md", "faults.md"} {
		page, err := os.ReadFile(filepath.Join(root, "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`\b(?:Test[0-9]*[a-z]?[A-Z]|Fuzz[A-Z])\w+`).FindAllString(string(page), -1)
		if len(named) < 40 {
			t.Errorf("docs/%s names %d tests only", name, len(named))
		}
		for _, one := range named {
			if !there[one] {
				t.Errorf("docs/%s names %s, and there is no such test", name, one)
			}
		}
	}
}
