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
	"awarescale.dev/aware/nodeagent/envelope"
	"awarescale.dev/aware/nodeagent/pressure"
	"awarescale.dev/aware/nodeagent/restore"
)

// Agent is the agent of one node. [Agent.Report], [Agent.Apply], [Agent.Live], [Agent.Ready] and [Agent.Sample] may be
// called by anyone at any time; the rest by one goroutine, which is Run's.
type Agent struct {
	config Config
	deps   Deps
	access
	client         cri.Runtime
	scraper        *scraper
	containers     map[api.ContainerRef]*managedContainer
	absent         map[api.ContainerRef]absence     // containers without a resident, and why
	pendingRestore map[string]restore.Entry         // to be put back still, of containers without a resident
	oomSeen        map[api.ContainerRef]time.Time   // the newest kill that a policy was told of
	totals         map[api.ContainerRef]api.Summary // Resizes and Conflicts of earlier instances
	rotation       int                              // who goes first, so that a scarce budget is shared
	retryAfter     time.Time                        // until then the runtime is not asked where containers are

	ticked  atomic.Int64 // unix nanoseconds of the last Step
	started atomic.Bool

	mu        sync.Mutex
	grants    map[api.ContainerRef]api.Grant
	heard     time.Time // when central was last heard; zero when never
	ttl       time.Duration
	sequence  uint64
	summaries []api.Summary
	trouble   string // with the container runtime, for Ready
}

// absence is a container that could not be taken up.
type absence struct {
	id    string
	why   string
	retry time.Time
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
		config: c, deps: d, client: d.Runtime, scraper: newScraper(c.Scrapes, c.ScrapeIn),
		access: access{tree: d.Tree, runtime: cri.NewLimiter(d.Runtime, c.Runtime, time.Now, m.called), journal: d.Journal,
			sampler: new(Sampler), metrics: m, log: d.Log},
		containers: make(map[api.ContainerRef]*managedContainer), absent: make(map[api.ContainerRef]absence),
		pendingRestore: make(map[string]restore.Entry), oomSeen: make(map[api.ContainerRef]time.Time),
		totals: make(map[api.ContainerRef]api.Summary),
	}, nil
}

// Run is the agent's life: it puts back what an earlier one left, then samples and steps until the context ends, then
// puts everything back.
func (a *Agent) Run(ctx context.Context) error {
	a.Start(ctx, time.Now())
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(a.config.SampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				a.Sample(time.Now())
			}
		}
	})
	tick := time.NewTicker(a.config.StepEvery)
	defer tick.Stop()
	a.Step(ctx, time.Now())
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.deps.Pods.Changed():
			a.refresh(ctx, time.Now())
		case <-tick.C:
			a.Step(ctx, time.Now())
		}
	}
	sampling.Wait()
	a.scraper.wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.ShutdownIn)
	defer cancel()
	a.refresh(last, time.Now())
	err := a.Restore(last, time.Now())
	for ref, r := range a.containers {
		a.sampler.Remove(r.track)
		delete(a.containers, ref)
	}
	return err
}

// Start replays the journal: what an earlier agent touched is put back, before anything else. A container that is gone,
// or that somebody else has changed since, is dropped from it. What cannot be put back now is tried again each step.
func (a *Agent) Start(ctx context.Context, now time.Time) {
	if damage := a.journal.Damage(); damage != "" {
		a.log.Warn("damaged journal", "what", damage)
	}
	for _, e := range a.journal.Entries() {
		a.retryRestore(ctx, now, e)
	}
	a.started.Store(true)
}

// repay puts one container back that has no resident, from the journal alone.
func (a *Agent) retryRestore(ctx context.Context, now time.Time, e restore.Entry) {
	err := func() error {
		g, err := a.tree.Group(e.Path)
		if errors.Is(err, cgroup.ErrGone) {
			return a.journal.Delete(e.ID)
		}
		if err != nil {
			return err
		}
		inForce, err := g.Limits()
		g.Close()
		if err != nil {
			return err
		}
		if err := a.access.restore(ctx, now, still(e, inForce), inForce); err != nil {
			return err
		}
		a.runtime.Forget(e.ID)
		return a.journal.Delete(e.ID)
	}()
	if err == nil {
		delete(a.pendingRestore, e.ID)
		return
	}
	if _, known := a.pendingRestore[e.ID]; !known {
		a.log.Warn("not put back yet", "container", e.Container, "err", err)
	}
	if errors.Is(err, errPending) {
		if back := keepTouched(e.Ours, e.API); e.Ours != back {
			e.Before, e.Ours = e.Ours, back
			if err := a.journal.Put(e); err != nil {
				a.log.Warn("journal", "err", err)
			}
		}
	}
	a.pendingRestore[e.ID] = e
}

