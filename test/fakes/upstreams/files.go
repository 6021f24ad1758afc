package upstreams

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/png"
)

// PNG returns a small image.
func PNG() []byte { return PNGOf(2, 2) }

// PNGOf returns an uncompressed image with four bytes for each pixel.
func PNGOf(width, height int) []byte {
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	noise := uint32(1)
	for i := range m.Pix {
		noise = noise*1664525 + 1013904223
		m.Pix[i] = byte(noise>>24) | 1 // no pixel is transparent, so that every one is written
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.NoCompression}
	_ = encoder.Encode(&out, m) // a buffer never fails
	return out.Bytes()
}

// pcm returns a tenth of a second at 24 kHz.
func pcm() []byte {
	var out []byte
	for i := range 2400 {
		out = binary.LittleEndian.AppendUint16(out, uint16(i%200*100))
	}
	return out
}

// wav returns pcm as a WAV file.
func wav() []byte {
	samples := pcm()
	out := []byte("RIFF")
	out = binary.LittleEndian.AppendUint32(out, uint32(36+len(samples)))
	out = append(out, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	out = binary.LittleEndian.AppendUint32(out, 24000)
	out = binary.LittleEndian.AppendUint32(out, 48000)
	out = append(out, "\x02\x00\x10\x00data"...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(samples)))
	return append(out, samples...)
}

// MP4 returns bytes with the header of an MP4 file.
func MP4() []byte {
	return append([]byte("\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"), bytes.Repeat([]byte{0, 1, 2, 3}, 256)...)
}
