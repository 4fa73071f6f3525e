package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// initPackage is the program that the initial file system starts.
const initPackage = "awarescale.dev/aware/test/machine/init"

// BuildProgram builds a static program from a package of this module.
func BuildProgram(ctx context.Context, to, pkg string) error {
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", to, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// CopyFile copies a file's content into a new executable file, and makes the folders above
// it.
func CopyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// makeDisk makes a disk from a folder. mke2fs copies the folder into it, so that nothing
// needs to be mounted.
func (m Machine) makeDisk(ctx context.Context, root string) error {
	size, err := sizeOf(root)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	size += size/10 + int64(m.Free)*mib // the file system's own tables take less than a tenth
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

// makeInitramfs makes the initial file system: its init, and the modules.
func (m Machine) makeInitramfs(ctx context.Context, kernel kernel) error {
	init := m.file("init")
	if err := BuildProgram(ctx, init, initPackage); err != nil {
		return err
	}
	program, err := os.ReadFile(init)
	if err != nil {
		return err
	}
	modules, err := kernel.modules(ctx, append(diskModules, m.Modules...)...)
	if err != nil {
		return err
	}
	f, err := os.Create(m.file("initramfs"))
	if err != nil {
		return err
	}
	defer f.Close()
	moduleDir := strings.Trim(filepath.Dir(ModuleOrder), "/")
	archive := cpio{w: f}
	archive.dir("dev")
	archive.dir("root")
	archive.dir(moduleDir)
	archive.file("init", 0o755, program)
	var order []string
	for _, one := range modules {
		archive.file(moduleDir+"/"+one.name, 0o644, one.code)
		order = append(order, one.name)
	}
	archive.file(strings.Trim(ModuleOrder, "/"), 0o644, []byte(strings.Join(order, "\n")))
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
