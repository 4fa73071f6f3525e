package trajectory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Retention selects the episodes of a workload to keep. A zero field keeps all.
type Retention struct {
	Episodes int           // number of newest episodes to keep
	Age      time.Duration // keep an episode while one of its States is not older
}

// Prune deletes whole episodes according to keep, and returns the number of
// deleted transitions. It deletes from the end of an episode, in transactions
// of limited size. After an interruption the rest of the episode has no gap and
// is not complete, so it does not count as a complete episode.
func (s *SQLite) Prune(ctx context.Context, now time.Time, keep Retention) (int64, error) {
	deleted, err := s.prune(ctx, now, keep)
	if err != nil {
		return deleted, fmt.Errorf("pruning %s, %d transitions deleted so far: %w", s.path, deleted, err)
	}
	return deleted, nil
}

// prune is Prune without the context of errors.
func (s *SQLite) prune(ctx context.Context, now time.Time, keep Retention) (deleted int64, err error) {
	if keep.Episodes < 0 || keep.Age < 0 {
		return 0, fmt.Errorf("retention of %d episodes and %v: neither may be negative", keep.Episodes, keep.Age)
	}
	ids, err := column[int64](ctx, s.reader, "SELECT id FROM workload ORDER BY id")
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		var gone []int
		if keep.Episodes > 0 {
			surplus, err := column[int](ctx, s.reader, "SELECT DISTINCT episode FROM step WHERE workload = ? "+
				"ORDER BY episode DESC LIMIT -1 OFFSET ?", id, keep.Episodes)
			if err != nil {
				return deleted, err
			}
			gone = append(gone, surplus...)
		}
		if keep.Age > 0 {
			old, err := column[int](ctx, s.reader, "SELECT episode FROM step WHERE workload = ? "+
				"GROUP BY episode HAVING MAX(at) < ?", id, now.Add(-keep.Age).UnixNano())
			if err != nil {
				return deleted, err
			}
			gone = append(gone, old...)
		}
		slices.SortFunc(gone, cmp.Compare[int]) // the oldest first
		for _, episode := range slices.Compact(gone) {
			for n := int64(deleteAtOnce); n == deleteAtOnce; deleted += n {
				result, err := s.writer.ExecContext(ctx, `DELETE FROM step WHERE workload = ?1 AND episode = ?2 AND step >=
					IFNULL((SELECT step FROM step WHERE workload = ?1 AND episode = ?2 ORDER BY step DESC LIMIT 1 OFFSET ?3), 0)`,
					id, episode, deleteAtOnce-1)
				if err != nil {
					return deleted, err
				}
				if n, err = result.RowsAffected(); err != nil {
					return deleted, err
				}
			}
		}
	}
	return deleted, nil
}
