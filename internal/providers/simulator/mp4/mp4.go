// Package mp4 makes small videos of coloured squares without a codec's
// library: H.264 in an MP4 file that every player can play.
package mp4

import (
	"encoding/binary"
	"image"
)

// Rate is how many frames a second has. The first of each needs no other, so
// that players can jump there.
const Rate = 24

// Video is what is to be encoded. Width and Height are even.
type Video struct {
	Width, Height int
	Seconds       int
	// Draw draws a frame: one pixel for each square of 16 by 16.
	Draw func(width, height, frame int) *image.Paletted
}

// Encode makes the file. What is needed to play it stands before the frames,
// so that it can be played while it arrives.
func (v *Video) Encode() []byte {
	e := &encoder{across: grid(v.Width)}
	var (
		frames []byte
		sizes  []uint32
		keys   []uint32
	)
	for i := range v.Seconds * Rate {
		key := i%Rate == 0
		unit := e.frame(v.Draw(grid(v.Width), grid(v.Height), i), key)
		frames = binary.BigEndian.AppendUint32(frames, uint32(len(unit)))
		frames = append(frames, unit...)
		sizes = append(sizes, uint32(len(unit)+4))
		if key {
			keys = append(keys, uint32(i+1))
		}
	}
	kind := box("ftyp", []byte("isom"), u32(0x200), []byte("isomiso2avc1mp41"))
	// Made twice: where the frames begin depends on its size, which does not.
	start := uint32(len(kind)+len(v.movie(sizes, keys, 0))) + 8
	out := append(kind, v.movie(sizes, keys, start)...)
	return append(out, box("mdat", frames)...)
}

func u16(values ...uint16) []byte {
	var out []byte
	for _, v := range values {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return out
}

func u32(values ...uint32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out
}

// box is what an MP4 file consists of.
func box(name string, parts ...[]byte) []byte {
	size := 8
	for _, p := range parts {
		size += len(p)
	}
	out := append(u32(uint32(size)), name...)
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// matrix shows a video as it is.
var matrix = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)

// movie is all there is to know of the frames.
func (v *Video) movie(sizes, keys []uint32, start uint32) []byte {
	const inSecond = 1000 // units of time of the movie
	length := uint32(v.Seconds * inSecond)
	return box("moov",
		box("mvhd", u32(0, 0, 0, inSecond, length, 0x10000), u16(0x100, 0), u32(0, 0), matrix, make([]byte, 24), u32(2)),
		box("trak",
			box("tkhd", u32(3, 0, 0, 1, 0, length, 0, 0), u16(0, 0, 0, 0), matrix, u32(uint32(v.Width)<<16, uint32(v.Height)<<16)),
			box("mdia",
				box("mdhd", u32(0, 0, 0, Rate, uint32(len(sizes))), u16(0x55C4, 0)), // no language
				box("hdlr", u32(0, 0), []byte("vide"), u32(0, 0, 0), []byte("video\x00")),
				box("minf",
					box("vmhd", u32(1, 0, 0)),
					box("dinf", box("dref", u32(0, 1), box("url ", u32(1)))), // in this file
					v.table(sizes, keys, start),
				),
			),
		),
	)
}

// table says where each frame is, and when it is shown.
func (v *Video) table(sizes, keys []uint32, start uint32) []byte {
	count := uint32(len(sizes))
	return box("stbl",
		box("stsd", u32(0, 1), v.entry()),
		box("stts", u32(0, 1, count, 1)),
		box("stss", u32(0, uint32(len(keys))), u32(keys...)),
		box("stsc", u32(0, 1, 1, count, 1)), // all in one chunk
		box("stsz", u32(0, 0, count), u32(sizes...)),
		box("stco", u32(0, 1, start)),
	)
}

// entry says how the frames are encoded.
func (v *Video) entry() []byte {
	sps, pps := sequence(v.Width, v.Height), picture()
	config := box("avcC", []byte{1}, sps[1:4], []byte{0xFF, 0xE1}, u16(uint16(len(sps))), sps, []byte{1}, u16(uint16(len(pps))), pps)
	return box("avc1", u32(0), u16(0, 1), make([]byte, 16), u16(uint16(v.Width), uint16(v.Height)),
		u32(0x480000, 0x480000, 0), u16(1), make([]byte, 32), u16(24, 0xFFFF), config)
}
