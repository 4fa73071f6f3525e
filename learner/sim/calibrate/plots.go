package calibrate

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// inks tell groups apart; there may be more groups than inks.
var inks = []color.NRGBA{
	{0x1b, 0x6c, 0xa8, 0xb0}, {0xd9, 0x5f, 0x02, 0xb0}, {0x1b, 0x9e, 0x77, 0xb0}, {0x75, 0x70, 0xb3, 0xb0},
	{0xe7, 0x29, 0x8a, 0xb0}, {0x66, 0xa6, 0x1e, 0xb0}, {0xa6, 0x76, 0x1d, 0xb0}, {0x44, 0x44, 0x44, 0xb0},
}

// scatter draws predicted against measured, both axes logarithmic, as a PNG. On the line both agree.
func scatter(title, unit string, points []Point) ([]byte, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "measured, "+unit, "predicted, "+unit
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	low, high := limits(points)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, low, high
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
	return png(p)
}

func addGroups(p *plot.Plot, points []Point) error {
	groups := grouped(points)
	for i, name := range names(groups) {
		var at plotter.XYs
		for _, v := range groups[name] {
			at = append(at, plotter.XY{X: v.Measured, Y: max(v.Predicted, p.Y.Min)})
		}
		s, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: inks[i%len(inks)], Radius: vg.Points(1.4), Shape: draw.CircleGlyph{}}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	return nil
}

// limits are the powers of ten around all measured and predicted values; LogTicks wants nothing else.
func limits(points []Point) (low, high float64) {
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

func png(p *plot.Plot) ([]byte, error) {
	w, err := p.WriterTo(14*vg.Centimeter, 12*vg.Centimeter, "png")
	if err != nil {
		return nil, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing %s: %w", p.Title.Text, err)
	}
	return b.Bytes(), nil
}
