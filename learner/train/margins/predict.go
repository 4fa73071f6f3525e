package margins

import (
	"cmp"
	"math"
	"slices"
)

// Survey is workloads in which margins were tried, in an hour of each ([Common]), and what each of them is like. A workload of
// which nothing was learned is given what suits those that are most like it.
type Survey struct {
	Parts      []Part      // the first one is no margin
	Embeddings [][]float64 // of the workloads, in the order of the hours
	// Alike is how similar two embeddings are: more is more. NaN is of one of which nothing is known.
	Alike func(a, b []float64) float64
}

// Predict is the index of the part that [Choose] takes for the n workloads that are most like an embedding. Where nothing is
// known of it that is the first one.
func (s Survey) Predict(embedding []float64, n int) int { return s.predict(embedding, n, -1) }

// predict leaves one of the workloads out; -1 is none.
func (s Survey) predict(embedding []float64, n, out int) int {
	type neighbour struct {
		workload int
		alike    float64
	}
	var near []neighbour
	for k, e := range s.Embeddings {
		if alike := s.Alike(embedding, e); k != out && !math.IsNaN(alike) {
			near = append(near, neighbour{k, alike})
		}
	}
	slices.SortStableFunc(near, func(a, b neighbour) int { return cmp.Compare(b.alike, a.alike) })
	parts := make([]Part, len(s.Parts))
	for i, p := range s.Parts {
		parts[i].Level = p.Level
		for _, one := range near[:min(n, len(near))] {
			parts[i].add(p, one.workload)
		}
		parts[i].sum()
	}
	return Choose(parts)
}

// add adds an hour of another part.
func (p *Part) add(of Part, hour int) {
	p.Hours = append(p.Hours, of.Hours[hour])
	p.late, p.over = append(p.late, of.late[hour]), append(p.over, of.over[hour])
}

// Mixed is how workloads do when each has a part of its own: which has an index for each hour.
func Mixed(parts []Part, which []int) Part {
	var m Part
	for hour, i := range which {
		m.add(parts[i], hour)
	}
	m.sum()
	return m
}

// Neighbours are the numbers of workloads that [Survey.Learn] tries to ask.
var Neighbours = []int{10, 20, 40, 80}

// Learn is how many workloads to ask, found by asking for each of them all the others: the number that [Choose] takes, 0 where no
// margin at all is as good. tried is no margin, and what comes of each of [Neighbours].
func (s Survey) Learn() (n int, tried []Part) {
	which := make([]int, len(s.Embeddings))
	tried = []Part{Mixed(s.Parts, which)}
	for _, n := range Neighbours {
		for k, e := range s.Embeddings {
			which[k] = s.predict(e, n, k)
		}
		tried = append(tried, Mixed(s.Parts, which))
	}
	if best := Choose(tried); best > 0 {
		n = Neighbours[best-1]
	}
	return n, tried
}

// Best is what would come of knowing each hour before: of the parts that miss no more than they may, or than the first one, the
// one with the fewest cores. No prediction can be better.
func Best(parts []Part) Part {
	which := make([]int, len(parts[0].Hours))
	for hour := range which {
		for i := range parts {
			p, now := &parts[i], &parts[which[hour]]
			if p.Hours[hour] < now.Hours[hour] && (!p.breaks(hour) || parts[0].breaks(hour)) {
				which[hour] = i
			}
		}
	}
	return Mixed(parts, which)
}
