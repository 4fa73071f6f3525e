package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cri"
)

// Apply takes in central's full set of grants for this node.
func (a *Agent) Apply(now time.Time, m api.Grants) {
	g := newGrants(now, m)
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.grants.permit.Permit
	a.grants = g.keep(now, a.grants)
	a.recall(was)
	// The next step knows them. Until then nobody raises what they forbid.
	a.sampler.ShutIf(func(ref api.ContainerRef, top mdp.Size) bool {
		o := a.grants.order(now, ref)
		cpu, memory := o.grant.Bounds.CPU.Max, o.grant.Bounds.Memory.Max
		return !o.act || cpu > 0 && cpu < top.CPU || memory > 0 && memory < top.Memory
	})
}

// recall ends what the lanes were lent under another permit. The next step lends anew.
func (a *Agent) recall(was api.Permit) {
	if a.grants.permit.Permit != was {
		a.sampler.Recall()
	}
}

// Renew says that central's last grants go on to hold, with this permit; zero is none.
func (a *Agent) Renew(now time.Time, p api.Permit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.grants.receivedAt.IsZero() {
		a.grants.receivedAt = now
		was := a.grants.permit.Permit
		a.grants.permit = a.grants.permit.then(now.Add(a.grants.ttl), p)
		a.recall(was)
	}
}

// Report is all containers as the last Step found them.
func (a *Agent) Report(now time.Time) api.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return api.Report{
		Node:       a.config.Node,
		Agent:      a.config.Version,
		At:         now,
		Full:       true,
		Containers: slices.Clone(a.summaries),
		Account:    a.account,
	}
}

// RuntimeStats is what was measured of the container runtime.
func (a *Agent) RuntimeStats(now time.Time) cri.Stats { return a.runtime.Stats(now) }

// maxSilence is how long the loop may make no step before the agent is not alive. A step may
// wait for two deadlines of the runtime, for the API server, and a little.
func (c Config) maxSilence() time.Duration { return 2*c.Runtime.Deadline + askingIn + time.Second }

// Live is nil while the loop makes steps.
func (a *Agent) Live(now time.Time) error {
	at := a.steppedAt.Load()
	if at == 0 {
		return errors.New("the loop has made no step yet")
	}
	if since, most := now.Sub(time.Unix(0, at)), a.config.maxSilence(); since > most {
		return fmt.Errorf("the last step of the loop was %v ago, %v is the most", since.Round(time.Millisecond), most)
	}
	return nil
}

// Ready is nil while the loop makes steps, the journal was replayed, and no call of the
// container runtime has failed lately. A node that stalls does not make its agent unready: it
// spares the runtime then, which is its work, and whoever rolls out a release must not wait for
// a disk.
func (a *Agent) Ready(now time.Time) error {
	if !a.started.Load() {
		return errors.New("the journal has not been replayed yet")
	}
	if !a.deps.Pods.Synced() {
		return errors.New("the API server has not said yet which pods there are")
	}
	a.mu.Lock()
	problem := a.runtimeProblem
	a.mu.Unlock()
	if problem != "" {
		return errors.New("container runtime: " + problem)
	}
	return a.Live(now)
}

// count adds the counts of the container's earlier instances to a summary.
func (a *Agent) count(s api.Summary, c *managedContainer) api.Summary {
	before := a.totals[c.ref]
	s.Resizes = before.Resizes + c.resizes
	s.Conflicts = before.Conflicts + c.conflicts
	return s
}

// also adds a problem to others, unless it is among them.
func also(problem, more string) string {
	switch {
	case more == "" || strings.Contains(problem, more):
		return problem
	case problem == "":
		return more
	}
	return problem + "; " + more
}
