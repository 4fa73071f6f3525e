package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/pressure"
	"awarescale.dev/aware/nodeagent/restore"
)

// Agent is the agent of one node. [Agent.Report], [Agent.Apply], [Agent.Live],
// [Agent.Ready] and [Agent.Sample] may be called from any goroutine at any time.
// The rest is for one goroutine, which is Run's.
type Agent struct {
	config Config
	deps   Deps
	access
	client     cri.Runtime
	scraper    *scraper
	containers map[api.ContainerRef]*managedContainer
	absent     map[api.ContainerRef]absence
	orphans    map[string]*claim                // by container id; of containers that are not managed
	oomSeen    map[api.ContainerRef]time.Time   // the newest OOM kill that was reported to a policy
	totals     map[api.ContainerRef]api.Summary // Resizes and Conflicts of earlier instances
	rotation   int                              // which container is first, so that a scarce budget is shared
	budget     budget                           // of the step
	askedFor   mdp.Size                         // what a report was sent for at once, since it was more than the permit
	askedAt    time.Time                        // when that was
	retryAfter time.Time                        // until then the runtime is not asked where containers are
	askAfter   time.Time                        // until then the API server is not asked for pods
	spare      []api.Summary                    // what was published before the last step, to be written over

	wanted    chan struct{}    // gets a value when the sampler wants the step: see Sampler.Sample
	urgent    chan struct{}    // gets a value when something is to be reported at once
	clock     func() time.Time // measures how long calls take; everything else gets the time
	steppedAt atomic.Int64     // unix nanoseconds of the last Step
	started   atomic.Bool      // the journal was replayed

	mu             sync.Mutex
	grants         grants
	summaries      []api.Summary
	account        *api.Account // nil before the first step
	runtimeProblem string       // with the container runtime, for Ready
}

// New makes an agent. Nothing is read or touched before Start.
func New(c Config, d Deps) (*Agent, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("agent config: %w", err)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(d.Metrics)
	if err != nil {
		return nil, err
	}
	return &Agent{
		config:  c,
		deps:    d,
		client:  d.Runtime,
		scraper: newScraper(c.Scrapes, c.ScrapeIn, c.ScrapeEvery),
		access: access{
			tree:    d.Tree,
			runtime: cri.NewLimiter(d.Runtime, c.Runtime, time.Now, m.called),
			journal: d.Journal,
			sampler: &Sampler{tree: d.Tree, relieved: m.relieved},
			metrics: m,
			log:     d.Log,
		},
		containers: make(map[api.ContainerRef]*managedContainer),
		absent:     make(map[api.ContainerRef]absence),
		orphans:    make(map[string]*claim),
		clock:      time.Now,
		wanted:     make(chan struct{}, 1),
		urgent:     make(chan struct{}, 1),
		oomSeen:    make(map[api.ContainerRef]time.Time),
		totals:     make(map[api.ContainerRef]api.Summary),
	}, nil
}

// Run is the agent's life. It restores what an earlier agent left, samples and
// steps until the context ends, and then restores everything.
func (a *Agent) Run(ctx context.Context) error {
	a.Start(ctx, time.Now())
	var sampling sync.WaitGroup
	sampling.Go(func() { a.sampleUntil(ctx) })
	tick := time.NewTicker(a.config.StepEvery)
	defer tick.Stop()
	a.Step(ctx, time.Now())
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.deps.Pods.Changed():
			a.refresh(ctx, time.Now())
		case <-a.wanted:
			a.relieve(ctx, time.Now())
		case <-tick.C:
			a.Step(ctx, time.Now())
		}
	}
	sampling.Wait()
	a.scraper.wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.ShutdownIn)
	defer cancel()
	err := a.restoreAll(last)
	for ref, c := range a.containers {
		a.sampler.Remove(c.track)
		delete(a.containers, ref)
	}
	return err
}

