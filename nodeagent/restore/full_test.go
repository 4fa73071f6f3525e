package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/nodeagent/restore"
	"awarescale.dev/aware/nodeagent/restore/disktest"
	"golang.org/x/sys/unix"
)

// ledger is what a test knows of a journal.
type ledger struct {
	t     *testing.T
	sure  map[string]restore.Entry   // on disk, because Put has said so
	maybe map[string][]restore.Entry // a Put of these has failed since
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t, map[string]restore.Entry{}, map[string][]restore.Entry{}}
}

// put puts an entry, and reports whether that is sure.
func (l *ledger) put(j *restore.Journal, e restore.Entry) bool {
	l.t.Helper()
	err := j.Put(e)
	switch {
	case err == nil:
		l.sure[e.ID], l.maybe[e.ID] = e, nil
	case errors.Is(err, unix.ENOSPC):
		l.maybe[e.ID] = append(l.maybe[e.ID], e)
	default:
		l.t.Fatalf("a full disk is said to be: %v", err)
	}
	return err == nil
}

// check fails when an entry is missing, or is another one.
func (l *ledger) check(j *restore.Journal, when string) {
	l.t.Helper()
	got := j.Entries()
	for id, want := range l.sure {
		is, there := got[id]
		known := there && is == want
		for _, other := range l.maybe[id] {
			known = known || is == other
		}
		if !known {
			l.t.Fatalf("%s: entry %s is %+v (there: %v), want %+v; damage %q", when, id, is, there, want, j.Damage())
		}
	}
}

// There is no space left at any byte of a line: what Put has acknowledged is on disk, at once and when
// there is space again, and the next line is not joined to what was left of the one that failed.
func TestNoEntryIsLostOnAFullDisk(t *testing.T) {
	failed := 0
	for pad := range 700 { // longer than a line
		d := disktest.New(t, 8)
		l := newLedger(t)
		j := open(t, d.Dir)
		l.put(j, padded("pad", pad))
		d.Fill(0)
		full := false
		for i := 0; !full; i++ {
			full = !l.put(j, entry(string(rune('a'+i)), int64(i)))
		}
		failed++
		// Again, as the agent does: it is not taken for done.
		if l.put(j, entry("a", 77)) {
			t.Fatalf("pad %d: it is written on a full disk", pad)
		}
		j.Close()
		j = open(t, d.Dir) // the agent is killed, and started on a full disk
		l.check(j, "on the full disk")
		if !strings.Contains(j.Damage(), "no space left") {
			t.Fatalf("pad %d: nothing is said of the full disk: %q", pad, j.Damage())
		}
		d.Free()
		for _, id := range []string{"a", "y", "z"} {
			if !l.put(j, entry(id, 99)) {
				t.Fatalf("pad %d: with space again it is not written", pad)
			}
		}
		j.Close()
		j = open(t, d.Dir)
		l.check(j, "with space again")
		j.Close()
	}
	t.Logf("%d disks were full", failed)
}

// The same agent goes on when there is space for a line but not for all entries: the line follows
// half of another one, and the journal cannot be rewritten.
func TestALineIsNotJoinedToHalfOfAnother(t *testing.T) {
	joined := 0
	for pad := range 700 {
		d := disktest.New(t, 8)
		l := newLedger(t)
		j := open(t, d.Dir)
		for i := range 6 { // more than a page
			l.put(j, padded(string(rune('A'+i)), 600))
		}
		l.put(j, padded("pad", pad))
		d.Fill(0)
		for i := 0; l.put(j, entry(string(rune('a'+i)), int64(i))); i++ {
		}
		d.Free()
		d.Fill(1)
		if !l.put(j, entry("z", 1)) {
			l.put(j, entry("z", 1)) // not taken for done
			joined++
		}
		j.Close()
		j = open(t, d.Dir)
		l.check(j, "after a line in little space")
		j.Close()
	}
	if joined == 0 {
		t.Error("there was always space to rewrite the journal: nothing was tested")
	}
}

// A long journal that cannot be rewritten has its last line all the same.
func TestAJournalThatCannotBeRewrittenIsAppendedTo(t *testing.T) {
	d := disktest.New(t, 4000)
	l := newLedger(t)
	j := open(t, d.Dir)
	for i := range 40 {
		l.put(j, padded(string(rune('A'+i)), 600))
	}
	for i := range 990 {
		l.put(j, entry("a", int64(i)))
	}
	d.Fill(4) // the entries need 8 pages
	for i := range 20 {
		if !l.put(j, entry("a", int64(2000+i))) {
			t.Fatalf("line %d is refused, and there is space for it", i)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(d.Dir, "*.new")); len(left) > 0 {
		t.Errorf("half a journal takes the space: %v", left)
	}
	j.Close()
	j = open(t, d.Dir)
	defer j.Close()
	l.check(j, "after appending")
	before, err := os.Stat(filepath.Join(d.Dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	d.Free()
	l.put(j, entry("a", 1))
	if after, err := os.Stat(filepath.Join(d.Dir, "journal")); err != nil || after.Size() >= before.Size() {
		t.Errorf("with space again the journal is not rewritten: %v, before %d", after, before.Size())
	}
}

// padded is an entry with a long name.
func padded(id string, n int) restore.Entry {
	e := entry(id, 1)
	e.Container.Pod = strings.Repeat("p", n)
	return e
}

// The journal itself does not fill a disk that has room for what it has to know: a file of old lines is replaced while
// there is space for both.
func TestOldLinesDoNotFillTheDisk(t *testing.T) {
	d := disktest.New(t, 16)
	l := newLedger(t)
	j := open(t, d.Dir)
	defer j.Close()
	for i := range 2000 {
		if e := entry(string(rune('a'+i%20)), int64(i)); !l.put(j, e) {
			t.Fatalf("line %d of 20 containers: no space left", i)
		}
	}
	l.check(j, "after 2000 lines")
}
