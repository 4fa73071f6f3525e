// Command reader answers what the kernel says of control groups, for tests on another
// machine: each line of its input is a group's path, as JSON.
package main

import (
	"fmt"
	"os"

	"awarescale.dev/aware/test/cluster/groups"
)

func main() {
	if err := groups.Serve(groups.Root, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}
