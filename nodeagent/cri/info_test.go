package cri

import "testing"

func FuzzInfo(f *testing.F) {
	f.Add(`{"sandboxID":"s","pid":4711,"runtimeSpec":{"linux":{"cgroupsPath":"/kubepods/burstable/pod1/abc"}}}`)
	f.Add(`{"pid":"x"}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, info string) {
		if c, err := parseInfo(info); err == nil && c.CgroupsPath == "" {
			t.Errorf("%q has no cgroupsPath and no error", info)
		}
	})
}
