package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"awarescale.dev/aware/test/vm/wire"
)

// initPackage is the program that init is built from.
const initPackage = "awarescale.dev/aware/test/vm/init"

// makeImages makes the files that the machine starts from.
func (m machine) makeImages(ctx context.Context, programs []Program) error {
	init := m.file("init")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", init, initPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", initPackage, err, out)
	}
	if err := m.makeInitramfs(ctx, init); err != nil {
		return err
	}
	root := m.file("root")
	if err := fillRoot(root, programs); err != nil {
		return err
	}
	return m.makeDisk(ctx, root)
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
	return copyProgram(filepath.Join(root, wire.ProgramDir, p.Name), p.Path)
}

func copyProgram(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// makeDisk makes a disk from a folder. mke2fs copies the folder into it, so that nothing
// needs to be mounted.
func (m machine) makeDisk(ctx context.Context, root string) error {
	size, err := sizeOf(root)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	size += size/10 + int64(m.Disk)*mib // the file system's own tables take less than a tenth
	disk := m.file("disk")
	cmd := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root,
		disk, fmt.Sprintf("%dk", size/1024))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("making the disk: %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return os.RemoveAll(root) // it is on the disk now
}

// sizeOf is how many bytes the files below a folder have.
func sizeOf(root string) (sum int64, err error) {
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// makeInitramfs makes the initial file system: init, and the modules of the disk.
func (m machine) makeInitramfs(ctx context.Context, init string) error {
	f, err := os.Create(m.file("initramfs"))
	if err != nil {
		return err
	}
	defer f.Close()
	program, err := os.ReadFile(init)
	if err != nil {
		return err
	}
	modules, err := m.kernel.modules(ctx, diskModules...)
	if err != nil {
		return err
	}
	archive := cpio{w: f}
	archive.dir("dev")
	archive.dir("root")
	archive.dir(strings.Trim(filepath.Dir(wire.Modules), "/"))
	archive.file("init", 0o755, program)
	var order []string
	for _, one := range modules {
		archive.file(strings.Trim(filepath.Dir(wire.Modules), "/")+"/"+one.name, 0o644, one.code)
		order = append(order, one.name)
	}
	archive.file(strings.Trim(wire.Modules, "/"), 0o644, []byte(strings.Join(order, "\n")))
	archive.end()
	if archive.err != nil {
		return fmt.Errorf("writing %s: %w", f.Name(), archive.err)
	}
	return nil
}

// cpio writes an archive in the format "newc", which the kernel unpacks. Each entry is a
// header of 110 characters, the name, and the content, both filled up to four bytes:
//
//	070701 inode mode uid gid links mtime size major minor rmajor rminor namesize check
//
// with eight hexadecimal digits for each number
// (https://docs.kernel.org/driver-api/early-userspace/buffer-format.html).
type cpio struct {
	w     io.Writer
	inode int
	err   error // the first one
}

func (c *cpio) dir(name string) { c.entry(name, 0o040755, nil) }

func (c *cpio) file(name string, mode int, content []byte) { c.entry(name, 0o100000|mode, content) }

func (c *cpio) end() { c.entry("TRAILER!!!", 0, nil) }

func (c *cpio) entry(name string, mode int, content []byte) {
	c.inode++
	header := "070701"
	for _, n := range []int{c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		header += fmt.Sprintf("%08x", n)
	}
	c.write([]byte(header + name + "\x00"))
	c.write(content)
}

// write fills up to four bytes.
func (c *cpio) write(b []byte) {
	for _, part := range [][]byte{b, make([]byte, -len(b)&3)} {
		if c.err == nil {
			_, c.err = c.w.Write(part)
		}
	}
}
