package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// sans is as wide as Arial and Helvetica. Every browser has one of them.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func init() { plot.DefaultFont, plotter.DefaultFont = sans, sans }

// Colours for all kinds of colour vision (Okabe and Ito). Brown is the ninth: the pale form of black is grey.
var (
	runColours = map[string]color.Color{
		static:   color.RGBA{0x00, 0x72, 0xb2, 0xff},
		hpaVPA:   color.RGBA{0xe6, 0x9f, 0x00, 0xff},
		hpaVPA30: color.RGBA{0xcc, 0x79, 0xa7, 0xff},
		cpuFast:  color.RGBA{0xf0, 0xe4, 0x42, 0xff},
		aware:    color.RGBA{0x00, 0x9e, 0x73, 0xff},
		demand:   color.RGBA{0xd5, 0x5e, 0x00, 0xff},
		learned:  color.RGBA{0x00, 0x00, 0x00, 0xff},
		atMean:   color.RGBA{0x56, 0xb4, 0xe9, 0xff},

		atLearned: color.RGBA{0x8c, 0x51, 0x0a, 0xff},
	}
	sloColour   = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	faintColour = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}
)

// series is one value over time. A point without a value is a gap in the line.
type series struct {
	colour color.Color
	dashed bool
	name   string // in the legend; empty for none
	x      []float64
	y      []*float64
}

func (r *Record) samples(colour color.Color, dashed bool, name string, y func(Sample) *float64) series {
	s := series{colour: colour, dashed: dashed, name: name}
	for _, sample := range r.Samples {
		s.x, s.y = append(s.x, sample.Seconds), append(s.y, y(sample))
	}
	return s
}

// p99 has no value for a second without a request.
func (r *Record) p99(name string) series {
	s := series{colour: runColours[r.Run], name: name}
	for _, second := range r.Seconds {
		var v *float64
		if second.P99MS > 0 {
			v = known(second.P99MS)
		}
		s.x, s.y = append(s.x, float64(second.Second)), append(s.y, v)
	}
	return s
}

func (r *Record) rps() series {
	s := series{colour: runColours[r.Run]}
	for _, second := range r.Seconds {
		s.x, s.y = append(s.x, float64(second.Second)), append(s.y, known(float64(second.OK)))
	}
	return s
}

// chart is the content of a plot.
type chart struct {
	title  string
	y      string   // label of the axis
	log    bool     // the y axis is logarithmic
	line   *float64 // a horizontal line, such as the SLO
	series []series
}

// spread gives all charts the same range of y, so that they can be compared by eye.
func spread(charts []chart) (lo, hi float64) {
	lo, hi = math.Inf(1), 0
	for _, c := range charts {
		for _, s := range c.series {
			for _, y := range s.y {
				if y != nil {
					lo, hi = min(lo, *y), max(hi, *y)
				}
			}
		}
		if c.line != nil {
			lo, hi = min(lo, *c.line), max(hi, *c.line)
		}
	}
	if len(charts) > 0 && charts[0].log {
		if math.IsInf(lo, 1) {
			lo, hi = 1, 10
		}
		return math.Pow(10, math.Floor(math.Log10(max(lo, 0.1)))),
			math.Pow(10, math.Ceil(math.Log10(max(hi, 1)*1.01)))
	}
	if len(charts) > 0 && len(charts[0].series) == fewSeries {
		hi *= 1.2 // room for the legend
	}
	return 0, max(hi, 1e-9) * 1.08
}

// fewSeries is how many series have their legend above them. That of more is beside them.
const fewSeries = 2

func newPlot() *plot.Plot {
	p := plot.New()
	p.Title.Padding = vg.Points(4)
	p.Title.TextStyle.Font.Size = vg.Points(11)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = vg.Points(9), vg.Points(9)
	}
	return p
}

