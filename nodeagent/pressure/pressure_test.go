package pressure_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/pressure"
)

func TestReadReadsTheNodesPressure(t *testing.T) {
	root := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, "pressure", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := pressure.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(); err != nil || n != (pressure.Node{}) {
		t.Errorf("a kernel without PSI: %+v, %v; want that nothing is known", n, err)
	}
	put("cpu", "some avg10=42.50 avg60=1.00 avg300=1.00 total=5\n") // before 5.13 cpu has no full line
	put("io", "some avg10=60.00 avg60=1.00 avg300=1.00 total=5\nfull avg10=25.00 avg60=0.00 avg300=0.00 total=4\n")
	n, err := r.Read()
	if want := (pressure.Node{
		Observed: mdp.SetOf(mdp.CPUPressure, mdp.IOPressure),
		CPUSome:  0.425,
		IOFull:   0.25,
	}); err != nil || n != want {
		t.Errorf("%+v, %v; want %+v", n, err, want)
	}
	put("memory", "some avg10=42.50 avg60=1.00 avg300=1.00 total=5\n")
	if n, err := r.Read(); err != nil || n.Observed.Has(mdp.MemoryPressure) {
		t.Errorf("memory without a full line: %+v, %v; want that it is not known", n, err)
	}
	put("memory", "some avg10=x avg60=1.00 avg300=1.00 total=5\n")
	if n, err := r.Read(); err == nil || n.Observed != 0 || !strings.Contains(err.Error(), "memory pressure") {
		t.Errorf("a file that is not PSI was read as %+v, %v", n, err)
	}
	if _, err := pressure.Open(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a proc root that is not there was taken")
	}
}

func TestReadReadsThePressureOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/pressure/cpu"); err != nil {
		t.Skipf("this kernel has no PSI: %v", err)
	}
	r, err := pressure.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n, err := r.Read()
	if want := mdp.SetOf(mdp.CPUPressure, mdp.MemoryPressure, mdp.IOPressure); err != nil || n.Observed != want {
		t.Errorf("observed %v, %v; want %v", n.Observed, err, want)
	}
	for _, share := range []mdp.Ratio{n.CPUSome, n.MemoryFull, n.IOFull} {
		if share < 0 || share > 1 {
			t.Errorf("%+v: a share is not in [0, 1]", n)
		}
	}
}

func TestMemoryAvailableIsTheKernels(t *testing.T) {
	root := t.TempDir()
	r, err := pressure.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]mdp.Bytes{
		"MemTotal:       24690000 kB\nMemFree:          100000 kB\nMemAvailable:   12345678 kB\n": 12345678 << 10,
		"MemTotal:       24690000 kB\nMemFree:          100000 kB\n":                              -1,
		"MemAvailable:   nonsense kB\n":                                                           -1,
		"":                                                                                        -1,
	} {
		if err := os.WriteFile(filepath.Join(root, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.MemoryAvailable(); (err == nil) != (want >= 0) || err == nil && got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	os.Remove(filepath.Join(root, "meminfo"))
	if got, err := r.MemoryAvailable(); err == nil {
		t.Errorf("without meminfo %v are available", got)
	}
	own, err := pressure.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := own.MemoryAvailable(); err != nil || got < mdp.MiB {
		t.Errorf("on this machine %v are available, %v", got, err)
	}
}

func BenchmarkMemoryAvailable(b *testing.B) {
	r, err := pressure.Open("/proc")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := r.MemoryAvailable(); err != nil {
			b.Fatal(err)
		}
	}
}
