// Package segment has the units of work of the test applications, and composes them.
//
// AWARE (USENIX ATC 2023, §2.3 and §5.1) builds its 1,000 synthetic
// applications by drawing from 16 representative segments, which it took from
// Sizeless: the smallest units of common cloud work, such as rotating an
// image or rendering a web page. The 16 here do the same kinds of work, for
// real: no segment waits in a loop on a clock, so a container with half the CPU
// takes about twice as long. Allocated memory is really used.
//
// Every segment has a size, and its cost grows about linearly with it: json with
// size 20 encodes and decodes 20 records. The default sizes are chosen so that
// one call costs about a millisecond of CPU (the benchmarks of this package
// say how much on your machine), except for sleep, which costs none. So
// "json:2,compress:1" reads as about 3 ms of CPU.
//
// The compositions published with the paper's artefact name 11 segments. Their
// names here are:
//
//	readFile         read         floatOperations  float
//	writeFile        write        matMul           matmul
//	imageResize      resize       compress         compress
//	imageRotate      rotate       decompress       decompress
//	imageCompress    jpeg         json2yaml        json
//	sleep            sleep
//
// Departures from the paper:
//
//  1. No segment needs an external service. Sleep stands for the wait on one.
//  2. A segment makes its own input, from the random source it is given.
//  3. Json turns records into JSON and back, not JSON into YAML.
//  4. Write and stream do not sync to the disk: the cluster lab has etcd on the
//     same disk, which must not wait for it.
//
// The package owns the work. The service decides which work a
// request does, and how many requests run at once.
package segment
