package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/test/apps/load"
	"golang.org/x/sys/unix"
)

// line is a run's line of the table. A nil value is unknown.
type line struct {
	run       string
	phase     string        // of the run, such as measuring
	elapsed   time.Duration // under load
	total     time.Duration // of the load; 0 until it begins
	rps       *float64
	p99       *float64 // of all requests so far, in ms
	replicas  *float64
	allocated *float64 // millicores
	l1        *float64 // resizes by the node
	l2        *float64 // resizes through the API
}

const tableHead = "RUN                         PHASE                         DONE  ELAPSED  REMAINS" +
	"    RPS   P99 ms  REPLICAS  ALLOCATED   L1   L2"

func (l line) String() string {
	done, remains := "-", "-"
	if l.total > 0 {
		at := min(l.elapsed, l.total)
		done = fmt.Sprintf("%.0f %%", 100*at.Seconds()/l.total.Seconds())
		remains = (l.total - at).Round(time.Second).String()
	}
	elapsed := "-"
	if l.elapsed > 0 {
		elapsed = l.elapsed.Round(time.Second).String()
	}
	allocated := figure(l.allocated, 0)
	if l.allocated != nil {
		allocated += "m"
	}
	return fmt.Sprintf("%-27s %-27s %6s %8s %8s %6s %8s %9s %10s %4s %4s", l.run, l.phase, done, elapsed, remains,
		figure(l.rps, 0), figure(l.p99, 0), figure(l.replicas, 0), allocated, figure(l.l1, 0), figure(l.l2, 0))
}

// figure formats a number. An unknown one is a dash.
func figure(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

// screen shows messages and below them a table of the runs. On a terminal the table is
// redrawn every second. Elsewhere it prints a line of the run every ten seconds.
type screen struct {
	out      io.Writer
	terminal bool
	width    func() int    // of the terminal now; 0 or nil when it is unknown
	plain    time.Duration // between two lines where there is no terminal
	ended    chan struct{}

	mu      sync.Mutex
	rows    []*row
	drawn   int // lines of the table that are on the terminal
	partial string
}

// newScreen writes to out until stop is called.
func newScreen(out *os.File) *screen {
	_, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	s := &screen{
		out:      out,
		terminal: err == nil,
		width: func() int {
			if size, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err == nil {
				return int(size.Col)
			}
			return 0
		},
		plain: 10 * time.Second,
		ended: make(chan struct{}),
	}
	every := s.plain
	if s.terminal {
		every = time.Second
	}
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.refresh()
			case <-s.ended:
				return
			}
		}
	}()
	return s
}

// stop ends the table. Later messages appear below it.
func (s *screen) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return
	default:
		close(s.ended)
	}
	s.draw()
	s.drawn, s.rows = 0, nil
}

// say writes lines above the table.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.above(fmt.Sprintf(format, args...))
}

func (s *screen) above(text string) {
	s.erase()
	fmt.Fprintln(s.out, text)
	s.draw()
}

// Write is for the lab's log.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial += string(p)
	for {
		text, rest, complete := strings.Cut(s.partial, "\n")
		if !complete {
			return len(p), nil
		}
		s.partial = rest
		s.above(text)
	}
}

func (s *screen) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terminal {
		s.erase()
		s.draw()
		return
	}
	for _, r := range s.rows {
		if l := r.now(); !l.ended() {
			fmt.Fprintln(s.out, l.plain())
		}
	}
}

func (l line) ended() bool {
	return l.phase == "done" || l.phase == "failed" || l.phase == "interrupted"
}

// plain is a line that needs no table head.
func (l line) plain() string {
	text := l.run + ": " + l.phase
	if l.total > 0 && l.phase == "measuring" {
		allocated := figure(l.allocated, 0) + " m"
		text += fmt.Sprintf(" %s of %s, %s requests/s, p99 %s ms, %s replicas, %s allocated, resizes L1 %s L2 %s",
			l.elapsed.Round(time.Second), l.total, figure(l.rps, 0), figure(l.p99, 0), figure(l.replicas, 0),
			allocated, figure(l.l1, 0), figure(l.l2, 0))
	}
	return text
}

func (s *screen) erase() {
	if s.terminal && s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

func (s *screen) draw() {
	if !s.terminal || len(s.rows) == 0 {
		return
	}
	width := 0
	if s.width != nil {
		width = s.width()
	}
	var b strings.Builder
	b.WriteString(cut(tableHead, width) + "\n")
	for _, r := range s.rows {
		b.WriteString(cut(r.now().String(), width) + "\n")
	}
	_, _ = io.WriteString(s.out, b.String())
	s.drawn = len(s.rows) + 1
}

// cut shortens a line to the width of the terminal, because erase counts lines.
func cut(text string, width int) string {
	if width > 0 && len(text) > width {
		return text[:width]
	}
	return text
}

// row is a run's line. The run may change it while the screen draws it.
type row struct {
	screen *screen
	mu     sync.Mutex
	line   line
	began  time.Time // of the load
}

// rowsShown is how many slices the table shows, the last ones.
const rowsShown = 6

// begin adds a row to the table.
func (s *screen) begin(run string) *row {
	r := &row{screen: s, line: line{run: run, phase: "beginning"}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.rows = append(s.rows, r)
	if n := len(s.rows); n > rowsShown {
		s.rows = slices.Delete(s.rows, 0, n-rowsShown)
	}
	s.draw()
	return r
}

func (r *row) now() line {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.line
	if l.phase == "measuring" {
		l.elapsed = time.Since(r.began)
	}
	return l
}

func (r *row) phase(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line.phase == "measuring" {
		r.line.elapsed = min(time.Since(r.began), r.line.total)
	}
	r.line.phase = phase
}

func (r *row) start(began time.Time, total time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.line.total = began, total
}

func (r *row) sampled(s Sample, l1, l2 int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.replicas, r.line.allocated = s.Replicas, s.AllocatedMilli
	r.line.l1, r.line.l2 = known(float64(l1)), known(float64(l2))
}

func (r *row) loaded(s load.Second) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.rps, r.line.p99 = known(float64(s.OK)), known(s.P99SoFarMS)
}
