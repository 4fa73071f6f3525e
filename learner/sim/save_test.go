package sim_test

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
	"awarescale.dev/aware/learner/sim/simtest"
	"awarescale.dev/aware/learner/sim/workload"
)

// stage is a world with its sensors, and what they have shown.
type stage struct {
	w       *sim.World
	sensors []mdp.Sensor
	shown   strings.Builder
}

func newStage(w *sim.World) *stage {
	s := &stage{w: w}
	for _, h := range w.Services() {
		s.sensors = append(s.sensors, h.Sensor())
	}
	return s
}

// play runs a part of the story in which every path acts, replicas come and go,
// and a container has too little memory. It ends within a second, when actions
// have been taken that are not in effect yet.
func (s *stage) play(t *testing.T, from, until int) {
	t.Helper()
	for i := from; i < until; i++ {
		s.w.Advance(3700 * time.Millisecond)
		s.show(t)
		hs := s.w.Services()
		h := hs[i%len(hs)]
		state, err := h.Sensor().Sense(t.Context(), s.w.Now())
		if err != nil {
			t.Fatal(err)
		}
		switch i % 6 {
		case 0:
			s.act(t, h, sim.L0, mdp.Action{}.WithCPU(state.Limit.CPU*3/4))
		case 1:
			for k := range 5 * len(hs) { // more calls than the nodes' agents have
				s.act(t, hs[k%len(hs)], sim.L1, mdp.Action{}.WithCPU(max(20, state.Limit.CPU/2)+mdp.MilliCPU(k)))
			}
			s.act(t, h, sim.L0, mdp.Action{}.WithCPU(state.Limit.CPU*3/4))
		case 2:
			s.act(t, h, sim.L2, mdp.Action{}.WithCPU(state.Limit.CPU*2))
		case 3:
			for k, h := range hs {
				s.act(t, h, sim.L2, mdp.Action{}.WithReplicas(1+(i/3+k)%4))
			}
		case 4: // too little: it is killed
			s.act(t, h, sim.L2, mdp.Action{}.WithMemory(h.Bounds().Memory.Min))
		case 5:
			s.act(t, h, sim.L2, mdp.Action{}.WithMemory(h.Bounds().Memory.Max))
		}
	}
}

// act tries a few times, as a call may fail.
func (s *stage) act(t *testing.T, h sim.Handle, path sim.ActuationPath, a mdp.Action) {
	t.Helper()
	for range 3 {
		executed, effect, err := h.Actuator(path).Act(t.Context(), s.w.Now(), a)
		fmt.Fprintln(&s.shown, executed, effect, err)
		if err == nil {
			return
		}
	}
}

// show writes down all that can be seen of the world, bit for bit.
func (s *stage) show(t *testing.T) {
	t.Helper()
	for _, sensor := range s.sensors {
		state, err := sensor.Sense(t.Context(), s.w.Now())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s.shown, "%#v\n", state)
	}
	latency, ok := s.w.Latency(99)
	overall, _ := s.w.Overall(sim.Snapshot{}, 99)
	fmt.Fprintf(&s.shown, "%#v %#v %v %v %v\n", s.w.Totals(), s.w.Flows(), int64(latency), ok, int64(overall))
}

