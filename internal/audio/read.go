package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// The encodings of WAV files.
const (
	encodingPCM        = 1
	encodingFloat      = 3
	encodingExtensible = 0xFFFE // the encoding follows in the chunk
)

// Limits of valid audio. Beyond them a header is damaged or malicious.
const (
	maxRate     = 768_000
	maxChannels = 64
	maxFmtChunk = 1 << 10
)

var errNotWAV = errors.New("audio: not a WAV file")

// ReadWAV reads the header of a WAV file and returns its samples as 16-bit PCM. It
// skips other chunks. A file that is shorter than its header says is an error, unless
// the header has an unknown size.
func ReadWAV(r io.Reader) (Format, io.Reader, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Format{}, nil, readError(err)
	}
	long := string(head[:4]) == "RF64"
	if !long && string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return Format{}, nil, errNotWAV
	}
	var (
		coded    coding
		longSize uint64
	)
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return Format{}, nil, readError(err)
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ", "ds64":
			if size > maxFmtChunk {
				return Format{}, nil, errNotWAV
			}
			data := make([]byte, size+size%2)
			if _, err := io.ReadFull(r, data); err != nil {
				return Format{}, nil, readError(err)
			}
			if chunk[0] == 'f' {
				var err error
				if coded, err = readFormat(data); err != nil {
					return Format{}, nil, err
				}
			} else if long && len(data) >= 16 {
				longSize = binary.LittleEndian.Uint64(data[8:])
			}
		case "data":
			if coded.frame == 0 {
				return Format{}, nil, errNotWAV
			}
			if long && size == unknownSize && longSize > 0 && longSize <= math.MaxInt64 {
				size = int64(longSize)
			} else if unknown(size) {
				size = -1
			}
			return coded.Format, &samples{from: r, left: size, coding: coded}, nil
		default:
			if _, err := io.CopyN(io.Discard, r, size+size%2); err != nil {
				return Format{}, nil, readError(err)
			}
		}
	}
}

// unknown reports whether a header's size stands for an unknown size: zero, the
// maximum, or the values of espeak-ng and sox.
func unknown(size int64) bool {
	return size == 0 || size >= 0xFFFFFF00 || 0x7FFFF000 <= size && size <= 0x7FFFFFFF
}

func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errNotWAV
	}
	return fmt.Errorf("audio: read a WAV file: %w", err)
}

type coding struct {
	Format
	bits  int
	float bool
	frame int // bytes of one sample of all channels
}

func readFormat(data []byte) (coding, error) {
	if len(data) < 16 {
		return coding{}, errNotWAV
	}
	encoding := binary.LittleEndian.Uint16(data)
	if encoding == encodingExtensible && len(data) >= 26 {
		encoding = binary.LittleEndian.Uint16(data[24:])
	}
	c := coding{
		Format: Format{
			Rate:     int(binary.LittleEndian.Uint32(data[4:])),
			Channels: int(binary.LittleEndian.Uint16(data[2:])),
		},
		bits:  int(binary.LittleEndian.Uint16(data[14:])),
		float: encoding == encodingFloat,
	}
	if c.Rate < 1 || c.Rate > maxRate || c.Channels < 1 || c.Channels > maxChannels {
		return coding{}, fmt.Errorf("audio: a WAV file with %d samples a second and %d channels", c.Rate, c.Channels)
	}
	known := encoding == encodingPCM && (c.bits == 8 || c.bits == 16 || c.bits == 24 || c.bits == 32) ||
		encoding == encodingFloat && (c.bits == 32 || c.bits == 64)
	if !known {
		return coding{}, fmt.Errorf("audio: a WAV file with encoding %d and %d bits; only PCM and floating point are understood", encoding, c.bits)
	}
	c.frame = c.bits / 8 * c.Channels
	return c, nil
}

// samples reads a file as 16-bit PCM. It drops an incomplete sample at the end.
type samples struct {
	from io.Reader
	left int64 // bytes of the file; negative if unknown
	coding
	raw   []byte // as read; at most an incomplete sample is left over
	space [8 << 10]byte
	output
}

func (s *samples) Read(p []byte) (int, error) { return s.read(p, s.fill) }

// output is converted audio that wasn't returned yet, and the error that follows it.
type output struct {
	out []byte
	err error
}

// read returns output. fill sets more if there is none.
func (o *output) read(p []byte, fill func()) (int, error) {
	for len(o.out) == 0 && o.err == nil {
		fill()
	}
	if len(o.out) == 0 {
		return 0, o.err
	}
	n := copy(p, o.out)
	o.out = o.out[n:]
	return n, nil
}

func (s *samples) fill() {
	room := s.space[len(s.raw):]
	if s.left >= 0 && int64(len(room)) > s.left {
		room = room[:s.left]
	}
	if len(room) == 0 {
		s.err = io.EOF
		return
	}
	n, err := s.from.Read(room)
	if s.left >= 0 {
		s.left -= int64(n)
		if err == io.EOF && s.left > 0 {
			err = fmt.Errorf("audio: a WAV file that is %d bytes short: %w", s.left, io.ErrUnexpectedEOF)
		}
	}
	s.err = err
	held := s.space[:len(s.raw)+n]
	whole := len(held) / s.frame * s.frame
	s.out = s.convert(s.out[:0], held[:whole])
	s.raw = s.space[:copy(s.space[:], held[whole:])]
}

func (s *samples) convert(out, in []byte) []byte {
	if s.bits == 16 {
		return append(out, in...)
	}
	for width := s.bits / 8; len(in) > 0; in = in[width:] {
		switch {
		case s.float && s.bits == 32:
			out = appendFloat(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(in))))
		case s.float:
			out = appendFloat(out, math.Float64frombits(binary.LittleEndian.Uint64(in)))
		case s.bits == 8: // unsigned
			out = append(out, 0, in[0]-128)
		default: // the two highest bytes
			out = append(out, in[width-2], in[width-1])
		}
	}
	return out
}

func appendFloat(out []byte, x float64) []byte {
	if math.IsNaN(x) {
		x = 0
	}
	x = max(-1, min(1, x))
	return binary.LittleEndian.AppendUint16(out, uint16(int16(math.Round(x*math.MaxInt16))))
}
