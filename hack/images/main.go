// Command images builds AWARE's images, pushes them to a registry, and writes a
// kustomization that installs exactly these. It needs no container engine: an image is
// one static program.
//
//	go run ./hack/images --registry registry.example.com/aware
//	kubectl apply -k out/install
//
// A second one (out/install-learners) adds learners of their own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"time"

	"awarescale.dev/aware/hack/images/static"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// options are what the caller chose.
type options struct {
	registry  string   // with a folder in it, such as registry.example.com/aware
	tag       string   // empty: that of the manifests
	platforms []string // such as linux/amd64
	insecure  bool     // plain HTTP
	source    string   // the folder of the module
	base      string   // the folder of the manifests that name the images
	overlays  []overlay
	bin       string // the folder of the programs that are built
	built     string // the folder of programs that need not be built; empty: there is none
	ldflags   map[string]string
	tags      map[string]string
}

// overlay is a kustomization to write: the one beside base with these images.
type overlay struct{ of, folder string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{base: "manifests/base", bin: "out/images", overlays: []overlay{
		{"default", "out/install"},
		{"learners", "out/install-learners"},
	}}
	cmd := &cobra.Command{
		Use:           "images --registry HOST/FOLDER",
		Short:         "Build AWARE's images and push them to a registry",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.registry, "registry", "",
		"where the images go, such as registry.example.com/aware; the login is docker's or podman's")
	f.StringVar(&o.tag, "tag", "", "their tag (default: the one that manifests/base names)")
	f.StringSliceVar(&o.platforms, "platforms", []string{"linux/amd64"}, "of your nodes, such as linux/amd64,linux/arm64")
	f.BoolVar(&o.insecure, "insecure", false, "the registry speaks plain HTTP")
	f.StringVar(&o.built, "built", "", "a folder with the programs, such as FOLDER/amd64/aware-agent (default: they are built)")
	f.StringToStringVar(&o.ldflags, "ldflags", nil, "the linker's flags of each program, such as aware-agent=-s")
	f.StringToStringVar(&o.tags, "tags", nil, "the build tags of each program, such as aware-agent=grpcnotrace")
	return cmd
}

// run builds, pushes, and writes the kustomization.
func run(ctx context.Context, o options) error {
	if o.registry == "" {
		return errors.New(`flag --registry: "": it must name a registry and a folder, such as registry.example.com/aware`)
	}
	named, err := imagesOf(filepath.Join(o.base, "kustomization.yaml"))
	if err != nil {
		return err
	}
	for i := range named {
		if err := o.publish(ctx, &named[i]); err != nil {
			return err
		}
	}
	for _, one := range o.overlays {
		if err := one.write(o.base, named); err != nil {
			return err
		}
	}
	fmt.Printf("\nkubectl apply -k %s    # installs these images\n", o.overlays[0].folder)
	return nil
}

// imagesOf is the images that a kustomization names.
func imagesOf(file string) ([]types.Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("looking for the images that the manifests name: %w", err)
	}
	var k types.Kustomization
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(k.Images) == 0 {
		return nil, fmt.Errorf("%s has no images", file)
	}
	return k.Images, nil
}

// publish builds the program of an image for each platform, and pushes it. The image gets
// its place in the registry, and its digest.
func (o options) publish(ctx context.Context, image *types.Image) error {
	program := path.Base(image.Name)
	tag := image.NewTag
	if o.tag != "" {
		tag = o.tag
	}
	var strict []name.Option
	if o.insecure {
		strict = append(strict, name.Insecure)
	}
	ref, err := name.NewTag(strings.TrimSuffix(o.registry, "/")+"/"+program+":"+tag, strict...)
	if err != nil {
		return fmt.Errorf("flags --registry %q and --tag %q: %w", o.registry, o.tag, err)
	}
	index := v1.ImageIndex(empty.Index)
	for _, platform := range o.platforms {
		began := time.Now()
		one, err := o.build(ctx, program, platform)
		if err != nil {
			return err
		}
		if o.built == "" {
			fmt.Printf("%s for %s: built in %v\n", program, platform, time.Since(began).Round(time.Second))
		}
		os, arch, _ := strings.Cut(platform, "/")
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}}})
	}
	login := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), login); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	image.NewName, image.NewTag, image.Digest = ref.Context().Name(), "", digest.String()
	fmt.Printf("pushed %s@%s\n", ref, digest)
	return nil
}

// build compiles a program for a platform, if need be, and makes its image.
func (o options) build(ctx context.Context, program, platform string) (v1.Image, error) {
	arch, linux := strings.CutPrefix(platform, "linux/")
	if !linux || arch == "" || strings.Contains(arch, "/") {
		return nil, fmt.Errorf("flag --platforms: %q: it must be linux/ and an architecture of Go's, such as linux/arm64",
			platform)
	}
	if o.built != "" {
		file := filepath.Join(o.built, arch, program)
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("flag --built %q: %w", o.built, err)
		}
		return static.Image(map[string]string{"/" + program: file}, []string{"/" + program}, arch)
	}
	file, err := filepath.Abs(filepath.Join(o.bin, arch, program))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", o.tags[program], "-ldflags", o.ldflags[program],
		"-o", file, "./cmd/"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.source, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %s for %s: %w", program, platform, err)
	}
	return static.Image(map[string]string{"/" + program: file}, []string{"/" + program}, arch)
}

// write writes the kustomization, with the images that were pushed by their digests: a node that has an older image of the same
// tag gets the new one.
func (v overlay) write(base string, images []types.Image) error {
	to, err := filepath.Rel(v.folder, filepath.Join(filepath.Dir(base), v.of))
	if err != nil {
		return err
	}
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{filepath.ToSlash(to)},
		Images:    images,
	}
	text, err := yaml.Marshal(k)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(v.folder, 0o755); err != nil {
		return err
	}
	const head = "# Written by make images. Add your patches in a folder of your own.\n"
	return os.WriteFile(filepath.Join(v.folder, "kustomization.yaml"), append([]byte(head), text...), 0o644)
}
