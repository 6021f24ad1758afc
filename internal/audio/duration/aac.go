package duration

import "time"

// aacConfig is how AAC or ALAC frames are coded.
type aacConfig struct {
	samples  uint64 // of a frame
	rate     uint64
	channels int // 0 if frames have no maximum size
}

const (
	// maxChannelBytes is the maximum of a channel in an AAC frame. Decoders accept several frames in
	// place of one, so larger ones count as several.
	maxChannelBytes = 768
	maxChannels     = 8
)

func framesIn(size uint32, channels int) uint64 {
	if channels == 0 {
		return 1
	}
	most := uint64(maxChannelBytes * channels)
	return max(1, (uint64(size)+most-1)/most)
}

// readAACConfig reads an AudioSpecificConfig. Types other than Main, LC, SSR and LTP, with or
// without spectral band replication, have frames of other lengths.
func readAACConfig(config []byte) (c aacConfig, ok bool) {
	if len(config) < 2 {
		return c, false
	}
	at := 0
	read := func(n int) uint64 {
		var value uint64
		for range n {
			value <<= 1
			if at/8 < len(config) {
				value |= uint64(config[at/8] >> (7 - at%8) & 1)
			}
			at++
		}
		return value
	}
	kind := read(5)
	index := read(4)
	if index == 15 {
		c.rate = read(24)
	} else if index < uint64(len(aacRates)) {
		c.rate = aacRates[index]
	}
	c.samples, c.channels = aacSamples, int(read(4))
	if c.channels == 0 || c.channels > 6 { // 7 means eight, and others are in the frames
		c.channels = maxChannels
	}
	return c, c.rate > 0 && (kind >= 1 && kind <= 5 || kind == 29)
}

// aacCounter counts AAC frames in WebM.
type aacCounter struct{ config aacConfig }

func (*aacCounter) header([]byte, int) (bool, error) { return false, nil }

func (c *aacCounter) samples(packet []byte) uint64 {
	return framesIn(uint32(min(len(packet), 1<<30)), c.config.channels) * c.config.samples
}

func (c *aacCounter) duration(samples uint64) time.Duration {
	return samplesToDuration(samples, c.config.rate)
}