// restored is the stage after a restore of its world and its sensors.
func (s *stage) restored(t *testing.T, c sim.Config) *stage {
	t.Helper()
	state, err := s.w.Save()
	if err != nil {
		t.Fatal(err)
	}
	w, err := sim.Restore(c, state)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.Save(); err != nil || !bytes.Equal(again, state) {
		t.Errorf("the restored world is saved as other bytes: %v", err)
	}
	other := newStage(w)
	for i := range s.sensors {
		b, err := s.sensors[i].(encoding.BinaryMarshaler).MarshalBinary()
		if err == nil {
			err = other.sensors[i].(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// savedConfigs are worlds of random and of shipped applications, with every kind
// of anomaly, metrics that are late, calls that are slow or fail, and little room.
func savedConfigs(t testing.TB) map[string]sim.Config {
	t.Helper()
	all := map[string]sim.Config{}
	add := func(name string, c sim.Config) {
		c.Seed = 7
		for i := range c.App.Services {
			s := &c.App.Services[i]
			s.Memory = sim.Memory{Base: (s.Bounds.Memory.Min + s.Size.Memory) / 2, PerRequest: mdp.MiB}
		}
		d := &c.Cluster.Delays
		d.Faults = 0.1
		d.Local, d.Busy, d.Resize = 30*time.Millisecond, 90*time.Millisecond, 700*time.Millisecond
		c.Metrics = 5 * time.Second
		for i, kind := range sim.Kinds {
			a := sim.Anomaly{Kind: kind, Intensity: 0.6, From: time.Duration(5*i) * time.Second, To: time.Minute}
			switch kind {
			case sim.WorkloadVariation:
			case sim.NetworkDelay:
				a.Target = c.App.Services[0].Name
			default:
				a.Target = "node-0"
			}
			c.Anomalies = append(c.Anomalies, a)
		}
		c.Fidelity = sim.Fluid
		all[name+", fluid"] = c
		c.Fidelity = sim.Requests
		all[name+", requests"] = c
	}
	for seed := range uint64(3) {
		app, load, _ := simtest.Tree(rand.New(rand.NewPCG(seed, 3)))
		add(fmt.Sprint("tree ", seed), sim.Config{App: app, Load: load, Cluster: sim.Uniform(3, mdp.Size{CPU: 8000, Memory: 1 << 40})})
	}
	for _, name := range workload.Apps() {
		app, err := workload.NamedApp(name)
		if err != nil {
			t.Fatal(err)
		}
		add(name, sim.Config{App: app, Load: sim.Steady(60), Cluster: sim.Uniform(5, mdp.Size{CPU: 32000, Memory: 128 << 30})})
	}
	c := sim.Config{App: web(), Load: sim.Steady(150), Cluster: roomy, Seed: 1, Fidelity: sim.Requests, Connections: 3}
	all["connections"] = c
	return all
}

func TestARestoredWorldGoesOnBitForBit(t *testing.T) {
	for name, c := range savedConfigs(t) {
		t.Run(name, func(t *testing.T) {
			w := start(t, c)
			one := newStage(w)
			one.play(t, 0, 8)
			two := one.restored(t, c)
			one.shown.Reset()
			one.play(t, 8, 16)
			two.play(t, 8, 12)
			three := two.restored(t, c) // a restored world can be saved again
			three.play(t, 12, 16)
			want, got := one.shown.String(), two.shown.String()+three.shown.String()
			if want != got {
				t.Errorf("the restored world goes on differently: %s", difference(want, got))
			}
			plain := newStage(start(t, c))
			plain.play(t, 0, 8)
			plain.shown.Reset()
			plain.play(t, 8, 16)
			if plain.shown.String() != want {
				t.Errorf("saving has changed the world: %s", difference(plain.shown.String(), want))
			}
			if name != "connections" && w.Totals().OOMKills == 0 {
				t.Error("nothing was killed: kills are not under test")
			}
		})
	}
}

// What waits too long is given up: in a restored world too, and at the same time.
func TestARestoredWorldGivesUpWhatItWould(t *testing.T) {
	app := simtest.One(sim.Service{Threads: 1000, Procs: 4, Variation: 0.5, Size: mdp.Size{CPU: 500}}, 10*time.Millisecond, 0)
	back := app.Services[0]
	back.Name = "back"
	app.Services = append(app.Services, back)
	app.Operations[0].Background = []sim.Call{{Operation: "store", Share: 1}}
	app.Operations = append(app.Operations, sim.Operation{Name: "store", Service: "back", Work: 30 * time.Millisecond})
	app.Timeout, app.Within = 5*time.Second, 25*time.Second
	c := sim.Config{App: app, Load: sim.Steady(80), Cluster: roomy, Seed: 1}
	w := start(t, c)
	w.Advance(50*time.Second + 3*sim.Slice)
	if f := w.Flows(); f[0].Failed == 0 || f[1].Failed == 0 {
		t.Fatalf("nothing was given up yet: %+v", f)
	}
	state, err := w.Save()
	if err != nil {
		t.Fatal(err)
	}
	again, err := sim.Restore(c, state)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		w.Advance(sim.Slice)
		again.Advance(sim.Slice)
		if one, two := fmt.Sprintf("%#v", w.Flows()), fmt.Sprintf("%#v", again.Flows()); one != two {
			t.Fatalf("after %v: %s, and in the restored world %s", w.Elapsed(), one, two)
		}
	}
}

// difference is the first line that differs.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d of %d is\n%s\nand must be\n%s", i, len(a), b[i], a[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(b), len(a))
}

func TestAStateOfAnotherWorldIsRefusedByWhatDiffers(t *testing.T) {
	c := sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(20), Seed: 1}
	w := start(t, c)
	w.Advance(5 * time.Second)
	state, err := w.Save()
	if err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(c *sim.Config){
		`application "one"`:                   func(c *sim.Config) { c.App.Services[0].Procs++ },
		"cluster of 4 nodes":                  func(c *sim.Config) { c.Cluster = sim.Uniform(3, mdp.Size{CPU: 1e6, Memory: 1 << 40}) },
		"seed 1: the config has 2":            func(c *sim.Config) { c.Seed = 2 },
		"fidelity 0: the config has 1":        func(c *sim.Config) { c.Fidelity = sim.Requests },
		"window 10s: the config has 20s":      func(c *sim.Config) { c.Window = 20 * time.Second },
		"metrics delay 0s: the config has 1s": func(c *sim.Config) { c.Metrics = time.Second },
		"anomalies 0": func(c *sim.Config) {
			c.Anomalies = []sim.Anomaly{{Kind: sim.WorkloadVariation, To: 1}}
		},
	} {
		other := c
		other.App = web()
		change(&other)
		if _, err := sim.Restore(other, state); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: it must say %q", err, says)
		}
	}
}

