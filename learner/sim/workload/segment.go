package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"awarescale.dev/aware/learner/mdp"
	"awarescale.dev/aware/learner/sim"
)

// Payload is what a request brings along for a segment to work on: one of the
// sizes, each as likely as the others.
type Payload struct {
	Unit  string
	Sizes []float64
}

// Mean is the mean size.
func (p Payload) Mean() float64 {
	sum := 0.0
	for _, s := range p.Sizes {
		sum += s
	}
	return sum / float64(len(p.Sizes))
}

// variation is the sizes' standard deviation over their mean.
func (p Payload) variation() float64 {
	m, squares := p.Mean(), 0.0
	for _, s := range p.Sizes {
		squares += (s - m) * (s - m)
	}
	return math.Sqrt(squares/float64(len(p.Sizes))) / m
}

func (p Payload) equal(q Payload) bool { return p.Unit == q.Unit && slices.Equal(p.Sizes, q.Sizes) }

// Segment is one of the 16 kinds of work that AWARE's applications are made of,
// as what it takes of a machine. Its name is that of the segment in test/apps
// that does such work for real.
type Segment struct {
	Name      string
	Does      string        // one line for a list
	Work      time.Duration // mean CPU time of a payload
	Wait      time.Duration // for what is outside of the cluster
	Variation float64       // of the work beside that of the payload's size: standard deviation over mean
	Parallel  int           // CPUs that it computes on
	Serial    mdp.Ratio     // share of its work that only one of them can do
	Memory    sim.Memory
	Sensitive sim.Pressure
	Exerts    sim.Pressure
	Payload   Payload
}

// with is the segment with other payloads: what it takes is proportional to
// their mean size.
func (s Segment) with(p Payload) Segment {
	factor := p.Mean() / s.Payload.Mean()
	s.Work = time.Duration(float64(s.Work) * factor)
	s.Wait = time.Duration(float64(s.Wait) * factor)
	s.Memory.Base = mdp.Bytes(float64(s.Memory.Base) * factor)
	s.Memory.PerRequest = mdp.Bytes(float64(s.Memory.PerRequest) * factor)
	s.Payload = p
	return s
}

// variation is the work's with that of its payloads: the factors are
// independent, so 1 + cv² multiplies.
func (s Segment) variation() float64 {
	v, p := s.Variation, s.Payload.variation()
	return math.Sqrt((1+v*v)*(1+p*p) - 1)
}

// The payloads before the updates of AWARE (§2.3 of the paper, Insight 5.2 of
// the dissertation).
var (
	files      = Payload{"KB", []float64{128, 256, 384}}
	items      = Payload{"items", []float64{1024}}
	operations = Payload{"operations", []float64{1e8}}
	pixels     = Payload{"pixels", []float64{40 * 40}}
	documents  = Payload{"bytes", []float64{250, 500, 1000}}
	products   = Payload{"multiplications", []float64{50 * 50 * 50}}
	pages      = Payload{"pages", []float64{1}}
	pauses     = Payload{"ms", []float64{10}}
)

// What more work a segment needs at full pressure on a shared resource: the
// median slowdown of a PARSEC or SPLASH program that does the like beside one
// iBench stressor, less 1. Four teams of ETH Zurich's course on cloud computing
// measured them (2023 to 2025). They measured no disk and no network: those
// figures are chosen.
func pressed(cpu, llc, memory, disk, network float64) (p sim.Pressure) {
	p[sim.SharedCPU], p[sim.LLC], p[sim.MemoryBandwidth], p[sim.Disk], p[sim.Network] = cpu, llc, memory, disk, network
	return p
}

var (
	likeBlackscholes = pressed(0.28, 0.47, 0.33, 0, 0)    // arithmetic on little data
	likeFerret       = pressed(0.99, 1.73, 1.24, 0, 0)    // classifies images
	likeFreqmine     = pressed(0.99, 0.82, 0.54, 0, 0)    // mines text
	likeDedup        = pressed(0.50, 0.97, 0.52, 0, 0)    // compresses a stream
	likeVips         = pressed(0.70, 1.10, 0.70, 0, 0)    // transforms images
	likeCanneal      = pressed(0.18, 0.86, 0.32, 0, 0)    // walks over more than the caches hold
	likeRadix        = pressed(0.04, 0.55, 0.07, 1, 0)    // moves data once; on a disk
	likeRadixAfar    = pressed(0.04, 0.55, 0.07, 0.5, 1)  // and over a network
	exertsLittle     = pressed(0.01, 0.005, 0.003, 0, 0)  // chosen, as all exerts are: shares of a node of 32 to 64 cores
	exertsCaches     = pressed(0.01, 0.02, 0.012, 0, 0)   // per busy core
	exertsMemory     = pressed(0.01, 0.03, 0.03, 0, 0)    //
	exertsDisk       = pressed(0.005, 0.01, 0.02, 0.1, 0) //
	exertsNetwork    = pressed(0.005, 0.01, 0.02, 0.02, 0.05)
)

