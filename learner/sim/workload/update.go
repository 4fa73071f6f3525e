package workload

import "slices"

// Update is a change of an application by its developers or clients while a
// policy controls it. There are seven in AWARE (§2.3 of the paper, Insight 5.2
// of the dissertation).
type Update struct {
	Name     string
	Segments []string // segments with changed payloads; none for a change of load
	From     Payload
	To       Payload
}

// Updates returns the seven updates in the order of the paper. Their effect on
// the work of a segment:
//
//	io         128, 256, 384 KB become 512, 768, 1024 KB           x3
//	table      1024 items become 10240                             x10
//	float      10^8 operations become 20 x 10^8                    x20
//	image      40x40 pixels become 160x160                         x16
//	text       250 B, 500 B, 1 KB become 2, 3, 5 KB                x5.7
//	ml         matrices of 50x50 become 150x150                    x27
//	load       the less busy Azure functions become the busier     see [Azure] and [Busy]
//
// The paper has "10^8 to 20^8" operations. 20^8 is 256 times as many, far more
// than in all other updates, and a request would take more than a second; we
// assume 20 x 10^8. Images are measured in pixels, and products of matrices in
// multiplications.
func Updates() []Update {
	return []Update{
		{"io", []string{"read", "write", "stream", "compress", "decompress"}, files, Payload{"KB", []float64{512, 768, 1024}}},
		{"table", []string{"table"}, items, Payload{"items", []float64{10240}}},
		{"float", []string{"float"}, operations, Payload{"operations", []float64{20e8}}},
		{"image", []string{"resize", "rotate", "jpeg"}, pixels, Payload{"pixels", []float64{160 * 160}}},
		{"text", []string{"text", "json"}, documents, Payload{"bytes", []float64{2000, 3000, 5000}}},
		{"ml", []string{"matmul", "inference"}, products, Payload{"multiplications", []float64{150 * 150 * 150}}},
		{Name: "load"},
	}
}

// Apply returns the application after the update. When the update does not
// change it, ok is false: the application has none of the segments, or is
// already updated. [Composition.App] of the result has the SLO for the new
// requests, because no action can make twenty times the work as fast as before.
// To use the old SLO, take it from the old application.
func (u Update) Apply(c Composition) (changed Composition, ok bool) {
	changed = slices.Clone(c)
	for i, s := range changed {
		if slices.Contains(u.Segments, s.Name) && s.Payload.equal(u.From) {
			changed[i] = s.with(u.To)
			ok = true
		}
	}
	return changed, ok
}
