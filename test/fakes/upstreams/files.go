package upstreams

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
)

// PNG is a small picture that every decoder reads.
func PNG() []byte { return PNGOf(2, 2) }

// PNGOf is a picture that is not compressed: it has four bytes for each pixel.
func PNGOf(width, height int) []byte {
	picture := image.NewNRGBA(image.Rect(0, 0, width, height))
	noise := uint32(1)
	for i := range picture.Pix {
		noise = noise*1664525 + 1013904223
		picture.Pix[i] = byte(noise>>24) | 1 // no pixel is clear, so that all are written
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.NoCompression}
	_ = encoder.Encode(&out, picture) // a buffer does not fail
	return out.Bytes()
}

// pcm is a tenth of a second at 24 kHz.
func pcm() []byte {
	var out []byte
	for i := range 2400 {
		out = binary.LittleEndian.AppendUint16(out, uint16(i%200*100))
	}
	return out
}

// wav is the same as a file.
func wav() []byte {
	sound := pcm()
	out := []byte("RIFF")
	out = binary.LittleEndian.AppendUint32(out, uint32(36+len(sound)))
	out = append(out, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	out = binary.LittleEndian.AppendUint32(out, 24000)
	out = binary.LittleEndian.AppendUint32(out, 48000)
	out = append(out, "\x02\x00\x10\x00data"...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(sound)))
	return append(out, sound...)
}

// MP4 begins as such files do. No test plays it.
func MP4() []byte {
	return append([]byte("\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"), bytes.Repeat([]byte{0, 1, 2, 3}, 256)...)
}
