package pressure

import "fmt"

// Network is how many bytes the network namespace of a process has received and
// sent since it was made, by all interfaces but the loopback. All containers of a
// pod have the same namespace. The process must be visible below the proc root: in
// a container that is the host's proc, mounted.
func (r *Reader) Network(pid int) (uint64, error) {
	p, err := r.fs.Proc(pid)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	interfaces, err := p.NetDev()
	if err != nil {
		return 0, fmt.Errorf("network interfaces of process %d: %w", pid, err)
	}
	var sum uint64
	for name, i := range interfaces {
		if name != "lo" {
			sum += i.RxBytes + i.TxBytes
		}
	}
	return sum, nil
}
