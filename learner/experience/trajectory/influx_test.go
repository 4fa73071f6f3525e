package trajectory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/experience/trajectory/trajectorytest"
	"awarescale.dev/aware/learner/mdp"
)

// influxd is a real InfluxDB 1.x of the test's own, on a loopback port.
type influxd struct {
	url       string
	databases atomic.Int32
}

func startInfluxd(t testing.TB) *influxd {
	t.Helper()
	binary, err := exec.LookPath("influxd")
	if err != nil {
		t.Skip("no influxd on the PATH; Debian has it as influxdb")
	}
	dir := t.TempDir()
	api, rpc := freePort(t), freePort(t)
	config := filepath.Join(dir, "influxdb.conf")
	err = os.WriteFile(config, fmt.Appendf(nil, `
reporting-disabled = true
bind-address = %q
[meta]
  dir = "%[3]s/meta"
[data]
  dir = "%[3]s/data"
  wal-dir = "%[3]s/wal"
  query-log-enabled = false
[http]
  bind-address = %[2]q
  log-enabled = false
[monitor]
  store-enabled = false
[logging]
  level = "error"
`, rpc, api, dir), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	daemon := exec.Command(binary, "run", "-config", config)
	daemon.Stdout, daemon.Stderr = &out, &out
	daemon.Env = append(os.Environ(), "HOME="+dir)
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that times out runs no cleanup
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- daemon.Wait() }()
	t.Cleanup(func() {
		daemon.Process.Kill()
		<-gone
	})
	d := &influxd{url: "http://" + api}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		response, err := http.Get(d.url + "/ping")
		if err == nil {
			response.Body.Close()
			return d
		}
		select {
		case err := <-gone:
			gone <- err
			t.Fatalf("influxd ended: %v\n%s", err, out.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("influxd does not answer: %v", err)
		}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// database makes a new one.
func (d *influxd) database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("db", d.databases.Add(1))
	d.command(t, "CREATE DATABASE "+name)
	return name
}

func (d *influxd) command(t testing.TB, q string) {
	t.Helper()
	response, err := http.PostForm(d.url+"/query", url.Values{"q": {q}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || strings.Contains(string(answer), "error") {
		t.Fatalf("%s: %s %s %v", q, response.Status, answer, err)
	}
}

func openInflux(t testing.TB, c trajectory.InfluxConfig, b trajectory.Buffering) *trajectory.Influx {
	t.Helper()
	s, err := trajectory.OpenInflux(c, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInfluxPassesTheStoreSuite(t *testing.T) {
	d := startInfluxd(t)
	trajectorytest.Store(t, func(t *testing.T) trajectory.Store {
		return openInflux(t, trajectory.InfluxConfig{URL: d.url, Database: d.database(t)}, trajectory.Buffering{})
	})
}

// There is no influxd of 2.x in Debian. Its way of writing is put in front of
// one of 1.x, as 1.8 itself does; the bucket is called as the database.
func TestInfluxTwoPassesTheStoreSuite(t *testing.T) {
	d := startInfluxd(t)
	two := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		to := d.url + r.URL.RequestURI()
		switch {
		case r.Header.Get("Authorization") != "Token secret":
			http.Error(w, `{"code":"unauthorized"}`, http.StatusUnauthorized)
			return
		case r.URL.Path == "/api/v2/write" && q.Get("org") == "aware" && q.Get("precision") == "ns" &&
			r.Method == http.MethodPost:
			to = d.url + "/write?" + url.Values{"db": {q.Get("bucket")}, "precision": {"ns"}}.Encode()
		case r.URL.Path != "/query":
			http.NotFound(w, r)
			return
		}
		request, err := http.NewRequestWithContext(r.Context(), r.Method, to, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		w.WriteHeader(response.StatusCode)
		io.Copy(w, response.Body)
	}))
	defer two.Close()
	trajectorytest.Store(t, func(t *testing.T) trajectory.Store {
		name := d.database(t)
		return openInflux(t, trajectory.InfluxConfig{
			URL:      two.URL + "/",
			Database: name,
			Bucket:   name,
			Org:      "aware",
			Token:    "secret",
		}, trajectory.Buffering{})
	})
	s := openInflux(t, trajectory.InfluxConfig{
		URL:      two.URL,
		Database: "db1",
		Bucket:   "db1",
		Org:      "aware",
		Token:    "wrong",
	}, trajectory.Buffering{})
	if err := errors.Join(s.Append(t.Context(), "w", 0, 0, worth(1)), s.Flush(t.Context())); err == nil ||
		!strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v, want a 401 and not the token", err)
	}
}

// What InfluxDB itself makes of our points, for people who look at them.
func TestPointHasTheDocumentedForm(t *testing.T) {
	d := startInfluxd(t)
	name := d.database(t)
	s := openInflux(t, trajectory.InfluxConfig{URL: d.url, Database: name}, trajectory.Buffering{})
	one := trajectorytest.Full()
	one.Next.Observed = mdp.SetOf(mdp.Latency)
	if err := errors.Join(s.Append(t.Context(), "shop/deployment/web", 3, 5, one), s.Close()); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(d.url + "/query?" + url.Values{"db": {name}, "epoch": {"ns"}, "q": {"SHOW FIELD KEYS"}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	keys, _ := io.ReadAll(response.Body)
	for _, want := range []string{
		`["reward","float"]`, `["state_cpu_limit","integer"]`, `["state_throttled","float"]`,
		`["next_latency","integer"]`, `["action_replicas","integer"]`, `["truncated","integer"]`,
	} {
		if !strings.Contains(string(keys), want) {
			t.Errorf("no %s in %s", want, keys)
		}
	}
	if strings.Contains(string(keys), "next_cpu_limit") {
		t.Errorf("a field of what was not observed: %s", keys)
	}
	line := trajectory.Line("shop/deployment/web", 3, 5, one)
	if !strings.HasPrefix(line, "transitions,workload=shop/deployment/web reward=") ||
		!strings.HasSuffix(line, fmt.Sprintf(" %d\n", 3<<31+5)) {
		t.Error(line)
	}
}

// A database that forgets after a day forgets logical time at once: that is
// said, and nothing is lost.
func TestFiniteRetentionIsReported(t *testing.T) {
	d := startInfluxd(t)
	name := d.database(t)
	d.command(t, "ALTER RETENTION POLICY autogen ON "+name+" DURATION 1d SHARD DURATION 1h")
	s := openInflux(t, trajectory.InfluxConfig{URL: d.url, Database: name}, trajectory.Buffering{})
	err := errors.Join(s.Append(t.Context(), "w", 0, 0, worth(1)), s.Flush(t.Context()))
	if err == nil || !strings.Contains(err.Error(), "beyond retention policy") || !strings.Contains(err.Error(), "1 wait") {
		t.Error(err)
	}
	d.command(t, "ALTER RETENTION POLICY autogen ON "+name+" DURATION INF SHARD DURATION 7d")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesAMissingDatabase(t *testing.T) {
	d := startInfluxd(t)
	s := openInflux(t, trajectory.InfluxConfig{URL: d.url, Database: "nowhere"}, trajectory.Buffering{})
	err := errors.Join(s.Append(t.Context(), "w", 0, 0, worth(1)), s.Flush(t.Context()))
	_, reading := s.Workloads(t.Context())
	for _, err := range []error{err, reading} {
		if err == nil || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "not found") {
			t.Error(err)
		}
	}
}

// fake is a server whose answers a test gives.
type fake struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request)
	asked  int
	bodies []string // of writes that were answered with 204
}

func startFake(t *testing.T) *fake {
	f := &fake{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked++
		answer := f.answer
		f.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if answer != nil {
			answer(w, r)
			return
		}
		f.mu.Lock()
		f.bodies = append(f.bodies, string(body))
		f.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) set(answer func(w http.ResponseWriter, r *http.Request)) (asked int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
	asked, f.asked = f.asked, 0
	return asked
}

func status(code int, text string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
}

// open is a store of the fake that holds 45, four batches and a half, and is
// not patient.
func (f *fake) open(t *testing.T) *trajectory.Influx {
	return openInflux(t, trajectory.InfluxConfig{
		URL:      f.URL,
		Database: "db",
		Timeout:  50 * time.Millisecond,
		Tries:    3,
		Pause:    time.Millisecond,
	},
		trajectory.Buffering{Batch: 10, Limit: 45})
}

func TestAppendDoesNotBlockWhenInfluxIsDownOrSlow(t *testing.T) {
	for _, one := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request)
		tries  int
		says   string
	}{
		{"down", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
		}, 3, "EOF"},
		{"slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 3, "deadline exceeded"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		}, 3, "unexpected EOF"},
		{"overloaded", status(http.StatusServiceUnavailable, "later"), 3, "503"},
		{"too many requests", status(http.StatusTooManyRequests, "later"), 3, "429"},
		{
			"part of the points dropped",
			status(http.StatusBadRequest, `{"error":"partial write: field type conflict dropped=1"}`), 1,
			"partial write",
		},
	} {
		t.Run(one.name, func(t *testing.T) {
			f := startFake(t)
			f.set(one.answer)
			s := f.open(t)
			add := func(step int) error { return s.Append(t.Context(), "w", 0, step, worth(float64(step))) }
			if err := add(0); err != nil {
				t.Fatal(err)
			}
			err := s.Flush(t.Context())
			if err == nil || !strings.Contains(err.Error(), one.says) || !strings.Contains(err.Error(), "1 wait") ||
				!strings.Contains(err.Error(), "/write") {
				t.Errorf("Flush says %v, want %q", err, one.says)
			}
			if asked := f.set(one.answer); asked != one.tries {
				t.Errorf("%d tries, want %d", asked, one.tries)
			}
			for step := 1; step < 45; step++ {
				if err := add(step); err != nil {
					t.Fatal(err)
				}
			}
			err = add(45)
			if !errors.Is(err, trajectory.ErrBufferFull) || !strings.Contains(err.Error(), "45 transitions wait") ||
				!strings.Contains(err.Error(), one.says) {
				t.Errorf("Append says %v", err)
			}
			if figures := s.Figures(); figures.Waiting != 45 || figures.Dropped != 1 || figures.Problem == nil {
				t.Errorf("%+v", figures)
			}
			f.set(nil) // it is back: whoever is refused now sets it going again
			eventually(t, "room again", func() bool { return add(45) == nil })
			eventually(t, "all whole batches written", func() bool { return s.Figures().Written == 40 })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			var lines []string
			for _, body := range f.bodies {
				lines = append(lines, strings.Split(strings.TrimSpace(body), "\n")...)
			}
			if len(f.bodies) != 5 || len(lines) != 46 {
				t.Fatalf("%d lines in %d writes", len(lines), len(f.bodies))
			}
			for step, line := range lines {
				if !strings.HasSuffix(line, fmt.Sprint(" ", step)) {
					t.Errorf("at %d is %s", step, line)
				}
			}
		})
	}
}

// Without a ticker and without a Flush, nothing but those who are refused can
// tell that there may be room again.
func TestRejectedAppendStartsAnotherWrite(t *testing.T) {
	f := startFake(t)
	f.set(status(http.StatusBadRequest, "no"))
	s := openInflux(t, trajectory.InfluxConfig{URL: f.URL, Database: "db"}, trajectory.Buffering{Batch: 10, Limit: 15})
	defer s.Close()
	for step := range 15 {
		if err := s.Append(t.Context(), "w", 0, step, worth(1)); err != nil {
			t.Fatal(err)
		}
		if step == 9 {
			eventually(t, "the first batch has failed", func() bool { return s.Figures().Problem != nil })
		}
	}
	f.set(nil)
	if err := s.Append(t.Context(), "w", 0, 15, worth(1)); !errors.Is(err, trajectory.ErrBufferFull) {
		t.Errorf("%v", err)
	}
	eventually(t, "the batch written", func() bool { return s.Figures().Written == 10 })
}

func TestAppendAndReadsDoNotWaitForAHangingWrite(t *testing.T) {
	f := startFake(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	f.set(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusNoContent)
	})
	s := openInflux(t, trajectory.InfluxConfig{
		URL:      f.URL,
		Database: "db",
		Timeout:  time.Minute,
	}, trajectory.Buffering{Batch: 10, Limit: 40})
	for step := range 40 {
		if err := s.Append(t.Context(), "w", 0, step, worth(1)); err != nil { // would wait a minute
			t.Fatal(err)
		}
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a flush with a deadline: %v", err)
	}
	f.set(nil)
	close(answer)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if figures := s.Figures(); figures.Written != 40 {
		t.Errorf("%+v", figures)
	}
}

