package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestGymServesUntilItsContextEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	cmd := gymCommand()
	out, in := io.Pipe()
	cmd.SetOut(in)
	cmd.SetArgs([]string{"--listen", "127.0.0.1:0", "--trace", "bursty", "--rate", "300"})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	line := make([]byte, 500)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(line[:n]))
	post := func(method, body string) string {
		t.Helper()
		r, err := http.Post(url+"/awarescale.gym.v1.Gym/"+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := post("Init", `{}`); !strings.Contains(got, "hotel-reservation") ||
		!strings.Contains(got, "frontend") {
		t.Errorf("init: %s", got)
	}
	if got := post("Init", `{"workload": "social-network", "options": {"trace": "noisy"}}`); !strings.Contains(got, "social-network") {
		t.Errorf("init of another application: %s", got)
	}
	if got := post("Init", `{"workload": "/etc/passwd"}`); !strings.Contains(got, "not_found") {
		t.Errorf("a client opens a file: %s", got)
	}
	if got := post("Init", `{"options": {"trace": "/etc/passwd"}}`); !strings.Contains(got, "not_found") {
		t.Errorf("a client opens a file: %s", got)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not stop")
	}
}

func TestGymNamesTheWrongFlag(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("name: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"an unknown application":         {[]string{"--app", missing}, "missing.yaml"},
		"an application that is no YAML": {[]string{"--app", broken}, "broken.yaml"},
		"an unknown trace":               {[]string{"--trace", "calm"}, `"calm"`},
		"a negative rate":                {[]string{"--rate", "-1"}, "--rate -1"},
		"a step of nothing":              {[]string{"--step", "0s"}, "--step 0s"},
		"a workload without namespace":   {[]string{"--workload", "deployment/shop"}, `"deployment/shop"`},
		"a workload on a public address": {[]string{"--workload", "prod/deployment/shop",
			"--listen", "0.0.0.0:7780"}, "loopback"},
		"an argument": {[]string{"now"}, `"now"`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := gymCommand()
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			cmd.SetOut(&bytes.Buffer{})
			cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0"}, c.args...))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v; want one that says %s", err, c.says)
			}
		})
	}
}
