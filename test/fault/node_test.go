package fault

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/nodeagent/agent"
	"awarescale.dev/aware/nodeagent/api"
	"awarescale.dev/aware/nodeagent/cgroup"
	"awarescale.dev/aware/nodeagent/cgroup/cgrouptest"
	"awarescale.dev/aware/nodeagent/cri"
)

// one is a pod of one container.
func one(size mdp.Size) map[string]mdp.Size { return map[string]mdp.Size{"app": size} }

// two is a pod with a sidecar.
func two(app, sidecar mdp.Size) map[string]mdp.Size {
	return map[string]mdp.Size{"app": app, "sidecar": sidecar}
}

// The API's limits were lowered, to what the agent had set, while no agent ran. The
// journal still says the old ones.
func TestAnOldJournalRestoresNothingAboveTheLiveLimits(t *testing.T) {
	small := mdp.Size{CPU: 200, Memory: 128 * mdp.MiB}
	side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
	for name, c := range map[string]struct {
		before, after map[string]mdp.Size
		away          bool
	}{
		"one container":                                 {one(web), one(small), false},
		"one container, the API server is away":         {one(web), one(small), true},
		"with a sidecar":                                {two(web, side), two(small, side), false},
		"with a sidecar, the API server is away":        {two(web, side), two(small, side), true},
		"with an unlimited sidecar":                     {two(web, mdp.Size{}), two(small, mdp.Size{}), false},
		"with an unlimited sidecar, the server is away": {two(web, mdp.Size{}), two(small, mdp.Size{}), true},
	} {
		t.Run(name, func(t *testing.T) {
			cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
				n := newNode(t, host, c.before)
				n.grant(api.Auto)
				n.run(10 * time.Second)
				// The agent dies when its values are what the API's become.
				set := n.journal.Entries()["app"]
				set.Ours = limits(small)
				if err := n.journal.Put(set); err != nil {
					t.Fatal(err)
				}
				n.kubelet(c.after)
				n.api.says("app", small, false)
				n.api.away(c.away)
				n.forget()
				n.boot()
				n.run(5 * time.Second)
				n.never("app", small)
				n.api.away(false)
				n.run(10 * time.Second)
				n.never("app", small)
				n.is("app", small, "in the end")
				n.forgotten()
			})
		})
	}
}

// The kubelet has lowered the limits, and the agent's watch of the API server has not
// said so yet. The application wants all that it can get.
func TestALateWatchDoesNotRaiseAboveWhatTheKubeletHasSet(t *testing.T) {
	small := mdp.Size{CPU: 300, Memory: 128 * mdp.MiB}
	side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
	for name, c := range map[string]struct{ before, after map[string]mdp.Size }{
		"one container":             {one(web), one(small)},
		"with a sidecar":            {two(web, side), two(small, side)},
		"with an unlimited sidecar": {two(web, mdp.Size{}), two(small, mdp.Size{})},
	} {
		t.Run(name, func(t *testing.T) {
			for _, touched := range []bool{true, false} {
				n := newNode(t, cgrouptest.Fixture(t, cgroup.V2), c.before)
				n.run(3 * time.Second)
				if touched {
					n.shrunk()
				} else {
					n.demand["app"] = 5000
					n.grant(api.Auto)
					n.run(3 * time.Second)
				}
				n.kubelet(c.after)
				n.forget()
				n.demand["app"] = 5000
				n.memory["app"] = 120 * mdp.MiB
				n.run(4 * time.Second)
				n.never("app", small)
				// The news come in two parts: first those of a change in between.
				n.api.says("app", mdp.Size{CPU: 800, Memory: 200 * mdp.MiB}, false)
				n.run(2 * time.Second)
				n.never("app", small)
				n.api.says("app", small, false)
				n.grant(api.Observe)
				n.run(5 * time.Second)
				n.never("app", small)
				n.is("app", small, "in the end")
			}
		})
	}
}

