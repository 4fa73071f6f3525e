package segment

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"

	"gonum.org/v1/gonum/mat"
)

// Each test here compares a segment with a simple second implementation.

func TestIntegralAgreesWithItsClosedForm(t *testing.T) {
	r := source(1)
	for range 100 {
		a, b := r.Float64(), 1+9*r.Float64()
		want := (b - math.Exp(-a)*(a*math.Sin(b)+b*math.Cos(b))) / (a*a + b*b)
		if got := integrate(a, b, 1000); math.Abs(got-want) > 1e-8 {
			t.Errorf("integral of exp(-%g x) sin(%g x) = %v, want %v", a, b, got, want)
		}
	}
}

// simpleProduct is the definition of the matrix product.
func simpleProduct(a, b *mat.Dense) *mat.Dense {
	rows, inner := a.Dims()
	_, columns := b.Dims()
	c := mat.NewDense(rows, columns, nil)
	for i := range rows {
		for j := range columns {
			for k := range inner {
				c.Set(i, j, c.At(i, j)+a.At(i, k)*b.At(k, j))
			}
		}
	}
	return c
}

func TestProductAgreesWithThreeLoops(t *testing.T) {
	r := source(2)
	a, b := randomMatrix(r, matmulSide, matmulSide), randomMatrix(r, matmulSide, matmulSide)
	var got mat.Dense
	got.Mul(a, b)
	if !mat.EqualApprox(&got, simpleProduct(a, b), 1e-10) {
		t.Error("the product is not the sum over rows and columns")
	}
}

func TestClassesAgreeWithLoops(t *testing.T) {
	p := sharedModel()
	inputs := randomMatrix(source(3), 16, 64)
	h := simpleProduct(inputs, p.hidden)
	for i := range 16 {
		for j := range 128 {
			if h.At(i, j) < 0 {
				h.Set(i, j, 0)
			}
		}
	}
	scores := simpleProduct(h, p.output)
	classes := p.classify(inputs)
	for i, class := range classes {
		if best := slices.Max(mat.Row(nil, i, scores)); math.Abs(scores.At(i, class)-best) > 1e-10 {
			t.Errorf("input %d: class %d has score %v, the best is %v", i, class, scores.At(i, class), best)
		}
	}
	if slices.Min(classes) == slices.Max(classes) {
		t.Errorf("all inputs are in class %d: the model decides nothing", classes[0])
	}
}

func TestFrequentWordsAgreeWithCountingOneByOne(t *testing.T) {
	text := randomText(source(4), 4<<10)
	var words []string
	for _, field := range strings.Fields(text) {
		words = append(words, strings.ToLower(strings.Trim(field, ".")))
	}
	frequent := frequentWords(text, 10)
	if len(frequent) != 10 {
		t.Fatalf("%d frequent words, want 10", len(frequent))
	}
	for i, w := range frequent {
		count := 0
		for _, word := range words {
			if word == w.word {
				count++
			}
		}
		if count != w.count {
			t.Errorf("%q is there %d times, got %d", w.word, count, w.count)
		}
		if i > 0 && frequent[i-1].count < w.count {
			t.Errorf("%v is after %v", w, frequent[i-1])
		}
	}
	if got := frequentWords("b a. B c", 2); !reflect.DeepEqual(got, []wordCount{{"b", 2}, {"a", 1}}) {
		t.Errorf("frequent words of a short text: %v", got)
	}
}

func TestRandomTextHasTheLengthAskedFor(t *testing.T) {
	for _, length := range []int{0, 1, 100, 8 << 10} {
		if got := len(randomText(source(5), length)); got != length {
			t.Errorf("%d bytes, want %d", got, length)
		}
	}
}

func TestOrdersSurviveJSON(t *testing.T) {
	orders := randomOrders(source(6), 200)
	back, err := throughJSON(orders)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, orders) {
		t.Error("decoded orders differ from those encoded")
	}
}

func TestPageAgreesWithPrinting(t *testing.T) {
	orders := randomOrders(source(7), 50)
	var want strings.Builder
	want.WriteString("<!DOCTYPE html><title>Orders</title><table>")
	for _, o := range orders {
		fmt.Fprintf(&want, "<tr><td>%d<td>%s<td>%s <td>%d",
			o.ID, template.HTMLEscapeString(o.Customer), strings.Join(o.Items, " "), o.Cents)
	}
	want.WriteString("</table>")
	var got strings.Builder
	if err := renderPage(&got, orders); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("page\n%s\nwant\n%s", got.String(), want.String())
	}
}

func TestTextSurvivesCompressionAndShrinks(t *testing.T) {
	text := randomText(source(8), 16<<10)
	block := compressed(text)
	if len(block) > len(text)*2/3 {
		t.Errorf("%d bytes became %d: hardly compressed", len(text), len(block))
	}
	back, err := decompressed(block)
	if err != nil || string(back) != text {
		t.Errorf("decompressing: %d bytes, %v, want the %d bytes compressed", len(back), err, len(text))
	}
	block[len(block)-5] ^= 1 // in the checksum
	if _, err := decompressed(block); err == nil {
		t.Error("no error for a damaged block")
	}
}

