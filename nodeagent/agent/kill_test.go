package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
	"awarescale.dev/aware/nodeagent/restore"
)

const childEnv = "AWARE_AGENT_TEST_CHILD" // cgroup root, CRI socket and state directory, separated by newlines

// child is an agent in its own process, with one container that it may move for an
// hour.
func child() {
	err := func() error {
		where := strings.Split(os.Getenv(childEnv), "\n")
		tree, err := cgroup.Open(where[0])
		if err != nil {
			return err
		}
		client, err := cri.Dial(context.Background(), where[1])
		if err != nil {
			return err
		}
		j, err := restore.Open(where[2])
		if err != nil {
			return err
		}
		pod := Pod{Namespace: "shop", Name: "web-0", UID: "u0", QoS: "Burstable",
			Containers: []Container{{Name: "app", ID: "c0", Running: true, Limits: web}}}
		a, err := New(config(), Deps{Tree: tree, Runtime: client, Journal: j, Pods: Fixed{pod}})
		if err != nil {
			return err
		}
		a.Apply(time.Now(), api.Grants{TTL: time.Hour, All: []api.Grant{{Mode: api.Auto, Throttle: 0.02,
			Container: api.ContainerRef{Namespace: "shop", Pod: "web-0", PodUID: "u0", Container: "app"}}}})
		return a.Run(context.Background())
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func TestTheNextAgentRestoresWhatAKilledOneTouched(t *testing.T) {
	for name, slow := range map[string]time.Duration{"between two calls": 0, "in the middle of a call": 400 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
				g := newRigOn(t, host, 1)
				g.server.Slow(slow)
				g.agent.journal.Close() // the child takes the lock
				cmd := exec.Command(os.Args[0], "-test.run=^$")
				cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{
					g.host.Tree.Root(), g.server.Socket(), g.dir,
				}, "\n"))
				cmd.Stderr = os.Stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				acting := func() bool {
					if slow == 0 {
						return g.limit(0).CPU < web.CPU
					}
					b, _ := os.ReadFile(filepath.Join(g.dir, "journal"))
					return len(b) > 0 // written before the call, which is running
				}
				for !acting() && time.Since(begin) < 20*time.Second {
					time.Sleep(10 * time.Millisecond)
				}
				if _, err := restore.Open(g.dir); err == nil || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
					t.Errorf("a second agent on the node: %v, want an error that names process %d", err, cmd.Process.Pid)
				}
				cmd.Process.Kill()
				cmd.Wait()
				if b, _ := os.ReadFile(filepath.Join(g.dir, "journal")); len(b) == 0 {
					t.Fatal("nothing in the journal: it never acted")
				}
				g.server.Slow(0)
				g.agent = nil
				g.boot()
				time.Sleep(slow) // a call that outlived its caller
				g.isRestored("after SIGKILL")
			})
		})
	}
}
