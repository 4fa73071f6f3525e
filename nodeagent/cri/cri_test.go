package cri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/cri/critest"
	"google.golang.org/grpc"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestDialNamesAWrongSocketAndItsFlag(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.sock") // a gRPC server, but no CRI
	l, err := net.Listen("unix", other)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	go g.Serve(l)
	defer g.Stop()
	for name, c := range map[string]struct{ socket, says string }{
		"missing":       {"unix://" + filepath.Join(dir, "none.sock"), "no such file"},
		"not a socket":  {plain, "not a socket"},
		"not a runtime": {"unix://" + other, "does not answer as a CRI v1 runtime"},
		"not unix":      {"tcp://127.0.0.1:99", "not a unix socket"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cri.Dial(t.Context(), c.socket)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--cri-socket") ||
				!strings.Contains(err.Error(), strings.TrimPrefix(c.socket, "unix://")) {
				t.Errorf("err = %v, want %q, the path, and --cri-socket", err, c.says)
			}
		})
	}
}

func TestUpdateChangesOnlyTheFieldsOfTheChange(t *testing.T) {
	t.Run("v2 fixture, with systemd's names", func(t *testing.T) {
		updateChangesOnlyItsFields(t, cgrouptest.Fixture(t, cgroup.V2), "kubepods-pod1.slice:cri-containerd:abc")
	})
	t.Run("this host", func(t *testing.T) {
		host := cgrouptest.Real(t)
		updateChangesOnlyItsFields(t, host, "/"+host.Parent+"/pod1/abc")
	})
}

func updateChangesOnlyItsFields(t *testing.T, host *cgrouptest.Host, cgroupsPath string) {
	t.Helper()
	server := critest.Start(t, host.Tree)
	before := cgroup.Limits{Quota: 50000, Period: 100000, Memory: 64 * mdp.MiB}
	path, err := host.Tree.Path(cgroupsPath)
	if err != nil {
		t.Fatal(err)
	}
	host.Add(t, path, before)
	server.Add("abc", cgroupsPath, before)
	client, err := cri.Dial(t.Context(), server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if got := client.Version().String(); got != "critest v1.0.0 (CRI v1)" {
		t.Errorf("version %q", got)
	}
	c, err := client.Container(t.Context(), "abc")
	if err != nil || c.CgroupsPath != cgroupsPath || c.PID == 0 {
		t.Fatalf("Container = %+v, %v", c, err)
	}
	if _, err := client.Container(t.Context(), "xyz"); !errors.Is(err, cri.ErrNoContainer) {
		t.Errorf("err = %v, want ErrNoContainer", err)
	}
	if err := client.Update(t.Context(), "abc", cri.Change{Memory: 32 * mdp.MiB}); err != nil {
		t.Fatal(err)
	}
	if err := client.Update(t.Context(), "abc", cri.Change{Quota: 20000, Period: 100000}); err != nil {
		t.Fatal(err)
	}
	calls := server.Calls()
	if m := calls[0]; m.CpuQuota != 0 || m.CpuPeriod != 0 || m.CpuShares != 0 || m.MemorySwapLimitInBytes != 0 ||
		m.MemoryLimitInBytes != int64(32*mdp.MiB) {
		t.Errorf("a memory change was sent as %v", m.LinuxContainerResources)
	}
	if q := calls[1]; q.CpuQuota != 20000 || q.CpuPeriod != 100000 || q.MemoryLimitInBytes != 0 || len(q.HugepageLimits) != 0 {
		t.Errorf("a CPU change was sent as %v", q.LinuxContainerResources)
	}
	if got, want := host.Limits(t, path), (cgroup.Limits{Quota: 20000, Period: 100000, Memory: 32 * mdp.MiB}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
}

// machine is a runtime in virtual time: a test sets how long a call takes.
type machine struct {
	mu    sync.Mutex
	now   time.Time
	takes time.Duration
	fails error
	calls []cri.Change
}

func (m *machine) clock() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *machine) wait(d time.Duration) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
	return m.now
}

func (m *machine) Container(context.Context, string) (cri.Container, error) {
	return cri.Container{}, nil
}

func (m *machine) Update(_ context.Context, _ string, c cri.Change) error {
	m.wait(m.takes)
	m.calls = append(m.calls, c)
	return m.fails
}

