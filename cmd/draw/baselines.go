package draw

import (
	"bytes"
	"encoding/json"
	"fmt"

	"awarescale.dev/aware/learner/bench"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Baselines writes index.html, which holds its pictures, and anchors.json into
// a folder.
func Baselines(dir string, rows []bench.Row, seeds int) error {
	var pictures []Picture
	for _, cell := range blocks(rows) {
		for _, c := range []criterion{
			{"p99, ms", cell[0].SLOMS, func(r bench.Row) float64 { return min(r.P99MS, 3*r.SLOMS) }},
			{"windows over the SLO, %", 1, func(r bench.Row) float64 { return 100 * r.Ratio }},
		} {
			p, err := pareto(cell, c)
			if err != nil {
				return err
			}
			pictures = append(pictures, p)
		}
	}
	var table bytes.Buffer
	if err := bench.Print(&table, rows); err != nil {
		return err
	}
	return Write(dir, "anchors.json", map[string]any{"cells": rows}, Page{
		Title: "Policies in the simulated world",
		About: fmt.Sprintf("Mean of allocated cores against both criteria, means of %d seeds. Left and below is better. "+
			"The first is the p99 over the hour: a point above its line violates the objective; it is drawn at three "+
			"times the objective at most. The second is the share of windows of 10 s with a p99 over it; its line is at 1 %%.", seeds),
		Text:     table.String(),
		Pictures: pictures,
	})
}

// Run writes index.html and run.json of one run.
func Run(dir, title string, slo float64, score bench.Score, points []bench.Point) error {
	objective := slo * 1000
	series := func(name string, y func(bench.Point) float64) Line {
		line := Line{Name: name}
		for _, p := range points {
			if v := y(p); v > 0 {
				line.Points = append(line.Points, plotter.XY{X: p.Second / 60, Y: v})
			}
		}
		return line
	}
	var pictures []Picture
	for _, c := range []struct {
		name, unit string
		level      *float64
		lines      []Line
	}{
		{"load", "requests/s", nil, []Line{series("", func(p bench.Point) float64 { return p.Rate })}},
		{"p99, and the objective", "ms", &objective,
			[]Line{series("", func(p bench.Point) float64 { return p.P99 * 1000 })}},
		{"cores", "cores", nil, []Line{
			series("allocated", func(p bench.Point) float64 { return p.Cores }), series("used",
				func(p bench.Point) float64 { return p.Used })}},
	} {
		p, err := Lines(c.name, "minutes", c.unit, c.level, c.lines...)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	text, err := json.MarshalIndent(score, "", "  ")
	if err != nil {
		return err
	}
	return Write(dir, "run.json", map[string]any{"score": score, "points": points},
		Page{Title: title, About: "Windows of 10 s.", Text: string(text), Pictures: pictures})
}

// blocks groups the rows by cell, in their order.
func blocks(rows []bench.Row) [][]bench.Row {
	var all [][]bench.Row
	for _, r := range rows {
		if n := len(all); n > 0 && all[n-1][0].App == r.App && all[n-1][0].Trace == r.Trace {
			all[n-1] = append(all[n-1], r)
			continue
		}
		all = append(all, []bench.Row{r})
	}
	return all
}

// criterion is what a plot shows beside the cores, and where its line is.
type criterion struct {
	name  string
	level float64
	of    func(bench.Row) float64
}

// pareto draws a cell: a point for each policy.
func pareto(rows []bench.Row, c criterion) (Picture, error) {
	p := plot.New()
	p.Title.Text = rows[0].App + ", " + rows[0].Trace
	p.X.Label.Text, p.Y.Label.Text = "allocated cores", c.name
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	for i, r := range rows {
		s, err := plotter.NewScatter(plotter.XYs{{X: r.Cores, Y: c.of(r)}})
		if err != nil {
			return Picture{}, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
		}
		s.GlyphStyle = vgdraw.GlyphStyle{Color: Ink(i), Radius: vg.Points(4), Shape: vgdraw.CircleGlyph{}}
		if i >= Inks { // the colours begin again
			s.Shape = vgdraw.BoxGlyph{}
		}
		p.Add(s)
		p.Legend.Add(r.Policy, s)
	}
	Level(p, c.level)
	p.Legend.Top = true
	p.X.Max *= 1.3 // room for the legend
	return Render(p)
}
