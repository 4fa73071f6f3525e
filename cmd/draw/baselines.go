package draw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"awarescale.dev/aware/learner/bench"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// Baselines writes index.html, which holds its pictures, and the rows as anchors.json
// and anchors.md into a folder.
func Baselines(dir string, rows []bench.Row, seeds int) error {
	var pictures []Picture
	windows := criterion{"windows over the SLO, %", 1, func(r bench.Row) float64 { return 100 * r.Ratio }}
	for _, c := range []criterion{
		{"p99 / SLO", 1, func(r bench.Row) float64 { return min(r.P99MS/r.SLOMS, 3) }},
		windows,
	} {
		p, err := overview(rows, c)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	for _, cell := range bench.ByCell(rows) {
		for _, c := range []criterion{
			{"p99, ms", cell[0].SLOMS, func(r bench.Row) float64 { return min(r.P99MS, 3*r.SLOMS) }},
			windows,
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
	var document bytes.Buffer
	if err := bench.Markdown(&document, rows); err != nil {
		return err
	}
	if err := writeFiles(dir, map[string][]byte{"anchors.md": document.Bytes()}); err != nil {
		return err
	}
	return Write(dir, "anchors.json", map[string]any{"cells": rows}, Page{
		Title: "Policies in the simulated world",
		About: fmt.Sprintf("Mean of allocated cores against both criteria, means of %d seeds. Left and below is better. "+
			"The first is the p99 over the hour: a point above its line violates the objective; it is drawn at three "+
			"times the objective at most. The second is the share of windows of 10 s with a p99 over it; its line is at 1 %%.",
			seeds),
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

// criterion is what a plot shows beside the cores, and where its line is.
type criterion struct {
	name  string
	level float64
	of    func(bench.Row) float64
}

// overview draws all cells: a point for each policy and cell. The cores are
// relative to the fewest of those that hold the cell, or of all when none does.
func overview(rows []bench.Row, c criterion) (Picture, error) {
	var names []string
	points := map[string]plotter.XYs{}
	for _, cell := range bench.ByCell(rows) {
		fewest, ofAll := math.Inf(1), math.Inf(1)
		for _, r := range cell {
			ofAll = min(ofAll, r.Cores)
			if !r.Violates {
				fewest = min(fewest, r.Cores)
			}
		}
		if math.IsInf(fewest, 1) {
			fewest = ofAll
		}
		for _, r := range cell {
			if points[r.Policy] == nil {
				names = append(names, r.Policy)
			}
			points[r.Policy] = append(points[r.Policy], plotter.XY{X: r.Cores / fewest, Y: c.of(r)})
		}
	}
	return cloud("all cells", "allocated cores / fewest that hold", c, names, func(i int) plotter.XYs {
		return points[names[i]]
	})
}

// pareto draws a cell: a point for each policy.
func pareto(rows []bench.Row, c criterion) (Picture, error) {
	var names []string
	for _, r := range rows {
		names = append(names, r.Policy)
	}
	return cloud(rows[0].App+", "+rows[0].Trace, "allocated cores", c, names, func(i int) plotter.XYs {
		return plotter.XYs{{X: rows[i].Cores, Y: c.of(rows[i])}}
	})
}

// cloud draws the points of each policy in a colour of its own.
func cloud(title, x string, c criterion, names []string, points func(i int) plotter.XYs) (Picture, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, c.name
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	for i, name := range names {
		s, err := plotter.NewScatter(points(i))
		if err != nil {
			return Picture{}, fmt.Errorf("drawing %s: %w", title, err)
		}
		s.GlyphStyle = vgdraw.GlyphStyle{Color: Ink(i), Radius: vg.Points(4), Shape: vgdraw.CircleGlyph{}}
		if i >= Inks { // the colours begin again
			s.Shape = vgdraw.BoxGlyph{}
		}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	Level(p, c.level)
	p.Legend.Top = true
	p.X.Max *= 1.3 // room for the legend
	return Render(p)
}
