package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestAWrongCommandLineNamesFlagAndValueAndExitsWith2(t *testing.T) {
	for name, c := range map[string]struct{ args, want string }{
		"an unknown segment": {
			"--segments json,cpu:2",
			`invalid argument "json,cpu:2" for "--segments" flag: composition "json,cpu:2": unknown segment "cpu": known are float,`,
		},
		"a negative size": {"--segments json:-1", `times "-1"`},
		"a call to no URL": {
			"--calls http://a,b", `invalid argument "http://a,b" for "--calls" flag: "b": want http://host`,
		},
		"a call to half a URL":   {"--then http://", `invalid argument "http://" for "--then" flag`},
		"memory in words":        {"--memory much", `invalid argument "much" for "--memory" flag: want a whole number`},
		"memory in parts":        {"--memory 1.5Gi", `"1.5Gi" for "--memory"`},
		"negative memory":        {"--memory=-1Mi", "must be 0 to 64Gi"},
		"more than the machine":  {"--memory 65Gi", `"65Gi" for "--memory" flag: must be 0 to 64Gi`},
		"memory beyond counting": {"--memory 9223372036854775807Gi", "must be 0 to 64Gi"},
		"concurrency negative":   {"--concurrency -1", "--concurrency -1: must be 0 or more"},
		"concurrency in words":   {"--concurrency many", `invalid argument "many" for "--concurrency" flag`},
		"drain negative":         {"--drain -1s", "--drain -1s: must be 0s or more"},
		"no time to call":        {"--call-timeout 0s", "--call-timeout 0s: must be over 0s"},
		"an unknown flag":        {"--port 80", "unknown flag: --port"},
		"an argument":            {"json:2", `argument "json:2": there are only flags`},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
			if code != 2 || !strings.Contains(stderr.String(), c.want) ||
				strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("code %d, stderr %q, want 2 and one line with %q", code, &stderr, c.want)
			}
		})
	}
}

func TestAPortInUseIsAnErrorThatNamesTheFlag(t *testing.T) {
	s := defaults()
	s.listen, s.metricsListen = "127.0.0.1:0", "127.0.0.1:0"
	l, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.work.Close()
	defer l.metrics.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"--listen", "127.0.0.1:0", "--metrics-listen", l.metrics.Addr().String()},
		&stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), `--metrics-listen "127.0.0.1:`) {
		t.Errorf("code %d, stderr %q", code, &stderr)
	}
}

func TestSizesAreReadAsKubernetesWritesThem(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "1234": 1234, "4k": 4000, "4Ki": 4096, "32Mi": 32 << 20, "5M": 5e6, "2Gi": 2 << 30, "1G": 1e9,
		"64Gi": 64 << 30,
	} {
		var got size
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestSizesArePrintedAsTheyAreRead(t *testing.T) {
	for _, text := range []string{"0", "1", "1000", "4Ki", "1025Ki", "32Mi", "64Gi"} {
		var s size
		if err := s.Set(text); err != nil || s.String() != text {
			t.Errorf("%q is printed as %q, %v", text, s.String(), err)
		}
	}
}