func discipline(m *machine) *cri.Limiter {
	return cri.NewLimiter(m, cri.DefaultRules, m.clock, nil)
}

func cpu(id string, from, to mdp.MilliCPU) cri.Move {
	return cri.Move{
		ID:     id,
		From:   mdp.Size{CPU: from},
		To:     mdp.Size{CPU: to},
		Change: cri.Change{Quota: int64(to) * 100, Period: 100000},
	}
}

func refused(err error) bool {
	var r *cri.RefusedError
	return errors.As(err, &r)
}

func TestSmallAndTooFrequentMovesAreRefused(t *testing.T) {
	m := &machine{now: noon}
	d := discipline(m)
	for _, c := range []struct {
		why  string
		wait time.Duration
		move cri.Move
		ok   bool
	}{
		{"nine percent is not worth a call", 0, cpu("a", 1000, 910), false},
		{"ten percent is", 0, cpu("a", 1000, 900), true},
		{"a raise always is", 0, cpu("c", 1000, 1090), true},
		{"half a second later is too soon", 500 * time.Millisecond, cpu("a", 900, 500), false},
		{"another container may", 0, cpu("b", 900, 500), true},
		{"a second later is right", 500 * time.Millisecond, cpu("a", 900, 500), true},
		{
			"outside of its envelope a small move is made too", time.Second,
			func() cri.Move { v := cpu("a", 500, 495); v.Must = true; return v }(), true,
		},
	} {
		now := m.wait(c.wait)
		if err := d.Update(t.Context(), now, c.move); (err == nil) != c.ok || err != nil && !refused(err) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}

func TestPartOfTheNodesBudgetIsForRaises(t *testing.T) {
	m := &machine{now: noon}
	d := discipline(m)
	made := 0
	for i := range 30 {
		if d.Update(t.Context(), noon, cpu(string(rune('A'+i)), 1000, 500)) == nil {
			made++
		}
	}
	if want := cri.DefaultRules.Burst - cri.DefaultRules.Reserve; made != want {
		t.Errorf("%d shrinks at once, want %d", made, want)
	}
	for i := range 30 {
		if d.Update(t.Context(), noon, cpu(string(rune('a'+i)), 500, 1000)) == nil {
			made++
		}
	}
	if made != cri.DefaultRules.Burst {
		t.Errorf("%d calls at once, want %d", made, cri.DefaultRules.Burst)
	}
	for s := 1; s <= 10; s++ {
		for i := range 30 {
			if d.Update(t.Context(), noon.Add(time.Duration(s)*time.Second), cpu(string(rune('a'+i)), 500, 1000)) == nil {
				made++
			}
		}
	}
	if want := cri.DefaultRules.Burst + 50; made != want {
		t.Errorf("after ten seconds %d calls, want %d", made, want)
	}
	if err := d.Restore(t.Context(), noon.Add(10*time.Second), cpu("a", 1000, 999)); err != nil {
		t.Errorf("the bucket holds up a restore: %v", err)
	}
}

func TestMemoryBecomesTightLast(t *testing.T) {
	for name, c := range map[string]struct {
		from, to mdp.Size
		want     []cri.Change
	}{
		"up": {mdp.Size{CPU: 100, Memory: mdp.MiB}, mdp.Size{CPU: 200, Memory: 2 * mdp.MiB},
			[]cri.Change{{Quota: 20000, Period: 100000, Memory: 2 * mdp.MiB}}}, // one call: the runtime writes memory first
		"down": {mdp.Size{CPU: 200, Memory: 2 * mdp.MiB}, mdp.Size{CPU: 100, Memory: mdp.MiB},
			[]cri.Change{{Quota: 10000, Period: 100000}, {Memory: mdp.MiB}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{now: noon}
			err := discipline(m).Update(t.Context(), noon, cri.Move{ID: "a", From: c.from, To: c.to,
				Change: cri.Change{Quota: int64(c.to.CPU) * 100, Period: 100000, Memory: c.to.Memory}})
			if err != nil || len(m.calls) != len(c.want) {
				t.Fatalf("calls %+v, %v; want %+v", m.calls, err, c.want)
			}
			for i := range c.want {
				if m.calls[i] != c.want[i] {
					t.Errorf("call %d: %+v, want %+v", i, m.calls[i], c.want[i])
				}
			}
		})
	}
}

func TestBreakerOpensOnASlowRuntimeAndTriesAgainAfterAMinute(t *testing.T) {
	m := &machine{now: noon, takes: 20 * time.Millisecond}
	d := discipline(m)
	step := func(i int) error {
		m.wait(time.Second)
		from, to := mdp.MilliCPU(500), mdp.MilliCPU(1000)
		if i%2 == 1 {
			from, to = to, from
		}
		return d.Update(t.Context(), m.clock(), cpu("a", from, to))
	}
	for i := range 20 {
		if err := step(i); err != nil {
			t.Fatal(err)
		}
	}
	m.takes = 300 * time.Millisecond
	for i := range 3 { // one or two of a few calls may be slow: nothing follows from that
		if err := step(i); err != nil {
			t.Fatalf("slow call %d: %v, want a closed breaker until the third", i, err)
		}
	}
	calls := len(m.calls)
	for i := range 30 {
		if err := step(i); !errors.Is(err, cri.ErrOpen) || !refused(err) {
			t.Fatalf("second %d after the slow call: %v, want an open breaker", i, err)
		}
	}
	if err := d.Restore(t.Context(), m.clock(), cpu("a", 500, 1000)); !errors.Is(err, cri.ErrOpen) {
		t.Errorf("a restore calls a runtime whose breaker is open: %v", err)
	}
	if err := d.Insist(t.Context(), m.clock(), cpu("b", 500, 1000)); err != nil || len(m.calls) != calls+1 {
		t.Errorf("a raise that insists: %v after %d calls", err, len(m.calls)-calls)
	}
	if err := d.Insist(t.Context(), m.clock(), cpu("b", 500, 1000)); !refused(err) {
		t.Errorf("the same at once again: %v, want it refused", err)
	}
	calls++
	if s := d.Stats(m.clock()); s.Breaker != cri.Open || !strings.Contains(s.Why, "300ms") || len(m.calls) != calls {
		t.Errorf("stats %+v after %d calls, want %d", s, len(m.calls), calls)
	}
	m.wait(time.Minute)
	if err := step(0); err != nil {
		t.Errorf("a minute later one call may try: %v", err)
	}
	if s := d.Stats(m.clock()); s.Breaker != cri.Open {
		t.Errorf("that call was slow: breaker %v, want open again", s.Breaker)
	}
	m.wait(time.Minute)
	m.takes = 10 * time.Millisecond
	if err := step(1); err != nil {
		t.Error(err)
	}
	if s := d.Stats(m.clock()); s.Breaker != cri.Closed || s.Why != "" {
		t.Errorf("breaker %v (%s), want closed", s.Breaker, s.Why)
	}
}

func TestAStepThatComesATickEarlyIsNotRefused(t *testing.T) {
	m := &machine{now: noon, takes: time.Millisecond}
	d := discipline(m)
	from, to := mdp.MilliCPU(500), mdp.MilliCPU(1000)
	for i := range 20 {
		at := noon.Add(time.Duration(i) * time.Second)
		if i%2 == 1 {
			at = at.Add(-30 * time.Millisecond)
		}
		if err := d.Update(t.Context(), at, cpu("a", from, to)); err != nil {
			t.Errorf("step %d at %v: %v", i, at.Sub(noon), err)
		}
		from, to = to, from
	}
	if err := d.Update(t.Context(), noon.Add(19500*time.Millisecond), cpu("a", from, to)); !refused(err) {
		t.Errorf("half a second later: %v, want it refused", err)
	}
}

func TestReliefIsWhatMayNotWait(t *testing.T) {
	from := mdp.Size{CPU: 500, Memory: 100}
	for name, c := range map[string]struct {
		to   mdp.Size
		must bool
		want mdp.Size
	}{
		"both up":                      {mdp.Size{CPU: 900, Memory: 200}, false, mdp.Size{CPU: 900, Memory: 200}},
		"CPU up, memory down":          {mdp.Size{CPU: 900, Memory: 50}, false, mdp.Size{CPU: 900}},
		"both down":                    {mdp.Size{CPU: 100, Memory: 50}, false, mdp.Size{}},
		"down into the envelope":       {mdp.Size{CPU: 100, Memory: 200}, true, mdp.Size{CPU: 100, Memory: 200}},
		"a commit of what is in force": {from, true, mdp.Size{}},
	} {
		m := cri.Move{From: from, To: c.to, Must: c.must,
			Change: cri.Change{Quota: int64(c.to.CPU), Period: 1000, Memory: c.to.Memory}}.Relief()
		if m.To != c.want || m.Change.Quota != int64(c.want.CPU) || m.Change.Memory != c.want.Memory {
			t.Errorf("%s: %+v, want %v", name, m, c.want)
		}
	}
}

func TestOtherCausesThatOpenTheBreaker(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*machine, *cri.Limiter)
		want cri.Breaker
	}{
		"a timeout":          {func(m *machine, _ *cri.Limiter) { m.fails = context.DeadlineExceeded }, cri.Open},
		"no answer":          {func(m *machine, _ *cri.Limiter) { m.fails = cri.ErrUnavailable }, cri.Open},
		"no such container":  {func(m *machine, _ *cri.Limiter) { m.fails = cri.ErrNoContainer }, cri.Closed},
		"an invalid change":  {func(m *machine, _ *cri.Limiter) { m.fails = errors.New("EINVAL") }, cri.Closed},
		"memory stalls":      {func(_ *machine, d *cri.Limiter) { d.Pressure(noon, 0.21) }, cri.Open},
		"a little stalling":  {func(_ *machine, d *cri.Limiter) { d.Pressure(noon, 0.2) }, cri.Closed},
		"one slow first one": {func(m *machine, _ *cri.Limiter) { m.takes = 400 * time.Millisecond }, cri.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{now: noon}
			d := discipline(m)
			c.do(m, d)
			d.Update(t.Context(), noon, cpu("a", 500, 1000))
			if s := d.Stats(noon); s.Breaker != c.want {
				t.Errorf("breaker %v (%s), want %v", s.Breaker, s.Why, c.want)
			}
		})
	}
}

