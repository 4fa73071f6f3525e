package dqn

import "awarescale.dev/aware/learner/nn"

// Table is Q-learning without a network (Watkins and Dayan 1992).
type Table struct {
	Gamma        float64     // discount of a step's future
	LearningRate float64     // share of the difference that an update takes away
	Q            [][]float64 // [state][choice]
}

// NewTable is a table of zeros.
func NewTable(states, choices int, gamma, rate float64) *Table {
	t := &Table{Gamma: gamma, LearningRate: rate, Q: make([][]float64, states)}
	for i := range t.Q {
		t.Q[i] = make([]float64, choices)
	}
	return t
}

// Learn moves the value of a choice towards its target.
func (t *Table) Learn(state, choice int, reward float64, next int, terminated bool) {
	y := reward
	if !terminated {
		y += t.Gamma * t.Q[next][t.Best(next)]
	}
	t.Q[state][choice] += t.LearningRate * (y - t.Q[state][choice])
}

// Best is the best choice in a state, the first of equal ones.
func (t *Table) Best(state int) int { return nn.Best(t.Q[state], nil) }
