// Command lint checks what golangci-lint cannot, and whether golangci-lint
// checks what it should.
//
//	go run ./hack/lint         names that were renamed do not come back; pure packages have no clock and no goroutine
//	go run ./hack/lint break   breaks each rule once, in a copy of the file tree, and reports a rule that does not refuse
package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// pure are the folders whose packages take time and randomness as arguments and
// have one goroutine.
var pure = []string{
	"learner/mdp", "learner/encode", "learner/policy", "learner/sim", "learner/lifecycle", "nodeagent/restore", "nodeagent/envelope",
}

// clocks are the functions of package time that read or wait for the clock.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func main() {
	var problems []string
	var err error
	if len(os.Args) > 1 && os.Args[1] == "break" {
		problems, err = breakRules()
	} else {
		problems, err = check(".", "hack/lint/renamed.txt")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check runs the checks on a tree.
func check(root, renamed string) ([]string, error) {
	old, err := readRenamed(filepath.Join(root, renamed))
	if err != nil {
		return nil, err
	}
	var problems []string
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		say := func(pos token.Pos, format string, args ...any) {
			p := fset.Position(pos)
			problems = append(problems,
				fmt.Sprintf("%s:%d: %s", filepath.ToSlash(rel), p.Line, fmt.Sprintf(format, args...)))
		}
		if !strings.HasSuffix(path, "_test.go") {
			if within(dir, pure) {
				findImpure(file, say)
			}
		}
		if len(old[dir]) > 0 {
			findRenamed(file, old[dir], say)
		}
		return nil
	})
	return problems, err
}

func within(dir string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return dir == f || strings.HasPrefix(dir, f+"/") })
}

// readRenamed reads rows of a package, an old name and its new name; the result
// is the new name by package and old name.
func readRenamed(path string) (map[string]map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Fields(line)
		if len(row) != 3 {
			return nil, fmt.Errorf("%s:%d: %q: it must be a package, an old name and a new one", path, n, line)
		}
		if all[row[0]] == nil {
			all[row[0]] = map[string]string{}
		}
		all[row[0]][row[1]] = row[2]
	}
	return all, lines.Err()
}

// findRenamed reports declarations of old names.
func findRenamed(file *ast.File, old map[string]string, say func(token.Pos, string, ...any)) {
	report := func(id *ast.Ident, name string) {
		if now, ok := old[name]; ok {
			say(id.Pos(), "%s was renamed: it is %s now", strings.TrimPrefix(name, "~"), now)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			report(n.Name, n.Name.Name)
			members(n, func(id *ast.Ident) { report(id, n.Name.Name+"."+id.Name) })
		case *ast.FuncDecl:
			if n.Recv == nil {
				report(n.Name, n.Name.Name)
			} else if len(n.Recv.List) == 1 {
				report(n.Name, receiver(n.Recv.List[0].Type)+"."+n.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, id := range v.Names {
						report(id, id.Name)
					}
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						report(id, "~"+id.Name)
					}
				}
			}
		case *ast.FuncType:
			for _, f := range n.Params.List {
				for _, id := range f.Names {
					report(id, "~"+id.Name)
				}
			}
		}
		return true
	})
}

// members visits the fields and the methods of a type.
func members(t *ast.TypeSpec, visit func(*ast.Ident)) {
	ast.Inspect(t.Type, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			for _, id := range f.Names {
				visit(id)
			}
		}
		_, isFunc := n.(*ast.FuncType) // its parameters are no members
		return !isFunc
	})
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// findImpure reports goroutines, and calls of the clock and of the shared
// random source.
func findImpure(file *ast.File, say func(token.Pos, string, ...any)) {
	imported := map[string]string{} // local name -> path
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := filepath.Base(path)
		if path == "math/rand/v2" {
			name = "rand"
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = path
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			say(n.Pos(), "a goroutine: this package has one, its caller's")
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := f.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch path := imported[of.Name]; {
			case path == "time" && slices.Contains(clocks, f.Sel.Name):
				say(n.Pos(), "time.%s: time is an argument here", f.Sel.Name)
			case strings.HasPrefix(path, "math/rand") && !strings.HasPrefix(f.Sel.Name, "New"):
				say(n.Pos(), "rand.%s: randomness is an argument here", f.Sel.Name)
			}
		}
		return true
	})
}
