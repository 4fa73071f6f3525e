package restore_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/restore"
)

func entry(id string, quota int64) restore.Entry {
	return restore.Entry{ID: id, Path: "kubepods/" + id, Container: api.ContainerRef{
		Namespace: "shop",
		Pod:       "web-0",
		Container: id,
	},
		API: cgroup.Limits{
			Quota:  100000,
			Period: 100000,
			Memory: 64 * mdp.MiB,
		}, Ours: cgroup.Limits{Quota: quota, Period: 100000},
		At: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
}

func open(t *testing.T, dir string) *restore.Journal {
	t.Helper()
	j, err := restore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func put(t *testing.T, j *restore.Journal, entries ...restore.Entry) {
	t.Helper()
	for _, e := range entries {
		if err := j.Put(e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEntriesSurviveAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j := open(t, dir)
	put(t, j, entry("a", 1), entry("b", 2), entry("a", 3))
	if err := j.Delete("b"); err != nil {
		t.Fatal(err)
	}
	// The process is killed here: nothing is closed. The kernel releases its
	// lock, as Close does here.
	j.Close()
	j = open(t, dir)
	defer j.Close()
	if got := j.Entries(); len(got) != 1 || got["a"] != entry("a", 3) || j.Damage() != "" {
		t.Errorf("entries %+v, damage %q", got, j.Damage())
	}
}

func TestASecondAgentIsRefusedWithTheHoldersProcess(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	_, err := restore.Open(dir)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "lock")) ||
		!strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("err = %v, want the lock's path and the process %d", err, os.Getpid())
	}
	j.Close()
	open(t, dir).Close()
}

func TestDamageIsReportedAndDropped(t *testing.T) {
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		want   []string
	}{
		"a torn tail":     {func(b []byte) []byte { return b[:len(b)-5] }, []string{"a", "b"}},
		"no last newline": {func(b []byte) []byte { return b[:len(b)-1] }, []string{"a", "b"}},
		"a flipped bit":   {func(b []byte) []byte { b[bytes.IndexByte(b, '\n')+30] ^= 1; return b }, []string{"a", "c"}},
		"garbage in between": {
			func(b []byte) []byte { return append([]byte("\x00\x00garbage\n"), b...) }, []string{"a", "b", "c"},
		},
		"nothing but garbage": {func([]byte) []byte { return []byte("not a journal") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir)
			put(t, j, entry("a", 1), entry("b", 2), entry("c", 3))
			j.Close()
			path := filepath.Join(dir, "journal")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			j = open(t, dir)
			got := j.Entries()
			if !strings.Contains(j.Damage(), path) || len(got) != len(c.want) {
				t.Errorf("damage %q, %d entries; want it reported, and entries %v", j.Damage(), len(got), c.want)
			}
			for _, id := range c.want {
				if _, ok := got[id]; !ok {
					t.Errorf("entry %s is lost", id)
				}
			}
			put(t, j, entry("d", 4))
			j.Close()
			j = open(t, dir)
			defer j.Close()
			if _, ok := j.Get("d"); !ok || j.Damage() != "" {
				t.Errorf("after the rewrite: damage %q, %v", j.Damage(), j.Entries())
			}
		})
	}
}

func TestTheFileStaysSmall(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	defer j.Close()
	for i := range 2500 {
		put(t, j, entry("a", int64(i)))
	}
	b, err := os.ReadFile(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n > 1100 {
		t.Errorf("%d lines for one container", n)
	}
	if e, _ := j.Get("a"); e.Ours.Quota != 2499 {
		t.Errorf("entry %+v", e)
	}
}

func TestNoFileContentKeepsTheAgentFromStarting(t *testing.T) {
	for _, b := range []string{"", "\n", "00000000 {}\n", "\x00\xff", strings.Repeat("x", 1<<20)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "journal"), []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := restore.Open(dir)
		if err != nil {
			t.Fatalf("%.20q: %v", b, err)
		}
		j.Close()
	}
}

// After an upgrade the journal of the release before is taken over: what it touched is
// still to be restored.
func TestTheJournalOfAnEarlierReleaseIsTakenOver(t *testing.T) {
	was, is := filepath.Join(t.TempDir(), "was"), filepath.Join(t.TempDir(), "is")
	j := open(t, is)
	defer j.Close()
	if n, err := j.Import(was); n != 0 || err != nil {
		t.Fatalf("without one: %d, %v", n, err)
	}
	old := open(t, was)
	put(t, old, entry("a", 1), entry("b", 2))
	put(t, j, entry("b", 3))
	if _, err := j.Import(was); err == nil || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("the other agent still runs: %v, want its process", err)
	}
	old.Close()
	f, err := os.OpenFile(filepath.Join(was, "journal"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "half a li")
	f.Close()
	if n, err := j.Import(was); n != 1 || err != nil {
		t.Errorf("took %d, %v, want the one that is not here", n, err)
	}
	if a, _ := j.Get("a"); a != entry("a", 1) {
		t.Errorf("entry a is %+v", a)
	}
	if b, _ := j.Get("b"); b != entry("b", 3) {
		t.Errorf("entry b is %+v, want the newer one", b)
	}
	if left, err := filepath.Glob(filepath.Join(was, "*")); err != nil || len(left) > 0 {
		t.Errorf("the old folder still has %v, %v", left, err)
	}
	if !strings.Contains(j.Damage(), filepath.Join(was, "journal")) {
		t.Errorf("damage %q, want that of the old journal", j.Damage())
	}
	if n, err := j.Import(was); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}