// The kubelet has raised limits, the API server is away before its news come, and then what the agent may do ends. It restores
// what it knows. That was less than what the kubelet had given, so it is put right when the news come, however late. Until then
// the API server is asked now and then, and not in each step. Where another writer has set more, it says that it gives no more,
// and nothing is waited for.
func TestARaiseOfWhichTheNewsAreLateIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		large     mdp.Size
		elsewhere bool // another writer has set more than the API gives before
		answers   bool // the API server is there, and its news come late
	}{
		"both limits":             {large: mdp.Size{CPU: 2000, Memory: 512 * mdp.MiB}},
		"the CPU limit":           {large: mdp.Size{CPU: 2000, Memory: web.Memory}},
		"the memory limit":        {large: mdp.Size{CPU: web.CPU, Memory: 512 * mdp.MiB}},
		"one is lowered":          {large: mdp.Size{CPU: 2000, Memory: 192 * mdp.MiB}},
		"after another writer":    {large: mdp.Size{CPU: 2000, Memory: web.Memory}, elsewhere: true},
		"the watch alone is late": {large: mdp.Size{CPU: 2000, Memory: web.Memory}, answers: true},
	} {
		t.Run(name, func(t *testing.T) {
			eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
				n := newNode(t, host, one(web))
				n.shrunk()
				if c.elsewhere {
					if err := host.Tree.Write(n.path("app"), limits(mdp.Size{CPU: 1500})); err != nil {
						t.Fatal(err)
					}
					n.run(3 * time.Second)
					n.grant(api.Observe)
					n.run(10 * time.Second)
					n.forgotten()
					n.shrunk()
				}
				n.kubelet(one(c.large))
				n.api.ahead = map[string]mdp.Size{"app": c.large}
				n.api.away(!c.answers)
				n.run(30 * time.Second)
				n.agent.Apply(n.now, api.Grants{TTL: time.Second})
				n.forget()
				n.api.finds = 0
				n.run(2 * time.Minute)
				n.never("app", c.large)
				n.covered()
				if n.api.finds > 25 {
					t.Errorf("the API server was asked %d times in two minutes", n.api.finds)
				}
				n.api.says("app", c.large, false)
				n.api.away(false)
				n.run(15 * time.Second)
				n.is("app", c.large, "with the news")
				n.forgotten()
			})
		})
	}
}

// Of a container that the agent has not touched there is nothing to restore, and the API server is not asked who has set more.
func TestTheAPIServerIsNotAskedOfContainersThatAreNotTouched(t *testing.T) {
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		n.grant(api.Observe)
		n.run(5 * time.Second)
		if err := host.Tree.Write(n.path("app"), limits(mdp.Size{CPU: 1500})); err != nil {
			t.Fatal(err)
		}
		n.api.away(true) // it would be asked again and again
		n.run(30 * time.Second)
		if n.api.finds > 0 {
			t.Errorf("it was asked %d times", n.api.finds)
		}
	})
}

// The kubelet sets exactly what we had set, so that nothing seems to have changed. The
// pod's own group knows better.
func TestALateWatchDoesNotRaiseAboveThePodsOwnLimits(t *testing.T) {
	side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
	for name, before := range map[string]map[string]mdp.Size{"one container": one(web), "with a sidecar": two(web, side)} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, cgrouptest.Fixture(t, cgroup.V2), before)
			n.grant(api.Auto)
			n.run(10 * time.Second)
			after := map[string]mdp.Size{}
			for id := range before {
				after[id] = n.limit(id)
			}
			n.kubelet(after)
			n.forget()
			for id := range before {
				n.demand[id] = 5000
			}
			n.memory["app"] = after["app"].Memory - mdp.MiB
			n.run(20 * time.Second)
			if len(before) == 1 {
				n.never("app", after["app"])
				return
			}
			// What of the pod is whose is not known before the API's news come.
			pod := after["app"].CPU + after["sidecar"].CPU
			for id := range before {
				if l := n.peak[id].CPU; l > pod {
					t.Errorf("%s had %v, and its pod has %v", id, l, pod)
				}
			}
		})
	}
}

// The kubelet gives the sidecar what it had, and the application exactly what we had set.
func TestALateWatchDoesNotRaiseAboveTheContainersShare(t *testing.T) {
	side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
	n := newNode(t, cgrouptest.Fixture(t, cgroup.V1), two(web, side))
	n.grant(api.Auto)
	n.run(10 * time.Second)
	ours := n.limit("app")
	n.kubelet(two(ours, side))
	n.forget()
	n.demand["app"] = 5000
	n.memory["app"] = ours.Memory - mdp.MiB
	n.run(20 * time.Second)
	n.never("app", ours)
}

// The pod has less room than the API's news say. What is put back is what there is room
// for, and the rest as soon as there is room.
func TestPuttingBackGoesOnWhenThePodGetsRoom(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		n.shrunk()
		n.pod(one(mdp.Size{CPU: 600, Memory: web.Memory}))
		n.forget()
		n.grant(api.Observe)
		n.run(5 * time.Second)
		n.never("app", mdp.Size{CPU: 600, Memory: web.Memory})
		n.is("app", mdp.Size{CPU: 600, Memory: web.Memory}, "with little room")
		if len(n.journal.Entries()) == 0 {
			t.Error("forgotten, and not put back")
		}
		n.pod(one(web))
		n.run(3 * time.Second)
		n.is("app", web, "with room")
		n.forgotten()
	})
}

