// Package images makes images of this repository's programs for a lab. Each image is a
// static binary in one layer.
package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"awarescale.dev/aware/test/cluster/compile"
)

// The images, as the manifests name them, and the programs that are in them.
var (
	Agent   = Image{"awarescale.dev/aware-agent:dev", "./cmd/aware-agent"}
	Central = Image{"awarescale.dev/aware-central:dev", "./cmd/aware-central"}
	Service = Image{"awarescale.dev/test-service:dev", "./test/apps/service"}

	Neighbour = Image{"awarescale.dev/demo-neighbour:dev", "./test/demo/neighbour"}
)

// Image is one program as an image.
type Image struct {
	Ref     string
	Program string // the package, from the module's root
}

// Module is this module's name.
const Module = "awarescale.dev/aware"

// Source is the folder of a module's source: this module, or one that it requires.
func Source(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("looking for the source of %s (this runs in its own repository): %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build compiles programs into a folder, as static binaries named after their
// packages. say gets messages of progress, because aware-central takes minutes to
// build when nothing is cached. It may be nil.
func Build(ctx context.Context, bin string, say func(format string, args ...any), programs ...string) error {
	if say == nil {
		say = func(string, ...any) {}
	}
	source, err := Source(ctx, Module)
	if err != nil {
		return err
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for tags, some := range byTags(programs) {
		build := compile.Build{
			What: strings.Join(some, " "), Dir: source, Env: []string{"CGO_ENABLED=0"}, Tags: tags, LDFlags: "-s -w",
			Output: bin + "/", Packages: some,
		}
		if err := build.Run(ctx, say); err != nil {
			return err
		}
	}
	return nil
}

// byTags is the programs by the build tags that they are built with, as the Makefile has them.
func byTags(programs []string) map[string][]string {
	all := map[string][]string{}
	for _, p := range programs {
		tags := ""
		if p == Agent.Program {
			tags = "grpcnotrace"
		}
		all[tags] = append(all[tags], p)
	}
	return all
}

// Programs are the packages of some images.
func Programs(images ...Image) []string {
	programs := make([]string, len(images))
	for i, image := range images {
		programs[i] = image.Program
	}
	return slices.Compact(programs)
}

// Loader is a lab, or one of its nodes.
type Loader interface {
	LoadImage(ctx context.Context, ref string, files map[string]string, entrypoint []string) error
}

// Load gives a lab, or a node, images of the programs that were built into a folder.
func Load(ctx context.Context, to Loader, bin string, images ...Image) error {
	for _, image := range images {
		name := "/" + filepath.Base(image.Program)
		if err := to.LoadImage(ctx, image.Ref, map[string]string{name: filepath.Join(bin, name)},
			[]string{name}); err != nil {
			return err
		}
	}
	return nil
}
