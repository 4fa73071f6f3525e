package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestValidatePrintsOneJSONObjectLast(t *testing.T) {
	out := filepath.Join(t.TempDir(), "report")
	cmd := validateCommand()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"--json", "--out", out, "--windows", "1"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var top map[string]map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &top); err != nil {
		t.Fatalf("last line: %v", err)
	}
	for _, key := range []string{"cilantro", "time", "interference"} {
		if top[key] == nil {
			t.Errorf("key %q is missing", key)
		}
	}
	if len(top) != 3 {
		t.Errorf("%d keys at the top, want 3", len(top))
	}
	if _, err := os.Stat(filepath.Join(out, "report.html")); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheDataThatItCannotRead(t *testing.T) {
	cmd := validateCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"--data", filepath.Join(t.TempDir(), "nowhere"), "--out", ""})
	cmd.SetErr(&bytes.Buffer{})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("data that is not there: %v", err)
	}
}