// Somebody else sets the CPU limit, and nothing else. That is left as it is, and our
// memory limit is put back.
func TestSomebodyElsesCPULimitDoesNotKeepOurMemoryLimit(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		// Within what we may have set, and above it: that would be lowered to the API's limit while the mode is auto.
		for theirs, auto := range map[mdp.MilliCPU]time.Duration{700: 2 * time.Second, 1500: 0} {
			n := newNode(t, host, one(web))
			n.shrunk()
			if l := n.limit("app").Memory; l >= web.Memory {
				t.Fatalf("memory is %v, and not ours", l)
			}
			n.pod(one(mdp.Size{CPU: 1500, Memory: web.Memory}))
			if err := n.host.Tree.Write(n.path("app"), cgroup.Limits{Quota: 100 * int64(theirs), Period: 100000}); err != nil {
				t.Fatal(err)
			}
			n.run(auto)
			n.grant(api.Observe)
			n.run(10 * time.Second)
			n.is("app", mdp.Size{CPU: theirs, Memory: web.Memory}, "after the change")
			n.forgotten()
			host.Remove(t, n.path("app"))
		}
	})
}

// The kubelet's 205m are near our 200m, and are not ours.
func TestAValueNearOursIsNotTakenForOurs(t *testing.T) {
	n := newNode(t, cgrouptest.Fixture(t, cgroup.V1), two(web, mdp.Size{}))
	n.shrunk()
	ours := n.limit("app").CPU
	near := mdp.Size{CPU: ours + 5, Memory: n.limit("app").Memory}
	n.kubelet(two(near, mdp.Size{}))
	n.forget()
	n.demand["app"] = 5000
	n.run(20 * time.Second)
	n.never("app", mdp.Size{CPU: near.CPU, Memory: web.Memory})
}

// A container of a pod may have what the API gives it, also when the others of the pod
// use less than theirs.
func TestARaiseKeepsToTheContainersOwnShareOfItsPod(t *testing.T) {
	side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
	n := newNode(t, cgrouptest.Fixture(t, cgroup.V2), two(web, side))
	n.shrunk()
	n.forget()
	n.demand["app"], n.demand["sidecar"] = 5000, 10
	n.run(30 * time.Second)
	n.never("app", web)
	if l := n.limit("app"); l.CPU != web.CPU {
		t.Errorf("the application has %v of its %v", l, web)
	}
	n.never("sidecar", side)
}

// A call misses its deadline, another one succeeds, and then the first one lands.
func TestACallThatLandsAfterALaterOneIsPutBack(t *testing.T) {
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		slow := &late{Runtime: n.client, hung: true}
		n.runtime = slow
		n.demand["app"] = 500
		n.memory["app"] = 220 * mdp.MiB // so that the first call sets CPU
		n.boot()
		n.grant(api.Auto)
		for range 30 { // the runtime is told of a limit that has rested
			if n.run(time.Second); len(slow.calls) > 0 {
				break
			}
		}
		if len(slow.calls) == 0 {
			t.Fatal("no call was made")
		}
		first := slow.calls[0]
		slow.hang(false)
		n.demand["app"] = 10
		n.run(70 * time.Second) // the breaker closes, and calls succeed
		n.shrunk()
		n.grant(api.Observe)
		before := n.limit("app")
		if err := first(); err != nil {
			t.Fatal(err)
		}
		if l := n.limit("app"); l.CPU < before.CPU+50 {
			t.Fatalf("the late call brought %v, before %v", l, before)
		}
		n.run(5 * time.Second)
		n.is("app", web, "after observe")
		n.forgotten()
	})
}

// Everything was restored, and then an old call lands. In the first case the agent is
// the same, in the second one it is a new one.
func TestACallThatLandsAfterEverythingWasRestoredIsPutBack(t *testing.T) {
	for _, killed := range []bool{false, true} {
		n := newNode(t, cgrouptest.Fixture(t, cgroup.V1), one(web))
		slow := &late{Runtime: n.client, hung: true}
		n.runtime = slow
		n.boot()
		n.grant(api.Auto)
		n.run(6 * time.Second)
		slow.hang(false)
		n.grant(api.Observe)
		n.run(62 * time.Second)
		if killed {
			n.boot()
			n.run(3 * time.Second)
		}
		n.is("app", web, "restored")
		if len(slow.calls) == 0 {
			t.Fatal("no call was late")
		}
		if err := slow.calls[0](); err != nil {
			t.Fatal(err)
		}
		if n.limit("app") == web {
			t.Fatal("the late call changed nothing")
		}
		n.run(3 * time.Second)
		n.is("app", web, "after the late call")
		n.forgotten()
	}
}

