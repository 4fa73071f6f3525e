package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/dns/dnsmessage"
)

// program is one of the programs, and how it is loaded.
type program struct {
	name     string
	limit    int // the static CPU limit, in millicores
	port     int // that takes requests
	metrics  int // that has its metrics
	metric   string
	args     []string
	config   string // its configuration file, at /etc/foreign/config; empty for none
	requests func(address string) (do func(context.Context, string) error, target string, end func(), err error)
	capacity func(ctx context.Context, tools, address string) (float64, error) // nil: a closed loop of requests
}

// names are the programs, in the order in which they run.
func names() []string {
	all := programs()
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	return names
}

func imageOf(name string) string { return "awarescale.dev/foreign-" + name + ":dev" }

func programs() []program {
	return []program{
		{
			name: "prometheus", limit: 1000, port: 9090, metrics: 9090, metric: "prometheus_http_request_duration_seconds",
			args: []string{"--config.file=/etc/foreign/config", "--storage.tsdb.path=/data", "--log.level=warn"},
			config: `global:
  scrape_interval: 1s
scrape_configs:
- job_name: self
  static_configs:
  - targets: [localhost:9090]
`,
			requests: func(address string) (func(context.Context, string) error, string, func(), error) {
				query := "sum by (handler, le) (rate(prometheus_http_request_duration_seconds_bucket[30s]))"
				return nil, "http://" + address + "/api/v1/query?query=" + url.QueryEscape(query), func() {}, nil
			},
		},
		{
			// Who loads it needs as much CPU as it does. With a whole core for each a machine of two is full at 90 %, and
			// left alone 6 % of its requests were late.
			name: "etcd", limit: 500, port: 2379, metrics: 2381, metric: "grpc_server_handling_seconds",
			args: []string{
				"--data-dir=/data", "--unsafe-no-fsync", "--log-level=warn",
				"--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://0.0.0.0:2379",
				"--listen-metrics-urls=http://0.0.0.0:2381", "--metrics=extensive",
			},
			requests: puts,
			capacity: etcdCapacity,
		},
		{
			name: "coredns", limit: 1000, port: 5353, metrics: 9153, metric: "coredns_dns_request_duration_seconds",
			args: []string{"-conf=/etc/foreign/config"},
			config: `.:5353 {
  prometheus 0.0.0.0:9153
  errors
  template IN A {
    answer "{{ .Name }} 60 IN A 192.0.2.1"
  }
}
`,
			requests: questions,
		},
	}
}

// keys is how many keys the writes go to.
const keys = 1000

// puts writes to an etcd.
func puts(address string) (func(context.Context, string) error, string, func(), error) {
	var all []*clientv3.Client
	end := func() {
		for _, c := range all {
			c.Close()
		}
	}
	for range connections {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + address}, DialTimeout: 5 * time.Second})
		if err != nil {
			end()
			return nil, "", nil, fmt.Errorf("dialling etcd: %w", err)
		}
		all = append(all, c)
	}
	value := strings.Repeat("x", 256)
	do := func(ctx context.Context, _ string) error {
		_, err := all[rand.IntN(connections)].Put(ctx, "key"+strconv.Itoa(rand.IntN(keys)), value)
		return err
	}
	return do, address, end, nil
}

// connections is how many connections to an etcd there are.
const connections = 8

// perSecond is the line of etcd's benchmark tool that says what it reached.
var perSecond = regexp.MustCompile(`Requests/sec:\s*([0-9.]+)`)

// etcdCapacity is what etcd's own benchmark tool reaches.
func etcdCapacity(ctx context.Context, tools, address string) (float64, error) {
	out, err := output(ctx, ".", filepath.Join(tools, "benchmark"),
		"--endpoints=http://"+address, "--conns="+strconv.Itoa(connections), "--clients=32",
		"put", "--total=200000", "--val-size=256", "--key-space-size="+strconv.Itoa(keys))
	if err != nil {
		return 0, err
	}
	m := perSecond.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("etcd's benchmark tool says no Requests/sec: %.500q", out)
	}
	return strconv.ParseFloat(m[1], 64)
}

// questions asks a DNS server for addresses of names, each in a packet of its own.
func questions(address string) (func(context.Context, string) error, string, func(), error) {
	do := func(ctx context.Context, address string) error {
		name, err := dnsmessage.NewName(fmt.Sprintf("host-%d.example.", rand.IntN(keys)))
		if err != nil {
			return err
		}
		id := uint16(rand.Uint32())
		m := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		}
		packet, err := m.Pack()
		if err != nil {
			return err
		}
		answer, err := exchange(ctx, address, packet)
		if err != nil {
			return err
		}
		if err := m.Unpack(answer); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		if m.ID != id || m.RCode != dnsmessage.RCodeSuccess || len(m.Answers) != 1 {
			return fmt.Errorf("answered %v with %d records", m.RCode, len(m.Answers))
		}
		return nil
	}
	return do, address, func() {}, nil
}

// exchange sends a packet, and waits for one.
func exchange(ctx context.Context, address string, packet []byte) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return nil, err
		}
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	answer := make([]byte, 1500)
	n, err := conn.Read(answer)
	return answer[:n], err
}

//go:embed pod.yaml
var podYAML string

var podTemplate = template.Must(template.New("pod.yaml").Parse(podYAML))

// manifest is the program's objects. With an SLO it is opted in, in mode auto.
func (p program) manifest(namespace string, slo time.Duration) ([]byte, error) {
	var b bytes.Buffer
	err := podTemplate.Execute(&b, map[string]any{
		"Namespace": namespace, "Name": p.name, "Image": imageOf(p.name), "Args": p.args, "Config": p.config, "Limit": p.limit,
		"Metrics": p.metrics, "Metric": p.metric, "SLO": slo, "Auto": slo > 0,
	})
	return b.Bytes(), err
}

// output runs a program in a folder, and is what it printed on standard output.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %.500s", name, err, problem.String())
	}
	return string(out), nil
}
