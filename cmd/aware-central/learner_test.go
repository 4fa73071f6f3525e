package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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
		var deciding atomic.Bool
		e := newEpisodes(10*time.Second, func() time.Time { return now }, &deciding)
		if err := e.open(t.Context(), storeIn(t, path)); err != nil {
			t.Fatal(err)
		}
		e.Record(workload, mdp.Transition{RewardKnown: true, Reward: 1}, true) // without the lease nothing is recorded
		deciding.Store(true)
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
	e := newEpisodes(10*time.Second, time.Now, new(atomic.Bool))
	err := e.open(t.Context(), storeIn(t, filepath.Join(t.TempDir(), "no", "folder", "t.db")))
	if err == nil || !strings.Contains(err.Error(), "flag --trajectory-store") {
		t.Error("it opened, or the flag is not named:", err)
	}
	if err := e.close(); err != nil {
		t.Error(err)
	}
}

// storeIn is a store in a file, as --trajectory-store names it.
func storeIn(t *testing.T, path string) storeAt {
	t.Helper()
	at, err := (&settings{roles: allRoles, trajectories: path}).storeFlags()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// The store may be an InfluxDB: what is recorded goes there, with the token of a file, and what was learned into the folder.
func TestTheStoreMayBeAnInfluxDB(t *testing.T) {
	var wrote, token atomic.Value
	influx := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line, _ := io.ReadAll(r.Body)
		wrote.Store(r.URL.String() + " " + string(line))
		token.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNoContent)
	}))
	defer influx.Close()
	dir := t.TempDir()
	secret, agents := filepath.Join(dir, "token"), filepath.Join(dir, "agents")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := (&settings{
		roles: allRoles, trajectories: influx.URL + "/aware?bucket=pods&org=shop", secretFile: secret, agentsFolder: agents,
	}).storeFlags()
	if err != nil {
		t.Fatal(err)
	}
	var deciding atomic.Bool
	deciding.Store(true)
	e := newEpisodes(10*time.Second, time.Now, &deciding)
	if err := e.open(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	e.Record(learnedWorkload, mdp.Transition{RewardKnown: true, Reward: 1}, true)
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	text, _ := wrote.Load().(string)
	for _, want := range []string{"/api/v2/write?bucket=pods&org=shop", "workload=" + learnedWorkload} {
		if !strings.Contains(text, want) {
			t.Errorf("%q was written, without %q", text, want)
		}
	}
	if token.Load() != "Token s3cret" {
		t.Errorf("the token is %v", token.Load())
	}
	if _, err := os.Stat(agents); err != nil {
		t.Error(err)
	}
	if _, err := (storeAt{influx: at.influx, secret: secret + "no"}).open(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "--trajectory-secret-file") {
		t.Errorf("a secret that is not there: %v", err)
	}
}