// What the kubelet has begun it ends within seconds, and an agent that ends waits for so long.
const (
	endsWithin = 5 * time.Second
	looksEvery = 500 * time.Millisecond
)

// restoreAll is the last thing that an agent does. A restore is not final while the kubelet resizes
// the container, as it does when all of AWARE is uninstalled at once: what the API gives by then is
// not what was restored. So it is tried again for a while.
func (a *Agent) restoreAll(ctx context.Context) error {
	for begin := time.Now(); ; {
		a.refresh(ctx, time.Now())
		err := a.Restore(ctx, time.Now())
		if !a.touched() || time.Since(begin) > endsWithin {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(looksEvery):
		}
	}
}

// touched reports whether anything is in force that the journal has as ours, or the runtime has.
func (a *Agent) touched() bool {
	ours := func(o restore.Ownership) bool { return o.State.Touched() || !o.Untold.Empty() }
	for _, c := range a.containers {
		if ours(c.ownership) {
			return true
		}
	}
	for _, c := range a.orphans {
		if ours(c.ownership) {
			return true
		}
	}
	return false
}

// sampleUntil samples at the configured rate, and glances in between, until the context ends.
func (a *Agent) sampleUntil(ctx context.Context) {
	tick, glance := time.NewTicker(a.config.SampleEvery), time.NewTimer(time.Hour)
	defer tick.Stop()
	defer glance.Stop()
	for {
		if due := a.sampler.Due(); !due.IsZero() {
			glance.Reset(time.Until(due))
		} else {
			glance.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.Sample(time.Now())
		case <-glance.C:
			a.Glance(time.Now())
		}
	}
}

// Start replays the journal: what an earlier agent touched is restored before
// anything else, also when the API server is away: then as far as the pod's own group
// has room. A container that is gone, or that somebody else has changed since, is
// dropped from the journal. What cannot be restored now is tried again at each step.
func (a *Agent) Start(ctx context.Context, now time.Time) {
	if damage := a.journal.Damage(); damage != "" {
		a.log.Warn("damaged journal", "what", damage)
	}
	a.adopt(now)
	a.retry(ctx, now)
	a.started.Store(true)
}

// Sample reads the CPU figures of all containers, and relieves those that are throttled.
func (a *Agent) Sample(now time.Time) {
	begin := time.Now()
	a.want(a.sampler.Sample(now))
	a.metrics.sample.Observe(time.Since(begin).Seconds())
}

// Glance looks at the containers that may have used up their quota between two samples.
func (a *Agent) Glance(now time.Time) { a.want(a.sampler.Glance(now)) }

// want has Run relieve what the sampler could not.
func (a *Agent) want(wanted bool) {
	if !wanted {
		return
	}
	select {
	case a.wanted <- struct{}{}:
	default: // Run has not taken the last one yet
	}
}

// Step looks at every container once, decides, and acts or restores.
func (a *Agent) Step(ctx context.Context, now time.Time) {
	node := a.readPressure(now)
	a.refresh(ctx, now)
	a.retry(ctx, now)
	a.mu.Lock()
	granted := a.grants
	a.mu.Unlock()
	all := a.rotated()
	summaries := a.spare[:0]
	scrapes := make(map[endpoint]bool)
	taken := a.sampler.Lend(nil)
	if taken > 0 { // by lanes of which nobody has heard
		for _, c := range all {
			c.hear(now, a.sampler.Heard(c.track))
		}
	}
	a.budget.open(granted.permitted(now), all, taken, a.available)
	for _, c := range all {
		o := granted.order(now, c.ref)
		c.node = node
		if !c.rests(now, o) {
			before := c.held()
			c.remember(now, o, a.step(ctx, now, c, o))
			a.budget.moved(before, a.containers[c.ref])
		}
		s := c.stepped.summary
		if e := (endpoint{c.ip, o.grant.Latency}); o.listed && e.Port > 0 && e.ip != "" {
			var err error
			if c.hostNetwork {
				err = errors.New("its pod is on the node's network, where an address is not the pod's own: its metrics are not read")
			} else {
				scrapes[e] = true
				s.Latency, err = a.scraper.get(now, e)
			}
			if err != nil {
				s.Problem = also(s.Problem, api.Clean(err.Error()))
			}
		}
		a.urge(now, c, s) // of a container without a lane, nobody has seen it before
		summaries = append(summaries, s)
	}
	a.budget.since += a.sampler.Lend(a.budget.lend(a.available))
	a.commit(ctx, now, all)
	for ref, one := range a.absent {
		summaries = append(summaries, api.Summary{
			Container: ref,
			State:     mdp.State{At: now},
			Mode:      api.Observe,
			Problem:   one.why,
		})
	}
	a.scraper.want(ctx, now, scrapes)
	account := a.budget.account()
	a.ask(now, account)
	a.publish(now, summaries, account)
}