// Segments are the 16 segments in reading order: arithmetic, text, compression,
// images, tables, files, waiting.
//
// Where their figures are from:
//
//   - Work: what test/apps/segment does in a millisecond of CPU, times what a
//     request asks for here. That is measured for compress and decompress,
//     whose units are those of the paper (22 KiB and 128 KiB of text per
//     millisecond: 11.6 and 2 ms for the mean file). For the others the number
//     of milliseconds is chosen, in the range of 1 to 5, since a matrix of
//     50x50 alone takes a fortieth of one: a request is taken to do as many of
//     them as that. ChunkFunc's smallest functions take 65 to 100 ms of CPU;
//     requests here are shorter, so that a second has enough of them to judge a
//     percentile.
//   - Wait of read, write and stream: AWS Lambda functions that write to S3
//     wait for 6 (Node, .NET) to 24 (Python) times as long as they compute, as
//     the fits of their durations against their CPU share show: 10 here.
//   - Variation: chosen. The Lambda functions' durations vary by 3 % at equal
//     work, and more of it comes from payloads.
//   - Parallel and Serial: part 1's segments use one core. Matrix libraries and
//     model servers use several: four here, with the serial share that
//     blackscholes (2.64 times as fast with 4 threads) and ferret (3.37 times)
//     have by Amdahl's law.
//   - Memory: chosen, with the cliff that ChunkFunc found in mind: functions
//     that hold what they work on do not run at all below 256 to 512 MiB, and
//     do not get faster with more.
//   - Sensitive: of the program of PARSEC that does the like, see pressed.
//     Exerts: chosen.
func Segments() []Segment {
	none := sim.Memory{PerRequest: 16 << 10}
	return []Segment{
		{
			Name:      "float",
			Does:      "compute with floating-point numbers",
			Work:      5 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    none,
			Sensitive: likeBlackscholes,
			Exerts:    exertsLittle,
			Payload:   operations,
		},
		{
			Name:      "matmul",
			Does:      "multiply matrices",
			Work:      2 * ms,
			Variation: 0.1,
			Parallel:  4,
			Serial:    0.17,
			Memory:    sim.Memory{PerRequest: 128 << 10},
			Sensitive: likeBlackscholes,
			Exerts:    exertsCaches,
			Payload:   products,
		},
		{
			Name:      "inference",
			Does:      "classify with a small model",
			Work:      3 * ms,
			Variation: 0.15,
			Parallel:  4,
			Serial:    0.06,
			Memory:    sim.Memory{Base: 24 * mdp.MiB, PerRequest: 256 << 10},
			Sensitive: likeFerret,
			Exerts:    exertsCaches,
			Payload:   products,
		},
		{
			Name:      "text",
			Does:      "count words",
			Work:      2 * ms,
			Variation: 0.3,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 128 << 10},
			Sensitive: likeFreqmine,
			Exerts:    exertsCaches,
			Payload:   documents,
		},
		{
			Name:      "json",
			Does:      "encode and decode JSON",
			Work:      2 * ms,
			Variation: 0.3,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 128 << 10},
			Sensitive: likeFreqmine,
			Exerts:    exertsCaches,
			Payload:   documents,
		},
		{
			Name:      "page",
			Does:      "render an HTML page",
			Work:      2 * ms,
			Variation: 0.3,
			Parallel:  1,
			Memory:    sim.Memory{Base: 4 * mdp.MiB, PerRequest: 256 << 10},
			Sensitive: likeFreqmine,
			Exerts:    exertsCaches,
			Payload:   pages,
		},
		{
			Name:      "compress",
			Does:      "compress a file",
			Work:      11600 * us,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 1 * mdp.MiB},
			Sensitive: likeDedup,
			Exerts:    exertsCaches,
			Payload:   files,
		},
		{
			Name:      "decompress",
			Does:      "decompress a file",
			Work:      2 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 1 * mdp.MiB},
			Sensitive: likeDedup,
			Exerts:    exertsCaches,
			Payload:   files,
		},
		{
			Name:      "resize",
			Does:      "halve an image",
			Work:      3 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 256 << 10},
			Sensitive: likeVips,
			Exerts:    exertsCaches,
			Payload:   pixels,
		},
		{
			Name:      "rotate",
			Does:      "turn an image",
			Work:      1500 * us,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 256 << 10},
			Sensitive: likeVips,
			Exerts:    exertsMemory,
			Payload:   pixels,
		},
		{
			Name:      "jpeg",
			Does:      "compress an image",
			Work:      3 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 256 << 10},
			Sensitive: likeVips,
			Exerts:    exertsCaches,
			Payload:   pixels,
		},
		{
			Name:      "table",
			Does:      "scan a table",
			Work:      1500 * us,
			Variation: 0.2,
			Parallel:  1,
			Memory:    sim.Memory{Base: 16 * mdp.MiB, PerRequest: 64 << 10},
			Sensitive: likeCanneal,
			Exerts:    exertsMemory,
			Payload:   items,
		},
		{
			Name:      "read",
			Does:      "read a file from a store",
			Work:      800 * us,
			Wait:      8 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 512 << 10},
			Sensitive: likeRadixAfar,
			Exerts:    exertsNetwork,
			Payload:   files,
		},
		{
			Name:      "write",
			Does:      "write a file to a store",
			Work:      1 * ms,
			Wait:      10 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 512 << 10},
			Sensitive: likeRadixAfar,
			Exerts:    exertsNetwork,
			Payload:   files,
		},
		{
			Name:      "stream",
			Does:      "copy a file from a store to the disk",
			Work:      1500 * us,
			Wait:      15 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    sim.Memory{PerRequest: 256 << 10},
			Sensitive: likeRadix,
			Exerts:    exertsDisk,
			Payload:   files,
		},
		{
			Name:      "sleep",
			Does:      "wait for a remote service",
			Work:      50 * us,
			Wait:      10 * ms,
			Variation: 0.1,
			Parallel:  1,
			Memory:    none,
			Payload:   pauses,
		},
	}
}

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// FindSegment is the segment with a name. Its error lists the names.
func FindSegment(name string) (Segment, error) {
	var names []string
	for _, s := range Segments() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Segment{}, fmt.Errorf("segment %q: known are %s", name, strings.Join(names, ", "))
}
