package calibrate

import (
	"encoding/base64"
	"html/template"
)

// Inline is the picture as an address that holds it.
func (p Picture) Inline() template.URL {
	return template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(p.PNG))
}

const pageText = `<!doctype html>
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
{{range .Pictures}}<figure><img alt="{{.Name}}" src="{{.Inline}}"><figcaption>{{.Name}}: the grey line is agreement.</figcaption></figure>
{{end}}
{{with .Interference.Sensitivity}}<h2>Sensitivity</h2><p>By what share a workload takes longer under full pressure on one resource.</p>
<table>{{range $w, $s := .}}<tr><td>{{$w}}</td>{{range $r, $v := $s}}<td class="n">{{$r}} {{with $v}}{{printf "%.2f" .}}{{else}}-{{end}}</td>{{end}}</tr>{{end}}</table>{{end}}
{{with .Time.Families}}<h2>Use of CPUs</h2><p>Time = floor + work / min(limit, parallel)^throttle.</p>
<table><tr><th>Function</th><th>Parallel, cores</th><th>Throttle</th><th>Floor, share at one core</th></tr>
{{range $f, $s := .}}<tr><td>{{$f}}</td><td class="n">{{with $s.Parallel}}{{printf "%.2f" .}}{{else}}no end seen{{end}}</td>
<td class="n">{{printf "%.2f" $s.Throttle}}</td><td class="n">{{with $s.Floor}}{{printf "%.2f" .}}{{end}}</td></tr>{{end}}</table>{{end}}
</body></html>
`
