package main

import (
	"path/filepath"
	"testing"
	"time"

	"awarescale.dev/aware/learner/experience/trajectory"
	"awarescale.dev/aware/learner/mdp"
)

// What central records is stored in whole episodes, and a restart continues
// with higher numbers.
func TestTransitionsAreStoredInEpisodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trajectories.db")
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	const workload = "shop/Deployment/web"
	record := func(n int) {
		e := newEpisodes(10*time.Second, func() time.Time { return now })
		if err := e.open(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		e.Record(workload, mdp.Transition{RewardKnown: true, Reward: 1}, true) // without the lease nothing is recorded
		e.learning.Store(true)
		for range n {
			before := now
			now = now.Add(10 * time.Second)
			e.Record(workload, mdp.Transition{
				State: mdp.State{At: before}, Next: mdp.State{At: now}, RewardKnown: true, Reward: 1, Effect: mdp.Applied,
			}, true)
		}
		if mean, _, _, ok := e.Rewards(workload); !ok || mean != 100 {
			t.Errorf("mean reward %v, %v; want 100", mean, ok)
		}
		if err := e.close(); err != nil {
			t.Fatal(err)
		}
	}
	record(150)
	record(100)
	store, err := trajectory.OpenSQLite(t.Context(), path, trajectory.Buffering{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rewards, err := store.Rewards(t.Context(), workload, 10)
	if err != nil || len(rewards) != 2 || rewards[0] != 100 || rewards[1] != 100 {
		t.Errorf("complete episodes are worth %v, %v; want 100 and 100", rewards, err)
	}
	n := 0
	for _, err := range store.Transitions(t.Context(), workload, 1000) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 250 {
		t.Errorf("%d transitions, want all 250: the second process must not overwrite the first", n)
	}
}

func TestAStoreThatCannotBeOpenedIsNamed(t *testing.T) {
	e := newEpisodes(10*time.Second, time.Now)
	if err := e.open(t.Context(), filepath.Join(t.TempDir(), "no", "folder", "t.db")); err == nil {
		t.Error("it opened")
	}
	if err := e.close(); err != nil {
		t.Error(err)
	}
}
