package workload

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoRates is the error for a trace without rates. Other errors wrap it.
var ErrNoRates = errors.New("there are no rates in it")

// ReadRates reads a trace with one number per line, the requests in one second.
// It skips blank lines and lines that start with #. Errors contain the name,
// the line and the value.
func ReadRates(name string, r io.Reader) (Trace, error) {
	t := Trace{Name: name, Step: time.Second}
	lines := bufio.NewScanner(r)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rate, err := parseRate(line, 1)
		if err != nil {
			return Trace{}, fmt.Errorf("trace %s, line %d: rate %q: %w", name, number, line, err)
		}
		t.Rates = append(t.Rates, rate)
	}
	if err := lines.Err(); err != nil {
		return Trace{}, fmt.Errorf("trace %s, after line %d: %w", name, number, err)
	}
	if len(t.Rates) == 0 {
		return Trace{}, fmt.Errorf("trace %s: %w", name, ErrNoRates)
	}
	return t, nil
}

// parseRate converts a count of requests in a number of seconds to a rate.
func parseRate(text string, seconds float64) (float64, error) {
	count, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(count) || math.IsInf(count, 0):
		return 0, errors.New("it must be a number")
	case count < 0:
		return 0, errors.New("it must not be negative")
	case count/seconds > MaxRate:
		return 0, fmt.Errorf("it must be at most %g requests per second", MaxRate)
	}
	return count / seconds, nil
}

// Function is a function of the Azure Functions trace, and its number of
// invocations.
type Function struct {
	Owner, App, Name, Trigger string // the first three are hashes
	Daily                     float64
}

// azureColumns come before the minutes. The format, one function per row:
//
//	HashOwner,HashApp,HashFunction,Trigger,1,2,...,1440
//	c14f...,7b2c...,8d1d...,http,0,3,...,1
//
// https://github.com/Azure/AzurePublicDataset/blob/master/AzureFunctionsDataset2019.md
var azureColumns = []string{"HashOwner", "HashApp", "HashFunction", "Trigger"}

// day is the number of minutes in a day.
const day = 24 * 60

// ReadAzure reads a file *_invocations.csv of Microsoft's Azure Functions trace
// of 2019. It returns one trace with a step of one minute for each function for
// which keep is true, in the order of the file; nil keeps all. [Function].Daily
// is extrapolated when the file has fewer minutes than a day. Errors contain
// the name, the line, the column and the value.
func ReadAzure(name string, r io.Reader, keep func(Function) bool) ([]Trace, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("trace %s: %w", name, ErrNoRates)
	}
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	head = slices.Clone(head)
	for i, want := range azureColumns {
		if i >= len(head) || strings.TrimPrefix(head[i], "\ufeff") != want {
			return nil, fmt.Errorf("trace %s, line 1: column %d is missing: it must be %s", name, i+1, want)
		}
	}
	minutes := len(head) - len(azureColumns)
	if minutes == 0 {
		return nil, fmt.Errorf("trace %s, line 1: there are no columns of minutes after %s", name, azureColumns[3])
	}
	for i, m := range head[len(azureColumns):] {
		if n, err := strconv.Atoi(m); err != nil || n < 0 {
			return nil, fmt.Errorf("trace %s, line 1: column %d is %q: it must be the number of a minute", name,
				i+len(azureColumns)+1, m)
		}
	}
	var traces []Trace
	for line := 2; ; line++ {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, fmt.Errorf("trace %s, line %d: %d columns: the first line has %d", name, line, len(row), len(head))
		}
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", name, err)
		}
		f := Function{
			Owner:   strings.Clone(row[0]),
			App:     strings.Clone(row[1]),
			Name:    strings.Clone(row[2]),
			Trigger: strings.Clone(row[3]),
		}
		t := Trace{Name: f.Name, Step: time.Minute, Rates: make([]float64, minutes)}
		for i, count := range row[len(azureColumns):] {
			if t.Rates[i], err = parseRate(count, 60); err != nil {
				return nil, fmt.Errorf("trace %s, line %d, column %s: invocations %q: %w", name, line,
					head[i+len(azureColumns)], count, err)
			}
		}
		f.Daily = daily(t)
		if keep == nil || keep(f) {
			traces = append(traces, t)
		}
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("trace %s: no function is left: %w", name, ErrNoRates)
	}
	return traces, nil
}

func daily(t Trace) float64 { return t.Mean() * 60 * day }
