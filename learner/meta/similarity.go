package meta

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Similarity is FLASH's of two embeddings, (1 - distance + cosine) / 2, in [-0.5, 1]: 1 for equal ones (dissertation §5.6). The
// distance is the Euclidean one over the sum of both norms, and so in [0, 1]; the dissertation does not say how it is normalised.
// With a zero embedding, of which nothing is known, it is NaN.
func Similarity(a, b []float64) float64 {
	var dot, apart, na, nb float64
	for i, v := range a {
		dot += v * b[i]
		apart += (v - b[i]) * (v - b[i])
		na += v * v
		nb += b[i] * b[i]
	}
	na, nb = math.Sqrt(na), math.Sqrt(nb)
	return (1 - math.Sqrt(apart)/(na+nb) + dot/(na*nb)) / 2
}

// Familiar is the embeddings of the workloads that a meta-learner was trained on. It compares embeddings by what sets these
// workloads apart: what all of them have in common says nothing, and makes any two look alike.
type Familiar struct {
	Names      []string
	Embeddings [][]float64

	mean, deviation []float64   // of each number of the embeddings
	apart           [][]float64 // the embeddings, see [Familiar.from]
	usual           float64     // similarity to the nearest other one, that all but a twentieth of them reach
}

// NewFamiliar takes at least two workloads.
func NewFamiliar(names []string, embeddings [][]float64) (*Familiar, error) {
	if len(names) != len(embeddings) || len(names) < 2 {
		return nil, fmt.Errorf("%d names and %d embeddings of workloads: there must be as many, and two at least",
			len(names), len(embeddings))
	}
	for i, e := range embeddings {
		if len(e) != len(embeddings[0]) {
			return nil, fmt.Errorf("workload %s: an embedding of %d numbers: the first one has %d",
				names[i], len(e), len(embeddings[0]))
		}
	}
	f := &Familiar{Names: names, Embeddings: embeddings}
	column := make([]float64, len(names))
	for j := range embeddings[0] {
		for i, e := range embeddings {
			column[i] = e[j]
		}
		mean, deviation := stat.PopMeanStdDev(column, nil)
		f.mean, f.deviation = append(f.mean, mean), append(f.deviation, deviation)
	}
	for i, e := range embeddings {
		f.apart = append(f.apart, f.from(e))
		if f.apart[i] == nil {
			return nil, fmt.Errorf("workload %s: its embedding is like none, not even itself: it must not be zero", names[i])
		}
	}
	nearest := make([]float64, len(names))
	for i, e := range f.apart {
		if _, nearest[i] = f.nearest(e, i); math.IsNaN(nearest[i]) {
			return nil, fmt.Errorf("workload %s: its embedding is the mean of all: they must not be the same", names[i])
		}
	}
	slices.Sort(nearest)
	f.usual = nearest[len(nearest)/20]
	return f, nil
}

// from is an embedding by what sets the workloads of the training apart: from their mean, in their deviations. It is nil for a
// zero embedding, of which nothing is known.
func (f *Familiar) from(e []float64) []float64 {
	if !slices.ContainsFunc(e, func(v float64) bool { return v != 0 }) {
		return nil
	}
	apart := make([]float64, len(e))
	for j, v := range e {
		if f.deviation[j] > 0 { // otherwise it is the same in all of them
			apart[j] = (v - f.mean[j]) / f.deviation[j]
		}
	}
	return apart
}

// Similarity is [Similarity] of two embeddings by what sets the workloads of the training apart. With a zero embedding it is NaN.
func (f *Familiar) Similarity(a, b []float64) float64 {
	a, b = f.from(a), f.from(b)
	if a == nil || b == nil {
		return math.NaN()
	}
	return Similarity(a, b)
}

// nearest is the most similar workload other than one, or of all for -1. e is of [Familiar.from].
func (f *Familiar) nearest(e []float64, other int) (at int, similarity float64) {
	at, similarity = -1, math.NaN()
	for i, known := range f.apart {
		if i == other {
			continue
		}
		if s := Similarity(e, known); s > similarity || math.IsNaN(similarity) {
			at, similarity = i, s
		}
	}
	return at, similarity
}

// Judgement is what is known of a workload by its embedding.
type Judgement struct {
	Nearest    string  // the most similar workload of the training
	Similarity float64 // to it
	Usual      float64 // that 95 % of the training's workloads have to their nearest
	Outside    bool    // less similar than that: what was learned on others may not hold
}

// String says it to people.
func (j Judgement) String() string {
	if j.Outside {
		return fmt.Sprintf("it is unlike the workloads of the training: %.2f to %s, and %.2f is usual",
			j.Similarity, j.Nearest, j.Usual)
	}
	return fmt.Sprintf("it is like %s (%.2f; %.2f is usual)", j.Nearest, j.Similarity, j.Usual)
}

// Judge compares an embedding with those of the training. ok is false for a zero embedding: nothing is known of the workload yet.
func (f *Familiar) Judge(embedding []float64) (j Judgement, ok bool) {
	e := f.from(embedding)
	if e == nil {
		return Judgement{}, false
	}
	at, s := f.nearest(e, -1)
	return Judgement{Nearest: f.Names[at], Similarity: s, Usual: f.usual, Outside: s < f.usual}, true
}
