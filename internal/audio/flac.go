package audio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// A FLAC file begins with its name and a block of facts. Eight bytes of that
// are the rate, the channels, the bits of a sample and, in their lowest 36 bits,
// how many moments there are.
const (
	flacHead    = 42
	flacCount   = 18
	flacHighest = 1<<36 - 1
)

// WithLength says in a FLAC stream how long it is. Who writes one to a pipe
// cannot go back to do so, and without it no player can show the time or go to
// another place.
func WithLength(flac io.Reader, f Format, size int64) (io.Reader, error) {
	head := make([]byte, flacHead)
	n, err := io.ReadFull(flac, head)
	switch {
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	case err != nil || string(head[:4]) != "fLaC":
		return io.MultiReader(bytes.NewReader(head[:n]), flac), nil // no FLAC, so there is nothing to say
	}
	moments := uint64(size / int64(f.frame()))
	if at := head[flacCount : flacCount+8]; moments <= flacHighest {
		binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)&^uint64(flacHighest)|moments)
	}
	return io.MultiReader(bytes.NewReader(head), flac), nil
}