func (c chart) plot(lo, hi float64) (*plot.Plot, error) {
	p := newPlot()
	p.Title.Text, p.Y.Label.Text = c.title, c.y
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faintColour, faintColour
	p.Add(grid)
	end := 0.
	for _, s := range c.series {
		first := true
		for _, segment := range s.segments() {
			line, err := plotter.NewLine(segment)
			if err != nil {
				return nil, fmt.Errorf("drawing %s %s: %w", c.title, c.y, err)
			}
			line.Color, line.Width = s.colour, vg.Points(1.4)
			if s.dashed {
				line.Dashes, line.Width = []vg.Length{vg.Points(3), vg.Points(2)}, vg.Points(1)
			}
			p.Add(line)
			if first && s.name != "" {
				p.Legend.Add(s.name, line)
			}
			first = false
		}
		if len(s.x) > 0 {
			end = max(end, s.x[len(s.x)-1])
		}
	}
	if c.line != nil && end > 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: 0, Y: *c.line}, {X: end, Y: *c.line}})
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes = sloColour, []vg.Length{vg.Points(5), vg.Points(3)}
		p.Add(line)
		if len(c.series) > 1 {
			p.Legend.Add("SLO", line)
		}
	}
	p.X.Tick.Marker = plot.TickerFunc(func(from, _ float64) []plot.Tick { return everyHalfMinute(from, end) })
	p.Legend.Padding, p.Legend.TextStyle.Font.Size = vg.Points(2), vg.Points(9)
	p.Legend.Top = true
	p.Legend.XOffs = vg.Points(-4)
	p.Legend.YOffs = vg.Points(-2)
	p.X.Min = 0
	p.X.Max = max(end, 1)
	if len(c.series) > fewSeries {
		longest := 0
		for _, s := range c.series {
			longest = max(longest, len(s.name))
		}
		p.X.Max *= 1.15 + 0.025*float64(longest) // a letter is about a fiftieth of what is left
	}
	p.Y.Min = lo
	p.Y.Max = hi
	if c.log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return p, nil
}

// everyHalfMinute has a label each 30 s; for long traces, at most ten labels.
func everyHalfMinute(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	step := 30 * max(1, math.Ceil((to-from)/300))
	for at := 0.; at <= to; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', -1, 64)})
	}
	return ticks
}

// segments splits a series at its gaps.
func (s series) segments() []plotter.XYs {
	var all []plotter.XYs
	var now plotter.XYs
	for i := range s.x {
		if s.y[i] == nil {
			if len(now) > 0 {
				all, now = append(all, now), nil
			}
			continue
		}
		now = append(now, plotter.XY{X: s.x[i], Y: *s.y[i]})
	}
	if len(now) > 0 {
		all = append(all, now)
	}
	return all
}

// shown are the records that are drawn over time: of the first round, without the
// neighbour when there are such.
func (r *Results) shown() []*Record {
	var shown []*Record
	for _, run := range allRuns {
		for _, name := range []string{run, slice{run: run, neighbour: true}.name()} {
			if all := r.of(name); len(all) > 0 {
				shown = append(shown, all[0])
				break
			}
		}
	}
	return shown
}

// overTime has one column of charts for each run and one row for each value. The
// charts of a row have the same range.
func (r *Results) overTime() ([][]*plot.Plot, error) {
	slo := known(float64(r.fit.SLO.Microseconds()) / 1000)
	rows := []func(*Record, color.Color) chart{
		func(record *Record, c color.Color) chart {
			return chart{title: record.Run, y: "requests/s", series: []series{record.rps()}}
		},
		func(record *Record, c color.Color) chart {
			return chart{y: "p99, ms (dashed: SLO)", log: true, line: slo, series: []series{record.p99("")}}
		},
		func(record *Record, c color.Color) chart {
			return chart{
				y: "CPU, millicores",
				series: []series{
					record.samples(c, false, "allocated", func(s Sample) *float64 { return s.AllocatedMilli }),
					record.samples(color.Black, true, "used", func(s Sample) *float64 { return s.UsedMilli })},
			}
		},
		func(record *Record, c color.Color) chart {
			return chart{
				y: "memory, MiB",
				series: []series{
					record.samples(c, false, "allocated", func(s Sample) *float64 { return s.MemoryMiB }),
					record.samples(color.Black, true, "used",
						func(s Sample) *float64 { return s.MemoryUsedMiB })},
			}
		},
		func(record *Record, c color.Color) chart {
			return chart{
				y:      "replicas",
				series: []series{record.samples(c, false, "", func(s Sample) *float64 { return s.Replicas })},
			}
		},
	}
	var plots [][]*plot.Plot
	for i, row := range rows {
		var charts []chart
		for _, record := range r.shown() {
			charts = append(charts, row(record, runColours[record.Run]))
		}
		lo, hi := spread(charts)
		var line []*plot.Plot
		for _, c := range charts {
			p, err := c.plot(lo, hi)
			if err != nil {
				return nil, err
			}
			if i == len(rows)-1 {
				p.X.Label.Text = "seconds"
			}
			line = append(line, p)
		}
		plots = append(plots, line)
	}
	return plots, nil
}