func TestADamagedStateIsRefused(t *testing.T) {
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		c := sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(100), Seed: 1, Fidelity: level}
		w := start(t, c)
		w.Advance(5300 * time.Millisecond)
		state, err := w.Save()
		if err != nil {
			t.Fatal(err)
		}
		for end := 0; end < len(state); end += 1 + len(state)/300 {
			if _, err := sim.Restore(c, state[:end]); err == nil {
				t.Errorf("%d bytes of %d were restored", end, len(state))
			}
			if _, err := sim.Restore(c, sealed(state[:end])); err == nil {
				t.Errorf("%d bytes of %d with a checksum were restored", end, len(state))
			}
			changed := bytes.Clone(state)
			changed[end] ^= 4
			if _, err := sim.Restore(c, changed); err == nil {
				t.Errorf("byte %d was changed, and the state was restored", end)
			}
		}
	}
}

// sealed gives bytes the checksum of a saved world.
func sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Whatever bytes are restored, with a right checksum too: it is an error, or a
// world that is saved as no more bytes than that.
func FuzzRestore(f *testing.F) {
	configs := make([]sim.Config, 0, 2)
	for _, level := range []sim.Fidelity{sim.Fluid, sim.Requests} {
		c := sim.Config{App: web(), Cluster: roomy, Load: sim.Steady(100), Seed: 1, Fidelity: level}
		configs = append(configs, c)
		w := start(f, c)
		for _, d := range []time.Duration{0, 5300 * time.Millisecond} {
			w.Advance(d)
			state, err := w.Save()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(state[:len(state)-4])
			f.Add(state[:len(state)/2])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range configs {
			w, err := sim.Restore(c, sealed(b))
			if err != nil {
				continue
			}
			if again, err := w.Save(); err != nil || len(again) > len(b)+4 {
				t.Fatalf("%d bytes were restored and saved as %d: %v", len(b), len(again), err)
			}
		}
	})
}
