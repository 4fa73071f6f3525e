package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"awarescale.dev/aware/learner/encode"
	"awarescale.dev/aware/learner/lifecycle"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/nn/weights"
	"awarescale.dev/aware/learner/policy/central"
	"awarescale.dev/aware/learner/policy/learned"
	"github.com/google/renameio/v2"
	"k8s.io/klog/v2"
)

// kept is an agent in its file, beside the files of its policy and of its weights.
type kept struct {
	Workload string               `json:"workload"` // for people
	Form     encode.Form          `json:"form"`
	Place    encode.Place         `json:"place"`
	Judged   mdp.Objective        `json:"judged"` // by which its rewards are
	Agent    lifecycle.AgentState `json:"agent"`
	Peak     mdp.Peak             `json:"peak"`
}

// path is a file of a workload's. The name of a workload can be longer than that of a file.
func (m *minds) path(workload, ending string) string {
	return filepath.Join(m.folder, fmt.Sprintf("%x%s", sha256.Sum256([]byte(workload)), ending))
}

// keepAll writes the agents that have changed to their files; the last time also what did not change an agent.
func (m *minds) keepAll(last bool) {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.all))
	m.mu.Unlock()
	for _, o := range all {
		m.keep(o, last)
	}
}

// keep writes an agent that has changed to its files. What cannot be written is said, and tried again. Decisions do not wait
// for it.
func (m *minds) keep(o *mind, last bool) {
	o.mu.Lock()
	changed, w, policy, before := o.changed || last && o.steps > 0, o.weights, o.policy, o.before
	if !changed || m.folder == "" {
		o.mu.Unlock()
		return
	}
	state := kept{o.workload, m.lessons.Form, o.place, o.objective, o.agent.State(), o.peak}
	o.changed, o.steps = false, 0
	o.mu.Unlock()
	if state.Agent.Replaced == nil {
		before = nil
	}
	err := m.write(state, w, policy, before)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.weights == w {
			o.weights = nil
		}
		return
	}
	klog.ErrorS(err, "An agent was not kept", "workload", o.workload)
	o.changed = true
	o.trouble = cmp.Or(o.trouble, fmt.Sprintf("it would not outlive central: %v", err))
}

// write writes the state last: a policy of a later generation than the state's is one that drives.
func (m *minds) write(k kept, w *weights.File, policy, before *learned.File) error {
	if w != nil {
		if err := weights.Write(m.path(k.Workload, ".weights"), *w); err != nil {
			return err
		}
	}
	for ending, p := range map[string]*learned.File{".policy": policy, ".before": before} {
		if p != nil {
			if err := p.Write(m.path(k.Workload, ending)); err != nil {
				return err
			}
		}
	}
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return renameio.WriteFile(m.path(k.Workload, ".json"), text, 0o600)
}

// read goes on from the files of a workload's agent. Without them, and with those of other bounds, it begins anew, and its
// next lesson goes on from its weights in any case.
func (m *minds) read(o *mind) {
	if m.folder == "" {
		return
	}
	fail := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.trouble = fmt.Sprintf("what was known of it cannot be read: %v", err)
			klog.ErrorS(err, "Reading an agent", "workload", o.workload)
		}
	}
	text, err := os.ReadFile(m.path(o.workload, ".json"))
	if err != nil {
		fail(err)
		return
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		fail(err)
		return
	}
	if k.Peak.Last <= m.now().Unix() { // of a clock that was ahead nothing is known
		o.peak = k.Peak
	}
	if k.Place != o.place || k.Judged != o.objective || m.lessons.Form.Same(k.Form) != nil {
		return
	}
	file := func(ending string) *learned.File {
		f, err := learned.Read(m.path(o.workload, ending))
		if err != nil {
			fail(err)
			return nil
		}
		return &f
	}
	policy, before := file(".policy"), (*learned.File)(nil)
	if k.Agent.Replaced != nil {
		before = file(".before")
	}
	o.restore(k.Agent, policy, before)
}

// restore goes on from a state, with its policy, and the one that it may go back to; without the first the fallback drives.
func (o *mind) restore(s lifecycle.AgentState, policy, before *learned.File) {
	var made [2]mdp.Policy
	for i, file := range []**learned.File{&policy, &before} {
		if *file == nil {
			continue
		}
		p, err := central.Learned(**file, o.place)
		if err != nil {
			o.trouble = err.Error()
			*file = nil
			continue
		}
		made[i] = p
	}
	if err := o.agent.Restore(s, made[0], made[1]); err != nil {
		o.trouble = err.Error()
		return
	}
	o.policy, o.before, o.generation = policy, before, s.Generation
}
