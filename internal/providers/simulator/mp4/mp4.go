// Package mp4 builds videos of any size and length from one embedded second of
// H.264. The sequence parameter set crops the frames of 2048 by 2048 pixels to
// the requested size, and the sample table plays the same second repeatedly.
package mp4

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxSide is the largest width and height.
	MaxSide = 2048
	rate    = 24 // frames per second
)

//go:embed clip.h264
var clip []byte

// frames are the frames of the clip as MP4 stores them: after their length.
// frameSizes are their sizes, and pictureSet is the clip's PPS.
var frames, frameSizes, pictureSet = parseClip()

func parseClip() (frames []byte, sizes []uint32, pps []byte) {
	for unit := range bytes.SplitSeq(clip, []byte{0, 0, 1}) {
		unit = bytes.TrimRight(unit, "\x00") // a start code may have another zero
		if len(unit) == 0 {
			continue
		}
		switch unit[0] & 0x1F {
		case 1, 5: // a slice, which is a whole frame
			frames = append(append(frames, u32(uint32(len(unit)))...), unit...)
			sizes = append(sizes, uint32(len(unit)+4))
		case 8:
			pps = unit
		}
	}
	return frames, sizes, pps
}

// Encode returns an MP4 file. Width and height are even and at most MaxSide. The
// sample table comes before the frames, so that players can start early.
func Encode(width, height, seconds int) []byte {
	fileType := box("ftyp", []byte("isom"), u32(0x200), []byte("isomiso2avc1mp41"))
	// The offset of the frames doesn't change the size of the table.
	offset := len(fileType) + len(movie(width, height, seconds, 0)) + 8
	return slices.Concat(fileType, movie(width, height, seconds, uint32(offset)), box("mdat", frames))
}

func u16(values ...uint16) (out []byte) {
	for _, v := range values {
		out = binary.BigEndian.AppendUint16(out, v)
	}
	return out
}

func u32(values ...uint32) (out []byte) {
	for _, v := range values {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return out
}

func box(name string, parts ...[]byte) []byte {
	content := slices.Concat(parts...)
	return slices.Concat(u32(uint32(8+len(content))), []byte(name), content)
}

// identity is the transformation matrix that doesn't change a video.
var identity = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)

func movie(width, height, seconds int, offset uint32) []byte {
	const timescale = 1000
	duration := uint32(seconds * timescale)
	return box("moov",
		box("mvhd", u32(0, 0, 0, timescale, duration, 0x10000), u16(0x100, 0), u32(0, 0), identity, make([]byte, 24), u32(2)),
		box("trak",
			box("tkhd", u32(3, 0, 0, 1, 0, duration, 0, 0), u16(0, 0, 0, 0), identity, u32(uint32(width)<<16, uint32(height)<<16)),
			box("mdia",
				box("mdhd", u32(0, 0, 0, rate, uint32(seconds*rate)), u16(0x55C4, 0)), // undetermined language
				box("hdlr", u32(0, 0), []byte("vide"), u32(0, 0, 0), []byte("video\x00")),
				box("minf",
					box("vmhd", u32(1, 0, 0)),
					box("dinf", box("dref", u32(0, 1), box("url ", u32(1)))), // the frames are in this file
					box("stbl", sampleTable(seconds, offset), box("stsd", u32(0, 1), sampleEntry(width, height))),
				),
			),
		),
	)
}

// sampleTable describes one chunk of 24 frames for each second. All chunks are at the same offset.
func sampleTable(seconds int, offset uint32) []byte {
	var keys []uint32
	for i := range seconds {
		keys = append(keys, uint32(i*rate+1))
	}
	chunks, samples := uint32(seconds), uint32(seconds*rate)
	return slices.Concat(
		box("stts", u32(0, 1, samples, 1)),
		box("stss", u32(0, chunks), u32(keys...)),
		box("stsc", u32(0, 1, 1, rate, 1)),
		box("stsz", u32(0, 0, samples), u32(slices.Repeat(frameSizes, seconds)...)),
		box("stco", u32(0, chunks), u32(slices.Repeat([]uint32{offset}, seconds)...)),
	)
}

func sampleEntry(width, height int) []byte {
	sps := sequenceSet(width, height)
	config := box("avcC", []byte{1}, sps[1:4], []byte{0xFF, 0xE1}, u16(uint16(len(sps))), sps, []byte{1}, u16(uint16(len(pictureSet))), pictureSet)
	return box("avc1", u32(0), u16(0, 1), make([]byte, 16), u16(uint16(width), uint16(height)),
		u32(0x480000, 0x480000, 0), u16(1), make([]byte, 32), u16(24, 0xFFFF), config)
}

// sequenceSet returns the sequence parameter set of the clip with cropping. Its
// names come from the H.264 standard, section 7.3.2.1.1. It never has 16 zero
// bits in a row, so it needs no emulation prevention.
func sequenceSet(width, height int) []byte {
	bits := "01100111" + // NAL unit: sequence parameter set
		"01000010" + "11000000" + "00110010" + // profile_idc 66, constraint sets 0 and 1, level_idc 50
		ue(0) + ue(0) + ue(2) + ue(1) + "0" + // seq_parameter_set_id, log2_max_frame_num, pic_order_cnt_type, max_num_ref_frames, gaps
		ue(MaxSide/16-1) + ue(MaxSide/16-1) + "1" + "1" + // size in macroblocks, frame_mbs_only, direct_8x8_inference
		"1" + ue(0) + ue((MaxSide-width)/2) + ue(0) + ue((MaxSide-height)/2) + // cropping: left, right, top, bottom
		"0" + "1" // no vui_parameters, stop bit
	bits += strings.Repeat("0", 7-(len(bits)+7)%8)
	var out []byte
	for chunk := range slices.Chunk([]byte(bits), 8) {
		b, _ := strconv.ParseUint(string(chunk), 2, 8)
		out = append(out, byte(b))
	}
	return out
}

// ue is an unsigned Exp-Golomb code.
func ue(n int) string {
	digits := strconv.FormatInt(int64(n)+1, 2)
	return strings.Repeat("0", len(digits)-1) + digits
}
