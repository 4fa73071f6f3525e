package main

import (
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/nn/graph"
	"awarescale.dev/aware/learner/nn/kernel/gemm"
	"github.com/spf13/pflag"
)

func TestCheckNamesTheBadFlag(t *testing.T) {
	for args, want := range map[string]string{
		"--roles=scheduler,cook": `flag --roles: "cook": it must be one of scheduler, autoscaler, learner`,
		"--roles=":               "flag --roles: it must name at least one",
		"--step=1ms":             "flag --step: 1ms: it must be from 1s to 10m0s",
		"--grant-ttl=48h":        "flag --grant-ttl: 48h0m0s: it must be from 10s to 24h0m0s",
		"--prometheus-servers=prom:9": `flag --prometheus-servers: prometheus server "prom:9": ` +
			"it must be a URL such as",
		"--deferred-patience=100ms":                   "flag --deferred-patience: 100ms",
		"--roles=scheduler --central=http://c.svc:80": `flag --central: "http://c.svc:80": it must be a URL such as https://`,
		"--central=https://c.svc:9443": `flag --central: "https://c.svc:9443": ` +
			"it is for a process without role autoscaler",
		"--roles=learner":                                    `flag --central: it is empty: a learner without role autoscaler`,
		"--roles=scheduler,learner":                          `and --roles is scheduler,learner`,
		"--trajectory-store=t.db --trajectory-secret-file=s": `flag --trajectory-secret-file: "s": it is for an InfluxDB`,
		"--trajectory-store=http://influx:8086/aware":        `flag --agents-folder: it is empty`,
		"--agents-folder=a":                                  `flag --agents-folder: "a": it is for a trajectory store`,
		"--trajectory-secret-file=s":                         `flag --trajectory-secret-file: "s": it is for a trajectory store`,
		"--trajectory-store=http://influx:8086":              `flag --trajectory-store: influxdb's database is empty`,
		"--trajectory-store=ftp://influx/aware":              `flag --trajectory-store: influxdb's url "ftp://influx"`,
		"--trajectory-store=http://me:pass@influx:8086/a":    `flag --trajectory-store: the URL has a user: use the parameter`,
		"--trajectory-store=http://influx:8086/a?rp=x":       `flag --trajectory-store: parameter "rp": it must be bucket, org or user`,
		"--trajectory-store=http://i:8086/a?user=u&bucket=b": `flag --trajectory-store: parameters user and bucket`,

		"--roles=learner --central=https://c.svc:9443 --trajectory-store=t.db": `flag --trajectory-store: "t.db": ` +
			"it is for role autoscaler",
	} {
		s, flags := defaults(), pflag.NewFlagSet("", pflag.ContinueOnError)
		s.register(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := s.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %q", args, err, want)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "elsewhere")
	s := defaults()
	if err := s.check(); err != nil || s.linkName != "aware-central.elsewhere.svc" || s.step != 10*time.Second {
		t.Errorf("settings %+v, err %v", s, err)
	}
	for _, role := range allRoles {
		if !s.has(role) {
			t.Errorf("role %s is off", role)
		}
	}
}

// The command is kube-scheduler's, with its flags and ours.
func TestTheCommandHasBothKindsOfFlags(t *testing.T) {
	cmd := command()
	for _, flag := range []string{"config", "leader-elect", "logging-format", "v", "roles", "link-bind-address", "grant-ttl"} {
		if cmd.Flag(flag) == nil {
			t.Errorf("no flag --%s", flag)
		}
	}
}

// Lessons have their matrices multiplied by the best that the CPU has, and not by gonum.
func TestLessonsAreMultipliedByTheBestOfTheCPU(t *testing.T) {
	t.Cleanup(func() { graph.Use(gemm.Gonum().BLAS()) })
	s := defaults()
	s.roles = []string{scheduler} // which needs no API server to begin
	if _, err := start(t.Context(), s, nil, nil); err != nil {
		t.Fatal(err)
	}
	if best := gemm.Choose().Name; graph.Used() != best {
		t.Errorf("products by %s, want %s", graph.Used(), best)
	}
}
