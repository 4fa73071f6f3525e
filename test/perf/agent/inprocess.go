package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
	corev1 "k8s.io/api/core/v1"
)

// podsOf is the pods as the agent's list of pods.
func podsOf(crowd []corev1.Pod) agent.Fixed {
	var all agent.Fixed
	for _, p := range crowd {
		one := agent.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), QoS: string(p.Status.QOSClass)}
		for _, c := range p.Spec.Containers {
			for _, s := range p.Status.ContainerStatuses {
				if s.Name != c.Name {
					continue
				}
				_, id, _ := strings.Cut(s.ContainerID, "://")
				l := c.Resources.Limits
				one.Containers = append(one.Containers, agent.Container{
					Name:    c.Name,
					ID:      id,
					Running: true,
					Limits: mdp.Size{
						CPU:    mdp.MilliCPU(l.Cpu().MilliValue()),
						Memory: mdp.Bytes(l.Memory().Value()),
					},
				})
			}
		}
		all = append(all, one)
	}
	return all
}

// local is an agent in this process.
type local struct {
	agent   *agent.Agent
	runtime *cri.Client
	limit   *mdp.MilliCPU // what its policy wants of every container
	close   func()
}

// local makes an agent of some pods. Its policy wants the same limit for every container.
func (st *stage) local(ctx context.Context, pods agent.Fixed) (*local, error) {
	runtime, err := cri.Dial(ctx, st.cluster.CRISocket())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "aware-perf-journal-")
	if err != nil {
		runtime.Close()
		return nil, err
	}
	journal, err := restore.Open(dir)
	if err != nil {
		runtime.Close()
		os.RemoveAll(dir)
		return nil, err
	}
	l := &local{runtime: runtime, limit: new(mdp.MilliCPU), close: func() {
		journal.Close()
		runtime.Close()
		os.RemoveAll(dir)
	}}
	*l.limit = ceiling
	c := agent.Default()
	c.Node, c.Version = st.cluster.Node(), "bench"
	l.agent, err = agent.New(c, agent.Deps{
		Tree:    st.tree,
		Runtime: runtime,
		Journal: journal,
		Pods:    pods,
		Policy: func(api.ContainerRef) mdp.Policy {
			return mdp.PolicyFunc(func(mdp.State) (mdp.Action, error) { return mdp.Action{}.WithCPU(*l.limit), nil })
		},
	})
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// inProcess runs the agent's loops in this process on the same containers.
func (st *stage) inProcess(ctx context.Context, r *result) error {
	crowd, err := st.crowd(ctx)
	if err != nil {
		return err
	}
	all := podsOf(crowd)
	if err := st.allocations(ctx, all, r); err != nil {
		return err
	}
	if err := st.bareWrites(ctx, crowd, r); err != nil {
		return err
	}
	if err := st.bareReads(ctx, crowd, r); err != nil {
		return err
	}
	// A step over few containers: what is measured is one resize.
	return st.resizes(ctx, all[:2], r)
}

// bareWrites is what the kernel takes for a CPU limit while nothing else is to be done.
func (st *stage) bareWrites(ctx context.Context, crowd []corev1.Pod, r *result) error {
	group, err := st.group(&crowd[0], "front")
	if err != nil {
		return err
	}
	b, err := st.bare(group)
	if err != nil {
		return err
	}
	defer b.file.Close()
	var all []time.Duration
	for range 100 {
		if err := pause(ctx, bareEvery); err != nil {
			return err
		}
		took, err := b.write()
		if err != nil {
			return err
		}
		all = append(all, took)
	}
	r.BareWriteP50US, r.BareWriteP99US = 1000*ms(percentile(all, 50)), 1000*ms(percentile(all, 99))
	say("a bare write of a limit, which the kernel takes for each: p50 %.0f us, p99 %.0f us", r.BareWriteP50US, r.BareWriteP99US)
	return nil
}

