package aware

import (
	"slices"
	"testing"

	"awarescale.dev/aware/learner/mdp"
)

// ownedWorlds is the bounds of workloads of central's setting, and the states in which they begin.
func ownedWorlds(t *testing.T, n int) (bounds []mdp.Bounds, begin []mdp.State, worlds []Workload) {
	t.Helper()
	setting := Published
	setting.Central = true
	for i := range n {
		w, err := Of(i)
		if err != nil {
			t.Fatal(err)
		}
		world, err := setting.World(w)
		if err != nil {
			t.Fatal(err)
		}
		s, err := world.Reset(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		bounds, begin, worlds = append(bounds, world.Spaces().Bounds), append(begin, s), append(worlds, w)
	}
	return bounds, begin, worlds
}

// Owners give all kinds of bounds, and a workload always has the same ones. It begins within them, with as much CPU as it would
// have without. Many may not be scaled, and of many the lower bound is the upper one, nearly.
func TestOwnersGiveAllKindsOfBounds(t *testing.T) {
	const n = 200
	bounds, begin, worlds := ownedWorlds(t, n)
	again, _, _ := ownedWorlds(t, 20)
	if !slices.Equal(again, bounds[:20]) {
		t.Error("the same workloads have other bounds")
	}
	count := map[string]int{}
	for i, b := range bounds {
		s := begin[i]
		if err := b.Check(); err != nil {
			t.Errorf("%s: %v", worlds[i].Name(), err)
		}
		if !b.Replicas.Has(s.Replicas) || !b.Memory.Has(s.Limit.Memory) || !b.CPU.Has(s.Reservation) {
			t.Errorf("%s begins with %d replicas of %dm and %d MiB, within %v", worlds[i].Name(), s.Replicas, s.Reservation,
				s.Limit.Memory/mdp.MiB, b)
		}
		app, err := worlds[i].App.Deployment(mdp.Rate(worlds[i].Trace.Mean()))
		if err != nil {
			t.Fatal(err)
		}
		free := app.Services[0]
		if has, had := int(s.Reservation)*s.Replicas, int(free.Size.CPU)*free.Replicas; has < had {
			t.Errorf("%s begins with %dm in all, and with %dm where bounds hold nothing back", worlds[i].Name(), has, had)
		}
		for what, is := range map[string]bool{
			"below a core": b.CPU.Max < 1000, "above eight cores": b.CPU.Max > 8000, "above half a gigabyte": b.Memory.Max > 512*mdp.MiB,
			"at most half a gigabyte": b.Memory.Max <= 512*mdp.MiB, "not scaled": b.Replicas.Min == b.Replicas.Max,
			"two replicas at least": b.Replicas.Min == 2 && b.Replicas.Max > 2, "three replicas at most": b.Replicas.Max == 3,
			"ten replicas": b.Replicas.Max == 10, "a tenth of a core": b.CPU.Min <= 100, "hardly free": b.CPU.Min > b.CPU.Max/2,
			"with hardly free memory": b.Memory.Min > b.Memory.Max/2,
		} {
			if is {
				count[what]++
			}
		}
	}
	for what, n := range count {
		if n < 5 {
			t.Errorf("%s: %d workloads", what, n)
		}
	}
	if len(count) != 11 {
		t.Errorf("%v", count)
	}
}

// The paper's form has the bounds that hold nothing back.
func TestOnlyCentralsWorldsHaveOwners(t *testing.T) {
	w, err := Of(0)
	if err != nil {
		t.Fatal(err)
	}
	app, err := w.App.Deployment(mdp.Rate(w.Trace.Mean()))
	if err != nil {
		t.Fatal(err)
	}
	world, err := Published.World(w)
	if err != nil {
		t.Fatal(err)
	}
	got, want := world.Spaces().Bounds, app.Services[0].Bounds
	for k := range mdp.LimitKnobs.Signals() {
		if got.Knob(k) != want.Knob(k) {
			t.Errorf("%v: %v, want %v", k, got.Knob(k), want.Knob(k))
		}
	}
}
