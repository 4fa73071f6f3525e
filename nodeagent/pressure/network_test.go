package pressure_test

import (
	"os"
	"path/filepath"
	"testing"

	"awarescale.dev/aware/nodeagent/pressure"
)

func TestNetworkCountsAllInterfacesButTheLoopback(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "42", "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// proc(5), /proc/net/dev: received bytes are the first number of a line,
	// sent bytes the ninth.
	const dev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  999999     100    0    0    0     0          0         0   999999     100    0    0    0     0       0          0
  eth0:    1000      10    0    0    0     0          0         0      200       2    0    0    0     0       0          0
  eth1:      30       1    0    0    0     0          0         0        4       1    0    0    0     0       0          0
`
	if err := os.WriteFile(filepath.Join(dir, "dev"), []byte(dev), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := pressure.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Network(42); err != nil || got != 1234 {
		t.Errorf("%d bytes, %v; want 1234", got, err)
	}
	if got, err := r.Network(43); err == nil {
		t.Errorf("%d bytes of a process that is not there", got)
	}
	own, err := pressure.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.Network(os.Getpid()); err != nil {
		t.Errorf("our own network: %v", err)
	}
}
