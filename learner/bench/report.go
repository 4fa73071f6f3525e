package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"image/color"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Report writes index.html, which holds its pictures, and anchors.json into a folder.
func Report(dir string, rows []Row, seeds int) error {
	var pictures []picture
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
	return write(dir, "anchors.json", map[string]any{"cells": rows}, pageData{
		Title: "Policies in the simulated world",
		About: fmt.Sprintf("Mean of allocated cores against the p99 over the hour, means of %d seeds. Left and below the line is better; what is above the line violates the objective.", seeds),
		Text:  table.String(), Pictures: pictures,
	})
}

// ReportRun writes index.html and run.json of one run.
func ReportRun(dir, title string, slo float64, score Score, points []Point) error {
	series := func(y func(Point) float64) (xys plotter.XYs) {
		for _, p := range points {
			if v := y(p); v > 0 {
				xys = append(xys, plotter.XY{X: p.Second / 60, Y: v})
			}
		}
		return xys
	}
	var pictures []picture
	for _, c := range []struct {
		name, unit string
		level      float64
		lines      []plotter.XYs
	}{
		{"load", "requests/s", 0, []plotter.XYs{series(func(p Point) float64 { return p.Rate })}},
		{"p99, and the objective", "ms", slo * 1000, []plotter.XYs{series(func(p Point) float64 { return p.P99 * 1000 })}},
		{"cores: allocated, used", "cores", 0, []plotter.XYs{
			series(func(p Point) float64 { return p.Cores }), series(func(p Point) float64 { return p.Used })}},
	} {
		p, err := lines(c.name, c.unit, c.level, c.lines)
		if err != nil {
			return err
		}
		pictures = append(pictures, p)
	}
	text, err := json.MarshalIndent(score, "", "  ")
	if err != nil {
		return err
	}
	return write(dir, "run.json", map[string]any{"score": score, "points": points},
		pageData{Title: title, About: "Windows of 10 s.", Text: string(text), Pictures: pictures})
}

func write(dir, name string, data any, page pageData) error {
	text, err := json.MarshalIndent(data, "", " ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var html bytes.Buffer
	if err := pageTemplate.Execute(&html, page); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for file, content := range map[string][]byte{name: text, "index.html": html.Bytes()} {
		if err := renameio.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
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

type picture struct {
	Name string
	Src  template.URL
}

type pageData struct {
	Title, About, Text string
	Pictures           []picture
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
figure { display: inline-block; margin: .5em; width: 33em; max-width: 100% } img { max-width: 100% } pre { overflow-x: auto; font-size: 12px }
</style></head><body><h1>{{.Title}}</h1><p>{{.About}}</p>
{{range .Pictures}}<figure><img alt="{{.Name}}" src="{{.Src}}"></figure>
{{end}}<pre>{{.Text}}</pre></body></html>
`))

// Colours that people who do not see all of them can tell apart (Okabe and Ito).
var inks = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x22, 0x22, 0x22, 0xff}, color.RGBA{0x99, 0x99, 0x33, 0xff},
}

// sans is as wide as Arial and Helvetica.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func init() { plot.DefaultFont, plotter.DefaultFont = sans, sans }

// pareto is a cell's picture: a point for each policy.
func pareto(rows []Row) (picture, error) {
	p := plot.New()
	p.Title.Text = rows[0].App + ", " + rows[0].Trace
	p.X.Label.Text, p.Y.Label.Text = "allocated cores", "p99, ms"
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	for i, r := range rows {
		s, err := plotter.NewScatter(plotter.XYs{{X: r.Cores, Y: min(r.P99MS, 3*r.SLOMS)}})
		if err != nil {
			return picture{}, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
		}
		s.GlyphStyle = draw.GlyphStyle{Color: inks[i%len(inks)], Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		p.Add(s)
		p.Legend.Add(r.Policy, s)
	}
	level(p, rows[0].SLOMS)
	p.Legend.Top = true
	p.X.Max *= 1.3 // room for the legend
	return render(p)
}

func lines(name, unit string, slo float64, all []plotter.XYs) (picture, error) {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.X.Label.Text = name, unit, "minutes"
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	for i, xys := range all {
		if len(xys) == 0 {
			continue
		}
		l, err := plotter.NewLine(xys)
		if err != nil {
			return picture{}, fmt.Errorf("drawing %s: %w", name, err)
		}
		l.Color = inks[i]
		p.Add(l)
	}
	if slo > 0 {
		level(p, slo)
	}
	return render(p)
}

// level is a dashed line at the objective.
func level(p *plot.Plot, y float64) {
	f := plotter.NewFunction(func(float64) float64 { return y })
	f.Color, f.Dashes = inks[5], []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(f)
	p.Y.Max = max(p.Y.Max, 1.1*y)
}

func render(p *plot.Plot) (picture, error) {
	w, err := p.WriterTo(16*vg.Centimeter, 10*vg.Centimeter, "png")
	if err != nil {
		return picture{}, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return picture{}, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	return picture{p.Title.Text, template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes()))}, nil
}
