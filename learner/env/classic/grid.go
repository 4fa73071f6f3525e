package classic

import (
	"math/rand/v2"

	"awarescale.dev/aware/learner/env"
)

// The grid of Grid4x4-v0: cells are numbered row by row, 0 is the upper left one.
const (
	gridSide   = 4
	GridCells  = gridSide * gridSide
	GridMoves  = 4 // 0 left, 1 down, 2 right, 3 up
	gridCorner = GridCells - 1
)

// Move is what a move in a cell leads to.
type Move struct {
	Next       int
	Reward     float64
	Terminated bool // Next is a corner; nothing is earned from there on
}

// GridTable is the rules of Grid4x4-v0, by cell and move: what a tabular
// learner must find out, and what value iteration is computed from. A move off
// the grid leads nowhere. Each move costs 1 (Sutton and Barto 2018, example
// 4.1), and the episode terminates in the upper left or the lower right corner,
// in which every further move earns 0 and stays.
func GridTable() (table [GridCells][GridMoves]Move) {
	for cell := range table {
		row, column := cell/gridSide, cell%gridSide
		for move, to := range [GridMoves][2]int{{row, column - 1}, {row + 1, column}, {row, column + 1}, {row - 1, column}} {
			next := gridSide*clamp(to[0]) + clamp(to[1])
			if isCorner(cell) {
				table[cell][move] = Move{Next: cell, Terminated: true}
			} else {
				table[cell][move] = Move{Next: next, Reward: -1, Terminated: isCorner(next)}
			}
		}
	}
	return table
}

func clamp(line int) int { return min(max(line, 0), gridSide-1) }

func isCorner(cell int) bool { return cell == 0 || cell == gridCorner }

// grid4x4 is Grid4x4-v0. State and observation are the cell, as an index. An
// episode begins in any cell but the two corners, all alike, and is truncated
// after 100 moves.
func grid4x4() kind {
	return kind{
		name: "Grid4x4-v0", states: 1, limit: 100, model: gridModel{GridTable()},
		observation: env.Discrete(GridCells), action: env.Discrete(GridMoves),
	}
}

type gridModel struct {
	table [GridCells][GridMoves]Move
}

func (gridModel) begin(r *rand.Rand, s []float64) { s[0] = float64(1 + r.IntN(GridCells-2)) }

func (g gridModel) step(_ *rand.Rand, s, action []float64) (float64, bool) {
	m := &g.table[int(s[0])][int(action[0])]
	s[0] = float64(m.Next)
	return m.Reward, m.Terminated
}

func (gridModel) observe(s, obs []float64) { copy(obs, s) }

func (gridModel) possible(s []float64) bool { return env.IsIndex(s[0], GridCells) }
