package static

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAnImageHasItsFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("#!"), 0o644); err != nil {
		t.Fatal(err)
	}
	image, err := Image(map[string]string{"/bin/program": file}, []string{"/bin/program"}, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/bin/program"}) ||
		len(config.RootFS.DiffIDs) != 1 || config.Architecture != "arm64" || config.OS != "linux" {
		t.Errorf("got %+v, %v", config, err)
	}
	again, err := Image(map[string]string{"/bin/program": file}, []string{"/bin/program"}, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := image.Digest(); a.Hex == "" {
		t.Error("no digest")
	} else if b, _ := again.Digest(); a != b {
		t.Errorf("the same files make %v and %v", a, b)
	}
	if _, err := Image(map[string]string{"program": file}, nil, "amd64"); err == nil {
		t.Error("a relative path is accepted")
	}
	if _, err := Image(map[string]string{"/p": file + "s"}, nil, "amd64"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v for a file that is not there", err)
	}
}
