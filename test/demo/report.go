package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report.html").Parse(reportHTML))

// writeReport writes report.html, which needs no other file.
func writeReport(dir string, r *Results) error {
	overTime, err := r.overTime()
	if err != nil {
		return err
	}
	compared, err := r.comparison()
	if err != nil {
		return err
	}
	n := vg.Length(len(r.shown()))
	series, err := svg(overTime, n*vg.Points(290)+vg.Points(30), vg.Points(780))
	if err != nil {
		return err
	}
	bars, err := svg([][]*plot.Plot{{compared[0], compared[1], compared[4]}, {compared[2], compared[3], nil}},
		vg.Points(860), vg.Points(400))
	if err != nil {
		return err
	}
	type manifest struct {
		Run  string
		Text string
	}
	var used []manifest
	sampled := 0
	seen := map[string]bool{}
	for _, record := range r.records {
		if record.Run == aware {
			sampled += record.ResizesL1Sampled
		}
		if seen[record.Run] {
			continue
		}
		seen[record.Run] = true
		text, err := manifests(record.Run, r.fit.SLO, record.LimitMilli, r.options.rule)
		if err != nil {
			return err
		}
		used = append(used, manifest{record.Run, string(text)})
	}
	file := filepath.Join(dir, "report.html")
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := reportTemplate.Execute(f, map[string]any{
		"Records": r.records, "When": time.Now().Format("2 January 2006, 15:04 MST"), "Trace": r.trace,
		"Seeds": r.options.seeds, "SLO": r.fit.SLO, "Fit": r.fit.String(), "Claims": r.claims(),
		"Heads": heads(), "Rows": r.cells(), "VPA": vpaVersion, "WarmUp": warmUp,
		"Sampled": sampled, "Manifests": used,
		// The SVG was drawn here, from numbers and the runs' names. So it is safe.
		"Comparison": template.HTML(bars), "OverTime": template.HTML(series),
	}); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return f.Close()
}
