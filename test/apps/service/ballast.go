package main

import (
	"fmt"
	"os"
	"syscall"
)

// holdMemory makes n bytes resident until the process ends, like a cache or a model.
// They are outside of Go's heap. In the heap they would make the garbage collector run
// less often, and so change the CPU usage that is measured.
func holdMemory(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	held, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("holding %d bytes of memory: %w", n, err)
	}
	// A page is resident only after a write.
	for i := 0; i < n; i += os.Getpagesize() {
		held[i] = 1
	}
	return held, nil
}
