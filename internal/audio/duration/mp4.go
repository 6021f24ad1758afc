package duration

import (
	"encoding/binary"
	"time"
)

// mp4Track is a track of an MP4 file.
type mp4Track struct {
	id          uint32
	sound       bool
	config      aacConfig // of several descriptions, the one that plays longest
	hasConfig   bool
	unsupported bool
	frames      [maxChannels + 1]uint64 // by the number of channels, which may become known later
}

func (t *mp4Track) addFrames(n uint64, size uint32) {
	for channels := range t.frames {
		t.frames[channels] += n * framesIn(size, channels)
	}
}

// mp4File is what the walk collects.
type mp4File struct {
	*watch
	tracks []*mp4Track
	depth  int
}

// ofMP4 counts the frames of each audio track. Their times are only labels.
func (w *watch) ofMP4(file []byte) (longest time.Duration, err error) {
	f := mp4File{watch: w}
	if f.walk(file); len(f.tracks) > maxTracks {
		return 0, errTracks
	}
	for _, t := range f.tracks {
		if !t.sound {
			continue
		}
		if t.unsupported || !t.hasConfig {
			return 0, errCodec
		}
		longest = max(longest, t.duration())
	}
	return longest, nil
}

func (t *mp4Track) duration() time.Duration {
	return samplesToDuration(t.frames[t.config.channels]*t.config.samples, t.config.rate)
}

// maxDepth is more than any file nests boxes.
const maxDepth = 12

// eachBox calls a function for each box, until one is malformed.
func eachBox(data []byte, visit func(name string, body []byte)) {
	for len(data) >= 8 {
		size, name, head := uint64(binary.BigEndian.Uint32(data)), string(data[4:8]), uint64(8)
		switch {
		case size == 0:
			size = uint64(len(data))
		case size == 1:
			if len(data) < 16 {
				return
			}
			size, head = binary.BigEndian.Uint64(data[8:]), 16
		}
		if size < head {
			return
		}
		size = min(size, uint64(len(data)))
		if size < head {
			return
		}
		visit(name, data[head:size])
		data = data[size:]
	}
}

func (f *mp4File) walk(data []byte) {
	if f.depth++; f.depth <= maxDepth {
		eachBox(data, f.visit)
	}
	f.depth--
}

func (f *mp4File) visit(name string, body []byte) {
	if len(f.tracks) > maxTracks || f.ended() {
		return
	}
	switch name {
	case "moov", "mdia", "minf", "stbl", "moof":
		f.walk(body)
	case "trak":
		f.tracks = append(f.tracks, new(mp4Track))
		f.walk(body)
	case "traf":
		f.readFragment(body)
	}
	if len(f.tracks) == 0 {
		return
	}
	t := f.tracks[len(f.tracks)-1]
	switch name {
	case "tkhd":
		if at := 12; len(body) > 0 {
			if body[0] == 1 {
				at = 20
			}
			if len(body) >= at+4 {
				t.id = binary.BigEndian.Uint32(body[at:])
			}
		}
	case "hdlr":
		t.sound = t.sound || len(body) >= 12 && string(body[8:12]) == "soun"
	case "stsd":
		t.readDescriptions(body)
	case "stsz":
		t.readSizes(body)
	case "stz2":
		t.readCompactSizes(body)
	}
}

func (t *mp4Track) readSizes(body []byte) {
	if len(body) < 12 {
		return
	}
	fixed, n := binary.BigEndian.Uint32(body[4:]), binary.BigEndian.Uint32(body[8:])
	if fixed > 0 {
		t.addFrames(uint64(n), fixed)
		return
	}
	for list := body[12:]; n > 0 && len(list) >= 4; n-- {
		t.addFrames(1, binary.BigEndian.Uint32(list))
		list = list[4:]
	}
}

// readCompactSizes reads sizes of 4, 8 or 16 bits.
func (t *mp4Track) readCompactSizes(body []byte) {
	if len(body) < 12 {
		return
	}
	width, n, list := uint64(body[7]), uint64(binary.BigEndian.Uint32(body[8:])), body[12:]
	if width != 4 && width != 8 && width != 16 {
		t.unsupported = true
		return
	}
	for n = min(n, uint64(len(list))*8/width); n > 0; n-- {
		switch at := (n - 1) * width; width {
		case 4:
			t.addFrames(1, 15)
		case 8:
			t.addFrames(1, uint32(list[at/8]))
		case 16:
			t.addFrames(1, uint32(binary.BigEndian.Uint16(list[at/8:])))
		}
	}
}

