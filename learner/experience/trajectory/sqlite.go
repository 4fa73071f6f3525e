package trajectory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// SQLite is a Store in one file, for one machine. Several processes can open
// the file; they wait for each other's writes. The file does not shrink, but
// new transitions use the space that Prune frees.
type SQLite struct {
	*buffer
	path      string
	writer    *sql.DB          // has one connection, because SQLite has one writer at a time
	reader    *sql.DB          // read-only connections
	insert    *sql.Stmt        // inserts one row
	inserts   *sql.Stmt        // inserts stride rows
	workloads map[string]int64 // IDs of workloads that are in the file
}

// applicationID identifies the file format: "AWTR".
const applicationID = 0x41575452

// migrations upgrade the schema from each version to the next. PRAGMA
// user_version is the number of applied migrations. An existing entry must not
// change, because existing files were created with it.
//
// The columns of step are for searching; the body contains the whole
// transition. ended is 1 when the transition is terminated or truncated. at is
// the time of its State in Unix nanoseconds, or NULL outside the years 1678 to
// 2262. The index contains all columns that totals and retention need, so they
// do not read bodies.
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

// stride is the number of rows per insert statement. A statement has a high
// fixed cost.
const stride = 32

// columns is the number of parameters per row.
const columns = 7

// deleteAtOnce is the maximum number of rows per transaction of a deletion. It
// limits the time for which writers wait.
const deleteAtOnce = 4096

// busyTimeout is the maximum time to wait for a transaction of another process.
const busyTimeout = 5 * time.Second

// OpenSQLite opens the store in a file. It creates or upgrades the file if
// necessary. It rejects, and does not change, a file that is not an SQLite
// database, a database of another program, and a newer schema.
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

// Close implements [Store].
func (s *SQLite) Close() error {
	return errors.Join(s.close(), s.release())
}

// release closes the connections.
func (s *SQLite) release() error {
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	if s.writer != nil { // the last connection writes the log into the file, and query_only forbids that
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
		args = args[:0]
		body = body[:0]
		for i := range rows[:n] {
			r := &rows[i]
			id, err := s.workloadID(ctx, tx, r.workload, added)
			if err != nil {
				return err
			}
			start := len(body)
			body = appendBody(body, &r.transition)
			ended := r.transition.Terminated || r.transition.Truncated
			args = append(args, id, r.episode, r.step, float64(r.transition.Reward),
				ended, unixNano(r.transition.State.At), body[start:len(body):len(body)])
		}
		if _, err := tx.StmtContext(ctx, insert).ExecContext(ctx, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for name, id := range added { // after the commit, because a rollback removes the new rows
		s.workloads[name] = id
	}
	return nil
}

// workloadID is the ID of a workload. It inserts an unknown workload. Only the
// goroutine that holds buffer.writing calls it.
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

// unixNano is the time in Unix nanoseconds, or nil (NULL) for a time outside
// their range, such as the zero time.
func unixNano(t time.Time) any {
	if n := t.UnixNano(); time.Unix(0, n).Equal(t) {
		return n
	}
	return nil
}
