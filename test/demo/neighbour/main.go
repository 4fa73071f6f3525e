// Command neighbour burns a core in bursts, beside the application of the demo: for
// --busy of each --every. It never ends by itself.
package main

import (
	"flag"
	"time"
)

func main() {
	busy := flag.Duration("busy", 4*time.Second, "how long a burst is")
	every := flag.Duration("every", 15*time.Second, "from the beginning of a burst to the next")
	flag.Parse()
	for x := 1; ; {
		begun := time.Now()
		for time.Since(begun) < *busy {
			for range 1_000_000 {
				x = x*31 + 7
			}
		}
		time.Sleep(max(0, *every-time.Since(begun)))
	}
}
