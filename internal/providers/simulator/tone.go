package simulator

import (
	"hash/fnv"
	"io"
	"math"
	"unicode/utf8"
)

// charactersPerSecond is about how fast people read aloud.
const charactersPerSecond = 15

// wave is one period of a sine at a fifth of the maximum volume.
var wave = func() (w [1024]int16) {
	for i := range w {
		w[i] = int16(math.MaxInt16 / 5 * math.Sin(2*math.Pi*float64(i)/float64(len(w))))
	}
	return w
}()

// tone is 16-bit mono PCM that is generated while it is read: a long text is hours of audio.
type tone struct {
	size, position int64  // in bytes
	step           uint32 // per sample; 2^32 is one period
}

func newTone(text, voice string, rate int, speed float64) *tone {
	h := fnv.New32a()
	_, _ = io.WriteString(h, voice+"\x00"+text[:min(len(text), 1024)])
	hertz := 220 + float64(h.Sum32()%440)
	samples := float64(utf8.RuneCountInString(text)) * float64(rate) / (speed * charactersPerSecond)
	return &tone{size: 2 * int64(math.Round(samples)), step: uint32(hertz / float64(rate) * (1 << 32))}
}

func (t *tone) Read(p []byte) (int, error) {
	if t.position == t.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), t.size-t.position))
	for i := range n {
		sample := wave[uint32(t.position/2)*t.step>>22]
		p[i] = byte(sample >> (8 * (t.position % 2)))
		t.position++
	}
	return n, nil
}
