package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"awarescale.dev/aware/test/machine"
	"awarescale.dev/aware/test/vm/wire"
)

// initPackage is the program that is the first process of the disk.
const initPackage = "awarescale.dev/aware/test/vm/init"

// makeFiles makes the files that the machine starts from.
func (m run) makeFiles(ctx context.Context, programs []Program) error {
	root := filepath.Join(m.Dir, "root")
	if err := fillRoot(root, programs); err != nil {
		return err
	}
	if err := machine.BuildProgram(ctx, filepath.Join(root, machine.Init), initPackage); err != nil {
		return err
	}
	return m.Make(ctx, root)
}

// fillRoot puts what is on the disk into a folder.
func fillRoot(root string, programs []Program) error {
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp", "/etc", wire.ProgramDir, wire.WorkDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	var plan wire.Plan
	for _, p := range programs {
		if err := addProgram(root, p); err != nil {
			return fmt.Errorf("program %q: %w", p.Name, err)
		}
		plan.Programs = append(plan.Programs, wire.Program{Name: p.Name, Args: p.Args})
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		wire.PlanFile: string(text),
		"/etc/passwd": "root:x:0:0:root:/tmp:/bin/sh\n",
		"/etc/hosts":  "127.0.0.1 localhost\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func addProgram(root string, p Program) error {
	if p.Name == "" || strings.ContainsAny(p.Name, "/\x00") || p.Name == "." || p.Name == ".." {
		return errors.New("its name must be a file name")
	}
	work := filepath.Join(root, wire.WorkDir, p.Name)
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	if p.Testdata != "" {
		if err := os.CopyFS(filepath.Join(work, "testdata"), os.DirFS(p.Testdata)); err != nil {
			return err
		}
	}
	return machine.CopyFile(filepath.Join(root, wire.ProgramDir, p.Name), p.Path)
}
