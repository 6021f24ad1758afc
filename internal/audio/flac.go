package audio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// A FLAC file begins with a marker and the STREAMINFO block. Eight bytes of it are the rate, the
// channels, the bits per sample and, in the lowest 36 bits, the number of samples.
const (
	flacHead    = 42
	flacCount   = 18
	flacHighest = 1<<36 - 1
)

// WithLength sets the length in a FLAC stream. An encoder that writes to a pipe can't,
// and players need it to show the time and to seek.
func WithLength(flac io.Reader, f Format, size int64) (io.Reader, error) {
	head := make([]byte, flacHead)
	n, err := io.ReadFull(flac, head)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	case err != nil || string(head[:4]) != "fLaC":
		return io.MultiReader(bytes.NewReader(head[:n]), flac), nil // not FLAC
	}
	moments := uint64(size / int64(f.frame()))
	if at := head[flacCount : flacCount+8]; moments <= flacHighest {
		binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)&^uint64(flacHighest)|moments)
	}
	return io.MultiReader(bytes.NewReader(head), flac), nil
}
