package trajectory_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/experience/trajectory/trajectorytest"
	"awarescale.dev/aware/learner/mdp"
)

func openSQLite(t testing.TB, path string, c trajectory.Buffering) *trajectory.SQLite {
	t.Helper()
	s, err := trajectory.OpenSQLite(context.Background(), path, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func worth(reward float64) mdp.Transition { return mdp.Transition{Reward: mdp.Reward(reward)} }

func TestSQLitePassesTheStoreSuite(t *testing.T) {
	trajectorytest.Store(t, func(t *testing.T) trajectory.Store {
		return openSQLite(t, filepath.Join(t.TempDir(), "what? a #file%20.db"), trajectory.Buffering{})
	})
}

func TestReopenedFileHasItsTransitions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	for n := range 3 {
		s := openSQLite(t, path, trajectory.Buffering{})
		for step := range 10 {
			if err := s.Append(t.Context(), "w", n, step, trajectorytest.Full()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openSQLite(t, path, trajectory.Buffering{})
	defer s.Close()
	all, err := s.Top(t.Context(), "w", 9)
	if err != nil || len(all) != 3 || len(all[0].Steps) != 10 || all[0].Episode != 2 {
		t.Fatalf("%d episodes, %v", len(all), err)
	}
	if !trajectorytest.Same(all[2].Steps[9], trajectorytest.Full()) {
		t.Errorf("%#v", all[2].Steps[9])
	}
	if left, _ := filepath.Glob(path + "-*"); len(left) != 2 { // while it is open: the log and its index
		t.Errorf("beside the file: %v", left)
	}
}

// Other files are not touched: what they hold is somebody's.
func TestFileThatIsNotAStoreIsRejectedAndUnchanged(t *testing.T) {
	newer := func(path string) error {
		return trajectory.Migrate(t.Context(), path, "ALTER TABLE step ADD COLUMN more INTEGER")
	}
	foreign := func(path string) error {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.Exec("CREATE TABLE step (x)")
		return err
	}
	text := func(path string) error { return os.WriteFile(path, []byte("dear diary, today"), 0o600) }
	short := func(path string) error { return os.WriteFile(path, []byte("SQLite"), 0o600) }
	torn := func(path string) error { // a database by its first bytes only
		return os.WriteFile(path, append([]byte("SQLite format 3\x00"), bytes.Repeat([]byte("x"), 5000)...), 0o600)
	}
	directory := func(path string) error { return os.Mkdir(path, 0o700) }
	for _, one := range []struct {
		name string
		make func(path string) error
		says []string
	}{
		{"a newer schema", newer, []string{"version 2", "up to 1"}},
		{"another program's", foreign, []string{"another program", "application id 0x0"}},
		{"a text", text, []string{"not an SQLite database", "dear diary"}},
		{"a beginning of one", short, []string{"not an SQLite database"}},
		{"torn", torn, []string{"not a database"}},
		{"a directory", directory, []string{"is a directory"}},
	} {
		t.Run(one.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := one.make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path)
			_, err := trajectory.OpenSQLite(t.Context(), path, trajectory.Buffering{})
			for _, what := range append(one.says, path) {
				if err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("%v, want %q", err, what)
				}
			}
			after, _ := os.ReadFile(path)
			if !bytes.Equal(before, after) {
				t.Error("the file was changed")
			}
			if beside, _ := filepath.Glob(path + "-*"); len(beside) > 0 {
				t.Errorf("beside it: %v", beside)
			}
		})
	}
	if _, err := trajectory.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "no", "where"), trajectory.Buffering{}); err == nil {
		t.Error("a store in a directory that is not there")
	}
	less := trajectory.Buffering{Batch: 10, Limit: 9}
	if _, err := trajectory.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "s"), less); err == nil {
		t.Error("a limit below a batch")
	}
}

func TestOlderSchemaIsUpgradedInOrderOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openSQLite(t, path, trajectory.Buffering{})
	if err := errors.Join(s.Append(t.Context(), "w", 0, 0, worth(1)), s.Close()); err != nil {
		t.Fatal(err)
	}
	more := []string{
		"CREATE TABLE a (x)", "ALTER TABLE a RENAME TO b",
		"INSERT INTO b VALUES (1); INSERT INTO nowhere VALUES (2)",
	}
	err := trajectory.Migrate(t.Context(), path, more...)
	if err == nil || !strings.Contains(err.Error(), "from version 3 to 4") {
		t.Errorf("%v", err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var version, rows int
	if err := db.QueryRow("SELECT user_version, (SELECT COUNT(*) FROM b) + (SELECT COUNT(*) FROM step)"+
		" FROM pragma_user_version").Scan(&version, &rows); err != nil {
		t.Fatal(err)
	}
	if version != 3 || rows != 1 {
		t.Errorf("version %d, %d rows: the third step failed and should have left nothing", version, rows)
	}
}

func TestSeveralProcessesCanCreateTheFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var wg sync.WaitGroup
	for n := range 8 { // connections of their own, as processes have
		wg.Go(func() {
			s, err := trajectory.OpenSQLite(t.Context(), path, trajectory.Buffering{})
			if err != nil {
				t.Error(err)
				return
			}
			for step := range 100 {
				if err := s.Append(t.Context(), "w", n, step, worth(1)); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if rows := whole(t, path); rows != 800 {
		t.Errorf("%d rows of 800", rows)
	}
}

func TestErrorNamesTheCorruptPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openSQLite(t, path, trajectory.Buffering{})
	for step := range 1000 {
		if err := s.Append(t.Context(), "w", 7, step, trajectorytest.Full()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Writer().Exec("UPDATE step SET body = CAST(x'63' || substr(body, 2) AS BLOB) WHERE step = 999"); err != nil {
		t.Fatal(err)
	}
	read := func() (err error) {
		for _, err = range s.Transitions(t.Context(), "w", 1000) {
		}
		return err
	}
	_, err := s.Episode(t.Context(), "w", 7)
	for _, err := range []error{err, read()} {
		for _, what := range []string{path, `"w"`, "episode 7", "step 999", "version 99"} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want %q", err, what)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(text[4096:]) // all pages but the first, whatever they hold
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openSQLite(t, path, trajectory.Buffering{})
	defer s.Close()
	if _, err := s.Episode(t.Context(), "w", 7); err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "malformed") {
		t.Error(err)
	}
}

// A full disk, by PRAGMA max_page_count: the same SQLITE_FULL as of a file
// system without room.
func TestFullDiskKeepsTheBuffer(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{Batch: 100, Limit: 400})
	fillUp(t, s, func() {
		if _, err := s.Writer().Exec("PRAGMA max_page_count = 20"); err != nil {
			t.Fatal(err)
		}
	}, func() {
		if _, err := s.Writer().Exec("PRAGMA max_page_count = 100000"); err != nil {
			t.Fatal(err)
		}
	})
}

// The same with a file system of one megabyte.
func TestFullFileSystemKeepsTheBuffer(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system of its own to fill: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := openSQLite(t, filepath.Join(dir, "store.db"), trajectory.Buffering{Batch: 100, Limit: 400})
	ballast := filepath.Join(dir, "ballast")
	fillUp(t, s, func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.Copy(f, zeros{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// fillUp lets a store that holds 400 run into a full disk, and then makes room.
func fillUp(t *testing.T, s *trajectory.SQLite, full, room func()) {
	t.Helper()
	step := 0
	add := func() error {
		err := s.Append(t.Context(), "w", 0, step, trajectorytest.Full())
		if err == nil {
			step++
		}
		return err
	}
	for range 50 {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	full()
	var err error
	refusals := 0
	for range 1000 { // some still goes into the last pages
		if err = add(); errors.Is(err, trajectory.ErrBufferFull) {
			refusals++
			err := s.Flush(t.Context())
			if err != nil && refusals > 3 {
				break
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	f := s.Figures()
	if !errors.Is(err, trajectory.ErrBufferFull) || !strings.Contains(err.Error(), "400 transitions wait") ||
		!strings.Contains(err.Error(), "full") {
		t.Errorf("Append says %v", err)
	}
	if f.Waiting != 400 || f.Dropped != uint64(refusals) || f.Problem == nil {
		t.Errorf("%+v after %d refusals", f, refusals)
	}
	if err := s.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "store.db") ||
		!strings.Contains(err.Error(), "400 wait") || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("Flush says %v", err)
	}
	if e, err := s.Episode(t.Context(), "w", 0); err != nil || len(e.Steps) != step-400 { // it can be read meanwhile
		t.Errorf("%d steps, want the %d that do not wait: %v", len(e.Steps), step-400, err)
	}
	room()
	if err := s.Flush(t.Context()); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := add(); err != nil {
		t.Error(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	if e, err := s.Episode(t.Context(), "w", 0); err != nil || len(e.Steps) != step {
		t.Errorf("%d steps of %d, %v", len(e.Steps), step, err)
	}
	if f := s.Figures(); f.Waiting != 0 || f.Problem != nil || f.Written != uint64(step) {
		t.Errorf("%+v of %d", f, step)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A workload's key is made in the transaction of its first steps, and is gone
// when that is rolled back.
func TestWorkloadThatStartedOnAFullDiskIsStoredLater(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{})
	defer s.Close()
	limit := func(pages int) {
		if _, err := s.Writer().Exec(fmt.Sprint("PRAGMA max_page_count = ", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	for step := range 300 {
		if err := s.Append(t.Context(), "a", 0, step, trajectorytest.Full()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err == nil {
		t.Fatal("300 transitions found room on a full disk")
	}
	limit(100000)
	if err := errors.Join(s.Append(t.Context(), "b", 0, 0, worth(1)), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Workloads(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("%q, %v", names, err)
	}
}

func TestCloseOnAFullDiskReportsLostTransitions(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{})
	if _, err := s.Writer().Exec("PRAGMA max_page_count = 1"); err != nil {
		t.Fatal(err)
	}
	for step := range 300 {
		if err := s.Append(t.Context(), "w", 0, step, trajectorytest.Full()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "300 transitions are lost") {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("not within a minute: %s", what)
}

func TestBufferIsWrittenWhenABatchIsFullAndAtEachTick(t *testing.T) {
	tick := make(chan time.Time)
	s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{Batch: 10, Tick: tick})
	defer s.Close()
	for step := range 25 {
		if err := s.Append(t.Context(), "w", 0, step, worth(1)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two batches written", func() bool { return s.Figures().Written == 20 })
	time.Sleep(20 * time.Millisecond)
	if f := s.Figures(); f.Waiting != 5 {
		t.Errorf("%+v: half a batch was written before the tick", f)
	}
	tick <- time.Time{}
	eventually(t, "the rest written", func() bool { return s.Figures() == trajectory.Figures{Written: 25} })
	close(tick) // as a ticker never does; the store goes on without
	for step := range 10 {
		if err := s.Append(t.Context(), "w", 1, step, worth(1)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a batch after the ticker", func() bool { return s.Figures().Written == 35 })
}

func TestRetentionKeepsNewestAndRecentEpisodes(t *testing.T) {
	const day = 24 * time.Hour
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	fill := func(t *testing.T) *trajectory.SQLite {
		s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{})
		t.Cleanup(func() { s.Close() })
		for _, w := range []string{"a", "b"} {
			for episode := range 5 { // one a day, the last one of 10,000 steps at noon
				for step := range []int{3, 3, 10000, 3, 3}[episode] {
					one := worth(1)
					one.State.At = noon.Add(time.Duration(episode-4)*day - time.Duration(step)*time.Second)
					one.Truncated = step == 2
					if err := s.Append(t.Context(), w, episode, step, one); err != nil {
						t.Fatal(err)
					}
					if step%1000 == 0 {
						s.Flush(t.Context())
					}
				}
			}
		}
		for step := range 2 { // of a time that nobody knows
			if err := s.Append(t.Context(), "a", 9, step, worth(1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	left := func(t *testing.T, s *trajectory.SQLite, w string) (all []int) {
		for episode := range 10 {
			if _, err := s.Episode(t.Context(), w, episode); err == nil {
				all = append(all, episode)
			} else if !errors.Is(err, trajectory.ErrNotFound) {
				t.Fatal(err)
			}
		}
		return all
	}
	for _, one := range []struct {
		name    string
		keep    trajectory.Retention
		deleted int64
		a, b    []int
	}{
		{"nothing is asked", trajectory.Retention{}, 0, []int{0, 1, 2, 3, 4, 9}, []int{0, 1, 2, 3, 4}},
		{"two episodes", trajectory.Retention{Episodes: 2}, 10009 + 10006, []int{4, 9}, []int{3, 4}},
		{"by age, and unknown is not old", trajectory.Retention{Age: 25 * time.Hour}, 2 * 10006, []int{3, 4, 9}, []int{3, 4}},
		{"both", trajectory.Retention{Episodes: 1, Age: 25 * time.Hour}, 10012 + 10009, []int{9}, []int{4}},
		{"all is old", trajectory.Retention{Age: time.Nanosecond}, 0, nil, nil},
	} {
		t.Run(one.name, func(t *testing.T) {
			s := fill(t)
			now := noon
			if one.name == "all is old" {
				now, one.deleted, one.a = noon.Add(time.Hour), 2*10012, []int{9}
			}
			deleted, err := s.Prune(t.Context(), now, one.keep)
			if err != nil || deleted != one.deleted {
				t.Errorf("deleted %d, want %d: %v", deleted, one.deleted, err)
			}
			if a, b := left(t, s, "a"), left(t, s, "b"); !slices.Equal(a, one.a) || !slices.Equal(b, one.b) {
				t.Errorf("left %v and %v, want %v and %v", a, b, one.a, one.b)
			}
			if err := s.Append(t.Context(), "b", 99, 0, worth(1)); err != nil { // a workload that was emptied can come back
				t.Error(err)
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Error(err)
			}
			if names, err := s.Workloads(t.Context()); err != nil || !slices.Equal(names, []string{"a", "b"}) {
				t.Error(names, err)
			}
		})
	}
	if _, err := fill(t).Prune(t.Context(), noon, trajectory.Retention{Episodes: -1}); err == nil {
		t.Error("a negative retention")
	}
}

func TestInterruptedPruneLeavesNoGap(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "store.db"), trajectory.Buffering{Batch: 5000, Limit: 50000})
	defer s.Close()
	const steps = 20000
	for step := range steps {
		one := worth(float64(step))
		one.Truncated = step == steps-1
		if err := s.Append(t.Context(), "w", 0, step, one); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Append(t.Context(), "w", 1, 0, worth(0)), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // as soon as something is gone
		defer cancel()
		for {
			if r, err := s.Rewards(t.Context(), "w", 1); err != nil || len(r) == 0 {
				return
			}
		}
	}()
	deleted, err := s.Prune(ctx, time.Time{}, trajectory.Retention{Episodes: 1})
	if err == nil {
		t.Skip("it was too fast to be cut short")
	}
	e, err := s.Episode(t.Context(), "w", 0)
	if err != nil || len(e.Steps) == steps || len(e.Steps) == 0 {
		t.Fatalf("%d steps left, %v", len(e.Steps), err)
	}
	t.Logf("%d deletions told, %d steps left", deleted, len(e.Steps))
	for step, one := range e.Steps {
		if one.Reward != mdp.Reward(step) {
			t.Fatalf("at %d is step %v", step, one.Reward)
		}
	}
	if r, err := s.Rewards(t.Context(), "w", 5); err != nil || len(r) != 0 {
		t.Errorf("what is left counts as complete: %v, %v", r, err)
	}
}

// writerEnv makes this test binary a process that writes until it is killed; it
// holds the first episode and the store's path.
const writerEnv = "TRAJECTORY_TEST_WRITES"

func TestMain(m *testing.M) {
	if text := os.Getenv(writerEnv); text != "" {
		first, path, _ := strings.Cut(text, " ")
		episode, err := strconv.Atoi(first)
		if err == nil {
			err = writeForEver(path, episode)
		}
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver writes episodes of 500 steps, and says so once a first batch is
// written.
func writeForEver(path string, episode int) error {
	s, err := trajectory.OpenSQLite(context.Background(), path, trajectory.Buffering{Batch: 64})
	if err != nil {
		return err
	}
	for said := false; ; episode++ {
		for step := range 500 {
			one := trajectorytest.Full()
			one.Truncated = step == 499
			if err := s.Append(context.Background(), "w", episode, step, one); errors.Is(err, trajectory.ErrBufferFull) {
				if err := s.Flush(context.Background()); err != nil {
					return err
				}
				if err := s.Append(context.Background(), "w", episode, step, one); err != nil {
					return err
				}
			} else if err != nil {
				return err
			}
			if !said && s.Figures().Written > 0 {
				fmt.Println("writing")
				said = true
			}
		}
	}
}

func TestStoreIsConsistentAfterItsWriterIsKilled(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	dir, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	total, all := 0, 0
	for round := range rounds {
		if round%10 == 0 { // a new file, since to check all of a file takes ever longer
			total = 0
		}
		path := filepath.Join(dir, fmt.Sprint("store", round/10))
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", writerEnv, 1000*round, path))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		word := make([]byte, len("writing"))
		if _, err := io.ReadFull(out, word); err != nil || string(word) != "writing" {
			t.Errorf("the writer says %q, %v", word, err)
		}
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := child.Wait(); err == nil || child.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("the writer ended by itself: %v", err)
		}
		rows := whole(t, path)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		if rows < total+64 {
			t.Fatalf("round %d: %d rows after the %d there were, and a batch of 64 was written", round, rows, total)
		}
		all += rows - total
		total = rows
	}
	t.Logf("%d transitions over %d rounds", all, rounds)
}

// whole opens a store after a crash, checks it, and counts its transitions.
func whole(t *testing.T, path string) (rows int) {
	t.Helper()
	s := openSQLite(t, path, trajectory.Buffering{})
	defer s.Close()
	var verdict string
	if err := s.Writer().QueryRow("PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity check: %s, %v", verdict, err)
	}
	var holes int
	err := s.Writer().QueryRow("SELECT COUNT(*) FROM (SELECT 1 FROM step" +
		" GROUP BY workload, episode HAVING COUNT(*) != MAX(step) + 1)").Scan(&holes)
	if err != nil || holes != 0 {
		t.Errorf("%d episodes have holes, %v", holes, err)
	}
	if err := s.Writer().QueryRow("SELECT COUNT(*) FROM step").Scan(&rows); err != nil {
		t.Error(err)
	}
	n := 0
	for _, err := range s.Transitions(t.Context(), "w", rows) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != rows {
		t.Errorf("%d of %d transitions can be read", n, rows)
	}
	return rows
}

// golden is the transition in testdata. It has the signals that there were when
// the first body was written, and is never changed.
func golden() mdp.Transition {
	const signals mdp.Set = 1<<16 - 1
	return mdp.Transition{
		State: mdp.State{
			At: time.Unix(1_700_000_003, 3).UTC(), Observed: signals, Replicas: 5,
			Limit: mdp.Size{CPU: 7, Memory: 8}, Usage: mdp.Size{CPU: 10, Memory: 11}, CPUPeak: 12, CPUDeviation: 13,
			Throttled: 14.1, CPUPressure: 15.1, MemoryPressure: 16.1, IOPressure: 17.1, IORate: 18.1,
			Latency: 19, Throughput: 20.1, LoadChange: 21.1, OOMKills: 22,
		},
		Action: mdp.Action{Sets: mdp.LimitKnobs, Replicas: 25, Limit: mdp.Size{CPU: 27, Memory: 28}, Clipped: 29},
		Effect: mdp.Deferred,
		Reward: 30.1, RewardKnown: true,
		Next: mdp.State{
			At: time.Unix(1_700_000_032, 32).UTC(), Observed: signals, Replicas: 34,
			Limit: mdp.Size{CPU: 36, Memory: 37}, Usage: mdp.Size{CPU: 39, Memory: 40}, CPUPeak: 41, CPUDeviation: 42,
			Throttled: 43.1, CPUPressure: 44.1, MemoryPressure: 45.1, IOPressure: 46.1, IORate: 47.1,
			Latency: 48, Throughput: 49.1, LoadChange: 50.1, OOMKills: 51,
		},
		Terminated: true, Truncated: true,
	}
}

// What was stored by an earlier version must be readable: these bodies were
// written by versions 1 and 2. Version 1 had no effect: its actions were
// applied.
func TestEarlierEncodingsAreStillRead(t *testing.T) {
	full := golden()
	first := full
	first.Effect = mdp.Applied
	var body []byte
	for version, want := range []mdp.Transition{first, full} {
		var err error
		if body, err = os.ReadFile(fmt.Sprintf("testdata/body-v%d", version+1)); err != nil {
			t.Fatal(err)
		}
		if got, err := trajectory.DecodeBody(body); err != nil || !trajectorytest.Same(got, want) {
			t.Errorf("version %d: %+v, %v", version+1, got, err)
		}
	}
	if now := trajectory.AppendBody(nil, &full); !bytes.Equal(now, body) {
		t.Errorf("the encoding changed, so it needs a new version:\n now %x\nthen %x", now, body)
	}
}

func TestTruncatedOrInvalidBodyIsAnError(t *testing.T) {
	full := trajectorytest.Full()
	body := trajectory.AppendBody(nil, &full)
	for n := range body {
		if _, err := trajectory.DecodeBody(body[:n]); err == nil {
			t.Errorf("%d bytes of %d are read", n, len(body))
		}
	}
	for _, bad := range []struct {
		what string
		body []byte
	}{
		{"1 bytes after the end", append(slices.Clone(body), 0)},
		{"version 99", append([]byte{99}, body[1:]...)},
		{"flags 0xf", append([]byte{2, 15}, body[2:]...)},
		{"effect", append([]byte{2, 7, 200}, body[3:]...)},
		{"NaN", append([]byte{2, 0, 1, 1, 0, 0, 0, 0, 0, 0xf8, 0x7f}, body[11:]...)},
	} {
		if _, err := trajectory.DecodeBody(bad.body); err == nil || !strings.Contains(err.Error(), bad.what) {
			t.Errorf("%v, want %q", err, bad.what)
		}
	}
}

func FuzzBody(f *testing.F) {
	full, empty := trajectorytest.Full(), mdp.Transition{}
	f.Add(trajectory.AppendBody(nil, &full))
	f.Add(trajectory.AppendBody(nil, &empty))
	f.Add([]byte{1, 0})
	f.Add([]byte{2, 4, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		one, err := trajectory.DecodeBody(body)
		if err != nil {
			return
		}
		if err := trajectory.Check("w", 0, 0, one); err != nil {
			t.Errorf("it is read, but Append would not take it: %v", err)
		}
		again, err := trajectory.DecodeBody(trajectory.AppendBody(nil, &one))
		if err != nil || !trajectorytest.Same(one, again) {
			t.Errorf("%+v, then %+v, %v", one, again, err)
		}
	})
}

// Compare with benchstat before and after; the aim is 50,000 transitions/s on
// two shared cores.
func BenchmarkSQLite(b *testing.B) {
	s := openSQLite(b, filepath.Join(b.TempDir(), "store.db"), trajectory.Buffering{})
	appendMany(b, s)
}

// appendMany tells how many transitions a second are stored, the last batch
// included, by a loop that waits when the buffer is full.
func appendMany(b *testing.B, s trajectory.Store) {
	one := trajectorytest.Full()
	b.ReportAllocs()
	began, n := time.Now(), 0
	for b.Loop() {
		if err := s.Append(b.Context(), "shop/deployment/web", n/1000, n%1000, one); errors.Is(err, trajectory.ErrBufferFull) {
			if err := s.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		} else if err != nil {
			b.Fatal(err)
		} else {
			n++
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	if f := s.Figures(); f.Written != uint64(n) {
		b.Fatalf("%+v of %d", f, n)
	}
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "transitions/s")
}

func BenchmarkSQLiteTransitions(b *testing.B) {
	s := openSQLite(b, filepath.Join(b.TempDir(), "store.db"), trajectory.Buffering{Limit: 100000})
	defer s.Close()
	const all = 50000
	for n := range all {
		if err := s.Append(b.Context(), "w", n/1000, n%1000, trajectorytest.Full()); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		for _, err := range s.Transitions(b.Context(), "w", all) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != all {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.N)*all/b.Elapsed().Seconds(), "transitions/s")
}