// bars has one bar for each run, and a paler one beside it for its slices beside the neighbour: the mean over the seeds, with its
// value above it and a line from the lowest to the highest.
func (r *Results) bars(title, unit string, digits int, line *float64,
	value func(*Record) *float64) (*plot.Plot, error) {
	p := newPlot()
	p.Title.Text, p.Y.Label.Text = title, unit
	top := 0.
	var labels plotter.XYLabels
	both := r.both()
	runs := r.runs()
	for i, run := range runs {
		for _, neighbour := range []bool{false, true} {
			v, lowest, highest := over(r.of(slice{run: run, neighbour: neighbour}.name()), value)
			if v == nil {
				continue
			}
			x, width := float64(i), vg.Points(min(36, 260/float64(len(runs))))
			if both {
				x, width = x-0.21, width/2
			}
			colour := runColours[run]
			if both && neighbour {
				x, colour = x+0.42, pale(colour)
			}
			bar, err := plotter.NewBarChart(plotter.Values{*v}, width)
			if err != nil {
				return nil, fmt.Errorf("drawing %s: %w", title, err)
			}
			bar.XMin = x
			bar.Color = colour
			bar.LineStyle.Width = 0
			p.Add(bar)
			if *highest > *lowest {
				whisker, err := plotter.NewLine(plotter.XYs{{X: x, Y: *lowest}, {X: x, Y: *highest}})
				if err != nil {
					return nil, err
				}
				p.Add(whisker)
			}
			labels.XYs, labels.Labels = append(labels.XYs, plotter.XY{X: x, Y: *highest}), append(labels.Labels, figure(v, digits))
			top = max(top, *highest)
		}
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range text.TextStyle {
		text.TextStyle[i].XAlign = draw.XCenter
		if len(labels.Labels) > 8 {
			text.TextStyle[i].Font.Size = vg.Points(6.5)
		}
	}
	text.Offset.Y = vg.Points(2)
	p.Add(text)
	if line != nil {
		l, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: *line}, {X: float64(len(runs)) - 0.5, Y: *line}})
		if err != nil {
			return nil, err
		}
		l.Color, l.Dashes = sloColour, []vg.Length{vg.Points(5), vg.Points(3)}
		p.Add(l)
		top = max(top, *line)
	}
	p.NominalX(runs...)
	if len(runs) > 4 {
		p.X.Tick.Label.Rotation = math.Pi / 5
		p.X.Tick.Label.XAlign = draw.XRight
	}
	if both {
		p.X.Label.Text = "pale: beside the neighbour"
	}
	p.X.Min = -0.6
	p.X.Max = float64(len(runs)) - 0.4
	p.Y.Min = 0
	p.Y.Max = max(top, 0.1) * 1.15
	return p, nil
}

// runs are those of which there are records, in the order of the report.
func (r *Results) runs() []string {
	var runs []string
	for _, record := range r.shown() {
		runs = append(runs, record.Run)
	}
	return runs
}

// both reports whether there are records with the neighbour and without it.
func (r *Results) both() bool {
	with := func(yes bool) bool {
		return slices.ContainsFunc(r.records, func(record *Record) bool { return record.Neighbour == yes })
	}
	return with(true) && with(false)
}

// pale is half of a colour's way to white.
func pale(c color.Color) color.Color {
	red, green, blue, _ := c.RGBA()
	half := func(v uint32) uint8 { return uint8((v>>8 + 0xff) / 2) }
	return color.RGBA{half(red), half(green), half(blue), 0xff}
}

