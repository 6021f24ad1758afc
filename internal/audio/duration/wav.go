package duration

import (
	"encoding/binary"
	"time"
)

// The encodings of WAV files whose samples have a fixed size.
const (
	wavPCM        = 1
	wavFloat      = 3
	wavALaw       = 6
	wavMuLaw      = 7
	wavExtensible = 0xFFFE // the encoding follows in the chunk
)

// ofWAV counts the bytes of all data chunks. The size of the last chunk may be wrong or unknown,
// so bytes that no chunk explains count as audio, too.
func ofWAV(file []byte) (time.Duration, error) {
	if string(file[8:12]) != "WAVE" {
		return 0, errUnknown
	}
	var frame, rate, audio uint64
	for rest := file[12:]; len(rest) >= 8; {
		name, size := string(rest[:4]), uint64(binary.LittleEndian.Uint32(rest[4:]))
		rest = rest[8:]
		whole := size <= uint64(len(rest))
		if !whole {
			size = uint64(len(rest))
		}
		switch {
		case name == "fmt " && frame == 0:
			var err error
			if frame, rate, err = readWAVFormat(rest[:size]); err != nil {
				return 0, err
			}
		case name == "data" && size == 0: // unknown: the file was written as a stream
			size = uint64(len(rest))
			audio += size
		case name == "data" || !isChunkName(name):
			if name != "data" {
				size = uint64(len(rest))
			}
			audio += size
		}
		rest = rest[min(size+size%2, uint64(len(rest))):]
	}
	if frame == 0 {
		return 0, errUnknown
	}
	return samplesToDuration(audio/frame, rate), nil
}

func isChunkName(name string) bool {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// readWAVFormat returns the bytes of one sample of all channels, and the samples per second.
func readWAVFormat(chunk []byte) (frame, rate uint64, err error) {
	if len(chunk) < 16 {
		return 0, 0, errUnknown
	}
	encoding := binary.LittleEndian.Uint16(chunk)
	if encoding == wavExtensible && len(chunk) >= 26 {
		encoding = binary.LittleEndian.Uint16(chunk[24:])
	}
	if encoding != wavPCM && encoding != wavFloat && encoding != wavALaw && encoding != wavMuLaw {
		return 0, 0, errCodec
	}
	channels, bits := uint64(binary.LittleEndian.Uint16(chunk[2:])), uint64(binary.LittleEndian.Uint16(chunk[14:]))
	rate = uint64(binary.LittleEndian.Uint32(chunk[4:]))
	if channels == 0 || channels > 64 || rate == 0 || rate > 768_000 || bits == 0 || bits > 64 {
		return 0, 0, errUnknown
	}
	return (bits + 7) / 8 * channels, rate, nil
}
