package main

import (
	"fmt"
	"os"
	"syscall"
)

// holdMemory makes n bytes resident for the rest of the process's life, as a
// cache or a model would be. They lie outside of Go's heap: on it, they would
// make the garbage collector run less often, and so change the very CPU use
// that is to be measured.
func holdMemory(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	held, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("holding %d bytes of memory: %w", n, err)
	}
	// A page counts only once it is written to.
	for i := 0; i < n; i += os.Getpagesize() {
		held[i] = 1
	}
	return held, nil
}
