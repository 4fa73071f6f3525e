package segment

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
)

// gzipWriters are reused, as in servers: a new one takes 0.8 MB.
var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func runCompress(ctx context.Context, r *rand.Rand, size int) error {
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(io.Discard)
	err := batches(ctx, size, 8, func(kib int) error {
		_, err := io.WriteString(w, randomText(r, kib<<10))
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}

// compressedBlocks are 64 different blocks of 16 KiB of text, compressed once
// per process (about 0.4 MiB).
var compressedBlocks = sync.OnceValue(func() [][]byte {
	r := rand.New(rand.NewPCG(16, 1024))
	blocks := make([][]byte, 64)
	for i := range blocks {
		blocks[i] = compressed(randomText(r, 16<<10))
	}
	return blocks
})

// compressed panics on an error: a write to memory has none.
func compressed(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, strings.NewReader(text)); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func runDecompress(ctx context.Context, r *rand.Rand, size int) error {
	blocks := compressedBlocks()
	return each(ctx, size, func() error {
		_, err := decompressed(blocks[r.IntN(len(blocks))])
		return err
	})
}

// decompressed checks gzip's own checksum on the way.
func decompressed(block []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(block))
	if err != nil {
		return nil, fmt.Errorf("decompressing %d bytes: %w", len(block), err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("decompressing %d bytes: %w", len(block), err)
	}
	return text, nil
}
