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
	if why := Missing(); len(why) > 0 {
		fmt.Printf("the tests of test/%s need a lab cluster, which cannot be made here: %s\n", name, strings.Join(why, "; "))
		if os.Getenv("CI") != "" {
			return 1
		}
		return 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cluster, err := Up(ctx, Config{Name: name, BindParent: true, Log: os.Stdout})
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
