package workload

import "slices"

// Update is a change that an application's developers or clients bring about while a policy is serving it: one of the seven
// of AWARE (§2.3 of the paper, Insight 5.2 of the dissertation).
type Update struct {
	Name     string
	Segments []string // whose payloads change; none for a change of load
	From, To Payload
}

// Updates are the seven, in the order of the text. What they do to a segment's work:
//
//	io         128, 256, 384 KB become 512, 768, 1024 KB           x3
//	table      1024 items become 10240                             x10
//	float      10^8 operations become 20 x 10^8                    x20
//	image      40x40 pixels become 160x160                         x16
//	text       250 B, 500 B, 1 KB become 2, 3, 5 KB                x5.7
//	ml         matrices of 50x50 become 150x150                    x27
//	load       the less busy Azure functions become the busier     see [Azure] and [Busy]
//
// The text has "10^8 to 20^8" operations. 20^8 would be 256 times as many, an order of magnitude beyond all other updates
// and requests of more than a second; we read 20 x 10^8. Images are measured in pixels, and products of matrices in
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

// Apply is the application after the update. It is not ok, and the application is as it was, when the update does not touch
// it: when it has none of the segments, or was updated before. The SLO of its [Composition.App] is then that of the new
// requests, since no action could make twenty times the work as fast as it was; to see what becomes of the old one, keep it.
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
