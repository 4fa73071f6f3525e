package trajectory

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"

	"awarescale.dev/aware/learner/mdp"
)

// ofWorkload is the start of the conditions of queries for one workload.
const ofWorkload = " FROM step WHERE workload = (SELECT id FROM workload WHERE name = ?) "

// Episode implements [Store].
func (s *SQLite) Episode(ctx context.Context, workload string, episode int) (mdp.Trajectory, error) {
	err := checkWorkload(workload)
	var t mdp.Trajectory
	if err == nil {
		t, err = readEpisode(ctx, s.reader, workload, episode)
	}
	if err != nil {
		return mdp.Trajectory{}, fmt.Errorf("reading episode %d of workload %q from %s: %w", episode, workload, s.path, err)
	}
	return t, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readEpisode reads the steps of an episode in order.
func readEpisode(ctx context.Context, q querier, workload string, episode int) (mdp.Trajectory, error) {
	t := mdp.Trajectory{Workload: workload, Episode: episode}
	for one, err := range bodies(ctx, q, "AND episode = ? ORDER BY step", workload, episode) {
		if err != nil {
			return mdp.Trajectory{}, err
		}
		t.Steps = append(t.Steps, one)
	}
	if len(t.Steps) == 0 {
		return mdp.Trajectory{}, ErrNotFound
	}
	return t, nil
}

// bodies reads the transitions of a workload that a condition selects.
func bodies(ctx context.Context, q querier, condition string, args ...any) iter.Seq2[mdp.Transition, error] {
	return func(yield func(mdp.Transition, error) bool) {
		rows, err := q.QueryContext(ctx, "SELECT episode, step, body"+ofWorkload+condition, args...)
		if err != nil {
			yield(mdp.Transition{}, err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var episode, step int
			var body sql.RawBytes // decoded before the next row overwrites it
			err := rows.Scan(&episode, &step, &body)
			var t mdp.Transition
			if err == nil {
				if t, err = decodeBody(body); err != nil {
					err = fmt.Errorf("episode %d step %d: %w", episode, step, err)
				}
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(mdp.Transition{}, err)
		}
	}
}

// Top implements [Store]. It reads the rewards of all steps of the workload,
// and the bodies of m episodes.
func (s *SQLite) Top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	best, err := s.top(ctx, workload, m)
	if err != nil {
		return nil, fmt.Errorf("reading the %d best episodes of workload %q from %s: %w", m, workload, s.path, err)
	}
	return best, nil
}

// top is Top without the context of errors.
func (s *SQLite) top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	if err := checkAsk(workload, "the number of episodes", m); err != nil {
		return nil, err
	}
	// One transaction gives a consistent view during concurrent writes and
	// deletions.
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	episodes, err := column[int](ctx, tx, "SELECT episode"+ofWorkload+
		"GROUP BY episode HAVING MAX(ended) ORDER BY SUM(reward) DESC, episode DESC LIMIT ?", workload, m)
	if err != nil {
		return nil, err
	}
	best := make([]mdp.Trajectory, 0, len(episodes))
	for _, episode := range episodes {
		t, err := readEpisode(ctx, tx, workload, episode)
		if err != nil {
			return nil, fmt.Errorf("episode %d: %w", episode, err)
		}
		best = append(best, t)
	}
	return best, nil
}

// Rewards implements [Store].
func (s *SQLite) Rewards(ctx context.Context, workload string, n int) ([]float64, error) {
	err := checkAsk(workload, "the number of episodes", n)
	var totals []float64
	if err == nil {
		totals, err = column[float64](ctx, s.reader, "SELECT SUM(reward)"+ofWorkload+
			"GROUP BY episode HAVING MAX(ended) ORDER BY episode DESC LIMIT ?", workload, n)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the rewards of workload %q from %s: %w", workload, s.path, err)
	}
	slices.Reverse(totals)
	return totals, nil
}

// Transitions implements [Store]. During the iteration SQLite cannot move the
// log into the file, so the log grows.
func (s *SQLite) Transitions(ctx context.Context, workload string, limit int) iter.Seq2[mdp.Transition, error] {
	return func(yield func(mdp.Transition, error) bool) {
		wrap := func(err error) error {
			return fmt.Errorf("reading transitions of workload %q from %s: %w", workload, s.path, err)
		}
		if err := checkAsk(workload, "the limit", limit); err != nil {
			yield(mdp.Transition{}, wrap(err))
			return
		}
		for t, err := range bodies(ctx, s.reader, "ORDER BY episode DESC, step DESC LIMIT ?", workload, limit) {
			if err != nil {
				err = wrap(err)
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// Workloads implements [Store].
func (s *SQLite) Workloads(ctx context.Context) ([]string, error) {
	names, err := column[string](ctx, s.reader,
		"SELECT name FROM workload WHERE EXISTS (SELECT 1 FROM step WHERE step.workload = workload.id) ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("reading workloads from %s: %w", s.path, err)
	}
	return names, nil
}

// column reads the only column of a query.
func column[T any](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var one T
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
