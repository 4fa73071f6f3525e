package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/test/machine"
)

// group is a Go module below test/cluster/bin whose tools are built together.
type group struct {
	name  string
	tools []string // the names Binary knows them by
	// renamed maps the go command's name of a tool to ours.
	renamed map[string]string
	cgo     bool
	tags    string
}

// The groups, in the order in which they are built.
var groups = []group{
	{
		name: "kubernetes",
		tools: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet",
			"kubectl"},
	},
	{name: "etcd", tools: []string{"etcd"}, renamed: map[string]string{"server": "etcd"}},
	{name: "containerd", tools: []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
	{name: "runc", tools: []string{"runc"}, cgo: true, tags: "seccomp"},
	{name: "metrics-server", tools: []string{"metrics-server"}},
	{name: "coredns", tools: []string{"coredns"}},
	{
		name:  "vpa",
		tools: []string{"vpa-recommender", "vpa-updater", "vpa-admission-controller"},
		renamed: map[string]string{
			"recommender": "vpa-recommender", "updater": "vpa-updater",
			"admission-controller": "vpa-admission-controller"},
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

	stop := progress(c.Log, "building "+g.name)
	defer stop()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", g.tags, "-ldflags", key.ldflags,
		"-o", scratch+"/", "tool")
	cmd.Dir = key.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if g.cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s in %s: %w\n%s", g.name, key.module, err, out)
	}
	for from, to := range g.renamed {
		if err := os.Rename(filepath.Join(scratch, from), filepath.Join(scratch, to)); err != nil {
			return "", fmt.Errorf("building %s: %w", g.name, err)
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
	files     map[string]string // what is in it: go.mod, go.sum, at most a main.go
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
		module:  filepath.Join(source, "bin", g.name),
		files:   map[string]string{},
		ldflags: "-s -w",
		tags:    g.tags,
	}
	entries, err := os.ReadDir(key.module)
	if err != nil {
		return "", key, err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(key.module, e.Name()))
		if err != nil {
			return "", key, err
		}
		key.files[e.Name()] = string(data)
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

// kubernetesVersion reads the version from bin/kubernetes/go.mod, the one place that
// names it; empty if the file does not.
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
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", dir+"/", ".", "./pause")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // they also run where this host's libraries are not
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the lab's init and pause in %s: %w\n%s", source, err, out)
	}
	for name, file := range map[string]string{"init": "cluster", "pause": "pause"} {
		p.Binaries[name] = filepath.Join(p.Dir, "bin", file)
		if err := machine.CopyFile(p.Binaries[name], filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}

// progress writes to w what is being done, every 15 seconds, and when it ends.
func progress(w io.Writer, what string) (stop func()) {
	start := time.Now()
	fmt.Fprintf(w, "%s ...\n", what)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(15 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "%s ... %v\n", what, time.Since(start).Round(time.Second))
			case <-done:
				fmt.Fprintf(w, "%s took %v\n", what, time.Since(start).Round(100*time.Millisecond))
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
