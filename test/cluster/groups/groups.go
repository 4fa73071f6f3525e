// Package groups reads the control groups of a lab's node for tests: on this machine
// directly, and on a virtual machine by the program groups/reader, which answers there.
package groups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/cgroup"
)

// Root is where the control groups are mounted, on every node.
const Root = "/sys/fs/cgroup"

// Reading is what the kernel says of a group.
type Reading struct {
	Limits    mdp.Size      // in force; 0 is none
	Used      time.Duration // CPU time since the group was made
	Throttled uint64        // periods in which the quota was used up
	Processes []int         // IDs in the node's namespace of processes
}

// Reader reads groups by their paths below the root.
type Reader interface {
	Read(group string) (Reading, error)
	io.Closer
}

// Node is a node of a lab.
type Node interface {
	Name() string
	IsMachine() bool
	Copy(ctx context.Context, to, from string) error
	Command(ctx context.Context, name string, args ...string) *exec.Cmd
}

// On is a reader for a node.
func On(ctx context.Context, n Node) (Reader, error) {
	if n.IsMachine() {
		return newRemote(ctx, n)
	}
	tree, err := cgroup.Open(Root)
	return local{tree}, err
}

// local reads this machine's groups.
type local struct{ tree *cgroup.Tree }

func (local) Close() error { return nil }

func (l local) Read(group string) (Reading, error) {
	g, err := l.tree.Group(group)
	if err != nil {
		return Reading{}, err
	}
	defer g.Close()
	limits, err := g.Limits()
	var c cgroup.CPU
	err = errors.Join(err, g.ReadCPU(&c))
	r := Reading{Limits: limits.Size(), Used: c.Usage, Throttled: c.ThrottledPeriods}
	dir := l.tree.Root()
	if l.tree.Version() == cgroup.V1 {
		dir = filepath.Join(dir, "cpu")
	}
	text, err2 := os.ReadFile(filepath.Join(dir, group, "cgroup.procs"))
	for id := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(id)
		err2 = errors.Join(err2, err)
		r.Processes = append(r.Processes, pid)
	}
	return r, errors.Join(err, err2)
}

// answer is a line of the program.
type answer struct {
	Reading Reading
	Error   string
}

// Serve answers each line of in, which is a group's path in JSON, by a line in out.
func Serve(root string, in io.Reader, out io.Writer) error {
	tree, err := cgroup.Open(root)
	if err != nil {
		return err
	}
	questions, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var group string
		if err := questions.Decode(&group); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		if a.Reading, err = (local{tree}).Read(group); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// remote asks the program on a node.
type remote struct {
	mu   sync.Mutex
	in   io.WriteCloser
	ask  *json.Encoder
	hear *json.Decoder
	cmd  *exec.Cmd
}

// newRemote builds the program, brings it to the node, and starts it.
func newRemote(ctx context.Context, n Node) (*remote, error) {
	dir, err := os.MkdirTemp("", "aware-groups-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	here := filepath.Join(dir, "reader")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", here,
		"awarescale.dev/aware/test/cluster/groups/reader")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the reader of control groups: %w\n%s", err, out)
	}
	const there = "/root/reader"
	if err := n.Copy(ctx, there, here); err != nil {
		return nil, err
	}
	cmd := n.Command(ctx, there)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the reader of control groups on node %s: %w", n.Name(), err)
	}
	return &remote{in: in, ask: json.NewEncoder(in), hear: json.NewDecoder(out), cmd: cmd}, nil
}

func (r *remote) Read(group string) (Reading, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var a answer
	if err := errors.Join(r.ask.Encode(group), r.hear.Decode(&a)); err != nil {
		return Reading{}, fmt.Errorf("asking for the control group %s: %w", group, err)
	}
	if a.Error != "" {
		return Reading{}, errors.New(a.Error)
	}
	return a.Reading, nil
}

// Close ends the program.
func (r *remote) Close() error {
	r.in.Close()
	return r.cmd.Wait()
}