// Somebody else has written limits into the cgroup, of which the runtime is told. The call hangs, the agent is killed in it, the
// kubelet resizes, and then the call lands: the next agent knows that this is not what somebody has set.
func TestACallThatTellsAndLandsAfterAResizeIsPutBack(t *testing.T) {
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		slow := &late{Runtime: n.client}
		n.runtime = slow
		n.boot()
		n.shrunk()
		// They are known to the API server, and were not set through the runtime.
		first := mdp.Size{CPU: 1150, Memory: 480 * mdp.MiB}
		n.pod(one(first))
		if err := host.Tree.Write(n.path("app"), limits(first)); err != nil {
			t.Fatal(err)
		}
		n.sizes = one(first)
		n.api.says("app", first, false)
		n.grant(api.Observe)
		slow.hang(true)
		for range 30 {
			if n.run(time.Second); len(slow.calls) > 0 {
				break
			}
		}
		if len(slow.calls) == 0 {
			t.Fatal("the runtime was not told")
		}
		slow.hang(false)
		n.boot() // the agent was killed
		second := mdp.Size{CPU: 1850, Memory: 128 * mdp.MiB}
		n.kubelet(one(second))
		n.api.says("app", second, false)
		n.run(time.Second)
		if err := slow.calls[0](); err != nil {
			t.Fatal(err)
		}
		if n.limit("app") == second {
			t.Fatal("the late call changed nothing")
		}
		n.run(10 * time.Second)
		n.is("app", second, "after the late call")
		n.forgotten()
	})
}

// The API gives less memory than is in use now: the kernel would kill.
func TestPuttingBackWaitsForTheMemoryInUse(t *testing.T) {
	for _, killed := range []bool{false, true} {
		n := newNode(t, cgrouptest.Fixture(t, cgroup.V2), one(web))
		n.memory["app"] = 100 * mdp.MiB
		n.shrunk() // memory too: to 1.25 times what is in use, or more
		n.memory["app"] = 120 * mdp.MiB
		// A resize to less is pending: the restore goes to the smaller value.
		n.api.says("app", mdp.Size{CPU: 800, Memory: 96 * mdp.MiB}, true)
		n.grant(api.Observe)
		if killed {
			n.boot()
		}
		n.run(5 * time.Second)
		if l := n.limit("app"); l.Memory < 126*mdp.MiB {
			t.Errorf("the memory limit is %v, and 120Mi are in use", l.Memory)
		} else if l.CPU != 800 {
			t.Errorf("CPU is %v: it need not wait", l.CPU)
		}
		contains(t, n.problem("app"), "in use")
		n.memory["app"] = 50 * mdp.MiB
		n.run(3 * time.Second)
		n.is("app", mdp.Size{CPU: 800, Memory: 96 * mdp.MiB}, "with less in use")
	}
}

// The runtime hangs, and its breaker is open. The application needs more now.
func TestABurstWhileTheBreakerIsOpenGetsItsCPU(t *testing.T) {
	eachFixture(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		n.shrunk()
		slow := &late{Runtime: n.client, hung: true}
		n.runtime = slow
		low := n.limit("app").CPU
		n.boot() // restores through a runtime that hangs: directly
		n.is("app", web, "after a restart with a hung runtime")
		n.runtime = slow
		slow.hang(false)
		n.run(70 * time.Second)
		n.shrunk()
		slow.hang(true)
		n.demand["app"] = 20
		n.run(70 * time.Second) // a shrink hangs, and opens the breaker
		if n.agent.RuntimeStats(n.now).Breaker == cri.Closed {
			t.Fatal("the breaker is closed")
		}
		n.grant(api.Auto)
		n.demand["app"] = 900
		n.run(7 * time.Second) // relief may be taken back until the runtime is late to know of it, 5.9 s after the raise
		if l := n.limit("app").CPU; l < 800 {
			t.Errorf("seven seconds into a burst of 900m the limit is %v (before %v): %s", l, low, n.problem("app"))
		}
		// The raise ends with the burst, although the runtime hangs and does not know of it. It knows of what was in force
		// before, or of more, so that its own next update takes nothing that is needed.
		raised := n.limit("app").CPU
		n.demand["app"] = 20
		n.grant(api.Auto)
		n.run(30 * time.Second)
		if l := n.limit("app").CPU; l >= raised || l < 20 {
			t.Errorf("half a minute after the burst the limit is %v, and was %v in it", l, raised)
		}
		// The runtime is told when it answers again, although nothing more is to be changed:
		// its own next update must not take the raise back. Memory is full, so that no move of
		// memory takes CPU along.
		n.demand["app"] = 5000
		n.memory["app"] = 120 * mdp.MiB
		n.run(3 * time.Second)
		n.is("app", mdp.Size{CPU: web.CPU, Memory: n.limit("app").Memory}, "all that there is")
		slow.hang(false)
		for range 3 {
			n.grant(api.Auto)
			n.run(time.Minute)
		}
		if err := n.client.Update(t.Context(), "app", cri.Change{Memory: web.Memory}); err != nil {
			t.Fatal(err)
		}
		if got := n.limit("app").CPU; got != web.CPU {
			t.Errorf("an update of memory took the CPU limit back to %v", got)
		}
	})
}

