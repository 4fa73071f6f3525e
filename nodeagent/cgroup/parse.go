package cgroup

import "math"

// The parsers take a file's bytes as they are read, and allocate nothing. ok is
// false for what they do not understand: a value that cannot be read is
// unknown.

// uintOf reads a whole file that is one number:
//
//	123456\n
func uintOf(b []byte) (uint64, bool) {
	n, rest, ok := leadingUint(b)
	if !ok || len(trimNewline(rest)) != 0 {
		return 0, false
	}
	return n, true
}

// intOf is uintOf with a sign, for cpu.cfs_quota_us, where none is -1.
func intOf(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	n, ok := uintOf(b)
	if !ok || n > math.MaxInt64 {
		return 0, false
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// maxOf reads memory.max of v2, a number or the word max, which is none:
//
//	max\n
func maxOf(b []byte) (n uint64, none, ok bool) {
	if string(trimNewline(b)) == "max" {
		return 0, true, true
	}
	n, ok = uintOf(b)
	return n, false, ok
}

// cpuMaxOf reads cpu.max of v2, quota and period in microseconds; the quota may
// be max, which is 0:
//
//	50000 100000\n
//	max 100000\n
func cpuMaxOf(b []byte) (quota, period int64, ok bool) {
	b = trimNewline(b)
	first, rest := cutByte(b, ' ')
	p, ok := uintOf(rest)
	if !ok || p > math.MaxInt64 {
		return 0, 0, false
	}
	q, none, ok := maxOf(first)
	if !ok || none {
		return 0, int64(p), ok
	}
	return int64(min(q, math.MaxInt64)), int64(p), true
}

// fieldOf finds a line "key value" in a flat keyed file, such as cpu.stat,
// memory.stat, memory.events (v2) and memory.oom_control (v1):
//
//	nr_periods 12
//	nr_throttled 3
//	throttled_time 4500000
func fieldOf(b []byte, key string) (uint64, bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutByte(b, '\n')
		if len(line) > len(key) && line[len(key)] == ' ' && string(line[:len(key)]) == key {
			return uintOf(line[len(key)+1:])
		}
	}
	return 0, false
}

// blkioOf sums what was read and written on all devices, in
// blkio.throttle.io_service_bytes (v1). A container that did no I/O has an
// empty file but for the total:
//
//	8:0 Read 4096
//	8:0 Write 8192
//	8:0 Sync 12288
//	8:0 Async 0
//	8:0 Discard 0
//	8:0 Total 12288
//	Total 12288
func blkioOf(b []byte) (sum uint64, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutByte(b, '\n')
		device, rest := cutByte(line, ' ')
		if string(device) == "Total" {
			ok = true
			continue
		}
		kind, value := cutByte(rest, ' ')
		if k := string(kind); k != "Read" && k != "Write" {
			continue
		}
		n, good := uintOf(value)
		if !good {
			return 0, false
		}
		sum, ok = sum+n, true
	}
	return sum, ok
}

// ioStatOf sums rbytes and wbytes of all devices, in io.stat (v2). A container
// that did no I/O has an empty file:
//
//	8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0
//	253:0 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=0 dios=0
func ioStatOf(b []byte) (sum uint64, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutByte(b, '\n')
		_, line = cutByte(line, ' ') // the device
		for len(line) > 0 {
			var pair []byte
			pair, line = cutByte(line, ' ')
			key, value := cutByte(pair, '=')
			if k := string(key); k != "rbytes" && k != "wbytes" {
				continue
			}
			n, good := uintOf(value)
			if !good {
				return 0, false
			}
			sum += n
		}
	}
	return sum, true
}

// pressureOf finds the total of one line of a PSI file, microseconds stalled
// since the group was made. The line is "some", in which a task waited, or
// "full", in which all did:
//
//	some avg10=3.31 avg60=11.50 avg300=19.65 total=626809138
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
func pressureOf(b []byte, kind string) (uint64, bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutByte(b, '\n')
		word, rest := cutByte(line, ' ')
		if string(word) != kind {
			continue
		}
		for len(rest) > 0 {
			var pair []byte
			pair, rest = cutByte(rest, ' ')
			if key, value := cutByte(pair, '='); string(key) == "total" {
				return uintOf(value)
			}
		}
	}
	return 0, false
}

func leadingUint(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if n > (math.MaxUint64-digit)/10 {
			return 0, b, false
		}
		n = n*10 + digit
	}
	return n, b[i:], i > 0
}

func trimNewline(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		return b[:n-1]
	}
	return b
}

// cutByte splits at the first sep; without one everything is before.
func cutByte(b []byte, sep byte) (before, after []byte) {
	for i, c := range b {
		if c == sep {
			return b[:i], b[i+1:]
		}
	}
	return b, nil
}
