package bench

import (
	"bytes"
	"encoding/json"
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	page "awarescale.dev/aware/cmd/draw"
)

// Report writes index.html, which holds its pictures, and anchors.json into a folder.
func Report(dir string, rows []Row, seeds int) error {
	var pictures []page.Picture
	for _, cell := range blocks(rows) {
		p, err := pareto(cell)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	var table bytes.Buffer
	if err := Print(&table, rows); err != nil {
		return err
	}
	return page.Write(dir, "anchors.json", map[string]any{"cells": rows}, page.Page{
		Title: "Policies in the simulated world",
		About: fmt.Sprintf("Mean of allocated cores against the p99 over the hour, means of %d seeds. Left and below the line is better; what is above the line violates the objective.", seeds),
		Text:  table.String(), Pictures: pictures,
	})
}

// ReportRun writes index.html and run.json of one run.
func ReportRun(dir, title string, slo float64, score Score, points []Point) error {
	objective := slo * 1000
	series := func(name string, y func(Point) float64) page.Line {
		line := page.Line{Name: name}
		for _, p := range points {
			if v := y(p); v > 0 {
				line.Points = append(line.Points, plotter.XY{X: p.Second / 60, Y: v})
			}
		}
		return line
	}
	var pictures []page.Picture
	for _, c := range []struct {
		name, unit string
		level      *float64
		lines      []page.Line
	}{
		{"load", "requests/s", nil, []page.Line{series("", func(p Point) float64 { return p.Rate })}},
		{"p99, and the objective", "ms", &objective, []page.Line{series("", func(p Point) float64 { return p.P99 * 1000 })}},
		{"cores", "cores", nil, []page.Line{
			series("allocated", func(p Point) float64 { return p.Cores }), series("used", func(p Point) float64 { return p.Used })}},
	} {
		p, err := page.Lines(c.name, "minutes", c.unit, c.level, c.lines...)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	text, err := json.MarshalIndent(score, "", "  ")
	if err != nil {
		return err
	}
	return page.Write(dir, "run.json", map[string]any{"score": score, "points": points},
		page.Page{Title: title, About: "Windows of 10 s.", Text: string(text), Pictures: pictures})
}

// blocks are the rows by cell, in their order.
func blocks(rows []Row) [][]Row {
	var all [][]Row
	for _, r := range rows {
		if n := len(all); n > 0 && all[n-1][0].App == r.App && all[n-1][0].Trace == r.Trace {
			all[n-1] = append(all[n-1], r)
			continue
		}
		all = append(all, []Row{r})
	}
	return all
}

// pareto is a cell's picture: a point for each policy.
func pareto(rows []Row) (page.Picture, error) {
	p := plot.New()
	p.Title.Text = rows[0].App + ", " + rows[0].Trace
	p.X.Label.Text, p.Y.Label.Text = "allocated cores", "p99, ms"
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	for i, r := range rows {
		s, err := plotter.NewScatter(plotter.XYs{{X: r.Cores, Y: min(r.P99MS, 3*r.SLOMS)}})
		if err != nil {
			return page.Picture{}, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
		}
		s.GlyphStyle = draw.GlyphStyle{Color: page.Ink(i), Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		p.Add(s)
		p.Legend.Add(r.Policy, s)
	}
	page.Level(p, rows[0].SLOMS)
	p.Legend.Top = true
	p.X.Max *= 1.3 // room for the legend
	return page.Render(p)
}
