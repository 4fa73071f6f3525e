// Package compile runs go build, and says how far it is: the first build of Kubernetes takes
// minutes.
package compile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// sayEvery is the time between two messages.
const sayEvery = 15 * time.Second

// Build is one call of go build.
type Build struct {
	What     string   // for messages
	Dir      string   // of the module
	Env      []string // added to this process's environment
	Tags     string
	LDFlags  string
	Output   string // a file, or a folder with a slash at its end
	Packages []string
}

// Run builds. say gets a message at the begin, every 15 seconds, and at the end. An error has what
// the compiler said.
func (b Build) Run(ctx context.Context, say func(format string, args ...any)) error {
	begin := time.Now()
	say("building %s ...", b.What)
	ctx, stop := context.WithCancel(ctx)
	var c counter
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		all := -1 // not known
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if all < 0 {
				all = b.packages(ctx)
			}
			say("building %s ... %s", b.What, far(time.Since(begin), c.count(), all))
		}
	})
	cmd := b.command(ctx, "build", "-v", "-buildvcs=false", "-ldflags", b.LDFlags, "-o", b.Output)
	cmd.Stdout, cmd.Stderr = &c, &c
	err := cmd.Run()
	stop()
	watching.Wait()
	if err != nil {
		return fmt.Errorf("building %s in %s: %w\n%s", strings.Join(b.Packages, " "), b.Dir, err, c.text())
	}
	say("building %s took %v", b.What, time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// command is a call of the go command for the packages.
func (b Build) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append(append(args, "-tags", b.Tags), b.Packages...)...)
	cmd.Dir, cmd.Env = b.Dir, append(os.Environ(), b.Env...)
	return cmd
}

// packages is the number of packages that the build needs, cached ones too; 0 is not known.
func (b Build) packages(ctx context.Context) int {
	out, err := b.command(ctx, "list", "-deps").Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}

// far says how far a build is after a time: it has compiled some packages of all that it needs. What
// the cache has is never compiled, so the time that is left is a bound, and worth saying only when a
// part is done.
func far(took time.Duration, compiled, all int) string {
	s := took.Round(time.Second).String()
	if compiled*20 < all || all < compiled || compiled == 0 {
		return s
	}
	left := time.Duration(float64(took) / float64(compiled) * float64(all-compiled))
	return fmt.Sprintf("%s, %d of at most %d packages compiled, %v left at most, and linking",
		s, compiled, all, left.Round(10*time.Second))
}

// counter keeps what go build -v writes: the name of each package that is compiled, and what the
// compiler says.
type counter struct {
	mu      sync.Mutex
	written bytes.Buffer
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written.Write(p)
}

// isPackage reports whether a line is the name of a package: it has neither spaces nor a "#" or a
// position as messages have.
func isPackage(line string) bool { return line != "" && !strings.ContainsAny(line, " \t#:") }

func (c *counter) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(c.written.String()) {
		if isPackage(strings.TrimSuffix(line, "\n")) {
			n++
		}
	}
	return n
}

// text is all that was said but the names of packages.
func (c *counter) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for line := range strings.Lines(c.written.String()) {
		if !isPackage(strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}
