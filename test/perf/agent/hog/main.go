// Command hog uses all CPU of one core that it gets, until it is killed.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	go func() { <-ended; os.Exit(0) }()
	for n := uint64(1); ; n++ {
		n *= n
	}
}
