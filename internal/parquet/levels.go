package parquet

import (
	"encoding/binary"
	"math/bits"
)

// The hybrid of run-length encoding and bit packing holds small numbers: whether values are null,
// and positions in a dictionary.

// appendHybrid encodes numbers of a width in bits.
func appendHybrid(out []byte, numbers []uint32, width int) []byte {
	for at := 0; at < len(numbers); {
		if run := sameFrom(numbers, at); run >= 8 || at+run == len(numbers) {
			out = binary.AppendUvarint(out, uint64(run)<<1)
			out = appendFixed(out, numbers[at], (width+7)/8)
			at += run
			continue
		}
		// Groups of eight, until the next run.
		end := at
		for end < len(numbers) && sameFrom(numbers, end) < 16 {
			end += 8
		}
		end = min(end, len(numbers))
		out = appendPacked(out, numbers[at:end], width)
		at = end
	}
	return out
}

func sameFrom(numbers []uint32, at int) int {
	n := 1
	for at+n < len(numbers) && numbers[at+n] == numbers[at] {
		n++
	}
	return n
}

func appendFixed(out []byte, n uint32, size int) []byte {
	for range size {
		out = append(out, byte(n))
		n >>= 8
	}
	return out
}

// appendPacked packs numbers in groups of eight. Only the last group of a page may be padded.
func appendPacked(out []byte, numbers []uint32, width int) []byte {
	groups := (len(numbers) + 7) / 8
	out = binary.AppendUvarint(out, uint64(groups)<<1|1) //nolint:gosec // not negative
	var buffer uint64
	filled := 0
	for i := range groups * 8 {
		if i < len(numbers) {
			buffer |= uint64(numbers[i]) << filled
		}
		for filled += width; filled >= 8; filled -= 8 {
			out = append(out, byte(buffer))
			buffer >>= 8
		}
	}
	return out
}

// readHybrid decodes count numbers.
func readHybrid(in []byte, width, count int) ([]uint32, error) {
	if width > 32 {
		return nil, errCorrupt
	}
	out := make([]uint32, 0, count)
	for len(out) < count {
		head, size := binary.Uvarint(in)
		if size <= 0 {
			return nil, errCorrupt
		}
		in = in[size:]
		if head&1 == 0 {
			bytes, n := (width+7)/8, head>>1
			if n == 0 || n > uint64(count-len(out)) || len(in) < bytes { //nolint:gosec // not negative
				return nil, errCorrupt
			}
			var value uint32
			for i := range bytes {
				value |= uint32(in[i]) << (8 * i)
			}
			in = in[bytes:]
			for range n {
				out = append(out, value)
			}
			continue
		}
		groups := head >> 1
		if groups == 0 || groups > uint64(count)/8+1 || uint64(len(in)) < groups*uint64(width) { //nolint:gosec // not negative
			return nil, errCorrupt
		}
		packed := in[:groups*uint64(width)] //nolint:gosec // not negative
		in = in[len(packed):]
		out = appendUnpacked(out, packed, width, min(count-len(out), int(groups)*8)) //nolint:gosec // compared above
	}
	return out, nil
}

func appendUnpacked(out []uint32, packed []byte, width, count int) []uint32 {
	var buffer uint64
	filled, mask := 0, uint64(1)<<width-1
	for range count {
		for filled < width {
			buffer |= uint64(packed[0]) << filled
			packed = packed[1:]
			filled += 8
		}
		out = append(out, uint32(buffer&mask)) //nolint:gosec // of at most 32 bits
		buffer >>= width
		filled -= width
	}
	return out
}

// widthOf returns the bits that numbers below n need.
func widthOf(n int) int { return max(1, bits.Len(uint(n-1))) } //nolint:gosec // n is at least 1
