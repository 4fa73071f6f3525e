package calibrate

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// BadData says where a file is not what it should be.
type BadData struct {
	File   string
	Line   int    // from 1, as editors count; 0 when the file as a whole is meant
	Column string // "" when the row as a whole is meant
	Value  string // what stands there
	Reason string
}

func (e *BadData) Error() string {
	at := e.File
	if e.Line > 0 {
		at += fmt.Sprintf(":%d", e.Line)
	}
	if e.Column != "" {
		at += fmt.Sprintf(": column %q", e.Column)
	}
	if e.Value != "" {
		at += fmt.Sprintf(": %q", e.Value)
	}
	return at + ": " + e.Reason
}

// table is a CSV file whose first row names the columns; their order does not
// matter.
type table struct {
	file   string
	header []string
	at     map[string]int
	rows   [][]string
	lines  []int
}

// readTable reads all of a CSV file and checks that the columns are there,
// once, and that no row is cut short.
func readTable(file string, in io.Reader, columns ...string) (*table, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.FieldsPerRecord = -1
	t := &table{file: file, at: map[string]int{}}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, t.syntax(err)
		}
		line, _ := r.FieldPos(0)
		if err := t.add(row, line, columns); err != nil {
			return nil, err
		}
	}
	return t, t.notEmpty()
}

func (t *table) syntax(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return &BadData{File: t.file, Line: parse.Line, Reason: parse.Err.Error()}
	}
	return fmt.Errorf("reading %s: %w", t.file, err)
}

func (t *table) notEmpty() error {
	switch {
	case t.header == nil:
		return &BadData{File: t.file, Reason: "the file is empty; its first row should name the columns"}
	case len(t.rows) == 0:
		return &BadData{File: t.file, Line: 1, Reason: "there is a header and no row below it"}
	}
	return nil
}

func (t *table) add(row []string, line int, columns []string) error {
	if t.header == nil {
		return t.name(row, line, columns)
	}
	if len(row) != len(t.header) {
		last := t.header[min(len(row), len(t.header))-1]
		return &BadData{File: t.file, Line: line, Column: last, Value: row[len(row)-1],
			Reason: fmt.Sprintf("the row ends after %d fields, the header names %d", len(row), len(t.header))}
	}
	t.rows, t.lines = append(t.rows, row), append(t.lines, line)
	return nil
}

func (t *table) name(header []string, line int, columns []string) error {
	t.header = make([]string, len(header))
	for i, h := range header {
		h = strings.TrimSpace(h)
		if _, twice := t.at[h]; twice {
			return &BadData{File: t.file, Line: line, Column: h, Reason: "the column is there twice"}
		}
		t.header[i], t.at[h] = h, i
	}
	for _, c := range columns {
		if _, ok := t.at[c]; !ok {
			return &BadData{File: t.file, Line: line, Column: c,
				Reason: "the column is missing; there are " + strings.Join(t.header, ", ")}
		}
	}
	return nil
}

// prefixed lists the columns whose names begin so, in the order of the
// alphabet.
func (t *table) prefixed(prefix string) []string {
	var found []string
	for _, h := range t.header {
		if strings.HasPrefix(h, prefix) {
			found = append(found, h)
		}
	}
	slices.Sort(found)
	return found
}

// row gives the fields of one row by the name of their column, and keeps the
// first error.
type row struct {
	*table
	i   int
	err error
}

func (r *row) fail(column, value, reason string) {
	if r.err == nil {
		r.err = &BadData{r.file, r.lines[r.i], column, value, reason}
	}
}

// raw is the field as it stands, "" when the file has no such column.
func (r *row) raw(column string) string {
	i, ok := r.at[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(r.rows[r.i][i])
}

// text is a field that may not be empty.
func (r *row) text(column string) string {
	s := r.raw(column)
	if s == "" {
		r.fail(column, "", "is empty")
	}
	return s
}

// What no load, time, size or count of these files can be; what is smaller than
// least counts as 0.
const (
	least = 1e-9
	most  = 1e15
)

// number is a finite number that is not negative.
func (r *row) number(column string) float64 {
	s := r.raw(column)
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case s == "":
		r.fail(column, "", "is empty, where a number should be")
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		r.fail(column, s, "is not a number")
	case v < 0:
		r.fail(column, s, "is negative")
	case v > most:
		r.fail(column, s, "is out of range")
	case v >= least:
		return v
	}
	return 0
}

// positive is a number above 0.
func (r *row) positive(column string) float64 {
	v := r.number(column)
	if v == 0 {
		r.fail(column, r.raw(column), "is not above 0")
	}
	return v
}

// eachRow parses all rows of a table.
func eachRow[T any](t *table, parse func(*row) T) ([]T, error) {
	out := make([]T, 0, len(t.rows))
	for i := range t.rows {
		r := &row{table: t, i: i}
		v := parse(r)
		if r.err != nil {
			return nil, r.err
		}
		out = append(out, v)
	}
	return out, nil
}
