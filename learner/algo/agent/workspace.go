package agent

import (
	"encoding/json"
	"fmt"
)

// Workspace is what the agents of one worker share: graphs and scratch memory,
// which an agent uses during an update only. There is one set of them for each
// algorithm and shape, made with the first agent that needs it. Hundreds of
// agents then cost their parameters and their experience only. What they learn
// is the same, bit by bit, as with workspaces of their own.
//
// All agents of a Workspace must be used by one goroutine at a time.
type Workspace struct {
	made map[string]any // by algorithm and settings
}

// NewWorkspace is an empty Workspace.
func NewWorkspace() *Workspace { return &Workspace{made: map[string]any{}} }

// Len is how many sets of graphs it has.
func (w *Workspace) Len() int { return len(w.made) }

// Lend is the Workspace's T for an algorithm and the settings that T depends on,
// made at the first call. A nil Workspace keeps nothing: every call makes one.
func Lend[T any](w *Workspace, algorithm string, settings any, build func() (T, error)) (T, error) {
	var none T
	if w == nil {
		return build()
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return none, fmt.Errorf("%s: %w", algorithm, err)
	}
	key := algorithm + " " + string(text)
	if made, ok := w.made[key].(T); ok {
		return made, nil
	}
	made, err := build()
	if err != nil {
		return none, err
	}
	w.made[key] = made
	return made, nil
}
