// Package debian looks for the programs of the host that tests need, and installs
// Debian's packages of those that are missing.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Requirement is a program or a feature of the host that tests use.
type Requirement struct {
	What    string // a name for messages
	Why     string // for messages
	Package string // Debian's
	Have    func() bool
}

// Program returns a check for programs on the PATH.
func Program(names ...string) func() bool {
	return func() bool {
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				return false
			}
		}
		return true
	}
}

// Missing lists what the host lacks: one sentence for each requirement, with the reason
// and the way to get it.
func Missing(all []Requirement) []string {
	var lacks []string
	for _, r := range all {
		if !r.Have() {
			lacks = append(lacks, fmt.Sprintf("%s is missing: %s; apt-get install %s", r.What, r.Why, r.Package))
		}
	}
	return lacks
}

// Install gets the packages of what is missing. It does nothing on a system without
// apt-get, and for a user who is not root.
func Install(ctx context.Context, all []Requirement) error {
	var packages []string
	for _, r := range all {
		if !r.Have() {
			packages = append(packages, r.Package)
		}
	}
	if len(packages) == 0 || os.Geteuid() != 0 || !Program("apt-get")() {
		return nil
	}
	slices.Sort(packages)
	if err := Update(ctx); err != nil {
		return err
	}
	_, err := Apt(ctx, ".", append([]string{"apt-get", "install", "--yes", "--no-install-recommends"},
		slices.Compact(packages)...)...)
	return err
}

// Update gets the newest lists of packages.
func Update(ctx context.Context) error {
	_, err := Apt(ctx, ".", "apt-get", "update")
	return err
}

// Apt runs one of apt's programs in a folder and returns its standard output. It waits, for five minutes at most, when another
// program has one of apt's locks: another test, or the system's own updates.
func Apt(ctx context.Context, dir string, args ...string) (out string, err error) {
	var told error // by apt, of a lock
	if waited := wait.PollUntilContextTimeout(ctx, 2*time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		out, told = apt(ctx, dir, args...)
		// apt's own option waits for dpkg's lock, and not for those of its folders.
		locked := told != nil && strings.Contains(told.Error(), "Could not get lock")
		return !locked, nil
	}); waited != nil {
		return "", errors.Join(told, waited)
	}
	return out, told
}

func apt(ctx context.Context, dir string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, args[0], append([]string{"-o", "DPkg::Lock::Timeout=300"}, args[1:]...)...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), nil
}
