package duration

import (
	"bytes"
	"encoding/binary"
	"time"
)

// The elements of WebM and Matroska files that matter here.
const (
	idSegment      = 0x18538067
	idTracks       = 0x1654AE6B
	idTrackEntry   = 0xAE
	idTrackNumber  = 0xD7
	idTrackType    = 0x83
	idCodec        = 0x86
	idCodecPrivate = 0x63A2
	idEncodings    = 0x6D80
	idCluster      = 0x1F43B675
	idBlockGroup   = 0xA0
	idBlock        = 0xA1
	idSimpleBlock  = 0xA3
)

const typeAudio = 2

type webmTrack struct {
	number, kind uint64
	codec        string
	private      []byte
	encoded      bool // compressed or encrypted once more

	count counter
	total uint64 // samples
}

// ofWebM counts the samples of all blocks of audio tracks. Elements whose size is unknown, as in a
// recording, and those that contain others are entered and never left: their IDs are distinct.
func (w *watch) ofWebM(file []byte) (longest time.Duration, err error) {
	var tracks []*webmTrack
	for rest := file; len(rest) > 0 && !w.ended(); {
		id, n := readVint(rest, true)
		if n == 0 {
			break
		}
		size, m := readVint(rest[n:], false)
		if m == 0 {
			break
		}
		rest = rest[n+m:]
		switch id {
		case idTrackEntry:
			if len(tracks) == maxTracks {
				return 0, errTracks
			}
			tracks = append(tracks, new(webmTrack))
			continue
		case idSegment, idTracks, idCluster, idBlockGroup:
			continue
		}
		data := rest[:min(size, uint64(len(rest)))]
		rest = rest[len(data):]
		switch id {
		case idSimpleBlock, idBlock:
			if err := readBlock(tracks, data); err != nil {
				return 0, err
			}
		default:
			if len(tracks) > 0 {
				tracks[len(tracks)-1].set(id, data)
			}
		}
	}
	for _, t := range tracks {
		if t.count != nil {
			longest = max(longest, t.count.duration(t.total))
		}
	}
	return longest, nil
}

func (t *webmTrack) set(id uint64, data []byte) {
	switch id {
	case idTrackNumber:
		t.number = readUint(data)
	case idTrackType:
		t.kind = readUint(data)
	case idCodec:
		t.codec = string(bytes.TrimRight(data, "\x00"))
	case idCodecPrivate:
		t.private = data
	case idEncodings:
		t.encoded = true
	}
}

// readBlock adds the samples of a block.
func readBlock(tracks []*webmTrack, block []byte) error {
	number, n := readVint(block, false)
	if n == 0 || len(block) < n+3 {
		return errUnknown
	}
	for _, t := range tracks {
		if t.number != number || t.kind != typeAudio {
			continue
		}
		if t.count == nil {
			if err := t.start(); err != nil {
				return err
			}
		}
		packets, ok := unlace(block[n+3:], block[n+2]>>1&3)
		if !ok {
			return errUnknown
		}
		for _, p := range packets {
			t.total += t.count.samples(p)
		}
	}
	return nil
}

func (t *webmTrack) start() error {
	switch {
	case t.encoded:
		return errCodec
	case t.codec == "A_OPUS":
		t.count = new(opusCounter)
	case t.codec == "A_VORBIS":
		c := new(vorbisCounter)
		if headers := vorbisHeaders(t.private); len(headers) != 3 || !c.readIdentification(headers[0]) || !c.readSetup(headers[2]) {
			return errUnknown
		}
		t.count = c
	case t.codec == "A_AAC":
		config, ok := readAACConfig(t.private)
		if !ok {
			return errCodec
		}
		t.count = &aacCounter{config}
	default:
		return errCodec
	}
	return nil
}

// vorbisHeaders returns the three header packets, which are laced.
func vorbisHeaders(private []byte) [][]byte {
	if len(private) == 0 || private[0] != 2 {
		return nil
	}
	packets, _ := unlace(private, laceXiph)
	return packets
}

const (
	laceNone = iota
	laceXiph
	laceFixed
	laceEBML
)

// unlace returns the packets of a block.
func unlace(data []byte, lacing byte) (packets [][]byte, ok bool) {
	if lacing == laceNone {
		return [][]byte{data}, true
	}
	if len(data) == 0 {
		return nil, false
	}
	n := int(data[0]) + 1
	data = data[1:]
	sizes := make([]int, 0, n)
	switch lacing {
	case laceFixed:
		for range n - 1 {
			sizes = append(sizes, len(data)/n)
		}
	case laceXiph:
		for range n - 1 {
			size := 0
			for {
				if len(data) == 0 {
					return nil, false
				}
				b := data[0]
				data = data[1:]
				if size += int(b); b < 255 {
					break
				}
			}
			sizes = append(sizes, size)
		}
	case laceEBML:
		last := 0
		for i := range n - 1 {
			value, width := readVint(data, false)
			if width == 0 || value > 1<<40 {
				return nil, false
			}
			data = data[width:]
			if i == 0 {
				last = int(value)
			} else { // a signed difference
				last += int(value) - (1<<(7*width-1) - 1)
			}
			sizes = append(sizes, last)
		}
	}
	for _, size := range sizes {
		if size < 0 || size > len(data) {
			return nil, false
		}
		packets, data = append(packets, data[:size]), data[size:]
	}
	return append(packets, data), true
}

// readVint reads a number of variable width, and returns its width or 0. An ID keeps the bit that
// marks the width.
func readVint(b []byte, id bool) (value uint64, width int) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0
	}
	width = 1
	for mask := byte(0x80); b[0]&mask == 0; mask >>= 1 {
		width++
	}
	if len(b) < width {
		return 0, 0
	}
	value = uint64(b[0])
	if !id {
		value &= 1<<(8-width) - 1
	}
	for _, next := range b[1:width] {
		value = value<<8 | uint64(next)
	}
	return value, width
}

func readUint(data []byte) uint64 {
	var padded [8]byte
	if len(data) > 8 {
		return 0
	}
	copy(padded[8-len(data):], data)
	return binary.BigEndian.Uint64(padded[:])
}