// bareReads is what the kernel takes for a control file, of which the agent reads some two thousand a second.
// Machines differ by a factor of five, so it is beside the agent's CPU time. As in a sample one container's file is
// read after the other, and there is a pause between two rounds.
func (st *stage) bareReads(ctx context.Context, crowd []corev1.Pod, r *result) error {
	var all []*os.File
	defer func() {
		for _, f := range all {
			f.Close()
		}
	}()
	for i := range crowd {
		group, err := st.group(&crowd[i], "front")
		if err != nil {
			return err
		}
		file := filepath.Join(st.tree.Root(), "cpu", group, "cpu.stat")
		if st.tree.Version() == cgroup.V2 {
			file = filepath.Join(st.tree.Root(), group, "cpu.stat")
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	var took []time.Duration
	buffer := make([]byte, 4096)
	for range 50 {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		begun := time.Now()
		for _, f := range all {
			if _, err := f.ReadAt(buffer, 0); err != nil && err != io.EOF {
				return err
			}
		}
		took = append(took, time.Since(begun)/time.Duration(len(all)))
	}
	r.BareReadUS = float64(median(took)) / 1e3
	say("a bare read of a control file: %.1f us", r.BareReadUS)
	return nil
}

// allocations are those of one loop over all containers.
func (st *stage) allocations(ctx context.Context, pods agent.Fixed, r *result) error {
	l, err := st.local(ctx, pods)
	if err != nil {
		return err
	}
	defer l.close()
	now := time.Now()
	l.agent.Start(ctx, now)
	l.agent.Step(ctx, now)
	if n := len(l.agent.Report(now).Containers); n != st.settings.containers() {
		return fmt.Errorf("the agent in this process has %d containers, want %d", n, st.settings.containers())
	}
	r.AllocsPerLoop = testing.AllocsPerRun(200, func() {
		now = now.Add(100 * time.Millisecond)
		l.agent.Sample(now)
	})
	return nil
}

func (*settings) containers() int { return pods * containers }

// resizes resizes one container through the agent and another one by the bare
// runtime, alternately. The agent's time is an argument, so that it never waits for
// its budget. A step writes the limit, the next one tells the runtime; the time of a step without
// either is subtracted from that.
func (st *stage) resizes(ctx context.Context, pods agent.Fixed, r *result) error {
	l, err := st.local(ctx, pods)
	if err != nil {
		return err
	}
	defer l.close()
	now := time.Now()
	l.agent.Start(ctx, now)
	l.agent.Step(ctx, now)
	ref := api.ContainerRef{
		Namespace: pods[0].Namespace,
		Pod:       pods[0].Name,
		PodUID:    pods[0].UID,
		Container: pods[0].Containers[0].Name,
	}
	grant := api.Grants{
		TTL: time.Hour,
		All: []api.Grant{{
			Container: ref,
			Mode:      api.Auto,
			Bounds: mdp.Bounds{
				CPU:    mdp.Range[mdp.MilliCPU]{Min: 10, Max: ceiling},
				Memory: mdp.Range[mdp.Bytes]{Min: 16 * mdp.MiB, Max: 64 * mdp.MiB},
			},
		}},
	}
	var through, idle, bare []time.Duration
	step := func() time.Duration {
		now = now.Add(10 * time.Second)
		l.agent.Apply(now, grant)
		begun := time.Now()
		l.agent.Step(ctx, now)
		return time.Since(begun)
	}
	for i := range st.settings.rounds {
		*l.limit = ceiling / mdp.MilliCPU(2-i%2)
		step()
		through = append(through, step())
		idle = append(idle, step())
		begun := time.Now()
		if err := l.runtime.Update(ctx, pods[1].Containers[0].ID,
			cri.Change{Quota: int64(*l.limit) * 100, Period: 100000}); err != nil {
			return err
		}
		bare = append(bare, time.Since(begun))
	}
	for _, s := range l.agent.Report(now).Containers {
		if s.Container == ref && s.Resizes < uint64(st.settings.rounds) {
			return fmt.Errorf("only %d of %d resizes were made: %s", s.Resizes, st.settings.rounds, s.Problem)
		}
	}
	if err := l.agent.Restore(ctx, now); err != nil {
		return err
	}
	r.L1Samples = len(through)
	r.L1P50MS = ms(median(through) - median(idle))
	r.BareCRIP50MS = ms(median(bare))
	r.L1OverBareCRI = r.L1P50MS / r.BareCRIP50MS
	return nil
}
