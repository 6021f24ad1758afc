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
	// unknownSize is what a header says of a size that was not known yet.
	unknownSize = math.MaxUint32
	// streamHeaderSize is RIFF, fmt and data with nothing else.
	streamHeaderSize = 44
)

// Header is the beginning of a WAV file that is written in one go: so many
// bytes of PCM follow it, or an unknown number if the size is negative or too
// large for the format.
func Header(f Format, size int64) []byte {
	riff, data := uint32(unknownSize), uint32(unknownSize)
	if size >= 0 && size+streamHeaderSize-8 < unknownSize {
		riff, data = uint32(size+streamHeaderSize-8), uint32(size)
	}
	out := make([]byte, 0, streamHeaderSize)
	out = append(out, "RIFF"...)
	out = binary.LittleEndian.AppendUint32(out, riff)
	out = append(out, "WAVE"...)
	out = appendFormat(out, f)
	out = append(out, "data"...)
	return binary.LittleEndian.AppendUint32(out, data)
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
