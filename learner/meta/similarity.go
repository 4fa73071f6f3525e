package meta

import (
	"fmt"
	"math"
	"slices"
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

// Familiar is the embeddings of the workloads that a meta-learner was trained on.
type Familiar struct {
	Names      []string
	Embeddings [][]float64

	usual float64 // similarity to the nearest other one, that all but a twentieth of them reach
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
	nearest := make([]float64, len(names))
	for i, e := range embeddings {
		_, nearest[i] = f.nearest(e, i)
		if math.IsNaN(nearest[i]) {
			return nil, fmt.Errorf("workload %s: its embedding is like none, not even itself: it must not be zero", names[i])
		}
	}
	slices.Sort(nearest)
	f.usual = nearest[len(nearest)/20]
	return f, nil
}

// nearest is the most similar workload other than one, or of all for -1.
func (f *Familiar) nearest(e []float64, other int) (at int, similarity float64) {
	at, similarity = -1, math.NaN()
	for i, known := range f.Embeddings {
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
	at, s := f.nearest(embedding, -1)
	if math.IsNaN(s) {
		return Judgement{}, false
	}
	return Judgement{Nearest: f.Names[at], Similarity: s, Usual: f.usual, Outside: s < f.usual}, true
}
