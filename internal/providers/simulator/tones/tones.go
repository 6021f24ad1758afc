// Package tones stands in for a voice: a short soft tone for every few letters,
// so that texts sound different and last as long as they would be spoken.
package tones

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"unicode"
	"unicode/utf8"
)

const (
	// CharactersPerSecond is about how fast people read aloud.
	CharactersPerSecond = 15
	// syllable is how many letters have one tone.
	syllable = 4
	// loudness is a fifth of the highest.
	loudness = math.MaxInt16 / 5
	// fade is the part of a second in which a tone comes and goes: without it
	// there would be clicks.
	fade = 1.0 / 100
)

// scale are tones that sound well in any order, in Hz.
var scale = []float64{220.00, 246.94, 277.18, 329.63, 369.99, 440.00, 493.88, 554.37}

// waveBits is how long the wave is of which every tone is read.
const waveBits = 10

var wave = func() (w [1 << waveBits]int32) {
	for i := range w {
		w[i] = int32(loudness * math.Sin(2*math.Pi*float64(i)/(1<<waveBits)))
	}
	return w
}()

// Reader is a text as 16-bit mono PCM, made as it is read.
type Reader struct {
	text  string // that is still to come
	pitch float64
	rate  int
	speed float64 // characters a second

	characters int   // that have come
	samples    int64 // theirs

	tone  tone
	space [4096]byte
	out   []byte
}

// tone is what is heard at the moment.
type tone struct {
	length, left int
	step, phase  uint32 // of the wave; no step is silence
}

// New makes a reader of a text that is to be heard in a voice, at a rate and
// a speed, of which 1 is the usual one. It also says how many bytes there are.
func New(text, voice string, rate int, speed float64) (r *Reader, size int64) {
	r = &Reader{text: text, pitch: 1 + float64(hash(voice)%8)/8, rate: rate, speed: speed * CharactersPerSecond}
	return r, 2 * r.at(utf8.RuneCountInString(text))
}

// at is where so many characters end, in samples. All places are counted from
// the beginning, so that nothing adds up.
func (r *Reader) at(characters int) int64 {
	return int64(math.Round(float64(characters) * float64(r.rate) / r.speed))
}

func hash(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return h.Sum32()
}

func (r *Reader) Read(p []byte) (int, error) {
	if len(r.out) == 0 {
		r.fill()
	}
	if len(r.out) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

// Close is there for whoever wants a stream that can be closed.
func (r *Reader) Close() error { return nil }

func (r *Reader) fill() {
	r.out = r.space[:0]
	edge := max(1, int(float64(r.rate)*fade))
	for len(r.out)+2 <= len(r.space) {
		for r.tone.left == 0 {
			if r.text == "" {
				return
			}
			r.next()
		}
		t := &r.tone
		value := wave[t.phase>>(32-waveBits)]
		if near := min(t.left, t.length-t.left); near < edge {
			value = value * int32(near) / int32(edge)
		}
		if t.step == 0 {
			value = 0
		}
		r.out = binary.LittleEndian.AppendUint16(r.out, uint16(int16(value)))
		t.phase += t.step
		t.left--
	}
}

// next takes the next letters of a word, or the white space behind it.
func (r *Reader) next() {
	end, count, silent := 0, 0, false
	for i, c := range r.text {
		space := unicode.IsSpace(c)
		if count == 0 {
			silent = space
		}
		if space != silent || count == syllable {
			break
		}
		count++
		end = i + utf8.RuneLen(c)
		if c == utf8.RuneError { // one byte, if it is no character
			_, size := utf8.DecodeRuneInString(r.text[i:])
			end = i + size
		}
	}
	part := r.text[:end]
	r.text = r.text[end:]
	r.characters += count
	samples := r.at(r.characters)
	length := int(samples - r.samples)
	r.samples = samples
	r.tone = tone{length: length, left: length}
	if !silent {
		hz := scale[hash(part)%uint32(len(scale))] * r.pitch
		r.tone.step = uint32(hz / float64(r.rate) * (1 << 32))
	}
}
