package groups

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"awarescale.dev/aware/learner/mdp"
)

func TestEachLineIsAnsweredByWhatTheFilesSay(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cgroup.controllers": "cpu memory\n",
		"pod/c/cpu.max":      "30000 100000\n",
		"pod/c/memory.max":   "67108864\n",
		"pod/c/cpu.stat":     "usage_usec 1500000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 10\n",
		"pod/c/cgroup.procs": "7\n12\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := Serve(root, strings.NewReader("\"/pod/c\"\n\"/gone\"\n"), &out); err != nil {
		t.Fatal(err)
	}
	var first, second answer
	answers := json.NewDecoder(&out)
	if err := answers.Decode(&first); err != nil {
		t.Fatal(err)
	}
	if err := answers.Decode(&second); err != nil {
		t.Fatal(err)
	}
	r := first.Reading
	if first.Error != "" || r.Limits != (mdp.Size{CPU: 300, Memory: 64 * mdp.MiB}) || r.Used != 1500*time.Millisecond ||
		r.Throttled != 4 || !slices.Equal(r.Processes, []int{7, 12}) {
		t.Errorf("got %+v", first)
	}
	if !strings.Contains(second.Error, "gone") {
		t.Errorf("of a group that is not there: %+v", second)
	}
	if err := Serve(root, strings.NewReader("{"), &out); err == nil {
		t.Error("a line that is no path is no error")
	}
}
