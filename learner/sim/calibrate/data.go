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

// Data is where the measurements come from.
type Data struct {
	dir string // "" for what the repository ships
}

// Shipped is the data that the licence of its authors lets the repository hold.
func Shipped() Data { return Data{} }

// Dir is a folder that holds one subfolder for each data set.
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

// String names the place for people.
func (d Data) String() string {
	if d.dir == "" {
		return "shipped with AWARE"
	}
	return d.dir
}

// errAbsent says that a data set is not there at all.
var errAbsent = errors.New("absent")

// open gives one file by its name below the folder; the error is errAbsent when it is not there.
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

// read parses one file; there is no error and nothing found when it is absent.
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

// into reads one file into v, and notes when it is absent.
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