// simpleHalved weighs, for each new pixel, all old pixels of the square around
// its middle by 1 - distance/2 in either direction.
func simpleHalved(m *image.RGBA, x, y int) color.RGBA {
	var sums [3]float64
	var weights float64
	cx, cy := float64(2*x+1), float64(2*y+1)
	for sy := m.Rect.Min.Y; sy < m.Rect.Max.Y; sy++ {
		for sx := m.Rect.Min.X; sx < m.Rect.Max.X; sx++ {
			w := max(0, 1-math.Abs(float64(sx)+.5-cx)/2) * max(0, 1-math.Abs(float64(sy)+.5-cy)/2)
			c := m.RGBAAt(sx, sy)
			sums[0] += w * float64(c.R)
			sums[1] += w * float64(c.G)
			sums[2] += w * float64(c.B)
			weights += w
		}
	}
	return color.RGBA{uint8(sums[0]/weights + .5), uint8(sums[1]/weights + .5), uint8(sums[2]/weights + .5), 255}
}

func apart(a, b color.RGBA) int {
	d := 0
	for _, v := range []int{int(a.R) - int(b.R), int(a.G) - int(b.G), int(a.B) - int(b.B), int(a.A) - int(b.A)} {
		d = max(d, v, -v)
	}
	return d
}

func TestHalvedImageAgreesWithAWeighedSum(t *testing.T) {
	r := source(9)
	m := randomImage(r)
	small := halved(m)
	if small.Rect != image.Rect(0, 0, imageSide/2, imageSide/2) {
		t.Fatalf("bounds %v", small.Rect)
	}
	points := []image.Point{{0, 0}, {63, 0}, {0, 63}, {63, 63}}
	for range 40 {
		points = append(points, image.Pt(r.IntN(64), r.IntN(64)))
	}
	for _, p := range points {
		if got, want := small.RGBAAt(p.X, p.Y), simpleHalved(m, p.X, p.Y); apart(got, want) > 1 {
			t.Errorf("pixel %v is %v, want %v", p, got, want)
		}
	}
}

func TestRotatedImageAgreesPixelByPixel(t *testing.T) {
	r := source(10)
	m := image.NewRGBA(image.Rect(0, 0, 7, 5))
	for i := range m.Pix {
		m.Pix[i] = uint8(r.IntN(256))
	}
	turned := rotated(m)
	for y := range 5 {
		for x := range 7 {
			if got, want := turned.RGBAAt(4-y, x), m.RGBAAt(x, y); got != want {
				t.Errorf("pixel (%d, %d) became %v, want %v", x, y, got, want)
			}
		}
	}
	if back := rotated(rotated(rotated(turned))); !bytes.Equal(back.Pix, m.Pix) {
		t.Error("four turns do not give the image back")
	}
}

func TestJPEGLooksLikeTheImage(t *testing.T) {
	m := image.NewRGBA(image.Rect(0, 0, 64, 64)) // a smooth ramp: no edges to blur
	for y := range 64 {
		for x := range 64 {
			m.SetRGBA(x, y, color.RGBA{uint8(2 * x), uint8(2 * y), uint8(x + y), 255})
		}
	}
	var b bytes.Buffer
	if err := writeJPEG(&b, m); err != nil {
		t.Fatal(err)
	}
	back, err := jpeg.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	for y := range 64 {
		for x := range 64 {
			got := color.RGBAModel.Convert(back.At(x, y)).(color.RGBA)
			if apart(got, m.RGBAAt(x, y)) > 16 {
				t.Fatalf("pixel (%d, %d) is %v, was %v", x, y, got, m.RGBAAt(x, y))
			}
		}
	}
}

func TestTurnoverAgreesWithReadingRowByRow(t *testing.T) {
	s := randomSales(source(11), 5000)
	byRegion := make(map[uint8]int64)
	for row := 100; row < 4100; row++ {
		if s.pieces[row] < 30 {
			continue
		}
		byRegion[s.region[row]] += int64(s.pieces[row]) * s.cents[row]
	}
	got := s.turnover(100, 4100, 30)
	for region, cents := range got {
		if cents != byRegion[uint8(region)] {
			t.Errorf("region %d: %d cents, want %d", region, cents, byRegion[uint8(region)])
		}
	}
}

func TestFilesHoldWhatWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blocks")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum, err := writeBlocks(f, source(12), 5)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(whole) != 5*fileBlock || crc32.ChecksumIEEE(whole) != sum {
		t.Errorf("%d bytes with checksum %x, want %d with %x",
			len(whole), crc32.ChecksumIEEE(whole), 5*fileBlock, sum)
	}

	for n := range 5 {
		got, err := readBlock(f, n, make([]byte, fileBlock))
		if want := crc32.ChecksumIEEE(whole[n*fileBlock : (n+1)*fileBlock]); err != nil || got != want {
			t.Errorf("block %d: checksum %x, %v, want %x", n, got, err, want)
		}
	}

	var copied bytes.Buffer
	got, err := stream(&copied, bytes.NewReader(whole))
	if err != nil || got != sum || !bytes.Equal(copied.Bytes(), whole) {
		t.Errorf("stream: checksum %x, %v, want %x and the same bytes", got, err, sum)
	}
}

func TestFileSegmentsLeaveNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, run := range []Func{runRead, runWrite, runStream} {
		if err := run(t.Context(), rand.New(rand.NewPCG(1, 1)), 20); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
