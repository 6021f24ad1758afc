package duration

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// vorbis measures the packets of a Vorbis stream.
type vorbis struct {
	rate     uint64
	blocks   [2]uint64 // samples of a short and of a long block
	long     []bool    // by mode
	previous uint64    // the block before
}

func (v *vorbis) readIdentification(packet []byte) bool {
	if len(packet) < 30 || !bytes.HasPrefix(packet, []byte("\x01vorbis")) {
		return false
	}
	v.rate = uint64(binary.LittleEndian.Uint32(packet[12:]))
	v.blocks = [2]uint64{1 << (packet[28] & 15), 1 << (packet[28] >> 4)}
	return v.rate > 0
}

// maxVorbisModes is the maximum of the format.
const maxVorbisModes = 64

// readSetup reads the modes, which are at the end of the setup packet. What precedes them can only
// be skipped by decoding it, so they are read backward: a set bit ends the packet, and each mode
// has a mapping below 64, two 16-bit fields that are 0, and the flag for long blocks. In front of
// them is their number minus 1.
func (v *vorbis) readSetup(packet []byte) bool {
	if !bytes.HasPrefix(packet, []byte("\x05vorbis")) {
		return false
	}
	end := 8 * len(packet)
	for end > 0 && bitsAt(packet, end-1, 1) == 0 {
		end--
	}
	end-- // the framing bit
	var backward []bool
	for n := 1; n <= maxVorbisModes && end >= 41+6; n++ {
		mode := end - 41
		if bitsAt(packet, mode+33, 8) >= maxVorbisModes || bitsAt(packet, mode+1, 32) != 0 {
			break
		}
		backward = append(backward, bitsAt(packet, mode, 1) == 1)
		if end = mode; bitsAt(packet, end-6, 6) == uint64(n-1) {
			v.long = make([]bool, n)
			for i, long := range backward {
				v.long[n-1-i] = long
			}
		}
	}
	return len(v.long) > 0
}

// samples returns how many samples a packet adds: its block overlaps with the one before.
func (v *vorbis) samples(packet []byte) uint64 {
	if len(packet) == 0 || packet[0]&1 != 0 { // a header
		return 0
	}
	mode := 0
	if width := bits.Len(uint(len(v.long) - 1)); width > 0 {
		mode = int(bitsAt(packet, 1, width))
	}
	if mode >= len(v.long) {
		return 0
	}
	block := v.blocks[0]
	if v.long[mode] {
		block = v.blocks[1]
	}
	samples := (v.previous + block) / 4
	if v.previous == 0 { // the first block only fills the decoder
		samples = 0
	}
	v.previous = block
	return samples
}

// bitsAt returns bits of a packet, the lowest bit of each byte first. Bits after its end are 0.
func bitsAt(packet []byte, at, n int) (value uint64) {
	for i := range n {
		if at+i < 0 || (at+i)/8 >= len(packet) {
			break
		}
		value |= uint64(packet[(at+i)/8]>>((at+i)%8)&1) << i
	}
	return value
}