// keepTouched is the API's values in the fields that were touched.
func keepTouched(ours, api cgroup.Limits) cgroup.Limits {
	var l cgroup.Limits
	if ours.Quota > 0 {
		l.Quota, l.Period = api.Quota, api.Period
	}
	if ours.Memory > 0 {
		l.Memory = api.Memory
	}
	return l
}

// Sample reads the CPU figures of all containers.
func (a *Agent) Sample(now time.Time) {
	begin := time.Now()
	a.sampler.Sample(now)
	a.metrics.sample.Observe(time.Since(begin).Seconds())
}

// Step looks at every container once, and does what is to be done.
func (a *Agent) Step(ctx context.Context, now time.Time) {
	node := a.node(now)
	a.refresh(ctx, now)
	for _, e := range a.pendingRestore {
		a.retryRestore(ctx, now, e)
	}
	all := a.rotated()
	summaries := make([]api.Summary, 0, len(all)+len(a.absent))
	scrapes := make(map[endpoint]bool)
	ips := a.ips()
	for _, r := range all {
		o := a.order(now, r.ref)
		r.node = node
		s := a.step(ctx, now, r, o)
		if e := (endpoint{ips[r.ref.PodUID], o.grant.Latency}); o.listed && e.Port > 0 && e.ip != "" {
			scrapes[e] = true
			var err error
			if s.Latency, err = a.scraper.get(e); err != nil {
				s.Problem = also(s.Problem, err.Error())
			}
		}
		summaries = append(summaries, s)
	}
	for ref, why := range a.absent {
		summaries = append(summaries, api.Summary{Container: ref, State: mdp.State{At: now}, Mode: api.Observe, Problem: why.why})
	}
	a.scraper.want(ctx, scrapes)
	slices.SortFunc(summaries, func(x, y api.Summary) int { return strings.Compare(x.Container.String(), y.Container.String()) })

	a.metrics.containers.Set(float64(len(all)))
	stats := a.runtime.Stats()
	open := 0.0
	if stats.Breaker != cri.Closed {
		open = 1
	}
	a.metrics.breaker.Set(open)
	a.mu.Lock()
	a.summaries = summaries
	a.trouble = stats.Why
	if !a.heard.IsZero() {
		a.metrics.central.Set(now.Sub(a.heard).Seconds())
	}
	a.mu.Unlock()
	a.ticked.Store(now.UnixNano())
}

// node reads the node's pressure, tells the breaker, and is what a v1 node's containers are told in place of their own.
func (a *Agent) node(now time.Time) mdp.State {
	var s mdp.State
	if a.deps.Pressure == nil {
		return s
	}
	n, err := a.deps.Pressure.Read()
	if err != nil {
		a.log.Warn("node pressure is not known", "err", err)
		n = pressure.Node{}
	}
	a.runtime.Pressure(now, n.MemoryFull, n.IOFull)
	for _, one := range []struct {
		signal mdp.Signal
		name   string
		value  mdp.Ratio
	}{{mdp.CPUPressure, "cpu", n.CPUSome}, {mdp.MemoryPressure, "memory", n.MemoryFull}, {mdp.IOPressure, "io", n.IOFull}} {
		if n.Observed.Has(one.signal) {
			a.metrics.pressure.WithLabelValues(one.name).Set(float64(one.value))
		}
	}
	if a.tree.Version() == cgroup.V1 {
		s.Observed = n.Observed & mdp.SetOf(mdp.CPUPressure, mdp.IOPressure)
		s.CPUPressure, s.IOPressure = n.CPUSome, n.IOFull
	}
	return s
}

// inTurn is the residents, another one first each time.
func (a *Agent) rotated() []*managedContainer {
	all := make([]*managedContainer, 0, len(a.containers))
	for _, r := range a.containers {
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(x, y *managedContainer) int {
		return cmp.Or(strings.Compare(x.ref.PodUID, y.ref.PodUID), strings.Compare(x.ref.Container, y.ref.Container))
	})
	// A step that is prime to most counts spreads the turns.
	a.rotation = (a.rotation + 7) % len(all)
	return append(all[a.rotation:len(all):len(all)], all[:a.rotation]...)
}

