// Package duration measures how long an audio file plays. Transcriptions are priced by the second
// before a provider has seen the file, so no field that only describes the audio is trusted: the
// packets and frames that a decoder would play are counted.
package duration

import (
	"bytes"
	"context"
	"errors"
	"math/bits"
	"time"
)

var (
	errUnknown = errors.New("not a supported audio file")
	errEmpty   = errors.New("no audio in the file")
	errCodec   = errors.New("an audio codec that cannot be measured")
	errTracks  = errors.New("too many tracks")
)

// maxTracks is more than real files have. Each block belongs to one of them.
const maxTracks = 64

// Formats names what Measure reads, for messages.
const Formats = "FLAC, M4A, MP3, MP4 (AAC), Ogg (Opus or Vorbis), WAV (PCM) or WebM (Opus)"

// Measure returns how long a file plays: an MP3, AAC, FLAC, Ogg, WAV, MP4 or WebM file. It takes at
// most seconds for a file of 32 MiB, and ends with the context.
func Measure(ctx context.Context, file []byte) (time.Duration, error) {
	w := &watch{ctx: ctx}
	d, err := w.measure(file)
	if ended := ctx.Err(); ended != nil {
		return 0, ended
	}
	if err == nil && d <= 0 {
		err = errEmpty
	}
	return d, err
}

func (w *watch) measure(file []byte) (time.Duration, error) {
	switch {
	case len(file) < 12:
		return 0, errUnknown
	case bytes.HasPrefix(file, []byte("RIFF")) || bytes.HasPrefix(file, []byte("RF64")):
		return ofWAV(file)
	case bytes.HasPrefix(file, []byte("OggS")):
		return w.ofOgg(file)
	case bytes.HasPrefix(file, []byte{0x1A, 0x45, 0xDF, 0xA3}):
		return w.ofWebM(file)
	case string(file[4:8]) == "ftyp" || string(file[4:8]) == "styp" || string(file[4:8]) == "moov":
		return w.ofMP4(file)
	case bytes.HasPrefix(file, []byte("fLaC")):
		return w.ofFLAC(file)
	}
	if bytes.HasPrefix(file, []byte("ID3")) { // the tag may precede a FLAC file, too
		if rest := afterID3(file); bytes.HasPrefix(rest, []byte("fLaC")) {
			return w.ofFLAC(rest)
		}
	}
	return w.ofFrames(file)
}

// watch notices the end of the context while a file is read.
type watch struct {
	ctx   context.Context
	steps int
}

// ended is called for each part of a file.
func (w *watch) ended() bool {
	w.steps++
	return w.steps%4096 == 0 && w.ctx.Err() != nil
}

// afterID3 returns what follows an ID3v2 tag.
func afterID3(file []byte) []byte {
	if len(file) < 10 {
		return nil
	}
	size := 10
	for i, b := range file[6:10] {
		size += int(b&0x7F) << (7 * (3 - i))
	}
	return file[min(size, len(file)):]
}

// samplesToDuration returns how long samples play at a rate, rounded up. Both come from the file,
// so the product may exceed 64 bits.
func samplesToDuration(samples, rate uint64) time.Duration {
	if rate == 0 {
		return 0
	}
	const longest = 1<<63 - 1
	hi, lo := bits.Mul64(samples, uint64(time.Second))
	lo, carry := bits.Add64(lo, rate-1, 0)
	if hi += carry; hi >= rate {
		return longest
	}
	d, _ := bits.Div64(hi, lo, rate)
	return time.Duration(min(d, longest))
}

// add adds durations without an overflow.
func add(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}
