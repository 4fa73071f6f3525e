// Package weights is parameters at rest: safetensors (https://huggingface.co/docs/safetensors), a length, a JSON header and
// the numbers one after the other, little-endian. Python reads them as they are.
//
// A [File] has named tensors of float64, blobs, and metadata of strings. [Write] makes equal files of equal content, whole or not at
// all; [Read] checks everything before it believes anything: lengths, offsets, shapes, and the SHA-256 of all numbers, which
// the metadata holds.
package weights