func (a *Agent) ips() map[string]string {
	ips := make(map[string]string)
	for _, p := range a.deps.Pods.Snapshot() {
		ips[p.UID] = p.IP
	}
	return ips
}

// order is what central's word comes to for one container now.
type order struct {
	mode    api.Mode
	listed  bool
	grant   api.Grant
	act     bool // the policy's action is carried out
	hold    bool // neither moved nor put back
	problem string
}

func (a *Agent) order(now time.Time, ref api.ContainerRef) order {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard.IsZero() {
		return order{mode: api.Observe, problem: "waiting for central: no grant was ever received"}
	}
	if silent := now.Sub(a.heard); silent > a.ttl {
		return order{mode: api.Observe, problem: fmt.Sprintf("central has been silent for %v and its grants held for %v: API values are in force",
			silent.Round(time.Second), a.ttl)}
	}
	m, listed := a.grants[ref]
	o := order{mode: m.Mode, listed: listed, grant: m}
	switch {
	case !listed:
		o.mode = api.Observe
	case m.Paused:
		o.hold = true
	case m.Mode == api.Auto:
		o.act = true
	}
	return o
}

// step looks at one container and does what is to be done with it.
func (a *Agent) step(ctx context.Context, now time.Time, r *managedContainer, o order) api.Summary {
	r.problem = ""
	s := api.Summary{Container: r.ref, Mode: o.mode, Problem: o.problem}
	r.envelope = envelope.Of(r.facts, o.grant.Bounds, a.config.Envelope)
	r.adopt(now)
	s.Bounds = r.envelope.Bounds
	if o.listed && r.captain != nil && o.grant.Throttle >= 0 && o.grant.Throttle < 1 {
		r.captain.Retarget(o.grant.Throttle)
	}
	left, alone := r.backingOff(now)
	if alone {
		s.Problem = also(s.Problem, left)
	}
	act := o.act && !alone && r.envelope.Left == ""
	r.loop.Actuator = idle{}
	if act {
		if r.loop.Actuator = r; !r.acts {
			// The guards remember what they let through, and until now nothing of that was done.
			r.loop.Policy = guarded(r.policy, a.config, r.bounds, r.knobs)
		}
	} else if o.act && r.envelope.Left != "" {
		s.Problem = also(s.Problem, "left alone: "+string(r.envelope.Left))
	}
	r.acts = act
	d, err := r.loop.Step(ctx, now)
	s.State = d.State
	if errors.Is(err, cgroup.ErrGone) {
		a.detach(r)
		s.Problem = also(s.Problem, "its cgroup is gone: it ended")
		s.State = mdp.State{At: now}
		return a.count(s, r)
	}
	if s.State.Knows(mdp.OOMKills) {
		s.State.OOMKills = max(r.kills, s.State.OOMKills)
	}
	var unknown *mdp.UnknownError
	var illegal *illegalError
	switch {
	case err == nil:
	case errors.As(err, &illegal):
		s.Problem = also(s.Problem, err.Error())
		a.log.Warn("put back for an illegal action", "container", r.ref, "err", err)
		act, o.hold = false, false
	case errors.As(err, &unknown):
		// The first second of a container: too little is known.
	default:
		s.Problem = also(s.Problem, err.Error())
		if failed := (*mdp.PolicyError)(nil); errors.As(err, &failed) {
			act, o.hold = false, false // the policy failed, not the actuator
		}
	}
	if o.mode == api.Recommend || o.mode == api.Canary || o.mode == api.Auto {
		s.Want = d.Action
		if act || o.hold {
			s.Effect = d.Effect
		}
		if o.hold && d.Action.Sets != 0 {
			s.Want.Clipped |= mdp.ClippedPaused
		}
	}
	if act && d.Action.Sets != 0 {
		a.metrics.effects[d.Effect].Inc()
		if d.Effect == mdp.Applied || d.Effect == mdp.Failed {
			a.log.Info("resize", "container", r.ref, "effect", d.Effect, "want", d.Action, "clipped", d.Action.Clipped, "was", d.State.Limit,
				"cpu", d.State.Usage.CPU, "peak", d.State.CPUPeak, "throttled", d.State.Throttled, "memory", d.State.Usage.Memory, "err", err)
		}
	}
	// A container that is backed off from is held as long as its grant is to act: what is ours of it is right.
	if !act && !o.hold && !(alone && o.act) {
		if err := r.restore(ctx, now); err != nil {
			s.Problem = also(s.Problem, err.Error())
		}
	}
	if o.mode == api.Off {
		s.State = mdp.State{At: now}
	}
	s.Problem = also(s.Problem, r.problem)
	return a.count(s, r)
}

