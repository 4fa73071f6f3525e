package draw

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/sim/calibrate"
)

func TestTheValidationReportIsCompleteAndNeedsNoOtherFile(t *testing.T) {
	r, err := calibrate.Validate(calibrate.Shipped(), calibrate.Options{Seed: 1}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Validation(dir, "shipped", 1, r); err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !bytes.Contains(html, []byte("data:image/png;base64,")) ||
		!bytes.HasSuffix(html, []byte("</html>\n")) {
		t.Errorf("report.html: %v, %d bytes", err, len(html))
	}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			t.Errorf("%s was left behind", f.Name())
		}
	}
}

// Few points, equal points and extreme values are drawn. Nothing panics.
func TestOddComparisonsAreDrawn(t *testing.T) {
	values := []float64{0.5, 1, 1, 2, 30, 1000, 1e-8, 1e14}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		points := make([]calibrate.Point, 1+r.IntN(12))
		for i := range points {
			points[i] = calibrate.Point{
				Group:     string(rune('a' + r.IntN(3))),
				Measured:  values[r.IntN(len(values))],
				Predicted: values[r.IntN(len(values))] * float64(r.IntN(2)),
			}
		}
		if _, err := scatter(calibrate.Comparison{Name: "odd", Unit: "ms", Points: points}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
