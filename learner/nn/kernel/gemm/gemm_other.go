//go:build !amd64

package gemm

// available are the sets of kernels for this CPU, the best one last.
func available() []Set { return []Set{Gonum()} }
