package duration

import (
	"bytes"
	"encoding/binary"
	"time"
)

// oggStream is a logical stream of an Ogg file.
type oggStream struct {
	codec   counter
	packet  []byte // begun on an earlier page
	packets int
	samples uint64
}

// counter counts the samples of packets.
type counter interface {
	// header reads one of the packets before the audio. It returns false after the last.
	header(packet []byte, n int) (more bool, err error)
	samples(packet []byte) uint64
	// duration returns how long all of them play.
	duration(samples uint64) time.Duration
}

// ofOgg counts the samples of all packets, because positions of pages are only labels. Streams
// that follow each other add up, and so do those that play together.
func (w *watch) ofOgg(file []byte) (total time.Duration, err error) {
	streams := map[uint32]*oggStream{}
	for at := 0; !w.ended(); {
		next := bytes.Index(file[at:], []byte("OggS"))
		if next < 0 {
			break
		}
		at += next
		if len(file)-at < 27 {
			break
		}
		page := file[at:]
		lacing := int(page[26])
		if len(page) < 27+lacing {
			break
		}
		serial := binary.LittleEndian.Uint32(page[14:])
		s := streams[serial]
		if s == nil || page[5]&2 != 0 { // the stream begins, or another with the same number
			if s != nil {
				total = add(total, s.duration())
			}
			if len(streams) == maxTracks {
				return 0, errTracks
			}
			s = new(oggStream)
			streams[serial] = s
		}
		body := page[27+lacing:]
		size := 0
		for i, segment := range page[27 : 27+lacing] {
			size += int(segment)
			if segment == 255 && i < lacing-1 {
				continue
			}
			part := body[:min(size, len(body))]
			body, size = body[len(part):], 0
			if segment == 255 { // continued on the next page
				s.packet = append(s.packet, part...)
				continue
			}
			if len(s.packet) > 0 {
				part = append(s.packet, part...)
				s.packet = nil
			}
			if err := s.read(part); err != nil {
				return 0, err
			}
		}
		if page[5]&4 != 0 { // the last page of the stream
			total = add(total, s.duration())
			delete(streams, serial)
		}
		at = len(file) - len(body)
	}
	for _, s := range streams {
		total = add(total, s.duration())
	}
	return total, nil
}

func (s *oggStream) duration() time.Duration {
	if s.codec == nil {
		return 0
	}
	return s.codec.duration(s.samples)
}

func (s *oggStream) read(packet []byte) error {
	n := s.packets
	s.packets++
	if n == 0 {
		switch {
		case bytes.HasPrefix(packet, []byte("OpusHead")):
			s.codec = new(opusCounter)
		case bytes.HasPrefix(packet, []byte("\x01vorbis")):
			s.codec = new(vorbisCounter)
		case bytes.HasPrefix(packet, []byte("\x80theora")) || bytes.HasPrefix(packet, []byte("fishead\x00")):
			s.codec = silent{}
		default:
			return errCodec
		}
	}
	more, err := s.codec.header(packet, n)
	if err != nil || more {
		return err
	}
	s.samples += s.codec.samples(packet)
	return nil
}

type opusCounter struct{}

// header reads the identification and the tags.
func (*opusCounter) header(_ []byte, n int) (bool, error) { return n < 2, nil }

func (*opusCounter) samples(packet []byte) uint64 { return opusSamples(packet) }

func (*opusCounter) duration(samples uint64) time.Duration {
	return samplesToDuration(samples, opusRate)
}

type vorbisCounter struct{ vorbis }

// header reads the identification, the comments and the setup.
func (c *vorbisCounter) header(packet []byte, n int) (bool, error) {
	switch n {
	case 0:
		if !c.readIdentification(packet) {
			return false, errUnknown
		}
	case 2:
		if !c.readSetup(packet) {
			return false, errUnknown
		}
	}
	return n < 3, nil
}

func (c *vorbisCounter) duration(samples uint64) time.Duration {
	return samplesToDuration(samples, c.rate)
}

// silent is a stream without audio.
type silent struct{}

func (silent) header([]byte, int) (bool, error) { return true, nil }
func (silent) samples([]byte) uint64            { return 0 }
func (silent) duration(uint64) time.Duration    { return 0 }
