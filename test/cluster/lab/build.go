package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"awarescale.dev/aware/test/cluster/compile"
	"awarescale.dev/aware/test/machine"
)

// group is some tools that are built together.
type group struct {
	name     string
	module   string   // the folder of their Go module, below test/cluster/bin
	packages []string // what is built
	tools    []string // the names Binary knows them by, in the order of packages
	cgo      bool
	tags     string
}

// manyInOne reports whether the tools are one program, which acts by the name it is called by.
func (g group) manyInOne() bool { return len(g.packages) < len(g.tools) }

// The groups, in the order in which they are built. Those without a module share the one in
// test/cluster/bin, so that each package of Kubernetes is compiled once for all of them.
var groups = []group{
	{
		name:     "kubernetes",
		packages: []string{"./kubernetes"},
		tools: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
			"kubectl"},
	},
	{name: "etcd", packages: []string{"go.etcd.io/etcd/server/v3"}, tools: []string{"etcd"}},
	{
		name: "containerd", module: "containerd",
		packages: []string{
			"github.com/containerd/containerd/v2/cmd/containerd",
			"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			"github.com/containerd/containerd/v2/cmd/ctr",
		},
		tools: []string{"containerd", "containerd-shim-runc-v2", "ctr"},
	},
	{
		name: "runc", module: "runc", packages: []string{"github.com/opencontainers/runc"}, tools: []string{"runc"},
		cgo: true, tags: "seccomp",
	},
	{
		name: "metrics-server", packages: []string{"sigs.k8s.io/metrics-server/cmd/metrics-server"},
		tools: []string{"metrics-server"},
	},
	{name: "coredns", packages: []string{"./coredns"}, tools: []string{"coredns"}},
	{
		name: "vpa",
		packages: []string{
			"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender",
			"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater",
			"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller",
		},
		tools: []string{"vpa-recommender", "vpa-updater", "vpa-admission-controller"},
	},
}

// needed are the groups a lab cannot start without.
var needed = []string{"kubernetes", "etcd", "containerd", "runc", "metrics-server", "coredns"}