// idle is the Actuator of a container that is only watched.
type idle struct{}

func (idle) Act(_ context.Context, _ time.Time, a mdp.Action) (mdp.Action, mdp.Effect, error) {
	if a.Sets == 0 {
		return mdp.Action{}, mdp.Unchanged, nil
	}
	return mdp.Action{}, mdp.Refused, nil
}

// count adds what earlier instances of the container came to.
func (a *Agent) count(s api.Summary, r *managedContainer) api.Summary {
	before := a.totals[r.ref]
	s.Resizes, s.Conflicts = before.Resizes+r.resizes, before.Conflicts+r.conflicts
	return s
}

func also(problem, more string) string {
	switch {
	case more == "" || strings.Contains(problem, more):
		return problem
	case problem == "":
		return more
	}
	return problem + "; " + more
}

// refresh brings the residents up to the pods: who came is taken up, who went is put back.
func (a *Agent) refresh(ctx context.Context, now time.Time) {
	seen := make(map[api.ContainerRef]bool)
	for _, p := range a.deps.Pods.Snapshot() {
		for _, c := range p.Containers {
			ref := api.ContainerRef{Namespace: p.Namespace, Pod: p.Name, PodUID: p.UID, Container: c.Name}
			seen[ref] = true
			r := a.containers[ref]
			if r != nil && (r.id != c.ID || !c.Running) {
				// The new instance starts from the allocated values: nothing of the old one is to be put back.
				a.detach(r)
				r = nil
			}
			if r == nil {
				if r = a.attach(ctx, now, ref, p, c); r == nil {
					continue
				}
			}
			r.learn(p, c)
		}
	}
	for ref, r := range a.containers {
		if seen[ref] {
			continue
		}
		// No longer opted in, or deleted. Its group may be gone, which is as good.
		if err := r.restore(ctx, now); err != nil && r.touched {
			if e, ok := a.journal.Get(r.id); ok {
				a.pendingRestore[r.id] = e
			}
			a.log.Warn("not put back yet", "container", ref, "err", err)
		}
		a.sampler.Remove(r.track)
		delete(a.containers, ref)
	}
	for ref := range a.absent {
		if !seen[ref] {
			delete(a.absent, ref)
		}
	}
	for ref := range a.totals {
		if !seen[ref] {
			delete(a.totals, ref)
			delete(a.oomSeen, ref)
		}
	}
}

// learn takes over what the API says of the container now.
func (r *managedContainer) learn(p Pod, c Container) {
	r.facts.Namespace, r.facts.QoS, r.facts.Kind = p.Namespace, p.QoS, c.Kind
	r.facts.PodDeleting, r.facts.Mirror, r.facts.ExclusiveCPUs = p.Deleting, p.Mirror, c.ExclusiveCPUs
	r.facts.Limits, r.facts.ResizePending = c.Limits, c.ResizePending
	if !c.ResizePending {
		r.facts.Settled = c.Limits
	}
}

// again is how long after a container could not be taken up it is tried again.
const again = 5 * time.Second

// takeUp finds a container's group. nil when it cannot be found now; why is remembered.
func (a *Agent) attach(ctx context.Context, now time.Time, ref api.ContainerRef, p Pod, c Container) *managedContainer {
	fail := func(err error) *managedContainer {
		a.absent[ref] = absence{c.ID, err.Error(), now.Add(again)}
		return nil
	}
	if c.Kind != envelope.Regular {
		return fail(fmt.Errorf("left alone: %s", envelope.NotRegular))
	}
	if !c.Running || c.ID == "" {
		return fail(errors.New("it is not running"))
	}
	if was, ok := a.absent[ref]; ok && was.id == c.ID && now.Before(was.retry) {
		return nil
	}
	if now.Before(a.retryAfter) {
		return fail(errors.New("the container runtime does not answer"))
	}
	bounded, cancel := context.WithTimeout(ctx, a.config.Runtime.Deadline)
	defer cancel()
	found, err := a.client.Container(bounded, c.ID)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, cri.ErrUnavailable) {
		a.retryAfter = now.Add(again) // one deadline, not one for each container
	}
	if err != nil {
		return fail(err)
	}
	path, err := a.tree.Path(found.CgroupsPath)
	if err != nil {
		return fail(err)
	}
	group, err := a.tree.Group(path)
	if err != nil {
		return fail(err)
	}
	inForce, err := group.Limits()
	if err != nil {
		group.Close()
		return fail(err)
	}
	r := &managedContainer{access: a.access, ref: ref, id: c.ID, path: path, inForce: inForce, limit: a.config.Conflicts, backoff: a.config.Backoff}
	r.track = a.sampler.Add(group)
	r.facts.Settled = inForce.Size()
	if killed := c.OOMKilled; killed.After(a.oomSeen[ref]) {
		a.oomSeen[ref] = killed
		r.killed = now.Sub(killed) < a.config.Memory.AfterOOM
	}
	if e, ok := a.journal.Get(c.ID); ok {
		// Still to be put back, by an agent before this one or by opting out and in again: it is ours to go on with.
		r.ours, r.before, r.inDoubt, r.touched = e.Ours, e.Before, true, true
		delete(a.pendingRestore, c.ID)
	}
	if a.deps.Policy != nil {
		r.policy = a.deps.Policy(ref)
		r.captain, _ = r.policy.(interface{ Retarget(mdp.Ratio) })
	} else {
		r.policy, r.captain = rule(a.config)
	}
	r.loop = mdp.Loop{Sensor: r, Actuator: idle{}, Policy: guarded(r.policy, a.config, r.bounds, r.knobs)}
	delete(a.absent, ref)
	a.containers[ref] = r
	a.log.Info("took up", "container", ref, "id", c.ID, "cgroup", path, "limits", inForce.Size())
	return r
}