// pareto has the cost along x and the violations along y: best is bottom left.
func (r *Results) pareto() (*plot.Plot, error) {
	p := newPlot()
	p.Title.Text = "cost and quality: best is bottom left"
	p.X.Label.Text = "mean cores allocated"
	p.Y.Label.Text = "requests over the SLO, %"
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faintColour, faintColour
	p.Add(grid)
	right, top := 0., 0.
	named := map[string]string{}
	for _, name := range r.names() {
		named[name] = name
	}
	for _, record := range r.records {
		if record.MeanCoresAllocated == nil {
			continue
		}
		at := plotter.XYs{{X: *record.MeanCoresAllocated, Y: 100 * record.SLOViolationRatio}}
		dot, err := plotter.NewScatter(at)
		if err != nil {
			return nil, err
		}
		dot.GlyphStyle = draw.GlyphStyle{
			Color:  runColours[record.Run],
			Radius: vg.Points(5),
			Shape:  draw.CircleGlyph{},
		}
		name, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: []string{named[record.name()]}})
		if err != nil {
			return nil, err
		}
		named[record.name()] = "" // one label for all seeds is enough
		name.Offset = vg.Point{X: vg.Points(8), Y: vg.Points(4)}
		p.Add(dot, name)
		right, top = max(right, at[0].X), max(top, at[0].Y)
	}
	p.X.Min = 0
	p.X.Max = max(right, 0.1) * 1.3
	p.Y.Min = 0
	p.Y.Max = max(top, 0.1) * 1.25
	return p, nil
}

// comparison is the bars and the pareto plot, in one row.
func (r *Results) comparison() ([]*plot.Plot, error) {
	slo := known(float64(r.fit.SLO.Microseconds()) / 1000)
	p99, err1 := r.bars("p99 of all requests, and the SLO", "ms", 0, slo,
		func(r *Record) *float64 { return &r.P99MS })
	violated, err2 := r.bars("requests over the SLO", "%",
		2, nil, func(r *Record) *float64 { return known(100 * r.SLOViolationRatio) })
	cores, err3 := r.bars("mean CPU allocated", "cores", 2, nil,
		func(r *Record) *float64 { return r.MeanCoresAllocated })
	memory, err4 := r.bars("mean memory allocated", "MiB", 0, nil,
		func(r *Record) *float64 { return r.MeanMemoryMiB })
	pareto, err5 := r.pareto()
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			return nil, err
		}
	}
	return []*plot.Plot{p99, violated, cores, memory, pareto}, nil
}

// tile draws plots in rows and columns with their axes in line.
func tile(plots [][]*plot.Plot, on draw.Canvas) {
	tiles := draw.Tiles{
		Rows:      len(plots),
		Cols:      len(plots[0]),
		PadX:      vg.Points(14),
		PadY:      vg.Points(12),
		PadTop:    vg.Points(6),
		PadBottom: vg.Points(6),
		PadLeft:   vg.Points(6),
		PadRight:  vg.Points(10),
	}
	for i, row := range plot.Align(plots, tiles, on) {
		for j, at := range row {
			if plots[i][j] != nil {
				plots[i][j].Draw(at)
			}
		}
	}
}

// svg draws plots for a page. Its fonts are replaced by ones of the same width that
// every browser has.
func svg(plots [][]*plot.Plot, width, height vg.Length) ([]byte, error) {
	canvas := vgsvg.New(width, height)
	tile(plots, draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing: %w", err)
	}
	out := b.Bytes()
	if i := bytes.Index(out, []byte("<svg")); i > 0 {
		out = out[i:] // without the XML declaration, which is not allowed within HTML
	}
	return bytes.ReplaceAll(out, []byte("font-family:Liberation Sans"),
		[]byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

// writeSummary writes summary.png: the runs over time in one plot, and their results.
func writeSummary(dir string, r *Results) error {
	slo := known(float64(r.fit.SLO.Microseconds()) / 1000)
	latency := chart{title: "p99 of each second, ms", log: true, line: slo}
	cores := chart{title: "CPU allocated, millicores"}
	for _, record := range r.shown() {
		latency.series = append(latency.series, record.p99(record.Run))
		cores.series = append(cores.series, record.samples(runColours[record.Run], false, record.Run,
			func(s Sample) *float64 { return s.AllocatedMilli }))
	}
	var plots [2][2]*plot.Plot
	for i, c := range []chart{latency, cores} {
		lo, hi := spread([]chart{c})
		p, err := c.plot(lo, hi)
		if err != nil {
			return err
		}
		p.X.Label.Text = "seconds"
		plots[0][i] = p
	}
	compared, err := r.comparison()
	if err != nil {
		return err
	}
	plots[1][0], plots[1][1] = compared[1], compared[2]
	canvas := vgimg.NewWith(vgimg.UseWH(vg.Points(720), vg.Points(430)), vgimg.UseDPI(144))
	tile([][]*plot.Plot{plots[0][:], plots[1][:]}, draw.New(canvas))
	file := filepath.Join(dir, "summary.png")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(f); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return f.Close()
}
