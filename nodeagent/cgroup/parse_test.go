package cgroup

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
)

// slowField is fieldOf's dumb twin.
func slowField(b []byte, key string) (uint64, bool) {
	for line := range strings.SplitSeq(string(b), "\n") {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			for _, c := range value {
				if c < '0' || c > '9' {
					return 0, false
				}
			}
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil { // ParseUint gives the largest number with its range error
				return 0, false
			}
			return n, true
		}
	}
	return 0, false
}

func FuzzFieldOf(f *testing.F) {
	f.Add([]byte("nr_periods 12\nnr_throttled 3\nthrottled_time 4500000\n"))
	f.Add([]byte("oom_kill_disable 0\nunder_oom 0\noom_kill 99999999999999999999\n"))
	f.Add([]byte("nr_throttled"))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		for _, key := range []string{"nr_periods", "nr_throttled", "oom_kill"} {
			n, ok := fieldOf(b, key)
			if m, good := slowField(b, key); n != m || ok != good {
				t.Errorf("%q of %q: %d, %v; the twin says %d, %v", key, b, n, ok, m, good)
			}
		}
		if !bytes.Equal(b, before) {
			t.Error("the parser wrote into the buffer")
		}
	})
}

func FuzzNumbers(f *testing.F) {
	for _, s := range []string{
		"0\n", "18446744073709551615\n", "18446744073709551616\n", "-1\n", "max\n", "max 100000\n",
		"50000 100000\n", "-", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok := uintOf(b)
		if want, err := strconv.ParseUint(strings.TrimSuffix(string(b), "\n"), 10, 64); ok != (err == nil) || ok && n != want {
			t.Errorf("uintOf(%q) = %d, %v; strconv says %d, %v", b, n, ok, want, err)
		}
		if i, ok := intOf(b); ok && strconv.FormatInt(i, 10) != strings.TrimLeft(string(trimNewline(b)), "0") &&
			i != 0 && b[0] != '-' && b[0] != '0' {
			t.Errorf("intOf(%q) = %d", b, i)
		}
		if q, p, ok := cpuMaxOf(b); ok && (q < 0 || p < 0) {
			t.Errorf("cpuMaxOf(%q) = %d, %d", b, q, p)
		}
		maxOf(b)
	})
}

func FuzzIO(f *testing.F) {
	f.Add([]byte("8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\nTotal 12288\n"))
	f.Add([]byte("8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"))
	f.Add([]byte("8:0 rbytes= wbytes\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, ok := blkioOf(b); !ok && n != 0 {
			t.Errorf("blkioOf(%q): unknown and yet %d", b, n)
		}
		if n, ok := ioStatOf(b); !ok && n != 0 {
			t.Errorf("ioStatOf(%q): unknown and yet %d", b, n)
		}
	})
}

func FuzzPressure(f *testing.F) {
	f.Add([]byte("some avg10=3.31 avg60=11.50 avg300=19.65 total=626809138\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"))
	f.Add([]byte("full total=\nsome"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, kind := range []string{"some", "full"} {
			if n, ok := pressureOf(b, kind); ok && !bytes.Contains(b, []byte(kind)) {
				t.Errorf("pressureOf(%q, %s) = %d", b, kind, n)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"/kubepods/burstable/pod1/abc", "kubepods-pod1.slice:cri-containerd:abc", "-.slice:a:b",
		"a.slice:b:../../c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := (&Tree{}).Path(s)
		if err == nil && (p == "" || p[0] == '/' || p == ".." || strings.HasPrefix(p, "../") || strings.Contains(p, "/../")) {
			t.Errorf("Path(%q) = %q leads out of the root", s, p)
		}
	})
}
