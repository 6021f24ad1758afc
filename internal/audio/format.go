// Package audio reads, writes and joins sound files. Inside the program sound
// is always 16-bit PCM; everything else is made of it at the very end.
package audio

import (
	"encoding/binary"
	"math"
	"time"
)

// Format is how PCM is to be heard. Samples are 16 bits, little-endian, the
// channels of one moment side by side.
type Format struct {
	Rate     int // samples a second
	Channels int
}

// RawPCM is what callers take "pcm" for: a file without a header cannot say.
var RawPCM = Format{Rate: 24_000, Channels: 1}

// frame is how many bytes one moment takes.
func (f Format) frame() int { return 2 * f.Channels }

// Bytes is how much PCM a time takes, to the nearest sample.
func (f Format) Bytes(d time.Duration) int64 {
	if d < 0 {
		return 0
	}
	// Whole seconds apart: days in nanoseconds times a rate are no int64.
	whole, rest := int64(d/time.Second), int64(d%time.Second)
	frames := whole*int64(f.Rate) + (rest*int64(f.Rate)+int64(time.Second)/2)/int64(time.Second)
	return frames * int64(f.frame())
}

// Duration is how long so much PCM is to be heard.
func (f Format) Duration(bytes int64) time.Duration {
	frames, rate := bytes/int64(f.frame()), int64(f.Rate)
	return time.Duration(frames/rate)*time.Second + time.Duration(frames%rate)*time.Second/time.Duration(rate)
}

// Types are the content types of the formats in which speech can be asked for,
// by OpenAI's names for them.
var Types = map[string]string{
	"wav":  "audio/wav",
	"mp3":  "audio/mpeg",
	"opus": "audio/opus", // in an Ogg file, but this is what OpenAI calls it
	"aac":  "audio/aac",
	"flac": "audio/flac",
	"pcm":  "audio/pcm",
}

const (
	// unknownSize is what a header says of a size that was not known yet, or
	// that it has no room for.
	unknownSize = math.MaxUint32
	// headerSize is RIFF, fmt and data with nothing else.
	headerSize = 44
	// ds64Size is the chunk that holds what 32 bits cannot.
	ds64Size = 28
)

// Header is the beginning of a WAV file that is written in one go: so many
// bytes of PCM follow it, or an unknown number if the size is negative. Where
// 32 bits are too few for the size, the file is an RF64 one.
func Header(f Format, size int64) []byte { return header(f, size, unknownSize-1) }

// header is the same with the highest size that a WAV file can name of itself.
func header(f Format, size, most int64) []byte {
	switch riff := size + headerSize - 8; {
	case size < 0:
		return appendHeader("RIFF", unknownSize, nil, f, unknownSize)
	case riff > most:
		return appendHeader("RF64", unknownSize, longSizes(f, size), f, unknownSize)
	default:
		return appendHeader("RIFF", uint32(riff), nil, f, uint32(size))
	}
}

func appendHeader(name string, riff uint32, sizes []byte, f Format, data uint32) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(name), riff)
	out = append(out, "WAVE"...)
	out = append(out, sizes...)
	out = appendFormat(out, f)
	out = append(out, "data"...)
	return binary.LittleEndian.AppendUint32(out, data)
}

// longSizes is the chunk with the sizes of an RF64 file: of all that follows
// the first one, of the samples, and how many of these there are. It ends with
// an empty table of other long chunks.
func longSizes(f Format, size int64) []byte {
	out := binary.LittleEndian.AppendUint32([]byte("ds64"), ds64Size)
	out = binary.LittleEndian.AppendUint64(out, uint64(size+headerSize-8+8+ds64Size))
	out = binary.LittleEndian.AppendUint64(out, uint64(size))
	out = binary.LittleEndian.AppendUint64(out, uint64(size/int64(f.frame())))
	return binary.LittleEndian.AppendUint32(out, 0)
}

// appendFormat appends the chunk that says how the samples are stored.
func appendFormat(out []byte, f Format) []byte {
	out = append(out, "fmt "...)
	out = binary.LittleEndian.AppendUint32(out, 16)
	out = binary.LittleEndian.AppendUint16(out, encodingPCM)
	out = binary.LittleEndian.AppendUint16(out, uint16(f.Channels))
	out = binary.LittleEndian.AppendUint32(out, uint32(f.Rate))
	out = binary.LittleEndian.AppendUint32(out, uint32(f.Rate*f.frame()))
	out = binary.LittleEndian.AppendUint16(out, uint16(f.frame()))
	return binary.LittleEndian.AppendUint16(out, 16)
}
