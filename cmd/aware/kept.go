package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"awarescale.dev/aware/learner/bench"
)

// kept is a file of rows and floors that are done: a line of JSON each, after a
// line that says what they were made with. Without a file it keeps nothing. The
// maps have what earlier runs kept, and do not change.
type kept struct {
	file   *os.File
	rows   map[string]bench.Row
	floors map[floorKey]bench.Floor
	err    error // the first one of writing
}

// floorKey names a floor. One that was searched longer is another.
type floorKey struct {
	app, trace string
	runs       int // limit of the search
}

// keptFloor is the line of a floor.
type keptFloor struct {
	Floor *bench.Floor `json:"floor"`
	Runs  int          `json:"floor_runs"` // limit of the search
}

// keptHead is the first line of the file.
type keptHead struct {
	Made string `json:"made"` // with which seeds and settings
}

// openKept opens or creates a file of rows. Rows that were made with something
// else are an error: they do not belong into the same table.
func openKept(path, made string) (*kept, error) {
	k := &kept{rows: map[string]bench.Row{}, floors: map[floorKey]bench.Floor{}}
	if path == "" {
		return k, nil
	}
	whole, err := k.read(path, made)
	if err != nil {
		return nil, fmt.Errorf("--resume %s: %w", path, err)
	}
	if k.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	// A line that was cut short goes; what follows it is written anew.
	err = k.file.Truncate(whole)
	if err == nil {
		_, err = k.file.Seek(whole, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume %s: %w", path, err), k.file.Close())
	}
	if whole == 0 {
		k.write(keptHead{made})
	}
	return k, k.err
}

// read reads the rows of the file, and returns the length of its whole lines.
func (k *kept) read(path, made string) (whole int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil { // its end, or a line that was cut short
			return whole, nil
		}
		whole += int64(len(line))
		if n == 0 {
			var head keptHead
			if err := json.Unmarshal(line, &head); err != nil || head.Made != made {
				return 0, fmt.Errorf("made with %q, and this run with %q: name another file", head.Made, made)
			}
			continue
		}
		var f keptFloor
		if err := json.Unmarshal(line, &f); err != nil {
			return 0, fmt.Errorf("line %d: %w", n+1, err)
		}
		if f.Floor != nil {
			k.floors[floorKey{f.Floor.App, f.Floor.Trace, f.Runs}] = *f.Floor
			continue
		}
		var r bench.Row
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("line %d: %w", n+1, err)
		}
		k.rows[key(r.App, r.Trace, r.Policy, r.Fidelity)] = r
	}
}

func key(app, trace, policy, fidelity string) string {
	return app + "\x00" + trace + "\x00" + policy + "\x00" + fidelity
}

// row is a row that is done.
func (k *kept) row(app, trace, policy, fidelity string) (bench.Row, bool) {
	r, ok := k.rows[key(app, trace, policy, fidelity)]
	return r, ok
}

// keep writes a row, once.
func (k *kept) keep(r bench.Row) {
	if _, ok := k.row(r.App, r.Trace, r.Policy, r.Fidelity); !ok {
		k.write(r)
	}
}

// keepFloor writes a floor, once.
func (k *kept) keepFloor(f bench.Floor, runs int) {
	if _, ok := k.floors[floorKey{f.App, f.Trace, runs}]; !ok {
		k.write(keptFloor{&f, runs})
	}
}

func (k *kept) write(v any) {
	if k.file == nil || k.err != nil {
		return
	}
	line, err := json.Marshal(v)
	if err == nil {
		_, err = k.file.Write(append(line, '\n'))
	}
	k.err = err
}

// Close closes the file.
func (k *kept) Close() error {
	if k.file == nil {
		return nil
	}
	return k.file.Close()
}
