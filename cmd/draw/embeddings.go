package draw

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"

	"awarescale.dev/aware/learner/bench/aware"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// EmbeddingsData is what the report on embeddings says, for a program.
func EmbeddingsData(fig aware.Embedding, all []aware.Embedded) map[string]any {
	return map[string]any{"made": fig, "foretold": aware.Foretell(all), "repetitions": all}
}

// Embeddings writes index.html and embedding.json.
func Embeddings(dir string, fig aware.Embedding, all []aware.Embedded) error {
	var drops, episodes plotter.XYs
	for _, one := range all {
		for _, p := range one.Pairs {
			if drop, ok := p.Retraining.Drop(); ok {
				drops = append(drops, plotter.XY{X: p.Similarity, Y: 100 * drop})
				episodes = append(episodes, plotter.XY{X: p.Similarity, Y: float64(p.Retraining.Episodes())})
			}
		}
	}
	var pictures []Picture
	for _, c := range []struct {
		title, y string
		points   plotter.XYs
	}{{"reward that is missing at first", "%", drops}, {"episodes of retraining", "until it has converged", episodes}} {
		if len(c.points) == 0 {
			continue
		}
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, "similarity of the embeddings", c.y
		dots, err := plotter.NewScatter(c.points)
		if err != nil {
			return fmt.Errorf("drawing %s: %w", c.title, err)
		}
		dots.Color = Ink(0)
		p.Add(plotter.NewGrid(), dots)
		picture, err := Render(p)
		if err != nil {
			return err
		}
		pictures = append(pictures, picture)
	}
	var table bytes.Buffer
	if err := PrintEmbeddings(&table, all); err != nil {
		return err
	}
	return Write(dir, "embedding.json", EmbeddingsData(fig, all), Page{
		Title: "What embeddings foretell",
		About: "Each point is a policy of one workload in another one that it has not seen. Intervals are 95 % ones over the " +
			"repetitions.",
		Pictures: pictures,
		Text:     table.String(),
	})
}

// PrintEmbeddings prints what embeddings foretell as a table.
func PrintEmbeddings(out io.Writer, all []aware.Embedded) error {
	f := aware.Foretell(all)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "pairs of workloads\t%d\n", f.Pairs)
	fmt.Fprintf(w, "rank correlation of similarity and lost reward\t%s\n", said(f.Drop, 1, ""))
	fmt.Fprintf(w, "rank correlation of similarity and episodes of retraining\t%s\n", said(f.Episodes, 1, ""))
	fmt.Fprintf(w, "unseen workloads that are said to be unlike those of the training\t%s\n", said(f.Outside, 100, " %"))
	fmt.Fprintf(w, "the same under pulses of load, which no training has\t%s\n", said(f.Odd, 100, " %"))
	return w.Flush()
}
