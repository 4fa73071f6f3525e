// Derive makes a short trace of mean 1 from a long one: it takes the means of
// windows of equal length, and repeats the result.
//
//	go run ./test/apps/traces/derive --window 40 --repeat 2 bursty.txt
//
// plays 40 seconds as one, twice in a row. The rates are printed, one per line.
package main

import (
	"flag"
	"fmt"
	"os"

	"awarescale.dev/aware/test/apps/trace"
)

func main() {
	window := flag.Int("window", 1, "lines of the input that become one")
	from := flag.Int("from", 0, "first line of the input to use")
	lines := flag.Int("lines", 0, "lines of the input to use (0: all from the first on)")
	repeat := flag.Int("repeat", 1, "how often to print the result")
	flag.Parse()
	if err := run(flag.Arg(0), *window, *from, *lines, *repeat); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func run(path string, window, from, lines, repeat int) error {
	long, err := trace.ReadFile(path)
	if err != nil {
		return err
	}
	if lines == 0 {
		lines = len(long.Rates) - from
	}
	if window < 1 || from < 0 || lines < window || from+lines > len(long.Rates) {
		return fmt.Errorf("%s has %d rates: cannot take %d from %d on in windows of %d",
			path, len(long.Rates), lines, from, window)
	}
	short := windowMeans(long.Rates[from:from+lines], window)
	mean := trace.Trace{Step: long.Step, Rates: short}.Mean()
	for range repeat {
		for _, rate := range short {
			fmt.Printf("%.3f\n", rate/mean)
		}
	}
	return nil
}

// windowMeans leaves out an incomplete window at the end.
func windowMeans(rates []float64, window int) []float64 {
	means := make([]float64, len(rates)/window)
	for i := range means {
		for _, rate := range rates[i*window : (i+1)*window] {
			means[i] += rate / float64(window)
		}
	}
	return means
}
