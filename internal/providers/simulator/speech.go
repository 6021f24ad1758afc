package simulator

import (
	"context"
	"hash/fnv"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"turnpike/internal/audio"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

var _ providers.SpeechGenerator = (*Simulator)(nil)

// Sample rates. A voice whose name ends in lowRateVoice takes a third of the space.
const (
	defaultRate  = 24_000
	lowRate      = 8_000
	lowRateVoice = "-8k"
)

// Speech returns a tone instead of a voice. It lasts as long as reading the
// text aloud would take, and its pitch depends on the text and the voice.
func (s *Simulator) Speech(ctx context.Context, req *providers.SpeechRequest) (*providers.Content, error) {
	contentType, err := req.ContentType()
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(req.Input) == "" {
		return nil, fault.Missing("input", "input is required: the text to read aloud.")
	}
	speed, err := req.ReadSpeed()
	if err != nil {
		return nil, err
	}
	text, err := obeyMagic(ctx, "input", req.Input)
	if err != nil {
		return nil, err
	}
	return speak(ctx, req, text, speed, contentType)
}

func speak(ctx context.Context, req *providers.SpeechRequest, text string, speed float64, contentType string) (*providers.Content, error) {
	rate := defaultRate
	if strings.HasSuffix(req.Voice, lowRateVoice) {
		rate = lowRate
	}
	// A text with only magic inputs still gets some audio.
	if strings.TrimSpace(text) == "" {
		text = "-"
	}
	pcm := newTone(text, req.Voice, rate, speed)
	if req.Format == "pcm" { // at its own rate
		return &providers.Content{ContentType: contentType, Body: io.NopCloser(pcm), Size: pcm.size}, nil
	}
	body, size, err := audio.Content(ctx, audio.Format{Rate: rate, Channels: 1}, io.NopCloser(pcm), pcm.size, req.Format)
	if err != nil {
		return nil, &providers.Failure{Kind: providers.KindServer, Err: err}
	}
	return &providers.Content{ContentType: contentType, Body: body, Size: size}, nil
}

// charactersPerSecond is roughly how fast people read aloud.
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
