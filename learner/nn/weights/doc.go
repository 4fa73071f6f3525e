// Package weights stores parameters and learners' states in files: safetensors
// (https://huggingface.co/docs/safetensors), that is a length, a JSON header
// and the numbers in order, little-endian. Python reads them as they are.
//
// A [File] has named tensors of float64, blobs, and metadata of strings.
// [Write] writes equal files for equal content, completely or not at all.
// [Read] checks everything: lengths, offsets, shapes, and the SHA-256 of all
// numbers, which is in the metadata.
//
// A [State] is what a learner saves: it has an identity, with which it must
// agree, and its replay can be left out.
package weights
