package calibrate

import (
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// Constants of the method. They are not fitted to an application.
const (
	idle       = 0.9985 // share of the offered rate above which a window is unsaturated
	overloaded = 0.99   // share below which a window is saturated
	collapsed  = 0.8    // share below which many clients time out, so that Little's law for the loop is inexact
	prior      = 0.3    // weight of log(spread/ln 100)^2 against the mean absolute log error of many rows
	few        = 100    // number of rows at which that weight is doubled
	kernel     = 0.15   // width of the local correction, in root mean square log allocation
	shrink     = 1.0    // weight of "no correction", in neighbours
	neighbours = 20
)

// loopModel predicts the p99 of an application with a closed loop of clients.
type loopModel struct {
	client  perfmodel.Loop
	fitted  int // number of rows used to fit the spread
	refused int // number of saturated rows with a p99 below the mean of the model; not used for fitting
	local   []neighbour
}

// neighbour is a fitted row in the local correction.
type neighbour struct {
	at       []float64 // see place
	residual float64   // log of measured / predicted p99
}

// fitLoop fits the client to the rows.
//
//  1. The offered rate is the highest observed rate (the 99th percentile). Mean
//     and p99 of the unsaturated mode are medians over the windows that reach
//     it.
//  2. In saturated windows the mean rises with n/rate - n/offered
//     (perfmodel.Response): the median slope is the clients n.
//  3. The ratio p99 / mean of that waiting starts at ln 100, the value of an
//     exponential distribution, and is fitted to the rows. The ceiling is the
//     highest observed p99 (the 99.5th percentile). A row with a p99 below the
//     mean of the model is not a percentile of the same requests, so this step
//     does not use it. It is still predicted when it is held out.
//  4. A local correction reduces the remaining error. It is largest near fitted
//     allocations with a similar predicted latency, and goes to zero far from
//     them.
func fitLoop(rows []Window) *loopModel {
	m := &loopModel{}
	offered := quantile(0.99, column(rows, Window.Rate))
	m.quiet(rows, offered)
	m.clients(rows, offered)
	m.tail(rows, offered)
	for _, w := range rows {
		m.local = append(m.local, neighbour{m.place(w), math.Log(w.P99 / m.mechanism(w))})
	}
	return m
}

func column(rows []Window, value func(Window) float64) []float64 {
	out := make([]float64, len(rows))
	for i, w := range rows {
		out[i] = value(w)
	}
	return out
}

func keep(rows []Window, wanted func(Window) bool) []Window {
	var out []Window
	for _, w := range rows {
		if wanted(w) {
			out = append(out, w)
		}
	}
	return out
}

func (m *loopModel) quiet(rows []Window, offered float64) {
	calm := keep(rows, func(w Window) bool { return w.Rate() >= offered*idle })
	m.client.Alone = median(column(calm, func(w Window) float64 { return w.Mean })) / 1000
	m.client.Quiet = median(column(calm, func(w Window) float64 { return w.P99 })) / 1000
}

// clients fits the number of clients. Without saturated windows it is half the
// requests of a window: the mean number of waiting requests when a deficit
// grows evenly over the window.
func (m *loopModel) clients(rows []Window, offered float64) {
	busy := keep(rows, func(w Window) bool { return w.Rate() < offered*overloaded && w.Rate() > offered*collapsed })
	cycle := median(column(rows, func(w Window) float64 { return w.Length })) / 2
	if len(busy) > 0 {
		cycle = median(column(busy, func(w Window) float64 { return (w.Mean/1000 - m.client.Alone) / (offered/w.Rate() - 1) }))
	}
	cycle = max(cycle, m.client.Alone)
	m.client.Clients = cycle * offered
	m.client.Think = cycle - m.client.Alone
}

func (m *loopModel) tail(rows []Window, offered float64) {
	m.client.Ceiling = max(quantile(0.995, column(rows, func(w Window) float64 { return w.P99 }))/1000, 2*m.client.Quiet)
	busy := keep(rows, func(w Window) bool { return w.Rate() < offered*0.998 && w.P99 > 1500*m.client.Quiet })
	saturated := len(keep(rows, func(w Window) bool { return w.Rate() < offered*overloaded }))
	sound := keep(busy, func(w Window) bool { return w.P99 >= 1000*m.mean(w) })
	consistent := len(keep(sound, func(w Window) bool { return w.Rate() < offered*overloaded }))
	m.fitted, m.refused = len(sound), saturated-consistent
	best := math.Inf(1)
	for i := range 201 {
		trial := m.client
		trial.Spread = math.Pow(30, float64(i)/200)
		if c := tailCost(trial, sound); c < best {
			best, m.client.Spread = c, trial.Spread
		}
	}
}

func tailCost(c perfmodel.Loop, rows []Window) float64 {
	away := math.Log(c.Spread / perfmodel.Exponential)
	if len(rows) == 0 {
		return away * away
	}
	cost := prior * (1 + few/float64(len(rows))) * away * away
	for _, w := range rows {
		cost += math.Abs(math.Log(w.P99/(1000*c.P99(w.Rate())))) / float64(len(rows))
	}
	return cost
}

// mean is the mean latency of a window in seconds, from the response-time law.
func (m *loopModel) mean(w Window) float64 {
	return perfmodel.Response(m.client.Clients, w.Rate(), m.client.Think, m.client.Alone)
}

// mechanism is the p99 in ms from the closed loop, without the local
// correction.
func (m *loopModel) mechanism(w Window) float64 { return 1000 * m.client.P99(w.Rate()) }

// place is the coordinates of a window: its log allocations, and half its log
// predicted p99, so that neighbours are in the same mode. The lowest allocation
// is 0.01 core.
func (m *loopModel) place(w Window) []float64 {
	at := make([]float64, 0, len(w.Alloc)+1)
	for _, a := range w.Alloc {
		at = append(at, math.Log(max(a, 0.01))/math.Sqrt(float64(len(w.Alloc))))
	}
	return append(at, 0.5*math.Log(m.mechanism(w)))
}

// p99 is the predicted p99 in ms, with the local correction.
func (m *loopModel) p99(w Window) float64 {
	return m.mechanism(w) * math.Exp(m.correction(m.place(w)))
}

type distant struct{ square, residual float64 }

func (m *loopModel) correction(at []float64) float64 {
	near := make([]distant, 0, neighbours+1)
	for _, n := range m.local {
		limit := math.Inf(1)
		if len(near) == neighbours {
			limit = near[neighbours-1].square
		}
		d := square(at, n.at, limit)
		if d >= limit {
			continue
		}
		i, _ := slices.BinarySearchFunc(near, d, func(a distant, d float64) int { return compare(a.square, d) })
		near = slices.Insert(near, i, distant{d, n.residual})
		near = near[:min(len(near), neighbours)]
	}
	sum, weight := 0.0, shrink
	for _, n := range near {
		w := math.Exp(-n.square / (2 * kernel * kernel))
		sum, weight = sum+w*n.residual, weight+w
	}
	return sum / weight
}

// square is the squared distance. When it is above limit, the result is any
// value of at least limit.
func square(a, b []float64, limit float64) float64 {
	d := 0.0
	for i := range a {
		d += (a[i] - b[i]) * (a[i] - b[i])
		if d >= limit {
			break
		}
	}
	return d
}

// demands is an upper bound for the demand of a request on each service, in ms
// of CPU. In an unsaturated window the service serves the whole rate, so its
// demand is at most allocation/rate. The 1st percentile over these windows
// excludes windows in which the allocation changed.
func demands(rows []Window, services []string, client perfmodel.Loop) map[string]*float64 {
	calm := keep(rows, func(w Window) bool { return w.Rate() >= client.Offered()*idle })
	out := map[string]*float64{}
	for i, s := range services {
		out[s] = figure(1000 * quantile(0.01, column(calm, func(w Window) float64 { return w.Alloc[i] / w.Rate() })))
	}
	return out
}
