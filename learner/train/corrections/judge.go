package corrections

import (
	"context"
	"math"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// judge rewards windows of ten seconds of a whole application.
type judge struct {
	world     *sim.World
	objective mdp.Objective
	sensors   []mdp.Sensor // of all services
	last      sim.Totals
}

// newJudge begins at the end of a window.
func newJudge(ctx context.Context, w *sim.World, s Settings) (*judge, error) {
	j := &judge{world: w, objective: mdp.Objective{SLO: s.Cell.App.SLO, Alpha: s.Alpha}, last: w.Totals()}
	for _, h := range w.Services() {
		j.sensors = append(j.sensors, h.Sensor())
	}
	return j, ctx.Err()
}

// window is the reward of the window that ends now; ok is false where it cannot be judged.
func (j *judge) window(ctx context.Context) (r mdp.Reward, ok bool, err error) {
	var s mdp.State
	memory, all := 0.0, true
	for i, sensor := range j.sensors {
		one, err := sensor.Sense(ctx, j.world.Now())
		if err != nil {
			return 0, false, err
		}
		if i == 0 { // how requests fared is the application's, whichever service is asked
			s = one.Mask(mdp.SetOf(mdp.Latency, mdp.Missed, mdp.Lost, mdp.BackgroundLate))
		}
		all = all && one.Knows(mdp.MemoryUsage, mdp.Replicas)
		memory += float64(one.Usage.Memory) * float64(one.Replicas)
	}
	now, was := j.world.Totals(), j.last
	j.last = now
	seconds := bench.Window.Seconds()
	per := func(signal mdp.Signal, sum, unit float64) { signal.Set(&s, sum/seconds*unit) }
	per(mdp.Arrivals, now.Requests-was.Requests, 1)
	per(mdp.Throughput, math.Max(0, now.Ended-now.Lost-was.Ended+was.Lost), 1)
	per(mdp.CPULimit, now.Allocated-was.Allocated+now.Acting-was.Acting, 1000)
	per(mdp.CPUUsage, now.Used-was.Used, 1000)
	per(mdp.MemoryLimit, now.Memory-was.Memory, 1)
	mdp.OOMKills.Set(&s, float64(now.OOMKills-was.OOMKills))
	if all {
		mdp.MemoryUsage.Set(&s, memory)
	}
	r, ok = j.objective.Judge(s)
	return r, ok, nil
}