// Build builds the named groups of binaries that are not in the cache yet, one after
// another; with no names, all of them. It writes progress to c.Log.
func Build(ctx context.Context, c Config, names ...string) error {
	c = c.withDefaults()
	if len(names) == 0 {
		for _, g := range groups {
			names = append(names, g.name)
		}
	}
	for _, name := range names {
		if _, err := buildGroup(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

// groupOf finds the group that a binary belongs to.
func groupOf(binary string) (group, bool) {
	for _, g := range groups {
		if slices.Contains(g.tools, binary) {
			return g, true
		}
	}
	return group{}, false
}

// buildGroup returns the cache folder that holds the group's binaries, after building
// them if it is not there. The folder appears under its name only when it is complete.
func buildGroup(ctx context.Context, c Config, name string) (string, error) {
	i := slices.IndexFunc(groups, func(g group) bool { return g.name == name })
	if i < 0 {
		return "", fmt.Errorf("no group of binaries is called %q", name)
	}
	g := groups[i]
	dir, key, err := cacheDir(ctx, c, g)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(c.CacheDir, "build.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // another process built it meanwhile
	}
	// We hold the lock, so any other scratch folder is left from a killed build.
	if killed, err := filepath.Glob(filepath.Join(c.CacheDir, "building-*")); err == nil {
		for _, dir := range killed {
			_ = os.RemoveAll(dir)
		}
	}
	scratch, err := os.MkdirTemp(c.CacheDir, "building-"+g.name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)

	for i, pkg := range g.packages {
		file := g.tools[i]
		if g.manyInOne() {
			file = g.name
		}
		build := compile.Build{
			What: file, Dir: key.module, Env: []string{"GOWORK=off", "CGO_ENABLED=0"}, Tags: g.tags, LDFlags: key.ldflags,
			Output: filepath.Join(scratch, file), Packages: []string{pkg},
		}
		if g.cgo {
			build.Env = append(build.Env, "CGO_ENABLED=1")
		}
		if err := build.Run(ctx, c.say); err != nil {
			return "", err
		}
	}
	if g.manyInOne() {
		for _, tool := range g.tools {
			if err := os.Symlink(g.name, filepath.Join(scratch, tool)); err != nil {
				return "", err
			}
		}
	}
	if err := os.Chmod(scratch, 0o755); err != nil {
		return "", err
	}
	return dir, os.Rename(scratch, dir)
}

// cacheKey is everything that a group's binaries depend on.
type cacheKey struct {
	module    string            // the folder of the group's go.mod
	files     map[string]string // go.mod, go.sum, and the group's own sources
	goVersion string
	ldflags   string
	tags      string
}

func (k cacheKey) String() string {
	h := sha256.New()
	parts := []string{k.goVersion, runtime.GOARCH, k.ldflags, k.tags}
	for _, name := range slices.Sorted(maps.Keys(k.files)) {
		parts = append(parts, name, k.files[name])
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func cacheDir(ctx context.Context, c Config, g group) (string, cacheKey, error) {
	source, err := sourceDir(ctx)
	if err != nil {
		return "", cacheKey{}, err
	}
	key := cacheKey{
		module:  filepath.Join(source, "bin", g.module),
		files:   map[string]string{},
		ldflags: "-s -w",
		tags:    g.tags,
	}
	for _, folder := range append([]string{"."}, g.packages...) {
		if !strings.HasPrefix(folder, ".") {
			continue // of another module: go.sum says what is in it
		}
		entries, err := os.ReadDir(filepath.Join(key.module, folder))
		if err != nil {
			return "", key, err
		}
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			name := filepath.Join(folder, e.Name())
			data, err := os.ReadFile(filepath.Join(key.module, name))
			if err != nil {
				return "", key, err
			}
			key.files[name] = string(data)
		}
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = key.module
	out, err := cmd.Output()
	if err != nil {
		return "", key, fmt.Errorf("asking for the version of Go in %s: %w", key.module, err)
	}
	key.goVersion = strings.TrimSpace(string(out))
	if g.name == "kubernetes" {
		key.ldflags += versionFlags(kubernetesVersion(key.files["go.mod"]))
	}
	return filepath.Join(c.CacheDir, g.name+"-"+key.String()), key, nil
}

// versionFlags stamps Kubernetes' version into its binaries: a build from the module
// says v0.0.0-master otherwise, and clients that compare versions believe it.
func versionFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var b strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		values := map[string]string{
			"gitVersion":   version,
			"gitMajor":     major,
			"gitMinor":     minor,
			"gitTreeState": "clean",
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, " -X %s.%s=%s", pkg, name, values[name])
		}
	}
	return b.String()
}

var kubernetesRequirement = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes\s+(v\S+)`)

// kubernetesVersion reads the version from bin/go.mod, the one place that names it for
// the lab; empty if the file does not.
func kubernetesVersion(goMod string) string {
	if m := kubernetesRequirement.FindStringSubmatch(goMod); m != nil {
		return m[1]
	}
	return ""
}

// sourceDir returns the folder test/cluster of this module's source, which the lab's
// binaries are built from.
func sourceDir(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Dir(filepath.Dir(file)); isDir(filepath.Join(dir, "bin")) {
			return dir, nil
		}
	}
	// Built with -trimpath, or moved since: ask the go command.
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "awarescale.dev/aware").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the source of awarescale.dev/aware, which the lab is built from: %w",
			err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "cluster"), nil
}

// buildOwn builds the lab's own two programs, the one that is init and pause, and
// copies them into the lab's folder: another copy of the source may build others into the cache at any time.
func (p *plan) buildOwn(ctx context.Context, c Config) error {
	source, err := sourceDir(ctx)
	if err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(c.CacheDir, "own.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	dir := filepath.Join(c.CacheDir, "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	build := compile.Build{
		What: "the lab's init and pause", Dir: source, Output: dir + "/", Packages: []string{".", "./pause"},
		Env: []string{"CGO_ENABLED=0"}, // they also run where this host's libraries are not
	}
	if err := build.Run(ctx, func(string, ...any) {}); err != nil {
		return err
	}
	for name, file := range map[string]string{"init": "cluster", "pause": "pause"} {
		p.Binaries[name] = filepath.Join(p.Dir, "bin", file)
		if err := machine.CopyFile(p.Binaries[name], filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// say writes a line about what is being done.
func (c Config) say(format string, args ...any) { fmt.Fprintf(c.Log, format+"\n", args...) }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
