package calibrate

import (
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim/perfmodel"
)

// Constants of the method. None comes from the measurements of one application.
const (
	idle       = 0.9985 // share of the offered rate above which a window counts as unsaturated
	overloaded = 0.99   // share below which it counts as saturated
	collapsed  = 0.8    // share below which clients give up so often that Little's law around the loop is blurred
	prior      = 0.3    // weight of log(spread/ln 100)^2 against the mean absolute log error of many rows
	few        = 100    // rows at which that weight is doubled
	kernel     = 0.15   // width of the local correction, in root mean square log allocation
	shrink     = 1.0    // neighbours' worth of evidence for no correction
	neighbours = 20
)

// loopModel predicts the p99 of an application under a closed loop of clients.
type loopModel struct {
	client  perfmodel.Loop
	fitted  int // rows that the spread was fitted with
	refused int // saturated rows whose p99 is below their own mean, as the law gives it; not fitted with
	local   []neighbour
}

// neighbour is a fitting row, as the local correction sees it.
type neighbour struct {
	at       []float64
	residual float64 // log of measured over predicted p99
}

// fitLoop fits the client to the rows.
//
//  1. The offered rate is the highest rate seen (its 99th percentile), mean and p99 of the unsaturated mode are medians
//     over the windows that reach it.
//  2. In saturated windows the mean rises with n/rate - n/offered (perfmodel.Response): the median slope is the clients n.
//  3. p99 over mean of that waiting starts from an exponential distribution's ln 100 and is moved by the rows; the
//     ceiling is the highest p99 seen (its 99.5th percentile). A row whose p99 is below the mean that the law gives it
//     is not a percentile of the same requests, so it takes no part in this step; it is still predicted when held out.
//  4. What is left is corrected locally: close to fitted allocations at like predicted latency, fading to nothing away
//     from them.
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

// clients takes half a window's worth of requests when nothing is saturated: what waits on average when a deficit builds
// up evenly over the window.
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

// mean is the mean latency, in seconds, that the law gives a window.
func (m *loopModel) mean(w Window) float64 {
	return perfmodel.Response(m.client.Clients, w.Rate(), m.client.Think, m.client.Alone)
}

// mechanism is the p99 in ms of the closed loop alone, without the local correction.
func (m *loopModel) mechanism(w Window) float64 { return 1000 * m.client.P99(w.Rate()) }

// place is where a window lies: its log allocations, and half its log predicted p99, so that neighbours are in the same
// mode. Allocations below a hundredth of a core count as that.
func (m *loopModel) place(w Window) []float64 {
	at := make([]float64, 0, len(w.Alloc)+1)
	for _, a := range w.Alloc {
		at = append(at, math.Log(max(a, 0.01))/math.Sqrt(float64(len(w.Alloc))))
	}
	return append(at, 0.5*math.Log(m.mechanism(w)))
}

// p99 is the prediction in ms.
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

// square is the squared distance, or something at least limit once that is passed.
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

// demands bounds what a request needs of each service, in ms of CPU: in an unsaturated window the service kept up with
// the rate, so its demand was at most allocation/rate. The 1st percentile over those windows leaves out windows whose
// allocation changed half way.
func demands(rows []Window, services []string, client perfmodel.Loop) map[string]*float64 {
	calm := keep(rows, func(w Window) bool { return w.Rate() >= client.Offered()*idle })
	out := map[string]*float64{}
	for i, s := range services {
		out[s] = figure(1000 * quantile(0.01, column(calm, func(w Window) float64 { return w.Alloc[i] / w.Rate() })))
	}
	return out
}
