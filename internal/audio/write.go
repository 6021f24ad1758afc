package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// fileHeaderSize is where the samples of a Writer's file begin: RIFF, the
// reserved chunk, fmt and data.
const fileHeaderSize = 12 + 8 + ds64Size + 8 + 16 + 8

// ds64Size is the chunk of an RF64 file that holds what 32 bits cannot.
const ds64Size = 28

// Writer writes a WAV file of any length. The header is right after Close.
type Writer struct {
	to     io.WriteSeeker
	format Format
	size   int64 // of the PCM so far
	limit  int64 // the highest size that a WAV header can name
	begun  bool
	err    error // the first one; a file with a gap is none
}

// NewWriter makes a writer at the beginning of a file. Closing the file is
// the caller's.
func NewWriter(to io.WriteSeeker, f Format) *Writer {
	return &Writer{to: to, format: f, limit: unknownSize - 1}
}

// Write appends PCM in the writer's format.
func (w *Writer) Write(pcm []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.put(w.header())
	}
	n := w.put(pcm)
	w.size += int64(n)
	return n, w.err
}

func (w *Writer) put(data []byte) (n int) {
	if w.err != nil {
		return 0
	}
	if n, w.err = w.to.Write(data); w.err != nil {
		w.err = fmt.Errorf("audio: write a WAV file: %w", w.err)
	}
	return n
}

// Silence appends nothing to be heard for a time, to the nearest sample.
func (w *Writer) Silence(d time.Duration) error {
	if w.err == nil && w.size%int64(w.format.frame()) != 0 {
		w.err = errBetween
	}
	var zeros [8 << 10]byte
	for left := w.format.Bytes(d); left > 0 && w.err == nil; {
		n, _ := w.Write(zeros[:min(left, int64(len(zeros)))])
		left -= int64(n)
	}
	return w.err
}

var errBetween = errors.New("audio: the last sample is not complete")

// Duration is how long the file is to be heard so far.
func (w *Writer) Duration() time.Duration { return w.format.Duration(w.size) }

// Close writes the header anew, with the sizes.
func (w *Writer) Close() error {
	if _, err := w.Write(nil); err != nil { // a file without samples has a header, too
		return err
	}
	if w.size%int64(w.format.frame()) != 0 {
		w.err = errBetween
		return w.err
	}
	if _, err := w.to.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("audio: write a WAV file's header: %w", err)
	}
	w.put(w.header())
	if _, err := w.to.Seek(0, io.SeekEnd); err != nil && w.err == nil {
		w.err = fmt.Errorf("audio: write a WAV file's header: %w", err)
	}
	return w.err
}

// header is that of a file with the samples so far. Where 32 bits are too few
// for their size, the file is an RF64 one, and the reserved chunk has the sizes.
func (w *Writer) header() []byte {
	riff := w.size + fileHeaderSize - 8
	long := riff > w.limit
	name, reserved := "RIFF", "JUNK"
	riff32, data32 := uint32(riff), uint32(w.size)
	if long {
		name, reserved = "RF64", "ds64"
		riff32, data32 = unknownSize, unknownSize
	}
	out := make([]byte, 0, fileHeaderSize)
	out = append(out, name...)
	out = binary.LittleEndian.AppendUint32(out, riff32)
	out = append(out, "WAVE"...)
	out = append(out, reserved...)
	out = binary.LittleEndian.AppendUint32(out, ds64Size)
	var sizes [ds64Size]byte
	if long {
		binary.LittleEndian.PutUint64(sizes[:], uint64(riff))
		binary.LittleEndian.PutUint64(sizes[8:], uint64(w.size))
		binary.LittleEndian.PutUint64(sizes[16:], uint64(w.size/int64(w.format.frame())))
	}
	out = append(out, sizes[:]...)
	out = appendFormat(out, w.format)
	out = append(out, "data"...)
	return binary.LittleEndian.AppendUint32(out, data32)
}
