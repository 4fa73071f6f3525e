package calibrate

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

//go:embed data/*.csv.gz
var shipped embed.FS

// Data is the source of the measurements.
type Data struct {
	dir string // "" for the data in the repository
}

// Shipped is the data in the repository. Its licence allows redistribution.
func Shipped() Data { return Data{} }

// Dir is a folder with one subfolder for each data set.
func Dir(dir string) (Data, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Data{}, fmt.Errorf("data: %w", err)
	}
	if !info.IsDir() {
		return Data{}, fmt.Errorf("data: %s is not a folder", dir)
	}
	return Data{dir}, nil
}

// String describes the source for display.
func (d Data) String() string {
	if d.dir == "" {
		return "shipped with AWARE"
	}
	return d.dir
}

// errAbsent means that a data set does not exist.
var errAbsent = errors.New("absent")

// open opens a file by its name below the folder. The error is errAbsent when
// it does not exist.
func (d Data) open(name string) (io.ReadCloser, string, error) {
	if d.dir == "" {
		in, err := unpack(path.Base(name))
		return in, name, err
	}
	file := filepath.Join(d.dir, filepath.FromSlash(name))
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, file, errAbsent
	}
	return f, file, err
}

func unpack(base string) (io.ReadCloser, error) {
	packed, err := shipped.ReadFile("data/" + base + ".gz")
	if err != nil {
		return nil, errAbsent
	}
	return gzip.NewReader(bytes.NewReader(packed))
}

// read parses one file. A missing file is not an error; the result is then not
// found.
func read[T any](d Data, name string, parse func(string, io.Reader) (T, error)) (v T, found bool, err error) {
	in, file, err := d.open(name)
	if errors.Is(err, errAbsent) {
		return v, false, nil
	}
	if err != nil {
		return v, false, fmt.Errorf("opening %s: %w", file, err)
	}
	defer in.Close()
	v, err = parse(file, in)
	return v, err == nil, err
}

// into reads one file into v, and records a missing file.
func into[T any](in *inputs, d Data, name string, parse func(string, io.Reader) (T, error), v *T) error {
	got, found, err := read(d, name, parse)
	if err != nil {
		return err
	}
	*v = got
	if !found {
		in.absent[name] = true
	}
	return nil
}