// On a node where nobody wants to call there is no call that could close the breaker.
func TestAnOpenBreakerCoolsDownWithoutACall(t *testing.T) {
	for name, c := range map[string]struct {
		open   func(*machine, *cri.Limiter)
		stalls bool
	}{
		"the node stalled": {func(_ *machine, d *cri.Limiter) { d.Pressure(noon, 0.3) }, true},
		"a call failed": {func(m *machine, d *cri.Limiter) {
			m.fails = cri.ErrUnavailable
			d.Update(t.Context(), noon, cpu("a", 500, 1000))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{now: noon}
			d := discipline(m)
			c.open(m, d)
			if s := d.Stats(noon.Add(59 * time.Second)); s.Breaker != cri.Open || s.Why == "" || s.Stalls != c.stalls {
				t.Errorf("within a minute: %+v, want it open, with stalls %v", s, c.stalls)
			}
			if s := d.Stats(noon.Add(time.Minute)); s.Breaker != cri.HalfOpen || s.Why != "" || s.Stalls {
				t.Errorf("after a minute: %+v, want it half-open", s)
			}
		})
	}
}

func TestANodeHasOneCallInFlight(t *testing.T) {
	host := cgrouptest.Fixture(t, cgroup.V1)
	server := critest.Start(t, host.Tree)
	l := cgroup.Limits{Quota: 50000, Period: 100000}
	client, err := cri.Dial(t.Context(), server.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d := cri.NewLimiter(client, cri.DefaultRules, time.Now, nil)
	server.Slow(20 * time.Millisecond)
	var wg sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		host.Add(t, id, l)
		server.Add(id, "/"+id, l)
		wg.Go(func() {
			if err := d.Update(t.Context(), noon, cpu(id, 500, 1000)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := server.MostAtOnce(); n != 1 {
		t.Errorf("%d calls at once", n)
	}
	// A hung runtime costs one deadline, and nothing after that.
	server.Slow(time.Minute)
	begin := time.Now()
	if err := d.Update(t.Context(), noon.Add(2*time.Second), cpu("a", 1000, 500)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the deadline", err)
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("the deadline of a second took %v", took)
	}
	if err := d.Update(t.Context(), noon.Add(4*time.Second), cpu("b", 1000, 500)); !errors.Is(err, cri.ErrOpen) {
		t.Errorf("err = %v, want an open breaker", err)
	}
}

func TestCheckNamesTheBadRule(t *testing.T) {
	r := cri.DefaultRules
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	r.MinChange = 1.5
	if err := r.Check(); err == nil || err.Error() != "cri rules: least change 1.5: must be in [0, 1)" {
		t.Errorf("err = %v", err)
	}
}
