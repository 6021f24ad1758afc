package duration

import (
	"bytes"
	"time"
)

// frame is the header of an MP3 or ADTS frame.
type frame struct {
	size    int // in bytes, with the header
	samples uint64
	rate    uint64
}

// minChain is how many frames must follow each other to count as audio, unless the file ends
// before: other data can look like a header.
const minChain = 3

// ofFrames measures MP3 and AAC files, which are frames without a container. It looks for them in
// all of the file, also in tags.
func (w *watch) ofFrames(file []byte) (total time.Duration, err error) {
	for at := 0; at+7 <= len(file) && !w.ended(); {
		size, d := chain(file[at:])
		if size == 0 {
			at++
			continue
		}
		if total == 0 {
			d -= infoFrame(file[at:])
		}
		total, at = add(total, d), at+size
	}
	if total == 0 {
		return 0, errUnknown
	}
	return total, nil
}

// infoFrame returns the duration of a first MP3 frame that describes the others, and isn't played.
func infoFrame(data []byte) time.Duration {
	f, _ := readFrame(data)
	head := data[:min(len(data), f.size, 48)]
	if !bytes.Contains(head, []byte("Xing")) && !bytes.Contains(head, []byte("Info")) {
		return 0
	}
	return samplesToDuration(f.samples, f.rate)
}

// chain returns the size and the duration of frames that follow each other; zero if there are too
// few.
func chain(data []byte) (size int, total time.Duration) {
	if data[0] != 0xFF {
		return 0, 0
	}
	n := 0
	var samples, rate uint64
	for {
		rest := data[size:]
		f, ok := readFrame(rest)
		if !ok {
			break
		}
		if rate != f.rate {
			total, samples, rate = add(total, samplesToDuration(samples, rate)), 0, f.rate
		}
		samples += f.samples
		n++
		if size += f.size; size >= len(data) { // the last one may be cut off
			size = len(data)
			break
		}
	}
	if n < minChain && size < len(data) {
		return 0, 0
	}
	return size, add(total, samplesToDuration(samples, rate))
}

func readFrame(b []byte) (f frame, ok bool) {
	if len(b) < 7 || b[0] != 0xFF || b[1]&0xE0 != 0xE0 {
		return f, false
	}
	if b[1]&0xF6 == 0xF0 {
		return readADTS(b)
	}
	return readMPEG(b)
}

// mpegBitrates are in kbit/s, by MPEG 1 or 2 and by layer.
var mpegBitrates = [2][4][16]int{
	{ // MPEG 1
		1: {0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
		2: {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
		3: {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
	},
	{ // MPEG 2 and 2.5
		1: {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
		2: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		3: {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
	},
}

var mpegRates = [3]int{44100, 48000, 32000}

func readMPEG(b []byte) (f frame, ok bool) {
	version, layer := b[1]>>3&3, 4-int(b[1]>>1&3) // version: 0 is MPEG 2.5, 2 is MPEG 2, 3 is MPEG 1
	bitrate, rate, padding := int(b[2]>>4), int(b[2]>>2&3), int(b[2]>>1&1)
	if version == 1 || layer == 4 || rate == 3 {
		return f, false
	}
	table, hertz, samples := 0, mpegRates[rate], 1152
	switch version {
	case 2:
		table, hertz = 1, hertz/2
	case 0:
		table, hertz = 1, hertz/4
	}
	kbit := mpegBitrates[table][layer][bitrate]
	if kbit == 0 { // free format isn't supported
		return f, false
	}
	switch {
	case layer == 1:
		samples = 384
		f.size = (12*kbit*1000/hertz + padding) * 4
	case layer == 3 && table == 1:
		samples = 576
		f.size = 72*kbit*1000/hertz + padding
	default:
		f.size = 144*kbit*1000/hertz + padding
	}
	f.samples, f.rate = uint64(samples), uint64(hertz)
	return f, f.size > 4
}

// aacRates are the sample rates by their index.
var aacRates = [13]uint64{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// aacSamples are the samples of a frame. With spectral band replication there are twice as many
// at twice the rate.
const aacSamples = 1024

func readADTS(b []byte) (f frame, ok bool) {
	rate := int(b[2] >> 2 & 15)
	if rate >= len(aacRates) {
		return f, false
	}
	f.size = int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5]>>5)
	blocks := uint64(b[6]&3) + 1
	f.samples, f.rate = blocks*aacSamples, aacRates[rate]
	return f, f.size > 7
}
