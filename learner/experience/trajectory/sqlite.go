package trajectory

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"github.com/cenkalti/backoff/v5"
	"modernc.org/sqlite" // and the driver of that name
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite is a Store in one file, for one machine. Several processes can have it open; they wait for each other's writes. The file
// does not shrink: what Prune frees is used again.
type SQLite struct {
	*buffer
	path      string
	writer    *sql.DB // one connection: SQLite has one writer at a time, and it keeps its prepared statements
	reader    *sql.DB
	insert    *sql.Stmt // of one row
	inserts   *sql.Stmt // of stride rows
	workloads map[string]int64
}

// applicationID marks the file as ours: "AWTR".
const applicationID = 0x41575452

// migrations lead from each version of the schema to the next; PRAGMA user_version counts those that were made. What is
// here stays as it is, for there are files that went through it.
//
// The columns of step are for finding a transition, its body is the truth. ended is 1 when it is terminated or truncated, at is
// the time of its State in Unix nanoseconds, NULL when that is outside 1678 to 2262. The index holds all that totals and retention
// ask for, so that neither reads bodies.
var migrations = []string{`
	CREATE TABLE workload (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
	CREATE TABLE step (
		workload INTEGER NOT NULL REFERENCES workload (id),
		episode  INTEGER NOT NULL,
		step     INTEGER NOT NULL,
		reward   REAL NOT NULL,
		ended    INTEGER NOT NULL,
		at       INTEGER,
		body     BLOB NOT NULL,
		PRIMARY KEY (workload, episode, step)
	) STRICT, WITHOUT ROWID;
	CREATE INDEX score ON step (workload, episode, step, reward, ended, at);
	PRAGMA application_id = 0x41575452;
`}

// stride is how many rows one statement inserts: most of the cost of a statement is not in its rows.
const stride = 32

// columns is how many parameters one row takes.
const columns = 7

// deleteAtOnce bounds the transaction of a deletion, and so how long it keeps writers waiting.
const deleteAtOnce = 4096

// busyTimeout is how long to wait for another process's transaction.
const busyTimeout = 5 * time.Second

// OpenSQLite opens the store in a file, and makes or upgrades it if need be. It refuses, and leaves as it is, a file that
// is no SQLite database, one that is another program's, and one with a newer schema.
func OpenSQLite(ctx context.Context, path string, c Buffering) (*SQLite, error) {
	c, err := c.withDefaults()
	if err == nil {
		err = checkMagic(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening trajectory store %s: %w", path, err)
	}
	s := &SQLite{path: path, workloads: map[string]int64{}}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening trajectory store %s: %w", path, err), s.release())
	}
	s.buffer = newBuffer(c, path, s.put)
	return s, nil
}

// checkMagic looks at the first bytes of a file, since SQLite may write to what it opens. No file, or an empty one, is
// a store to be made.
func checkMagic(path string) error {
	const magic = "SQLite format 3\x00"
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, int64(len(magic))))
	if err != nil {
		return err
	}
	if len(head) > 0 && !bytes.Equal(head, []byte(magic)) {
		return fmt.Errorf("it is not an SQLite database: it begins with %q", head)
	}
	return nil
}

func (s *SQLite) open(ctx context.Context) error {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return err
	}
	// A URI, since it escapes what a path may have in it, such as a question mark.
	file := (&url.URL{Scheme: "file", Path: path}).String() +
		fmt.Sprintf("?_pragma=busy_timeout(%d)&_pragma=synchronous(NORMAL)", busyTimeout.Milliseconds())
	if s.writer, err = sql.Open("sqlite", file+"&_txlock=immediate"); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if err := migrate(ctx, s.writer, migrations); err != nil {
		return err
	}
	if s.insert, err = s.writer.PrepareContext(ctx, insertOf(1)); err != nil {
		return err
	}
	if s.inserts, err = s.writer.PrepareContext(ctx, insertOf(stride)); err != nil {
		return err
	}
	s.reader, err = sql.Open("sqlite", file+"&_pragma=query_only(1)")
	return err
}

func insertOf(rows int) string {
	one := ",(?" + strings.Repeat(",?", columns-1) + ")"
	return "REPLACE INTO step (workload, episode, step, reward, ended, at, body) VALUES " + strings.Repeat(one, rows)[1:]
}

// migrate brings a database to the version that the list leads to. Nothing is written before it is known to be ours and
// not newer.
func migrate(ctx context.Context, db *sql.DB, list []string) error {
	version, err := versionOf(ctx, db, len(list))
	if err != nil {
		return err
	}
	mode, err := askForLog(ctx, db)
	if err != nil {
		return fmt.Errorf("asking for a write-ahead log: %w", err)
	}
	if mode != "wal" {
		return fmt.Errorf("asking for a write-ahead log: the journal mode is %q; is it a network file system?", mode)
	}
	for version < len(list) {
		if version, err = upgrade(ctx, db, list); err != nil {
			return err
		}
	}
	return nil
}

// askForLog sets the journal mode, and gives the one that is in force. SQLite does not wait by its busy timeout here, so when another
// process makes the same file at this moment, the waiting is ours.
func askForLog(ctx context.Context, db *sql.DB) (string, error) {
	return backoff.Retry(ctx, func() (mode string, err error) {
		err = db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
		if e := (*sqlite.Error)(nil); errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY { // the low byte is the kind
			return "", err
		}
		if err != nil {
			return "", backoff.Permanent(err)
		}
		return mode, nil
	}, backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(busyTimeout))
}

