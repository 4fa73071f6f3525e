package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// RunTests runs a package's tests on a lab of that name, and returns the exit code.
// prepare gets the lab ready, and what it returns is called with the code after the
// tests; it may be nil. Where no lab can be made the tests are skipped with the reason,
// but fail in CI.
func RunTests(m interface{ Run() int }, name string,
	prepare func(context.Context, *Cluster) (done func(code int), err error)) int {
	return RunTestsOn(m, Config{Name: name}, prepare)
}

// RunTestsOn is [RunTests] on a lab with these settings. Where there can be no second
// node the tests are skipped with the reason, also in CI.
func RunTestsOn(m interface{ Run() int }, c Config,
	prepare func(context.Context, *Cluster) (done func(code int), err error)) int {
	if why := Missing(); len(why) > 0 {
		fmt.Printf("the tests of test/%s need a lab cluster, which cannot be made here: %s\n", c.Name, strings.Join(why, "; "))
		if os.Getenv("CI") != "" {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.Nodes > 1 {
		if err := PreflightMachine(ctx, c, true); err != nil {
			fmt.Printf("skipped: the tests of test/%s need a second node, which cannot be made here: %v\n", c.Name, err)
			return 0
		}
	}
	c.BindParent, c.Log = true, os.Stdout
	cluster, err := Up(ctx, c)
	if err != nil {
		fmt.Println("starting the lab:", err)
		return 1
	}
	defer cluster.Down(context.Background())
	done, err := prepare(ctx, cluster)
	if done == nil {
		done = func(int) {}
	}
	if err != nil {
		fmt.Println("getting the lab ready:", err)
		done(1)
		return 1
	}
	code := m.Run()
	done(code)
	return code
}
