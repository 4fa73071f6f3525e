package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// write writes the files of a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for file, text := range files {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tiny is the source of a module with one program and its manifests, and the options to
// publish it on a registry.
func tiny(t *testing.T, host string) options {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"go.mod":           "module example.com/tiny\n\ngo 1.26\n",
		"cmd/tiny/main.go": "package main\n\nvar say = \"nothing\"\n\nfunc main() { print(say) }\n",
		"manifests/base/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" +
			"resources: [pod.yaml]\nimages: [{name: example.com/tiny, newTag: v7}]\n",
		"manifests/base/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: tiny}\n" +
			"spec: {containers: [{name: tiny, image: example.com/tiny}]}\n",
		"manifests/default/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" +
			"resources: [../base]\n",
		"manifests/learners/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" +
			"resources: [pod.yaml]\n",
		"manifests/learners/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: more}\n" +
			"spec: {containers: [{name: more, image: example.com/tiny}]}\n",
	})
	return options{
		registry:  host + "/team/aware",
		platforms: []string{"linux/amd64", "linux/arm64"},
		source:    dir,
		base:      filepath.Join(dir, "manifests/base"),
		overlays:  []overlay{{"default", filepath.Join(dir, "out/install")}, {"learners", filepath.Join(dir, "out/more")}},
		bin:       filepath.Join(dir, "out/bin"),
		ldflags:   map[string]string{"tiny": "-X main.say=hello"},
	}
}

func TestTheKustomizationInstallsWhatWasPushed(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	o := tiny(t, host)
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	used := ""
	for _, one := range o.overlays {
		objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), one.folder)
		if err != nil {
			t.Fatal(err)
		}
		text, err := objects.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(string(text), "image: ")
		used, _, _ = strings.Cut(after, "\n")
		if !found || !strings.HasPrefix(used, host+"/team/aware/tiny@sha256:") {
			t.Fatalf("%s uses %q:\n%s", one.of, used, text)
		}
	}
	for _, ref := range []string{used, host + "/team/aware/tiny:v7"} {
		for _, arch := range []string{"amd64", "arm64"} {
			program := pull(t, ref, arch)
			if runtime.GOARCH != arch {
				continue
			}
			if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "hello" {
				t.Errorf("the program of %s for %s says %q, %v", ref, arch, out, err)
			}
		}
	}
}

// pull gets the program that a node of an architecture would run.
func pull(t *testing.T, ref, arch string) string {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(r, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatalf("pulling %s for %s: %v", ref, arch, err)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Architecture != arch || len(config.Config.Entrypoint) != 1 || config.Config.Entrypoint[0] != "/tiny" {
		t.Fatalf("%s for %s: %+v, %v", ref, arch, config, err)
	}
	files := mutate.Extract(image)
	defer files.Close()
	all, err := io.ReadAll(files)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(all, []byte("\x7fELF"))
	if begin < 0 {
		t.Fatalf("%s for %s has no program", ref, arch)
	}
	file := filepath.Join(t.TempDir(), "tiny")
	if err := os.WriteFile(file, all[begin:], 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	for name, c := range map[string]struct {
		change func(*options)
		says   []string
	}{
		"no registry":           {func(o *options) { o.registry = "" }, []string{"--registry"}},
		"no name of a registry": {func(o *options) { o.registry = "https://" + host }, []string{"--registry", "https:"}},
		"no tag":                {func(o *options) { o.tag = "a b" }, []string{"--tag", "a b"}},
		"no platform of Linux": {func(o *options) { o.platforms = []string{"windows/amd64"} },
			[]string{"--platforms", "windows/amd64"}},
		"no architecture of Go":  {func(o *options) { o.platforms = []string{"linux/pdp11"} }, []string{"linux/pdp11"}},
		"nothing is built there": {func(o *options) { o.built = "/nowhere" }, []string{"--built", "/nowhere/amd64/tiny"}},
		"nobody serves there":    {func(o *options) { o.registry = "127.0.0.1:1/x" }, []string{"127.0.0.1:1/x/tiny:v7"}},
		"no manifests":           {func(o *options) { o.base = "/nowhere" }, []string{"/nowhere/kustomization.yaml"}},
		"manifests and no image": {func(o *options) { o.base = filepath.Join(o.source, "manifests/default") },
			[]string{"has no images"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := tiny(t, host)
			o.platforms = o.platforms[:1]
			c.change(&o)
			err := run(t.Context(), o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
			if _, err := os.Stat(o.overlays[0].folder); err == nil {
				t.Error("a kustomization of nothing was written")
			}
		})
	}
}