// upgrade makes one step of the list, unless another process was faster, and tells the version.
func upgrade(ctx context.Context, db *sql.DB, list []string) (int, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("upgrading the schema: %w", err)
	}
	defer tx.Rollback()
	version, err := versionOf(ctx, tx, len(list))
	if err != nil || version == len(list) {
		return version, err
	}
	if _, err := tx.ExecContext(ctx, list[version]+fmt.Sprintf("; PRAGMA user_version = %d", version+1)); err != nil {
		return 0, fmt.Errorf("upgrading the schema from version %d to %d: %w", version, version+1, err)
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("upgrading the schema from version %d to %d: %w", version, version+1, err)
	}
	return version + 1, nil
}

// versionOf is the schema's version, which is 0 for an empty database.
func versionOf(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, ours int) (int, error) {
	var id, version, tables int
	err := db.QueryRowContext(ctx, `SELECT a.application_id, v.user_version, (SELECT COUNT(*) FROM sqlite_schema)
		FROM pragma_application_id a, pragma_user_version v`).Scan(&id, &version, &tables)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading its version: %w", err)
	case id != applicationID && (id != 0 || version != 0 || tables != 0):
		return 0, fmt.Errorf("it is the database of another program: application id %#x, want %#x", id, applicationID)
	case version < 0 || version > ours:
		return 0, fmt.Errorf("its schema has version %d and this program knows up to %d: use a newer program", version, ours)
	}
	return version, nil
}

// Close implements [Store].
func (s *SQLite) Close() error {
	return errors.Join(s.close(), s.release())
}

func (s *SQLite) release() error {
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	if s.writer != nil { // last, for the last connection puts the log into the file, which a query_only one may not
		err = errors.Join(err, s.writer.Close())
	}
	return err
}

// put writes a batch in one transaction.
func (s *SQLite) put(ctx context.Context, rows []row) error {
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	added := map[string]int64{}
	args := make([]any, 0, stride*columns)
	body := make([]byte, 0, 256*stride) // of all rows of a statement
	for len(rows) > 0 {
		n, insert := 1, s.insert
		if len(rows) >= stride {
			n, insert = stride, s.inserts
		}
		args, body = args[:0], body[:0]
		for i := range rows[:n] {
			r := &rows[i]
			id, err := s.workloadID(ctx, tx, r.workload, added)
			if err != nil {
				return err
			}
			start := len(body)
			body = appendBody(body, &r.transition)
			args = append(args, id, r.episode, r.step, float64(r.transition.Reward),
				r.transition.Terminated || r.transition.Truncated, unixNano(r.transition.State.At), body[start:len(body):len(body)])
		}
		if _, err := tx.StmtContext(ctx, insert).ExecContext(ctx, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for name, id := range added { // only now: the rows of a transaction that is rolled back are not there
		s.workloads[name] = id
	}
	return nil
}

// workloadID is the key of a workload, which is made if need be. Only the one who has the turn to write comes here.
func (s *SQLite) workloadID(ctx context.Context, tx *sql.Tx, name string, added map[string]int64) (int64, error) {
	if id, ok := s.workloads[name]; ok {
		return id, nil
	}
	if id, ok := added[name]; ok {
		return id, nil
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO workload (name) VALUES (?) ON CONFLICT DO NOTHING", name); err != nil {
		return 0, err
	}
	var id int64
	if err := tx.QueryRowContext(ctx, "SELECT id FROM workload WHERE name = ?", name).Scan(&id); err != nil {
		return 0, err
	}
	added[name] = id
	return id, nil
}

// unixNano is NULL for a time that has no Unix nanoseconds, such as the zero time.
func unixNano(t time.Time) any {
	if n := t.UnixNano(); time.Unix(0, n).Equal(t) {
		return n
	}
	return nil
}

// ofWorkload begins the conditions of the queries about one workload.
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

// querier is a database or a transaction of it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

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

// Top implements [Store]. It looks at the rewards of all the workload's steps, and reads the bodies of m episodes.
func (s *SQLite) Top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	best, err := s.top(ctx, workload, m)
	if err != nil {
		return nil, fmt.Errorf("reading the %d best episodes of workload %q from %s: %w", m, workload, s.path, err)
	}
	return best, nil
}

func (s *SQLite) top(ctx context.Context, workload string, m int) ([]mdp.Trajectory, error) {
	if err := checkAsk(workload, "the number of episodes", m); err != nil {
		return nil, err
	}
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one view of it all, whatever is written or pruned meanwhile
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

// Transitions implements [Store]. While it is being read the log cannot be put into the file, and grows.
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

// column reads a query's only column.
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

// Retention says which episodes of a workload are kept. A zero field keeps all.
type Retention struct {
	Episodes int           // so many of the newest
	Age      time.Duration // those of which some State is not older
}

// Prune deletes whole episodes that are not to be kept, and tells how many transitions that were. It deletes from an
// episode's end, a bounded number at a time: should it be cut short, what is left of the episode has no gap and is not complete, so
// nobody takes it for what it was.
func (s *SQLite) Prune(ctx context.Context, now time.Time, keep Retention) (int64, error) {
	deleted, err := s.prune(ctx, now, keep)
	if err != nil {
		return deleted, fmt.Errorf("pruning %s, %d transitions deleted so far: %w", s.path, deleted, err)
	}
	return deleted, nil
}

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
			many, err := column[int](ctx, s.reader, "SELECT DISTINCT episode FROM step WHERE workload = ? ORDER BY episode DESC LIMIT -1 OFFSET ?", id, keep.Episodes)
			if err != nil {
				return deleted, err
			}
			gone = append(gone, many...)
		}
		if keep.Age > 0 {
			old, err := column[int](ctx, s.reader, "SELECT episode FROM step WHERE workload = ? GROUP BY episode HAVING MAX(at) < ?", id, now.Add(-keep.Age).UnixNano())
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
