package duration

import (
	"math/bits"
	"time"
)

// ofFLAC counts the frames. The header's number of samples is optional, and a decoder plays what
// follows it.
func (w *watch) ofFLAC(file []byte) (total time.Duration, err error) {
	if len(file) < 42 || file[4]&0x7F != 0 { // STREAMINFO comes first
		return 0, errUnknown
	}
	rate := uint64(file[18])<<12 | uint64(file[19])<<4 | uint64(file[20])>>4
	at := 4
	for last := false; !last; {
		if at+4 > len(file) {
			return 0, errUnknown
		}
		last = file[at]&0x80 != 0
		at += 4 + int(file[at+1])<<16 + int(file[at+2])<<8 + int(file[at+3])
	}
	samples := map[uint64]uint64{} // by rate
	for at+6 <= len(file) && !w.ended() {
		if file[at] != 0xFF || file[at+1]&0xFE != 0xF8 {
			at++
			continue
		}
		f, ok := readFLACFrame(file[at:], rate)
		if !ok {
			at++
			continue
		}
		samples[f.rate] += f.samples
		at += f.size
	}
	for rate, n := range samples {
		total = add(total, samplesToDuration(n, rate))
	}
	return total, nil
}

var flacRates = [12]uint64{0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000}

// readFLACFrame reads the header of a frame, whose size is that of the header. A checksum
// distinguishes it from other data.
func readFLACFrame(b []byte, rate uint64) (f frame, ok bool) {
	block, code := b[2]>>4, b[2]&15
	if block == 0 || code == 15 || b[3]>>4 > 10 || b[3]&1 != 0 {
		return f, false
	}
	at := 4 + max(1, bits.LeadingZeros8(^b[4])) // a number in the form of UTF-8
	if at > 4+7 || at+4 >= len(b) {
		return f, false
	}
	switch {
	case block == 1:
		f.samples = 192
	case block <= 5:
		f.samples = 576 << (block - 2)
	case block == 6:
		f.samples = uint64(b[at]) + 1
		at++
	case block == 7:
		f.samples = (uint64(b[at])<<8 | uint64(b[at+1])) + 1
		at += 2
	default:
		f.samples = 256 << (block - 8)
	}
	if at+3 > len(b) {
		return f, false
	}
	switch code {
	case 0:
		f.rate = rate
	case 12:
		f.rate = uint64(b[at]) * 1000
		at++
	case 13:
		f.rate = uint64(b[at])<<8 | uint64(b[at+1])
		at += 2
	case 14:
		f.rate = (uint64(b[at])<<8 | uint64(b[at+1])) * 10
		at += 2
	default:
		f.rate = flacRates[code]
	}
	if at >= len(b) || f.rate == 0 || crc8(b[:at]) != b[at] {
		return f, false
	}
	f.size = at + 1
	return f, true
}

func crc8(data []byte) (sum byte) {
	for _, b := range data {
		sum ^= b
		for range 8 {
			if sum&0x80 != 0 {
				sum = sum<<1 ^ 0x07
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