func TestCloseReportsLostTransitionsWhenNoServerListens(t *testing.T) {
	s := openInflux(t, trajectory.InfluxConfig{
		URL:      "http://" + freePort(t),
		Database: "db",
		Tries:    2,
		Pause:    time.Millisecond,
	}, trajectory.Buffering{})
	if err := s.Append(t.Context(), "w", 0, 0, worth(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "1 transitions are lost") ||
		!strings.Contains(err.Error(), "connection refused") || strings.Count(err.Error(), "http://") != 3 {
		t.Error(err)
	}
}

func TestInvalidAnswerIsAnError(t *testing.T) {
	f := startFake(t)
	s := f.open(t)
	defer s.Close()
	row := func(columns, values string) string {
		return `{"results":[{"series":[{"columns":[` + columns + `],"values":[[` + values + `]]}]}]}`
	}
	for _, bad := range []struct{ answer, says string }{
		{``, "is not what /query answers"},
		{`<html>a proxy</html>`, "a proxy"},
		{`{"results":[]}x`, "goes on after its end"},
		{`{"error":"no way"}`, "no way"},
		{`{"results":[{"error":"database not found: db"}]}`, "database not found"},
		{`{"results":[{"partial":true,"series":[{"columns":["time"],"values":[[1]]}]}]}`, "max-row-limit"},
		{row(`"time","reward"`, `1`), "1 values for 2 columns"},
		{row(`"reward"`, `1`), "no time"},
		{row(`"time"`, `null`), "time is <nil>"},
		{row(`"time"`, `-5`), "a point at -5"},
		{row(`"time"`, `1.5`), "invalid syntax"},
		{row(`"time"`, `6442450949`), "episode 3 step 5: a point has no reward"},
		{row(`"time","reward","terminated"`, `1,1,2`), "terminated is 2"},
		{
			row(`"time","reward","terminated","truncated","state_at","state_at_nanos","state_observed"`, `1,1,0,0,0,0,4294967295`),
			"signals that trajectory does not know",
		},
		{
			row(`"time","reward","terminated","truncated","state_at","state_at_nanos","state_observed"`, `1,1,0,0,0,0,1`),
			"no state_replicas",
		},
		{
			row(`"time","reward","terminated","truncated","state_at","state_at_nanos"`, `1,1,0,0,0,1000000000`),
			"state_at_nanos is 1000000000",
		},
	} {
		f.set(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, bad.answer) })
		var err error
		for _, err = range s.Transitions(t.Context(), "w", 10) {
		}
		if err == nil || !strings.Contains(err.Error(), bad.says) || !strings.Contains(err.Error(), f.URL) {
			t.Errorf("%s: %v, want %q", bad.answer, err, bad.says)
		}
	}
}

