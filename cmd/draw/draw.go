// Package draw turns the data that learner returns into reports: one HTML file
// with its pictures in it, for a browser, and the data as JSON next to it.
package draw

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
)

// Page is what a report shows.
type Page struct {
	Title    string
	About    string // a paragraph under the title
	Pictures []Picture
	Text     string // preformatted, under the pictures
}

// Picture is a drawn plot.
type Picture struct {
	Name string
	Src  template.URL
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
figure { display: inline-block; margin: .5em; width: 33em; max-width: 100% } img { max-width: 100% }
pre { overflow-x: auto; font-size: 12px }
</style></head><body><h1>{{.Title}}</h1><p>{{.About}}</p>
{{range .Pictures}}<figure><img alt="{{.Name}}" src="{{.Src}}"></figure>
{{end}}<pre>{{.Text}}</pre></body></html>
`))

// Write writes index.html, and data as JSON under the given name, into a folder.
// Each file is replaced atomically.
func Write(dir, name string, data any, p Page) error {
	text, err := json.MarshalIndent(data, "", " ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var html bytes.Buffer
	if err := pageTemplate.Execute(&html, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return writeFiles(dir, map[string][]byte{name: text, "index.html": html.Bytes()})
}

// writeFiles writes files into a folder. Each file is replaced atomically.
func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	for file, content := range files {
		if err := renameio.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// Inks is the number of colours of Ink.
const Inks = 8

// Ink is the i-th colour of a palette for all kinds of colour vision (Okabe and
// Ito).
func Ink(i int) color.Color {
	inks := [Inks]color.RGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x22, 0x22, 0x22, 0xff}, {0x99, 0x99, 0x33, 0xff},
	}
	return inks[i%Inks]
}

// sans is as wide as Arial and Helvetica.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func init() { plot.DefaultFont, plotter.DefaultFont = sans, sans }

// Line is a line of a plot, with a name for the legend or none.
type Line struct {
	Name   string
	Points plotter.XYs
}

// Lines draws lines in one plot, and a dashed one at level if that is not nil.
func Lines(title, x, y string, level *float64, lines ...Line) (Picture, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = x
	p.Y.Label.Text = y
	p.Add(plotter.NewGrid())
	for i, line := range lines {
		if len(line.Points) == 0 {
			continue
		}
		l, err := plotter.NewLine(line.Points)
		if err != nil {
			return Picture{}, fmt.Errorf("drawing %s: %w", title, err)
		}
		l.Color = Ink(i)
		p.Add(l)
		if line.Name != "" {
			p.Legend.Add(line.Name, l)
		}
	}
	if level != nil {
		Level(p, *level)
	}
	p.Y.Min = min(p.Y.Min, 0) // heights can be compared only from zero
	return Render(p)
}

// Level adds a dashed line, such as an objective, and some space above it.
func Level(p *plot.Plot, y float64) {
	f := plotter.NewFunction(func(float64) float64 { return y })
	f.Color, f.Dashes = Ink(5), []vg.Length{vg.Points(4), vg.Points(3)}
	p.Add(f)
	p.Y.Max = max(p.Y.Max, y+0.1*max(y, -y))
	p.Y.Min = min(p.Y.Min, y)
}

// Render draws a plot.
func Render(p *plot.Plot) (Picture, error) {
	b, err := png(p, 16*vg.Centimeter, 10*vg.Centimeter)
	if err != nil {
		return Picture{}, err
	}
	return Picture{p.Title.Text, inline(b)}, nil
}

// png draws a plot of a given size.
func png(p *plot.Plot, width, height vg.Length) ([]byte, error) {
	w, err := p.WriterTo(width, height, "png")
	if err != nil {
		return nil, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	return b.Bytes(), nil
}

// inline is a PNG as a data URL.
func inline(png []byte) template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(png))
}
