package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAKernelIsNamedByWhatAptCacheSays(t *testing.T) {
	got, err := imageOf("linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n")
	if err != nil || got != "linux-image-6.1.0-56-cloud-amd64" {
		t.Errorf("imageOf = %q, %v", got, err)
	}
	if got, err := imageOf("linux-image-cloud-amd64\n"); err == nil || !strings.Contains(err.Error(), kernelPackage) {
		t.Errorf("imageOf = %q, %v; want an error that names the package", got, err)
	}
}

func TestModulesComeAfterThoseThatTheyNeed(t *testing.T) {
	if err := Preflight(t.Context(), true); err != nil {
		t.Skip(err)
	}
	k, err := findKernel(cacheBase())
	if err != nil {
		t.Fatal(err)
	}
	modules, err := k.modules(t.Context(), diskModules...)
	if err != nil {
		t.Fatal(err)
	}
	loaded := map[string]bool{}
	for _, m := range modules {
		needs, err := dependencies(m.code)
		if err != nil {
			t.Fatal(err)
		}
		for _, need := range needs {
			if !loaded[need+".ko"] {
				t.Errorf("%s comes before %s, which it needs", m.name, need)
			}
		}
		loaded[m.name] = true
	}
	if !loaded["virtio_blk.ko"] {
		t.Errorf("no module of the disk among %v", loaded)
	}
}

func TestACompressedModuleIsUnpacked(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "a.ko")
	if err := os.WriteFile(path, []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "xz", path).CombinedOutput(); err != nil {
		t.Fatalf("xz: %v\n%s", err, out)
	}
	if code, err := readModule(t.Context(), path+".xz"); err != nil || string(code) != "code" {
		t.Errorf("readModule = %q, %v", code, err)
	}
}

func TestWithoutAKernelTheReasonIsItsFolder(t *testing.T) {
	cache := t.TempDir()
	if _, err := findKernel(cache); err == nil || !strings.Contains(err.Error(), cache) {
		t.Errorf("err = %v, want the folder", err)
	}
	// A boot without modules is a kernel that was half unpacked.
	boot := filepath.Join(cache, "linux-image-1", "boot")
	if err := os.MkdirAll(boot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(boot, "vmlinuz-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := findKernel(cache); err == nil {
		t.Errorf("%+v was taken for a kernel", k)
	}
	if err := os.MkdirAll(filepath.Join(cache, "linux-image-1", "usr/lib/modules/1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if k, err := findKernel(cache); err != nil || k.image != filepath.Join(boot, "vmlinuz-1") {
		t.Errorf("%+v, %v", k, err)
	}
}
