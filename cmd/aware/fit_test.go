package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// measuredFolder has six windows of two policies and two services.
func measuredFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "cilantro-hotelres", "hotelres_measurements.csv")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "policy,event_start_time,event_end_time,load,avg_latency,p99,alloc_x,alloc_y\n" +
		"a,0,9,900,5,20,4,4\na,9,18,890,6,25,3,4\na,18,27,700,900,2000,1,4\n" +
		"b,0,9,905,5,19,5,4\nb,9,18,880,7,30,2,4\nb,18,27,720,800,1900,1,3\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFitPrintsTheSameConstantsTwice(t *testing.T) {
	data := measuredFolder(t)
	var seen [2]bytes.Buffer
	for i := range seen {
		cmd := fitCommand()
		cmd.SetOut(&seen[i])
		cmd.SetErr(&bytes.Buffer{})
		cmd.SetArgs([]string{"--data", data, "--json"})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(seen[0].Bytes(), seen[1].Bytes()) {
		t.Error("two fits to the same data differ")
	}
	var fitted struct {
		Operations []struct {
			Name string `json:"name"`
			Work int64  `json:"work_ns"`
		} `json:"operations"`
	}
	if err := json.Unmarshal(seen[0].Bytes(), &fitted); err != nil || len(fitted.Operations) != 3 {
		t.Errorf("%v: %d operations, want the client's and one of each service", err, len(fitted.Operations))
	}
}

func TestValidateSimulatesAFolderThatItHasNeverSeen(t *testing.T) {
	cmd := validateCommand()
	var stdout bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs([]string{"--data", measuredFolder(t), "--json", "--out", ""})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var top struct {
		Cilantro struct {
			ByPolicy map[string]any            `json:"by_policy"`
			Beside   map[string]map[string]any `json:"beside"`
			Regress  map[string]any            `json:"regression"`
			Reason   string                    `json:"world_reason"`
		} `json:"cilantro"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &top); err != nil {
		t.Fatal(err)
	}
	c := top.Cilantro
	if c.Reason != "" || c.ByPolicy["spearman"] == nil || c.ByPolicy["completed_median_ape"] == nil ||
		c.Regress["by_policy"] == nil {
		t.Errorf("reason %q, %v, regression %v", c.Reason, c.ByPolicy, c.Regress)
	}
	if c.Beside["constant"]["median_ape"] == nil {
		t.Errorf("no constant beside it: %v", c.Beside)
	}
}

func TestFitNamesTheDataThatItNeeds(t *testing.T) {
	cmd := fitCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetErr(&bytes.Buffer{})
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "chunkfunc-memory-profiles"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "chunkfunc-memory-profiles", "profiles.csv")
	if err := os.WriteFile(file, []byte("provider,function,memory_mib,milli_cpu,input_size_bytes,execution_time_ms,status_code\n"+
		"c,f,100,500,7,2100,200\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.SetArgs([]string{"--data", dir})
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "hotelres_measurements.csv") {
		t.Errorf("no windows to fit to: %v", err)
	}
}
