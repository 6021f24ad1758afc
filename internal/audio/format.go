// Package audio reads, writes and converts audio files. Internally audio is 16-bit
// PCM, and other formats are encoded at the end.
package audio

import (
	"encoding/binary"
	"math"
	"time"
)

// Format describes PCM. Samples are 16 bits, little-endian and interleaved.
type Format struct {
	Rate     int // samples per second
	Channels int
}

// RawPCM is the format that clients expect of "pcm", which has no header.
var RawPCM = Format{Rate: 24_000, Channels: 1}

// frame returns the number of bytes of one sample of all channels.
func (f Format) frame() int { return 2 * f.Channels }

// Bytes returns the size of a duration, to the nearest sample.
func (f Format) Bytes(d time.Duration) int64 {
	if d < 0 {
		return 0
	}
	// Whole seconds separately, because days in nanoseconds times a rate overflow.
	whole, rest := int64(d/time.Second), int64(d%time.Second)
	frames := whole*int64(f.Rate) + (rest*int64(f.Rate)+int64(time.Second)/2)/int64(time.Second)
	return frames * int64(f.frame())
}

// Duration returns the duration of so many bytes.
func (f Format) Duration(bytes int64) time.Duration {
	frames, rate := bytes/int64(f.frame()), int64(f.Rate)
	return time.Duration(frames/rate)*time.Second + time.Duration(frames%rate)*time.Second/time.Duration(rate)
}

// Types are the content types of speech formats, by OpenAI's names.
var Types = map[string]string{
	"wav":  "audio/wav",
	"mp3":  "audio/mpeg",
	"opus": "audio/opus", // in an Ogg file, but this is OpenAI's type
	"aac":  "audio/aac",
	"flac": "audio/flac",
	"pcm":  "audio/pcm",
}

const (
	// unknownSize stands for a size that is unknown or too large.
	unknownSize = math.MaxUint32
	// headerSize is the size of a header with RIFF, fmt and data.
	headerSize = 44
	// ds64Size is the size of the chunk for 64-bit sizes.
	ds64Size = 28
)

// Header returns the header of a WAV file that is written as a stream. size is the number of bytes
// of PCM that follow, or negative if unknown. A size beyond 32 bits makes an RF64 file.
func Header(f Format, size int64) []byte { return header(f, size, unknownSize-1) }

// header is Header with the largest size of a WAV file as a parameter.
func header(f Format, size, most int64) []byte {
	name, riff, data := "RIFF", uint32(unknownSize), uint32(unknownSize)
	var sizes []byte
	switch total := size + headerSize - 8; {
	case size < 0:
	case total > most:
		name, sizes = "RF64", longSizes(f, size)
	default:
		riff, data = uint32(total), uint32(size)
	}
	out := binary.LittleEndian.AppendUint32([]byte(name), riff)
	out = append(append(out, "WAVE"...), sizes...)
	out, _ = binary.Append(append(out, "fmt "...), binary.LittleEndian, struct {
		Size                 uint32
		Encoding, Channels   uint16
		Rate, BytesPerSecond uint32
		Frame, Bits          uint16
	}{16, encodingPCM, uint16(f.Channels), uint32(f.Rate), uint32(f.Rate * f.frame()), uint16(f.frame()), 16})
	return binary.LittleEndian.AppendUint32(append(out, "data"...), data)
}

// longSizes returns the ds64 chunk: the sizes of the file and of the samples, the
// number of samples, and an empty table of other chunks.
func longSizes(f Format, size int64) []byte {
	out, _ := binary.Append([]byte("ds64"), binary.LittleEndian, struct {
		Size                uint32
		File, Data, Samples int64
		Table               uint32
	}{ds64Size, size + headerSize - 8 + 8 + ds64Size, size, size / int64(f.frame()), 0})
	return out
}
