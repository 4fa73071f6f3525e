package meta

import (
	"cmp"
	"fmt"
	"slices"
)

// Episode is the steps of an episode as a meta-learner reads them.
type Episode struct {
	Steps []float64 // [steps][Form.Width]
	Sum   float64   // of the known rewards
	Known int       // steps of which the reward is known
}

// Reward is the mean reward of a step; ok is false where none is known.
func (e Episode) Reward() (mean float64, ok bool) {
	if e.Known == 0 {
		return 0, false
	}
	return e.Sum / float64(e.Known), true
}

// Add appends a step: what was observed, what was done, and what it earned. The action is numbers, or the index of a choice.
// It panics when their lengths are not the form's.
func (e *Episode) Add(f Form, observation, action []float64, reward float64, known bool) {
	if len(observation) != f.Observation || len(action) != max(f.Action, min(1, f.Choices)) {
		panic(fmt.Sprintf("meta: a step of %d and %d numbers: the form is %+v", len(observation), len(action), f))
	}
	e.Steps = append(e.Steps, observation...)
	if f.Choices > 0 {
		begin := len(e.Steps)
		e.Steps = append(e.Steps, make([]float64, f.Choices)...)
		e.Steps[begin+int(action[0])] = 1
	} else {
		e.Steps = append(e.Steps, action...)
	}
	if !known {
		e.Steps = append(e.Steps, 0, 0)
		return
	}
	e.Steps = append(e.Steps, reward, 1)
	e.Sum += reward
	e.Known++
}

// Kept is the episodes that stand for a workload, the oldest first: half of them, or one more, those with the highest mean
// rewards, and the others the last ones. The best alone (the paper's top M) hide what the workload is when it is hard, such as in
// a burst of its load. An episode of which no reward is known is not kept.
type Kept struct {
	Most     int // episodes: M
	Episodes []Episode
}

// Add takes in an episode, and reports whether it is kept.
func (k *Kept) Add(e Episode) bool {
	if _, ok := e.Reward(); !ok {
		return false
	}
	k.Episodes = append(k.Episodes, e)
	if len(k.Episodes) <= k.Most {
		return true
	}
	order := make([]int, len(k.Episodes)) // the best first, and of equal ones the newer
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		mine, _ := k.Episodes[a].Reward()
		theirs, _ := k.Episodes[b].Reward()
		return cmp.Compare(theirs, mine)
	})
	gone := slices.Min(order[(k.Most+1)/2:]) // the oldest that is not among the best
	k.Episodes = slices.Delete(k.Episodes, gone, gone+1)
	return gone < k.Most
}

// Fill writes bundles of episodes as the recurrent layers read them: x [Length][bundles*Bundle][Form.Width], and how many
// steps each of the bundles*Bundle episodes has. Of an episode that is longer than Length the last steps are read. What is
// not there is zero.
func (c Config) Fill(bundles [][]Episode, x []float64, lengths []int) {
	width, all := c.Form.Width(), len(bundles)*c.Bundle
	clear(x)
	clear(lengths)
	for i, bundle := range bundles {
		for j, e := range bundle[:min(len(bundle), c.Bundle)] {
			steps := len(e.Steps) / width
			n := min(steps, c.Length)
			at := i*c.Bundle + j
			lengths[at] = n
			for t := range n {
				copy(x[(t*all+at)*width:][:width], e.Steps[(steps-n+t)*width:])
			}
		}
	}
}
