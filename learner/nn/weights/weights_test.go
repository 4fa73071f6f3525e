package weights_test

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"awarescale.dev/aware/learner/nn/weights"
)

var sample = weights.File{
	Meta: map[string]string{"algorithm": "ddpg", "step": "12"},
	Tensors: map[string]weights.Tensor{
		"actor.0.weight": {Shape: []int{2, 3}, Data: []float64{1, 2, 3, 4, 5, -0.1}},
		"actor.0.bias":   {Shape: []int{2}, Data: []float64{math.SmallestNonzeroFloat64, math.MaxFloat64}},
		"loss":           {Shape: []int{}, Data: []float64{math.Pi}},
	},
	Blobs: map[string][]byte{"random": {1, 2, 3}},
}

func TestWeightsComeBackExactly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := weights.Write(path, sample); err != nil {
		t.Fatal(err)
	}
	got, err := weights.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, sample) {
		t.Errorf("%+v\n%+v", got, sample)
	}
	if data, err := got.Take("actor.0.weight", 2, 3); err != nil || data[5] != -0.1 {
		t.Error(data, err)
	}
	if _, err := got.Take("actor.0.weight", 3, 2); err == nil || !strings.Contains(err.Error(), "shape [2 3]: it must be [3 2]") {
		t.Error(err)
	}
	if _, err := got.Take("critic"); err == nil || !strings.Contains(err.Error(), `"critic" is missing`) {
		t.Error(err)
	}
}

func TestEqualContentIsEqualBytes(t *testing.T) {
	a, _ := weights.Encode(sample)
	b, _ := weights.Encode(weights.File{
		Meta:    maps.Clone(sample.Meta),
		Tensors: maps.Clone(sample.Tensors),
		Blobs:   sample.Blobs,
	})
	if !bytes.Equal(a, b) {
		t.Error("two encodings differ")
	}
}

// The bytes of a file that Python's safetensors package would write for one F64
// tensor, but for our digest.
func TestTheFormatIsSafetensors(t *testing.T) {
	header := `{"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}`
	for len(header)%8 != 0 {
		header += " "
	}
	raw := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	raw = append(raw, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f)
	f, err := weights.Decode(raw)
	if err != nil || f.Tensors["x"].Data[0] != 1 {
		t.Error(f, err)
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	raw, err := weights.Encode(sample)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range raw {
		if _, err := weights.Decode(raw[:cut]); err == nil {
			t.Fatalf("a file cut at byte %d was believed", cut)
		}
	}
	tampered := bytes.Clone(raw)
	tampered[len(raw)-3] ^= 1
	if _, err := weights.Decode(tampered); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Error(err)
	}
	for was, is := range map[string]string{`"F64"`: `"F32"`, `[2,3]`: `[9,3]`, `[2,3] `: `[-2,3]`} {
		if _, err := weights.Decode(bytes.Replace(raw, []byte(strings.TrimSpace(was)), []byte(is), 1)); err == nil {
			t.Errorf("%s for %s was believed", is, was)
		}
	}
}

func TestAWriteIntoAMissingFolderFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "w.safetensors")
	if err := weights.Write(path, sample); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	if _, err := weights.Read(path); err == nil {
		t.Error("read")
	}
}

// A write that fails leaves the file that was there.
func TestAFailedWriteKeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := weights.Write(path, sample); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	bad := weights.File{Tensors: map[string]weights.Tensor{"x": {Shape: []int{2}, Data: []float64{1}}}}
	if err := weights.Write(path, bad); err == nil || !strings.Contains(err.Error(), `"x": 1 numbers for shape [2]`) {
		t.Error(err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("the old file is gone")
	}
}

func FuzzDecode(f *testing.F) {
	raw, _ := weights.Encode(sample)
	f.Add(raw)
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := weights.Decode(raw)
		if err != nil {
			return
		}
		again, err := weights.Encode(file)
		if err != nil {
			t.Skip("a name that we would not write")
		}
		if _, err := weights.Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}
