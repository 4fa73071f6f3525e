package env

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Stream separates the random numbers of environments from those of other parts
// that use the same seed.
const Stream = 0x656e7669726f6e73

// Seal appends a checksum, so that what was truncated data or changed is noticed.
func Seal(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// Unseal gives what is between the head and the checksum.
func Unseal(data []byte, head string) ([]byte, error) {
	if len(data) < len(head)+4 {
		return nil, fmt.Errorf("truncated data: the head and the checksum alone are %d bytes", len(head)+4)
	}
	if got := string(data[:len(head)]); got != head {
		return nil, fmt.Errorf("it begins with %q: it must begin with %q", got, head)
	}
	b, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if got := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); got != sum {
		return nil, fmt.Errorf("checksum %08x: the bytes have %08x", sum, got)
	}
	return b[len(head):], nil
}
