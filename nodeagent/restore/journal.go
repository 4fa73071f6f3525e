// Package restore knows which containers were touched, and how to give them back
// what the API says.
//
// [Ownership] is a state machine: what of a container's limits is ours, and what
// follows from each event. It is pure.
//
// [Journal] keeps an entry of each touched container on disk, with the API's
// values. An agent that was killed leaves nothing that the next one does not find.
// The entry is written, and synced, before the container is touched. The file is
// appended to, and rewritten when it is long. Each line has a checksum: a torn or
// corrupt line is found and reported, and the good lines before and after it are
// kept. A lock keeps a second agent off the node.
//
// When there is no space left for the journal nothing more is touched. What it has
// already covers what is in force (ADR 23).
package restore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"golang.org/x/sys/unix"
)

// Entry is one touched container.
type Entry struct {
	ID        string           `json:"id"`   // the container's, for the runtime
	Path      string           `json:"path"` // of its group, below the cgroup root
	Container api.ContainerRef `json:"container"`
	API       cgroup.Limits    `json:"api"`    // to be restored
	Ours      cgroup.Limits    `json:"ours"`   // what we set, or were about to set; 0 is a limit that is not ours
	Before    cgroup.Limits    `json:"before"` // what was in force before; the agent may have died between the two
	Wrote     Span             `json:"wrote"`  // what calls of ours may have set, or may still set
	At        time.Time        `json:"at"`     // when the entry was written
}

// line is one line of the file:
//
//	1c291ca3 {"put":{"id":"abc",...}}\n
//	9e107d9d {"del":"abc"}\n
//
// The first word is the CRC-32C of the rest in hexadecimal.
type line struct {
	Put *Entry `json:"put,omitempty"`
	Del string `json:"del,omitempty"`
}

// castagnoli is the polynomial of the checksums.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Journal is an open journal. It is used by one goroutine at a time.
type Journal struct {
	dir     string
	lock    *os.File
	file    *os.File
	entries map[string]Entry
	size    int  // of the file, in bytes
	whole   int  // its size when it was rewritten last
	torn    bool // the file may end in half a line, or is not the one in the directory: it is rewritten before the next line
	damage  string
}

// slack is by how much more than twice its size after the last rewrite a file may grow, in bytes. A file of old lines would
// be in the way of the one that is to replace it, where there is little space.
const slack = 16 << 10

// Open locks the directory and replays the journal in it. A missing directory is
// made. A second agent on the node is an error that names the lock and the process
// that holds it.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf(
			"state directory: %w; set --state-dir to a folder of the host: it must live longer than the agent's pod",
			err,
		)
	}
	j := &Journal{dir: dir, entries: make(map[string]Entry)}
	if err := j.acquire(); err != nil {
		return nil, err
	}
	if err := j.replay(); err != nil {
		j.lock.Close()
		return nil, err
	}
	// The file is rewritten at once: damage is dropped, and appending starts after
	// a whole line. Without space that waits: what is touched has to be restored now.
	err := j.compact()
	if full(err) {
		j.damage = strings.Trim(j.damage+"; "+err.Error(), "; ")
		return j, nil
	}
	if err != nil {
		j.lock.Close()
		return nil, err
	}
	return j, nil
}

// full reports whether an error is that there is no space left.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// acquire takes the directory's lock.
func (j *Journal) acquire() error {
	path := filepath.Join(j.dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32))
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf(
				"lock %s is held by process %s: another agent runs on this node, and two agents would undo each other's work",
				path,
				strings.TrimSpace(string(holder)),
			)
		}
		return fmt.Errorf("locking %s: %w", path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil && !full(err) { // the number is for people only
			f.Close()
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	j.lock = f
	return nil
}

func (j *Journal) path() string { return filepath.Join(j.dir, "journal") }

// replay reads the file into the entries.
func (j *Journal) replay() error {
	f, err := os.Open(j.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	bad, first := 0, 0
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		raw, err := in.ReadBytes('\n')
		if len(raw) > 0 {
			if l, ok := parse(raw); ok {
				j.apply(l)
			} else if bad++; first == 0 {
				first = n
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("reading journal %s: %w", j.path(), err)
		}
	}
	if bad > 0 {
		j.damage = fmt.Sprintf(
			"journal %s: %d damaged lines dropped, the first is line %d; %d containers known from the good ones",
			j.path(),
			bad,
			first,
			len(j.entries),
		)
	}
	return nil
}

// parse reads a line; ok is false for one that is damaged.
func parse(raw []byte) (line, bool) {
	raw, whole := bytes.CutSuffix(raw, []byte("\n"))
	sum, body, ok := bytes.Cut(raw, []byte(" "))
	if !whole || !ok || len(sum) != 8 {
		return line{}, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.Checksum(body, castagnoli()) {
		return line{}, false
	}
	var l line
	if json.Unmarshal(body, &l) != nil || l.Put == nil && l.Del == "" || l.Put != nil && l.Put.ID == "" {
		return line{}, false
	}
	return l, true
}

func format(l line) ([]byte, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, castagnoli()), body), nil
}

func (j *Journal) apply(l line) {
	if l.Put != nil {
		j.entries[l.Put.ID] = *l.Put
	} else {
		delete(j.entries, l.Del)
	}
}

// Import takes over the journal of an earlier release in another directory, which is
// removed. An entry that is here already is newer, and stays. It returns how many
// entries it took. A missing directory is none. A journal that another agent holds is an
// error, as in [Open].
func (j *Journal) Import(dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "journal")); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	old, err := Open(dir)
	if err != nil {
		return 0, fmt.Errorf("the journal of an earlier release: %w", err)
	}
	defer old.Close()
	if old.damage != "" {
		j.damage = strings.Trim(j.damage+"; "+old.damage, "; ")
	}
	n := 0
	for id, e := range old.entries {
		if _, known := j.entries[id]; known {
			continue
		}
		if err := j.Put(e); err != nil {
			return n, err
		}
		n++
	}
	// What is left in the directory is not ours.
	for _, name := range []string{"journal", "lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return n, fmt.Errorf("the journal of an earlier release was taken over, but not removed: %w", err)
		}
	}
	return n, nil
}

