package trajectory

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"modernc.org/sqlite" // also registers the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// checkMagic checks the first bytes of a file before SQLite opens it, because
// SQLite can write to it. A missing or empty file is valid; it becomes a new
// store.
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

// open opens the connections, upgrades the schema and prepares the statements.
func (s *SQLite) open(ctx context.Context) error {
	path, err := filepath.Abs(s.path)
	if err != nil {
		return err
	}
	// A URI escapes special characters of the path, such as a question mark.
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

// insertOf is the statement that inserts rows.
func insertOf(rows int) string {
	one := ",(?" + strings.Repeat(",?", columns-1) + ")"
	return "REPLACE INTO step (workload, episode, step, reward, ended, at, body) VALUES " + strings.Repeat(one, rows)[1:]
}

// migrate upgrades a database to the last version in the list. Before it
// writes, it checks that the database belongs to this program and is not newer.
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

// askForLog sets the journal mode and returns the actual mode. SQLite does not
// use its busy timeout here, so this function waits when another process
// creates the same file.
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

// upgrade applies the next migration, unless another process has applied it,
// and returns the new version.
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

// versionOf is the version of the schema; 0 for an empty database.
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
