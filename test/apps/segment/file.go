package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// Files lie in the directory for temporary files ($TMPDIR, else /tmp), which
// must be writable: in a container with a read-only root, mount an emptyDir.

// fileBlock is the size of one read or write in bytes.
const fileBlock = 64 << 10

// sharedBlocks is the length of the file that read and stream use, in blocks:
// 4 MiB.
const sharedBlocks = 64

// sharedFile is filled once per process. Its name is removed before it is returned, so
// the file ends with the process, also after a crash.
var sharedFile = sync.OnceValues(func() (*os.File, error) {
	f, err := os.CreateTemp("", "segment-read-*")
	if err != nil {
		return nil, fmt.Errorf("making the file to read: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("taking the name off the file to read: %w", err)
	}
	r := rand.New(rand.NewPCG(64, 64))
	if _, err := writeBlocks(f, r, sharedBlocks); err != nil {
		return nil, fmt.Errorf("filling the file to read: %w", err)
	}
	return f, nil
})

// writeBlocks writes n blocks of random bytes and returns their checksum.
func writeBlocks(w io.Writer, r *rand.Rand, n int) (uint32, error) {
	block := make([]byte, fileBlock)
	var sum uint32
	for range n {
		fillRandom(block, r)
		if _, err := w.Write(block); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, crc32.IEEETable, block)
	}
	return sum, nil
}

// fillRandom fills whole words of 8 bytes.
func fillRandom(block []byte, r *rand.Rand) {
	for i := 0; i+8 <= len(block); i += 8 {
		binary.LittleEndian.PutUint64(block[i:], r.Uint64())
	}
}

func runRead(ctx context.Context, r *rand.Rand, size int) error {
	f, err := sharedFile()
	if err != nil {
		return err
	}
	block := make([]byte, fileBlock)
	return each(ctx, size, func() error {
		_, err := readBlock(f, r.IntN(sharedBlocks), block)
		return err
	})
}

// readBlock reads block number n into block and returns its checksum.
func readBlock(f io.ReaderAt, n int, block []byte) (uint32, error) {
	if _, err := f.ReadAt(block, int64(n)*fileBlock); err != nil {
		return 0, fmt.Errorf("reading block %d: %w", n, err)
	}
	return crc32.ChecksumIEEE(block), nil
}

func runWrite(ctx context.Context, r *rand.Rand, size int) error {
	return withNewFile("segment-write-*", func(f *os.File) error {
		return batches(ctx, size, 8, func(n int) error {
			_, err := writeBlocks(f, r, n)
			return err
		})
	})
}

func runStream(ctx context.Context, r *rand.Rand, size int) error {
	from, err := sharedFile()
	if err != nil {
		return err
	}
	return withNewFile("segment-stream-*", func(to *os.File) error {
		return batches(ctx, size, 8, func(n int) error {
			first := r.IntN(sharedBlocks - n)
			_, err := stream(to, io.NewSectionReader(from, int64(first)*fileBlock, int64(n)*fileBlock))
			return err
		})
	})
}

// stream copies and returns the checksum of the data. The checksum also prevents that
// the kernel copies from file to file by itself.
func stream(to io.Writer, from io.Reader) (uint32, error) {
	sum := crc32.NewIEEE()
	if _, err := io.Copy(io.MultiWriter(to, sum), from); err != nil {
		return 0, err
	}
	return sum.Sum32(), nil
}

// withNewFile calls do with a new temporary file and removes it afterwards.
func withNewFile(pattern string, do func(*os.File) error) error {
	f, err := os.CreateTemp("", pattern)
	if err != nil {
		return fmt.Errorf("making a file to write: %w", err)
	}
	return errors.Join(do(f), f.Close(), os.Remove(f.Name()))
}

func runSleep(ctx context.Context, _ *rand.Rand, size int) error {
	t := time.NewTimer(time.Duration(size) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