// Damage says what was wrong with the journal when it was opened; empty when
// nothing was.
func (j *Journal) Damage() string { return j.damage }

// Entries are the touched containers by id.
func (j *Journal) Entries() map[string]Entry {
	all := make(map[string]Entry, len(j.entries))
	for id, e := range j.entries {
		all[id] = e
	}
	return all
}

// Get is the entry of one container.
func (j *Journal) Get(id string) (Entry, bool) {
	e, ok := j.entries[id]
	return e, ok
}

// Put writes an entry, which replaces an earlier one of the same id. When Put
// returns nil the entry is on disk. One that differs only in its time is there already.
func (j *Journal) Put(e Entry) error {
	has := j.entries[e.ID]
	if has.At = e.At; has == e {
		return nil
	}
	return j.write(line{Put: &e})
}

// Delete forgets a container that was restored or is gone.
func (j *Journal) Delete(id string) error {
	if _, ok := j.entries[id]; !ok {
		return nil
	}
	return j.write(line{Del: id})
}

// write appends a line, and syncs it. It returns nil when the line is on disk.
func (j *Journal) write(l line) error {
	if err := j.mend(); err != nil {
		return fmt.Errorf("writing journal %s: %w", j.path(), err)
	}
	b, err := format(l)
	if err == nil {
		_, err = j.file.Write(b)
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// Half a line may be on disk, and the next one would be joined to it.
		j.torn = true
		return fmt.Errorf("writing journal %s: %w", j.path(), errors.Join(err, j.mend()))
	}
	j.apply(l)
	if j.size += len(b); j.size > 2*j.whole+slack {
		// The line is on disk all the same. The next one tries again.
		_ = j.compact()
	}
	return nil
}

// mend rewrites a file that nothing can be appended to.
func (j *Journal) mend() error {
	if !j.torn {
		return nil
	}
	return j.compact()
}

// compact writes the entries to a new file, which replaces the old one. While that is not
// possible the old one stays as it is.
func (j *Journal) compact() error {
	f, size, err := j.rewrite()
	if f == nil {
		j.torn = j.torn || j.file == nil
		return fmt.Errorf("rewriting journal %s: %w", j.path(), err)
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.size, j.whole = f, size, size
	j.torn = err != nil // after a crash the directory may have the old file
	if err != nil {
		return fmt.Errorf("rewriting journal %s: %w", j.path(), err)
	}
	return nil
}

// rewrite writes the entries to a new file in the place of the old one. With a file and an
// error it is there, and it is not known whether that is on disk.
func (j *Journal) rewrite() (f *os.File, size int, err error) {
	replacement := j.path() + ".new"
	f, err = os.OpenFile(replacement, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	if size, err = j.dump(f); err == nil {
		err = os.Rename(replacement, j.path())
	}
	if err != nil {
		f.Close()
		return nil, 0, errors.Join(err, os.Remove(replacement)) // it takes space
	}
	return f, size, syncDir(j.dir)
}

// dump writes the entries to a file, and syncs it. It returns how many bytes they are.
func (j *Journal) dump(f *os.File) (int, error) {
	var all []byte
	for _, e := range j.entries {
		b, err := format(line{Put: &e})
		if err != nil {
			return 0, err
		}
		all = append(all, b...)
	}
	if _, err := f.Write(all); err != nil {
		return 0, err
	}
	return len(all), f.Sync()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Close closes the file and releases the lock.
func (j *Journal) Close() error {
	if j.file == nil {
		return j.lock.Close()
	}
	return errors.Join(j.file.Close(), j.lock.Close())
}