// publish makes the results of a step visible: to Report, Ready and the metrics.
func (a *Agent) publish(now time.Time, summaries []api.Summary, account api.Account) {
	slices.SortFunc(summaries, func(x, y api.Summary) int { return x.Container.Compare(y.Container) })
	a.metrics.containers.Set(float64(len(summaries) - len(a.absent)))
	stats := a.runtime.Stats(now)
	open, problem := 0.0, ""
	if stats.Breaker == cri.Open {
		open = 1
		if !stats.Stalls {
			problem = stats.Why
		}
	}
	a.metrics.breaker.Set(open)
	a.metrics.limits(a.budget.permit, account)
	a.mu.Lock()
	a.summaries, a.spare = summaries, a.summaries
	a.account = &account
	a.runtimeProblem = problem
	received := a.grants.receivedAt
	a.mu.Unlock()
	if !received.IsZero() {
		a.metrics.central.Set(now.Sub(received).Seconds())
	}
	a.steppedAt.Store(now.UnixNano())
}

// readPressure reads the node's pressure, and passes it on to the breaker. On
// cgroup v1 it is also the pressure of each container, which the kernel does not
// have there.
func (a *Agent) readPressure(now time.Time) mdp.State {
	var s mdp.State
	if a.deps.Pressure == nil {
		return s
	}
	n, err := a.deps.Pressure.Read()
	if err != nil {
		a.log.Warn("node pressure is not known", "err", err)
		n = pressure.Node{}
	}
	a.runtime.Pressure(now, n.MemoryFull)
	for _, one := range []struct {
		signal mdp.Signal
		name   string
		value  mdp.Ratio
	}{
		{mdp.CPUPressure, "cpu", n.CPUSome},
		{mdp.MemoryPressure, "memory", n.MemoryFull},
		{mdp.IOPressure, "io", n.IOFull},
	} {
		if n.Observed.Has(one.signal) {
			a.metrics.pressure.WithLabelValues(one.name).Set(float64(one.value))
		}
	}
	if a.tree.Version() == cgroup.V1 {
		s.Observed = n.Observed & mdp.SetOf(mdp.CPUPressure, mdp.IOPressure)
		s.CPUPressure = n.CPUSome
		s.IOPressure = n.IOFull
	}
	return s
}

// rotated is the managed containers, with another one first each time.
func (a *Agent) rotated() []*managedContainer {
	all := make([]*managedContainer, 0, len(a.containers))
	for _, c := range a.containers {
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(x, y *managedContainer) int {
		return cmp.Or(strings.Compare(x.ref.PodUID, y.ref.PodUID),
			strings.Compare(x.ref.Container, y.ref.Container))
	})
	// A step that is coprime to most counts lets everyone be first.
	a.rotation = (a.rotation + 7) % len(all)
	return append(all[a.rotation:len(all):len(all)], all[:a.rotation]...)
}

// pods is the pods by UID.
func (a *Agent) pods() map[string]Pod {
	pods := make(map[string]Pod)
	for _, p := range a.deps.Pods.Snapshot() {
		pods[p.UID] = p
	}
	return pods
}
