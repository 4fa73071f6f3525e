package draw

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"image/color"
	"maps"
	"math"
	"slices"

	"awarescale.dev/aware/learner/sim/calibrate"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
)

// inks are the colours of groups. With more groups than inks they repeat.
var inks = []color.NRGBA{
	{0x1b, 0x6c, 0xa8, 0xb0}, {0xd9, 0x5f, 0x02, 0xb0}, {0x1b, 0x9e, 0x77, 0xb0}, {0x75, 0x70, 0xb3, 0xb0},
	{0xe7, 0x29, 0x8a, 0xb0}, {0x66, 0xa6, 0x1e, 0xb0}, {0xa6, 0x76, 0x1d, 0xb0}, {0x44, 0x44, 0x44, 0xb0},
}

// scatter draws a comparison as a PNG. Both axes are
// logarithmic. On the line both agree.
func scatter(c calibrate.Comparison) ([]byte, error) {
	title, points := c.Name, c.Points
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = cmp.Or(c.X, "measured") + ", " + c.Unit
	p.Y.Label.Text = cmp.Or(c.Y, "predicted") + ", " + c.Unit
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	low, high := limits(points)
	p.X.Min, p.X.Max = low, high
	p.Y.Min, p.Y.Max = low, high
	line, err := plotter.NewLine(plotter.XYs{{X: low, Y: low}, {X: high, Y: high}})
	if err != nil {
		return nil, fmt.Errorf("drawing %s: %w", title, err)
	}
	line.Color = color.Gray{0x99}
	p.Add(plotter.NewGrid(), line)
	if err := addGroups(p, points); err != nil {
		return nil, fmt.Errorf("drawing %s: %w", title, err)
	}
	p.Legend.Top, p.Legend.Left = true, true
	return png(p, 14*vg.Centimeter, 12*vg.Centimeter)
}

func addGroups(p *plot.Plot, points []calibrate.Point) error {
	groups := map[string][]calibrate.Point{}
	for _, v := range points {
		groups[v.Group] = append(groups[v.Group], v)
	}
	for i, name := range slices.Sorted(maps.Keys(groups)) {
		var at plotter.XYs
		for _, v := range groups[name] {
			at = append(at, plotter.XY{X: v.Measured, Y: max(v.Predicted, p.Y.Min)})
		}
		s, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		s.GlyphStyle = vgdraw.GlyphStyle{
			Color:  inks[i%len(inks)],
			Radius: vg.Points(1.4),
			Shape:  vgdraw.CircleGlyph{},
		}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	return nil
}

// limits are the powers of ten around all measured and predicted values.
// LogTicks works with powers of ten only.
func limits(points []calibrate.Point) (low, high float64) {
	var all []float64
	for _, v := range points {
		all = append(all, v.Measured)
		if v.Predicted > 0 {
			all = append(all, v.Predicted)
		}
	}
	low = math.Pow(10, math.Floor(math.Log10(slices.Min(all))))
	high = math.Pow(10, math.Ceil(math.Log10(slices.Max(all))))
	return low, max(high, 10*low)
}

// Validation writes report.html, which needs no other file, report.json and the
// pictures into a folder. from names the measurements.
func Validation(dir, from string, seed uint64, r *calibrate.Result) error {
	files := map[string][]byte{}
	var pictures []Picture
	for _, c := range r.Comparisons() {
		if len(c.Points) == 0 {
			continue
		}
		b, err := scatter(c)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		files[c.File+".png"] = b
		pictures = append(pictures, Picture{c.Name, inline(b)})
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var html bytes.Buffer
	if err := validationTemplate.Execute(&html, struct {
		*calibrate.Result
		From     string
		Seed     uint64
		Pictures []Picture
	}{r, from, seed, pictures}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	files["report.json"], files["report.html"] = append(text, '\n'), html.Bytes()
	return writeFiles(dir, files)
}

var validationTemplate = template.Must(template.New("validation").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Simulator against measurements</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } th, td { text-align: left; padding: .25em .8em; border-bottom: 1px solid #ddd }
td.n { text-align: right; font-variant-numeric: tabular-nums } .missed { color: #a00; font-weight: bold }
figure { display: inline-block; margin: .5em; width: 31em; max-width: 100% } img { max-width: 100% }
</style></head><body>
<h1>Simulator against measurements</h1>
<p>Data: {{.From}}; seed {{.Seed}}. Every figure is about measurements that the model which predicts them has not seen.</p>
<table><tr><th>Held out</th><th>Points</th><th>Figure</th><th>Value</th><th>Target</th><th>Protocol</th></tr>
{{range .Table}}<tr><td>{{.What}}</td><td class="n">{{.Held}}</td><td>{{.Figure}}</td><td class="n">{{.Shown}}</td>
<td{{if not .Met}} class="missed"{{end}}>{{.Verdict}}</td><td>{{.Protocol}}</td></tr>
{{end}}</table>
<ul>{{range .Notes}}<li>{{.}}</li>{{end}}</ul>
{{range .Pictures}}<figure><img alt="{{.Name}}" src="{{.Src}}">
<figcaption>{{.Name}}: on the grey line both are equal.</figcaption></figure>
{{end}}
{{with .Interference.Sensitivity}}<h2>Sensitivity</h2>
<p>By what share a workload takes longer under full pressure on one resource.</p>
<table>{{range $w, $s := .}}<tr><td>{{$w}}</td>
{{range $r, $v := $s}}<td class="n">{{$r}} {{with $v}}{{printf "%.2f" .}}{{else}}-{{end}}</td>{{end}}</tr>
{{end}}</table>{{end}}
{{with .Time.Families}}<h2>Use of CPUs</h2><p>Time = floor + work / min(limit, parallel)^throttle.</p>
<table><tr><th>Function</th><th>Parallel, cores</th><th>Throttle</th><th>Floor, share at one core</th></tr>
{{range $f, $s := .}}<tr><td>{{$f}}</td><td class="n">{{with $s.Parallel}}{{printf "%.2f" .}}{{else}}no end seen{{end}}</td>
<td class="n">{{printf "%.2f" $s.Throttle}}</td>
<td class="n">{{with $s.Floor}}{{printf "%.2f" .}}{{end}}</td></tr>
{{end}}</table>{{end}}
</body></html>
`))
