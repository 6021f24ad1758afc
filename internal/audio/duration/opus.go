package duration

// opusRate is the rate of Opus's clock, whatever the rate of the audio is.
const opusRate = 48_000

// opusFrames are the samples of a frame by the packet's configuration: SILK, hybrid, CELT.
var opusFrames = func() (out [32]uint64) {
	for i := range out {
		switch {
		case i < 12:
			out[i] = [4]uint64{480, 960, 1920, 2880}[i%4]
		case i < 16:
			out[i] = [2]uint64{480, 960}[i%2]
		default:
			out[i] = [4]uint64{120, 240, 480, 960}[i%4]
		}
	}
	return out
}()

// maxOpusPacket is 120 ms, the most that a packet may have.
const maxOpusPacket = 5760

// opusSamples returns the samples of a packet, which its first two bytes determine.
func opusSamples(packet []byte) uint64 {
	if len(packet) == 0 {
		return 0
	}
	frames := uint64(1)
	switch packet[0] & 3 {
	case 1, 2:
		frames = 2
	case 3:
		if len(packet) < 2 {
			return 0
		}
		frames = uint64(packet[1] & 0x3F)
	}
	return min(frames*opusFrames[packet[0]>>3], maxOpusPacket)
}
