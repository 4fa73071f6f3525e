package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Stress is the resource that a segment uses most.
type Stress string

const (
	CPU    Stress = "cpu"    // arithmetic on data that fits the caches
	Memory Stress = "memory" // allocation, or a walk over more than the caches hold
	IO     Stress = "io"     // files (through the page cache), or waiting
)

// Func does size units of work on input drawn from r. It returns early, with
// the context's error, between two units once ctx is done.
type Func func(ctx context.Context, r *rand.Rand, size int) error

// Segment is one kind of work.
type Segment struct {
	Name   string
	Does   string // one line for a list
	Size   int    // default size, about a millisecond of CPU
	Unit   string // what size counts
	Stress Stress
	Run    Func
}

// All returns the segments in reading order: arithmetic, text, images, tables,
// files, waiting.
func All() []Segment {
	return []Segment{
		{"float", "integrate a damped sine by Simpson's rule", 80, "thousand evaluations", CPU, runFloat},
		{"matmul", "multiply two 64x64 matrices", 18, "products", CPU, runMatmul},
		{"inference", "classify with a 64-128-10 perceptron", 16, "batches of 16 inputs", CPU, runInference},
		{"text", "count words, find the ten most frequent", 56, "KiB of text", Memory, runText},
		{"json", "encode records to JSON and decode them again", 280, "records", Memory, runJSON},
		{"page", "render an HTML page from a template", 220, "table rows", Memory, runPage},
		{"compress", "compress text with gzip", 22, "KiB of text", CPU, runCompress},
		{"decompress", "decompress text with gzip", 8, "blocks of 16 KiB", CPU, runDecompress},
		{"resize", "halve an image with a bilinear filter", 3, "images of 128x128 pixels", CPU, runResize},
		{"rotate", "turn an image by 90 degrees", 13, "images of 128x128 pixels", Memory, runRotate},
		{"jpeg", "compress an image to JPEG", 3, "images of 128x128 pixels", CPU, runJPEG},
		{"table", "filter a table in memory and sum by group", 420, "thousand rows", Memory, runTable},
		{"read", "read a file at random places", 240, "blocks of 64 KiB", IO, runRead},
		{"write", "write a new file and remove it", 22, "blocks of 64 KiB", IO, runWrite},
		{"stream", "copy a file to a new one with a checksum on the way", 42, "blocks of 64 KiB", IO, runStream},
		{"sleep", "wait, as for a remote service", 1, "milliseconds", IO, runSleep},
	}
}

// Find returns the segment called name. Its error lists the known names.
func Find(name string) (Segment, error) {
	all := All()
	names := make([]string, len(all))
	for i, s := range all {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return Segment{}, fmt.Errorf("unknown segment %q: known are %s", name, strings.Join(names, ", "))
}

// each calls unit size times, and stops between two calls once ctx is done.
func each(ctx context.Context, size int, unit func() error) error {
	for range size {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := unit(); err != nil {
			return err
		}
	}
	return nil
}

// batches splits size units into calls of at most most units, for segments
// whose single unit is too small to be worth a call.
func batches(ctx context.Context, size, most int, batch func(units int) error) error {
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		units := min(size, most)
		if err := batch(units); err != nil {
			return err
		}
		size -= units
	}
	return nil
}
