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

// CheckClean lists what labs, of any name, have on this machine now: processes,
// mounts, control groups, links and state folders, each in a line that names
// it. After Down there is nothing; a running lab is listed too.
func CheckClean() ([]string, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, look := range []func() ([]string, error){
		func() ([]string, error) { return leftProcesses("/proc") },
		leftMounts,
		func() ([]string, error) { return leftGroups(trees) },
		leftLinks,
		func() ([]string, error) { return leftFolders(stateBase()) },
	} {
		left, err := look()
		if err != nil {
			return nil, err
		}
		all = append(all, left...)
	}
	return all, nil
}

// leftProcesses finds processes in a lab's control group, or running a binary of the
// cache, other than this one.
func leftProcesses(proc string) ([]string, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Any of these fails if the process ends meanwhile; then it is not left.
		groups, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		exe, _ := os.Readlink(filepath.Join(proc, e.Name(), "exe"))
		var why string
		if _, after, ok := strings.Cut(string(groups), "/"+owner("")); ok {
			name, _, _ := strings.Cut(after, "\n")
			why = "in control group " + owner("") + name
		} else if strings.HasPrefix(exe, cacheBase()+"/own/") {
			cmdline, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cmdline"))
			why = "running " + strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		} else {
			continue
		}
		if _, state, err := processAt(proc, pid); err == nil {
			left = append(left, fmt.Sprintf("process %d (%s, state %c) %s", pid, filepath.Base(exe), state, why))
		}
	}
	return left, nil
}

func leftMounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var left []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 &&
			(strings.HasPrefix(f[4], stateBase()+"/") || strings.Contains(f[3], "/aware-cluster/")) {
			left = append(left, "mount "+f[4])
		}
	}
	return left, nil
}

func leftGroups(trees []hierarchy) ([]string, error) {
	var left []string
	for _, h := range trees {
		dirs, err := filepath.Glob(filepath.Join(h.Dir, owner("*")))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			left = append(left, "control group "+dir)
		}
	}
	return left, nil
}

func leftLinks() ([]string, error) {
	links, err := filepath.Glob("/sys/class/net/awl*")
	if err != nil {
		return nil, err
	}
	var left []string
	for _, link := range links {
		of, _ := os.ReadFile(filepath.Join(link, "ifalias"))
		left = append(left, fmt.Sprintf("link %s of %s", filepath.Base(link), strings.TrimSpace(string(of))))
	}
	return left, nil
}

func leftFolders(base string) ([]string, error) {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var left []string
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		switch p, err := readPlan(dir); {
		case err != nil:
			left = append(left,
				fmt.Sprintf("state folder %s of lab %s, which never started", dir, owner(e.Name())))
		case p.Init.alive():
			left = append(left, fmt.Sprintf("state folder %s of the running lab %s", dir, owner(p.Name)))
		default:
			left = append(left, fmt.Sprintf("state folder %s of lab %s, whose init, process %d, is gone",
				dir, owner(p.Name), p.Init.PID))
		}
	}
	slices.Sort(left)
	return left, nil
}
