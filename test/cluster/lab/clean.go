package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// trace is something that a lab has on this machine.
type trace struct {
	lab  string // its name; "" where it is not known
	what string // a line that names the trace
}

// CheckClean lists what the named labs have on this machine now: processes,
// mounts, control groups, links and state folders, each in a line that names
// it. Without a name it lists what labs of any name have. After Down there is
// nothing; a running lab is listed too.
func CheckClean(labs ...string) ([]string, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, look := range []func() ([]trace, error){
		func() ([]trace, error) { return leftProcesses("/proc") },
		leftMounts,
		func() ([]trace, error) { return leftGroups(trees) },
		leftLinks,
		func() ([]trace, error) { return leftFolders(stateBase()) },
	} {
		left, err := look()
		if err != nil {
			return nil, err
		}
		for _, t := range left {
			if len(labs) == 0 || slices.Contains(labs, t.lab) {
				all = append(all, t.what)
			}
		}
	}
	return all, nil
}

// labIn is the name of the lab in a text that has it behind a prefix, up to the next
// slash or white space.
func labIn(text, prefix string) string {
	_, after, _ := strings.Cut(text, prefix)
	if end := strings.IndexAny(after, "/ \x00\n"); end >= 0 {
		after = after[:end]
	}
	return after
}

// leftProcesses finds processes in a lab's control group, or running a program of its
// folder, other than this one.
func leftProcesses(proc string) ([]trace, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var left []trace
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Any of these fails if the process ends meanwhile; then it is not left.
		groups, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		exe, _ := os.Readlink(filepath.Join(proc, e.Name(), "exe"))
		var name, why string
		if _, after, ok := strings.Cut(string(groups), "/"+owner("")); ok {
			group, _, _ := strings.Cut(after, "\n")
			name, why = labIn(string(groups), "/"+owner("")), "in control group "+owner("")+group
		} else if strings.HasPrefix(exe, stateBase()+"/") {
			cmdline, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
			name = labIn(exe, stateBase()+"/")
			why = "running " + strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		} else {
			continue
		}
		if _, state, err := processAt(proc, pid); err == nil {
			left = append(left, trace{name, fmt.Sprintf("process %d (%s, state %c) %s", pid, filepath.Base(exe), state, why)})
		}
	}
	return left, nil
}

func leftMounts() ([]trace, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var left []trace
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 &&
			(strings.HasPrefix(f[4], stateBase()+"/") || strings.Contains(f[3], "/aware-cluster/")) {
			name := labIn(f[4], stateBase()+"/")
			if name == "" {
				name = labIn(f[3], "/aware-cluster/")
			}
			left = append(left, trace{name, "mount " + f[4]})
		}
	}
	return left, nil
}

func leftGroups(trees []hierarchy) ([]trace, error) {
	var left []trace
	for _, h := range trees {
		dirs, err := filepath.Glob(filepath.Join(h.Dir, owner("*")))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			left = append(left, trace{labIn(dir, "/"+owner("")), "control group " + dir})
		}
	}
	return left, nil
}

func leftLinks() ([]trace, error) {
	links, err := filepath.Glob("/sys/class/net/awl*")
	if err != nil {
		return nil, err
	}
	var left []trace
	for _, link := range links {
		of, _ := os.ReadFile(filepath.Join(link, "ifalias"))
		left = append(left, trace{labIn(string(of), owner("")),
			fmt.Sprintf("link %s of %s", filepath.Base(link), strings.TrimSpace(string(of)))})
	}
	return left, nil
}

func leftFolders(base string) ([]trace, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []trace
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		t := trace{lab: e.Name()}
		switch p, err := readPlan(dir); {
		case err != nil:
			t.what = fmt.Sprintf("state folder %s of lab %s, which never started", dir, owner(e.Name()))
		case p.Init.alive():
			t = trace{p.Name, fmt.Sprintf("state folder %s of the running lab %s", dir, owner(p.Name))}
		default:
			t = trace{p.Name, fmt.Sprintf("state folder %s of lab %s, whose init, process %d, is gone",
				dir, owner(p.Name), p.Init.PID)}
		}
		left = append(left, t)
	}
	slices.SortFunc(left, func(a, b trace) int { return strings.Compare(a.what, b.what) })
	return left, nil
}
