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
	changed, w, policy := o.changed || last && o.steps > 0, o.weights, o.policy
	if !changed || m.folder == "" {
		o.mu.Unlock()
		return
	}
	state := kept{o.workload, m.lessons.Form, o.place, o.objective, o.agent.State(), o.peak}
	o.changed, o.steps = false, 0
	o.mu.Unlock()
	err := m.write(state, w, policy)
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
func (m *minds) write(k kept, w *weights.File, policy *learned.File) error {
	if w != nil {
		if err := weights.Write(m.path(k.Workload, ".weights"), *w); err != nil {
			return err
		}
	}
	if policy != nil {
		if err := policy.Write(m.path(k.Workload, ".policy")); err != nil {
			return err
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
	var policy *learned.File
	if f, err := learned.Read(m.path(o.workload, ".policy")); err != nil {
		fail(err)
	} else {
		policy = &f
	}
	o.restore(k.Agent, policy)
}

// restore goes on from a state, with its policy; without one the fallback drives.
func (o *mind) restore(s lifecycle.AgentState, policy *learned.File) {
	var p mdp.Policy
	if policy != nil {
		made, err := central.Learned(*policy, o.place)
		if err != nil {
			o.trouble = err.Error()
			policy = nil
		} else {
			p = made
		}
	}
	if err := o.agent.Restore(s, p); err != nil {
		o.trouble = err.Error()
		return
	}
	o.policy, o.generation = policy, s.Generation
}