// leave forgets an instance that ended.
func (a *Agent) detach(r *managedContainer) {
	if err := a.journal.Delete(r.id); err != nil {
		a.log.Warn("journal", "err", err)
	}
	a.runtime.Forget(r.id)
	a.sampler.Remove(r.track)
	t := a.totals[r.ref]
	t.Resizes += r.resizes
	t.Conflicts += r.conflicts
	a.totals[r.ref] = t
	delete(a.containers, r.ref)
	r.resizes, r.conflicts = 0, 0
}

// PutBack gives everything its API values. The error names what could not be told to the container runtime; it stays in
// the journal, for the next agent.
func (a *Agent) Restore(ctx context.Context, now time.Time) error {
	var errs []error
	for _, r := range a.rotated() {
		if err := ctx.Err(); err != nil && r.touched {
			errs = append(errs, fmt.Errorf("putting %v back: %w", r.ref, err))
			continue
		}
		// Looked at once more: what the kubelet has written since is not ours to put back, and may be newer than what we
		// know of the API. When we are uninstalled both happen at once.
		if _, err := r.Sense(ctx, now); errors.Is(err, cgroup.ErrGone) {
			a.detach(r)
			continue
		}
		if err := r.restore(ctx, now); err != nil {
			errs = append(errs, err)
		}
	}
	for _, e := range a.pendingRestore {
		a.retryRestore(ctx, now, e)
	}
	return errors.Join(errs...)
}

// Apply takes central's whole word for this node.
func (a *Agent) Apply(now time.Time, m api.Grants) {
	all := make(map[api.ContainerRef]api.Grant, len(m.All))
	for _, one := range m.All {
		all[one.Container] = one
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grants, a.ttl, a.heard = all, m.TTL, now
}

// Report is what to tell central: the containers as the last Step found them.
func (a *Agent) Report(now time.Time) api.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sequence++
	return api.Report{Node: a.config.Node, Agent: a.config.Version, At: now, Sequence: a.sequence, Containers: slices.Clone(a.summaries)}
}

// RuntimeStats is what was seen of the container runtime.
func (a *Agent) RuntimeStats() cri.Stats { return a.runtime.Stats() }

// stuck is how long the loop may be silent before the agent is not alive: a step may wait for a few deadlines of the
// runtime, and no longer.
const stuck = 5 * time.Second

// Live is nil while the loop turns.
func (a *Agent) Live(now time.Time) error {
	at := a.ticked.Load()
	if at == 0 {
		return errors.New("the loop has not turned yet")
	}
	if since := now.Sub(time.Unix(0, at)); since > stuck {
		return fmt.Errorf("the loop last turned %v ago, %v is the most", since.Round(time.Millisecond), stuck)
	}
	return nil
}

// Ready is nil while the loop turns, the journal was replayed, and the container runtime may be asked.
func (a *Agent) Ready(now time.Time) error {
	if !a.started.Load() {
		return errors.New("the journal has not been replayed yet")
	}
	a.mu.Lock()
	trouble := a.trouble
	a.mu.Unlock()
	if trouble != "" {
		return errors.New("container runtime: " + trouble)
	}
	return a.Live(now)
}