// readFragment reads the frames of a fragment.
func (f *mp4File) readFragment(data []byte) {
	var t *mp4Track
	var usual uint32 // size of frames without their own
	eachBox(data, func(name string, body []byte) {
		switch {
		case name == "tfhd" && len(body) >= 8:
			id, flags := binary.BigEndian.Uint32(body[4:]), binary.BigEndian.Uint32(body)&0xFFFFFF
			for _, known := range f.tracks {
				if known.id == id {
					t = known
				}
			}
			at := 8
			for _, field := range []struct{ flag, size int }{{1, 8}, {2, 4}, {8, 4}} {
				if flags&uint32(field.flag) != 0 {
					at += field.size
				}
			}
			if flags&0x10 != 0 && len(body) >= at+4 {
				usual = binary.BigEndian.Uint32(body[at:])
			}
		case name == "trun" && len(body) >= 8 && t != nil:
			t.readRun(body, usual)
		}
	})
}

func (t *mp4Track) readRun(body []byte, usual uint32) {
	flags, n := binary.BigEndian.Uint32(body)&0xFFFFFF, binary.BigEndian.Uint32(body[4:])
	at := 8
	for _, flag := range []uint32{1, 4} { // the offset of the data, and the first sample's flags
		if flags&flag != 0 {
			at += 4
		}
	}
	width, sizeAt := 0, -1
	for _, flag := range []uint32{0x100, 0x200, 0x400, 0x800} { // duration, size, flags, time offset
		if flags&flag == 0 {
			continue
		}
		if flag == 0x200 {
			sizeAt = width
		}
		width += 4
	}
	// A frame without its own fields takes no space here, so its number could be anything.
	if width == 0 {
		t.addFrames(uint64(n), usual)
		return
	}
	for ; n > 0 && len(body) >= at+width; n-- {
		size := usual
		if sizeAt >= 0 {
			size = binary.BigEndian.Uint32(body[at+sizeAt:])
		}
		t.addFrames(1, size)
		at += width
	}
}

// readDescriptions reads how the frames are coded.
func (t *mp4Track) readDescriptions(body []byte) {
	if len(body) < 8 {
		return
	}
	eachBox(body[8:], func(name string, entry []byte) {
		if len(entry) < 28 {
			t.unsupported = true
			return
		}
		boxes := entry[28:]
		switch binary.BigEndian.Uint16(entry[8:]) { // QuickTime's versions have more fields
		case 1:
			boxes = boxes[min(16, len(boxes)):]
		case 2:
			boxes = boxes[min(36, len(boxes)):]
		}
		found, outer := false, true
		var visit func(name string, body []byte)
		visit = func(inner string, body []byte) {
			switch {
			case inner == "wave" && name == "mp4a" && outer:
				outer = false
				eachBox(body, visit)
				outer = true
			case inner == "esds" && name == "mp4a" && len(body) >= 4:
				config, ok := readAACConfig(decoderConfig(body[4:]))
				t.use(config, ok)
				found = true
			case inner == "alac" && name == "alac" && len(body) >= 28:
				t.use(aacConfig{samples: uint64(binary.BigEndian.Uint32(body[4:])), rate: uint64(binary.BigEndian.Uint32(body[24:]))}, true)
				found = true
			}
		}
		eachBox(boxes, visit)
		t.unsupported = t.unsupported || !found
	})
}

func (t *mp4Track) use(c aacConfig, ok bool) {
	if !ok || c.rate == 0 || c.samples == 0 || c.samples > 1<<16 {
		t.unsupported = true
		return
	}
	if !t.hasConfig || c.samples*t.config.rate > t.config.samples*c.rate {
		t.config, t.hasConfig = c, true
	}
}

// decoderConfig returns the AudioSpecificConfig in the descriptors of an esds box, or nil if it
// isn't AAC.
func decoderConfig(data []byte) []byte {
	for len(data) >= 2 {
		tag := data[0]
		data = data[1:]
		size := 0
		for i := 0; i < 4 && len(data) > 0; i++ {
			b := data[0]
			data = data[1:]
			if size = size<<7 | int(b&0x7F); b&0x80 == 0 {
				break
			}
		}
		switch {
		case tag == 3 && len(data) >= 3: // ES: its ID, flags and optional fields
			flags := data[2]
			data = data[3:]
			if flags&0x80 != 0 {
				data = data[min(2, len(data)):]
			}
			if flags&0x40 != 0 && len(data) > 0 {
				data = data[min(1+int(data[0]), len(data)):]
			}
			if flags&0x20 != 0 {
				data = data[min(2, len(data)):]
			}
		case tag == 4 && len(data) >= 13: // decoder config
			if kind := data[0]; kind != 0x40 && (kind < 0x66 || kind > 0x68) {
				return nil
			}
			data = data[13:]
		case tag == 5:
			return data[:min(size, len(data))]
		default:
			data = data[min(size, len(data)):]
		}
	}
	return nil
}
