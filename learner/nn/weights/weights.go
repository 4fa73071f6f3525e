package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/google/renameio/v2"
)

// Tensor is numbers in row-major order.
type Tensor struct {
	Shape []int
	Data  []float64
}

// File is what a file holds. Names of tensors and blobs are one space.
type File struct {
	Meta    map[string]string
	Tensors map[string]Tensor
	Blobs   map[string][]byte // anything else, such as the state of a random source; in the file they are tensors of U8
}

// Largest is the size in bytes up to which files are read.
const Largest = 1 << 30

const (
	metadata = "__metadata__"
	digest   = "sha256"
)

type entry struct {
	Dtype   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// Encode is a file's bytes: the same for the same content.
func Encode(f File) ([]byte, error) {
	var numbers []byte
	header := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(f.Tensors)) {
		t := f.Tensors[name]
		if name == metadata || name == "" {
			return nil, fmt.Errorf("tensor %q: the name is the format's own", name)
		}
		if n := size(t.Shape); n != len(t.Data) {
			return nil, fmt.Errorf("tensor %q: %d numbers for shape %v", name, len(t.Data), t.Shape)
		}
		begin := len(numbers)
		for _, v := range t.Data {
			numbers = binary.LittleEndian.AppendUint64(numbers, math.Float64bits(v))
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		header[name] = entry{"F64", shape, [2]int{begin, len(numbers)}}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Blobs)) {
		if _, twice := header[name]; twice || name == metadata || name == "" {
			return nil, fmt.Errorf("blob %q: the name is taken", name)
		}
		begin := len(numbers)
		numbers = append(numbers, f.Blobs[name]...)
		header[name] = entry{"U8", []int{len(f.Blobs[name])}, [2]int{begin, len(numbers)}}
	}
	meta := maps.Clone(f.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	if _, ok := meta[digest]; ok {
		return nil, fmt.Errorf("metadata %q: the key is this package's own", digest)
	}
	sum := sha256.Sum256(numbers)
	meta[digest] = hex.EncodeToString(sum[:])
	header[metadata] = meta
	text, err := json.Marshal(header) // keys in order
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 { // so that the numbers are aligned, as the format recommends
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), numbers...), nil
}

func size(shape []int) int {
	n := 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt32/d {
			return -1
		}
		n *= d
	}
	return n
}

// Decode reads a file's bytes.
func Decode(raw []byte) (File, error) {
	if len(raw) < 8 {
		return File{}, fmt.Errorf("%d bytes: it must have at least the header's length", len(raw))
	}
	length := binary.LittleEndian.Uint64(raw)
	if length > uint64(len(raw)-8) {
		return File{}, fmt.Errorf("a header of %d bytes in a file of %d: it is truncated data", length,
			len(raw))
	}
	text, numbers := raw[8:8+length], raw[8+length:]
	d := json.NewDecoder(bytes.NewReader(text))
	var header map[string]json.RawMessage
	if err := d.Decode(&header); err != nil {
		return File{}, fmt.Errorf("the header: %w", err)
	}
	f := File{Meta: map[string]string{}, Tensors: map[string]Tensor{}, Blobs: map[string][]byte{}}
	if m, ok := header[metadata]; ok {
		if err := json.Unmarshal(m, &f.Meta); err != nil {
			return File{}, fmt.Errorf("the metadata: %w", err)
		}
		delete(header, metadata)
	}
	covered := 0
	for _, name := range slices.Sorted(maps.Keys(header)) {
		var e entry
		if err := json.Unmarshal(header[name], &e); err != nil {
			return File{}, fmt.Errorf("tensor %q: %w", name, err)
		}
		n := size(e.Shape)
		begin := e.Offsets[0]
		end := e.Offsets[1]
		each := 8
		if e.Dtype == "U8" {
			each = 1
		}
		switch {
		case e.Dtype != "F64" && e.Dtype != "U8":
			return File{}, fmt.Errorf("tensor %q: numbers are %q: it must be F64 or U8", name, e.Dtype)
		case n < 0:
			return File{}, fmt.Errorf("tensor %q: shape %v is not one", name, e.Shape)
		case begin < 0 || end < begin || end > len(numbers):
			return File{}, fmt.Errorf("tensor %q: bytes %d to %d of %d: the file is truncated or was changed",
				name, begin, end, len(numbers))
		case end-begin != each*n:
			return File{}, fmt.Errorf("tensor %q: %d bytes for shape %v", name, end-begin, e.Shape)
		}
		covered += end - begin
		if each == 1 {
			f.Blobs[name] = bytes.Clone(numbers[begin:end])
			continue
		}
		t := Tensor{Shape: e.Shape, Data: make([]float64, n)}
		for i := range t.Data {
			t.Data[i] = math.Float64frombits(binary.LittleEndian.Uint64(numbers[begin+8*i:]))
		}
		f.Tensors[name] = t
	}
	if covered != len(numbers) {
		return File{}, fmt.Errorf("tensors have %d bytes of %d", covered, len(numbers))
	}
	sum := sha256.Sum256(numbers)
	if want, ok := f.Meta[digest]; ok && want != hex.EncodeToString(sum[:]) {
		return File{}, fmt.Errorf("the numbers' SHA-256 is %s, the metadata has %s: the file was changed or is damaged",
			hex.EncodeToString(sum[:]), want)
	}
	delete(f.Meta, digest)
	return f, nil
}

// Write writes a file atomically: it is on the disk completely, or not at all.
func Write(path string, f File) error {
	raw, err := Encode(f)
	if err != nil {
		return fmt.Errorf("weights %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, raw, 0o644); err != nil {
		return fmt.Errorf("weights %s: %w", path, err)
	}
	return nil
}

// Read reads a file.
func Read(path string) (File, error) {
	in, err := os.Open(path)
	if err != nil {
		return File{}, fmt.Errorf("weights: %w", err)
	}
	defer in.Close()
	raw, err := io.ReadAll(io.LimitReader(in, Largest+1))
	if err != nil {
		return File{}, fmt.Errorf("weights %s: %w", path, err)
	}
	if len(raw) > Largest {
		return File{}, fmt.Errorf("weights %s: more than %d bytes", path, Largest)
	}
	f, err := Decode(raw)
	if err != nil {
		return File{}, fmt.Errorf("weights %s: %w", path, err)
	}
	return f, nil
}

// Take is a tensor's numbers, or an error that names what is missing, or of
// another shape.
func (f File) Take(name string, shape ...int) ([]float64, error) {
	t, ok := f.Tensors[name]
	if !ok {
		return nil, fmt.Errorf("tensor %q is missing", name)
	}
	if !slices.Equal(t.Shape, shape) {
		return nil, fmt.Errorf("tensor %q has shape %v: it must be %v", name, t.Shape, shape)
	}
	return t.Data, nil
}

// Blob is a blob's bytes, or an error that names what is missing.
func (f File) Blob(name string) ([]byte, error) {
	b, ok := f.Blobs[name]
	if !ok {
		return nil, fmt.Errorf("blob %q is missing", name)
	}
	return b, nil
}
