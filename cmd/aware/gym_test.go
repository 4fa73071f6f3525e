package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/bench"
	envworkload "awarescale.dev/aware/learner/env/workload"
	"awarescale.dev/aware/learner/gym"
	"awarescale.dev/aware/learner/sim/workload"
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
	got := post("Init", `{"workload": "social-network", "options": {"trace": "noisy"}}`)
	if !strings.Contains(got, "social-network") {
		t.Errorf("init of another application: %s", got)
	}
	if got := post("Init", `{"options": {"allServices": true}}`); !strings.Contains(got, "memcached-rate") ||
		!strings.Contains(got, "frontend") {
		t.Errorf("init of all services: %s", got)
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

// Who learns in the gym is judged in the bench: both must be the same world.
func TestGymServesTheBenchsCellsUnlessARateIsAsked(t *testing.T) {
	cells, err := bench.Cells()
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range cells {
		g := gymnasium{app: cell.Application, trace: cell.Trace.Name, step: 10 * time.Second}
		worlds, _, err := g.worlds(gym.OpenRequest{})
		if err != nil {
			t.Fatal(err)
		}
		world, err := worlds(3)
		if err != nil {
			t.Fatal(err)
		}
		want := envworkload.Anywhere(cell.Trace, 3)
		for at := range 100 {
			second := time.Duration(at) * 37 * time.Second
			if got := world.Load.Rate(second); got != want.Rate(second) {
				t.Fatalf("%s under %s, at %v: %v requests/s, the cell has %v", g.app, g.trace, second, got, want.Rate(second))
			}
		}
		if !reflect.DeepEqual(world.Cluster, workload.Machines) || !reflect.DeepEqual(world.App, cell.App) {
			t.Errorf("%s under %s: machines %+v, the cell has %+v", g.app, g.trace, world.Cluster, workload.Machines)
		}
	}
	g := gymnasium{app: "social-network", trace: "bursty", rate: 300, step: 10 * time.Second}
	worlds, _, err := g.worlds(gym.OpenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if world, err := worlds(3); err != nil || reflect.DeepEqual(world.Cluster, workload.Machines) {
		t.Errorf("with a rate of its own there is no cell, but it has the cell's machines; %v", err)
	}
	_, _, err = g.worlds(gym.OpenRequest{Trace: "constant"})
	if err == nil || !strings.Contains(err.Error(), `trace "constant"`) {
		t.Errorf("a constant rate is of cells only: %v", err)
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
