package recommender

import (
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/plugins/autoscaling/updater"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ended is the end of a container, for that reason.
func ended(reason string, at time.Time) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: reason, FinishedAt: metav1.NewTime(at)}
}

func waiting(reason string, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 "web",
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}
}

func running(last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 "web",
		State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}
}

func terminated(end, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:                 "web",
		State:                corev1.ContainerState{Terminated: end},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}
}

// seen is a container's track after looks at these statuses, a minute apart.
func seen(looks ...corev1.ContainerStatus) (*oomTrack, time.Time) {
	t := &oomTrack{pod: "web-1", container: "web"}
	now := noon
	for i, s := range looks {
		now = noon.Add(time.Duration(i) * time.Minute)
		t.look(now, s, 128*mdp.MiB, 128*mdp.MiB, true)
	}
	return t, now
}

func TestOnlyRepeatedKillsForWantOfMemoryAreAnOOMLoop(t *testing.T) {
	at := func(minute int) *corev1.ContainerStateTerminated {
		return ended("OOMKilled", noon.Add(time.Duration(minute)*time.Minute-time.Second))
	}
	type looks = []corev1.ContainerStatus
	never := ended("OOMKilled", time.Time{})
	for name, c := range map[string]struct {
		looks looks
		want  bool
	}{
		"in back-off after a kill":               {looks{waiting("CrashLoopBackOff", at(0))}, true},
		"in back-off after an error":             {looks{waiting("CrashLoopBackOff", ended("Error", noon))}, false},
		"in back-off, and nothing is known":      {looks{waiting("CrashLoopBackOff", nil)}, false},
		"waiting for its image after a kill":     {looks{waiting("ContainerCreating", at(0))}, false},
		"killed for the first time":              {looks{terminated(at(0), nil)}, false},
		"killed twice in a row":                  {looks{terminated(at(0), at(-3))}, true},
		"killed again after a day":               {looks{terminated(at(0), at(-24*60))}, false},
		"killed after an error":                  {looks{terminated(at(0), ended("Error", noon))}, false},
		"a healthy restart after one kill":       {looks{running(at(0)), running(at(0)), running(at(0))}, false},
		"runs, two kills in ten minutes":         {looks{running(at(-2)), running(at(1))}, false},
		"runs, three kills in ten minutes":       {looks{running(at(-2)), running(at(1)), running(at(2))}, true},
		"runs, three kills of which one is old":  {looks{running(at(-20)), running(at(1)), running(at(2))}, false},
		"three ends of which one is an error":    {looks{running(at(-2)), running(ended("Error", noon)), running(at(2))}, false},
		"kills whose time is unknown":            {looks{running(never), running(never), running(never)}, false},
		"the same kill seen while down, and up":  {looks{terminated(at(0), nil), running(at(0)), running(at(0))}, false},
		"a loop that runs again for a minute":    {looks{waiting("CrashLoopBackOff", at(0)), running(at(0))}, true},
		"a node whose clock is hours ahead, one": {looks{running(ended("OOMKilled", noon.Add(9*time.Hour)))}, false},
	} {
		if track, _ := seen(c.looks...); track.loop != c.want {
			t.Errorf("%s: loop %v, want %v: %+v", name, track.loop, c.want, track)
		}
	}
}

func TestALoopIsOverWhenThereWasNoKillForTenMinutes(t *testing.T) {
	looks := []corev1.ContainerStatus{waiting("CrashLoopBackOff", ended("OOMKilled", noon))}
	for range 10 {
		looks = append(looks, running(ended("OOMKilled", noon)))
	}
	if track, now := seen(looks...); !track.loop {
		t.Errorf("the loop is over after %v", now.Sub(noon))
	}
	if track, now := seen(append(looks, looks[1])...); track.loop || len(track.kills) != 0 {
		t.Errorf("after %v: %+v, want it over and its kills forgotten", now.Sub(noon), track)
	}
}

func TestAContainerIsForgottenWithItsPodAndItsKillsAreBounded(t *testing.T) {
	p := pod("web-1", "node")
	p.Spec.Containers = []corev1.Container{{Name: "web"}}
	w := &updater.Workload{Pods: []corev1.Pod{p}}
	loops := oomLoops{}
	for i := range 200 {
		at := noon.Add(time.Duration(i) * time.Second)
		w.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{running(ended("OOMKilled", at))}
		loops.look(at, w)
	}
	if track := loops[oomKey{p.UID, "web"}]; track == nil || len(track.kills) != oomKept {
		t.Fatalf("%+v, want %d kills", track, oomKept)
	}
	w.Pods = nil
	if loops.look(noon, w); len(loops) != 0 {
		t.Errorf("%d containers are remembered", len(loops))
	}
}

// A kubelet that is slow with a resize lets the container be killed at its old size
// many times. Only a kill at the new size says that this is too small as well.
func TestOnlyAKillAtTheNewSizeAsksForMore(t *testing.T) {
	track := &oomTrack{pod: "web-1", container: "web"}
	loops := oomLoops{oomKey{"uid", "web"}: track}
	const small, large = 128 * mdp.MiB, 228 * mdp.MiB
	look := func(second int, spec mdp.Bytes, settled bool) {
		at := noon.Add(time.Duration(second) * time.Second)
		track.look(at, waiting("CrashLoopBackOff", ended("OOMKilled", at.Add(-time.Second))), spec, small, settled)
	}
	look(0, small, true)
	if got := loops.least("web"); got != large {
		t.Fatalf("at least %v after the first kill, want %v", got, large)
	}
	for i := 1; i < 5; i++ {
		if look(20*i, large, false); loops.least("web") != large || len(loops.fresh("web")) != 0 {
			t.Fatalf("at least %v and kills %v after a kill at the old size, want %v and none",
				loops.least("web"), loops.fresh("web"), large)
		}
	}
	if look(200, large, true); loops.least("web") != 328*mdp.MiB || loops.fresh("web")["uid"] != (killed{1, large}) {
		t.Errorf("at least %v and kills %v after a kill at the new size, want 328Mi and one",
			loops.least("web"), loops.fresh("web"))
	}
	if track.began != small {
		t.Errorf("the loop began at %v, want the %v that was in force for certain", track.began, small)
	}
}
