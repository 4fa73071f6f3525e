package corrections

import (
	"context"
	"math"

	"awarescale.dev/aware/learner/bench"
	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// price is what a window that breaks the SLO costs, in logarithms of cores: a point of the windows is worth 3 % of the
// cores. Riding nearer at the edge does not pay: in social-network a lower level saves nothing within the hour. The price
// is not neutral: DQN learned to buy a point for 1.7 % (docs/bench.md).
const price = 3

// judge rewards windows of ten seconds of a whole application.
type judge struct {
	world  *sim.World
	slo    mdp.SLO
	sensor mdp.Sensor // of any service: how requests fared is the application's
	last   sim.Totals
}

// newJudge begins at the end of a window.
func newJudge(w *sim.World, slo mdp.SLO) *judge {
	return &judge{world: w, slo: slo, sensor: w.Services()[0].Sensor(), last: w.Totals()}
}

// window is the reward of the window that ends now; ok is false where it cannot be judged.
func (j *judge) window(ctx context.Context) (r float64, ok bool, err error) {
	one, err := j.sensor.Sense(ctx, j.world.Now())
	if err != nil {
		return 0, false, err
	}
	s := one.Mask(mdp.SetOf(mdp.Latency, mdp.Missed, mdp.Lost, mdp.BackgroundLate))
	now, was := j.world.Totals(), j.last
	j.last = now
	seconds := bench.Window.Seconds()
	mdp.Arrivals.Set(&s, (now.Requests-was.Requests)/seconds)
	mdp.Throughput.Set(&s, math.Max(0, now.Ended-now.Lost-was.Ended+was.Lost)/seconds)
	mdp.OOMKills.Set(&s, float64(now.OOMKills-was.OOMKills))
	used, cores := now.Used-was.Used, now.Allocated-was.Allocated+now.Acting-was.Acting
	sp, ok := j.slo.Preservation(s)
	if !ok || used <= 0 || cores <= 0 {
		return 0, false, nil
	}
	if r = math.Log(used / cores); sp < 1 {
		r -= price
	}
	return r, true, nil
}