// An agent starts while the API server is away: it restores at once, it is alive, and
// it is not ready.
func TestAnAgentThatStartsWithoutTheAPIServerRestoresAtOnce(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		side := mdp.Size{CPU: 500, Memory: 64 * mdp.MiB}
		n := newNode(t, host, two(web, side))
		n.grant(api.Auto)
		n.run(10 * time.Second)
		n.api.away(true)
		n.forget()
		n.boot()
		n.is("app", web, "at once")
		n.is("sidecar", side, "at once")
		n.run(5 * time.Second)
		if err := n.agent.Live(n.now); err != nil {
			t.Errorf("not alive: %v", err)
		}
		if err := n.agent.Ready(n.now); err == nil {
			t.Error("ready, without knowing any pod")
		}
		if len(n.journal.Entries()) == 0 {
			t.Error("forgotten before the API server has said what the limits are")
		}
		n.never("app", web)
		n.never("sidecar", side)
		n.api.away(false)
		n.run(5 * time.Second)
		if err := n.agent.Ready(n.now); err != nil {
			t.Error(err)
		}
		n.forgotten()
		n.is("app", web, "in the end")
	})
}

// The owner opted out while no agent ran, and the API's limits are others by now: the
// pod is not watched any more, and is asked for.
func TestAPodThatWasOptedOutWhileNoAgentRanGetsItsLiveLimits(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		small := mdp.Size{CPU: 600, Memory: 200 * mdp.MiB}
		n := newNode(t, host, two(web, mdp.Size{}))
		n.shrunk()
		n.forget()
		n.api.says("app", small, false) // but the kubelet has not been there yet
		n.api.pods, n.api.hidden = nil, clone(n.api.pods)
		n.boot()
		n.run(2 * time.Second)
		n.never("app", small)
		n.is("app", small, "after the opt-out")
		n.forgotten()
	})
}

// And a raise is pending: it is not known whether the kubelet has allocated it.
func TestAPodThatWasOptedOutWhileARaiseWasPendingGetsTheSmallerLimits(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, two(web, mdp.Size{}))
		n.shrunk()
		n.forget()
		n.api.says("app", mdp.Size{CPU: 3000, Memory: 128 * mdp.MiB}, true)
		n.api.pods, n.api.hidden = nil, clone(n.api.pods)
		n.boot()
		n.run(5 * time.Second)
		smaller := mdp.Size{CPU: web.CPU, Memory: 128 * mdp.MiB}
		n.is("app", smaller, "while the raise is pending")
		if len(n.journal.Entries()) == 0 {
			t.Error("forgotten before it is known what is allocated")
		}
		// It is carried out.
		n.kubelet(two(mdp.Size{CPU: 3000, Memory: 128 * mdp.MiB}, mdp.Size{}))
		n.api.hidden[0].Containers[0].ResizePending = false
		n.api.hidden[0].Containers[len(n.api.hidden[0].Containers)-1].ResizePending = false
		n.never("app", mdp.Size{CPU: 3000, Memory: web.Memory})
		n.forgotten()
		n.is("app", mdp.Size{CPU: 3000, Memory: 128 * mdp.MiB}, "once it is carried out")
	})
}

// The pod is not opted out because the API server does not answer.
func TestAnOutageOfTheAPIServerEndsNothing(t *testing.T) {
	cgrouptest.Each(t, func(t *testing.T, host *cgrouptest.Host) {
		n := newNode(t, host, one(web))
		n.shrunk()
		low := n.limit("app")
		n.api.away(true)
		n.run(time.Minute)
		if l := n.limit("app"); l.CPU > low.CPU+100 {
			t.Errorf("limits went from %v to %v in an outage, within the grants", low, l)
		}
	})
}

var _ agent.Pods = (*apiServer)(nil)