// A server that gives the same page for ever would be asked for ever.
func TestRepeatedPageIsAnError(t *testing.T) {
	f := startFake(t)
	s := f.open(t)
	defer s.Close()
	rows := strings.TrimSuffix(strings.Repeat(`[4611686018427387903,1,0,1],`, 10000), ",")
	f.set(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"results":[{"series":[{"columns":["time","reward","terminated","truncated"],"values":[`+rows+`]}]}]}`)
	})
	if _, err := s.Rewards(t.Context(), "w", 1_000_000); err == nil ||
		!strings.Contains(err.Error(), "outside of what was asked") {
		t.Error(err)
	}
}

func TestInvalidInfluxConfigIsAnError(t *testing.T) {
	good := trajectory.InfluxConfig{URL: "http://localhost:1", Database: "db"}
	for _, bad := range []struct {
		change func(c *trajectory.InfluxConfig)
		says   string
	}{
		{func(c *trajectory.InfluxConfig) { c.URL = "localhost:8086" }, `"localhost:8086"`},
		{func(c *trajectory.InfluxConfig) { c.URL = "ftp://localhost" }, `"ftp://localhost"`},
		{func(c *trajectory.InfluxConfig) { c.URL = "http://me:hidden@localhost" }, "has a user"},
		{func(c *trajectory.InfluxConfig) { c.URL = "http://me:hidden@local host" }, "cannot be parsed"},
		{func(c *trajectory.InfluxConfig) { c.Database = "" }, "database is empty"},
		{func(c *trajectory.InfluxConfig) { c.Timeout = -1 }, "-1ns"},
	} {
		c := good
		bad.change(&c)
		if _, err := trajectory.OpenInflux(c, trajectory.Buffering{}); err == nil ||
			!strings.Contains(err.Error(), bad.says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v, want %q", err, bad.says)
		}
	}
}

func TestPasswordIsSentInTheHeader(t *testing.T) {
	f := startFake(t)
	f.set(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "hidden" || strings.Contains(r.RequestURI, "hidden") {
			t.Errorf("%s %q %q", r.RequestURI, user, password)
		}
		http.Error(w, "no", http.StatusForbidden)
	})
	s := openInflux(t, trajectory.InfluxConfig{
		URL:      f.URL,
		Database: "db",
		User:     "me",
		Password: "hidden",
	}, trajectory.Buffering{})
	defer s.Close()
	if _, err := s.Workloads(t.Context()); err == nil || !strings.Contains(err.Error(), "403") ||
		strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"results":[{"series":[{"name":"transitions","tags":{"workload":"a"},` +
		`"columns":["time","reward"],"values":[[1,0.5],[2,null]]}]}]}`))
	f.Add([]byte(`{"results":[{"series":[{"columns":["time","reward","terminated","truncated",` +
		`"state_at","state_at_nanos","state_observed","state_latency",` +
		`"action_sets","action_replicas","action_clipped","next_at","next_at_nanos","next_observed","next_throttled"],` +
		`"values":[[1,0.5,0,1,1700000000,7,4096,1000,1,3,2,1700000001,8,128,0.25]]}]}]}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, _, err := trajectory.Answered(text)
		if err != nil {
			return
		}
		for _, one := range all {
			if err := trajectory.Check("w", 0, 0, one); err != nil {
				t.Errorf("it is read, but Append would not take it: %v", err)
			}
		}
	})
}

// A name must not end its tag, nor its line, whatever it is: taken apart by the
// rules of line protocol it is the same.
func FuzzLine(f *testing.F) {
	f.Add("shop/deployment/web", 1.5)
	f.Add(`a,b=c d"e'`, -1e-320)
	f.Add("日本\u2028", 1e300)
	f.Fuzz(func(t *testing.T, name string, reward float64) {
		if trajectory.Check(name, 1, 2, worth(reward)) != nil {
			return
		}
		line := trajectory.Line(name, 1, 2, worth(reward))
		rest, ok := strings.CutPrefix(line, "transitions,workload=")
		var tag strings.Builder
		for i := 0; ok && i < len(rest); i++ {
			if rest[i] == '\\' {
				i++
			} else if rest[i] == ' ' || rest[i] == ',' || rest[i] == '=' {
				rest = rest[i:]
				break
			}
			tag.WriteByte(rest[i])
		}
		var got float64
		if n, err := fmt.Sscanf(rest, " reward=%g,", &got); n != 1 || err != nil || got != reward {
			t.Errorf("%q: reward %v, %v", line, got, err)
		}
		if tag.String() != name || strings.Count(line, "\n") != 1 {
			t.Errorf("%q of %q gives %q", line, name, tag.String())
		}
	})
}

func BenchmarkInflux(b *testing.B) {
	d := startInfluxd(b)
	appendMany(b, openInflux(b, trajectory.InfluxConfig{URL: d.url, Database: d.database(b)}, trajectory.Buffering{}))
}
